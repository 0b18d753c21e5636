"""Where a true edit changed a file, and whether shown lines say on their own where they belong.

Lines here are without endings. Numbers of lines start from 0; ranges exclude their end.
"""

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.edit_histories import TrueEdit

Run = tuple[str, ...]
"""Kept lines that follow each other in the file: stripped, blank ones left out."""

Piece = tuple[int, int]
"""A range of lines of the new text that a sketch shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """before[old_start:old_end] became after[new_start:new_end]."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or method that is not inside another function."""

    name: str
    class_name: str | None
    start: int
    """First line, decorators included."""
    body_start: int
    """First line after the signature."""
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A true edit, looked at closely."""

    edit: TrueEdit
    before: tuple[str, ...]
    after: tuple[str, ...]
    regions: tuple[Region, ...]
    kept: dict[int, int]
    """Line of the new text → line of the old text, for lines outside the regions."""
    old_functions: tuple[Function, ...]
    new_functions: tuple[Function, ...]
    class_lines: dict[str, int]
    """Outermost classes of the new text that occur once in both → their line in the new text."""
    string_lines: frozenset[int]
    """Lines of the new text that end inside a string of several lines."""

    def old(self, region: Region) -> tuple[str, ...]:
        """The lines that the region replaced."""
        return self.before[region.old_start : region.old_end]

    def runs(self, piece: Piece) -> tuple[Run, ...]:
        """The kept lines of a shown piece, broken where the edit added or removed something."""
        runs: list[list[str]] = []
        last = None
        for line in range(*piece):
            old = self.kept.get(line)
            if old is not None and (last is None or old != last + 1):
                runs.append([])
            if old is not None and self.after[line].strip():
                runs[-1].append(self.after[line].strip())
            last = old
        return tuple(tuple(run) for run in runs if run)


def look_at(edit: TrueEdit) -> Subject:
    before, after = _lines(edit.before), _lines(edit.after)
    regions = changed_regions(before, after)
    old_tree, new_tree = ast.parse(edit.before), ast.parse(edit.after)
    return Subject(
        edit=edit,
        before=before,
        after=after,
        regions=regions,
        kept=_kept(regions, len(after)),
        old_functions=tuple(_functions(old_tree)),
        new_functions=tuple(_functions(new_tree)),
        class_lines=_class_lines(old_tree, new_tree),
        string_lines=_string_lines(edit.after),
    )


def changed_regions(before: Sequence[str], after: Sequence[str]) -> tuple[Region, ...]:
    """Maximal changed ranges; those with only one kept line or lines without a word between them are joined."""
    head = _common_prefix(before, after)
    tail = _common_prefix(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    regions: list[Region] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        found = Region(old_start=head + i1, old_end=head + i2, new_start=head + j1, new_end=head + j2)
        if regions and _hardly_apart(after[regions[-1].new_end : found.new_start]):
            found = _joined(regions.pop(), found)
        regions.append(found)
    return tuple(regions)


def mask_pieces(subject: Subject, shown: Iterable[int], *, smallest_gap: int = 3) -> list[Piece]:
    """The shown lines as pieces: tiny gaps are filled, blank edges trimmed."""
    lines = sorted({line for line in shown if 0 <= line < len(subject.after)})
    pieces: list[list[int]] = []
    for line in lines:
        if pieces and num_full(subject.after[pieces[-1][1] : line]) < smallest_gap:
            pieces[-1][1] = line + 1
        else:
            pieces.append([line, line + 1])
    return [trimmed for start, end in pieces if (trimmed := _trimmed(subject.after, start, end))]


def around(subject: Subject, context: int) -> set[int]:
    """Every changed line of the new text with `context` non-blank lines before and after each region."""
    shown: set[int] = set()
    for region in subject.regions:
        start, end = region.new_start, region.new_end
        start = _walk(subject.after, start, -1, context)
        end = _walk(subject.after, end, 1, context)
        shown.update(range(start, end))
    return shown


def one_placement(file: Sequence[str], segments: Sequence[Sequence[Run]]) -> bool:
    """Whether the segments, in this order, can be laid on the file in exactly one way.

    A segment is placed by its runs of kept lines: each run must occur as such (white space at the
    ends of lines and blank lines do not count), one after the other. Two ways differ when a
    segment's first or last kept line falls on another line of the file.
    """
    if not all(segments):
        return False
    words = tuple(line.strip() for line in file if line.strip())
    return _num_ways(words, tuple(tuple(segment) for segment in segments)) == 1


def occurrences(words: Sequence[str], run: Run) -> list[int]:
    """Places where the run stands."""
    first = run[0]
    return [at for at, word in enumerate(words) if word == first and tuple(words[at : at + len(run)]) == run]


def placed_once(file: Sequence[str], lines: Sequence[str], any_line: int | None = None) -> bool:
    """Whether these lines stand at exactly one place; the line at `any_line` may read otherwise in the file."""
    pattern = [
        None if at == any_line else line.strip() for at, line in enumerate(lines) if line.strip() or at == any_line
    ]
    if sum(word is not None for word in pattern) < (1 if any_line is None else 2):
        return False
    words = [line.strip() for line in file if line.strip()]
    fits = [
        all(want in (None, word) for want, word in zip(pattern, words[at:], strict=False))
        for at in range(len(words) - len(pattern) + 1)
    ]
    return sum(fits) == 1


def drops_silently(subject: Subject, *, named: Collection[int] = ()) -> bool:
    """Whether the edit removes so much that showing nothing in its place could as well be a slip.

    A function or class goes without any new line, or more than 6 lines do; or over 10 lines more go
    than are new. `named` are the new starts of regions whose removal the sketch speaks of.
    """
    for region in subject.regions:
        if region.new_start in named:
            continue
        old = num_full(subject.old(region))
        new = num_full(subject.after[region.new_start : region.new_end])
        if old - new > (10 if new else 6) or (not new and _defines(subject.old(region))):
            return True
    return False


def _defines(lines: Sequence[str]) -> bool:
    return any(re.match(r"\s*(async def|def|class) \w+", line) for line in lines)


def _num_ways(words: tuple[str, ...], segments: tuple[tuple[Run, ...], ...]) -> int:
    """How many ways there are, counted up to 2."""

    @cache
    def places(run: Run) -> tuple[int, ...]:
        return tuple(occurrences(words, run))

    def ends(segment: tuple[Run, ...], start: int) -> list[int]:
        at = start + len(segment[0])
        for run in segment[1:-1]:
            at = next((place + len(run) for place in places(run) if place >= at), len(words) + 1)
        if len(segment) == 1:
            return [at]
        return [place + len(segment[-1]) for place in places(segment[-1]) if place >= at]

    @cache
    def ways(index: int, at: int) -> int:
        if index == len(segments):
            return 1
        total = 0
        for start in places(segments[index][0]):
            for end in ends(segments[index], start) if start >= at else []:
                total += ways(index + 1, end)
                if total > 1:
                    return 2
        return total

    return ways(0, 0)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.removesuffix("\n").split("\n"))


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _hardly_apart(between: Sequence[str]) -> bool:
    return len(between) <= 1 or not any(re.search(r"\w", line) for line in between)


def _joined(first: Region, second: Region) -> Region:
    return Region(old_start=first.old_start, old_end=second.old_end, new_start=first.new_start, new_end=second.new_end)


def _kept(regions: Sequence[Region], num_new: int) -> dict[int, int]:
    kept, new, shift = {}, 0, 0
    for region in regions:
        kept.update({line: line + shift for line in range(new, region.new_start)})
        new, shift = region.new_end, region.old_end - region.new_end
    kept.update({line: line + shift for line in range(new, num_new)})
    return kept


def num_full(lines: Sequence[str]) -> int:
    return sum(bool(line.strip()) for line in lines)


def _trimmed(lines: Sequence[str], start: int, end: int) -> Piece | None:
    while start < end and not lines[start].strip():
        start += 1
    while start < end and not lines[end - 1].strip():
        end -= 1
    return (start, end) if start < end else None


def _walk(lines: Sequence[str], at: int, step: int, count: int) -> int:
    """From a boundary over `count` non-blank lines."""
    while count > 0 and 0 < (at if step < 0 else at + 1) <= len(lines):
        at += step
        count -= bool(lines[at if step < 0 else at - 1].strip())
    return at


def _functions(tree: ast.Module) -> list[Function]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(_function(node, None))
        if isinstance(node, ast.ClassDef):
            members = [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
            found += [_function(member, node.name) for member in members]
    return found


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str | None) -> Function:
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    assert node.end_lineno is not None
    # A comment between signature and body counts as signature; good enough to show it with the head.
    body_start = max(node.body[0].lineno - 1, node.lineno)
    return Function(name=node.name, class_name=class_name, start=start, body_start=body_start, end=node.end_lineno)


def _class_lines(old: ast.Module, new: ast.Module) -> dict[str, int]:
    names = [[node.name for node in tree.body if isinstance(node, ast.ClassDef)] for tree in (old, new)]
    return {
        node.name: node.lineno - 1
        for node in new.body
        if isinstance(node, ast.ClassDef) and all(side.count(node.name) == 1 for side in names)
    }


def _string_lines(text: str) -> frozenset[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.end[0] > token.start[0] and tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"):
            lines.update(range(token.start[0] - 1, token.end[0] - 1))
    return frozenset(lines)
