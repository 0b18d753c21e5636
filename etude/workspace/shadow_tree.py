"""The files of a shadow: what the agent changed, the user's edits carried in, checkpoints taken and gone back to.

Everything here is plain and quick or is called in a thread; commands, language servers and waiting are `shadow.py`.

The user's tree lies below the overlay and changes while it is mounted, which the kernel leaves undefined: a file the
user replaces may be seen old or new. So each change is written through the view, where the agent has not touched the
file as it is, else merged three ways against the user's version that the agent's grew from (`bases.py`).
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from etude.errors import CheckpointUnknown, WorkspaceError
from etude.workspace.bases import MAX_KEPT_BYTES, UNKNOWN, Base, Bases, digest_of
from etude.workspace.databases import COMPANIONS, copy_consistently, is_sqlite
from etude.workspace.folder import Folder
from etude.workspace.layers import (
    CopiedTree,
    Held,
    Kind,
    OverlayLayers,
    State,
    States,
    disk_bytes,
    freeze,
    state_of,
    whole_tree,
)
from etude.workspace.mounts import OVERLAYS, Mechanism, erase_tree, mount
from etude.workspace.three_way import merge
from etude.workspace.workspace import ChangeKind, FileChange, Followed

# The clock that stamps files ticks more coarsely than the one we read.
_CLOCK_TICK_NS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What stands at a path in one of the trees."""

    status: os.stat_result | None
    content: bytes | None
    """A file's bytes or a link's target; None for a folder, for nothing, and for files too large to merge."""
    mode: int | None

    @property
    def is_folder(self) -> bool:
        return self.mode is not None and stat.S_ISDIR(self.mode)

    @property
    def is_other(self) -> bool:
        """A socket, a pipe, a device: it is there, and cannot be copied."""
        return self.status is not None and self.mode is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A state that can be gone back to."""

    id: str
    label: str
    layer: Path
    bases: dict[str, Base]
    sources: dict[str, State]
    """What the files of the layer were copied from, for sharing them with the next one."""


class ShadowTree:
    """A copy-on-write view of `root`, with everything it needs below the folder `state`."""

    def __init__(
        self,
        *,
        root: Path,
        state: Path,
        mechanism: Mechanism,
        frozen: tuple[Path, ...] = (),
        bases: Bases | None = None,
    ) -> None:
        self.root = root
        self.state = state
        self.mechanism = mechanism
        self._frozen = frozen
        self.bases = bases or Bases(state / "bases")
        self.mounted = mount(mechanism, root, state, frozen)
        self.folder = Folder(view=self.mounted.view, root=root)
        self.live = Folder(view=root, root=root)
        self._held = self._open_held()
        self._seen = self._held.states()
        self._buffers: dict[str, bytes] = {}
        self.checkpoints: dict[str, Checkpoint] = {}

    def close(self) -> None:
        self.folder.close()
        self.live.close()
        self.mounted.close()

    def _open_held(self) -> Held:
        if self.mechanism in OVERLAYS:
            return OverlayLayers(upper=self.state / "upper", frozen=self._frozen, root=self.root)
        return CopiedTree(tree=self.state / "tree", original=whole_tree(self.state / "tree"))

    def disk_bytes(self) -> int:
        """Space that the shadow takes."""
        return disk_bytes([self.state / ("upper" if self.mechanism in OVERLAYS else "tree")])

    def _touched(self, path: str) -> bool:
        """Whether the path may differ from the user's."""
        return self.bases.get(path) is not None or self._held.touched(path)

    # Noticing what tools and commands changed.

    def notice(self, *, pending: Collection[str], since_ns: int) -> set[str]:
        """Paths that changed in the shadow since the last call, and a base for each one that is new.

        `pending` are paths that the user changed and that were not carried over yet, and `since_ns` is when the
        command began (time.time_ns): a file that both changed has no base that anyone saw.
        """
        states = self._held.states()
        changed = _differing(self._seen, states)
        for path in changed:
            if self.bases.get(path) is None:
                self._record_base(path, pending, since_ns)
        self._seen = states
        return changed

    def _record_base(self, path: str, pending: Collection[str], since_ns: int) -> None:
        version = self._live_version(path)
        if version.is_folder:
            return
        changed_ns = version.status.st_ctime_ns if version.status else 0
        if path in pending or changed_ns >= since_ns - _CLOCK_TICK_NS:
            self.bases.record_unknown(path)
        else:
            self._record(path, version)

    def _record(self, path: str, version: Version) -> None:
        large = version.content is None and version.mode is not None and stat.S_ISREG(version.mode)
        self.bases.record(path, version.content, version.mode, digest=self.live.digest(path) if large else None)

    def before_write(self, path: str) -> None:
        """Keep what the user has at a path that is about to be written."""
        if self.bases.get(path) is None:
            version = self._live_version(path)
            if not version.is_folder:
                self._record(path, version)

    def see(self, path: str) -> None:
        """The path is as we wrote it; the next `notice` need not tell of it."""
        for part in _ways_to(path):
            source = self.state / "upper" / part if self.mechanism in OVERLAYS else self.state / "tree" / part
            try:
                self._seen[part] = state_of(source, source.lstat())
            except OSError:
                self._seen.pop(part, None)

    # The user's side.

    def _live_version(self, path: str) -> Version:
        buffer = self._buffers.get(path)
        if buffer is None:
            return _version(self.live, path)
        status = self.live.status(path)
        return Version(status=status, content=buffer, mode=status.st_mode if status else stat.S_IFREG | 0o644)

    def set_buffer(self, path: str, content: bytes | None) -> list[Followed]:
        if content is None:
            self._buffers.pop(path, None)
        else:
            self._buffers[path] = content
        return self.carry(path)

    def carry(self, path: str) -> list[Followed]:
        """Bring what the user did at a path into the shadow."""
        if path.rpartition("/")[2].startswith(".etude-") and path.endswith(".tmp"):
            return []
        theirs, ours = self._live_version(path), self.folder.status(path)
        if theirs.is_other:
            return []
        ours_is_folder = ours is not None and stat.S_ISDIR(ours.st_mode)
        if theirs.is_folder:
            return self._carry_folder(path, theirs, is_there=ours_is_folder)
        if ours_is_folder:
            return self._carry_over_folder(path, theirs)
        database = self._database_of(path)
        if database:
            return self._carry_database(database)
        return self._carry_file(path, theirs, ours)

    def _database_of(self, path: str) -> str | None:
        """The user's SQLite database that the path is, or is a companion of."""
        names = [path, *(path.removesuffix(ending) for ending in COMPANIONS if path.endswith(ending))]
        return next((name for name in names if is_sqlite(self.root / name)), None)

    def _carry_database(self, path: str) -> list[Followed]:
        """A database and its companions go together, as they are between two transactions, or not at all."""
        group = [path, *(path + ending for ending in COMPANIONS)]
        if any(self._is_agents(one) for one in group):
            return [Followed(path=path, conflict=True)]
        copy = self.state / "carried.sqlite"
        copy_consistently(self.root / path, copy)
        self.folder.put_copy(path, copy, (self.root / path).stat().st_mode)
        copy.unlink()
        for one in group[1:]:
            self.folder.erase(one)
        for one in group:
            self.see(one)
            version = _version(self.folder, one)
            self.bases.record(one, version.content, version.mode, digest=self.folder.digest(one))
        return [Followed(path=path)]

    def _is_agents(self, path: str) -> bool:
        """Whether the shadow's version is not the user's as last followed."""
        if not self._held.touched(path):
            return False
        base = self.bases.get(path)
        return base is None or not self._equals(self.folder, path, _version(self.folder, path), base)

    def _carry_folder(self, path: str, theirs: Version, *, is_there: bool) -> list[Followed]:
        if not is_there and self._touched(path):
            return [Followed(path=path, conflict=True)]
        if not is_there:
            self.folder.put_folder(path, theirs.mode or 0o755)
            self.see(path)
        followed = []
        for name in sorted(_names(self.root / path) ^ (_names(self.folder.view / path) if is_there else set())):
            followed += self.carry(_below(path, name))
        return followed

    def _carry_over_folder(self, path: str, theirs: Version) -> list[Followed]:
        """The user has no folder here (any more), and the shadow does."""
        followed = []
        for name in sorted(_names(self.folder.view / path)):
            followed += self.carry(_below(path, name))
        if any(item.conflict for item in followed) or _names(self.folder.view / path):
            return [*followed, Followed(path=path, conflict=True)] if theirs.mode is not None else followed
        self.folder.erase(path)
        self.see(path)
        return [*followed, *self._carry_file(path, theirs, None)] if theirs.mode is not None else followed

    def _carry_file(self, path: str, theirs: Version, ours: os.stat_result | None) -> list[Followed]:
        touched = self._touched(path)
        if not touched and self._shows(path, theirs, ours):
            return []
        base = self.bases.get(path) or UNKNOWN
        mine = _version(self.folder, path)
        if touched and mine.content == theirs.content and mine.mode == theirs.mode and _is_whole(mine):
            self._record(path, theirs)
            return []
        if not touched or self._equals(self.folder, path, mine, base):
            self._put(path, theirs)
            return [Followed(path=path)]
        if self._equals(self.live, path, theirs, base):
            return []
        return [self._merge(path, base, mine, theirs)]

    def _shows(self, path: str, theirs: Version, ours: os.stat_result | None) -> bool:
        """Whether the view already shows the user's version, and a listing of the folder would."""
        if theirs.status is None or ours is None or path in self._buffers:
            return theirs.mode is None and ours is None
        parent = path.rpartition("/")[0]
        return _looks(theirs.status) == _looks(ours) and not (parent and self._touched(parent))

    def _equals(self, folder: Folder, path: str, version: Version, base: Base) -> bool:
        if not base.known or version.mode != base.mode:
            return False
        if version.mode is None:
            return True
        if version.content is None:
            return base.digest is not None and folder.digest(path) == base.digest
        return digest_of(version.content) == base.digest

    def _merge(self, path: str, base: Base, mine: Version, theirs: Version) -> Followed:
        if not base.known or not _is_whole(mine) or not _is_whole(theirs) or _is_link(mine) or _is_link(theirs):
            return Followed(path=path, conflict=True)
        merged = merge(self.bases.content(base), mine.content, theirs.content)
        if merged.conflict:
            return Followed(path=path, conflict=True)
        if merged.content is None:
            self.folder.erase(path)
        else:
            mode = theirs.mode if mine.mode == base.mode else mine.mode
            self.folder.put_file(path, merged.content, mode or theirs.mode or 0o644)
        self.see(path)
        self._record(path, theirs)
        return Followed(path=path, merged=True)

    def _put(self, path: str, version: Version) -> None:
        """Make the shadow show the user's version."""
        if version.mode is None:
            self.folder.erase(path)
        elif _is_link(version):
            self.folder.put_link(path, os.fsdecode(version.content or b""))
        elif version.content is not None:
            self.folder.put_file(path, version.content, version.mode)
        elif stat.S_ISREG(version.mode):
            self.folder.put_copy(path, self.root / path, version.mode)
        self.see(path)
        self._record(path, version)

    # What the agent changed.

    def changed_paths(self) -> list[str]:
        """Files that the shadow holds itself; most of them differ from the user's."""
        paths = set(self.bases.entries())
        for path, state in self._held.states().items():
            if state.kind is Kind.ABSENT:
                paths |= {path} if self.bases.get(path) else set(self._files_of_user(path))
            elif state.kind in (Kind.FILE, Kind.LINK):
                paths.add(path)
        return sorted(paths)

    def change(self, path: str) -> FileChange | None:
        """How the agent's version of a file differs from the user's as last followed; None if it does not."""
        base = self.bases.get(path)
        if base is None:
            version = self._live_version(path)
            before, before_mode = (None, None) if version.is_folder else (version.content, version.mode)
        else:
            before, before_mode = self.bases.content(base), base.mode
            if before is None and base.mode is not None:
                before = self._live_version(path).content
        mine = _version(self.folder, path, max_bytes=None)
        after, after_mode = (None, None) if mine.is_folder else (mine.content, mine.mode)
        if before == after and before_mode == after_mode:
            return None
        return FileChange(
            path=path, kind=_change_kind(before_mode, after_mode), before=before, after=after, mode=after_mode or 0
        )

    def _files_of_user(self, path: str) -> Iterator[str]:
        """The user's files at or below a path that the agent removed."""
        status = self.live.status(path)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            yield path
            return
        for below, state in whole_tree(self.root / path).items():
            if state.kind in (Kind.FILE, Kind.LINK):
                yield _below(path, below)

    # Checkpoints.

    def snapshot(self, label: str = "") -> str:
        """Freeze the present state as a layer. Raises WorkspaceError when there is no space."""
        number = 1 + max((int(id[1:]) for id in self.checkpoints), default=0)
        states = self._held.states()
        layer = self.state / "layers" / f"c{number}"
        last = next(reversed(self.checkpoints.values()), None)
        previous = {path: (state, last.layer / path) for path, state in last.sources.items()} if last else {}
        try:
            freeze(_without_journals(states), layer, previous=previous, copy=self._copy)
        except OSError as error:
            erase_tree(layer)
            raise WorkspaceError(
                f"No checkpoint was taken: {error.strerror}. Free some space; nothing else changed."
            ) from error
        checkpoint = Checkpoint(
            id=f"c{number}", label=label, layer=layer, bases=self.bases.entries(), sources=dict(states)
        )
        self.checkpoints[checkpoint.id] = checkpoint
        return checkpoint.id

    def _copy(self, source: Path, target: Path) -> None:
        if is_sqlite(source):
            # Through the view: the journal beside the database may lie in another layer.
            shown = self.mounted.view / source.relative_to(self._layer_of(source))
            copy_consistently(shown, target)
        else:
            _copy_file(source, target)
        target.chmod(stat.S_IMODE(source.lstat().st_mode))

    def _layer_of(self, source: Path) -> Path:
        layers = (self.state / "upper", self.state / "tree", *self._frozen)
        return next(layer for layer in layers if source.is_relative_to(layer))

    def restore(self, id: str) -> set[str]:
        """Make the view show a checkpoint again, then carry over what the user did since; returns what changed."""
        checkpoint = self.checkpoint(id)
        target = OverlayLayers(upper=checkpoint.layer, frozen=(), root=self.root).states()
        changed = self._show(target)
        self.bases.replace({**self.bases.entries(), **checkpoint.bases})
        for path in changed - target.keys():
            version = self._live_version(path)
            if not version.is_folder:
                self._record(path, version)
        for path in target:
            if target[path].kind is not Kind.FOLDER:
                self.carry(path)
        self._seen = self._held.states()
        return changed

    def checkpoint(self, id: str) -> Checkpoint:
        if id not in self.checkpoints:
            names = ", ".join(self.checkpoints) or "none yet"
            raise CheckpointUnknown(f"There is no checkpoint {id!r}; there are: {names}.")
        return self.checkpoints[id]

    def _show(self, target: States) -> set[str]:
        """Write the states of a frozen layer through the view, and the user's version of everything else."""
        current = self._held.states()
        changed: set[str] = set()
        for path in sorted(current):
            is_wanted = path in target and not _hides_folder(current[path], target[path])
            if not is_wanted and not _is_hidden(path, target):
                changed |= self._revert(path, target)
        for path in sorted(target):
            if self._differs(path, target[path]):
                self._show_state(path, target[path])
                changed.add(path)
        return changed

    def _revert(self, path: str, target: States) -> set[str]:
        """Show the user's version of a path, and of what is below it, except where the target says otherwise."""
        version = self._live_version(path)
        mine = _version(self.folder, path)
        if version.is_folder:
            if not mine.is_folder:
                self.folder.put_folder(path, version.mode or 0o755)
            changed = {path}
            names = _names(self.root / path) - _names(self.folder.view / path)
            for below in sorted(_below(path, name) for name in names):
                if below not in target or target[below].kind is Kind.FOLDER:
                    changed |= self._revert(below, target)
            return changed
        if version.mode is None and mine.mode is None:
            return set()
        if mine.is_folder and any(below.startswith(path + "/") for below in target):
            return set()
        if (mine.mode, mine.content) == (version.mode, version.content) and _is_whole(mine):
            return set()
        self._put(path, version)
        return {path}

    def _differs(self, path: str, state: State) -> bool:
        mine = _version(self.folder, path)
        if state.kind is Kind.ABSENT:
            return mine.mode is not None
        if state.kind is Kind.FOLDER:
            return not mine.is_folder
        if state.kind is Kind.OTHER or state.source is None:
            return False
        return (mine.mode, mine.content) != (state.mode, _content_of(state)) or not _is_whole(mine)

    def _show_state(self, path: str, state: State) -> None:
        if state.kind is Kind.ABSENT:
            self.folder.erase(path)
        elif state.kind is Kind.FOLDER:
            self.folder.put_folder(path, state.mode)
        elif state.kind is Kind.LINK and state.source:
            self.folder.put_link(path, str(state.source.readlink()))
        elif state.source:
            self.folder.put_copy(path, state.source, state.mode)

    def forked(self, state: Path, checkpoint: Checkpoint) -> "ShadowTree":
        """A copy in its own folder that starts from a checkpoint of this one."""
        bases = self.bases.shared_with(state / "bases", checkpoint.bases)
        if self.mechanism in OVERLAYS:
            fork = ShadowTree(
                root=self.root, state=state, mechanism=self.mechanism, frozen=(checkpoint.layer,), bases=bases
            )
        else:
            fork = ShadowTree(root=self.root, state=state, mechanism=self.mechanism, bases=bases)
            fork._show(OverlayLayers(upper=checkpoint.layer, frozen=(), root=self.root).states())
        fork._buffers = dict(self._buffers)
        fork._seen = fork._held.states()
        return fork


def _differing(before: States, after: States) -> set[str]:
    """Paths, folders left out, that are not in the same state."""
    found = {
        path
        for path, state in after.items()
        if state.kind is not Kind.FOLDER and _as_seen(before.get(path)) != _as_seen(state)
    }
    return found | {path for path in before.keys() - after.keys() if before[path].kind is not Kind.FOLDER}


def _as_seen(state: State | None) -> tuple[object, ...]:
    if state is None:
        return ()
    # A removed file's mark is made anew now and then; that it is one is all there is to it.
    return (state.kind,) if state.kind is Kind.ABSENT else (state.kind, state.mode, state.signature)


def _version(folder: Folder, path: str, *, max_bytes: int | None = MAX_KEPT_BYTES) -> Version:
    status = folder.status(path)
    if status is None:
        return Version(status=None, content=None, mode=None)
    if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
        return Version(status=status, content=None, mode=None)
    too_large = max_bytes is not None and stat.S_ISREG(status.st_mode) and status.st_size > max_bytes
    return Version(status=status, content=None if too_large else folder.content(path), mode=status.st_mode)


def _is_whole(version: Version) -> bool:
    """Whether the content is all there is to compare; not so for large files, folders and devices."""
    return version.content is not None or version.mode is None


def _is_link(version: Version) -> bool:
    return version.mode is not None and stat.S_ISLNK(version.mode)


def _looks(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as scan:
            return {entry.name for entry in scan}
    except OSError:
        return set()


def _below(path: str, name: str) -> str:
    return name if path == "." else f"{path}/{name}"


def _ways_to(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _hides_folder(current: State, target: State) -> bool:
    """A folder of the user's that is to be seen again is hidden now."""
    return target.kind is Kind.FOLDER and current.kind is not Kind.FOLDER


def _is_hidden(path: str, target: States) -> bool:
    """A folder above the path is to be gone, or something else than a folder."""
    above = (target.get(way) for way in _ways_to(path)[:-1])
    return any(state is not None and state.kind is not Kind.FOLDER for state in above)


def _change_kind(before_mode: int | None, after_mode: int | None) -> ChangeKind:
    if before_mode is None:
        return ChangeKind.ADDED
    return ChangeKind.REMOVED if after_mode is None else ChangeKind.MODIFIED


def _content_of(state: State) -> bytes | None:
    assert state.source
    if state.kind is Kind.LINK:
        return os.fsencode(state.source.readlink())
    return state.source.read_bytes() if state.signature[1] <= MAX_KEPT_BYTES else None


def _without_journals(states: States) -> dict[str, State]:
    """A database is copied whole, so in a frozen layer the files that complete it are gone."""
    frozen = dict(states)
    for path, state in states.items():
        if state.kind is Kind.FILE and state.source and is_sqlite(state.source):
            for suffix in COMPANIONS:
                if path + suffix in states:
                    frozen[path + suffix] = State(kind=Kind.ABSENT)
    return frozen


def _copy_file(source: Path, target: Path) -> None:
    """Sharing blocks where the disk can."""
    with source.open("rb") as reader, target.open("wb") as writer:
        left = os.fstat(reader.fileno()).st_size
        while left > 0:
            try:
                copied = os.copy_file_range(reader.fileno(), writer.fileno(), left)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                copied = os.sendfile(writer.fileno(), reader.fileno(), None, left)
            if copied == 0:
                return
            left -= copied
