"""What travels between the page's agent panel and the server; the same names in web/src/agent_wire.ts.

Events of a run travel as `agent/events.py` has them. Line numbers count from 0, with ends exclusive.
"""

from typing import Annotated

import msgspec

from etude.agent.events import AgentEvent
from etude.server.wire import Failed, Wire

MAX_STATEMENT_CHARACTERS = 100_000
MAX_ANSWER_CHARACTERS = 20_000
MAX_CHECK_CHARACTERS = 4_000
MAX_BEST_OF = 8
MAX_RUN_CHARACTERS = 64
# Whoever decides more hunks of one file than that accepts the file as a whole.
MAX_ACCEPTED_HUNKS = 20_000

RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
RunId = Annotated[str, msgspec.Meta(max_length=MAX_RUN_CHARACTERS)]


# From the page. Each request gets one answer with its id: one of those below, or Failed.


class StartRun(Wire, frozen=True, tag="start"):
    id: RequestId
    statement: Annotated[str, msgspec.Meta(max_length=MAX_STATEMENT_CHARACTERS)]
    check: Annotated[str, msgspec.Meta(max_length=MAX_CHECK_CHARACTERS)] = ""
    best_of: Annotated[int, msgspec.Meta(ge=1, le=MAX_BEST_OF)] = 1


class ListRuns(Wire, frozen=True, tag="list"):
    id: RequestId


class AttachRun(Wire, frozen=True, tag="attach"):
    """Send the events of this run, and of no other, from now on; an empty run: of none."""

    id: RequestId
    run: RunId
    after: int = 0
    """How many of its events the page has already."""


class AnswerQuestion(Wire, frozen=True, tag="answer"):
    id: RequestId
    run: RunId
    question: Annotated[str, msgspec.Meta(max_length=256)]
    text: Annotated[str, msgspec.Meta(max_length=MAX_ANSWER_CHARACTERS)]


class StopRun(Wire, frozen=True, tag="stop"):
    id: RequestId
    run: RunId


class ResumeRun(Wire, frozen=True, tag="resume"):
    """Let a run that has ended go on; its events begin anew then."""

    id: RequestId
    run: RunId
    follow_up: Annotated[str, msgspec.Meta(max_length=MAX_STATEMENT_CHARACTERS)] = ""
    """What else is to be done; a run that finished needs it."""


class ReadChanges(Wire, frozen=True, tag="changes"):
    id: RequestId
    run: RunId


class AcceptedFile(Wire, frozen=True):
    """Of a file the hunks that are wanted."""

    number: int
    """Of the file in `Changes.files`."""
    hunks: Annotated[list[int], msgspec.Meta(max_length=MAX_ACCEPTED_HUNKS)] | None = None
    """None: the whole file."""


class LandChanges(Wire, frozen=True, tag="land"):
    id: RequestId
    run: RunId
    version: str
    """`Changes.version` of what the person saw."""
    accepted: list[AcceptedFile]


class UndoLanding(Wire, frozen=True, tag="undo"):
    id: RequestId
    run: RunId


class DiscardRun(Wire, frozen=True, tag="discard"):
    id: RequestId
    run: RunId


FromAgentPanel = (
    StartRun
    | ListRuns
    | AttachRun
    | AnswerQuestion
    | StopRun
    | ResumeRun
    | ReadChanges
    | LandChanges
    | UndoLanding
    | DiscardRun
)


# To the page.


class RunShown(Wire, frozen=True):
    """A run as the list shows it."""

    run: str
    statement: str
    state: str
    """A RunState."""
    reason: str
    """A StopReason, once it ended."""
    message: str
    model: str
    num_turns: int
    cost: float
    num_changed: int
    question: str
    """What it waits for; empty if nothing."""
    started_at: str
    ended_at: str


class Runs(Wire, frozen=True, tag="runs"):
    """All runs of the folder, newest first. Sent when asked for and whenever one changed."""

    id: str
    """Empty when nobody asked."""
    runs: list[RunShown]


class RunStarted(Wire, frozen=True, tag="run_started"):
    id: str
    run: str


class Attached(Wire, frozen=True, tag="attached"):
    """Events follow; with `after` 0 the page forgets those it has."""

    id: str
    run: str
    after: int


class Events(Wire, frozen=True, tag="events"):
    """Some events of the attached run, in order."""

    run: str
    last: int
    """How many events of the run the page has with these."""
    events: list[AgentEvent]


class Lines(Wire, frozen=True):
    """A hunk: lines `before_start` up to `before_end` became lines `after_start` up to `after_end`."""

    before_start: int
    before_end: int
    after_start: int
    after_end: int


class ChangedFile(Wire, frozen=True):
    """One file of the diff."""

    number: int
    path: str
    """For the eye; bytes that are not UTF-8 are replaced."""
    kind: str
    """A ChangeKind."""
    unshown: str
    """Why there is no text: "binary", "too large"; empty if there is one. Such a file is accepted as a whole."""
    note: str
    """What the text does not show: "now executable", "only line endings differ"."""
    before: str | None
    after: str | None
    hunks: list[Lines]
    num_added: int
    num_removed: int


class Changes(Wire, frozen=True, tag="changes"):
    id: str
    run: str
    version: str
    files: list[ChangedFile]


class LandedFile(Wire, frozen=True):
    """What became of a file in the person's tree."""

    path: str
    state: str
    """An Outcome of `agent/landing.py`."""
    message: str = ""


class Landed(Wire, frozen=True, tag="landed"):
    id: str
    run: str
    files: list[LandedFile]
    can_undo: bool


class Done(Wire, frozen=True, tag="done"):
    """The request was carried out and there is nothing more to say."""

    id: str


ToAgentPanel = Runs | RunStarted | Attached | Events | Changes | Landed | Done | Failed
