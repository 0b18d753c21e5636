"""Best-of-n in real copies of a workspace: which attempt is kept, why, and that the others leave nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.best_of import Attempt, Best, Check, best_of, choose, model_for, num_failing, rows
from etude.errors import ModelError
from etude.messages import Sampling
from etude.models.model import finish
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.memory import Files, MemoryWorkspace
from etude.workspace.workspace import (
    ChangeKind,
    Command,
    Diagnostic,
    FileChange,
    ForkableWorkspace,
    Place,
    Severity,
)

TASK = Task(id="t", statement="Make it right.", check="check")
FILES = {"a.py": "x = 1\n"}


def check(command: Command, files: Files) -> tuple[int, str]:
    """Right is x = 2; else one test fails for each letter of the file's last line."""
    last = files["a.py"].splitlines()[-1]
    files["report.txt"] = "left behind by the check"
    return (0, "1 passed") if last == "x = 2" else (1, f"=== {len(last)} failed in 0.1s ===")


def errors_in(files: Files) -> list[Diagnostic]:
    place = Place(path="a.py", line=1, column=1, end_line=1, end_column=2)
    return [
        Diagnostic(place=replace(place, line=number), severity=Severity.ERROR, message="bad", server="memory")
        for number, line in enumerate(files["a.py"].splitlines(), 1)
        if "bad" in line
    ]


def trace(reason: StopReason = StopReason.FINISHED) -> Trace:
    return Trace(id="t", task=TASK, model="m", chat_format="", tools=(), stop_reason=reason, answer="done")


async def made(
    texts: Sequence[str | Exception], *, task: Task = TASK, at_once: int = 1
) -> tuple[Best, MemoryWorkspace]:
    workspace = MemoryWorkspace(FILES, commands=check, check=errors_in)

    async def attempt(number: int, fork: ForkableWorkspace) -> Trace:
        text = texts[number - 1]
        if isinstance(text, Exception):
            raise text
        await fork.write("a.py", text)
        return trace()

    return await best_of(task, workspace, len(texts), attempt, at_once=at_once), workspace


def best(texts: Sequence[str | Exception], *, task: Task = TASK, at_once: int = 1) -> Best:
    return asyncio.run(made(texts, task=task, at_once=at_once))[0]


NO_CHECK = Task(id="t", statement="Make it right.")


def test_the_check_decides_before_everything_else() -> None:
    found = best(["x = 1.5\n", "bad = 1\nbad = 2\nx = 2\n", "x = 3\n"])
    assert found.kept.number == 2
    assert found.reason == "Attempt 2 was kept: its check passes, where that of 1 and 3 fails."
    assert [change.after for change in found.changes] == [b"bad = 1\nbad = 2\nx = 2\n"]


def test_then_how_many_tests_fail() -> None:
    found = best(["x = 1234567\n", "y = 7\n"])
    assert (found.kept.number, found.kept.check) == (2, Check(passed=False, num_failing=5))
    assert "5 of its tests fail, where 11 in 1 fail" in found.reason


def test_then_new_errors_and_then_the_size() -> None:
    found = best(["bad = 1\nx = 2\n", "x = 0\ny = 1\nx = 2\n", "y = 1\nx = 2\n"])
    assert found.kept.number == 3
    assert "it brings 0 new errors, where 1 in 1" in found.reason
    assert "its change is smaller: 3 lines, where it is 4 in 2" in found.reason


def test_an_attempt_that_did_nothing_is_not_the_smallest() -> None:
    assert best(["x = 1\n", "x = 5\n"], task=NO_CHECK).reason.endswith("it changed something, and 1 did not.")


def test_the_first_of_equals_is_kept() -> None:
    assert best(["x = 2\n", "x = 2\n"]).reason == (
        "Attempt 1 was kept: by every measure it is as good as 2, and was made first."
    )


def test_an_attempt_that_fails_ends_no_other() -> None:
    found = best([ModelError("The server is gone."), "x = 2\n"], task=NO_CHECK)
    assert (found.kept.number, found.attempts[0].message) == (2, "The server is gone.")
    assert "it finished, where it was crashed in 1" in found.reason


def test_our_own_slip_is_not_hidden() -> None:
    with pytest.raises(ExceptionGroup):
        best([ZeroDivisionError(), "x = 2\n"])


def test_the_workspace_itself_and_what_checks_leave_stay_out() -> None:
    found, workspace = asyncio.run(made(["x = 2\n", "x = 3\n"], at_once=2))
    assert workspace.files == FILES
    assert [change.path for change in found.changes] == ["a.py"]


def test_attempts_at_once_really_overlap() -> None:
    async def scene() -> Best:
        meeting = asyncio.Barrier(3)

        async def attempt(number: int, fork: ForkableWorkspace) -> Trace:
            await meeting.wait()
            return trace()

        return await best_of(NO_CHECK, MemoryWorkspace(FILES), 3, attempt, at_once=3)

    assert [one.number for one in asyncio.run(scene()).attempts] == [1, 2, 3]


def test_cancelling_ends_all_attempts() -> None:
    async def scene() -> list[int]:
        began, ended = asyncio.Event(), []

        async def attempt(number: int, fork: ForkableWorkspace) -> Trace:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)
            raise AssertionError

        task = asyncio.create_task(best_of(NO_CHECK, MemoryWorkspace(FILES), 2, attempt, at_once=2))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sorted(ended)

    assert asyncio.run(scene()) == [1, 2]


def test_the_table_marks_what_is_kept() -> None:
    header, first, second = rows(best(["x = 3\n", "x = 2\n"]))
    assert header[1:4] == ("attempt", "check", "failing")
    assert first == ("", "1", "fails", "5", "finished", "0", "2", "0")
    assert second == ("*", "2", "passes", "0", "finished", "0", "2", "0")


def test_what_is_not_known_of_all_tells_none_apart() -> None:
    kept = Attempt(number=1, stop_reason=StopReason.FINISHED, num_errors=3, num_lines=1, changes=(CHANGE,))
    other = Attempt(number=2, stop_reason=StopReason.FINISHED, num_errors=None, num_lines=2, changes=(CHANGE,))
    assert choose([other, kept])[0] is kept


CHANGE = FileChange(path="a", kind=ChangeKind.ADDED, before=None, after=b"x")
checks = st.none() | st.builds(Check, passed=st.booleans(), num_failing=st.none() | st.integers(0, 3))
attempts = st.builds(
    Attempt,
    number=st.just(1),
    stop_reason=st.sampled_from([StopReason.FINISHED, StopReason.STUCK]),
    check=checks,
    num_errors=st.none() | st.integers(0, 2),
    num_lines=st.integers(0, 3),
    changes=st.sampled_from([(), (CHANGE,)]),
)


@given(st.lists(attempts, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_choice_does_not_hang_on_the_order(found: list[Attempt], random: object) -> None:
    numbered = [replace(one, number=number) for number, one in enumerate(found, 1)]
    kept, reason = choose(numbered)
    assert choose(numbered[::-1])[0] == kept
    assert reason.endswith(".")
    if any(one.check and one.check.passed for one in numbered):
        assert kept.check is None or kept.check.passed


@pytest.mark.parametrize(
    ("output", "count"),
    [
        ("===== 3 failed, 12 passed in 0.5s =====", 3),
        ("=== 1 failed, 2 errors in 0.5s ===\nsee the log", 3),
        ("Ran 7 tests in 0.001s\n\nFAILED (failures=1, errors=2)", 3),
        ("Tests:       1 failed, 4 passed, 5 total\nTime: 2 s", 1),
        ("test result: FAILED. 1 passed; 2 failed; 0 ignored", 2),
        ("--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nFAIL", 2),
        ("make: *** [all] Error 2", None),
        ("9" * 5000 + " failed", 999999999),
        ("", None),
    ],
)
def test_failing_tests_are_counted_as_runners_say_them(output: str, count: int | None) -> None:
    assert num_failing(output) == count


def test_later_attempts_are_sampled_otherwise() -> None:
    async def asked(number: int) -> Sampling:
        model = ScriptedModel(["hello"])
        assert (await finish(model_for(model, number).complete("hi", Sampling()))).text == "hello"
        return model.asked[0][1]

    samplings = [asyncio.run(asked(number)) for number in (1, 2, 3)]
    assert samplings[0] == Sampling()
    assert len({sampling.seed for sampling in samplings}) == 3
    assert samplings[1].temperature > 0
