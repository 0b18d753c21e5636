"""What a run tells whoever watches it, as it happens: values that a terminal, a page, an editor or a file can show.

A watcher that joins late reads the same events from the run's file. The trace is the record; these are for the eye.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", rename="camel"):
    """Something that happened."""


class StepState(StrEnum):
    """How far a step of the plan is."""

    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the plan."""

    text: str
    state: StepState = StepState.PENDING


class Started(Event, frozen=True, tag="started"):
    run: str
    statement: str
    model: str
    root: str


class TurnStarted(Event, frozen=True, tag="turn"):
    number: int


class TextWritten(Event, frozen=True, tag="text"):
    """A piece of what the model says, while it says it."""

    text: str


class CallStarted(Event, frozen=True, tag="call"):
    id: str
    tool: str
    summary: str
    """One line for a person: "edit src/pay.py", "$ pytest -q"."""
    arguments: str
    """JSON text as the model wrote it."""


class OutputPrinted(Event, frozen=True, tag="output"):
    """A piece of what a command prints, while it runs."""

    id: str
    text: str


class CallFinished(Event, frozen=True, tag="result"):
    id: str
    text: str
    """What the model reads of it."""
    error: str = ""
    """A TurnError, or empty."""
    seconds: float = 0.0
    changed: list[str] = []


class PlanChanged(Event, frozen=True, tag="plan"):
    steps: list[PlanStep]


class DiagnosticsChanged(Event, frozen=True, tag="diagnostics"):
    """Against the state when the run began; each a line such as "pay.py:3:5 error: … [ty]"."""

    appeared: list[str]
    gone: list[str]


class QuestionAsked(Event, frozen=True, tag="question"):
    id: str
    text: str
    choices: list[str] = []
    """Suggested answers; any other text is welcome."""


class QuestionAnswered(Event, frozen=True, tag="answer"):
    id: str
    text: str | None
    """None: nobody was there."""


class Notice(Event, frozen=True, tag="notice"):
    """Something a person should know: a followed edit, a conflict, a compaction, a retry, a reminder."""

    text: str


class TurnFinished(Event, frozen=True, tag="turn_done"):
    number: int
    context_tokens: int
    generated_tokens: int
    seconds: float
    cost: float = 0.0


class Stopped(Event, frozen=True, tag="stopped"):
    """The last event of a run."""

    reason: str
    """A StopReason."""
    message: str
    answer: str
    changed: list[str]
    """Paths that differ from the user's tree, ignored ones left out."""
    check: str = ""
    """"passes" or "fails", where the task has a check and it was run at the end."""


AgentEvent = (
    Started
    | TurnStarted
    | TextWritten
    | CallStarted
    | OutputPrinted
    | CallFinished
    | PlanChanged
    | DiagnosticsChanged
    | QuestionAsked
    | QuestionAnswered
    | Notice
    | TurnFinished
    | Stopped
)

Observer = Callable[[AgentEvent], None]
"""Called in the run's event loop; must not wait."""


def ignore(event: AgentEvent) -> None:
    """The Observer of a run that nobody watches."""


class Person(Protocol):
    """Whoever can be asked."""

    async def answer(self, question: str, choices: Sequence[str]) -> str | None:
        """Waits as long as it takes; None when nobody is there."""
        ...

    async def consents(self, action: str, detail: str) -> bool:
        """Whether the run may do something outside a shadow: write into the live tree, use the network."""
        ...


class Nobody:
    """The Person of an unattended run: no answer, no consent."""

    async def answer(self, question: str, choices: Sequence[str]) -> str | None:
        return None

    async def consents(self, action: str, detail: str) -> bool:
        return False
