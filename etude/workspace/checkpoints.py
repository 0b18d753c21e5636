"""States of a shadow that can be gone back to: Checkpoints.

A checkpoint is a frozen layer with everything the shadow holds beyond the user's tree. Going back writes that through
the view, so programs that run in the shadow just see files change; then the user's later edits are carried in again.
"""

import errno
import json
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from etude.errors import CheckpointUnknown, WorkspaceError
from etude.workspace.bases import MAX_KEPT_BYTES, Base
from etude.workspace.carrying import Carrying
from etude.workspace.databases import COMPANIONS, copy_consistently, is_sqlite
from etude.workspace.layers import Kind, OverlayLayers, State, States, freeze
from etude.workspace.mounts import erase_tree
from etude.workspace.shadow_files import ShadowFiles
from etude.workspace.versions import below, is_whole, names_in, version_of, ways_to


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A state that can be gone back to."""

    id: str
    label: str
    layer: Path
    bases: dict[str, Base]
    sources: dict[str, State]
    """What the files of the layer were copied from, for sharing them with the next one."""


class Checkpoints:
    """Takes them, knows them, goes back to them."""

    def __init__(self, files: ShadowFiles, carrying: Carrying) -> None:
        self._files = files
        self._carrying = carrying
        self._known = _read_all(files.state / "layers")

    def snapshot(self, label: str = "") -> str:
        """Freeze the present state as a layer. Raises WorkspaceError when there is no space."""
        number = 1 + max((int(id[1:]) for id in self._known), default=0)
        states = self._files.held.states()
        layer = self._files.state / "layers" / f"c{number}"
        last = next(reversed(self._known.values()), None)
        previous = {path: (state, last.layer / path) for path, state in last.sources.items()} if last else {}
        try:
            databases = self._databases(states, layer.with_suffix(".databases"))
            whole = _without_companions(states, databases)
            prepared = {states[path].source: copy for path, copy in databases.items()}
            freeze(whole, layer, previous=previous, copy=lambda source, target: _copy(source, target, prepared))
            erase_tree(layer.with_suffix(".databases"))
        except OSError as error:
            erase_tree(layer)
            raise WorkspaceError(
                f"No checkpoint was taken: {error.strerror}. Free some space; nothing else changed."
            ) from error
        checkpoint = Checkpoint(
            id=f"c{number}", label=label, layer=layer, bases=self._files.bases.entries(), sources=dict(states)
        )
        self._known[checkpoint.id] = checkpoint
        _write(checkpoint)
        return checkpoint.id

    def _databases(self, states: States, folder: Path) -> dict[str, Path]:
        """A copy of each SQLite database as it is between two transactions; what is none of those is left out."""
        copies: dict[str, Path] = {}
        for path, state in states.items():
            if state.kind is Kind.FILE and state.source and is_sqlite(state.source):
                folder.mkdir(parents=True, exist_ok=True)
                copy = folder / str(len(copies))
                # Through the view: the journal beside the database may lie in another layer.
                if copy_consistently(self._files.folder.view / path, copy):
                    copies[path] = copy
        return copies

    def restore(self, id: str) -> set[str]:
        """Make the view show a checkpoint again, then carry over what the user did since; returns what changed."""
        checkpoint = self.get(id)
        target = self._states_of(checkpoint)
        changed = self._show(target)
        self._files.bases.replace({**self._files.bases.entries(), **checkpoint.bases})
        for path in changed - target.keys():
            version = self._files.live_version(path)
            if not version.is_folder:
                self._files.record(path, version)
        for path in target:
            if target[path].kind is not Kind.FOLDER:
                self._carrying.carry(path)
        self._files.seen = self._files.held.states()
        return changed

    def get(self, id: str) -> Checkpoint:
        if id not in self._known:
            names = ", ".join(self._known) or "none yet"
            raise CheckpointUnknown(f"There is no checkpoint {id!r}; there are: {names}.")
        return self._known[id]

    def show(self, checkpoint: Checkpoint) -> None:
        """Make the view of a fresh fork look like a checkpoint of its parent."""
        self._show(self._states_of(checkpoint))

    def _states_of(self, checkpoint: Checkpoint) -> States:
        return OverlayLayers(upper=checkpoint.layer, frozen=(), root=self._files.root).states()

    def _show(self, target: States) -> set[str]:
        """Write the states of a frozen layer through the view, and the user's version of everything else."""
        current = self._files.held.states()
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
        version = self._files.live_version(path)
        mine = version_of(self._files.folder, path)
        if version.is_folder:
            if not mine.is_folder:
                self._files.folder.put_folder(path, version.mode or 0o755)
            changed = {path}
            names = names_in(self._files.root / path) - names_in(self._files.folder.view / path)
            for child in sorted(below(path, name) for name in names):
                if child not in target or target[child].kind is Kind.FOLDER:
                    changed |= self._revert(child, target)
            return changed
        if version.mode is None and mine.mode is None:
            return set()
        if mine.is_folder and any(other.startswith(path + "/") for other in target):
            return set()
        if (mine.mode, mine.content) == (version.mode, version.content) and is_whole(mine):
            return set()
        self._files.put(path, version)
        return {path}

    def _differs(self, path: str, state: State) -> bool:
        mine = version_of(self._files.folder, path)
        if state.kind is Kind.ABSENT:
            return mine.mode is not None
        if state.kind is Kind.FOLDER:
            return not mine.is_folder
        if state.kind is Kind.OTHER or state.source is None:
            return False
        return (mine.mode, mine.content) != (state.mode, _content_of(state)) or not is_whole(mine)

    def _show_state(self, path: str, state: State) -> None:
        if state.kind is Kind.ABSENT:
            self._files.folder.erase(path)
        elif state.kind is Kind.FOLDER:
            self._files.folder.put_folder(path, state.mode)
        elif state.kind is Kind.LINK and state.source:
            self._files.folder.put_link(path, str(state.source.readlink()))
        elif state.source:
            self._files.folder.put_copy(path, state.source, state.mode)


def _write(checkpoint: Checkpoint) -> None:
    """Beside the layer, so that a shadow that is opened again knows it."""
    bases = {path: asdict(base) for path, base in checkpoint.bases.items()}
    text = json.dumps({"label": checkpoint.label, "bases": bases})
    checkpoint.layer.with_suffix(".json").write_text(text, "utf-8", "surrogateescape")


def _read_all(layers: Path) -> dict[str, Checkpoint]:
    """A layer without its note was not finished."""
    known: dict[str, Checkpoint] = {}
    for note in sorted(layers.glob("c*.json"), key=lambda note: int(note.stem[1:])):
        kept = json.loads(note.read_text("utf-8", "surrogateescape"))
        bases = {path: Base(**base) for path, base in kept["bases"].items()}
        known[note.stem] = Checkpoint(
            id=note.stem, label=kept["label"], layer=note.with_suffix(""), bases=bases, sources={}
        )
    return known


def _hides_folder(current: State, target: State) -> bool:
    """A folder of the user's that is to be seen again is hidden now."""
    return target.kind is Kind.FOLDER and current.kind is not Kind.FOLDER


def _is_hidden(path: str, target: States) -> bool:
    """A folder above the path is to be gone, or something else than a folder."""
    above = (target.get(way) for way in ways_to(path)[:-1])
    return any(state is not None and state.kind is not Kind.FOLDER for state in above)


def _content_of(state: State) -> bytes | None:
    assert state.source
    if state.kind is Kind.LINK:
        return os.fsencode(state.source.readlink())
    return state.source.read_bytes() if state.signature[1] <= MAX_KEPT_BYTES else None


def _without_companions(states: States, databases: Collection[str]) -> dict[str, State]:
    """A database that was copied whole has nothing beside it."""
    frozen = dict(states)
    for path in databases:
        for ending in COMPANIONS:
            if path + ending in states:
                frozen[path + ending] = State(kind=Kind.ABSENT)
    return frozen


def _copy(source: Path, target: Path, prepared: Mapping[Path | None, Path]) -> None:
    if source in prepared:
        prepared[source].rename(target)
    else:
        _copy_file(source, target)
    target.chmod(stat.S_IMODE(source.lstat().st_mode))


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
