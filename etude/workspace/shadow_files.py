"""The files of a shadow and of the user, and which of the two a path's content comes from."""

import json
import os
import stat
from collections.abc import Collection
from pathlib import Path

from etude.workspace.bases import Base, Bases, digest_of
from etude.workspace.folder import Folder
from etude.workspace.layers import (
    CopiedTree,
    Held,
    Kind,
    OverlayLayers,
    State,
    States,
    disk_bytes,
    state_of,
    whole_tree,
)
from etude.workspace.mounts import OVERLAYS, Mechanism, mount
from etude.workspace.versions import Version, is_link, version_of, ways_to

# The clock that stamps files ticks more coarsely than the one we read.
_CLOCK_TICK_NS = 10_000_000


class ShadowFiles:
    """A copy-on-write view of `root`, kept below the folder `state`."""

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
        self.frozen = frozen
        self.bases = bases or Bases(state / "bases")
        self.mounted = mount(mechanism, root, state, frozen)
        self.folder = Folder(view=self.mounted.view, root=root)
        self.live = Folder(view=root, root=root)
        self.held = self._open_held()
        self.seen = self.held.states()
        self.buffers: dict[str, bytes] = {}

    def close(self) -> None:
        self.folder.close()
        self.live.close()
        self.mounted.close()

    def _open_held(self) -> Held:
        if self.mechanism in OVERLAYS:
            return OverlayLayers(upper=self.state / "upper", frozen=self.frozen, root=self.root)
        return CopiedTree(tree=self.state / "tree", original=_original(self.state))

    def disk_bytes(self) -> int:
        """Space that the shadow takes."""
        return disk_bytes([self.state / ("upper" if self.mechanism in OVERLAYS else "tree")])

    def touched(self, path: str) -> bool:
        """Whether the path may differ from the user's."""
        return self.bases.get(path) is not None or self.held.touched(path)

    def notice(self, *, pending: Collection[str], since_ns: int) -> set[str]:
        """Paths that changed in the shadow since the last call, and a base for each one that is new.

        `pending` are paths that the user changed and that were not carried over yet, and `since_ns` is when the
        command began (time.time_ns): a file that both changed has no base that anyone saw.
        """
        states = self.held.states()
        changed = _differing(self.seen, states)
        for path in changed:
            if self.bases.get(path) is None:
                self._record_base(path, pending, since_ns)
        self.seen = states
        return changed

    def _record_base(self, path: str, pending: Collection[str], since_ns: int) -> None:
        version = self.live_version(path)
        if version.is_folder:
            return
        changed_ns = version.status.st_ctime_ns if version.status else 0
        if path in pending or changed_ns >= since_ns - _CLOCK_TICK_NS:
            self.bases.record_unknown(path)
        else:
            self.record(path, version)

    def record(self, path: str, version: Version) -> None:
        large = version.content is None and version.mode is not None and stat.S_ISREG(version.mode)
        self.bases.record(path, version.content, version.mode, digest=self.live.digest(path) if large else None)

    def before_write(self, path: str) -> None:
        """Keep what the user has at a path that is about to be written."""
        if self.bases.get(path) is None:
            version = self.live_version(path)
            if not version.is_folder:
                self.record(path, version)

    def see(self, path: str) -> None:
        """The path is as we wrote it; the next `notice` need not tell of it."""
        for part in ways_to(path):
            source = self.state / "upper" / part if self.mechanism in OVERLAYS else self.state / "tree" / part
            try:
                self.seen[part] = state_of(source, source.lstat())
            except OSError:
                self.seen.pop(part, None)

    def live_version(self, path: str) -> Version:
        buffer = self.buffers.get(path)
        if buffer is None:
            return version_of(self.live, path)
        status = self.live.status(path)
        return Version(status=status, content=buffer, mode=status.st_mode if status else stat.S_IFREG | 0o644)

    def equals(self, folder: Folder, path: str, version: Version, base: Base) -> bool:
        if not base.known or version.mode != base.mode:
            return False
        if version.mode is None:
            return True
        if version.content is None:
            return base.digest is not None and folder.digest(path) == base.digest
        return digest_of(version.content) == base.digest

    def is_agents(self, path: str) -> bool:
        """Whether the shadow's version is not the user's as last followed."""
        if not self.held.touched(path):
            return False
        base = self.bases.get(path)
        return base is None or not self.equals(self.folder, path, version_of(self.folder, path), base)

    def put(self, path: str, version: Version) -> None:
        """Make the shadow show the user's version."""
        if version.mode is None:
            self.folder.erase(path)
        elif is_link(version):
            self.folder.put_link(path, os.fsdecode(version.content or b""))
        elif version.content is not None:
            self.folder.put_file(path, version.content, version.mode)
        elif stat.S_ISREG(version.mode):
            self.folder.put_copy(path, self.root / path, version.mode)
        self.see(path)
        self.record(path, version)


def _original(state: Path) -> States:
    """How a copy was when it was made, also when the shadow is opened again."""
    kept = state / "original.json"
    if not kept.exists():
        states = whole_tree(state / "tree")
        rows = [[path, one.kind, one.mode, *one.signature] for path, one in states.items()]
        kept.write_text(json.dumps(rows), "utf-8", "surrogateescape")
        return states
    rows = json.loads(kept.read_text("utf-8", "surrogateescape"))
    return {path: State(kind=Kind(kind), mode=mode, signature=tuple(rest)) for path, kind, mode, *rest in rows}


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
