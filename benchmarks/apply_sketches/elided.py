"""Parts of the new text with elisions between them, and whole functions."""

import random
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from benchmarks.apply_sketches.regions import (
    Function,
    Piece,
    Region,
    Subject,
    around,
    drops_silently,
    mask_pieces,
    one_placement,
)
from benchmarks.apply_sketches.styles import Sketch, Style, dressed, indent_of

Elide = Callable[[Subject, int, int, random.Random], str]
"""(subject, first and one past the last hidden line of the new text) → an elision without indentation."""

ELISION = "# ... existing code ..."
_USUAL_ELISIONS = (ELISION, ELISION, ELISION, ELISION, "# ...", "# ... rest of the code ...")

_IMPORT_WORDS = (
    "# ... keep the imports ...",
    "# (imports unchanged)",
    "# ... existing imports ...",
    "# imports stay as they are",
)
_FUNCTION_WORDS = (
    "# rest of the function unchanged",
    "# (same as before)",
    "...",
    "# ... same as before ...",
    "# [rest of the method stays the same]",
    "# -- snip --",
    "# unchanged",
    "# … unchanged code …",
    "// ... existing code ...",
)
_CLASS_WORDS = (
    "# ... other methods ...",
    "# (other methods remain the same)",
    "# ... rest of the class unchanged ...",
    "...",
    "# other methods as before",
)
_MODULE_WORDS = (
    "# ... rest of the file ...",
    "# rest of the code remains the same",
    "...",
    "# [...]",
    "# … existing code …",
    "// ... existing code ...",
    "# (unchanged code omitted)",
)
_STRING_WORDS = ("[... rest of the docstring unchanged ...]", "# ... existing docstring ...", "...")

_LOOKS_ELIDED = re.compile(
    r"^\W*(\.\.\.|…)|(existing|unchanged|same as before|omitted|rest of|snip|removed)\b.*$", re.I
)


def elided_context(subject: Subject, rng: random.Random) -> Sketch | None:
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 4)) | _scope_heads(subject, rng))
    if len(subject.regions) > 2 or not worth_eliding(subject, pieces):
        return None
    return _elided(subject, rng, pieces, Style.ELIDED_CONTEXT, usual_elision)


def several_hunks(subject: Subject, rng: random.Random) -> Sketch | None:
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 4)) | _scope_heads(subject, rng))
    if len(subject.regions) < 2 or len(pieces) < 2 or not worth_eliding(subject, pieces):
        return None
    return _elided(subject, rng, pieces, Style.SEVERAL_HUNKS, usual_elision)


def import_and_change(subject: Subject, rng: random.Random) -> Sketch | None:
    first, *others = subject.regions
    new = subject.after[first.new_start : first.new_end]
    heads = [function.start for function in subject.new_functions] + list(subject.class_lines.values())
    added = any(re.match(r"(import|from) ", line) for line in new)
    if not others or not added or not heads or first.new_end > min(heads):
        return None
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 3)) | _scope_heads(subject, rng))
    if not worth_eliding(subject, pieces):
        return None
    return _elided(subject, rng, pieces, Style.IMPORT_AND_CHANGE, usual_elision)


def sloppy_words(subject: Subject, rng: random.Random) -> Sketch | None:
    if rng.random() < 0.4 and (sketch := whole_functions(subject, rng, _sloppy_elision, elide_inside=True)):
        return dressed(rng, replace(sketch, style=Style.SLOPPY_WORDS))
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 4)) | _scope_heads(subject, rng))
    if not worth_eliding(subject, pieces):
        return None
    return _elided(subject, rng, pieces, Style.SLOPPY_WORDS, _sloppy_elision)


def deletion(subject: Subject, rng: random.Random) -> Sketch | None:
    """At least one region only removes; shown by absence or by a line that says so."""
    removed = [region for region in subject.regions if region.new_start == region.new_end]
    code = [region for region in removed if any(line.strip() for line in subject.old(region))]
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 4)))
    if not code or not worth_eliding(subject, pieces):
        return None
    marks = {} if rng.random() < 0.4 else {region.new_start: _removal_mark(subject, region, rng) for region in code}
    return _elided(subject, rng, pieces, Style.DELETION, usual_elision, extra=marks)


def partial_function(subject: Subject, rng: random.Random) -> Sketch | None:
    sketch = whole_functions(subject, rng, usual_elision, elide_inside=rng.random() < 0.7)
    return dressed(rng, sketch) if sketch else None


def reordered(subject: Subject, rng: random.Random) -> Sketch | None:
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 4)))
    if len(pieces) < 2 or not worth_eliding(subject, pieces):
        return None
    order = list(range(len(pieces)))
    while order == sorted(order):
        rng.shuffle(order)
    unique = _complete(subject, pieces) and all(
        one_placement(subject.before, [subject.runs(piece)]) for piece in pieces
    )
    parts = ["\n".join(subject.after[slice(*pieces[at])]) + "\n" for at in order]
    if rng.random() < 0.5:
        fences = [f"```python\n{part}```\n" for part in parts]
        text = "First this part:\n\n" + "\nand also:\n\n".join(fences)
        return Sketch(style=Style.REORDERED, text=text, unique_anchor=unique, how="a fence each")
    text = f"{ELISION}\n\n" + f"\n{ELISION}\n\n".join(parts) + f"\n{ELISION}\n"
    sketch = Sketch(style=Style.REORDERED, text=text, unique_anchor=unique, marks=(ELISION,), how="one block")
    return dressed(rng, sketch)


# Elided parts


def _elided(
    subject: Subject,
    rng: random.Random,
    pieces: Sequence[Piece],
    style: Style,
    elide: Elide,
    *,
    extra: dict[int, str] | None = None,
) -> Sketch:
    ends = rng.random() < 0.7
    lines, marks = render(subject, pieces, elide, rng, first=ends, last=ends, extra=extra or {})
    unique = _complete(subject, pieces, named=extra or ()) and one_placement(
        subject.before, [subject.runs(piece) for piece in pieces]
    )
    how = f"{len(pieces)} parts" + ("" if ends else ", no elision at the ends")
    sketch = Sketch(style=style, text="\n".join(lines) + "\n", unique_anchor=unique, marks=marks, how=how)
    return dressed(rng, sketch)


def render(
    subject: Subject,
    pieces: Sequence[Piece],
    elide: Elide,
    rng: random.Random,
    *,
    first: bool,
    last: bool,
    extra: dict[int, str],
) -> tuple[list[str], tuple[str, ...]]:
    """The lines of a sketch, and those of them that are no code."""
    after, lines, marks, at = subject.after, [], list(extra.values()), 0
    airy = rng.random() < 0.5
    for start, end in [*pieces, (len(after), len(after))]:
        inner = at > 0 and start < len(after)
        wanted = inner or (first if at == 0 else last)
        if wanted and any(line.strip() for line in after[at:start]):
            mark = elide(subject, at, start, rng)
            marks.append(mark)
            indent = _mark_indent(after, at, start, rng)
            blank = [""] if airy or indent == "" else []
            lines += ([*blank] if at else []) + [indent + mark] + (blank if start < len(after) else [])
        lines += _with_marks(subject, start, end, extra)
        at = end
    return lines, tuple(dict.fromkeys(mark.strip() for mark in marks))


def _mark_indent(after: Sequence[str], at: int, start: int, rng: random.Random) -> str:
    """An elision stands where the hidden code stands, or where the next shown line does."""
    hidden = next(line for line in after[at:start] if line.strip())
    if start < len(after) and (at == 0 or rng.random() < 0.4):
        return indent_of(after[start])
    return indent_of(hidden)


def _with_marks(subject: Subject, start: int, end: int, extra: dict[int, str]) -> list[str]:
    lines = []
    for line in range(start, end):
        if line in extra:
            lines.append(extra[line])
        lines.append(subject.after[line])
    return lines


def usual_elision(subject: Subject, start: int, end: int, rng: random.Random) -> str:
    return rng.choice(_USUAL_ELISIONS)


def _sloppy_elision(subject: Subject, start: int, end: int, rng: random.Random) -> str:
    hidden = [line for line in range(start, end) if subject.after[line].strip()]
    if hidden[0] in subject.string_lines and hidden[-1] in subject.string_lines:
        return rng.choice(_STRING_WORDS)
    heads = [function.start for function in subject.new_functions] + list(subject.class_lines.values())
    if any(re.match("import |from ", line) for line in subject.after[start:end]) and end <= min(heads, default=0):
        return rng.choice(_IMPORT_WORDS)
    for function in subject.new_functions:
        if function.start < hidden[0] and hidden[-1] < function.end:
            return rng.choice(_FUNCTION_WORDS)
    if all(subject.after[line].startswith((" ", "\t")) for line in hidden):
        return rng.choice(_CLASS_WORDS)
    return rng.choice(_MODULE_WORDS)


def _scope_heads(subject: Subject, rng: random.Random) -> set[int]:
    """In half of the sketches: the lines `class …:` and `def …` around a change, where unchanged."""
    heads: set[int] = set()
    if rng.random() < 0.5:
        return heads
    for region in subject.regions:
        for function in subject.new_functions:
            if function.start < region.new_start < function.end:
                heads.update(range(function.start, function.body_start))
                heads.update(_class_head(subject, function))
    return {line for line in heads if line in subject.kept}


def _class_head(subject: Subject, function: Function) -> set[int]:
    line = subject.class_lines.get(function.class_name or "")
    return {line} if line is not None and line in subject.kept and subject.after[line].endswith(":") else set()


def _complete(subject: Subject, pieces: Sequence[Piece], *, named: Collection[int] = ()) -> bool:
    """Nothing that is needed is missing, and nothing shown reads like an elision."""
    enclosed = all(any(_encloses(subject, piece, region) for piece in pieces) for region in subject.regions)
    shown = [line for piece in pieces for line in subject.after[slice(*piece)]]
    return enclosed and not drops_silently(subject, named=named) and not looks_elided(shown)


def _encloses(subject: Subject, piece: Piece, region: Region) -> bool:
    head = piece[0] < region.new_start or (region.new_start == 0 and region.old_start == region.old_end)
    at_end = region.new_end == len(subject.after) and region.old_start == region.old_end
    return head and (region.new_end < piece[1] or at_end)


def looks_elided(lines: Sequence[str]) -> bool:
    return any(_LOOKS_ELIDED.search(line.strip()) for line in lines if line.strip()[:1] in "#.…/[(\"'")


def worth_eliding(subject: Subject, pieces: Sequence[Piece]) -> bool:
    shown = sum(end - start for start, end in pieces)
    return bool(pieces) and shown <= 150 and shown < 0.8 * len(subject.after)


def _removal_mark(subject: Subject, region: Region, rng: random.Random) -> str:
    old = [line for line in subject.old(region) if line.strip()]
    first = old[0].strip()
    words = [f"# removed: {first}", "# (old code removed)", f"# deleted {len(old)} line{'s' * (len(old) > 1)} here"]
    if len(old) > 1:
        words[0] = f"# removed: {first} ..."
    return indent_of(old[0]) + rng.choice(words)


def one_part(subject: Subject, rng: random.Random) -> Sketch | None:
    """A single part without elisions."""
    pieces = mask_pieces(subject, around(subject, rng.randint(2, 4)))
    if len(pieces) != 1 or not worth_eliding(subject, pieces):
        return None
    unique = _complete(subject, pieces) and one_placement(subject.before, [subject.runs(pieces[0])])
    text = "\n".join(subject.after[slice(*pieces[0])]) + "\n"
    return Sketch(style=Style.ELIDED_CONTEXT, text=text, unique_anchor=unique, how="1 part")


# Whole functions


def whole_functions(
    subject: Subject, rng: random.Random, elide: Elide, *, elide_inside: bool, bare: bool = False
) -> Sketch | None:
    """Every changed function; None when something outside functions changed too."""
    pairs = _changed_functions(subject)
    if not pairs or len(pairs) > 3 or sum(new.end - new.start for _, new in pairs) > 200:
        return None
    headed = not bare and all(_class_head(subject, new) for _, new in pairs) and rng.random() < 0.6
    inside = [_function_pieces(subject, new, elide_inside) for _, new in pairs]
    heads = {line for _, new in pairs for line in _class_head(subject, new)} if headed else set()
    pieces = sorted([(line, line + 1) for line in heads] + [piece for pieces in inside for piece in pieces])
    lines, marks = render(subject, pieces, elide, rng, first=False, last=headed and rng.random() < 0.5, extra={})
    if bare:
        lines, marks = _bare(subject, inside, elide, rng)
    shown = [line for piece in pieces for line in subject.after[slice(*piece)]]
    unique = (
        all(_named_once(subject, old, headed) for old, _ in pairs)
        and all(_gaps_are_clear(subject, old, held) for (old, _), held in zip(pairs, inside, strict=True))
        and not drops_silently(subject)
        and not looks_elided(shown)
    )
    num_inner = sum(len(held) - 1 for held in inside)
    how = f"{len(pairs)} functions, {num_inner} elisions inside" + (", class line" if headed else "")
    text = "\n".join(lines) + "\n"
    return Sketch(style=Style.PARTIAL_FUNCTION, text=text, unique_anchor=unique, marks=marks, how=how)


def _changed_functions(subject: Subject) -> list[tuple[Function, Function]]:
    pairs: dict[tuple[str | None, str], tuple[Function, Function]] = {}
    for region in subject.regions:
        new = [f for f in subject.new_functions if f.start <= region.new_start and region.new_end <= f.end]
        old = [f for f in subject.old_functions if f.start <= region.old_start and region.old_end <= f.end]
        same = [(one, other) for one in old for other in new if _name(one) == _name(other)]
        if len(same) != 1:
            return []
        pairs[_name(same[0][0])] = same[0]
    return sorted(pairs.values(), key=lambda pair: pair[1].start)


def _name(function: Function) -> tuple[str | None, str]:
    return function.class_name, function.name


def _function_pieces(subject: Subject, function: Function, elide_inside: bool) -> list[Piece]:
    if not elide_inside or function.end - function.start <= 25:
        return [(function.start, function.end)]
    shown = {line for line in around(subject, 3) if function.start <= line < function.end}
    shown.update(range(function.start, _head_end(subject, function)))
    shown.update(range(function.end - 2, function.end))
    pieces = mask_pieces(subject, shown, smallest_gap=8)
    return [pieces[0], *(_from_docstring_end(subject, piece) for piece in pieces[1:])]


def _from_docstring_end(subject: Subject, piece: Piece) -> Piece:
    """A piece that would begin within a docstring begins where that ends, as far as only context goes."""
    start, end = piece
    while start in subject.string_lines and start in subject.kept and start + 1 in subject.kept and start + 1 < end:
        start += 1
    return start, end


def _head_end(subject: Subject, function: Function) -> int:
    """After the signature and a short docstring, or the first line of whatever follows."""
    end = function.body_start
    while end in subject.string_lines:
        end += 1
    return end + 1 if end - function.body_start <= 12 else function.body_start + 1


def _bare(
    subject: Subject, inside: Sequence[Sequence[Piece]], elide: Elide, rng: random.Random
) -> tuple[list[str], tuple[str, ...]]:
    """Functions after each other as if they were the whole file."""
    lines, marks = [], []
    for pieces in inside:
        start, end = pieces[0][0], pieces[-1][1]
        cut = replace(subject, after=subject.after[:end])
        found, more = render(cut, [(start, start), *pieces], elide, rng, first=False, last=False, extra={})
        lines += ([""] if lines else []) + found
        marks += more
    return lines, tuple(dict.fromkeys(marks))


def _named_once(subject: Subject, old: Function, headed: bool) -> bool:
    if headed:
        return sum(_name(function) == _name(old) for function in subject.old_functions) == 1
    definition = re.compile(rf"\s*(async )?def {re.escape(old.name)}\b")
    return sum(bool(definition.match(line)) for line in subject.before) == 1


def _gaps_are_clear(subject: Subject, old: Function, pieces: Sequence[Piece]) -> bool:
    if len(pieces) == 1:
        return True
    return one_placement(subject.before[old.start : old.end], [subject.runs(piece) for piece in pieces])
