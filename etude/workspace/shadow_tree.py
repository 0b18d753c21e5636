"""A shadow's files as one thing: what the agent changed, the user's edits carried in, checkpoints and forks.

Everything here is plain and quick or is called in a thread; commands, language servers and waiting are `shadow.py`.
"""

import stat
from collections.abc import Iterator
from pathlib import Path

from etude.workspace.bases import Base, Bases
from etude.workspace.carrying import Carrying
from etude.workspace.checkpoints import Checkpoint, Checkpoints
from etude.workspace.folder import Folder
from etude.workspace.layers import Kind, whole_tree
from etude.workspace.mounts import OVERLAYS, Mechanism, Mounted
from etude.workspace.shadow_files import ShadowFiles
from etude.workspace.versions import Version, below, version_of
from etude.workspace.workspace import ChangeKind, FileChange, Followed


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
        self.files = ShadowFiles(root=root, state=state, mechanism=mechanism, frozen=frozen, bases=bases)
        self.root = root
        self.mechanism = mechanism
        self.folder: Folder = self.files.folder
        """The view, for reading and writing."""
        self.mounted: Mounted = self.files.mounted
        self._carrying = Carrying(self.files)
        self._checkpoints = Checkpoints(self.files, self._carrying)
        self.carry = self._carrying.carry
        self.notice = self.files.notice
        self.before_write = self.files.before_write
        self.see = self.files.see
        self.disk_bytes = self.files.disk_bytes
        self.snapshot = self._checkpoints.snapshot
        self.restore = self._checkpoints.restore
        self.checkpoint = self._checkpoints.get

    def close(self) -> None:
        self.files.close()

    def set_buffer(self, path: str, content: bytes | None) -> list[Followed]:
        """The editor's unsaved text stands for the file, or does no longer."""
        if content is None:
            self.files.buffers.pop(path, None)
        else:
            self.files.buffers[path] = content
        return self.carry(path)

    def original_text(self, path: str) -> str | None:
        """What the file said before the agent touched it; None if there was none, or no text."""
        content = self._before(path, self.files.bases.get(path)).content
        return None if content is None else content.decode("utf-8", "replace")

    def changed_paths(self) -> list[str]:
        """Files that the shadow holds itself; most of them differ from the user's."""
        paths = set(self.files.bases.entries())
        for path, state in self.files.held.states().items():
            if state.kind is Kind.ABSENT:
                paths |= {path} if self.files.bases.get(path) else set(self._files_of_user(path))
            elif state.kind in (Kind.FILE, Kind.LINK):
                paths.add(path)
        return sorted(paths)

    def change(self, path: str) -> FileChange | None:
        """How the agent's version of a file differs from the user's as last followed; None if it does not."""
        base = self.files.bases.get(path)
        mine = version_of(self.folder, path, max_bytes=None)
        if base and self.files.equals(self.folder, path, mine, base):
            return None
        before = self._before(path, base)
        after = Version(status=None, content=None, mode=None) if mine.is_folder else mine
        if (before.content, before.mode) == (after.content, after.mode):
            return None
        kind = _change_kind(before.mode, after.mode)
        return FileChange(
            path=path,
            kind=kind,
            before=before.content,
            after=after.content,
            mode=after.mode or 0,
            mode_before=before.mode,
        )

    def _before(self, path: str, base: Base | None) -> Version:
        live = self.files.live_version(path)
        if base is None:
            return Version(status=None, content=None, mode=None) if live.is_folder else live
        content = self.files.bases.content(base)
        if content is None and base.mode is not None:
            content = live.content
        return Version(status=None, content=content, mode=base.mode)

    def _files_of_user(self, path: str) -> Iterator[str]:
        """The user's files at or below a path that the agent removed."""
        status = self.files.live.status(path)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            yield path
            return
        for name, state in whole_tree(self.root / path).items():
            if state.kind in (Kind.FILE, Kind.LINK):
                yield below(path, name)

    def forked(self, state: Path, checkpoint: Checkpoint) -> "ShadowTree":
        """A copy in its own folder that starts from a checkpoint of this one."""
        bases = self.files.bases.shared_with(state / "bases", checkpoint.bases)
        frozen = (checkpoint.layer,) if self.mechanism in OVERLAYS else ()
        fork = ShadowTree(root=self.root, state=state, mechanism=self.mechanism, frozen=frozen, bases=bases)
        if not frozen:
            fork._checkpoints.show(checkpoint)
        fork.files.buffers = dict(self.files.buffers)
        fork.files.seen = fork.files.held.states()
        return fork


def _change_kind(before_mode: int | None, after_mode: int | None) -> ChangeKind:
    if before_mode is None:
        return ChangeKind.ADDED
    return ChangeKind.REMOVED if after_mode is None else ChangeKind.MODIFIED
