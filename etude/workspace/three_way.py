"""Bringing together what two people made of the same file: merge."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import LCSseq

from etude.edits import split_lines

# Larger ones are data.
MAX_MERGED_BYTES = 2_000_000

# Comparing m lines with n takes m·n/8 bytes, here 50 MB; what differs more counts as one change from top to bottom.
_MAX_PAIRS = 400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a file should be: Merged(content=b"a\\nB\\nc\\n", conflict=False, merged=True)."""

    content: bytes | None
    """None: no file. In a conflict it is `ours`, unchanged."""
    conflict: bool = False
    """Both changed the same lines, or the whole of a file that cannot be merged by lines."""
    merged: bool = False
    """Changes of both are in it."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines `start` up to `end` of the base became `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


def merge(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> Merged:
    """`ours` with what changed from `base` to `theirs`; None stands for no file."""
    if theirs in (base, ours):
        return Merged(content=ours)
    if ours == base:
        return Merged(content=theirs)
    texts = [_text(content) for content in (base or b"", ours, theirs)]
    if ours is None or theirs is None or None in texts:
        return Merged(content=ours, conflict=True)
    together = merge_texts(*(text or "" for text in texts))
    if together is None:
        return Merged(content=ours, conflict=True)
    return Merged(content=_mark(base, ours, theirs) + together.encode(), merged=True)


def merge_texts(base: str, ours: str, theirs: str) -> str | None:
    """The same for texts; None for a conflict. Changes that touch each other are one."""
    base_lines = split_lines(base)
    together = _together(_changes(base_lines, ours), _changes(base_lines, theirs))
    if together is None:
        return None
    pieces: list[str] = []
    at = 0
    for change in together:
        pieces += base_lines[at : change.start]
        pieces += change.lines
        at = change.end
    return "".join(pieces + base_lines[at:])


def _text(content: bytes | None) -> str | None:
    if content is None or len(content) > MAX_MERGED_BYTES or b"\0" in content:
        return None
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return None


def _mark(base: bytes | None, ours: bytes, theirs: bytes) -> bytes:
    """The byte order mark, if the one who changed that has put it there."""
    had, we, they = (bool(content) and content.startswith(codecs.BOM_UTF8) for content in (base, ours, theirs))
    return codecs.BOM_UTF8 if (they if we == had else we) else b""


def _changes(base_lines: Sequence[str], text: str) -> list[_Change]:
    lines = split_lines(text)
    head, tail = _equal_ends(base_lines, lines)
    before, after = base_lines[head : len(base_lines) - tail], lines[head : len(lines) - tail]
    changes: list[_Change] = []
    for i1, i2, j1, j2 in _differences(before, after):
        change = _Change(head + i1, head + i2, tuple(after[j1:j2]))
        if changes and changes[-1].end == change.start:
            last = changes.pop()
            change = _Change(last.start, change.end, last.lines + change.lines)
        changes.append(change)
    return changes


def _differences(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """By a longest common subsequence; difflib would take minutes for what a generated file can hold."""
    if len(before) * len(after) > _MAX_PAIRS:
        return [(0, len(before), 0, len(after))]
    numbers: dict[str, int] = {}
    first, second = ([numbers.setdefault(line, len(numbers)) for line in lines] for lines in (before, after))
    return [
        (block.src_start, block.src_end, block.dest_start, block.dest_end)
        for block in LCSseq.opcodes(first, second)
        if block.tag != "equal"
    ]


def _equal_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines at the start and at the end are the same."""
    most = min(len(before), len(after))
    head = next((number for number in range(most) if before[number] != after[number]), most)
    tail = next((number for number in range(most - head) if before[-1 - number] != after[-1 - number]), most - head)
    return head, tail


def _together(ours: list[_Change], theirs: list[_Change]) -> list[_Change] | None:
    """Both lists as one, in order; None where they meet and are not the same."""
    together: list[_Change] = []
    mine, yours = [*reversed(ours)], [*reversed(theirs)]
    while mine and yours:
        if mine[-1] == yours[-1]:
            together.append(mine.pop())
            yours.pop()
        elif mine[-1].end < yours[-1].start:
            together.append(mine.pop())
        elif yours[-1].end < mine[-1].start:
            together.append(yours.pop())
        else:
            return None
    return together + mine[::-1] + yours[::-1]
