"""Putting files in the place of others in a tree that people work in: all of them, or none.

    exchange(root, [Step(path="pay.py", expected=old, wanted=new)], journals=folder)

What is new is first written aside, in one folder in the root; then names change hands by links and renames, which need
no space, and what was there is kept aside until the end. A failure on the way, or a crash (see `recover`), puts it
back, the very same files. No link is followed on the way to a file. What to write is `agent/landing.py`.
"""

import os
import shutil
import stat
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from etude.errors import FileChanged, FileNotWritable
from etude.workspace import exchange_journal
from etude.workspace.exchange_journal import Entry, Journal, Step, is_result
from etude.workspace.nodes import FOLDER, Tree, dress, folders_above, link_or_move, node_at

# What the system says when someone else was at work there.
_MOVED = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What became of folders."""

    made: tuple[str, ...] = ()
    """New ones, outer before inner."""
    pruned: Mapping[str, int] = field(default_factory=dict)
    """Removed ones, empty without their files, and the modes they had."""


def exchange(
    root: Path,
    steps: Sequence[Step],
    *,
    journals: Path,
    prunable: Collection[str] = (),
    folder_modes: Mapping[str, int] | None = None,
) -> Exchanged:
    """Take all steps, or raise FileChanged or FileNotWritable and leave the tree as it was.

    Folders that are missing are made, with `folder_modes` where they are named; those in `prunable` go if they end up
    empty. `journals` is a folder where `recover` finds what a crash interrupted.
    """
    ordered = _in_order(steps)
    with (
        _naming(root),
        closing(Tree(root)) as tree,
        exchange_journal.opened(journals, root, ordered, folder_modes or {}) as journal,
    ):
        attempt = _Attempt(tree, journal, prunable)
        try:
            attempt.stage(ordered)
            attempt.take_all(ordered)
            journal.done()
        except BaseException as error:
            journal.is_needed = not attempt.roll_back()
            if journal.is_needed:
                raise FileNotWritable(
                    f"{error} Not all could be put back: {root / journal.record.staging} keeps what was there until "
                    "etude can. Check the disk."
                ) from error
            raise
        attempt.clean()
        return Exchanged(made=tuple(attempt.made), pruned=attempt.pruned)


def recover(journals: Path) -> list[Path]:
    """Put back what crashed exchanges had begun; returns the roots of their trees. Files changed since stay."""
    roots: list[Path] = []
    for file in sorted(journals.glob(f"*{exchange_journal.SUFFIX}")) if journals.is_dir() else ():
        with suppress(OSError, msgspec.MsgspecError), exchange_journal.taken_over(file) as journal:
            with closing(Tree(journal.root)) as tree:
                attempt = _Attempt(tree, journal)
                if journal.record.is_done:
                    attempt.clean()
                else:
                    journal.is_needed = not attempt.roll_back()
            roots.append(journal.root)
    return roots


def _in_order(steps: Iterable[Step]) -> list[Step]:
    """Removals first, so that a file can stand where a folder was and the other way round."""
    removals = sorted((step for step in steps if not step.wanted.mode), key=lambda step: step.path, reverse=True)
    others = sorted((step for step in steps if step.wanted.mode), key=lambda step: step.path)
    return removals + others


@contextmanager
def _naming(place: Path | str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise FileNotWritable(
            f"{place} was not written: {error.strerror or error}. Check the disk and the permissions; "
            "nothing was changed."
        ) from error


class _Attempt:
    """One exchange in one tree, from the first file aside to the last."""

    def __init__(self, tree: Tree, journal: Journal, prunable: Collection[str] = ()) -> None:
        self._tree = tree
        self._prunable = sorted(prunable, reverse=True)
        self._record = journal.record
        self._modes = {os.fsdecode(path): mode for path, mode in self._record.folder_modes.items()}
        self._staging = -1
        self.made: list[str] = []
        self.pruned: dict[str, int] = {}

    def stage(self, steps: Sequence[Step]) -> None:
        with self._tree.folder_of(self._record.staging) as (root, name):
            os.mkdir(name, 0o700, dir_fd=root)
            self._staging = os.open(name, FOLDER, dir_fd=root)
        for number, step in enumerate(steps):
            with _naming(step.path):
                if step.wanted.is_link:
                    os.symlink(os.fsdecode(step.wanted.content or b""), f"{number}.new", dir_fd=self._staging)
                elif step.wanted.mode:
                    self._stage_file(f"{number}.new", step)

    def _stage_file(self, name: str, step: Step) -> None:
        descriptor = os.open(name, _CREATE, 0o600, dir_fd=self._staging)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(step.wanted.content or b"")
            opened.flush()
            if step.expected.is_file:
                with self._tree.folder_of(step.path) as (folder, original):
                    dress(descriptor, folder, original)
            os.fchmod(descriptor, stat.S_IMODE(step.wanted.mode))
            os.fsync(descriptor)

    def take_all(self, steps: Sequence[Step]) -> None:
        for number, step in enumerate(steps):
            try:
                with _naming(step.path):
                    self._take(number, step)
            except FileNotWritable as error:
                if isinstance(error.__cause__, _MOVED):
                    raise _changed(step) from error
                raise
        self._prune_below("")

    def _take(self, number: int, step: Step) -> None:
        if step.wanted.mode:
            self._make_folders(step.path)
        if not step.expected.mode:
            # A folder of which all files were removed in steps before.
            self._prune_below(step.path)
        with self._tree.folder_of(step.path) as (folder, name):
            if not step.wanted.mode:
                os.rename(name, f"{number}.old", src_dir_fd=folder, dst_dir_fd=self._staging)
                _check(self._staging, f"{number}.old", step)
                return
            _check(folder, name, step)
            if not step.expected.mode:
                # A link, unlike a rename, never overwrites; and that both are the same file says that it is ours.
                link_or_move(f"{number}.new", self._staging, name, folder)
                return
            link_or_move(name, folder, f"{number}.old", self._staging)
            os.rename(f"{number}.new", name, src_dir_fd=self._staging, dst_dir_fd=folder)

    def _make_folders(self, path: str) -> None:
        for above in folders_above(path):
            with self._tree.folder_of(above) as (folder, name), suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=folder)
                if above in self._modes:
                    os.chmod(name, self._modes[above], dir_fd=folder)
                self.made.append(above)

    def _prune_below(self, top: str) -> None:
        for path in self._prunable:
            if not top or path == top or path.startswith(f"{top}/"):
                with suppress(OSError):
                    self._prune(path)

    def _prune(self, path: str) -> None:
        with self._tree.folder_of(path) as (folder, name):
            mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            os.rmdir(name, dir_fd=folder)
        self.pruned[path] = mode

    # Going back.

    def roll_back(self) -> bool:
        """Put back all but what is not as we left it; False if the disk does not let us, and then nothing is lost."""
        if self._staging < 0 and not self._open_staging():
            return True
        entries = [*enumerate(self._record.entries)]
        is_back = self._take_all_back(item for item in entries if item[1].wanted_mode)
        for path in sorted(self._record.missing, reverse=True):
            with suppress(OSError), self._tree.folder_of(os.fsdecode(path)) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        is_back = self._take_all_back(item for item in entries if not item[1].wanted_mode) and is_back
        if is_back:
            self.clean()
        return is_back

    def _take_all_back(self, items: Iterable[tuple[int, Entry]]) -> bool:
        is_back = True
        for number, entry in items:
            try:
                self._take_back(number, entry)
            except OSError:
                is_back = False
        return is_back

    def _open_staging(self) -> bool:
        with suppress(OSError), self._tree.folder_of(self._record.staging) as (root, name):
            self._staging = os.open(name, FOLDER, dir_fd=root)
        return self._staging >= 0

    def _take_back(self, number: int, entry: Entry) -> None:
        path, old = os.fsdecode(entry.path), f"{number}.old"
        kept = node_at(self._staging, old, max_bytes=0).mode
        if entry.expected_mode and not kept:
            return
        if kept:
            self._make_folders(path)
        elif not _is_there(self._tree, path):
            return
        with self._tree.folder_of(path) as (folder, name):
            now = node_at(folder, name)
            if kept and (not now.mode or is_result(now, entry)):
                os.rename(old, name, src_dir_fd=self._staging, dst_dir_fd=folder)
            elif not entry.expected_mode and is_result(now, entry) and self._is_ours(number, folder, name):
                os.unlink(name, dir_fd=folder)

    def _is_ours(self, number: int, folder: int, name: str) -> bool:
        """Not a file of the same content that someone else put there: that one has no second name aside."""
        try:
            aside = os.stat(f"{number}.new", dir_fd=self._staging, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return aside.st_ino == os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino

    def clean(self) -> None:
        """Remove what was kept aside."""
        if self._staging >= 0:
            os.close(self._staging)
            self._staging = -1
        with self._tree.folder_of(self._record.staging) as (folder, name):
            shutil.rmtree(name, dir_fd=folder, ignore_errors=True)


def _check(folder: int, name: str, step: Step) -> None:
    if node_at(folder, name, max_bytes=len(step.expected.content or b"")) != step.expected:
        raise _changed(step)


def _changed(step: Step) -> FileChanged:
    return FileChanged(f"{step.path} was changed while it was to be written; nothing was written. Do it again.")


def _is_there(tree: Tree, path: str) -> bool:
    """False also where the folder it was to be in is not there."""
    try:
        return bool(tree.node(path, max_bytes=0).mode)
    except _MOVED:
        return False
