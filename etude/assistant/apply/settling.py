"""What becomes of the file lines around placed rows: replaced, kept, dropped with a word, or a reason to ask."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from etude.assistant.apply import lattice as lattices
from etude.assistant.apply.file_view import FileView, closes_block, header_name, indentation, worth
from etude.assistant.apply.lattice import Alignment, Kind, Lattice, Placement
from etude.assistant.apply.request import AbstainReason, Abstention
from etude.assistant.apply.rows import Op, Row, Rows
from etude.assistant.apply.segments import Segment, gap_after, spells_whole_file
from etude.assistant.apply.writing import write

# So many lines of code are not taken to be deleted because two rows stand side by side in the sketch.
_MANY_LINES = 9
# Entries of data and markup stand in any order, so that one is not shown does not mean that it goes.
_DATA = frozenset({None, "json", "css", "html"})
# A statement after which a body has nothing more to say.
_FINISHES = re.compile(r"(?:return|raise|throw)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """One way to merge."""

    text: str
    placements: tuple[Placement, ...]
    dropped: frozenset[int]
    """File lines that the result does not have."""
    told_to_drop: frozenset[int]
    """Those of them that the sketch itself takes away: lines of a diff, a remark, the rest of a whole file."""
    score: float


@dataclass(slots=True)
class Draft:
    """A merge in the making."""

    at: list[Placement]
    dropped: set[int]
    told: set[int]
    """Those of the dropped lines that the sketch itself takes away."""


def settle(table: Lattice, segments: Sequence[Segment], alignment: Alignment, rows: Rows) -> Merge | Abstention:
    """The merge that placed rows make, or why their surroundings leave it open."""
    draft = Draft(at=list(alignment.placements), dropped=set(), told=set())
    for segment in segments:
        silent = _drop_replaced(table, segment, draft)
        if silent and not spells_whole_file(rows, table.view):
            return silent
    for header in _headers_found(table, draft.at):
        unclear = _settle_tail(table, header, rows, draft)
        if unclear:
            return unclear
    stuck = _settle_floating(table, segments, rows, draft)
    if stuck:
        return stuck
    if spells_whole_file(rows, table.view):
        _drop_unshown(table, draft)
    text = write(table, segments, draft.at, draft.dropped)
    return Merge(
        text=text,
        placements=tuple(draft.at),
        dropped=frozenset(draft.dropped),
        told_to_drop=frozenset(draft.told),
        score=alignment.score,
    )


def _drop_replaced(table: Lattice, segment: Segment, draft: Draft) -> Abstention | None:
    """File lines passed over between adjacent shown rows are replaced by them; many for nothing are a reason to ask."""
    position: int | None = None
    silent: Abstention | None = None
    _pull_additions(table, segment, draft)
    headed = False
    for number in range(segment.start, segment.end):
        row, placement = table.rows[number], draft.at[number]
        if position is not None and row.shown and table.rows[number - 1].shown:
            passed = range(position, placement.at)
            if placement.kind is not Kind.CHANGED and not _new_blank_near(table, number, draft):
                passed = _without_last_blanks(table.view, passed)  # blank lines that the sketch leaves out stay
            if placement.kind is Kind.NEW:
                placement = draft.at[number] = replace(placement, at=max(passed.stop, position))
            draft.dropped.update(passed)
            silent = silent or _silently_dropped(table, number, passed, draft)
            if row.removed_before or (not headed and _between_known(table, number, draft)):
                draft.told.update(passed)
        if row.op is Op.DROP and placement.kind is not Kind.NEW:
            draft.dropped.add(placement.at)
            draft.told.add(placement.at)
        position = placement.at + (placement.kind is not Kind.NEW)
        headed = headed or header_name(row.text, table.view.language) is not None
    return silent


def _without_last_blanks(view: FileView, lines: range) -> range:
    """Lines to drop, but for the blank ones at the end, which set off what follows; not if others do that already."""
    end = lines.stop
    while end > lines.start and not view.stripped[end - 1]:
        end -= 1
    set_off = end > lines.start > 0 and not view.stripped[lines.start - 1]
    return lines if set_off else range(lines.start, end)


def _new_blank_near(table: Lattice, number: int, draft: Draft) -> bool:
    """Whether the new rows around this one bring blank lines of their own."""
    start = end = number
    while start > 0 and draft.at[start - 1].kind is Kind.NEW:
        start -= 1
    while end < len(table.rows) and draft.at[end].kind is Kind.NEW:
        end += 1
    return any(not table.rows[n].text.strip() for n in range(start, end) if draft.at[n].kind is Kind.NEW)


def _pull_additions(table: Lattice, segment: Segment, draft: Draft) -> None:
    """A diff's new lines follow the row above them; lines that the diff did not know come after, but for blank ones."""
    for number in range(segment.start + 1, segment.end):
        if table.rows[number].op is not Op.ADD:
            continue
        above = draft.at[number - 1]
        place = above.at + (above.kind is not Kind.NEW)
        if table.rows[number - 1].op is Op.KEEP:
            while place < draft.at[number].at and not table.view.stripped[place]:
                place += 1
        draft.at[number] = Placement(kind=Kind.NEW, at=place, similarity=0)


def _silently_dropped(table: Lattice, number: int, passed: range, draft: Draft) -> Abstention | None:
    """Many lines that would go between two rows which both stay, without a new line or a word in their place."""
    told = [line for line in passed if worth(table.view.stripped[line]) > 0.3]
    if not told or table.rows[number].removed_before:
        return None
    most = 0 if table.view.language in _DATA else _MANY_LINES - 1
    if not _moved_aside(table, number, draft) and (len(told) <= most or not _between_known(table, number, draft)):
        return None
    return Abstention(
        reason=AbstainReason.LOST_CODE,
        message=f"{len(told)} lines from line {told[0] + 1} on stand between two lines that the sketch shows side by "
        'side. Say "... existing code ..." if they stay, or "removed" if they go.',
        sketch_line=table.rows[number].line,
        candidates=(told[0],),
    )


def _moved_aside(table: Lattice, number: int, draft: Draft) -> bool:
    """Whether the next found row stands deeper or less deep than the file has it, below a found row that does not.

    Then it is more likely a line that the file has by chance than the one that follows there.
    """
    found = [n for n in range(len(table.rows)) if draft.at[n].kind is Kind.SAME and table.rows[n].text.strip()]
    above = [n for n in found if n < number][-1:]
    below = [n for n in found if n >= number][:1]
    if not above or not below or any(table.rows[n].gap_before is not None for n in range(number, below[0] + 1)):
        return False
    return _shift(table, above[0], draft) == 0 != _shift(table, below[0], draft)


def _shift(table: Lattice, number: int, draft: Draft) -> int:
    """By how much the file indents a found row more than the sketch."""
    return int(table.view.indents_N[draft.at[number].at]) - indentation(table.rows[number].text)


def _between_known(table: Lattice, number: int, draft: Draft) -> bool:
    """Whether the nearest rows above and below a place, blank ones aside, are lines of the file, letter by letter."""
    told = [n for n in range(len(table.rows)) if table.rows[n].text.strip()]
    above = [n for n in told if n < number][-1:]
    below = [n for n in told if n >= number][:1]
    return all(draft.at[n].kind is Kind.SAME for n in (*above, *below))


def _drop_unshown(table: Lattice, draft: Draft) -> None:
    """What a sketch of the whole file does not show is gone."""
    shown = {p.at for p in draft.at if p.kind is not Kind.NEW}
    gone = set(range(len(table.view.lines))) - shown
    draft.dropped |= gone
    draft.told |= gone


def _headers_found(table: Lattice, placements: Sequence[Placement]) -> list[int]:
    """Rows that are headers of definitions, found in the file under the same name."""
    found = []
    for number, (row, placement) in enumerate(zip(table.rows, placements, strict=True)):
        definition = table.view.header_at.get(placement.at) if placement.kind is not Kind.NEW else None
        if row.op is not Op.SHOW or definition is None:
            continue
        if placement.kind is Kind.SAME or header_name(row.text, table.view.language) == definition.name:
            found.append(number)
    return found


def _settle_tail(table: Lattice, header: int, rows: Rows, draft: Draft) -> Abstention | None:
    """Drop what the file's definition still has after the sketch's ends, when the sketch shows its end."""
    definition = table.view.header_at[draft.at[header].at]
    last = _last_row_of_body(table.rows, header)
    if last == header:
        return None
    placed = draft.at[last]
    after = placed.at + (placed.kind is not Kind.NEW)
    left = [n for n in range(after, min(definition.end, len(table.view.lines))) if n not in draft.dropped]
    told = [n for n in left if worth(table.view.stripped[n]) > 0.3]
    if {at.at for at in draft.at if at.kind is not Kind.NEW} & set(left):
        return None  # the body goes on, after lines that stand less deep, as in a raw string
    if not told or _ends_open(table, header, last, rows):
        return None
    if any(n in table.view.header_at for n in told):
        return None  # whole definitions are never dropped because a sketch is silent about them
    repeated = _is_last_line(table, header, last, told[-1], draft)
    if placed.kind is Kind.SAME and not repeated and not _ends_body(table, header, last, rows):
        return None  # the last line shown is context
    if placed.kind is Kind.SAME or _looks_finished(table, header, last, draft):
        draft.dropped.update(left)
        return None
    return Abstention(
        reason=AbstainReason.LOST_CODE,
        message=f"The sketch shows how {definition.name!r} begins; {len(told)} lines after line {after} are neither "
        'shown nor elided. Say "... existing code ..." if they stay.',
        sketch_line=table.rows[last].line,
        candidates=(after,),
    )


def _is_last_line(table: Lattice, header: int, last: int, line: int, draft: Draft) -> bool:
    """Whether the last row is, at its depth, also the definition's last line in the file."""
    depth = indentation(table.rows[last].text) - indentation(table.rows[header].text)
    depth_in_file = table.view.indents_N[line] - table.view.indents_N[draft.at[header].at]
    return table.view.stripped[line] == table.rows[last].text.strip() and depth == depth_in_file


def _ends_body(table: Lattice, header: int, last: int, rows: Rows) -> bool:
    """Whether the sketch shows the body without an elision and leaves it at its outermost level in its last row."""
    body = [n for n in range(header + 1, last + 1) if table.rows[n].text.strip()]
    if len(body) < 2 or any(table.rows[n].gap_before is not None for n in body):
        return False
    outermost = min(indentation(table.rows[n].text) for n in body if not closes_block(table.rows[n].text.strip()))
    text = table.rows[last].text
    leaves = re.match(r"(?:return|raise|throw)\b", text.strip()) is not None
    return leaves and indentation(text) == outermost and gap_after(table.rows, last, rows) is None


def _looks_finished(table: Lattice, header: int, last: int, draft: Draft) -> bool:
    """Whether a body that is shown without its old end was rewritten to its end, not cut off."""
    body = [n for n in range(header + 1, last + 1) if worth(table.rows[n].text.strip()) > 0.3]
    text = table.rows[last].text
    if body and indentation(text) > min(indentation(table.rows[n].text) for n in body):
        return False
    if _FINISHES.match(text.strip()) or closes_block(text.strip()):
        return True
    new = [n for n in body if draft.at[n].kind is Kind.NEW]
    return len(new) >= 2 and 2 * len(new) > len(body)


def _last_row_of_body(rows: Sequence[Row], header: int) -> int:
    width, last = indentation(rows[header].text), header
    for number in range(header + 1, len(rows)):
        row = rows[number]
        if row.block != rows[header].block:
            break
        if not row.text.strip():
            continue
        closes = closes_block(row.text.strip()) and indentation(row.text) == width
        if indentation(row.text) <= width and not closes:
            break
        last = number
        if closes and row.text.strip()[0] not in ")]":
            break
    return last


def _ends_open(table: Lattice, header: int, last: int, rows: Rows) -> bool:
    """Whether an elision inside the body follows the last row."""
    gap = gap_after(table.rows, last, rows)
    return gap is not None and gap > indentation(table.rows[header].text)


def _settle_floating(table: Lattice, segments: Sequence[Segment], rows: Rows, draft: Draft) -> Abstention | None:
    scopes = lattices.row_scopes(table.rows, table.view)
    for segment in segments:
        numbers = range(segment.start, segment.end)
        if any(draft.at[n].kind is not Kind.NEW and worth(table.rows[n].text.strip()) > 0.1 for n in numbers):
            continue
        if all(table.rows[n].op is not Op.SHOW and table.rows[n].op is not Op.ADD for n in numbers):
            continue
        floats = _may_float(table, segment)
        place = _place_of_floating(table, segment, scopes[segment.start].names, rows) if floats else None
        if place is None:
            row = table.rows[segment.start]
            return Abstention(
                reason=AbstainReason.NO_ANCHOR,
                message=f"Nothing tells where {row.text.strip()!r} belongs. Show a line before or after it.",
                sketch_line=row.line,
            )
        for n in numbers:
            draft.at[n] = Placement(kind=Kind.NEW, at=place, similarity=0)
    return None


def _may_float(table: Lattice, segment: Segment) -> bool:
    """New definitions may go to the end of what is shown around them; statements may not, whose order matters."""
    view = table.view
    if not any(view.stripped):
        return True
    texts = (table.rows[n].text for n in range(segment.start, segment.end) if table.rows[n].text.strip())
    first = next((text for text in texts if not text.lstrip().startswith(("@", "#", "//", "/*", "*"))), "")
    alone = segment.start > 0 and table.rows[segment.start].block != table.rows[segment.start - 1].block
    return not alone and (header_name(first, view.language) is not None or first.startswith("if __name__"))


def _place_of_floating(table: Lattice, segment: Segment, scope: tuple[str, ...], rows: Rows) -> int | None:
    """Where new rows without a neighbour go: the end of what the sketch shows around them, if that is clear."""
    view = table.view
    if not any(view.stripped):
        return 0
    if gap_after(table.rows, segment.end - 1, rows) is not None and segment.end < len(table.rows):
        return None
    if rows.gap_after is not None and segment.end == len(table.rows):
        return None
    if table.rows[segment.start].gap_before is None:
        return None
    if not scope:
        return _end_of_code(view, 0, len(view.lines))
    matching = [d for d in view.definitions if (*d.parents, d.name)[-len(scope) :] == scope]
    if len(matching) != 1:
        return None
    return _end_of_code(view, matching[0].header + 1, matching[0].end, view.indents_N[matching[0].header])


def _end_of_code(view: FileView, start: int, end: int, width: int | None = None) -> int:
    """The place after the last line of code in start..end, before a closing line that stands at `width`."""
    end = min(end, len(view.lines))
    while end > start and not view.stripped[end - 1]:
        end -= 1
    closing = end > start and closes_block(view.stripped[end - 1]) and view.indents_N[end - 1] == width
    return end - 1 if closing else end
