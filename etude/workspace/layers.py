"""What a shadow holds beyond the user's tree: read from an overlay's layers, frozen into new ones.

A layer is a folder in the overlay's own format: a file stands for itself, a character device 0:0 for something
removed, and a folder marked opaque hides what is below it. Frozen layers have no opaque folders (what is missing is
marked one by one), so nothing in them depends on extended attributes. A frozen layer is never written again; files
that did not change from one to the next are hard links.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from etude.workspace.files import MAX_PATH_CHARACTERS

# fuse-overlayfs marks what is removed by such names where it may not make devices.
_WHITEOUT_PREFIX = ".wh."
_OPAQUE_NAMES = (".wh..opq", ".wh..wh..opq")
_OPAQUE_ATTRIBUTES = ("trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque")


class Kind(StrEnum):
    """What stands at a path of a layer."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    ABSENT = "absent"
    """Removed, with everything below."""
    OTHER = "other"
    """A socket, a pipe or a device: made by a command, of no use to anyone else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A path that a shadow holds itself."""

    kind: Kind
    mode: int = 0
    """As stat gives it."""
    signature: tuple[int, ...] = ()
    """Inode, size, modification and change time: equal as long as nobody wrote."""
    source: Path | None = None
    """Where the content is."""


States = Mapping[str, State]


class Held(Protocol):
    """What a shadow holds beyond the user's tree."""

    def states(self) -> dict[str, State]:
        """Every path that may differ from the user's."""
        ...

    def touched(self, path: str) -> bool:
        """Whether the path may differ from the user's."""
        ...


class OverlayLayers:
    """An overlay's upper layer, and the frozen ones right below it, the newest first."""

    def __init__(self, *, upper: Path, frozen: Sequence[Path], root: Path) -> None:
        self._upper = upper
        self._frozen = tuple(frozen)
        self._root = root

    def states(self) -> dict[str, State]:
        states: dict[str, State] = {}
        for layer in (*reversed(self._frozen), self._upper):
            _cover(states, _scan(layer, self._root, states))
        return states

    def touched(self, path: str) -> bool:
        return any(_stands_in(layer, path) for layer in (self._upper, *self._frozen))


def _stands_in(layer: Path, path: str) -> bool:
    """Whether the path, or a removed or replaced folder above it, is in the layer."""
    here = layer
    for part in Path(path).parts:
        if (here / (_WHITEOUT_PREFIX + part)).is_symlink() or (here / (_WHITEOUT_PREFIX + part)).exists():
            return True
        here = here / part
        try:
            status = here.lstat()
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode) or _is_opaque(here):
            return True
    return True


def _cover(states: dict[str, State], above: dict[str, State]) -> None:
    """Lay the states of a higher layer over those of lower ones."""
    hiding = [path + "/" for path, state in above.items() if state.kind is not Kind.FOLDER]
    if hiding and states:
        for path in [path for path in states if path.startswith(tuple(hiding))]:
            del states[path]
    states.update(above)


def _scan(layer: Path, root: Path, below: States) -> dict[str, State]:
    states: dict[str, State] = {}
    todo = [""]
    while todo:
        prefix = todo.pop()
        folder = layer / prefix
        names = _scan_folder(folder, prefix, states, todo)
        if prefix and _is_opaque(folder):
            for name in _names_below(root, prefix, below) - names:
                states[prefix + name] = State(kind=Kind.ABSENT)
    return states


def _scan_folder(folder: Path, prefix: str, states: dict[str, State], todo: list[str]) -> set[str]:
    names = set()
    try:
        with os.scandir(folder) as scan:
            entries = list(scan)
    except OSError:
        return names
    for entry in entries:
        name = entry.name
        if len(prefix) + len(name) > MAX_PATH_CHARACTERS:
            # Nothing that anyone works with; what is there stays where it is.
            continue
        if name in _OPAQUE_NAMES:
            continue
        if name.startswith(_WHITEOUT_PREFIX):
            name = name.removeprefix(_WHITEOUT_PREFIX)
            states[prefix + name] = State(kind=Kind.ABSENT)
        else:
            states[prefix + name] = state = state_of(Path(entry.path), entry.stat(follow_symlinks=False))
            if state.kind is Kind.FOLDER:
                todo.append(f"{prefix}{name}/")
        names.add(name)
    return names


def state_of(path: Path, status: os.stat_result) -> State:
    """What a path of a layer says."""
    signature = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return State(kind=_kind_of(status), mode=status.st_mode, signature=signature, source=path)


def _kind_of(status: os.stat_result) -> Kind:
    if stat.S_ISREG(status.st_mode):
        return Kind.FILE
    if stat.S_ISDIR(status.st_mode):
        return Kind.FOLDER
    if stat.S_ISLNK(status.st_mode):
        return Kind.LINK
    return Kind.ABSENT if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0 else Kind.OTHER


def _is_opaque(folder: Path) -> bool:
    for attribute in _OPAQUE_ATTRIBUTES:
        with suppress(OSError):
            if os.getxattr(folder, attribute) == b"y":
                return True
    return any(os.path.exists(folder / name) for name in _OPAQUE_NAMES)  # noqa: PTH110 (a path too long is none)


def _names_below(root: Path, prefix: str, below: States) -> set[str]:
    names = {path.removeprefix(prefix).split("/")[0] for path in below if path.startswith(prefix)}
    with suppress(OSError):
        names |= {entry.name for entry in os.scandir(root / prefix)}
    return names


class CopiedTree:
    """A whole copy, held against how it was when it was made."""

    def __init__(self, *, tree: Path, original: States) -> None:
        self._tree = tree
        self._original = original

    def states(self) -> dict[str, State]:
        now = whole_tree(self._tree)
        changed = {path: state for path, state in now.items() if self._differs(path, state)}
        gone = self._original.keys() - now.keys()
        for path in gone:
            parent = path.rpartition("/")[0]
            if not parent or (parent in now and now[parent].kind is Kind.FOLDER):
                changed[path] = State(kind=Kind.ABSENT)
        return changed

    def touched(self, path: str) -> bool:
        try:
            status = (self._tree / path).lstat()
        except OSError:
            return path in self._original
        return self._differs(path, state_of(self._tree / path, status))

    def _differs(self, path: str, state: State) -> bool:
        before = self._original.get(path)
        if before is None:
            return True
        if state.kind is Kind.FOLDER:
            return (before.kind, before.mode) != (state.kind, state.mode)
        return (before.mode, before.signature) != (state.mode, state.signature)


def whole_tree(tree: Path) -> dict[str, State]:
    """The state of every path of a folder."""
    states: dict[str, State] = {}
    todo = [""]
    while todo:
        prefix = todo.pop()
        _scan_folder(tree / prefix, prefix, states, todo)
    return states


Copy = Callable[[Path, Path], None]
"""(source, target) → a file with the same content and mode."""


def freeze(states: States, target: Path, *, previous: Mapping[str, tuple[State, Path]], copy: Copy) -> None:
    """Write the states as a new layer; `previous` says which file of an older layer a path had, and as what.

    What cannot be read is left out, as a reader of the shadow could not read it either.
    """
    target.mkdir(parents=True)
    for path, state in sorted(states.items()):
        with suppress(PermissionError, FileNotFoundError):
            _freeze_one(state, target / path, previous.get(path), copy)


def _freeze_one(state: State, target: Path, previous: tuple[State, Path] | None, copy: Copy) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if state.kind is Kind.ABSENT:
        os.mknod(target, stat.S_IFCHR, 0)
    elif state.kind is Kind.FOLDER:
        target.mkdir(exist_ok=True)
        target.chmod(stat.S_IMODE(state.mode) | stat.S_IRWXU)
    elif state.kind is Kind.LINK and state.source:
        target.symlink_to(state.source.readlink())
    elif state.kind is Kind.FILE and state.source:
        if previous and previous[0].signature == state.signature and previous[0].mode == state.mode:
            os.link(previous[1], target)
        else:
            copy(state.source, target)


def disk_bytes(folders: Iterable[Path]) -> int:
    """Space that files below the folders take."""
    total = 0
    for folder in folders:
        for state in whole_tree(folder).values():
            if state.kind is Kind.FILE and state.source:
                with suppress(OSError):
                    total += state.source.lstat().st_blocks * 512
    return total
