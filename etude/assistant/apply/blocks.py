"""One block of a sketch, to rows: code with elisions, SEARCH/REPLACE blocks, diffs, patch envelopes.

A line that the file holds verbatim is code, whatever it looks like. Line numbers of diffs are not used: models get them
wrong, and the lines themselves say where they belong.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from etude.assistant.apply.elisions import is_elision, removed_text, split_header
from etude.assistant.apply.file_view import header_name, indentation
from etude.assistant.apply.rows import Op, Row
from etude.errors import SketchUnusable
from etude.workspace.syntax import language_of

_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc"})


PATH = r"(?P<path>[\w.@~+\-\\/\[\]()]*[\w\])]\.\w{1,8}|(?:[\w.\-]+/)+[\w.\-]+|Makefile|Dockerfile)"
PATH_COMMENT = re.compile(
    rf"^\s*(?:#|//|--|/\*|<!--|;)\s*(?:file(?:name|path)?\s*:\s*|path\s*:\s*)?{PATH}\s*(?:\*/|-->)?\s*$", re.IGNORECASE
)
_HUNK = re.compile(r"^@@(?:\s*-\d+(?:,\d+)?\s+\+\d+(?:,\d+)?\s*@@|\s+.*?@@|(?=\s|$))(?P<heading>.*)$")
ENVELOPE = re.compile(
    r"^\*\*\* (?P<verb>Begin Patch|End Patch|End of File|(?:Update|Add|Delete) File: (?P<path>.+))\s*$"
)
SEARCH = re.compile(r"^\s*(?P<marks>(?:<{5,9}|-{5,9})(?=\s*(?:SEARCH|ORIGINAL|HEAD))|<{5,9}(?=\s*$)).*$", re.IGNORECASE)
_DIVIDER = re.compile(r"^(?P<marks>={5,9})\s*$")
_REPLACE = re.compile(r"^\s*(?:>{5,9}|\+{5,9}(?=\s*REPLACE)).*$", re.IGNORECASE)
_DIFF_HEADINGS = re.compile(
    r"^(?:diff --git |index [0-9a-f]+\.\.|new file mode|deleted file mode|similarity index|rename (?:from|to) )"
)


def is_prose(path: str) -> bool:
    """Whether a file is text for people, where "#" and "--" begin headings and lists."""
    return PurePosixPath(path).suffix.lower() in _PROSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the file holds, for telling elisions from code."""

    texts: frozenset[str]
    """Its lines, stripped."""
    names: frozenset[str]
    """What its header-like lines define."""
    language: str | None
    prose: bool
    """Markdown and the like, where "#" is no comment."""

    @classmethod
    def of(cls, file_lines: Sequence[str], path: str) -> "Known":
        language = language_of(path)
        names = {name for line in file_lines if (name := header_name(line, language))}
        return cls(
            texts=frozenset(line.strip() for line in file_lines),
            names=frozenset(names),
            language=language,
            prose=is_prose(path),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows that stand together, and what follows them."""

    rows: tuple[Row, ...]
    gap_after: int | None
    elided_change: int | None = None


def read_block(lines: Sequence[str], tag: str, first_line: int, known: Known) -> list[Piece]:
    """Pieces of a block; `tag` is its fence's, `first_line` where it begins in the sketch."""
    if any(SEARCH.match(line) for line in lines) and any(_DIVIDER.match(line) for line in lines):
        return _read_search_replace(lines, first_line, known)
    if _is_diff(lines, tag, known):
        return _read_diff(lines, first_line, known)
    return [_read_shown(lines, first_line, known)]


def _read_shown(lines: Sequence[str], first_line: int, known: Known) -> Piece:
    rows: list[Row] = []
    gap: int | None = None
    removed = False
    for number, line in enumerate(lines):
        if number < 3 and len(line) < 300 and PATH_COMMENT.match(line) and line.strip() not in known.texts and not rows:
            continue
        if _is_gap(line, known):
            gap = max(gap or 0, indentation(line))
            continue
        row = Row(text=line.rstrip(), op=Op.SHOW, block=0, line=first_line + number, gap_before=gap)
        taken = removed_text(line) if line.strip() not in known.texts else None
        if taken is not None:
            removed = True
            if taken and taken in known.texts:
                rows.append(replace(row, text=line[: _leading(line)] + taken, op=Op.DROP, optional=True))
                gap = None
            continue
        header = _header_of_elided_body(line, known)
        if header is None:
            if not (gap is not None and not line.strip()):  # blank lines after a gap are decoration
                rows.append(replace(row, removed_before=removed))
                gap = None
                removed = removed and not line.strip()
            continue
        head, tail = header
        rows.append(replace(row, text=head))
        gap = indentation(line) + 1
        if tail:
            rows.append(replace(row, text=line[: _leading(line)] + tail, gap_before=gap))
            gap = None
    return Piece(rows=tuple(_without_edge_blanks(rows)), gap_after=gap)


def _header_of_elided_body(line: str, known: Known) -> tuple[str, str] | None:
    """("def f(x):", "") when the line is a header with its body left out; None when it is code as it stands."""
    header = split_header(line) if line.strip() not in known.texts else None
    if header is None or known.language != "python" or not line.rstrip().endswith(("...", "…")) or "#" in line:
        return header
    # In Python "def f(self): ..." is code, too: a stub. It is one unless the file has such a definition with a body.
    name = header_name(line, known.language)
    return header if header[0].strip() in known.texts or name in known.names else None


def _without_edge_blanks(rows: list[Row]) -> list[Row]:
    while rows and not rows[-1].text.strip():
        rows.pop()
    while rows and not rows[0].text.strip():
        rows.pop(0)
    return rows


def _is_gap(line: str, known: Known) -> bool:
    stripped = line.strip()
    return bool(stripped) and stripped not in known.texts and is_elision(line, prose=known.prose)


def _leading(line: str) -> int:
    """Characters of white space that a line begins with."""
    return len(line) - len(line.lstrip())


class _Changes:
    """Collects rows of a diff or SEARCH block, and elisions between and inside its changes."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.rows: list[Row] = []
        self.gap: int | None = None
        self.elided_change: int | None = None

    def add(self, text: str, op: Op, line: int, *, optional: bool = False) -> None:
        if _is_gap(text, self._known):
            self.gap = max(self.gap or 0, indentation(text))
            if op is not Op.KEEP and self.elided_change is None:
                self.elided_change = line
            return
        self.rows.append(Row(text=text.rstrip(), op=op, block=0, line=line, gap_before=self.gap, optional=optional))
        self.gap = 0 if optional else None

    def piece(self) -> Piece:
        rows = list(self.rows)
        while rows and rows[-1].op is Op.KEEP and not rows[-1].text.strip():
            rows.pop()
        return Piece(rows=tuple(rows), gap_after=self.gap or 0, elided_change=self.elided_change)


def _read_search_replace(lines: Sequence[str], first_line: int, known: Known) -> list[Piece]:
    pieces: list[Piece] = []
    at = 0
    while at < len(lines):
        if not SEARCH.match(lines[at]):
            at += 1
            continue
        divider = _divider(lines, at)
        end = next((n for n in range(divider + 1, len(lines)) if _REPLACE.match(lines[n])), None) if divider else None
        if divider is None or end is None:
            raise SketchUnusable(
                f"The SEARCH block in line {first_line + at + 1} of the sketch has no end. Copy the whole reply."
            )
        pieces.append(_read_between(lines[at + 1 : divider], lines[divider + 1 : end], first_line + at + 1, known))
        at = end + 1
    return pieces


def _divider(lines: Sequence[str], start: int) -> int | None:
    """The line of "=======" of the block at `start`; an underlined heading in the code has another length."""
    opening = SEARCH.match(lines[start])
    length = len(opening["marks"]) if opening else 7
    found = [n for n in range(start + 1, len(lines)) if _DIVIDER.match(lines[n])]
    exact = [n for n in found if len(lines[n].strip()) == length]
    return (exact or found or [None])[0]


def _read_between(old: Sequence[str], new: Sequence[str], first_line: int, known: Known) -> Piece:
    """KEEP, DROP and ADD rows that turn `old` into `new`."""
    changes = _Changes(known)
    matcher = difflib.SequenceMatcher(None, _trimmed(old), _trimmed(new), autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        for i in range(i1, i2):
            changes.add(old[i], Op.KEEP if tag == "equal" else Op.DROP, first_line + i)
        for j in range(j1, j2) if tag != "equal" else ():
            changes.add(new[j], Op.ADD, first_line + len(old) + 1 + j)
    return changes.piece()


def _trimmed(lines: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _is_diff(lines: Sequence[str], tag: str, known: Known) -> bool:
    if any(_HUNK.match(line) and line.startswith("@@") for line in lines) or any(
        ENVELOPE.match(line) for line in lines
    ):
        return True
    if any(line.startswith("--- ") for line in lines) and any(line.startswith("+++ ") for line in lines):
        return True
    signed = [line for line in lines if line[:1] in "+-" and line.strip() not in known.texts and line.strip()]
    if tag.lower() in {"diff", "patch", "udiff"}:
        return bool(signed)
    # Without a tag, every line must look like one of a diff, or lists and arithmetic would be read as one.
    return len(signed) > 1 and all(not line.strip() or line[0] in "+- " or _is_gap(line, known) for line in lines)


def _read_diff(lines: Sequence[str], first_line: int, known: Known) -> list[Piece]:
    hunks = [_Changes(known)]
    for number, line in enumerate(lines):
        hunk = _HUNK.match(line)
        if hunk or _is_diff_heading(lines, number):
            hunks.append(_Changes(known))
        if hunk and (heading := hunk["heading"].replace("@@", "").strip()):
            hunks[-1].add(heading, Op.KEEP, first_line + number, optional=True)
        if hunk or _is_diff_heading(lines, number) or line.startswith("\\ No newline"):
            continue
        op = {"+": Op.ADD, "-": Op.DROP}.get(line[:1], Op.KEEP)
        hunks[-1].add(line[1:] if line[:1] in "+- " else line, op, first_line + number)
    return [changes.piece() for changes in hunks if any(row.op is not Op.KEEP for row in changes.rows)]


def _is_diff_heading(lines: Sequence[str], number: int) -> bool:
    line = lines[number]
    if _DIFF_HEADINGS.match(line) or ENVELOPE.match(line):
        return True
    following = lines[number + 1] if number + 1 < len(lines) else ""
    before = lines[number - 1] if number else ""
    return (line.startswith("--- ") and following.startswith("+++ ")) or (
        line.startswith("+++ ") and before.startswith("--- ")
    )
