"""Text changes as values: Span, Edit, Patch.

Offsets count code points of the decoded text with its line endings untouched ("\\r\\n" is two).
Reading and saving files is `workspace/files.py`.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

# difflib's time grows with the square of how often a line occurs, and code is full of blank lines and braces. So equal
# ends are cut off first, but for so many lines, among which it still chooses where a repeated line belongs.
_KEPT_AT_ENDS = 60


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Span:
    """The characters from `start` up to, not including, `end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a span needs 0 <= start <= end, got {self.start}..{self.end}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace `span` of the original text by `text`: Edit(span=Span(start=4, end=9), text="total")."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """All edits of one file, sorted, disjoint, against one exact original."""

    path: str
    """As the person named the file; relative paths use slashes."""
    base_sha256: str
    """Hash of the original text in UTF-8; `apply` refuses any other text."""
    edits: tuple[Edit, ...]

    def __post_init__(self) -> None:
        for before, after in zip(self.edits, self.edits[1:], strict=False):
            if after.span.start < before.span.end:
                raise ValueError(f"edits overlap or are unsorted at offset {after.span.start}")

    def apply(self, original: str) -> str:
        """The changed text. Raises ValueError when `original` is not the text the patch was made for."""
        if text_sha256(original) != self.base_sha256:
            raise ValueError(f"{self.path}: this patch was made for another text")
        pieces, at = [], 0
        for edit in self.edits:
            pieces += [original[at : edit.span.start], edit.text]
            at = edit.span.end
        return "".join(pieces) + original[at:]

    def only(self, indices: Iterable[int]) -> "Patch":
        """The patch with just these edits, for accepting some hunks and not others."""
        wanted = set(indices)
        kept = tuple(edit for index, edit in enumerate(self.edits) if index in wanted)
        return Patch(path=self.path, base_sha256=self.base_sha256, edits=kept)


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def split_lines(text: str) -> list[str]:
    """Lines with their endings; only \\n, \\r\\n and \\r end a line (str.splitlines also splits at form feeds)."""
    return _LINE.findall(text) if "\r" in text else _split_at_newlines(text)


def _split_at_newlines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + ([last] if last else [])


def line_starts(lines: Sequence[str]) -> list[int]:
    """Offset of each line's first character, and one past the last line: len(lines) + 1 numbers."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts


def patch_from_texts(path: str, original: str, changed: str) -> Patch:
    """The line-wise difference of two texts as a Patch; applying it gives `changed` exactly."""
    before, after = split_lines(original), split_lines(changed)
    starts = line_starts(before)
    edits = tuple(
        Edit(span=Span(start=starts[i1], end=starts[i2]), text="".join(after[j1:j2]))
        for i1, i2, j1, j2 in changed_lines(before, after)
    )
    return Patch(path=path, base_sha256=text_sha256(original), edits=edits)


def changed_lines(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """(start, end) in `before` and (start, end) in `after` of each run of lines that differs, in order."""
    head, tail = _equal_ends(before, after)
    middles = before[head : len(before) - tail], after[head : len(after) - tail]
    opcodes = difflib.SequenceMatcher(None, *middles, autojunk=False).get_opcodes()
    return [(head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in opcodes if tag != "equal"]


def _equal_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many equal lines at the start and at the end of both can be left out of a comparison."""
    most = min(len(before), len(after))
    head = next((number for number in range(most) if before[number] != after[number]), most)
    tail = next((number for number in range(most - head) if before[-1 - number] != after[-1 - number]), most - head)
    return max(0, head - _KEPT_AT_ENDS), max(0, tail - _KEPT_AT_ENDS)


def unified_diff(path: str, original: str, changed: str, *, context: int = 3) -> str:
    """The difference as `git apply` reads it; empty when the texts are equal."""
    pieces = []
    # git knows one line ending; to it a lone "\r" is a character like any other.
    before, after = _split_at_newlines(original), _split_at_newlines(changed)
    for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=context, lineterm="\n"):
        pieces.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(pieces)
