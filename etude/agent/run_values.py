"""What is said of a run: what was asked, how far it is, what it changed. How it is kept is `run_folder.py`."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from etude.workspace.workspace import ChangeKind, FileChange

VERSION = 1


class RunState(StrEnum):
    """Where a run stands."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """A question is open."""
    STOPPED = "stopped"
    """It ended; `RunStatus.reason` says why."""
    CRASHED = "crashed"
    """Its process is gone without having said why."""
    APPLIED = "applied"
    """What it changed is in the live tree, as far as it was accepted."""
    DISCARDED = "discarded"
    """Gone, with everything it had changed."""


ALIVE = frozenset({RunState.STARTING, RunState.RUNNING, RunState.WAITING})


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a run works; what is None or empty comes from the settings."""

    model: str | None = None
    check: str = ""
    """A shell command that succeeds when the task is done."""
    best_of: int = 1
    """Attempts, of which the best is kept."""
    max_turns: int | None = None
    max_seconds: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    network: bool | None = None
    """Whether commands may use it."""
    unattended: bool = False
    """Nobody answers questions; else they wait."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked."""

    version: int = VERSION
    id: str
    root: bytes
    """Absolute, links resolved; bytes, since not every name is UTF-8."""
    statement: str
    follow_up: str = ""
    """What was said when it was resumed, if anything."""
    options: RunOptions = RunOptions()
    started_at: str = ""
    """ISO 8601, UTC."""


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for."""

    id: str
    text: str
    choices: list[str] = []


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is, as its process last said."""

    state: RunState = RunState.STARTING
    model: str = ""
    num_turns: int = 0
    cost: float = 0.0
    question: OpenQuestion | None = None
    reason: str = ""
    """A StopReason, once it ended."""
    message: str = ""
    answer: str = ""
    changed: list[str] = []
    """Paths that differ from the user's tree, ignored ones left out."""
    check: str = ""
    """"passes" or "fails", where there was one and it was run."""
    ended_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run as it is listed."""

    id: str
    root: Path
    statement: str
    state: RunState
    options: RunOptions
    status: RunStatus
    started_at: str


class SavedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A FileChange whose path is bytes, since not every name is UTF-8."""

    path: bytes
    kind: str
    before: bytes | None
    after: bytes | None
    mode: int

    @classmethod
    def of(cls, change: FileChange) -> "SavedChange":
        path = os.fsencode(change.path)
        return cls(path=path, kind=change.kind, before=change.before, after=change.after, mode=change.mode)

    def change(self) -> FileChange:
        """Raises ValueError for a kind that there is not."""
        return FileChange(
            path=os.fsdecode(self.path),
            kind=ChangeKind(self.kind),
            before=self.before,
            after=self.after,
            mode=self.mode,
        )


def encoded(value: msgspec.Struct) -> bytes:
    """As JSON; halves of surrogate pairs, which JSON cannot hold, become question marks."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value)))


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _without_surrogates(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    return value
