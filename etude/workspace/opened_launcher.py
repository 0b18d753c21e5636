"""Started before bubblewrap: has the kernel report what is opened from now on, and becomes the command.

    python -I -S opened_launcher.py SOCKET -- COMMAND…

A seccomp filter hands every call that opens, runs, renames or removes by path to whoever holds the listener, which is
sent through the socket. It holds for everything the command starts, whatever user or namespace that enters. io_uring
could open past it, and calls of another architecture would be read wrongly, so both are answered by "not implemented".
Standard library only: this file is run by path, isolated, without etude.
"""

import array
import ctypes
import os
import platform
import socket
import struct
import sys

# Numbers of system calls by machine: name → (x86_64, aarch64); None where the machine does not have it.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "creat": (85, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "execve": (59, 221),
    "execveat": (322, 281),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "truncate": (76, 45),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open_tree": (428, 428),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
}
IO_URING_SETUP = 425

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → column of CALLS, audit architecture."""

_NOT_IMPLEMENTED = 38
_X32_BIT = 0x40000000

# Classic BPF: load, jump if equal, jump if greater or equal, return.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ASK, _FAIL = 0x7FFF0000, 0x7FC00000, 0x00050000

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8


def numbers(machine: str) -> dict[int, str]:
    """System call → its name."""
    column, _ = MACHINES[machine]
    return {number: name for name, both in CALLS.items() if (number := both[column]) is not None}


def program(machine: str) -> bytes:
    """The filter, as an array of struct sock_filter."""
    _, architecture = MACHINES[machine]
    asked = sorted(numbers(machine))
    # Each jump counts the instructions it leaves out; the three answers stand at the end.
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, len(asked) + 5, architecture),
        (_LOAD, 0, 0, 0),
    ]
    steps.append((_AT_LEAST, len(asked) + 3, 0, _X32_BIT))
    steps.append((_EQUAL, len(asked) + 2, 0, IO_URING_SETUP))
    for at, number in enumerate(asked):
        steps.append((_EQUAL, len(asked) - at, 0, number))
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK), (_RETURN, 0, 0, _FAIL | _NOT_IMPLEMENTED)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def listen() -> int:
    """Install the filter for this process; returns the descriptor that its questions come through."""
    machine = platform.machine()
    code = program(machine)
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    filter = Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    listener = library.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(filter))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    command = sys.argv[3:]
    try:
        listener = listen()
    except (OSError, KeyError):
        channel.close()
    else:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))]
        channel.sendmsg([b"l"], rights)
        os.close(listener)
        channel.close()
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
