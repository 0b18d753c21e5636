"""Limits on memory and processes that the kernel keeps: a control group for one command, version 1 or 2.

Where this user may not make one, `made` returns None, and `isolation.py` looks at the processes now and then instead.
"""

import itertools
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")

_numbers = itertools.count(1)

REMOVAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Folders in the kernel's file system: one in version 2, one a controller in version 1."""

    folders: tuple[Path, ...]
    events: Path
    """The file that counts processes ended for memory."""

    @property
    def process_files(self) -> Sequence[str]:
        """A process that writes its number here is in the group, with all it will start."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def ran_out_of_memory(self) -> bool:
        with suppress(OSError, ValueError):
            for line in self.events.read_text("ascii").splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill" and int(count) > 0:
                    return True
        return False

    def removed(self) -> bool:
        """Remove it if its processes are gone already."""
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders)

    def remove(self) -> None:
        """Its processes have been ended; the kernel needs a moment to see that."""
        deadline = time.monotonic() + REMOVAL_SECONDS
        while not self.removed() and time.monotonic() < deadline:
            time.sleep(0.005)


def made(*, memory_bytes: int, num_processes: int) -> ControlGroup | None:
    """A new group, or None where none can be made."""
    _remove_leftovers()
    name = f"etude-{os.getpid()}-{next(_numbers)}"
    limits = {"memory": memory_bytes, "pids": num_processes}
    return _made_2(name, limits) or _made_1(name, limits)


@cache
def _remove_leftovers() -> None:
    """Groups of processes that were killed; they are empty, and named after whoever made them."""
    for folder in (*MOUNT.glob("etude-*"), *MOUNT.glob("*/etude-*")):
        maker = folder.name.split("-")[1]
        if maker.isdecimal() and not Path("/proc", maker).exists():
            with suppress(OSError):
                folder.rmdir()


def _made_2(name: str, limits: dict[str, int]) -> ControlGroup | None:
    controllers = MOUNT / "cgroup.controllers"
    try:
        if not {"memory", "pids"} <= set(controllers.read_text("ascii").split()):
            return None
        parent = _own_parent()
        # A process is moved by who may write here, the group above where it comes from and where it goes.
        if not os.access(parent / "cgroup.procs", os.W_OK):
            return None
        folder = parent / name
        folder.mkdir()
        (folder / "memory.max").write_text(str(limits["memory"]))
        (folder / "pids.max").write_text(str(limits["pids"]))
        with suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
    except OSError:
        with suppress(OSError, UnboundLocalError):
            folder.rmdir()
        return None
    return ControlGroup(folders=(folder,), events=folder / "memory.events")


def _own_parent() -> Path:
    """The group this process is in hands its controllers on only if no process is in it; so a sibling is made."""
    line = next(line for line in Path("/proc/self/cgroup").read_text("ascii").splitlines() if line.startswith("0::"))
    own = MOUNT / line.removeprefix("0::").lstrip("/")
    return own if own == MOUNT else own.parent


def _made_1(name: str, limits: dict[str, int]) -> ControlGroup | None:
    memory, processes = MOUNT / "memory" / name, MOUNT / "pids" / name
    try:
        memory.mkdir()
        (memory / "memory.limit_in_bytes").write_text(str(limits["memory"]))
        with suppress(OSError):
            (memory / "memory.memsw.limit_in_bytes").write_text(str(limits["memory"]))
        processes.mkdir()
        (processes / "pids.max").write_text(str(limits["pids"]))
    except OSError:
        for folder in (memory, processes):
            with suppress(OSError):
                folder.rmdir()
        return None
    return ControlGroup(folders=(memory, processes), events=memory / "memory.oom_control")
