"""A Workspace that exists in memory only: for tests, examples and demonstrations.

    MemoryWorkspace({"a.py": "x = 1\\n"}, commands={"pytest -q": "1 passed"})

Commands and diagnostics are answered by what the caller gives; files, checkpoints and copies are real.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from etude.errors import CheckpointUnknown, FileNotWritable, FileUnusable, OutsideRoot
from etude.workspace.workspace import (
    ChangeKind,
    Command,
    CommandResult,
    Diagnostic,
    DiagnosticsReport,
    Ending,
    Entry,
    EntryKind,
    FileChange,
)

Files = dict[str, str]
Outcome = str | tuple[int, str] | CommandResult
"""What a command prints; or its exit code and what it prints; or all of it."""
Commands = Mapping[str, Outcome] | Callable[[Command, Files], Outcome]
"""By command line; or a function that may also change the files."""
Check = Callable[[Files], Sequence[Diagnostic]]

ROOT = Path("/memory")
NOT_FOUND = 127


class MemoryWorkspace:
    """Files in a dictionary, which a test may look at and change: `files`."""

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        commands: Commands | None = None,
        check: Check = lambda files: (),
        root: Path = ROOT,
    ) -> None:
        self.files: Files = dict(files or {})
        self.ran: list[Command] = []
        """Every command that was run, in order."""
        self._commands: Commands = commands if commands is not None else {}
        self._check = check
        self._root = root
        self._original = dict(self.files)
        self._checkpoints: dict[str, Files] = {}

    @property
    def root(self) -> Path:
        return self._root

    async def read(self, path: str) -> str:
        name = _inside(path)
        if name in self.files:
            return self.files[name]
        if self._is_folder(name):
            raise FileUnusable(f"{path} is a folder, not a file. Name a text file.")
        raise FileUnusable(f"{path} is a path that does not exist. Check the name.")

    async def read_many(self, paths: Sequence[str]) -> Sequence[str | None]:
        return [self.files.get(_inside(path)) for path in paths]

    async def write(self, path: str, text: str | None) -> None:
        name = _inside(path)
        if name == "." or self._is_folder(name):
            raise FileNotWritable(f"{path} was not written: it is a folder. Name a file; nothing was changed.")
        if any(str(parent) in self.files for parent in PurePosixPath(name).parents):
            raise FileNotWritable(f"{path} was not written: a part of the path is a file. Nothing was changed.")
        if text is not None:
            self.files[name] = text
        elif self.files.pop(name, None) is None:
            raise FileNotWritable(f"{path} was not removed: there is no such file.")

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        self.ran.append(command)
        before = dict(self.files)
        result = _result(self._outcome(command))
        names = before.keys() | self.files.keys()
        changed = sorted(name for name in names if before.get(name) != self.files.get(name))
        result = replace(result, changed=tuple(changed))
        if on_output and result.output:
            on_output(result.output)
        return result

    def _outcome(self, command: Command) -> Outcome:
        if isinstance(self._commands, Mapping):
            return self._commands.get(command.line, (NOT_FOUND, f"{command.line}: command not found\n"))
        return self._commands(command, self.files)

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        before, now = set(self._check(self._original)), list(self._check(self.files))
        wanted = set(map(_inside, paths))
        asked = [diagnostic for diagnostic in now if not wanted or diagnostic.place.path in wanted]
        return DiagnosticsReport(
            appeared=tuple(diagnostic for diagnostic in asked if diagnostic not in before),
            gone=tuple(sorted(before - set(now), key=lambda gone: (gone.place.path, gone.place.line))),
            num_unchanged=sum(diagnostic in before for diagnostic in asked),
            servers=("memory",),
        )

    # Checkpoints.

    async def snapshot(self, label: str = "") -> str:
        name = f"{len(self._checkpoints) + 1}{label and f'-{label}'}"
        self._checkpoints[name] = dict(self.files)
        return name

    async def restore(self, checkpoint: str) -> str:
        if checkpoint not in self._checkpoints:
            known = ", ".join(self._checkpoints) or "none was taken"
            raise CheckpointUnknown(f"There is no checkpoint {checkpoint!r}. There are: {known}.")
        undo = await self.snapshot()
        self.files.clear()
        self.files.update(self._checkpoints[checkpoint])
        return undo

    @asynccontextmanager
    async def fork(self, count: int) -> AsyncGenerator[Sequence["MemoryWorkspace"]]:
        yield [self._copy() for _ in range(count)]

    def _copy(self) -> "MemoryWorkspace":
        copy = MemoryWorkspace(self.files, commands=self._commands, check=self._check, root=self._root)
        copy._original = dict(self._original)
        return copy

    async def changes(self) -> list[FileChange]:
        names = sorted(self._original.keys() | self.files.keys())
        pairs = [(name, self._original.get(name), self.files.get(name)) for name in names]
        return [_change(name, before, after) for name, before, after in pairs if before != after]

    def _is_folder(self, name: str) -> bool:
        return any(file.startswith(name + "/") for file in self.files)

    # Last, since it hides the type of the same name.
    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        folder = _inside(path)
        if folder in self.files:
            raise FileUnusable(f"{path} is a file, not a folder. Name a folder.")
        if folder != "." and not self._is_folder(folder):
            raise FileUnusable(f"{path} is a path that does not exist. Check the name.")
        found: dict[str, Entry] = {}
        for name, text in self.files.items():
            for entry in _entries(name, text, PurePosixPath(folder), depth):
                found[entry.path] = entry
        return [found[name] for name in sorted(found)]


def _inside(path: str) -> str:
    """The path in its plain form. Raises OutsideRoot."""
    named = PurePosixPath(path)
    if not path or "\0" in path or named.is_absolute() or ".." in named.parts:
        raise OutsideRoot(f"{path!r} is not inside the opened folder. Name a file in it, without '..'.")
    return str(named)


def _entries(name: str, text: str, folder: PurePosixPath, depth: int) -> list[Entry]:
    """The file and the folders above it, as far as they are in `folder` and not deeper than `depth`."""
    file = PurePosixPath(name)
    if not file.is_relative_to(folder):
        return []
    parts = file.relative_to(folder).parts
    entries = []
    for number, part in enumerate(parts[:depth], 1):
        path = str(folder.joinpath(*parts[:number]))
        is_file = number == len(parts)
        kind = EntryKind.FILE if is_file else EntryKind.FOLDER
        entries.append(Entry(path=path, kind=kind, num_bytes=len(text.encode("utf-8", "replace")) if is_file else 0))
        if part.startswith("."):
            break
    return entries


def _result(outcome: Outcome) -> CommandResult:
    if isinstance(outcome, CommandResult):
        return outcome
    exit_code, output = (0, outcome) if isinstance(outcome, str) else outcome
    num_bytes = len(output.encode("utf-8", "replace"))
    return CommandResult(
        ending=Ending.EXITED, exit_code=exit_code, output=output, num_output_bytes=num_bytes, seconds=0.0
    )


def _change(name: str, before: str | None, after: str | None) -> FileChange:
    kind = ChangeKind.ADDED if before is None else ChangeKind.REMOVED if after is None else ChangeKind.MODIFIED
    old, new = (None if text is None else text.encode("utf-8", "surrogateescape") for text in (before, after))
    return FileChange(path=name, kind=kind, before=old, after=new)
