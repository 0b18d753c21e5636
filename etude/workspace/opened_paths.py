"""Which paths a command opens, as the kernel tells it: OpenedPaths.

A thread answers the questions of a seccomp filter (`opened_launcher.py`): it notes the path and lets the call go on.
What is noted is what was asked for; a program with several threads could change the text of a path between our reading
and the kernel's, so this records what ordinary and careless programs do, and is no fence.
"""

import ctypes
import fcntl
import os
import platform
import posixpath
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from etude.workspace.opened_launcher import MACHINES, numbers
from etude.workspace.workspace import OpenedPath

MAX_PATHS = 100_000
MAX_PATH_BYTES = 4096

_LAUNCHER = Path(__file__).with_name("opened_launcher.py")

# struct seccomp_notif: id, pid, flags, call, architecture, instruction, six arguments. struct seccomp_notif_resp.
_QUESTION, _ANSWER = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_GO_ON = 1

_NUM_BEFORE = 3

_HERE = -100  # AT_FDCWD
_ACCESS, _WRITING = os.O_ACCMODE, os.O_CREAT | os.O_TRUNC
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where a call keeps its paths: (folder argument or None, path argument, written?) each."""

    paths: tuple[tuple[int | None, int, bool], ...]
    flags: int | None = None
    """The argument that says how a file is opened; then that decides whether it is written."""


_SHAPES = {
    "open": _Shape(((None, 0, False),), flags=1),
    "creat": _Shape(((None, 0, True),)),
    "openat": _Shape(((0, 1, False),), flags=2),
    "openat2": _Shape(((0, 1, False),), flags=2),
    "execve": _Shape(((None, 0, False),)),
    "execveat": _Shape(((0, 1, False),)),
    "rename": _Shape(((None, 0, True), (None, 1, True))),
    "renameat": _Shape(((0, 1, True), (2, 3, True))),
    "renameat2": _Shape(((0, 1, True), (2, 3, True))),
    # What a link leads to can be read through it under another name.
    "link": _Shape(((None, 0, False), (None, 1, True))),
    "linkat": _Shape(((0, 1, False), (2, 3, True))),
    "symlink": _Shape(((None, 0, False), (None, 1, True))),
    "symlinkat": _Shape(((1, 0, False), (1, 2, True))),
    "unlink": _Shape(((None, 0, True),)),
    "unlinkat": _Shape(((0, 1, True),)),
    "truncate": _Shape(((None, 0, True),)),
    "mknod": _Shape(((None, 0, True),)),
    "mknodat": _Shape(((0, 1, True),)),
    "open_tree": _Shape(((0, 1, False),)),
    "mkdir": _Shape(((None, 0, True),)),
    "mkdirat": _Shape(((0, 1, True),)),
    "rmdir": _Shape(((None, 0, True),)),
}


def is_possible() -> bool:
    """Whether this machine can record; root's own bubblewrap may be set-user-id, which the recording forbids."""
    return sys.platform == "linux" and platform.machine() in MACHINES


class OpenedPaths:
    """Records one command, between `wrap` and `finish`."""

    def __init__(self) -> None:
        self._names = numbers(platform.machine())
        self._ours, self._theirs = socket.socketpair()
        self._found: set[tuple[str, bool]] = set()
        self._is_listening = False
        self._is_complete = True
        self._num_executed = 0
        self._read = _memory_reader()
        self._thread = threading.Thread(target=self._work, name="opened paths", daemon=True)
        self._thread.start()

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command that starts recorded; give `descriptors` to whoever starts it."""
        return [sys.executable, "-I", "-S", str(_LAUNCHER), str(self._theirs.fileno()), "--", *command]

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._theirs.fileno(),)

    def started(self) -> None:
        """The process has its end of the socket now."""
        self._theirs.close()

    def finish(self) -> tuple[bool, tuple[OpenedPath, ...]]:
        """Whether anything could be recorded, and what; the command has ended."""
        with suppress(OSError):
            self._theirs.close()
        self._thread.join()
        found = tuple(OpenedPath(path=path, written=written) for path, written in sorted(self._found))
        return self.is_known, found

    @property
    def is_known(self) -> bool:
        """Whether all that was opened is in the record; one that is full is no proof of what was not opened."""
        return self._is_listening and self._is_complete

    @property
    def saw_command(self) -> bool:
        """Whether it came as far as running what was asked for."""
        return self._num_executed >= _NUM_BEFORE

    # In the thread.

    def _work(self) -> None:
        listener = self._listener()
        if listener is None:
            return
        self._is_listening = True
        try:
            self._answer_all(listener)
        finally:
            # From here on the kernel answers that the calls do not exist.
            os.close(listener)

    def _listener(self) -> int | None:
        with self._ours, suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
            if descriptors:
                return descriptors[0]
        return None

    def _answer_all(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while True:
            if any(event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN for _, event in poll.poll()):
                return
            question = bytearray(_QUESTION.size)
            try:
                fcntl.ioctl(listener, _RECEIVE, question, True)
            except OSError:
                # Whoever asked was ended meanwhile.
                continue
            id, process, _, call, _, _, *arguments = _QUESTION.unpack(question)
            try:
                self._note(process, self._names.get(call, ""), arguments)
            except Exception:
                # Whatever we cannot read, the command must go on: without an answer every later call would fail.
                self._is_complete = False
            finally:
                with suppress(OSError):
                    fcntl.ioctl(listener, _SEND, _ANSWER.pack(id, 0, 0, _GO_ON))

    def _note(self, process: int, name: str, arguments: Sequence[int]) -> None:
        if name in ("execve", "execveat"):
            self._num_executed += 1
        # bubblewrap runs, which makes the sandbox ready, then prlimit; the third is the command.
        if self._num_executed < _NUM_BEFORE or name not in _SHAPES:
            return
        shape = _SHAPES[name]
        with suppress(OSError):
            writes = (
                self._opens_for_writing(process, name, arguments[shape.flags]) if shape.flags is not None else False
            )
            for folder, at, written in shape.paths:
                path = self._read(process, arguments[at], MAX_PATH_BYTES).partition(b"\0")[0]
                place = _HERE if folder is None else ctypes.c_int(arguments[folder] & 0xFFFFFFFF).value
                self._add(_full(process, place, path), written or writes)

    def _add(self, path: str, written: bool) -> None:
        if len(self._found) < MAX_PATHS:
            self._found.add((path, written))
        elif (path, written) not in self._found:
            self._is_complete = False

    def _opens_for_writing(self, process: int, name: str, argument: int) -> bool:
        flags = (
            argument if name != "openat2" else int.from_bytes(self._read(process, argument, 8, False), sys.byteorder)
        )
        return bool(flags & _ACCESS) or bool(flags & _WRITING)


def _full(process: int, folder: int, path: bytes) -> str:
    """Absolute, as the process sees it."""
    if not path.startswith(b"/"):
        place = "cwd" if folder == _HERE else f"fd/{folder}"
        path = os.fsencode(os.readlink(f"/proc/{process}/{place}")) + b"/" + path  # noqa: PTH115 (bytes follow)
    return os.fsdecode(posixpath.normpath(path))


class _Stretch(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _memory_reader() -> Callable[..., bytes]:
    """read(process, address, length, is_text=True) → bytes up to there, for a text perhaps only to its end."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(MAX_PATH_BYTES)

    def read_stretch(process: int, address: int, length: int) -> bytes:
        local, remote = _Stretch(ctypes.addressof(buffer), length), _Stretch(address, length)
        count = library.process_vm_readv(process, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if count < 0:
            raise OSError(ctypes.get_errno(), "reading a path")
        return buffer.raw[:count]

    def read(process: int, address: int, length: int, is_text: bool = True) -> bytes:
        if not is_text:
            return read_stretch(process, address, length)
        # The page after the one the path begins on need not be there.
        first = min(length, _PAGE - address % _PAGE)
        found = read_stretch(process, address, first)
        if b"\0" in found or first == length:
            return found
        return found + read_stretch(process, address + first, length - first)

    return read
