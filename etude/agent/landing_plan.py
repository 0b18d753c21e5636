"""What would become of an agent's changes in the person's tree as it is now: hunks, plan. Nothing is written here."""

import stat
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from etude.agent.landing_moves import WRITTEN, Landed, Outcome, with_moves
from etude.edits import Edit, Patch, patch_from_texts, split_lines
from etude.errors import FileUnusable, InputError
from etude.workspace.files import MAX_PATH_CHARACTERS, is_of_git
from etude.workspace.nodes import NOTHING, Node, Tree, folders_above
from etude.workspace.three_way import MAX_MERGED_BYTES, merge
from etude.workspace.workspace import ChangeKind, FileChange

# Comparing texts takes time that grows with how often their lines are repeated: this many pairs take a second or two.
_MAX_EQUAL_PAIRS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A part of a change that can be accepted by itself: Hunk(index=0, edit=Edit(…))."""

    index: int
    edit: Edit | None
    """Of the text before, a byte order mark being a character of it; None when only the whole file can be accepted:
    it is not text, is a link, was added or removed, or got other permissions and nothing else."""


def hunks(change: FileChange) -> list[Hunk]:
    """What can be accepted of a change, numbered; other permissions come along with any of them."""
    patch = _patch(change)
    if patch is None or not patch.edits:
        return [Hunk(index=0, edit=None)]
    return [Hunk(index=index, edit=edit) for index, edit in enumerate(patch.edits)]


def plan(
    changes: Sequence[FileChange],
    root: Path,
    *,
    accepted: Mapping[str, Collection[int]] | None = None,
    overwrite: Collection[str] = (),
) -> list[Landed]:
    """What `land` would do now, sorted by path. Raises FileUnusable when the root cannot be read."""
    try:
        with closing(Tree(root)) as tree:
            return _Plan(tree, changes, accepted, overwrite).files()
    except OSError as error:
        raise FileUnusable(f"{root} cannot be read: {error.strerror}. Check the folder.") from error


# What is accepted of a change.


def _patch(change: FileChange) -> Patch | None:
    """The difference of two texts; None for anything else."""
    if change.kind is not ChangeKind.MODIFIED or stat.S_ISLNK(change.mode):
        return None
    before, after = _text(change.before), _text(change.after)
    if before is None or after is None or not _are_comparable(before, after):
        return None
    return patch_from_texts(change.path, before, after)


def _text(content: bytes | None) -> str | None:
    if content is None or len(content) > MAX_MERGED_BYTES or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _are_comparable(before: str, after: str) -> bool:
    counts = Counter(split_lines(after))
    return sum(count * counts[line] for line, count in Counter(split_lines(before)).items()) <= _MAX_EQUAL_PAIRS


def _wanted(change: FileChange, indices: Collection[int] | None) -> Node | None:
    """What the agent would have the file be, going by the hunks that are accepted; None for no change at all."""
    whole = Node(mode=change.mode, content=change.after) if change.after is not None else NOTHING
    if indices is None:
        return whole
    wanted = {hunk.index for hunk in hunks(change)} & {*indices}
    if not wanted:
        return None
    patch = _patch(change)
    if patch is None or not patch.edits:
        return whole
    text = patch.only(wanted).apply(_text(change.before) or "")
    return Node(mode=change.mode, content=text.encode())


def _check_accepted(changes: Sequence[FileChange], accepted: Mapping[str, Collection[int]]) -> None:
    by_path = {change.path: change for change in changes}
    for path, indices in accepted.items():
        if path not in by_path:
            raise InputError(f"{path!r} is accepted, but the agent did not change it. Look at the changes again.")
        count = len(hunks(by_path[path])) if indices else 0
        if wrong := [index for index in indices if not 0 <= index < count]:
            raise InputError(f"{path} has {count} hunks, numbered from 0; there is no hunk {wrong[0]}.")


# What becomes of each.


class _Plan:
    """Decides file by file, knowing all: a folder may be in the way of one whose files go with others."""

    def __init__(
        self,
        tree: Tree,
        changes: Sequence[FileChange],
        accepted: Mapping[str, Collection[int]] | None,
        overwrite: Collection[str],
    ) -> None:
        self._tree = tree
        self._changes = changes
        self._accepted = accepted
        self._overwrite = frozenset(overwrite)
        self._going: set[str] = set()

    def files(self) -> list[Landed]:
        if self._accepted is not None:
            _check_accepted(self._changes, self._accepted)
        held: dict[str, Landed] = {}
        while True:
            files = self._files(held)
            # A file that was to go and now stays may be in the way of another.
            stays = {file.path: file for file in files if file.path in self._going and file.outcome not in WRITTEN}
            if not stays:
                return sorted(files, key=lambda file: file.path)
            held |= stays

    def _files(self, held: Mapping[str, Landed]) -> list[Landed]:
        self._going = set()
        removals = [change for change in self._changes if change.after is None]
        others = [change for change in self._changes if change.after is not None]
        files = [held.get(change.path) or self._file(change) for change in removals]
        self._going = {file.path for file in files if file.outcome in WRITTEN}
        return with_moves(files + [self._file(change) for change in others], self._changes)

    def _file(self, change: FileChange) -> Landed:
        wanted = None
        if self._accepted is None:
            wanted = _wanted(change, None) if not change.ignored else None
        elif change.path in self._accepted:
            wanted = _wanted(change, self._accepted[change.path])
        if wanted is None:
            return Landed(path=change.path, outcome=Outcome.LEFT_OUT)
        if reason := _not_ours_to_write(change.path):
            return Landed(path=change.path, outcome=Outcome.REFUSED, reason=reason, after=wanted)
        try:
            sizes = [len(content) for content in (change.before, wanted.content) if content is not None]
            max_bytes = max(MAX_MERGED_BYTES, *sizes, 0)
            return self._meet(change, wanted, standing(self._tree, change.path, self._going, max_bytes=max_bytes))
        except OSError as error:
            reason = f"A folder on the way to {change.path} is a link or a file in your tree, or cannot be read."
            if error.filename and not isinstance(error, NotADirectoryError):
                reason = f"{change.path} cannot be read: {error.strerror}."
            return Landed(path=change.path, outcome=Outcome.CONFLICT, reason=reason, after=wanted)

    def _meet(self, change: FileChange, wanted: Node, present: Node) -> Landed:
        """Base, present and wanted in one."""
        wanted = _with_mode(change, wanted, present)
        if present == wanted:
            return Landed(path=change.path, outcome=Outcome.SAME, before=present, after=present)
        outcome, after, reason = _merged(change, wanted, present)
        if outcome is Outcome.CONFLICT and change.path in self._overwrite and _is_replaceable(present):
            outcome, after, reason = Outcome.CLEAN, wanted, ""
        if outcome in WRITTEN and (refusal := self._read_only(change.path, present)):
            outcome, after, reason = Outcome.REFUSED, wanted, refusal
        return Landed(path=change.path, outcome=outcome, reason=reason, before=present, after=after)

    def _read_only(self, path: str, present: Node) -> str:
        """Read-only means read-only also to the owner of the machine, whom the system would let pass."""
        way_out = "Make it writable (chmod u+w) and land again."
        if present.is_file and not present.mode & stat.S_IWUSR:
            return f"{path} is read-only. {way_out}"
        for above in reversed(["", *folders_above(path)]):
            folder = standing(self._tree, above or ".", self._going, max_bytes=0)
            if folder.is_folder:
                return "" if folder.mode & stat.S_IWUSR else f"The folder of {path} is read-only. {way_out}"
        return ""


def standing(tree: Tree, path: str, going: Collection[str], *, max_bytes: int) -> Node:
    """What stands at a path once the files in `going` are gone, with folders that are empty then. Raises OSError."""
    if any(folder in going for folder in folders_above(path)):
        return NOTHING
    node = tree.node(path, max_bytes=max_bytes)
    if path in going and not node.is_folder:
        return NOTHING
    if node.is_folder and path != "." and all(below in going for below in _files_below(tree, path)):
        return NOTHING
    return node


def _files_below(tree: Tree, path: str) -> Iterator[str]:
    names = tree.names(path)
    for name in names:
        below = f"{path}/{name}"
        if tree.node(below, max_bytes=0).is_folder:
            yield from _files_below(tree, below)
        else:
            yield below
    if not names:
        # An empty folder of the person's is something, too.
        yield path


def _not_ours_to_write(path: str) -> str:
    parts = path.split("/")
    if not path or len(path) > MAX_PATH_CHARACTERS or "\0" in path or {"", ".", ".."} & {*parts}:
        return f"{path[:40]!r} is not a path inside the folder."
    if any(map(is_of_git, parts)):
        return f"{path} is git's own; etude does not write there. Use git commands."
    return ""


def _is_replaceable(present: Node) -> bool:
    return not present.mode or ((present.is_file or present.is_link) and present.content is not None)


def _with_mode(change: FileChange, wanted: Node, present: Node) -> Node:
    """The agent's permissions if it changed them; bits that make a program run as its owner are never taken over."""
    if not wanted.is_file:
        return wanted
    mode = stat.S_IMODE(wanted.mode) & 0o777
    if present.is_file:
        mode = mode | present.mode & 0o7000 if change.mode != change.mode_before else stat.S_IMODE(present.mode)
    return Node(mode=stat.S_IFREG | mode, content=wanted.content)


def _merged(change: FileChange, wanted: Node, present: Node) -> tuple[Outcome, Node, str]:
    both = "Both you and the agent changed"
    if not present.mode and wanted.mode and change.kind is not ChangeKind.ADDED:
        return Outcome.CONFLICT, wanted, f"The agent changed {change.path}, and you have removed it."
    if present.mode and not (present.is_file or present.is_link):
        return Outcome.CONFLICT, wanted, f"{change.path} is a folder, or no file at all, in your tree."
    if present.mode and present.content is None:
        return Outcome.CONFLICT, wanted, f"{change.path} is too large in your tree to be merged."
    if change.before is None and change.kind is not ChangeKind.ADDED:
        return Outcome.CONFLICT, wanted, f"{change.path} is too large: what the agent started from was not kept."
    if present.content == change.before and _is_same_kind(change, present):
        return Outcome.CLEAN, wanted, ""
    if present.is_link or wanted.is_link:
        return Outcome.CONFLICT, wanted, f"{both} {change.path}, and one of the versions is a link."
    together = merge(change.before, present.content, wanted.content)
    if together.conflict:
        return Outcome.CONFLICT, wanted, _why(change)
    if together.content is None:
        return Outcome.CLEAN, NOTHING, ""
    outcome = Outcome.MERGED if together.merged else Outcome.CLEAN
    return outcome, Node(mode=wanted.mode or present.mode, content=together.content), ""


def _is_same_kind(change: FileChange, present: Node) -> bool:
    return change.mode_before is None or stat.S_IFMT(change.mode_before) == stat.S_IFMT(present.mode)


def _why(change: FileChange) -> str:
    if change.kind is ChangeKind.ADDED:
        return f"{change.path} is new in your tree, too, and different."
    if change.kind is ChangeKind.REMOVED:
        return f"The agent removed {change.path}, and you have changed it."
    return f"Both you and the agent changed the same lines of {change.path}."
