"""SQLite databases among files: which they are, and copying one while programs write to it.

    if is_sqlite(path):
        copy_consistently(path, target)

SQLite itself is not asked to open the original: it would follow `/proc/<pid>/root` back into the user's tree, and leave
files beside a database it only reads. So the locks it uses between processes are taken here, and the copy is completed
by SQLite. PostgreSQL is `postgres.py`.
"""

import fcntl
import os
import shutil
import sqlite3
import stat
import struct
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_HEADER = b"SQLite format 3\0"

JOURNALS = ("-wal", "-journal")
"""Endings of the files that hold what is not in the database itself yet."""
COMPANIONS = (*JOURNALS, "-shm")
"""Endings of all files that belong to a database in use."""

# https://www.sqlite.org/fileformat2.html and the locking page: bytes of the database, and of its -shm file.
_PENDING, _SHARED = (0x40000000, 1), (0x40000002, 510)
_WAL_WRITE_AND_CHECKPOINT = (120, 2)

# A transaction that takes longer has the copy made without a lock; SQLite then sorts out what is whole.
LOCK_SECONDS = 1.0
_RETRY_SECONDS = 0.005

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# type, whence, start, length, pid: a lock of this open file, which a close elsewhere in this process leaves alone.
_LOCK = struct.Struct("hhqqi4x")


def is_sqlite(path: Path) -> bool:
    """Whether a file (not a link to one) says it is a database."""
    try:
        with _opened(path) as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def copy_consistently(source: Path, target: Path) -> bool:
    """Copy a database to `target`, complete without companions, as it is between two transactions.

    What SQLite cannot make sense of is copied byte by byte, and False returned. Raises OSError.
    """
    with ExitStack() as locks:
        file = locks.enter_context(_opened(source))
        _lock_all(locks, file, source)
        _copy(file, target)
        with_journals = [*_copy_journals(source, target)]
    if not with_journals:
        return True
    try:
        _complete(target)
    except sqlite3.Error:
        _remove_companions(target)
        with _opened(source) as file:
            _copy(file, target)
        return False
    _remove_companions(target)
    return True


@contextmanager
def _opened(path: Path) -> Generator[BinaryIO]:
    descriptor = os.open(path, _OPEN)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a file")
        yield file


def _copy(file: BinaryIO, target: Path) -> None:
    file.seek(0)
    with target.open("wb") as writer:
        shutil.copyfileobj(file, writer, 1_000_000)


def _copy_journals(source: Path, target: Path) -> Generator[str]:
    for ending in JOURNALS:
        with suppress(FileNotFoundError), _opened(_beside(source, ending)) as file:
            if os.fstat(file.fileno()).st_size:
                _copy(file, _beside(target, ending))
                yield ending


def _complete(target: Path) -> None:
    """Have SQLite put into the database what the journals hold, or take back what was not committed."""
    with closing(sqlite3.connect(target, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
        # A file may hold SQL that runs when it is read; nothing of it is needed here.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _remove_companions(target: Path) -> None:
    for ending in COMPANIONS:
        _beside(target, ending).unlink(missing_ok=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


# Locks.


def _lock_all(locks: ExitStack, file: BinaryIO, source: Path) -> None:
    """Keep others from writing until `locks` closes; gives up after LOCK_SECONDS."""
    deadline = time.monotonic() + LOCK_SECONDS
    # As SQLite's readers do: a writer that waits for them to end comes first.
    if _lock(file, _PENDING, deadline):
        _lock(file, _SHARED, deadline)
        _set_lock(file, _PENDING, fcntl.F_UNLCK)
    with suppress(OSError):
        shared_memory = locks.enter_context(_opened(_beside(source, "-shm")))
        _lock(shared_memory, _WAL_WRITE_AND_CHECKPOINT, deadline)


def _lock(file: BinaryIO, place: tuple[int, int], deadline: float) -> bool:
    while not _set_lock(file, place, fcntl.F_RDLCK):
        if time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_SECONDS)
    return True


def _set_lock(file: BinaryIO, place: tuple[int, int], kind: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, *place, 0))
    except OSError:
        return False
    return True
