"""Which tests failed, read from what a command printed: pytest, unittest, jest, vitest, go test, cargo test.

    verdict_of("…FAILED tests/test_pay.py::test_total - assert 3 == 4\\n1 failed, 8 passed in 0.2s")
    → Verdict(runner="pytest", failing=("tests/test_pay.py::test_total",), passed=False)

Line by line with patterns that look at a line once, so the time is proportional to the output however it was made.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from etude.agent.terminal_text import clean

# Of the output's start and of its end; test runners name what failed at the end.
_MAX_CHARACTERS = 1_000_000
_MAX_LINE_CHARACTERS = 600
_MAX_TESTS = 200
_MAX_NAME_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a test run said about itself."""

    runner: str
    """"pytest", "unittest", "jest" (vitest too), "go" or "cargo"."""
    failing: tuple[str, ...] = ()
    """Names as the runner takes them, in order, without repetition; the first two hundred."""
    passed: bool
    """It ended, and nothing failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A runner's lines in an output."""

    failing: Iterable[str] = ()
    last_line: int = -1
    """Of those that only this runner prints; -1 if there is none."""
    passed: bool = False


def verdict_of(output: str) -> Verdict | None:
    """None if it is no output of a test run. Of several runs (a script's), the last one's runner counts."""
    lines = [line[:_MAX_LINE_CHARACTERS].rstrip() for line in _ends(clean(output)).split("\n")]
    found = {runner: read(lines) for runner, read in _READERS.items()}
    runner = max(found, key=lambda name: found[name].last_line)
    if found[runner].last_line < 0:
        return None
    names = dict.fromkeys(name.strip()[:_MAX_NAME_CHARACTERS] for name in found[runner].failing)
    failing = tuple(name for name in names if name)[:_MAX_TESTS]
    return Verdict(runner=runner, failing=failing, passed=found[runner].passed and not failing)


def _ends(output: str) -> str:
    if len(output) <= 2 * _MAX_CHARACTERS:
        return output
    return f"{output[:_MAX_CHARACTERS]}\n{output[-_MAX_CHARACTERS:]}"


# pytest.

_PYTEST_COUNT = r"\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)"
_PYTEST_SUMMARY = re.compile(rf"=* ?({_PYTEST_COUNT}(?:, {_PYTEST_COUNT}){{0,8}}) in [\d.]+s\b")
_PYTEST_NOTHING = re.compile(r"=* ?no tests (?:ran|collected)\b")
_PYTEST_SHORT = re.compile(r"(?:FAILED|ERROR) (\S+\.py(?:::\S.*)?)$")
_PYTEST_PROGRESS = re.compile(r" +\[ *\d+%\]$")


def _pytest(lines: Sequence[str]) -> _Found:
    failing: list[str] = []
    last, passed = -1, False
    for number, line in enumerate(lines):
        if name := _pytest_name(line):
            failing.append(name)
            last = number
        elif match := _PYTEST_SUMMARY.match(line):
            last, passed = number, not re.search(r"failed|error", match[1])
        elif _PYTEST_NOTHING.match(line):
            last, passed = number, False
    return _Found(failing=failing, last_line=last, passed=passed)


def _pytest_name(line: str) -> str:
    """From the short summary, or from a line of the verbose progress."""
    if match := _PYTEST_SHORT.match(line.partition(" - ")[0]):
        return match[1]
    if not line.startswith(" ") and ".py::" in line:
        name, _, outcome = _PYTEST_PROGRESS.sub("", line).rpartition(" ")
        return name if outcome in ("FAILED", "ERROR") and " " not in name.partition("::")[0] else ""
    return ""


# unittest.

_UNITTEST_FAILED = re.compile(r"(?:FAIL|ERROR): (\w+) \(([\w.]+)\)")
_UNITTEST_IMPORT = re.compile(
    r"(?:FAIL|ERROR): unittest\.loader\._FailedTest\.([\w.]+)|(?:FAIL|ERROR): setUpClass \(([\w.]+)\)"
)
_UNITTEST_RAN = re.compile(r"Ran \d+ tests? in [\d.]+s$")


def _unittest(lines: Sequence[str]) -> _Found:
    failing: list[str] = []
    last, passed = -1, False
    for number, line in enumerate(lines):
        if match := _UNITTEST_IMPORT.match(line):
            failing.append(match[1] or match[2])
        elif match := _UNITTEST_FAILED.match(line):
            failing.append(_unittest_name(match[1], match[2]))
        elif _UNITTEST_RAN.match(line):
            last = number
        elif last >= 0 and (line == "OK" or line.startswith(("OK (", "FAILED ("))):
            last, passed = number, line.startswith("OK")
    return _Found(failing=failing, last_line=last, passed=passed)


def _unittest_name(method: str, place: str) -> str:
    """Since Python 3.11 the parentheses hold the method too; a module that cannot be imported is named inside."""
    if place.startswith("unittest.loader._FailedTest"):
        return method
    return place if place.endswith(f".{method}") else f"{place}.{method}"


# jest and vitest.

_JEST_COUNT = r"\d+ (?:failed|passed|skipped|todo|pending|total)"
_JEST_SUMMARY = re.compile(rf" *Tests:? +({_JEST_COUNT}(?:(?:, | \| ){_JEST_COUNT}){{0,5}})(?: \(\d+\))?$")
_JEST_FILE = re.compile(r" *FAIL +(\S+\.[cm]?[jt]sx?)\b((?: > .*)?)")
_JEST_TEST = re.compile(r" {0,4}● (.+)")
_JEST_NO_TESTS = ("Console", "Test suite failed to run")


def _jest(lines: Sequence[str]) -> _Found:
    failing: list[str] = []
    last, passed, file = -1, False, ""
    for number, line in enumerate(lines):
        if match := _JEST_FILE.match(line):
            file, last = match[1], number
            failing.append(match[1] + match[2])
        elif (match := _JEST_TEST.match(line)) and file:
            failing += [f"{file} › {match[1]}"] if match[1] not in _JEST_NO_TESTS else []
        elif match := _JEST_SUMMARY.match(line):
            last, passed = number, "failed" not in match[1]
    return _Found(failing=_without_parents(failing), last_line=last, passed=passed)


def _without_parents(names: Sequence[str]) -> list[str]:
    """A file's own line says nothing where its tests are named."""
    parents = {re.split(" [›>] ", name, maxsplit=1)[0] for name in names if re.search(" [›>] ", name)}
    return [name for name in names if name not in parents]


# go test.

_GO_TEST = re.compile(r"\s*--- FAIL: (\S+) \([\d.]+s\)")
_GO_PACKAGE = re.compile(r"(FAIL|ok  )\t(\S+)(?:\t[\d.]+s|\t\(cached\)| \[(?:build|setup) failed\])")


def _go(lines: Sequence[str]) -> _Found:
    failing: list[str] = []
    tests: list[str] = []
    last, failed = -1, False
    for number, line in enumerate(lines):
        if match := _GO_TEST.match(line):
            tests.append(match[1])
            last, failed = number, True
        elif match := _GO_PACKAGE.match(line):
            failing += [f"{match[2]}.{test}" for test in tests] or [match[2]] * (match[1] == "FAIL")
            tests, last, failed = [], number, failed or match[1] == "FAIL"
    return _Found(failing=[*failing, *tests], last_line=last, passed=not failed)


# cargo test.

_CARGO_TEST = re.compile(r"test (\S.*) \.\.\. FAILED$")
_CARGO_LISTED = re.compile(r"    (\S+)$")
_CARGO_SUMMARY = re.compile(r"test result: (ok|FAILED)\. \d+ passed")


def _cargo(lines: Sequence[str]) -> _Found:
    failing: list[str] = []
    last, failed, listing = -1, False, False
    for number, line in enumerate(lines):
        if match := _CARGO_TEST.match(line) or (listing and _CARGO_LISTED.match(line)) or None:
            failing.append(match[1])
        elif match := _CARGO_SUMMARY.match(line):
            last, failed = number, failed or match[1] == "FAILED"
        listing = line == "failures:" or (listing and line.startswith("    "))
    return _Found(failing=failing, last_line=last, passed=not failed)


_READERS: dict[str, Callable[[Sequence[str]], _Found]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "jest": _jest,
    "go": _go,
    "cargo": _cargo,
}
