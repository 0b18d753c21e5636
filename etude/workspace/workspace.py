"""Where a model reads, writes and runs: the Workspace protocol, and what some workspaces can do beyond it.

Paths are relative to the workspace's root, with slashes; names that are not UTF-8 keep their bytes as surrogate
escapes. Raises come from `errors.py`; a bad path, a missing file or a failed command never ends a run.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from etude.edits import Patch

# Running a command.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What a command may use; beyond it the whole process tree is ended."""

    seconds: float = 120.0
    memory_bytes: int = 4_000_000_000
    num_processes: int = 512
    output_bytes: int = 1_000_000
    """Kept of what it prints: the first and the last half. More may be printed, and is counted and thrown away."""
    disk_bytes: int = 4_000_000_000
    """Added to the workspace and to temporary files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A shell command: Command(line="pytest -q", folder="backend")."""

    line: str
    """Read by `bash` where there is one, else by `sh`."""
    folder: str = "."
    """Where it starts, relative to the root."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside what the workspace sets itself."""
    network: bool = False
    limits: CommandLimits = CommandLimits()


class Ending(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_DISK = "out_of_disk"
    STOPPED = "stopped"
    """The caller ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPath:
    """A file a command asked the system for, whether it was there or not."""

    path: str
    """Absolute, as the command saw it, `..` resolved."""
    written: bool
    """Opened for writing, created, renamed, linked, cut short or removed; else read or executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What came of a command, whatever happened to it."""

    ending: Ending
    exit_code: int | None
    """128 + n for one ended by signal n; None unless EXITED."""
    output: str
    """Standard output and error in the order they were written, UTF-8 with replacement characters; a cut is marked
    by a line that says how many bytes are missing."""
    num_output_bytes: int
    seconds: float
    opened: tuple[OpenedPath, ...] = ()
    """Sorted, each path once or twice (read, written)."""
    opened_known: bool = False
    """Whether this machine could record what was opened."""
    changed: tuple[str, ...] = ()
    """Paths in the workspace that differ from before the command, sorted, where the workspace can tell."""


# Listing.


class EntryKind(StrEnum):
    """What a name in a folder stands for."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"
    """A socket, a pipe, a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A name in a folder."""

    path: str
    kind: EntryKind
    num_bytes: int = 0
    ignored: bool = False
    """By git's rules, where the workspace knows them."""


# Diagnostics and navigation.


class Severity(StrEnum):
    """As language servers grade."""

    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A stretch of a file; lines and columns from 1, columns in code points, the end exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """What a language server holds against a place."""

    place: Place
    severity: Severity
    message: str
    server: str
    """Name of the server that said it, e.g. "ty"."""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticsReport:
    """The state of the diagnostics, as the change against the workspace's baseline (its state when opened)."""

    appeared: tuple[Diagnostic, ...] = ()
    gone: tuple[Diagnostic, ...] = ()
    num_unchanged: int = 0
    """Of the files asked for: those that were there before."""
    servers: tuple[str, ...] = ()
    """Who was asked."""
    unavailable: tuple[str, ...] = ()
    """For each server that could not answer a sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A named thing: Symbol(name="total", kind="function", place=…)."""

    name: str
    kind: str
    place: Place
    container: str = ""


class Workspace(Protocol):
    """Where a model reads, writes and runs."""

    @property
    def root(self) -> Path:
        """The folder as commands and language servers see it."""
        ...

    async def read(self, path: str) -> str:
        """The text of a file, line endings untouched. Raises FileUnusable, OutsideRoot."""
        ...

    async def write(self, path: str, text: str | None) -> None:
        """Make the file say `text`, with its folders; None removes it. Raises FileNotWritable, OutsideRoot, Refused."""
        ...

    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        """What is in a folder, sorted by path; ignored and hidden folders are not entered. Raises FileUnusable."""
        ...

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        """Run to the end or to a limit; cancelling ends the whole process tree. Raises SandboxUnavailable, Refused."""
        ...

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        """What language servers say, once edits have settled; of `paths`, or of every file changed or open."""
        ...


@runtime_checkable
class ReadsMany(Protocol):
    """A workspace that reads many files faster than one by one, for searching."""

    async def read_many(self, paths: Sequence[str]) -> Sequence[str | None]:
        """The text of each; None for what is no text, or cannot be read. Not as if the agent had read them."""
        ...


@runtime_checkable
class Navigable(Protocol):
    """A workspace whose language servers find code. All raise LanguageServerUnavailable."""

    async def definition(self, path: str, line: int, column: int) -> list[Place]: ...
    async def references(self, path: str, line: int, column: int) -> list[Place]: ...
    async def hover(self, path: str, line: int, column: int) -> str: ...
    async def symbols(self, query: str = "", path: str = "") -> list[Symbol]:
        """Of one file, or of the whole workspace by name."""
        ...

    async def rename(self, path: str, line: int, column: int, name: str) -> list[Patch]:
        """The edits a rename needs; nothing is changed yet."""
        ...


# Copies that can be taken back.


class ChangeKind(StrEnum):
    """What happened to a file."""

    ADDED = "added"
    MODIFIED = "modified"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file of a shadow that differs from the user's."""

    path: str
    kind: ChangeKind
    before: bytes | None
    """What the agent's version grew from: the user's file as last followed; None if there was none."""
    after: bytes | None
    mode: int = 0o100644
    """Of the changed file, as stat gives it: kind and permission bits. A link's content is its target."""
    mode_before: int | None = None
    """Of `before`; None if it is not known."""
    ignored: bool = False
    """By git's rules: caches, build folders, environments. Not part of what a person reviews."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """An edit of the user's that was carried into a shadow, or could not be."""

    path: str
    merged: bool = False
    """The agent had changed the file too, and both changes are in it now."""
    conflict: bool = False
    """Both changed the same lines (or the file is not text): the shadow keeps the agent's version."""


@runtime_checkable
class Checkpointed(Protocol):
    """A workspace that can go back, and be copied."""

    async def snapshot(self, label: str = "") -> str:
        """Keep the state as it is; returns its id. What shell commands changed is in it."""
        ...

    async def restore(self, checkpoint: str) -> str:
        """Go back to a checkpoint; returns the id of one taken right before, so that this can be undone.
        Raises CheckpointUnknown."""
        ...

    def fork(self, count: int) -> AbstractAsyncContextManager[Sequence["ForkableWorkspace"]]:
        """`count` independent copies of the present state, closed at the end of the block."""
        ...

    async def changes(self) -> list[FileChange]:
        """What the agent changed, sorted by path: exactly what separates this from the user's tree."""
        ...


@runtime_checkable
class Following(Protocol):
    """A workspace that takes in what the person edits meanwhile."""

    async def follow(self) -> list[Followed]:
        """Carry over whatever the user changed since the last call and report it; [] if nothing."""
        ...

    async def set_buffer(self, path: str, text: str | None) -> None:
        """The editor's unsaved text of a file stands for what is on disk; None when it was saved or closed."""
        ...


class ForkableWorkspace(Workspace, Checkpointed, Protocol):
    """What best-of-n works in."""
