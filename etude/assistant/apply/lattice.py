"""Where the rows of a sketch belong in a file: the best path through the lattice of rows × file lines.

A path goes through the rows in order and down the file. Each row is matched with a file line (the same, or
similar), or is new. Between adjacent rows, file lines that are passed over cost something, because the sketch
says that nothing stands there; across an elision they are free. All steps of a row are done for all file lines
at once, so a path costs rows × lines of arithmetic and no Python loop over the file.

`align` finds the best path, and with `forbidden` the best that differs; the distance of the two tells how sure
the first is. Choosing among paths is `merge.py`.

Shapes: N file lines, R rows; arrays with suffix _M have N + 1 entries, one for each place between lines.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from rapidfuzz import fuzz, process

from etude.assistant.apply.file_view import FileView, closes_block, header_name, indentation, worth
from etude.assistant.apply.rows import Op, Row
from etude.errors import SketchUnusable

# Prices, in units of a line's worth (about 1.3 for a usual line). Tuned on the development repositories of the
# Apply benchmark; see dev/LOG.md.
_NEW_LINE = 0.25
"""A shown row that is new."""
_NEW_KNOWN_LINE = 0.5
"""A shown row that is new although the file holds the very line once, somewhere else."""
_NEW_AT_EDGE = 1.5
"""More for a new row next to an elision: what is shown there is usually context."""
_CHANGED_KNOWN_LINE = 0.4
"""Taking a row for the changed form of one line although the file holds the very row elsewhere, several times;
a row that the file holds once is never taken for the changed form of another line."""
_OTHER_INDENTATION = 0.5
"""What a match keeps whose indentation differs otherwise than that of the lines around it."""
_MISSING_CONTEXT = 0.6
"""A context row that is not in the file, by its worth."""
_MISSING_OLD = 1.2
"""A row to drop that is not in the file, by its worth."""
_REPLACED_LINE = 0.05
"""A file line between adjacent shown rows: it is replaced."""
_REPLACED_HEADER = 1.5
"""The same for the first line of a definition: the whole definition would go."""
_PASS_OPEN = 0.3
"""Beginning to pass over file lines between adjacent rows."""
_DRIFT_LINE = 0.15
"""A file line between adjacent context rows of a diff: it is kept, the diff did not know it."""
_LEAST_SIMILAR = 50
"""Percent of similarity below which a row is no changed version of a line."""
_LEAST_SIMILAR_CONTEXT = 75
_OTHER_SCOPE = 0.05
"""What remains of a match of context in a definition that the sketch does not speak of; a shown row has none."""
_EARLIER_SCOPE = 0.5
"""What remains of a match outside a definition that the sketch showed before the last elision: after "..." the
sketch may have left it."""
_AGREEING = 0.8
"""Share of a block's lines that must be shifted alike for the shift to count."""
_RENAMED_BODY = 0.6
"""Share of the lines of the longer of two definitions that they have in common when one is the other renamed, …"""
_MOST_RENAMED = 50
"""So many new names are compared with the old definitions; nobody renames more in one sketch."""
_RENAMED_PART = 0.75
"""… or share of the shorter, at least three lines, when much was added or removed, too."""
_CLOSING_LINE = 0.5
"""The closing line of a definition, matched with that definition's own."""
_OTHER_NAME = -0.3
"""Changing the name of a definition in its header."""

_NEVER = -1e9

MOST_CELLS = 6_000_000
"""Rows × file lines; each costs some 15 bytes for a moment, and six million a few seconds."""


class Kind(StrEnum):
    """What became of a row."""

    SAME = "same"
    """Found, equal but for white space at the ends."""
    CHANGED = "changed"
    """Found in an older form."""
    NEW = "new"
    """Not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    kind: Kind
    at: int
    """The file line, or for a new row the line it comes before."""
    similarity: int = 100
    """Percent, for CHANGED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    score: float
    placements: tuple[Placement, ...]
    """One a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """The match scores of all rows with all file lines, computed once and searched several times."""

    view: FileView
    rows: tuple[Row, ...]
    match_RN: np.ndarray
    similarity_RN: np.ndarray
    """Percent; 100 where equal, 0 where no match is possible."""
    new_R: np.ndarray
    """Price of each row as a new line."""


def build(rows: Sequence[Row], view: FileView) -> Lattice:
    """Compare all rows with all file lines. Raises SketchUnusable when that are too many."""
    if len(rows) * len(view.lines) > MOST_CELLS:
        raise SketchUnusable(
            f"A sketch of {len(rows)} lines and a file of {len(view.lines)} are too long to compare. "
            "Give only the changed parts, with the unchanged ones left out."
        )
    stripped = [row.text.strip() for row in rows]
    similarity_RN = _similarities(rows, stripped, view)
    match_RN = np.full(similarity_RN.shape, _NEVER)
    scopes = row_scopes(rows, view)
    closing = closing_rows(rows, view)
    free_N = _free_lines(rows, view)
    shifts = _shifts(rows, view)
    compatible: dict[Scope, np.ndarray] = {}
    for number, row in enumerate(rows):
        if row.op is Op.ADD:
            continue
        if scopes[number] not in compatible:
            compatible[scopes[number]] = _compatibility(scopes[number], view)
        match_RN[number] = _match_scores(
            row, stripped[number], similarity_RN[number], compatible[scopes[number]], free_N, view
        )
        match_RN[number] = _indented_scores(row, shifts[number], match_RN[number], view)
        if number in closing:
            match_RN[number] = _closing_scores(closing[number], match_RN[number], view)
    for number in _edges(rows):
        match_RN[number] = _keyed_scores(stripped[number], match_RN[number], similarity_RN[number], view)
    prices = np.array([_new_price(row, text, view) for row, text in zip(rows, stripped, strict=True)])
    for number in _edges(rows):
        prices[number] += (
            _NEW_AT_EDGE if compatible[scopes[number]].any() and not _is_new_header(rows[number], view) else 0
        )
    return Lattice(view=view, rows=tuple(rows), match_RN=match_RN, similarity_RN=similarity_RN, new_R=prices)


def align(lattice: Lattice, forbidden: Mapping[int, set[int]] | None = None) -> Alignment:
    """The best path; `forbidden` maps a row to file lines it may not be matched with."""
    num_rows, num_lines = lattice.match_RN.shape
    passing = _passing_prices(lattice.view)
    best_M = np.zeros(num_lines + 1)
    came_from = np.zeros((num_rows, num_lines + 1), dtype=np.int32)
    matched = np.zeros((num_rows, num_lines + 1), dtype=bool)
    for number, row in enumerate(lattice.rows):
        best_M, came_from[number] = _pass_lines(best_M, _price_before(lattice.rows, number, passing))
        match_N = lattice.match_RN[number]
        if forbidden and number in forbidden:
            match_N = match_N.copy()
            match_N[list(forbidden[number])] = _NEVER
        as_new_M = best_M - lattice.new_R[number]
        as_match_M = np.concatenate(([_NEVER], best_M[:-1] + match_N))
        matched[number] = as_match_M >= as_new_M
        best_M = np.where(matched[number], as_match_M, as_new_M)
        if row.op is Op.ADD:
            matched[number] = False
            best_M = as_new_M
    return _trace(lattice, best_M, came_from, matched)


def score_of(lattice: Lattice, placements: Sequence[Placement]) -> float:
    """What `align` would give for a path that was found otherwise."""
    passing = _passing_prices(lattice.view)
    total, position = 0.0, 0
    for number, placement in enumerate(placements):
        price_M = _price_before(lattice.rows, number, passing)
        if price_M is not None and placement.at > position:
            total -= _PASS_OPEN + float(price_M[placement.at] - price_M[position])
        new = placement.kind is Kind.NEW
        total += -lattice.new_R[number] if new else lattice.match_RN[number, placement.at]
        position = placement.at + (not new)
    return float(total)


def _trace(lattice: Lattice, best_M: np.ndarray, came_from: np.ndarray, matched: np.ndarray) -> Alignment:
    at = int(np.argmax(best_M))
    score = float(best_M[at])
    placements: list[Placement] = []
    for number in range(len(lattice.rows) - 1, -1, -1):
        if matched[number, at]:
            at -= 1
            similarity = int(lattice.similarity_RN[number, at])
            kind = Kind.SAME if similarity == 100 else Kind.CHANGED
            placements.append(Placement(kind=kind, at=at, similarity=similarity))
        else:
            placements.append(Placement(kind=Kind.NEW, at=at, similarity=0))
        at = int(came_from[number, at])
    return Alignment(score=score, placements=tuple(reversed(placements)))


# --- passing over file lines ---------------------------------------------------------------------


def _passing_prices(view: FileView) -> dict[str, np.ndarray]:
    """For each way of passing, the summed price of all lines before a place."""
    replaced = np.minimum(view.worth_N, 1.0) * _REPLACED_LINE
    for header in view.header_at:
        if header < len(replaced):
            replaced[header] = _REPLACED_HEADER
    drift = np.minimum(view.worth_N, 1.0) * _DRIFT_LINE
    return {"replace": _summed(replaced), "drift": _summed(drift)}


def _summed(price_N: np.ndarray) -> np.ndarray:
    return np.concatenate(([0.0], np.cumsum(price_N)))


def _price_before(rows: Sequence[Row], number: int, passing: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Price of passing over lines just before a row; None where it is free."""
    if number == 0 or rows[number].gap_before is not None or rows[number].removed_before:
        return None
    return passing["replace" if rows[number].shown and rows[number - 1].shown else "drift"]


def _pass_lines(best_M: np.ndarray, price_M: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Best score at each place after passing any number of lines, and the place each came from."""
    places = np.arange(len(best_M), dtype=np.int32)
    if price_M is None:
        leading = np.maximum.accumulate(best_M)
        return leading, np.maximum.accumulate(np.where(best_M >= leading, places, 0))
    level = best_M + price_M
    leading = np.maximum.accumulate(level)
    origin = np.maximum.accumulate(np.where(level >= leading, places, 0))
    passed = leading - price_M - _PASS_OPEN
    stay = best_M >= passed
    return np.where(stay, best_M, passed), np.where(stay, places, origin)


# --- scores of single matches ---------------------------------------------------------------------


def _similarities(rows: Sequence[Row], stripped: Sequence[str], view: FileView) -> np.ndarray:
    unique = list(dict.fromkeys(view.stripped))
    column = {text: index for index, text in enumerate(unique)}
    wanted = list(dict.fromkeys(text for row, text in zip(rows, stripped, strict=True) if row.op is not Op.ADD))
    if not wanted or not unique:
        return np.zeros((len(rows), len(view.lines)), dtype=np.uint8)
    table = process.cdist(wanted, unique, scorer=fuzz.ratio, score_cutoff=_LEAST_SIMILAR, dtype=np.uint8)
    table = np.minimum(table, 99)  # only equal texts are 100
    for index, text in enumerate(wanted):
        if text in column:
            table[index, column[text]] = 100
    columns_N = np.array([column[text] for text in view.stripped])
    index_of = {text: index for index, text in enumerate(wanted)}
    nothing = np.zeros(len(view.lines), dtype=np.uint8)
    return np.stack([table[index_of[text]][columns_N] if text in index_of else nothing for text in stripped])


def _shifts(rows: Sequence[Row], view: FileView) -> list[int | None]:
    """Per row, by how much the file indents more than the sketch, judged by the block's lines that the file holds once.

    None where they disagree: the sketch is in other units, or moves code.
    """
    line_of = {text: number for number, text in enumerate(view.stripped)}
    by_block: dict[int, Counter[int]] = {}
    for row in rows:
        text = row.text.strip()
        if view.counts.get(text) == 1 and worth(text) > 0.3:
            shift = view.indents_N[line_of[text]] - indentation(row.text)
            by_block.setdefault(row.block, Counter())[int(shift)] += 1
    agreed: dict[int, int] = {}
    for block, counter in by_block.items():
        shift, count = counter.most_common(1)[0]
        if count >= _AGREEING * counter.total():
            agreed[block] = shift
    return [agreed.get(row.block) for row in rows]


def _indented_scores(row: Row, shift: int | None, match_N: np.ndarray, view: FileView) -> np.ndarray:
    if shift is None or not row.text.strip():
        return match_N
    elsewhere = (view.indents_N - indentation(row.text) != shift) & (match_N > 0)
    return np.where(elsewhere, match_N * _OTHER_INDENTATION, match_N)


def _free_lines(rows: Sequence[Row], view: FileView) -> np.ndarray:
    """Per file line, whether it may be the old form of a changed row: not if the sketch shows the very line, too."""
    shown = {row.text.strip() for row in rows if row.op is Op.SHOW}
    return np.array([text not in shown or view.counts[text] > 1 for text in view.stripped], dtype=bool)


def _match_scores(
    row: Row,
    stripped: str,
    similarity_N: np.ndarray,
    compatible_N: np.ndarray,
    free_N: np.ndarray,
    view: FileView,
) -> np.ndarray:
    equal_N = similarity_N == 100
    least = _LEAST_SIMILAR if row.op is Op.SHOW else _LEAST_SIMILAR_CONTEXT
    similar_N = (similarity_N >= least) & ~equal_N & free_N & (worth(stripped) > 0.3) & (view.worth_N > 0.15)
    changed_N = (similarity_N.astype(np.float64) - 50) / 50 * 0.8 * worth(stripped) - 0.05
    if row.op is Op.SHOW and stripped in view.counts:
        changed_N -= _CHANGED_KNOWN_LINE if view.counts[stripped] > 1 else -_NEVER
    score_N = np.where(equal_N, view.worth_N, np.where(similar_N, changed_N, _NEVER))
    if row.optional:
        score_N = np.where(equal_N, view.worth_N * 0.5, _NEVER)
    name = header_name(row.text, view.language)
    for header, definition in view.header_at.items() if row.op is Op.SHOW else ():
        if similarity_N[header] == 100 or not free_N[header]:
            continue
        if name is not None and definition.name == name:
            score_N[header] = 0.9 * worth(stripped) if view.is_only(definition) else min(score_N[header], 0.0)
        elif name is not None and similar_N[header]:
            score_N[header] = _OTHER_NAME
        elif name is None:
            score_N[header] = _NEVER
    least = _EARLIER_SCOPE if row.op is Op.SHOW else _OTHER_SCOPE
    return np.where(compatible_N < least, _NEVER, np.where(score_N > 0, score_N * compatible_N, score_N))


def _keyed_scores(stripped: str, match_N: np.ndarray, similarity_N: np.ndarray, view: FileView) -> np.ndarray:
    """Next to an elision a row is the changed form of a line only if both are about the same thing.

    A new entry resembles the entries before it; without this it would replace the last one.
    """
    candidates = np.flatnonzero((match_N > _NEVER) & (similarity_N < 100))
    key, opening = _key_of(stripped, view.language), _only_opening(stripped, view)
    strangers = [n for n in candidates if not _same_thing(stripped, key, opening, view.stripped[n], view.language)]
    if not strangers:
        return match_N
    keyed = match_N.copy()
    keyed[strangers] = _NEVER
    return keyed


def _same_thing(one: str, key: str | None, opening: str | None, other: str, language: str | None) -> bool:
    """Whether two lines define, assign or import the same, or one is the other with something added."""
    short, long = sorted((one.rstrip(",;:{ "), other.rstrip(",;:{ ")), key=len)
    if len(short) > 3 and (long.startswith(short) or long.endswith(short)):
        return True
    if key is not None and key == _key_of(other, language):
        return True
    return opening is not None and other.startswith(opening)


def _only_opening(line: str, view: FileView) -> str | None:
    """The tag or keyword that a line begins with, if the file has just one line that begins so."""
    opening = _TAG.match(line) or _KEYWORD.match(line)
    if not opening or opening[0].strip() in _COME_IN_NUMBERS:
        return None
    return opening[0] if sum(other.startswith(opening[0]) for other in view.stripped) == 1 else None


def _key_of(line: str, language: str | None) -> str | None:
    """What a line is about: "x" for "x = 1" and "x: int = 2", "from a import" for "from a import b", a docstring."""
    if line.startswith(('"""', "'''")):
        return line[:3]
    found = _IMPORTS.match(line) or _KEYED.match(line)
    return header_name(line, language) or (found["key"].strip() if found else None)


_TAG = re.compile(r"^<\w+")
_KEYWORD = re.compile(r"^[A-Za-z]+ ")
# What begins one of several entries of a kind, even where there is only one so far.
_COME_IN_NUMBERS = frozenset({"elif", "else", "case", "except", "catch", "when", "and", "or", "import", "from", "use"})
_IMPORTS = re.compile(r"^(?P<key>from\s+\S+\s+import\b|use\s+[\w:]+::)")
_KEYED = re.compile(r"^(?P<key>[\w.\"'\[\]$@-]+(?:\s+[\w.]+)?)\s*(?:[:+*/|&-]?=(?!=)|:(?!:))")


def _is_new_header(row: Row, view: FileView) -> bool:
    name = header_name(row.text, view.language)
    return name is not None and all(name != definition.name for definition in view.definitions)


def _edges(rows: Sequence[Row]) -> list[int]:
    """Rows next to a written elision or an end of the sketch, blank rows aside."""
    told = [number for number, row in enumerate(rows) if row.text.strip() and row.op is Op.SHOW]
    edges: set[int] = set(told[:1] + told[-1:])
    for above, below in itertools.pairwise(told):
        between = rows[above + 1 : below + 1]
        if any(row.gap_before is not None and not row.soft_gap for row in between):
            edges |= {above, below}
    return sorted(edges)


def _new_price(row: Row, stripped: str, view: FileView) -> float:
    if row.op is Op.ADD or row.optional:
        return 0.0
    value = worth(stripped)
    if row.op is Op.KEEP:
        return value * _MISSING_CONTEXT
    if row.op is Op.DROP:
        return value * _MISSING_OLD
    if value < 0.3:
        return value / 10
    return _NEW_KNOWN_LINE if view.counts.get(stripped) == 1 else _NEW_LINE


# --- scopes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The definitions that a sketch shows around a row: Scope(names=("Circle", "area"), num_earlier=1)."""

    names: tuple[str, ...] = ()
    """Outermost first; a renamed definition has its old name."""
    num_earlier: int = 0
    """How many of them were opened before the last elision."""


def row_scopes(rows: Sequence[Row], view: FileView) -> list[Scope]:
    """Per row, the definitions that the sketch shows around it."""
    headers = _header_names(rows, view)
    renamed = _renamed(rows, headers, view)
    scopes: list[Scope] = []
    stack: list[tuple[int, str]] = []
    num_earlier = 0
    for number, row in enumerate(rows):
        if number and row.block != rows[number - 1].block:
            stack, num_earlier = [], 0
        if row.gap_before is not None and not row.soft_gap:
            num_earlier = len(stack)
        if row.text.strip() and not row.optional and row.op is not Op.ADD:
            _pop_closed(stack, row)
        num_earlier = min(num_earlier, len(stack))
        scopes.append(Scope(names=tuple(name for _, name in stack), num_earlier=num_earlier))
        if number in headers:
            stack.append((indentation(row.text), renamed.get(headers[number], headers[number])))
    return scopes


def _pop_closed(stack: list[tuple[int, str]], row: Row) -> None:
    width = indentation(row.text)
    closes = closes_block(row.text.strip())
    while stack and (stack[-1][0] > width or (stack[-1][0] == width and not closes)):
        stack.pop()


def closing_rows(rows: Sequence[Row], view: FileView) -> dict[int, tuple[str, ...]]:
    """Rows that close a definition which the sketch opened, with that definition's scope and name."""
    headers = _header_names(rows, view)
    opened: list[int] = []
    found: dict[int, tuple[str, ...]] = {}
    scopes = row_scopes(rows, view)
    for number, row in enumerate(rows):
        if not row.text.strip() or row.op is Op.ADD:
            continue
        width = indentation(row.text)
        while opened and indentation(rows[opened[-1]].text) > width:
            opened.pop()
        top = opened[-1] if opened and indentation(rows[opened[-1]].text) == width else None
        if top is not None and row.text.strip()[0] in ")]":
            continue  # the end of a header's parameters
        if top is not None and rows[top].block == row.block and closes_block(row.text.strip()):
            found[number] = scopes[number].names
        if top is not None:
            opened.pop()
        if number in headers:
            opened.append(number)
    return found


def _closing_scores(scope: tuple[str, ...], match_N: np.ndarray, view: FileView) -> np.ndarray:
    """A row that closes a definition is matched with that definition's last line and no other."""
    ends = {d.end - 1 for d in view.definitions if _in_order(scope, (*d.parents, d.name)) and d.name == scope[-1:][0]}
    allowed = np.full(len(match_N), _NEVER)
    for line in ends & set(range(len(match_N))):
        if view.stripped[line] and match_N[line] > _NEVER:
            allowed[line] = max(match_N[line], _CLOSING_LINE)
    return allowed


def _pop_closed(stack: list[tuple[int, str]], row: Row) -> None:
    width = indentation(row.text)
    closes = closes_block(row.text.strip())
    while stack and (stack[-1][0] > width or (stack[-1][0] == width and not closes)):
        stack.pop()


def _header_names(rows: Sequence[Row], view: FileView) -> dict[int, str]:
    """Rows that open a definition, with its name."""
    known = {view.stripped[line]: definition.name for line, definition in view.header_at.items()}
    names: dict[int, str] = {}
    for number, row in enumerate(rows):
        name = known.get(row.text.strip()) or header_name(row.text, view.language)
        if name and not row.optional and row.op is not Op.ADD:
            names[number] = name
    return names


def _renamed(rows: Sequence[Row], headers: Mapping[int, str], view: FileView) -> dict[str, str]:
    """New name → old name, where a definition's lines are mostly those of one that the sketch does not show."""
    known = {definition.name for definition in view.definitions}
    shown = set(headers.values())
    unknown = {number: name for number, name in headers.items() if name not in known}
    bodies = {d.name: _told(view.stripped[d.header + 1 : d.end]) for d in view.definitions if d.name not in shown}
    found: dict[str, str] = {}
    for number, name in list(unknown.items())[:_MOST_RENAMED]:
        body = _body_texts(rows, number)
        old = [old for old, lines in bodies.items() if _mostly_same(body, lines)]
        if old:
            found[name] = old[-1]
    return found


def _told(stripped: Sequence[str]) -> set[str]:
    return {text for text in stripped if worth(text) > 0.3}


def _mostly_same(body: set[str], lines: set[str]) -> bool:
    shared, sizes = len(body & lines), (len(body), len(lines))
    if shared >= 2 and shared >= _RENAMED_BODY * max(sizes):
        return True
    return shared >= 3 and shared >= _RENAMED_PART * min(sizes)


def _body_texts(rows: Sequence[Row], header: int) -> set[str]:
    width = indentation(rows[header].text)
    texts: set[str] = set()
    for row in rows[header + 1 :]:
        closes = closes_block(row.text.strip())
        if row.text.strip() and indentation(row.text) <= width and not closes:
            break
        if worth(row.text.strip()) > 0.3:
            texts.add(row.text.strip())
    return texts


def _compatibility(scope: Scope, view: FileView) -> np.ndarray:
    """Per file line, what a match is worth for a row in this scope; 0 in a definition that the file does not have."""
    names = {definition.name for definition in view.definitions}
    near = scope.names[scope.num_earlier :]
    if not all(name in names for name in near):
        return np.zeros(len(view.lines))
    known = tuple(name for name in scope.names if name in names)
    fits: dict[tuple[str, ...], float] = {}
    for around in set(view.scopes):
        elsewhere = _EARLIER_SCOPE if _in_order(near, around) else _OTHER_SCOPE
        fits[around] = 1.0 if _in_order(known, around) else elsewhere
    return np.array([fits[around] for around in view.scopes])


def _in_order(names: Sequence[str], around: Sequence[str]) -> bool:
    remaining = iter(around)
    return all(name in remaining for name in names)
