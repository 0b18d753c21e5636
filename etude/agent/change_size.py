"""How much a FileChange changes, in lines, for a person and for choosing among attempts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from etude.edits import changed_lines, split_lines
from etude.workspace.workspace import FileChange

# difflib's time grows with the square of the number of lines in the worst case; beyond it lines are only counted.
MAX_COMPARED_LINES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Lines that came and went; a file that is not text counts as one."""

    added: int = 0
    removed: int = 0

    @property
    def lines(self) -> int:
        return self.added + self.removed


def size_of(change: FileChange) -> Size:
    before, after = text_of(change.before), text_of(change.after)
    if before is None or after is None:
        return Size(added=int(change.after is not None), removed=int(change.before is not None))
    lines_before, lines_after = split_lines(before), split_lines(after)
    if len(lines_before) + len(lines_after) > MAX_COMPARED_LINES:
        return _counted(lines_before, lines_after)
    runs = changed_lines(lines_before, lines_after)
    return Size(added=sum(run[3] - run[2] for run in runs), removed=sum(run[1] - run[0] for run in runs))


def size_of_all(changes: Iterable[FileChange]) -> Size:
    """Of what a person would review."""
    sizes = [size_of(change) for change in changes if not change.ignored]
    return Size(added=sum(size.added for size in sizes), removed=sum(size.removed for size in sizes))


def _counted(before: list[str], after: list[str]) -> Size:
    came, went = Counter(after) - Counter(before), Counter(before) - Counter(after)
    return Size(added=came.total(), removed=went.total())


def text_of(content: bytes | None) -> str | None:
    """The text of one side of a change, "" for no file; None for what is not text."""
    if content is None:
        return ""
    try:
        return None if b"\0" in content else content.decode("utf-8")
    except UnicodeDecodeError:
        return None
