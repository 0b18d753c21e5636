"""The page's view of a text and the way back: "\\n" line ends and UTF-16 offsets there, exact bytes here."""

import bisect
import re

from etude.edits import Edit, changed_lines, split_lines
from etude.server.wire import WireEdit

_ENDING = re.compile(r"\r\n|\r|\n")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def to_page(text: str) -> str:
    """The editor of the page knows one line ending only."""
    return _ENDING.sub("\n", text) if "\r" in text else text


def from_page(edited: str, original: str) -> str:
    """`edited` with the line endings of `original`: kept lines keep theirs, new lines take their neighbour's."""
    if "\r" not in original:
        return edited
    before, after = split_lines(original), split_lines(to_page(edited))
    endings = _kept_endings(before, after)
    fallback = next(filter(None, (_ending(line) for line in before)), "\n")
    pieces = []
    for line, kept in zip(after, endings, strict=True):
        fallback = kept or fallback
        pieces.append(line.removesuffix("\n") + (fallback if line.endswith("\n") else ""))
    return "".join(pieces)


def _kept_endings(before: list[str], after: list[str]) -> list[str]:
    """For each line of `after` the ending of the line of `before` it is, or "" for a new one."""
    endings: list[str] = []
    at = 0
    for start, end, new_start, new_end in changed_lines(list(map(_bare, before)), list(map(_bare, after))):
        endings += [*map(_ending, before[at:start]), *[""] * (new_end - new_start)]
        at = end
    return endings + list(map(_ending, before[at:]))


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def _ending(line: str) -> str:
    return line[len(_bare(line)) :]


def wire_edits(text: str, edits: tuple[Edit, ...]) -> list[WireEdit]:
    """Edits of `text` with offsets as JavaScript counts them."""
    astral = [match.start() for match in _ASTRAL.finditer(text)]
    return [
        WireEdit(
            start=edit.span.start + bisect.bisect_left(astral, edit.span.start),
            end=edit.span.end + bisect.bisect_left(astral, edit.span.end),
            text=to_page(edit.text),
        )
        for edit in edits
    ]
