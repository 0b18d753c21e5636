"""Failing tests are read from the output of real and recorded test runs."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.agent.failing_tests import verdict_of

JEST = """\
FAIL src/pay.test.js
  ✓ adds (2 ms)
  ✕ subtracts (1 ms)

  ● money › subtracts

    expect(received).toBe(expected)

  ● Console

    console.log

Tests:       1 failed, 2 passed, 3 total
Time:        0.5 s
"""
JEST_BROKEN = """\
FAIL src/broken.test.ts
  ● Test suite failed to run

    SyntaxError: Unexpected token

Test Suites: 1 failed, 1 total
Tests:       0 total
"""
VITEST = """\
 ❯ src/pay.test.ts (3 tests | 1 failed) 5ms
   × money > subtracts 3ms
 FAIL  src/pay.test.ts > money > subtracts
AssertionError: expected 1 to be 2

 Test Files  1 failed (1)
      Tests  1 failed | 2 passed (3)
"""
GO = """\
=== RUN   TestTotal
--- FAIL: TestTotal (0.00s)
    --- FAIL: TestTotal/empty_cart (0.00s)
        pay_test.go:12: got 1, want 0
FAIL
FAIL\texample.com/shop/pay\t0.004s
ok  \texample.com/shop/cart\t(cached)
FAIL\texample.com/shop/web [build failed]
FAIL
"""
CARGO = """\
running 2 tests
test tests::adds ... ok
test tests::subtracts ... FAILED

failures:

---- tests::subtracts stdout ----
    not_a_test
thread 'tests::subtracts' panicked at src/lib.rs:17:9:

failures:
    tests::subtracts

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
UNITTEST_OLD = """\
F
======================================================================
FAIL: test_total (test_pay.PayTest)
----------------------------------------------------------------------
Ran 1 test in 0.000s

FAILED (failures=1)
"""


@pytest.mark.parametrize(
    ("output", "runner", "failing"),
    [
        (JEST, "jest", ("src/pay.test.js › money › subtracts",)),
        (JEST_BROKEN, "jest", ("src/broken.test.ts",)),
        (VITEST, "jest", ("src/pay.test.ts > money > subtracts",)),
        (
            GO,
            "go",
            (
                "example.com/shop/pay.TestTotal",
                "example.com/shop/pay.TestTotal/empty_cart",
                "example.com/shop/web",
            ),
        ),
        (CARGO, "cargo", ("tests::subtracts",)),
        (UNITTEST_OLD, "unittest", ("test_pay.PayTest.test_total",)),
    ],
)
def test_failures_of_every_runner_are_named(output: str, runner: str, failing: tuple[str, ...]) -> None:
    verdict = verdict_of(output)
    assert verdict is not None
    assert (verdict.runner, verdict.failing, verdict.passed) == (runner, failing, False)


@pytest.mark.parametrize(
    "output",
    [
        "\x1b[32m3 passed\x1b[0m in 0.01s",
        "===== 3 passed, 1 skipped, 2 warnings in 61.20s (0:01:01) =====",
        "Ran 3 tests in 0.001s\n\nOK (skipped=1)",
        "Tests:       3 passed, 3 total",
        "      Tests  3 passed (3)",
        "ok  \texample.com/shop/pay\t0.004s",
        "test result: ok. 2 passed; 0 failed; 0 ignored",
    ],
)
def test_a_run_that_passed_is_seen(output: str) -> None:
    verdict = verdict_of(f"before\n{output}\nExit code 0.")
    assert verdict is not None and verdict.passed and verdict.failing == ()


@pytest.mark.parametrize("output", ["", "3 files in 2s", "FAILED to open the file", "OK", "error: FAIL", "a ERROR b"])
def test_other_output_is_no_test_run(output: str) -> None:
    assert verdict_of(output) is None


def test_the_last_run_of_several_counts() -> None:
    verdict = verdict_of(f"{CARGO}\n===== 3 passed in 0.01s =====")
    assert verdict is not None and (verdict.runner, verdict.passed) == ("pytest", True)
    verdict = verdict_of(f"===== 3 passed in 0.01s =====\n{CARGO}")
    assert verdict is not None and (verdict.runner, verdict.passed) == ("cargo", False)


MODULE = """
import pytest, unittest

@pytest.mark.parametrize("word", ["a b", "c - d"])
def test_word(word): assert word == "a"

class TestPay(unittest.TestCase):
    def test_total(self): self.assertEqual(1, 2)
    def test_fine(self): pass
"""


@pytest.mark.parametrize("flags", [["-q"], ["-v"], ["-v", "-rN"]])
def test_a_real_run_of_pytest_is_read(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)
    (tmp_path / "test_broken.py").write_text("import missing_module_x")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors", *flags]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout
    verdict = verdict_of(output)
    assert verdict is not None and verdict.runner == "pytest" and not verdict.passed
    assert {"test_it.py::test_word[a b]", "test_it.py::TestPay::test_total"} <= set(verdict.failing)
    assert ("test_broken.py" in verdict.failing) is ("-rN" not in flags)
    assert not any("test_fine" in name for name in verdict.failing)


def test_a_real_run_of_unittest_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)
    (tmp_path / "test_broken.py").write_text("import missing_module_x")
    command = [sys.executable, "-m", "unittest", "discover"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60).stderr
    verdict = verdict_of(output)
    assert verdict is not None and (verdict.runner, verdict.passed) == ("unittest", False)
    assert set(verdict.failing) == {"test_it.TestPay.test_total", "test_broken"}


@pytest.mark.parametrize(
    "piece",
    [
        "FAILED a.py::", "a.py::b ", "--- FAIL: ", "FAIL: a (", " ", "test a ... ", "1 passed, ", "FAIL a.js > ",
        "\x1b[", "1 failed | ", "● ",
    ],
)  # fmt: skip
def test_output_made_to_be_slow_is_not(piece: str) -> None:
    started = time.perf_counter()
    verdict_of(piece * (2_000_000 // len(piece)))
    verdict_of((piece * 100 + "\n") * (2_000_000 // (100 * len(piece))))
    assert time.perf_counter() - started < 5


def test_the_number_of_names_and_their_length_are_bounded() -> None:
    output = "\n".join(f"FAILED tests/a.py::test_{'x' * 500}{number}" for number in range(5000)) + "\n5000 failed in 1s"
    verdict = verdict_of(output + "\n" + "\n".join(f"FAILED a.py::t{number}" for number in range(5000)))
    assert verdict is not None and len(verdict.failing) == 200
    assert max(map(len, verdict.failing)) <= 300
