"""Linux's inotify, as far as watching folders needs it: names as bytes, symlinks never followed, overflow told.

watchfiles does this too, but one name that is not UTF-8 makes every answer of it an error, it walks through links
out of the tree, and it does not say when the kernel dropped events.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# From linux/inotify.h.
MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
IS_FOLDER = 0x40000000
_ONLY_FOLDERS, _DO_NOT_FOLLOW, _NOT_IF_UNLINKED = 0x1000000, 0x2000000, 0x4000000

# A program may keep a file open for hours while it writes, so CLOSE_WRITE alone would not do; what is written through
# a memory map shows only when the file is closed.
_MASK = (
    (MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF)
    | _ONLY_FOLDERS
    | _DO_NOT_FOLLOW
    | _NOT_IF_UNLINKED
)

_HEAD = struct.Struct("iIII")
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened in, or to, a watched folder."""

    watch: int
    """Number that `add` gave; -1 for OVERFLOW."""
    mask: int
    name: str
    """In the folder; empty for the folder itself. Bytes that are not UTF-8 are surrogate escapes."""


class Inotify:
    """One queue of the kernel's; raises OSError where the system has none, or allows no more."""

    def __init__(self) -> None:
        self._library = _library()
        self.descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise _last_error()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def add(self, folder: Path | str) -> int:
        """Watch a folder, not what is below it; the same folder gets the same number again. Raises OSError."""
        watch = self._library.inotify_add_watch(self.descriptor, os.fsencode(folder), _MASK)
        if watch < 0:
            raise _last_error()
        return watch

    def remove(self, watch: int) -> None:
        self._library.inotify_rm_watch(self.descriptor, watch)

    def read(self) -> list[Happening]:
        """All that is in the queue now; [] for nothing. Never waits."""
        found: list[Happening] = []
        while True:
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return found
            found += _happenings(data)


def _happenings(data: bytes) -> Iterator[Happening]:
    at = 0
    while at < len(data):
        watch, mask, _, num_bytes = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Happening(watch, mask, os.fsdecode(data[at : at + num_bytes].rstrip(b"\0")))
        at += num_bytes


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        raise OSError("this system has no inotify")
    library.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
    library.inotify_rm_watch.argtypes = [ctypes.c_int, ctypes.c_int]
    return library


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
