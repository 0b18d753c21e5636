"""What becomes of the files of a landing, and of those among them that the agent moved: Landed, with_moves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rapidfuzz.distance import LCSseq

from etude.edits import split_lines
from etude.workspace.nodes import NOTHING, Node
from etude.workspace.three_way import merge
from etude.workspace.workspace import ChangeKind, FileChange

# A new file with more than this share of the lines of a removed one is that file, moved.
_SIMILAR = 0.6

# Looking for moves compares every removed file that needs it with every new one.
_MAX_BYTES = 200_000
_MAX_COMPARED = 200


class Outcome(StrEnum):
    """What became of one file."""

    CLEAN = "clean"
    """As it was accepted; the person's version was the one the agent knew."""
    MERGED = "merged"
    """The person had changed it meanwhile; both changes are in it."""
    SAME = "same"
    """The person's tree has it so already; nothing was written."""
    CONFLICT = "conflict"
    """Both changed the same; the file stays as the person has it."""
    REFUSED = "refused"
    """It may not be written, or cannot be; `reason` says why."""
    LEFT_OUT = "left_out"
    """Nothing of it was accepted, or git ignores it."""


WRITTEN = (Outcome.CLEAN, Outcome.MERGED)
UNWRITABLE = (Outcome.CONFLICT, Outcome.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """One file of a landing."""

    path: str
    outcome: Outcome
    reason: str = ""
    """For a person; with CONFLICT and REFUSED, and where an undo left a file alone."""
    before: Node = NOTHING
    """What the person's tree had."""
    after: Node = NOTHING
    """What it has now; of a conflict what the agent would have it be."""


def with_moves(files: Sequence[Landed], changes: Sequence[FileChange]) -> list[Landed]:
    """The files of a plan, where a move is landed as one: what the person did to the old file goes to the new place."""
    found = {file.path: file for file in files}
    by_path = {change.path: change for change in changes}
    removed = [file.path for file in files if file.outcome is Outcome.CONFLICT and _is_whole(file, by_path)]
    new_files = [file for file in files if file.outcome is Outcome.CLEAN and not file.before.mode]
    added = [by_path[file.path] for file in new_files if file.after.is_file]
    for path in removed[:_MAX_COMPARED]:
        target = _best(by_path[path], added[:_MAX_COMPARED])
        old, new = found[path], found[target.path] if target else None
        together = merge(by_path[path].before, old.before.content, new.after.content) if new else None
        if new and together and not together.conflict and together.content is not None:
            found[path] = replace(old, outcome=Outcome.CLEAN, reason="", after=NOTHING)
            node = Node(mode=new.after.mode, content=together.content)
            found[new.path] = replace(new, outcome=Outcome.MERGED, after=node)
            added = [change for change in added if change.path != new.path]
    return [*_without_losses([*found.values()])]


def _is_whole(file: Landed, by_path: dict[str, FileChange]) -> bool:
    """A file that the agent removed and the person changed."""
    change = by_path[file.path]
    return change.kind is ChangeKind.REMOVED and file.before.is_file and file.before.content is not None


def _best(removed: FileChange, added: Sequence[FileChange]) -> FileChange | None:
    lines = _lines(removed.before)
    scored = [(_similarity(lines, _lines(change.after)), change) for change in added]
    score, best = max(scored, key=lambda item: item[0], default=(0.0, None))
    return best if score >= _SIMILAR else None


def _lines(content: bytes | None) -> list[str]:
    if content is None or len(content) > _MAX_BYTES or b"\0" in content:
        return []
    return split_lines(content.decode("utf-8", "surrogateescape"))


def _similarity(before: list[str], after: list[str]) -> float:
    if not before or not after:
        return 0.0
    return LCSseq.normalized_similarity(before, after, score_cutoff=_SIMILAR)


def _without_losses(files: Sequence[Landed]) -> Iterator[Landed]:
    """A file that was moved stays where it is if it cannot be written where it went."""
    stuck = {file.after.content: file.path for file in files if file.outcome in UNWRITABLE and file.after.mode}
    for file in files:
        if file.outcome is Outcome.CLEAN and not file.after.mode and file.before.content in stuck:
            reason = f"{file.path} was moved to {stuck[file.before.content]}, which could not be written."
            yield replace(file, outcome=Outcome.CONFLICT, reason=reason)
        else:
            yield file
