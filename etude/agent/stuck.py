"""Noticing that a run goes in circles: first a reminder, and if that does not help, the end.

Only exact repetition counts, and only on end: whoever tests, edits and tests again is at work.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from etude.traces import Turn, TurnError

# The same step and the same outcome so often in a row; then as often again after the reminder.
SAME = 3
# A cycle of two or three steps so often.
CYCLES = 3
LONGEST_CYCLE = 3
# The same mistake in different words.
MISTAKES = 4
# After so many turns without repetition a reminder is forgotten.
FORGIVEN_AFTER = 12

# What differs in an output though nothing does: durations, addresses, times of day.
_NOISE = re.compile(r"\b\d+(?:\.\d+)?\s?m?s(?:econds?)?\b|\b0x[0-9a-f]+\b|\b\d\d:\d\d:\d\d\b")
MAX_COMPARED_CHARACTERS = 4_000

_MISTAKES = frozenset(
    {TurnError.UNKNOWN_TOOL, TurnError.MALFORMED_CALL, TurnError.WRONG_ARGUMENTS, TurnError.TOOL_FAILED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is thought of the last turn."""

    reminder: str = ""
    """For the model."""
    stuck: str = ""
    """Why there is no point in going on, for a person."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What is compared of a turn."""

    done: tuple[tuple[str, str], ...]
    """Each call and what came of it; the text of an answer without calls."""
    mistakes: frozenset[tuple[str, str]]
    """(error, tool), where every call was one."""


class RepetitionWatch:
    """Sees every turn once, in order."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=max(SAME, CYCLES * LONGEST_CYCLE, MISTAKES))
        self._since_reminder: int | None = None

    def see(self, turn: Turn) -> Judgement:
        self._steps.append(_step(turn))
        if self._since_reminder is not None:
            self._since_reminder += 1
        what = _repetition(tuple(self._steps))
        if not what:
            return Judgement()
        reminded = self._since_reminder is not None and self._since_reminder <= FORGIVEN_AFTER
        self._since_reminder = 0
        self._steps.clear()
        if reminded:
            return Judgement(stuck=f"It repeated itself after a reminder: {what}.")
        return Judgement(reminder=f"You are going in circles: {what}. Stop, think about why, and do something else.")


def _repetition(steps: Sequence[_Step]) -> str:
    """What is repeated up to the last step, or "" if nothing is."""
    last = steps[-1]
    if _is_monologue(steps[-SAME:]):
        return f"{SAME} answers called no tool"
    if len(steps) >= SAME and all(step.done == last.done for step in steps[-SAME:]):
        return f"the same step had the same outcome {SAME} times"
    if any(_is_cycle(steps, length) for length in range(2, LONGEST_CYCLE + 1)):
        return "the same few steps come again and again, with the same outcome"
    same = frozenset.intersection(*(step.mistakes for step in steps[-MISTAKES:]))
    if len(steps) >= MISTAKES and same:
        error, tool = min(same)
        return f"{MISTAKES} calls of {tool or 'a tool'} went wrong in the same way ({error.replace('_', ' ')})"
    return ""


def _is_monologue(steps: Sequence[_Step]) -> bool:
    return len(steps) == SAME and all((TurnError.NO_CALL, "") in step.mistakes for step in steps)


def _is_cycle(steps: Sequence[_Step], length: int) -> bool:
    if len(steps) < CYCLES * length:
        return False
    cycle = steps[-length:]
    return all(steps[-(number + 1) * length : len(steps) - number * length] == cycle for number in range(1, CYCLES))


def _step(turn: Turn) -> _Step:
    done = tuple((f"{result.call.name} {result.call.arguments}", _outcome(result.text)) for result in turn.results)
    mistakes = [(result.error, result.call.name) for result in turn.results if result.error in _MISTAKES]
    if turn.error:
        mistakes.append((turn.error, ""))
    are_all = len(mistakes) == max(1, len(turn.results))
    return _Step(
        done=done or (("", turn.text[:MAX_COMPARED_CHARACTERS]),),
        mistakes=frozenset((str(error), tool) for error, tool in mistakes) if are_all else frozenset(),
    )


def _outcome(text: str) -> str:
    return _NOISE.sub("", text[-MAX_COMPARED_CHARACTERS:])
