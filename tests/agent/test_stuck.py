"""Going in circles is seen, and told once; being at work is not mistaken for it."""

from collections.abc import Callable, Iterable

import pytest

from etude.agent.stuck import Judgement, RepetitionWatch
from etude.messages import ToolCall
from etude.traces import ToolResult, Turn, TurnError


def turn(*calls: tuple[str, str, str] | tuple[str, str, str, TurnError], text: str = "") -> Turn:
    """Calls as (tool, arguments, result) or with an error."""
    results = tuple(
        ToolResult(
            call=ToolCall(id="1", name=call[0], arguments=call[1]),
            text=call[2],
            error=call[3] if len(call) == 4 else None,
        )
        for call in calls
    )
    error = None if calls else TurnError.NO_CALL
    return Turn(
        number=1, sent=(), text=text, tool_calls=tuple(result.call for result in results), results=results, error=error
    )


def judgements(turns: Iterable[Turn]) -> list[Judgement]:
    watch = RepetitionWatch()
    return [watch.see(one) for one in turns]


def ends(turns: Iterable[Turn]) -> tuple[int | None, int | None]:
    """In which turn (from 1) the first reminder came, and the end."""
    seen = judgements(turns)
    reminded = next((number for number, one in enumerate(seen, 1) if one.reminder), None)
    stuck = next((number for number, one in enumerate(seen, 1) if one.stuck), None)
    return reminded, stuck


def same(number: int) -> Turn:
    return turn(("read", '{"path": "a"}', "x = 1"))


def timed(number: int) -> Turn:
    return turn(("run", '{"command": "pytest"}', f"1 failed in 0.{number}s at 0x7f{number}a"))


def alternating(number: int) -> Turn:
    return turn(("edit", f'{{"new": "{number % 2}"}}', f"to {number % 2}"))


def three_steps(number: int) -> Turn:
    return turn(("read", f'{{"path": "{number % 3}"}}', "text"))


def bad_arguments(number: int) -> Turn:
    return turn(("edit", f'{{"x": {number}}}', f"wrong {number}", TurnError.WRONG_ARGUMENTS))


def unknown(number: int) -> Turn:
    return turn(("brows", f'"{number}"', f"no {number}", TurnError.UNKNOWN_TOOL))


def monologue(number: int) -> Turn:
    return turn(text=f"I should do something {number}.")


@pytest.mark.parametrize(
    ("make", "reminded", "stuck"),
    [
        (same, 3, 6),
        (timed, 3, 6),
        (alternating, 6, 12),
        (three_steps, 9, 18),
        (bad_arguments, 4, 8),
        (unknown, 4, 8),
        (monologue, 3, 6),
    ],
)
def test_circles_are_told_and_then_ended(make: Callable[[int], Turn], reminded: int, stuck: int) -> None:
    assert ends(make(number) for number in range(30)) == (reminded, stuck)


def fixing(number: int) -> Turn:
    """Edits and the same failing test between them."""
    if number % 2:
        return turn(("run", "pytest", "1 failed", TurnError.COMMAND_FAILED))
    return turn(("edit", f"{number}", f"diff {number}"))


def failing_differently(number: int) -> Turn:
    return turn(("run", "pytest", f"test_{number} failed", TurnError.COMMAND_FAILED))


def one_of_two_wrong(number: int) -> Turn:
    return turn(("read", "{", "bad", TurnError.MALFORMED_CALL), ("read", f"{number}", f"text {number}"))


def reading_on(number: int) -> Turn:
    return turn(("read", f'{{"first_line": {number}}}', f"{number} x = 1"))


@pytest.mark.parametrize("make", [fixing, failing_differently, one_of_two_wrong, reading_on])
def test_work_is_not_a_circle(make: Callable[[int], Turn]) -> None:
    assert ends(make(number) for number in range(60)) == (None, None)


def test_a_reminder_is_forgiven_after_work() -> None:
    work = [reading_on(number) for number in range(15)]
    turns = [*map(same, range(3)), *work, *map(same, range(3))]
    seen = judgements(turns)
    assert len([one for one in seen if one.reminder]) == 2
    assert not any(one.stuck for one in seen)


def test_circles_soon_after_a_reminder_end_the_run() -> None:
    turns = [*map(same, range(3)), *map(reading_on, range(5)), *map(same, range(3))]
    assert ends(turns) == (3, 11)


def test_large_results_are_compared_by_their_end() -> None:
    long = "x" * 1_000_000
    assert ends(turn(("run", "make", f"{number}{long}end")) for number in range(3))[0] == 3
