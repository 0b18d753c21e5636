"""From whatever a model or person wrote to the rows of a sketch.

    reply → split_files → FileSketch (path, blocks of text) → read_rows → Row…

A Row is one line and what it asks for. Fenced blocks with elisions, unified diffs (numbers ignored unless
they are needed), SEARCH/REPLACE blocks, patch envelopes and whole files all end as rows; `lattice.py` places them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from etude.assistant.apply.blocks import ENVELOPE, PATH, PATH_COMMENT, SEARCH, Known, read_block
from etude.assistant.apply.file_view import header_name
from etude.assistant.apply.rows import Row, Rows
from etude.errors import SketchUnusable

# A sketch is written by a model in one answer; more than this is a mistake (a log, a dump).
MAX_SKETCH_LINES = 5_000
# Each part is placed and then tried elsewhere.
MAX_PARTS = 80


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


_MARKDOWN = frozenset({"markdown", "md", "mdx", "rst"})
# "Change the port to 8080:" above a sketch that is not fenced.
_INTRODUCTION = re.compile(r"^[A-Z][\w'`]*(?:\s+[^\s=(){}\[\];#]+){2,}:$")
_FENCE = re.compile(r"^\s{0,3}(?P<marks>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
_DIFF_FILE = re.compile(r"^(?:---|\+\+\+)\s+(?P<path>[^\t\n]+?)(?:\t.*)?\s*$")
_DIFF_START = re.compile(r"^diff --git a/(?P<path>.+?) b/.*$")
_LONGEST_PATH_LINE = 300
_PATH_LINE = re.compile(
    r"^[^\w./~\\]*(?:(?:in|file|filename|path|update|updated|edit|modify|create|new file|and)\b[\s:`*]*)*"
    rf"{PATH}[\s`*:)\]]*(?:\([^)]*\))?[\s:.]*$",
    re.IGNORECASE,
)
_PATH_IN_PROSE = re.compile(rf"`{PATH}`|\*\*{PATH.replace('path', 'bold')}\*\*")


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
    known = set(known_paths)
    if cleaned in known:
        return cleaned
    fitting = [path for path in known if is_same_file(cleaned, path)]
    return fitting[0] if len(fitting) == 1 else cleaned


def is_same_file(one: str, other: str) -> bool:
    """Whether one path is the end of the other: "src/cart.py" and "cart.py", but not "a/cart.py" and "b/cart.py"."""
    parts, other_parts = _parts(one), _parts(other)
    size = min(len(parts), len(other_parts))
    return size > 0 and parts[-size:] == other_parts[-size:]


def _parts(path: str) -> tuple[str, ...]:
    cleaned = path.strip().strip("`*'\"").replace("\\", "/")
    return tuple(part for part in PurePosixPath(cleaned).parts if part not in ("/", "."))


def read_rows(text: str, file_lines: Sequence[str], path: str = "") -> Rows:
    """The rows of a sketch for one file. Raises SketchUnusable when there is nothing to place.

    `file_lines` decides what is an elision: a line that the file holds verbatim is code.
    """
    if not text.strip():
        raise SketchUnusable("The sketch is empty. Give the changed code, with the unchanged parts left out.")
    if text.count("\n") > MAX_SKETCH_LINES:
        raise SketchUnusable(f"The sketch has more than {MAX_SKETCH_LINES} lines. Give only the changed code.")
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    known = Known.of(file_lines, path)
    blocks = _without_before(_relevant(_blocks(text), path), known)
    pieces = [piece for block in blocks for piece in read_block(block.lines, block.tag, block.first_line, known)]
    rows: list[Row] = []
    gap: int | None = None
    for number, piece in enumerate(pieces):
        start = [replace(row, block=number) for row in piece.rows]
        if start and rows:
            # Two elisions in a row: the deeper one tells where the part above ends.
            start[0] = replace(start[0], gap_before=max(gap or 0, start[0].gap_before or 0))
        rows += start
        gap = piece.gap_after if piece.rows else max(gap or 0, piece.gap_after or 0)
    if not any(row.text.strip() for row in rows):
        raise SketchUnusable("The sketch holds no code, only words or gaps. Give the changed code itself.")
    num_parts = sum(row.gap_before is not None for row in rows)
    if num_parts > MAX_PARTS:
        raise SketchUnusable(f"The sketch has {num_parts} parts; {MAX_PARTS} are the most. Apply it in pieces.")
    return Rows(
        rows=tuple(rows),
        gap_after=gap,
        tag=next((block.tag for block in blocks if block.tag), None),
        says_path=next((block.path for block in blocks if block.path), None),
        cut_off=not blocks[-1].closed,
        elided_change=next((piece.elided_change for piece in pieces if piece.elided_change is not None), None),
    )


def _without_before(blocks: list[_Block], known: Known) -> list[_Block]:
    """Drop a "before" block: the file as it is, followed by a block that defines the same thing anew."""
    kept = []
    for number, block in enumerate(blocks):
        told = [line for line in block.lines if line.strip()]
        name = header_name(told[0], known.language) if told else None
        later = [other.lines for other in blocks[number + 1 :]]
        again = any(header_name(line, known.language) == name for lines in later for line in lines) if name else False
        if not (again and all(line.strip() in known.texts for line in told)):
            kept.append(block)
    return kept


# --- chat text ---------------------------------------------------------------------------------


def _blocks(text: str) -> list[_Block]:
    lines = text.split("\n")
    blocks, at, unfenced_from = [], 0, 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        tag, path = _read_info(fence["info"].strip())
        end = _fence_end(lines, at, fence["marks"], tag)
        body = tuple(lines[at + 1 : end])
        path = path or _path_above(lines, at, unfenced_from) or _path_inside(body)
        blocks.append(_Block(lines=body, first_line=at + 1, tag=tag, path=path, closed=end < len(lines)))
        at = unfenced_from = end + 1
    if blocks:
        return blocks
    first = 1 if _INTRODUCTION.match(lines[0]) and len(lines) > 1 else 0
    return [_Block(lines=tuple(lines[first:]), first_line=first, path=_path_inside(tuple(lines[first:])))]


def _fence_end(lines: Sequence[str], start: int, marks: str, tag: str) -> int:
    """The line that closes a fence; in Markdown, fences with a tag open others inside."""
    depth = 0
    for at in range(start + 1, len(lines)):
        fence = _FENCE.match(lines[at])
        if not fence or fence["marks"][0] != marks[0] or len(fence["marks"]) < len(marks):
            continue
        if fence["info"].strip():
            depth += tag.lower() in _MARKDOWN
        elif depth == 0:
            return at
        else:
            depth -= 1
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
    if len(words) > 1 and (found := re.match(rf"^{PATH}$", words[1].strip())):
        return words[0], found["path"]
    if "/" in info and re.match(rf"^{PATH}$", info):
        return "", info
    return words[0] if len(words[0]) < 20 and "." not in words[0] else "", info if re.match(
        rf"^{PATH}$", info
    ) and "." in info else None


def _matched(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """A path pattern on a line that may hold a path; on a very long one the patterns would take minutes."""
    return pattern.match(line) if len(line) <= _LONGEST_PATH_LINE else None


def _path_above(lines: Sequence[str], fence: int, from_line: int) -> str | None:
    """A path on the line just above a fence, or in back quotes in the paragraph above it."""
    above = [line for line in lines[max(from_line, fence - 4) : fence] if line.strip()]
    if not above:
        return None
    alone = _matched(_PATH_LINE, above[-1])
    if alone:
        return alone["path"]
    in_prose = [found["path"] or found["bold"] for found in _PATH_IN_PROSE.finditer(above[-1][:_LONGEST_PATH_LINE])]
    in_prose = [path for path in in_prose if "." in path and not path.endswith(("()", "."))]
    return in_prose[0] if len(set(in_prose)) == 1 else None


def _path_inside(lines: Sequence[str]) -> str | None:
    first = next((line for line in lines if line.strip()), "")
    found = _matched(PATH_COMMENT, first)
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
    if found := (_DIFF_START.match(line) or ENVELOPE.match(line)):
        return found["path"]
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if line.startswith("--- ") and following.startswith("+++ "):
        return _diff_path(line, following)
    if SEARCH.match(following) and (alone := _matched(_PATH_LINE, line)):
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
    parts = [replace(block, lines=tuple(lines), path=named) for block in blocks for named, lines, _ in _by_file(block)]
    if path and (mine := [part for part in parts if part.path and is_same_file(part.path, path)]):
        return mine
    coded = [part for part in parts if not _is_shell(part.tag) or path.endswith((".sh", ".bash", ".txt"))]
    return coded or parts
