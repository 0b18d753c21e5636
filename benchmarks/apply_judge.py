"""Whether a merged file is the true one.

Right: the same text; or the same code (the syntax trees are equal, docstrings included) with no elision or
removal mark of the sketch left in it. Where the true edit changed no code, the comments must be the same, too.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.apply_sketches.regions import changed_regions
from etude.edits import split_lines


class Outcome(StrEnum):
    """How a sketch ended."""

    RIGHT = "right"
    WRONG = "wrong"
    """Applied, and not the true file."""
    ABSTAINED = "abstained"
    """Nothing was changed."""
    CRASHED = "crashed"
    """An error that is not one of etude's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What `judge` says of one result."""

    outcome: Outcome
    exact: bool = False
    """The same text."""
    comments_lost: int = 0
    """Comments of the true file that the result lacks."""
    untouched_bytes: int = 0
    """See `untouched_bytes_changed`."""
    reason: str = ""


def judge(before: str, after: str, result: str | None, marks: Sequence[str]) -> Judgement:
    """For a sketch that should be applied."""
    if result is None or result == before:
        return Judgement(outcome=Outcome.ABSTAINED)
    if result == after:
        return Judgement(outcome=Outcome.RIGHT, exact=True)
    touched = untouched_bytes_changed(before, after, result)
    reason = _difference(before, after, result, marks)
    if reason:
        return Judgement(outcome=Outcome.WRONG, untouched_bytes=touched, reason=reason)
    lost = (comments(after) - comments(result)).total()
    return Judgement(outcome=Outcome.RIGHT, comments_lost=lost, untouched_bytes=touched)


def judge_refusal(before: str, result: str | None, *, also_fine: str | None = None) -> Judgement:
    """For a sketch that should be refused: a result that says the same as before is as good."""
    if result is None or result == before:
        return Judgement(outcome=Outcome.ABSTAINED)
    fine = [before] if also_fine is None else [before, also_fine]
    if any(same_code(text, result) for text in fine):
        return Judgement(outcome=Outcome.RIGHT)
    return Judgement(outcome=Outcome.WRONG, reason="applied what should be refused")


def same_code(one: str, other: str) -> bool:
    """Whether both parse to the same tree; statements with the same text are not looked into."""
    try:
        trees = [ast.parse(text.removeprefix("\ufeff")) for text in (one, other)]
    except (SyntaxError, ValueError):
        return False
    if len(trees[0].body) != len(trees[1].body):
        return False
    sources = [split_lines(text) for text in (one, other)]
    for pair in zip(trees[0].body, trees[1].body, strict=True):
        texts = [_source(lines, node) for lines, node in zip(sources, pair, strict=True)]
        if texts[0] != texts[1] and ast.dump(pair[0]) != ast.dump(pair[1]):
            return False
    return True


def comments(text: str) -> Counter[str]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text.removeprefix("\ufeff")).readline))
    except (SyntaxError, tokenize.TokenError):
        return Counter()
    return Counter(token.string.rstrip() for token in tokens if token.type == tokenize.COMMENT)


def untouched_bytes_changed(before: str, after: str, result: str) -> int:
    """Bytes of lines that the true edit kept and the result has not, and bytes put between two such lines.

    Lines carry their endings, so a changed line ending counts its whole line. Result and true file
    are compared line by line; where equal lines let a difference be drawn at several places, it is
    drawn where it touches least.
    """
    old, new, got = split_lines(before), split_lines(after), split_lines(result)
    kept = _kept(old, new)
    total = 0
    for region in changed_regions(new, got):
        start, end = region.old_start, region.old_end
        inserted = got[region.new_start : region.new_end]
        if start == end:
            total += min(_inserted_cost(kept, at, inserted) for at in _slides(new, start, inserted))
        else:
            total += sum(
                _num_bytes(new[line]) for line in range(start, end) if line in kept and new[line] not in inserted
            )
    return total


def _kept(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Line of the true file → line of the old file."""
    kept, at, shift = {}, 0, 0
    for region in changed_regions(old, new):
        kept.update({line: line + shift for line in range(at, region.new_start)})
        at, shift = region.new_end, region.old_end - region.new_end
    kept.update({line: line + shift for line in range(at, len(new))})
    return kept


def _slides(lines: Sequence[str], at: int, inserted: Sequence[str]) -> list[int]:
    """Every place where inserting (a rotation of) these lines gives the same text."""
    places, block = [at], list(inserted)
    up = at
    while up > 0 and lines[up - 1] == block[-1]:
        block = [block[-1], *block[:-1]]
        up -= 1
        places.append(up)
    block, down = list(inserted), at
    while down < len(lines) and lines[down] == block[0]:
        block = [*block[1:], block[0]]
        down += 1
        places.append(down)
    return places


def _inserted_cost(kept: dict[int, int], at: int, inserted: Sequence[str]) -> int:
    above, below = kept.get(at - 1), kept.get(at)
    within = above is not None and below is not None and below == above + 1
    return sum(map(_num_bytes, inserted)) if within else 0


def _num_bytes(line: str) -> int:
    return len(line.encode("utf-8", "surrogatepass"))


def _difference(before: str, after: str, result: str, marks: Sequence[str]) -> str:
    left = _marks_left(after, result, marks)
    if left:
        return f"a mark of the sketch is left in the file: {left}"
    if not same_code(after, result):
        return "other code" if _parses(result) else "does not parse"
    if same_code(before, after) and comments(after) != comments(result):
        return "other comments, and the true edit changes only comments"
    return ""


def _marks_left(after: str, result: str, marks: Sequence[str]) -> str:
    for mark in marks:
        counts = [sum(line.strip() == mark for line in split_lines(text)) for text in (after, result)]
        if counts[1] > counts[0]:
            return mark
    return ""


def _parses(text: str) -> bool:
    try:
        ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError):
        return False
    return True


def _source(lines: Sequence[str], node: ast.stmt) -> list[str]:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    return list(lines[start : node.end_lineno])
