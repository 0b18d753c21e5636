"""From whatever a model or person wrote to the rows of a sketch.

    reply → split_files → FileSketch (path, blocks of text) → read_rows → Row…

A Row is one line and what it asks for. Fenced blocks with elisions, unified diffs (numbers ignored unless
they are needed), SEARCH/REPLACE blocks, patch envelopes and whole files all end as rows; `lattice.py` places them.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath

from etude.assistant.apply.elisions import is_elision, removed_text, split_header
from etude.errors import SketchUnusable
from etude.workspace.syntax import language_of_tag

# A sketch is written by a model in one answer; more than this is a mistake (a log, a dump).
MAX_SKETCH_LINES = 20_000


class Op(StrEnum):
    """What a row asks for."""

    SHOW = "show"
    """A line of the result: kept if the file has it there, new otherwise."""
    KEEP = "keep"
    """Context of a diff or SEARCH block: in the file and in the result."""
    DROP = "drop"
    """In the file, not in the result."""
    ADD = "add"
    """In the result, not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a sketch: Row(text="    return 1", op=Op.SHOW, block=0, line=7)."""

    text: str
    """Without line ending; indentation as written."""
    op: Op
    block: int
    """Rows of one block are in file order; blocks may not be."""
    line: int
    """Line of the sketch, from 0, for messages."""
    gap_before: int | None = None
    """Indentation of an elision just above this row; None when the row above is adjacent."""
    soft_gap: bool = False
    """The gap was not written; the row just does not follow the one above in the file."""
    file_line: int | None = None
    """Line of the file, from 0, that a diff claims for this row."""
    removed_before: bool = False
    """A remark says that something was removed just above this row."""
    optional: bool = False
    """May be missing from the file without a word: a diff's section heading, a "removed:" remark."""

    @property
    def shown(self) -> bool:
        """Whether the sketch shows the result here, so that what it passes over is gone."""
        return self.op is Op.SHOW or (self.op is Op.DROP and self.optional)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    rows: tuple[Row, ...]
    gap_after: int | None
    """Indentation of an elision after the last row."""
    tag: str | None = None
    """Language named by the fence, if any."""
    says_path: str | None = None
    """The file that the sketch itself names."""
    cut_off: bool = False
    """The last fence was opened and never closed, as when an answer ran out of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSketch:
    path: str | None
    """One of the known paths, or the path as written; None when the reply names no file."""
    text: str
    """The part of the reply that concerns the file, fences included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A fenced block, or the whole reply when nothing is fenced."""

    lines: tuple[str, ...]
    first_line: int
    tag: str = ""
    path: str | None = None
    closed: bool = True


_FENCE = re.compile(r"^\s{0,3}(?P<marks>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
_DIFF_FILE = re.compile(r"^(?:---|\+\+\+)\s+(?P<path>[^\t\n]+?)(?:\t.*)?\s*$")
_DIFF_START = re.compile(r"^diff --git a/(?P<path>.+?) b/.*$")
_HUNK = re.compile(r"^@@(?:\s*-(?P<line>\d+)(?:,\d+)?\s+\+\d+(?:,\d+)?\s*@@)?(?P<heading>.*)$")
_ENVELOPE = re.compile(
    r"^\*\*\* (?P<verb>Begin Patch|End Patch|End of File|(?:Update|Add|Delete) File: (?P<path>.+))\s*$"
)
_SEARCH = re.compile(
    r"^\s*(?P<marks>(?:<{5,9}|-{5,9})(?=\s*(?:SEARCH|ORIGINAL|HEAD))|<{5,9}(?=\s*$)).*$", re.IGNORECASE
)
_DIVIDER = re.compile(r"^(?P<marks>={5,9})\s*$")
_REPLACE = re.compile(r"^\s*(?:>{5,9}|\+{5,9}(?=\s*REPLACE)).*$", re.IGNORECASE)
_PATH = r"(?P<path>[\w.@~+\-\\/\[\]()]*[\w\])]\.\w{1,8}|(?:[\w.\-]+/)+[\w.\-]+|Makefile|Dockerfile)"
_PATH_LINE = re.compile(
    r"^\W*(?:(?:in|file|filename|path|update|updated|edit|modify|create|new file|and)\b[\s:`*]*)*"
    rf"{_PATH}[\s`*:)\]]*(?:\([^)]*\))?[\s:.]*$",
    re.IGNORECASE,
)
_PATH_IN_PROSE = re.compile(rf"`{_PATH}`|\*\*{_PATH.replace('path', 'bold')}\*\*")
_PATH_COMMENT = re.compile(
    rf"^\s*(?:#|//|--|/\*|<!--|;)\s*(?:file(?:name|path)?\s*:\s*|path\s*:\s*)?{_PATH}\s*(?:\*/|-->)?\s*$", re.IGNORECASE
)


def split_files(reply: str, known_paths: Sequence[str] = ()) -> list[FileSketch]:
    """The files that a chat reply speaks of, in order, each with its part of the reply.

    A path as written is replaced by the known path it means (the longest common ending, if only one fits).
    """
    found: dict[str | None, list[str]] = {}
    for block in _blocks(reply.replace("\r\n", "\n")):
        for path, lines, tag in _by_file(block):
            known = resolve_path(path, known_paths) if path else None
            if known is None and _is_shell(tag):
                continue
            found.setdefault(known, []).append(_fenced(lines, tag))
    if None in found and len(found) > 1:
        found.pop(None)  # prose examples beside named files
    return [FileSketch(path=path, text="\n".join(texts)) for path, texts in found.items()]


def resolve_path(written: str, known_paths: Iterable[str]) -> str:
    """The known path that `written` means, or `written` itself, cleaned, when none or several fit."""
    cleaned = written.strip().strip("`*'\"").replace("\\", "/").removeprefix("./")
    if cleaned in (known := set(known_paths)):
        return cleaned
    parts = PurePosixPath(cleaned).parts
    for size in range(len(parts), 0, -1):
        fitting = [path for path in known if PurePosixPath(path).parts[-size:] == parts[-size:]]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            break
    return cleaned


def read_rows(text: str, file_lines: Sequence[str], path: str = "") -> Rows:
    """The rows of a sketch for one file. Raises SketchUnusable when there is nothing to place.

    `file_lines` decides what is an elision: a line that the file holds verbatim is code.
    """
    if not text.strip():
        raise SketchUnusable("The sketch is empty. Give the changed code, with the unchanged parts left out.")
    if text.count("\n") > MAX_SKETCH_LINES:
        raise SketchUnusable(f"The sketch has more than {MAX_SKETCH_LINES} lines. Give only the changed code.")
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    known = {line.strip() for line in file_lines}
    blocks = _relevant(_blocks(text), path)
    pieces = [piece for block in blocks for piece in _read_block(block, known)]
    rows: list[Row] = []
    gap_after: int | None = None
    for number, (piece, gap) in enumerate(pieces):
        start = [replace(row, block=number) for row in piece]
        if start and rows and start[0].gap_before is None:
            start[0] = replace(start[0], gap_before=0)
        rows += start
        gap_after = gap
    if not any(row.text.strip() for row in rows):
        raise SketchUnusable("The sketch holds no code, only words or gaps. Give the changed code itself.")
    named = next((block.path for block in blocks if block.path), None)
    tag = next((block.tag for block in blocks if block.tag), None)
    cut_off = not blocks[-1].closed
    return Rows(rows=tuple(rows), gap_after=gap_after, tag=tag, says_path=named, cut_off=cut_off)


# --- chat text ---------------------------------------------------------------------------------


def _blocks(text: str) -> list[_Block]:
    lines = text.split("\n")
    blocks, at, unfenced_from = [], 0, 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        end = _fence_end(lines, at, fence["marks"])
        tag, path = _read_info(fence["info"].strip())
        body = tuple(lines[at + 1 : end])
        path = path or _path_above(lines, at, unfenced_from) or _path_inside(body)
        blocks.append(_Block(lines=body, first_line=at + 1, tag=tag, path=path, closed=end < len(lines)))
        at = unfenced_from = end + 1
    if blocks:
        return blocks
    return [_Block(lines=tuple(lines), first_line=0, path=_path_inside(tuple(lines)))]


def _fence_end(lines: Sequence[str], start: int, marks: str) -> int:
    for at in range(start + 1, len(lines)):
        fence = _FENCE.match(lines[at])
        if fence and not fence["info"].strip() and fence["marks"][0] == marks[0] and len(fence["marks"]) >= len(marks):
            return at
    return len(lines)


def _read_info(info: str) -> tuple[str, str | None]:
    """("python", "src/a.py") from "python src/a.py", "python:src/a.py", "12:30:src/a.py" or 'py title="src/a.py"'."""
    if not info:
        return "", None
    cursor_style = re.match(r"^\d+:\d+:(?P<path>\S+)$", info)
    if cursor_style:
        return "", cursor_style["path"]
    quoted = re.search(r"(?:title|file(?:name|path)?|path)\s*=\s*[\"']?(?P<path>[^\"'\s}]+)", info)
    words = re.split(r"[\s{:]+", info, maxsplit=1)
    if quoted:
        return words[0], quoted["path"]
    if len(words) > 1 and (found := re.match(rf"^{_PATH}$", words[1].strip())):
        return words[0], found["path"]
    if "/" in info and re.match(rf"^{_PATH}$", info):
        return "", info
    return words[0] if len(words[0]) < 20 and "." not in words[0] else "", info if re.match(
        rf"^{_PATH}$", info
    ) and "." in info else None


def _path_above(lines: Sequence[str], fence: int, from_line: int) -> str | None:
    """A path on the line just above a fence, or in back quotes in the paragraph above it."""
    above = [line for line in lines[max(from_line, fence - 4) : fence] if line.strip()]
    if not above:
        return None
    alone = _PATH_LINE.match(above[-1])
    if alone:
        return alone["path"]
    in_prose = [found["path"] or found["bold"] for found in _PATH_IN_PROSE.finditer(above[-1])]
    in_prose = [path for path in in_prose if "." in path and not path.endswith(("()", "."))]
    return in_prose[0] if len(set(in_prose)) == 1 else None


def _path_inside(lines: Sequence[str]) -> str | None:
    first = next((line for line in lines if line.strip()), "")
    found = _PATH_COMMENT.match(first)
    return found["path"] if found else None


def _by_file(block: _Block) -> list[tuple[str | None, list[str], str]]:
    """A block cut where a diff, a patch envelope or a SEARCH block's file name starts another file."""
    parts: list[tuple[str | None, list[str], str]] = []
    path, lines = block.path, list[str]()
    for number, line in enumerate(block.lines):
        named = _starts_file(block.lines, number)
        if named and (path is None or named != path):
            if any(text.strip() for text in lines):
                parts.append((path, lines, block.tag))
            path, lines = named, []
        lines.append(line)
    parts.append((path, lines, block.tag))
    return parts


def _starts_file(lines: Sequence[str], number: int) -> str | None:
    line = lines[number]
    if found := (_DIFF_START.match(line) or _ENVELOPE.match(line)):
        return found["path"]
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if line.startswith("--- ") and following.startswith("+++ "):
        return _diff_path(line, following)
    if _SEARCH.match(following) and (alone := _PATH_LINE.match(line)):
        return alone["path"]
    return None


def _diff_path(minus: str, plus: str) -> str | None:
    for line in (plus, minus):
        found = _DIFF_FILE.match(line)
        if found and found["path"] != "/dev/null":
            return re.sub(r"^[ab]/", "", found["path"])
    return None


def _fenced(lines: Sequence[str], tag: str) -> str:
    longest = max((len(run) for line in lines for run in re.findall(r"`{3,}", line)), default=2)
    marks = "`" * (longest + 1)
    return "\n".join([f"{marks}{tag}", *lines, marks])


def _is_shell(tag: str) -> bool:
    return tag.lower() in {"bash", "sh", "shell", "console", "terminal", "zsh", "powershell", "text", "txt", "output"}


def _relevant(blocks: list[_Block], path: str) -> list[_Block]:
    """Blocks that can be meant for this file: those that name it, else those that name none."""
    name = PurePosixPath(path.replace("\\", "/")).name
    parts = [replace(block, lines=tuple(lines), path=named) for block in blocks for named, lines, _ in _by_file(block)]
    if name and (mine := [part for part in parts if part.path and _file_name(part.path) == name]):
        return mine
    coded = [part for part in parts if not _is_shell(part.tag) or name.endswith((".sh", ".bash", ".txt"))]
    return coded or parts


def _file_name(path: str) -> str:
    return PurePosixPath(path.strip("`*'\"").replace("\\", "/")).name


# --- one block ---------------------------------------------------------------------------------


def _read_block(block: _Block, known: set[str]) -> list[tuple[list[Row], int | None]]:
    """Pieces of a block, each a list of rows and the gap after it."""
    lines = block.lines
    if any(_SEARCH.match(line) for line in lines) and any(_DIVIDER.match(line) for line in lines):
        return _read_search_replace(lines, block.first_line, known)
    if _is_diff(lines, block.tag, known):
        return _read_diff(lines, block.first_line, known)
    return [_read_shown(lines, block.first_line, known)]


def _read_shown(lines: Sequence[str], first_line: int, known: set[str]) -> tuple[list[Row], int | None]:
    rows: list[Row] = []
    gap: int | None = None
    removed = False
    for number, line in enumerate(lines):
        if number < 3 and _PATH_COMMENT.match(line) and line.strip() not in known and not rows:
            continue
        if _is_gap(line, known):
            gap = _width(line)
            continue
        row = Row(text=line.rstrip(), op=Op.SHOW, block=0, line=first_line + number, gap_before=gap)
        taken = removed_text(line) if line.strip() not in known else None
        if taken is not None:
            removed = True
            if taken and taken in known:
                rows.append(replace(row, text=line[: _width_characters(line)] + taken, op=Op.DROP, optional=True))
                gap = None
            continue
        header = split_header(line) if line.strip() not in known else None
        if header is None:
            if not (gap is not None and not line.strip()):  # blank lines after a gap are decoration
                rows.append(replace(row, removed_before=removed))
                gap = None
                removed = removed and not line.strip()
            continue
        head, tail = header
        rows.append(replace(row, text=head))
        gap = _width(line) + 1
        if tail:
            rows.append(replace(row, text=line[: _width_characters(line)] + tail, gap_before=gap))
            gap = None
    return _without_edge_blanks(rows), gap


def _without_edge_blanks(rows: list[Row]) -> list[Row]:
    while rows and not rows[-1].text.strip():
        rows.pop()
    while rows and not rows[0].text.strip():
        rows.pop(0)
    return rows


def _is_gap(line: str, known: set[str]) -> bool:
    stripped = line.strip()
    return bool(stripped) and stripped not in known and is_elision(line)


def _width(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())


def _width_characters(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read_search_replace(lines: Sequence[str], first_line: int, known: set[str]) -> list[tuple[list[Row], int | None]]:
    pieces: list[tuple[list[Row], int | None]] = []
    at = 0
    while at < len(lines):
        if not _SEARCH.match(lines[at]):
            at += 1
            continue
        divider = _divider(lines, at)
        end = next((n for n in range(divider + 1, len(lines)) if _REPLACE.match(lines[n])), None) if divider else None
        if divider is None or end is None:
            raise SketchUnusable(
                f"The SEARCH block in line {first_line + at + 1} of the sketch has no end. Copy the whole reply."
            )
        pieces.append((_rows_between(lines[at + 1 : divider], lines[divider + 1 : end], first_line + at + 1, known), 0))
        at = end + 1
    return pieces


def _divider(lines: Sequence[str], start: int) -> int | None:
    """The line of "=======" of the block at `start`; an underlined heading in the code has another length."""
    opening = _SEARCH.match(lines[start])
    length = len(opening["marks"]) if opening else 7
    found = [n for n in range(start + 1, len(lines)) if _DIVIDER.match(lines[n])]
    exact = [n for n in found if len(lines[n].strip()) == length]
    return (exact or found or [None])[0]


def _rows_between(old: Sequence[str], new: Sequence[str], first_line: int, known: set[str]) -> list[Row]:
    """KEEP, DROP and ADD rows that turn `old` into `new`."""
    rows: list[Row] = []
    gap: int | None = None

    def add(text: str, op: Op, line: int) -> None:
        nonlocal gap
        if _is_gap(text, known):
            gap = _width(text)
            return
        rows.append(Row(text=text.rstrip(), op=op, block=0, line=line, gap_before=gap))
        gap = None

    matcher = difflib.SequenceMatcher(
        None, [line.rstrip() for line in old], [line.rstrip() for line in new], autojunk=False
    )
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        for i in range(i1, i2):
            add(old[i], Op.KEEP if tag == "equal" else Op.DROP, first_line + i)
        for j in range(j1, j2) if tag != "equal" else ():
            add(new[j], Op.ADD, first_line + len(old) + 1 + j)
    return rows


def _is_diff(lines: Sequence[str], tag: str, known: set[str]) -> bool:
    if any(_HUNK.match(line) and line.startswith("@@") for line in lines) or any(
        _ENVELOPE.match(line) for line in lines
    ):
        return True
    if any(line.startswith("--- ") for line in lines) and any(line.startswith("+++ ") for line in lines):
        return True
    signed = [line for line in lines if line[:1] in "+-" and line.strip() not in known and line.strip()]
    if tag.lower() in {"diff", "patch", "udiff"}:
        return bool(signed)
    # Without a tag, every line must look like one of a diff, or lists and arithmetic would be read as one.
    return len(signed) > 1 and all(not line.strip() or line[0] in "+- " or _is_gap(line, known) for line in lines)


def _read_diff(lines: Sequence[str], first_line: int, known: set[str]) -> list[tuple[list[Row], int | None]]:
    pieces: list[tuple[list[Row], int | None]] = []
    rows: list[Row] = []
    gap: int | None = None
    file_line: int | None = None

    def close() -> None:
        nonlocal rows, gap
        if any(row.op is not Op.KEEP for row in rows):
            pieces.append((_without_edge_blanks_of_diff(rows), 0))
        rows, gap = [], None

    for number, line in enumerate(lines):
        if _is_diff_heading(lines, number):
            close()
            continue
        hunk = _HUNK.match(line)
        if hunk:
            close()
            file_line = int(hunk["line"]) - 1 if hunk["line"] else None
            heading = hunk["heading"].replace("@@", "").strip()
            if heading:
                rows.append(Row(text=heading, op=Op.KEEP, block=0, line=first_line + number, optional=True))
                gap = 0
            continue
        op = {"+": Op.ADD, "-": Op.DROP}.get(line[:1], Op.KEEP)
        text = line[1:] if line[:1] in "+- " else line
        if line.startswith("\\ No newline"):
            continue
        if _is_gap(text, known):
            gap = _width(text)
            continue
        rows.append(
            Row(text=text.rstrip(), op=op, block=0, line=first_line + number, gap_before=gap, file_line=file_line)
        )
        gap = None
        if file_line is not None and op is not Op.ADD:
            file_line += 1
    close()
    return pieces


def _is_diff_heading(lines: Sequence[str], number: int) -> bool:
    line = lines[number]
    if line.startswith(("diff --git ", "index ", "new file mode", "deleted file mode", "similarity index", "rename ")):
        return True
    if _ENVELOPE.match(line):
        return True
    following = lines[number + 1] if number + 1 < len(lines) else ""
    before = lines[number - 1] if number else ""
    return (line.startswith("--- ") and following.startswith("+++ ")) or (
        line.startswith("+++ ") and before.startswith("--- ")
    )


def _without_edge_blanks_of_diff(rows: list[Row]) -> list[Row]:
    while rows and rows[-1].op is Op.KEEP and not rows[-1].text.strip():
        rows.pop()
    return rows


def language_of_rows(rows: Rows) -> str | None:
    """The language that the sketch's fence claims, when we know it."""
    return language_of_tag(rows.tag) if rows.tag else None
