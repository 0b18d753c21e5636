"""What `exchange.py` notes on disk while it works, so that a crash can be made up for."""

import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from etude.workspace.nodes import Node, folders_above

VERSION = 1
SUFFIX = "{SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """At `path`, relative to the root, let `wanted` stand where `expected` does: files, links or nothing."""

    path: str
    expected: Node
    wanted: Node


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A step as the journal keeps it: enough to tell whether it was taken, and whether the result was changed since."""

    path: bytes
    expected_mode: int
    wanted_mode: int
    wanted_sha256: bytes


class Record(msgspec.Struct, kw_only=True):
    version: int = VERSION
    root: bytes
    staging: str
    entries: list[Entry]
    missing: list[bytes]
    """Folders that were not there."""
    folder_modes: dict[bytes, int]
    is_done: bool = False
    """All was written; only the folder with what was there before has to go."""


class Journal:
    """A file that is locked for as long as its exchange lives."""

    def __init__(self, path: Path, descriptor: int, record: Record) -> None:
        self.path = path
        self.record = record
        self.root = Path(os.fsdecode(record.root))
        self.is_needed = False
        """Whether it stays when it is closed, for another try."""
        self._descriptor = descriptor

    def write(self) -> None:
        # A reader that comes in the middle finds it locked; after a crash in the middle nothing had begun.
        data = msgspec.msgpack.encode(self.record)
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))
        os.fsync(self._descriptor)

    def done(self) -> None:
        self.record.is_done = True
        self.write()


@contextmanager
def opened(journals: Path, root: Path, steps: Sequence[Step], modes: Mapping[str, int]) -> Generator[Journal]:
    token = secrets.token_hex(6)
    # A name that watchers and shadows pass over, as they do with every temporary file of ours.
    record = Record(
        root=os.fsencode(os.path.realpath(root)),
        staging=f".etude-{token}.tmp",
        entries=[_entry(step) for step in steps],
        missing=[os.fsencode(path) for path in _missing(root, steps)],
        folder_modes={os.fsencode(path): mode for path, mode in (_modes(root, steps) | dict(modes)).items()},
    )
    journals.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = journals / f"{token}{SUFFIX}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    journal = None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        journal = Journal(path, descriptor, record)
        journal.write()
        _sync(journals)
        yield journal
        path.unlink(missing_ok=True)
    except BaseException:
        if not (journal and journal.is_needed):
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


@contextmanager
def taken_over(path: Path) -> Generator[Journal]:
    """The journal of a crashed exchange, gone at the end; raises OSError for one that is at work."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        try:
            record = msgspec.msgpack.decode(data, type=Record)
        except msgspec.MsgspecError:
            # Cut off before anything began.
            path.unlink()
            raise
        journal = Journal(path, descriptor, record)
        yield journal
        if not journal.is_needed:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _entry(step: Step) -> Entry:
    sha256 = hashlib.sha256(step.wanted.content or b"").digest()
    return Entry(os.fsencode(step.path), step.expected.mode, step.wanted.mode, sha256)


def _missing(root: Path, steps: Sequence[Step]) -> list[str]:
    above = {folder for step in steps if step.wanted.mode for folder in folders_above(step.path)}
    return sorted(folder for folder in above if not _is_folder(root / folder))


def _modes(root: Path, steps: Sequence[Step]) -> dict[str, int]:
    above = {folder for step in steps if not step.wanted.mode for folder in folders_above(step.path)}
    return {folder: stat.S_IMODE((root / folder).lstat().st_mode) for folder in above if _is_folder(root / folder)}


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def is_result(now: Node, entry: Entry) -> bool:
    if not entry.wanted_mode:
        return not now.mode
    same_kind = stat.S_IFMT(now.mode) == stat.S_IFMT(entry.wanted_mode)
    return same_kind and hashlib.sha256(now.content or b"").digest() == entry.wanted_sha256


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
