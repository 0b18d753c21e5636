"""The changes of a run as the page shows them: texts, hunks by line, and why a file has no text."""

import bisect
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from etude.agent.landing import hunks
from etude.edits import line_starts, split_lines
from etude.server.agent_wire import ChangedFile, Lines
from etude.server.page_text import to_page
from etude.workspace.workspace import ChangeKind, FileChange

# A larger file is data; beyond all of them together the page would stutter.
MAX_FILE_BYTES = 1_000_000
MAX_ALL_BYTES = 12_000_000

BINARY = "binary"
TOO_LARGE = "too large"


def for_the_eye(path: str) -> str:
    """Bytes that are not UTF-8 become replacement characters."""
    return os.fsencode(path).decode("utf-8", "replace")


def version_of(changes: Iterable[FileChange]) -> str:
    """Changes that differ in anything have another one: what was shown is what is landed."""
    digest = hashlib.sha256()
    for change in changes:
        for part in (os.fsencode(change.path), change.before, change.after, str(change.mode).encode()):
            digest.update(b"-" if part is None else b"+%d:" % len(part))
            digest.update(part or b"")
    return digest.hexdigest()


def shown(changes: Sequence[FileChange]) -> list[ChangedFile]:
    return list(_shown(changes))


def _shown(changes: Sequence[FileChange]) -> Iterator[ChangedFile]:
    num_bytes = 0
    for number, change in enumerate(changes):
        size = len(change.before or b"") + len(change.after or b"")
        fits = _is_kept(change) and size <= 2 * MAX_FILE_BYTES and num_bytes + size <= MAX_ALL_BYTES
        num_bytes += size if fits else 0
        yield _file(number, change, TOO_LARGE if not fits else "")


def _is_kept(change: FileChange) -> bool:
    """Whether both versions are here; what is too large for a run's record is not."""
    had, has = change.kind is not ChangeKind.ADDED, change.kind is not ChangeKind.REMOVED
    return (change.before is not None or not had) and (change.after is not None or not has)


def _file(number: int, change: FileChange, unshown: str) -> ChangedFile:
    before, after = (None, None) if unshown else (_text(change.before), _text(change.after))
    if not unshown and (before is None or after is None):
        unshown, before, after = BINARY, None, None
    lines = _lines(change) if not unshown else []
    return ChangedFile(
        number=number,
        path=for_the_eye(change.path),
        kind=change.kind,
        unshown=unshown,
        note=_note(change),
        before=None if before is None else to_page(before),
        after=None if after is None else to_page(after),
        hunks=lines,
        num_added=sum(hunk.after_end - hunk.after_start for hunk in lines),
        num_removed=sum(hunk.before_end - hunk.before_start for hunk in lines),
    )


def _text(content: bytes | None) -> str | None:
    """None for what is no text; a file that is not there is empty."""
    if content is None or b"\0" not in content:
        try:
            return (content or b"").decode()
        except UnicodeDecodeError:
            return None
    return None


def _note(change: FileChange) -> str:
    if stat.S_ISLNK(change.mode):
        return "A symbolic link; the text is where it leads."
    notes = [_mode_note(change), _ending_note(change)]
    return " ".join(filter(None, notes))


def _mode_note(change: FileChange) -> str:
    before = change.mode if change.mode_before is None else change.mode_before
    if change.after is None or stat.S_IMODE(before) == stat.S_IMODE(change.mode):
        return ""
    return f"Permissions change from {stat.S_IMODE(before):o} to {stat.S_IMODE(change.mode):o}."


def _ending_note(change: FileChange) -> str:
    if change.before is None or change.after is None or change.before == change.after:
        return ""
    before, after = _text(change.before), _text(change.after)
    is_same = before is not None and after is not None and to_page(before) == to_page(after)
    return "Only line endings change." if is_same else ""


def _lines(change: FileChange) -> list[Lines]:
    """The hunks of the landing as lines; what can only be accepted as a whole is one hunk from top to bottom."""
    before, after = split_lines(_text(change.before) or ""), split_lines(_text(change.after) or "")
    edits = [hunk.edit for hunk in hunks(change)]
    if edits == [None]:
        whole = Lines(before_start=0, before_end=len(before), after_start=0, after_end=len(after))
        return [whole] if before != after else []
    starts, shift = line_starts(before), 0
    lines = []
    for edit in filter(None, edits):
        start, end = (bisect.bisect_left(starts, offset) for offset in (edit.span.start, edit.span.end))
        num_new = len(split_lines(edit.text))
        lines.append(
            Lines(before_start=start, before_end=end, after_start=start + shift, after_end=start + shift + num_new)
        )
        shift += num_new - (end - start)
    return lines
