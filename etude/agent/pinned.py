"""What a conversation must never lose: Pinned, how it is read from a trace's turns, and the page it makes.

The page is plain text and bounded: `facts(pinned, most=20)` shows at most so many entries a section and says how many
there are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from etude.agent.change_size import Size, size_of
from etude.agent.events import PlanStep
from etude.agent.failing_tests import Verdict, verdict_of
from etude.agent.terminal_text import clean
from etude.agent.tools.ask import NO_ANSWER
from etude.agent.tools.plan import last_plan, plan_text
from etude.traces import ToolResult, Turn
from etude.workspace.workspace import FileChange

_MAX_LINE_CHARACTERS = 400

# Of test runs, the last of each command; more is history.
_MAX_COMMANDS = 3

_DIFF_LINE = re.compile(r"^([+-])(?!\1\1 )", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFile:
    """A file the run changed: TouchedFile(path="pay.py", size=Size(added=3, removed=1), turn=12)."""

    path: str
    size: Size | None
    """None where nobody counted."""
    turn: int = 0
    """That changed it last; 0 if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What a command that runs tests said the last time."""

    command: str
    turn: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question the person was asked."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The facts that stay in sight: Pinned(task="Fix the failing test.", last_turn=120)."""

    task: str
    """The statement, word for word."""
    last_turn: int = 0
    """Number of the last turn whose answer is in the messages; the turns before it count down from here."""
    plan: tuple[PlanStep, ...] = ()
    files: tuple[TouchedFile, ...] = ()
    tested: tuple[Tested, ...] = ()
    """One a command, the last one last."""
    diagnostics: tuple[str, ...] = ()
    """Lines such as "pay.py:3:5 error: … [ty]"."""
    answers: tuple[Answered, ...] = ()
    said: tuple[str, ...] = ()
    """What the person wrote while the run went on."""
    notes: tuple[str, ...] = ()


def pinned_from(
    task: str,
    turns: Sequence[Turn],
    *,
    changes: Sequence[FileChange] | None = None,
    diagnostics: Sequence[str] | None = None,
    said: Sequence[str] = (),
) -> Pinned:
    """Read from the turns what the caller does not know better: `changes` (a shadow's) and `diagnostics`."""
    results = [(turn.number, result) for turn in turns for result in turn.results]
    return Pinned(
        task=task,
        last_turn=turns[-1].number if turns else 0,
        plan=last_plan(turns),
        files=_touched(results) if changes is None else _changed(changes),
        tested=_tested(results),
        diagnostics=_diagnosed(results) if diagnostics is None else tuple(diagnostics),
        answers=_answered(results),
        said=tuple(said),
        notes=tuple(dict.fromkeys(note for turn in turns for note in turn.notes)),
    )


def _changed(changes: Sequence[FileChange]) -> tuple[TouchedFile, ...]:
    return tuple(TouchedFile(path=change.path, size=size_of(change)) for change in changes if not change.ignored)


def _touched(results: Sequence[tuple[int, ToolResult]]) -> tuple[TouchedFile, ...]:
    """By the edits' differences, summed up; what commands changed has no numbers."""
    files: dict[str, TouchedFile] = {}
    for number, result in results:
        size = _diff_size(result.text) if len(result.changed) == 1 and result.text.startswith("--- ") else None
        for path in result.changed:
            before = files.pop(path, None)
            sizes = [one for one in (before.size if before else None, size) if one]
            total = Size(added=sum(one.added for one in sizes), removed=sum(one.removed for one in sizes))
            files[path] = TouchedFile(path=path, size=total if sizes else None, turn=number)
    return tuple(files.values())


def _diff_size(diff: str) -> Size:
    signs = _DIFF_LINE.findall(diff)
    return Size(added=signs.count("+"), removed=signs.count("-"))


def _tested(results: Sequence[tuple[int, ToolResult]]) -> tuple[Tested, ...]:
    """The last verdict of each command, from the end, so that a long run costs no more than a short one."""
    found: dict[str, Tested] = {}
    for number, result in reversed(results):
        command = _argument(result, "command")
        if not command or command in found:
            continue
        if verdict := verdict_of(result.text):
            found[command] = Tested(command=command, turn=number, verdict=verdict)
        if len(found) >= _MAX_COMMANDS:
            break
    return tuple(reversed(found.values()))


def _diagnosed(results: Sequence[tuple[int, ToolResult]]) -> tuple[str, ...]:
    texts = (result.text for _, result in reversed(results) if result.call.name == "diagnostics" and not result.error)
    return tuple(line for line in next(texts, "").split("\n") if line.strip())


def _answered(results: Sequence[tuple[int, ToolResult]]) -> tuple[Answered, ...]:
    return tuple(
        Answered(question=_argument(result, "question"), answer=result.text)
        for _, result in results
        if result.call.name == "ask" and not result.error and result.text != NO_ANSWER
    )


def _argument(result: ToolResult, name: str) -> str:
    """Models write arguments; what is not there, or no text, is empty."""
    if f'"{name}"' not in result.call.arguments:
        return ""
    try:
        value = msgspec.json.decode(result.call.arguments, type=dict[str, object]).get(name)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


# The page.


def facts(pinned: Pinned, *, most: int) -> str:
    """Sections with their newest `most` entries; those that are empty are left out."""
    sections = [
        ("Plan", plan_text(pinned.plan).split("\n") if pinned.plan else [], 2 * most),
        ("Files changed so far", [_file_line(file) for file in pinned.files], most),
        (
            "Tests when they last ran",
            [line for tested in pinned.tested for line in _test_lines(tested, most)],
            4 * most,
        ),
        ("Diagnostics", pinned.diagnostics, most),
        ("What the person answered", [f"{one.question} → {one.answer}" for one in pinned.answers], most),
        ("What the person said meanwhile", pinned.said, most),
        ("Notes", pinned.notes, most),
    ]
    return "\n\n".join(_section(title, lines, room) for title, lines, room in sections if lines)


def _section(title: str, lines: Sequence[str], most: int) -> str:
    shown = [one_line(line, _MAX_LINE_CHARACTERS) for line in lines[len(lines) - min(most, len(lines)) :]]
    more = f" (the last {len(shown)} of {len(lines)})" if len(shown) < len(lines) else ""
    return "\n".join([f"## {title}{more}", *(f"- {line}" for line in shown)])


def one_line(text: str, most: int) -> str:
    """Untrusted text in a list must not look like the list's end, and must be sendable: names may not be UTF-8."""
    text = clean(text[: 8 * most]).encode("utf-8", "backslashreplace").decode("utf-8")
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _file_line(file: TouchedFile) -> str:
    size = f" +{file.size.added} −{file.size.removed}" if file.size else ""
    return f"{file.path}{size}" + (f" (turn {file.turn})" if file.turn else "")


def _test_lines(tested: Tested, most: int) -> list[str]:
    verdict = tested.verdict
    failing = f"{len(verdict.failing)} failing" if verdict.failing else "failed"
    head = f"{one_line(tested.command, 200)} (turn {tested.turn}): {'passed' if verdict.passed else failing}"
    names = [f"failing: {name}" for name in verdict.failing[:most]]
    more = [f"… and {len(verdict.failing) - most} more"] if len(verdict.failing) > most else []
    return [head, *names, *more]
