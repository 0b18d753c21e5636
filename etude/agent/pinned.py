"""What a conversation must never lose: Pinned, and how it is read from a trace's turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.agent.events import PlanStep
from etude.traces import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The facts that stay in sight: Pinned(task="Fix the failing test.", last_turn=120, files={"pay.py": (3, 1)})."""

    task: str
    """The statement, word for word."""
    last_turn: int = 0
    """Number of the last turn whose answer is in the messages; turns before it count down from here."""
    plan: tuple[PlanStep, ...] = ()


def pinned_from(
    task: str,
    turns: Sequence[Turn],
    *,
    plan: Sequence[PlanStep] | None = None,
    line_counts: Mapping[str, tuple[int, int]] = {},
    diagnostics: Sequence[str] | None = None,
) -> Pinned:
    """Read from the turns whatever the caller does not know better."""
    raise NotImplementedError
