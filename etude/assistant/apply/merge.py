"""From a sketch's rows to the merges of file and sketch that are possible, best first.

    rows → with_soft_gaps → lattice.align → placed blocks → closed definitions and floating rows settled → Merge

A Merge never holds text of its own: every line is the file's or the sketch's, indented like the file.
What cannot be settled by structure is left as a Doubt with the alternatives; `choose.py` asks the model.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etude.assistant.apply import lattice as lattices
from etude.assistant.apply.elisions import is_elision
from etude.assistant.apply.file_view import FileView, closes_block, header_name, indentation, worth
from etude.assistant.apply.indent import reindent_like
from etude.assistant.apply.lattice import Alignment, Kind, Lattice, Placement
from etude.assistant.apply.request import AbstainReason, Abstention
from etude.assistant.apply.sketch import Op, Row, Rows
from etude.workspace.syntax import Definition

# Two ways of placing a part whose scores differ by less than this (in lines' worth) fit equally well.
_SURE_BY = 0.45
# Likewise when this much more of it, in lines' worth, is there letter by letter.
_PROVEN_BY = 0.6
# Two places are as well proven when the lines found there letter by letter differ by less than this.
_AS_PROVEN_WITHIN = 0.1
# A part of the sketch with more lines' worth than this that changes nothing is probably meant for another place.
_LONG_CONTEXT = 4.0
# A changed row with no line of the file beside it is placed by resemblance alone from this percentage on.
_RESEMBLES = 85
# So many lines of code are not taken to be deleted because two rows stand side by side in the sketch.
_MANY_LINES = 9
# A line of this worth beside an elision is not written a second time by chance.
_LONG_LINE = 1.2
# Reading gaps between listed definitions must explain this much more, in lines' worth.
_EXPLAINS_MORE_BY = 1.5
# A part must fit this much better elsewhere, in lines' worth, to be taken out of the sketch's order.
_STRAYS_BY = 1.5
# A statement after which a body has nothing more to say.
_FINISHES = re.compile(r"(?:return|raise|throw|yield|break|continue|pass|exit|panic!?)\b|[})\]]|end\b|\.\.\.$")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Merges that structure alone cannot tell apart; the first is the one structure likes best."""

    merges: tuple[Merge, ...]
    reason: AbstainReason
    sketch_line: int
    file_lines: tuple[int, ...]
    """Where each merge puts the part in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Adjacent rows: `rows[start:end]` with no gap inside."""

    start: int
    end: int


def merges(rows: Rows, view: FileView) -> Merge | Doubt | Abstention:
    """The merge, or what stands in its way.

    Models list changed functions one after the other and do not mention those between. So adjacent rows are taken at
    their word first; when that would drop whole definitions that the sketch does not speak of, or explains much less
    of the sketch, it is read with a gap between definitions that are no neighbours in the file.
    """
    adjacent = _Reading.of(rows.rows, rows, view)
    unread = adjacent.elisions()
    if unread:
        return merges(_with_gaps(rows, unread), view)
    apart_rows = with_soft_gaps(rows, view)
    if apart_rows == rows.rows:
        outcome = adjacent.outcome()
        return _lost(outcome, rows, view) or outcome
    apart = _Reading.of(apart_rows, rows, view)
    if apart.alignment.score - adjacent.alignment.score < _EXPLAINS_MORE_BY:
        outcome = adjacent.outcome()
        if not _lost(outcome, rows, view):
            return outcome
    outcome = apart.outcome()
    return _lost(outcome, rows, view) or outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One way of reading a sketch: its rows, with or without soft gaps, and their best path."""

    rows: Rows
    table: Lattice
    alignment: Alignment

    @classmethod
    def of(cls, row_list: Sequence[Row], rows: Rows, view: FileView) -> "_Reading":
        table = lattices.build(row_list, view)
        return cls(rows=rows, table=table, alignment=lattices.align(table))

    def elisions(self) -> set[int]:
        """Rows that look like elisions, were taken for code because the file has such a line, and are not found."""
        numbered = enumerate(zip(self.table.rows, self.alignment.placements, strict=True))
        return {
            n for n, (row, at) in numbered if row.op is Op.SHOW and at.kind is not Kind.SAME and is_elision(row.text)
        }

    def outcome(self) -> Merge | Doubt | Abstention:
        table, segments = self.table, segments_of(self.table.rows)
        alignment = _place_strays(table, segments, self.alignment)
        unplaced = _unplaced(table, segments, alignment) or _cut_off(table, alignment, self.rows)
        if unplaced:
            return unplaced
        best = _context_twice(table, segments, alignment) or _settle(table, segments, alignment, self.rows)
        if isinstance(best, Abstention):
            return best
        return _doubt(table, segments, alignment, self.rows, best) or best


def _with_gaps(rows: Rows, elisions: set[int]) -> Rows:
    """The same sketch with these rows read as gaps."""
    kept: list[Row] = []
    gap: int | None = None
    for number, row in enumerate(rows.rows):
        if number in elisions:
            gap = indentation(row.text)
        elif row.text.strip() or gap is None:
            kept.append(replace(row, gap_before=gap) if gap is not None else row)
            gap = None
    return replace(rows, rows=tuple(kept), gap_after=rows.gap_after if gap is None else gap)


def _lost(outcome: Merge | Doubt | Abstention, rows: Rows, view: FileView) -> Abstention | None:
    """Whole definitions that a merge drops although the sketch does not say so."""
    if isinstance(outcome, Abstention):
        return None
    merge = outcome if isinstance(outcome, Merge) else outcome.merges[0]
    shown = {row.text.strip() for row in rows.rows}
    for line, definition in sorted(view.header_at.items()):
        if line in merge.dropped and line not in merge.told_to_drop and view.stripped[line] not in shown:
            return Abstention(
                reason=AbstainReason.LOST_CODE,
                message=f"{definition.name!r} (line {line + 1}) would be lost; the sketch does not speak of it.",
                candidates=(line,),
            )
    return None


def segments_of(rows: Sequence[Row]) -> list[Segment]:
    starts = [number for number, row in enumerate(rows) if number == 0 or row.gap_before is not None]
    return [Segment(start=start, end=end) for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]


# --- gaps that models leave out --------------------------------------------------------------------


def with_soft_gaps(rows: Rows, view: FileView) -> tuple[Row, ...]:
    """Put a gap before a known definition that follows another one which is not its neighbour in the file.

    Models list changed functions one after the other and do not mention those between. A sketch that spells the
    whole file is taken at its word.
    """
    if spells_whole_file(rows, view):
        return rows.rows
    result = list(rows.rows)
    above: list[Definition] = []
    for number, row in enumerate(result):
        if row.op is not Op.SHOW or not row.text.strip():
            continue
        if row.gap_before is not None:
            above = []
        name = header_name(row.text, view.language)
        here = [definition for definition in view.definitions if definition.name == name]
        if not here:
            continue
        start = _decorators_above(result, number)
        if above and all(_something_between(one, other, view) for one in above for other in here):
            result[start] = replace(result[start], gap_before=indentation(row.text), soft_gap=True)
        above = here
    return tuple(result)


def _something_between(above: Definition, here: Definition, view: FileView) -> bool:
    """Whether whole definitions stand between the end of one and the start of the other, or they are turned round."""
    if here.start < above.end:
        return here.start <= above.start
    return any(above.end <= other.start and other.end <= here.start for other in view.definitions)


def _decorators_above(rows: Sequence[Row], number: int) -> int:
    start = number
    while start > 0 and rows[start].gap_before is None and rows[start - 1].text.lstrip().startswith(("@", "#[")):
        start -= 1
    return start


def spells_whole_file(rows: Rows, view: FileView) -> bool:
    """Whether the sketch has no gap and shows the file from its first to its last lines."""
    shown = [row.text.strip() for row in rows.rows if row.text.strip()]
    if rows.gap_after is not None or any(row.gap_before is not None or row.op is not Op.SHOW for row in rows.rows):
        return False
    told = [line for line in view.stripped if line]
    if not told or not shown:
        return False
    known = Counter(told)
    shared = sum(min(count, known[line]) for line, count in Counter(shown).items())
    near_start = any(line in told[:6] for line in shown[:6] if worth(line) > 0.5)
    return near_start and shared >= 0.5 * len(told)


# --- blocks in another order than the file's --------------------------------------------------------


def _place_strays(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Alignment:
    """Place segments again on their own that fit much better elsewhere than the sketch's order allows."""
    if len(segments) < 2:
        return alignment
    placements = list(alignment.placements)
    strays = {segment: alone for segment in segments if (alone := _stray(table, segment, placements))}
    # Parts that changed places are each in the other's way, so first all of them are moved at once.
    for moved in (strays, *({segment: alone} for segment, alone in strays.items())):
        staying = [segment for segment in segments if segment not in moved]
        taken = _file_lines(table.rows, placements, staying)
        spans = [_span(alone.placements) for alone in moved.values()]
        if taken & set().union(*spans) or sum(map(len, spans)) != len(set().union(*spans)):
            continue
        for segment, alone in moved.items():
            placements[segment.start : segment.end] = alone.placements
        if moved is strays:
            break
    return Alignment(score=alignment.score, placements=tuple(placements))


def _stray(table: Lattice, segment: Segment, placements: Sequence[Placement]) -> Alignment | None:
    """Where a segment fits much better, with more lines found letter by letter, one of them nowhere else."""
    part = _part(table, segment)
    alone = lattices.align(part)
    if alone.score - lattices.score_of(part, placements[segment.start : segment.end]) < _STRAYS_BY:
        return None
    proof = _found_worth(table, segment, placements)
    if _found_worth(table, segment, alone.placements, offset=segment.start) < proof + 1:
        return None
    return alone if any(_tells_place(table.view, at) for at in alone.placements if at.kind is Kind.SAME) else None


def _tells_place(view: FileView, placement: Placement) -> bool:
    """Whether a found line alone tells its place: the file holds it once, and it is long or opens a definition."""
    text = view.stripped[placement.at]
    return view.counts[text] == 1 and (worth(text) >= _LONG_LINE or placement.at in view.header_at)


def _part(table: Lattice, segment: Segment) -> Lattice:
    part = slice(segment.start, segment.end)
    return Lattice(
        view=table.view,
        rows=table.rows[part],
        match_RN=table.match_RN[part],
        similarity_RN=table.similarity_RN[part],
        new_R=table.new_R[part],
    )


def _found_worth(table: Lattice, segment: Segment, placements: Sequence[Placement], offset: int = 0) -> float:
    numbers = range(segment.start, segment.end)
    return sum(worth(table.rows[n].text.strip()) for n in numbers if placements[n - offset].kind is Kind.SAME)


def _file_lines(rows: Sequence[Row], placements: Sequence[Placement], segments: Iterable[Segment]) -> set[int]:
    numbers = [n for segment in segments for n in range(segment.start, segment.end)]
    return {placements[n].at for n in numbers if placements[n].kind is not Kind.NEW and rows[n].text.strip()}


def _span(placements: Sequence[Placement]) -> set[int]:
    found = [placement.at for placement in placements if placement.kind is not Kind.NEW]
    return set(range(min(found), max(found) + 1)) if found else set()


# --- rows that the file should have and has not ------------------------------------------------------


def _unplaced(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Abstention | None:
    for segment in segments:
        unproven = _unproven(table, segment, alignment)
        if unproven:
            return unproven
        for number in range(segment.start, segment.end):
            row, placement = table.rows[number], alignment.placements[number]
            if row.op is Op.DROP and not row.optional and placement.kind is Kind.NEW and worth(row.text.strip()) > 0.3:
                return Abstention(
                    reason=AbstainReason.NO_ANCHOR,
                    message=f"The file has no line like {row.text.strip()!r}, which the sketch wants to replace. "
                    "The file may have changed since the sketch was written.",
                    sketch_line=row.line,
                )
        context = [n for n in range(segment.start, segment.end) if table.rows[n].op in (Op.KEEP, Op.DROP)]
        context = [n for n in context if not table.rows[n].optional]
        found = sum(worth(table.rows[n].text.strip()) for n in context if alignment.placements[n].kind is not Kind.NEW)
        wanted = sum(worth(table.rows[n].text.strip()) for n in context)
        if wanted > 0.3 and found < 0.5 * wanted:
            line = table.rows[context[0]].line
            return Abstention(
                reason=AbstainReason.NO_ANCHOR,
                message="Most of the lines around this change are not in the file.",
                sketch_line=line,
            )
    return None


def _unproven(table: Lattice, segment: Segment, alignment: Alignment) -> Abstention | None:
    """A part that is placed by resemblance alone."""
    numbers = range(segment.start, segment.end)
    changed = [n for n in numbers if alignment.placements[n].kind is Kind.CHANGED and table.rows[n].op is Op.SHOW]
    if not changed or _found_worth(table, segment, alignment.placements) > 0.3:
        return None
    if any(alignment.placements[n].similarity >= _RESEMBLES for n in changed):
        return None
    if any(_same_header(table, table.rows[n], alignment.placements[n]) for n in changed):
        return None
    row = table.rows[changed[0]]
    return Abstention(
        reason=AbstainReason.NO_ANCHOR,
        message=f"No line around {row.text.strip()!r} is in the file. Show a line before or after it.",
        sketch_line=row.line,
    )


def _cut_off(table: Lattice, alignment: Alignment, rows: Rows) -> Abstention | None:
    """A sketch whose last fence is open and whose last line is new: nobody knows how it goes on."""
    last = max((n for n, row in enumerate(table.rows) if row.text.strip()), default=None)
    if not rows.cut_off or last is None or alignment.placements[last].kind is Kind.SAME:
        return None
    if rows.gap_after is not None and table.rows[last].op is Op.SHOW:
        return None  # it ends with an elision
    return Abstention(
        reason=AbstainReason.LOST_CODE,
        message=f"The sketch breaks off after {table.rows[last].text.strip()!r}; its code fence is not closed. "
        "Copy the whole answer.",
        sketch_line=table.rows[last].line,
    )


def _context_twice(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Abstention | None:
    """A row next to an elision that would be written a second time beside its only place in the file.

    It is context, and so an earlier or later row of the sketch is the new one; which, the sketch does not tell.
    """
    for segment in segments:
        told = [n for n in range(segment.start, segment.end) if worth(table.rows[n].text.strip()) > 0.5]
        span = _span(alignment.placements[segment.start : segment.end])
        for number in told[:1] + told[-1:]:
            row, placement = table.rows[number], alignment.placements[number]
            if row.op is not Op.SHOW or placement.kind is not Kind.NEW or table.view.counts.get(row.text.strip()) != 1:
                continue
            line = table.view.stripped.index(row.text.strip())
            if line in span or worth(row.text.strip()) > _LONG_LINE:
                return Abstention(
                    reason=AbstainReason.AMBIGUOUS,
                    message=f"{row.text.strip()!r} stands at line {line + 1} and would be written a second time. "
                    "Show more of what follows it.",
                    sketch_line=row.line,
                    candidates=(line,),
                )
    return None


# --- from placements to a text ------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """A merge in the making."""

    at: list[Placement]
    dropped: set[int]
    told: set[int]


def _settle(table: Lattice, segments: Sequence[Segment], alignment: Alignment, rows: Rows) -> Merge | Abstention:
    draft = _Draft(at=list(alignment.placements), dropped=set(), told=set())
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
    text = _emit(table, segments, draft)
    return Merge(
        text=text,
        placements=tuple(draft.at),
        dropped=frozenset(draft.dropped),
        told_to_drop=frozenset(draft.told),
        score=alignment.score,
    )


def _drop_replaced(table: Lattice, segment: Segment, draft: _Draft) -> Abstention | None:
    """File lines passed over between adjacent shown rows are replaced by them; many for nothing are a reason to ask."""
    position: int | None = None
    silent: Abstention | None = None
    _pull_additions(table, segment, draft)
    headed = False
    for number in range(segment.start, segment.end):
        row, placement = table.rows[number], draft.at[number]
        if position is not None and row.shown and table.rows[number - 1].shown:
            passed = range(position, placement.at)
            if placement.kind is Kind.SAME and not _new_blank_near(table, number, draft):
                passed = _without_last_blanks(table.view, passed)  # blank lines that the sketch leaves out stay
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


def _new_blank_near(table: Lattice, number: int, draft: _Draft) -> bool:
    """Whether the new rows around this one bring blank lines of their own."""
    start = end = number
    while start > 0 and draft.at[start - 1].kind is Kind.NEW:
        start -= 1
    while end < len(table.rows) and draft.at[end].kind is Kind.NEW:
        end += 1
    return any(not table.rows[n].text.strip() for n in range(start, end) if draft.at[n].kind is Kind.NEW)


def _pull_additions(table: Lattice, segment: Segment, draft: _Draft) -> None:
    """A diff's new lines follow the row above them; lines that the diff did not know come after."""
    for number in range(segment.start + 1, segment.end):
        if table.rows[number].op is Op.ADD:
            above = draft.at[number - 1]
            place = above.at + (above.kind is not Kind.NEW)
            draft.at[number] = Placement(kind=Kind.NEW, at=place, similarity=0)


def _silently_dropped(table: Lattice, number: int, passed: range, draft: _Draft) -> Abstention | None:
    """Many lines that would go between two rows which both stay, without a new line or a word in their place."""
    told = [line for line in passed if worth(table.view.stripped[line]) > 0.3]
    if len(told) < _MANY_LINES or table.rows[number].removed_before or not _between_known(table, number, draft):
        return None
    return Abstention(
        reason=AbstainReason.LOST_CODE,
        message=f"{len(told)} lines from line {told[0] + 1} on stand between two lines that the sketch shows side by "
        'side. Say "... existing code ..." if they stay, or "removed" if they go.',
        sketch_line=table.rows[number].line,
        candidates=(told[0],),
    )


def _between_known(table: Lattice, number: int, draft: _Draft) -> bool:
    """Whether the nearest rows above and below a place, blank ones aside, are lines of the file, letter by letter."""
    told = [n for n in range(len(table.rows)) if table.rows[n].text.strip()]
    above = [n for n in told if n < number][-1:]
    below = [n for n in told if n >= number][:1]
    return all(draft.at[n].kind is Kind.SAME for n in (*above, *below))


def _drop_unshown(table: Lattice, draft: _Draft) -> None:
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


def _settle_tail(table: Lattice, header: int, rows: Rows, draft: _Draft) -> Abstention | None:
    """Drop what the file's definition still has after the sketch's ends, when the sketch shows its end."""
    definition = table.view.header_at[draft.at[header].at]
    last = _last_row_of_body(table.rows, header)
    if last == header:
        return None
    placed = draft.at[last]
    after = placed.at + (placed.kind is not Kind.NEW)
    left = [n for n in range(after, min(definition.end, len(table.view.lines))) if n not in draft.dropped]
    told = [n for n in left if worth(table.view.stripped[n]) > 0.3]
    if not told or _ends_open(table, header, last, rows):
        return None
    if any(n in table.view.header_at for n in told):
        return None  # whole definitions are never dropped because a sketch is silent about them
    repeated = table.view.stripped[told[-1]] == table.rows[last].text.strip()
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


def _ends_body(table: Lattice, header: int, last: int, rows: Rows) -> bool:
    """Whether the sketch shows the body without an elision and leaves it at its outermost level in its last row."""
    body = [n for n in range(header + 1, last + 1) if table.rows[n].text.strip()]
    if len(body) < 2 or any(table.rows[n].gap_before is not None for n in body):
        return False
    outermost = min(indentation(table.rows[n].text) for n in body if not closes_block(table.rows[n].text.strip()))
    text = table.rows[last].text
    leaves = re.match(r"(?:return|raise|throw)\b", text.strip()) is not None
    return leaves and indentation(text) == outermost and _gap_after(table.rows, last, rows) is None


def _looks_finished(table: Lattice, header: int, last: int, draft: _Draft) -> bool:
    """Whether a body that is shown without its old end was rewritten to its end, not cut off."""
    if _FINISHES.match(table.rows[last].text.strip()):
        return True
    body = [n for n in range(header + 1, last + 1) if worth(table.rows[n].text.strip()) > 0.3]
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


def _gap_after(rows: Sequence[Row], number: int, all_rows: Rows) -> int | None:
    """Indentation of the elision that the sketch writes after a row."""
    for following in rows[number + 1 :]:
        if following.gap_before is not None or following.text.strip():
            return None if following.soft_gap else following.gap_before
    return all_rows.gap_after


def _ends_open(table: Lattice, header: int, last: int, rows: Rows) -> bool:
    """Whether an elision inside the body follows the last row."""
    gap = _gap_after(table.rows, last, rows)
    return gap is not None and gap > indentation(table.rows[header].text)


# --- rows that stand alone between gaps ----------------------------------------------------------------


def _settle_floating(table: Lattice, segments: Sequence[Segment], rows: Rows, draft: _Draft) -> Abstention | None:
    scopes = lattices.row_scopes(table.rows, table.view)
    for segment in segments:
        numbers = range(segment.start, segment.end)
        if any(draft.at[n].kind is not Kind.NEW and worth(table.rows[n].text.strip()) > 0.1 for n in numbers):
            continue
        if all(table.rows[n].op is not Op.SHOW and table.rows[n].op is not Op.ADD for n in numbers):
            continue
        place = _place_of_floating(table, segment, scopes[segment.start].names, rows, draft)
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


def _place_of_floating(
    table: Lattice, segment: Segment, scope: tuple[str, ...], rows: Rows, draft: _Draft
) -> int | None:
    """Where new rows without a neighbour go: the end of what the sketch shows around them, if that is clear."""
    view = table.view
    if not any(view.stripped):
        return 0
    if _gap_after(table.rows, segment.end - 1, rows) is not None and segment.end < len(table.rows):
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
    return _end_of_code(view, matching[0].header + 1, matching[0].end)


def _end_of_code(view: FileView, start: int, end: int) -> int:
    """The place after the last line of code in start..end, before its closing brace."""
    end = min(end, len(view.lines))
    while end > start and not view.stripped[end - 1]:
        end -= 1
    closing = end > start and view.stripped[end - 1][:1] in "})]" and start > 0
    return end - 1 if closing else end


# --- writing the result ----------------------------------------------------------------------------------


def _emit(table: Lattice, segments: Sequence[Segment], draft: _Draft) -> str:
    view = table.view
    inserted: dict[int, list[str]] = {}
    replaced: dict[int, str] = {}
    whole = _equal_pairs(table, draft.at, range(len(table.rows)))
    for segment in segments:
        numbers = range(segment.start, segment.end)
        reindent = reindent_like(_equal_pairs(table, draft.at, numbers) or whole, view.lines)
        written = _without_edge_blanks(table, draft.at, numbers)
        for number in written:
            row, placement = table.rows[number], draft.at[number]
            if row.op is Op.DROP or (row.op is Op.KEEP and placement.kind is Kind.NEW):
                continue
            line = reindent(row.text)
            if number == written[0] and placement.kind is Kind.NEW and _opens_definition(table, written):
                blanks = _blanks_before(view, placement.at, indentation(line))
                inserted.setdefault(placement.at, []).extend([""] * blanks)
            if placement.kind is Kind.NEW:
                inserted.setdefault(placement.at, []).append(line)
            elif row.op is Op.SHOW and number == numbers[0] and placement.kind is Kind.SAME:
                continue  # the first line of a copied block often lacks its indentation
            elif row.op is Op.SHOW and _differs(line, view.lines[placement.at], placement):
                replaced[placement.at] = line
    return _assemble(view, inserted, replaced, draft.dropped)


def _opens_definition(table: Lattice, numbers: Sequence[int]) -> bool:
    texts = (table.rows[number].text for number in numbers)
    first = next((text for text in texts if not text.lstrip().startswith("@")), "")
    return header_name(first, table.view.language) is not None


def _blanks_before(view: FileView, place: int, width: int) -> int:
    """Blank lines to put before a new definition at this depth, as its siblings have them; 0 when they are there."""
    if place == 0 or not view.stripped[place - 1] or indentation(view.lines[place - 1]) < width:
        return 0
    counts = Counter[int]()
    for definition in view.definitions:
        if definition.start and indentation(view.lines[definition.start]) == width:
            above = definition.start
            while above and not view.stripped[above - 1]:
                above -= 1
            counts[definition.start - above] += 1
    counts.pop(0, None)
    return counts.most_common(1)[0][0] if counts else 1


def _equal_pairs(table: Lattice, placements: Sequence[Placement], numbers: Iterable[int]) -> list[tuple[str, str]]:
    pairs = []
    for n in numbers:
        row, placement = table.rows[n], placements[n]
        if row.optional or worth(row.text.strip()) <= 0.1:
            continue
        if placement.kind is Kind.SAME or _same_header(table, row, placement):
            pairs.append((row.text, table.view.lines[placement.at]))
    return pairs


def _same_header(table: Lattice, row: Row, placement: Placement) -> bool:
    definition = table.view.header_at.get(placement.at) if placement.kind is Kind.CHANGED else None
    return definition is not None and header_name(row.text, table.view.language) == definition.name


def _differs(line: str, file_line: str, placement: Placement) -> bool:
    if placement.kind is Kind.CHANGED:
        return True
    return bool(line.strip()) and indentation(line) != indentation(file_line)


def _without_edge_blanks(table: Lattice, placements: Sequence[Placement], numbers: Sequence[int]) -> list[int]:
    """Rows to write: new blank rows at a segment's ends, next to found rows, are decoration."""
    kept = list(numbers)
    for end in (0, -1):
        while len(kept) > 1 and not table.rows[kept[end]].text.strip() and placements[kept[end]].kind is Kind.NEW:
            kept.pop(end)
    return kept


def _assemble(view: FileView, inserted: Mapping[int, list[str]], replaced: Mapping[int, str], dropped: set[int]) -> str:
    ending = _usual_ending(view.lines)
    pieces: list[str] = []
    for number in range(len(view.lines) + 1):
        pieces += [line + ending for line in inserted.get(number, ())]
        if number == len(view.lines) or number in dropped:
            continue
        line = view.lines[number]
        pieces.append(replaced[number] + _ending(line) if number in replaced else line)
    return _join(pieces, view, ending)


def _join(pieces: list[str], view: FileView, ending: str) -> str:
    """Lines as one text whose last line ends, or does not end, as the file's did."""
    pieces = [
        piece if _ending(piece) or number == len(pieces) - 1 else piece + ending for number, piece in enumerate(pieces)
    ]
    if pieces and view.lines and not _ending(view.lines[-1]):
        pieces[-1] = pieces[-1][: len(pieces[-1]) - len(_ending(pieces[-1]))]
    return "".join(pieces)


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _usual_ending(lines: Sequence[str]) -> str:
    endings = Counter(_ending(line) for line in lines)
    endings.pop("", None)
    return endings.most_common(1)[0][0] if endings else "\n"


# --- doubts -------------------------------------------------------------------------------------------------


def _doubt(table: Lattice, segments: Sequence[Segment], alignment: Alignment, rows: Rows, best: Merge) -> Doubt | None:
    """Another placing of a segment that fits as well and gives another text."""
    for segment in segments:
        numbers = range(segment.start, segment.end)
        found = {n: {alignment.placements[n].at} for n in numbers if alignment.placements[n].kind is not Kind.NEW}
        if not found:
            continue
        other = lattices.align(table, found)
        if not _fits_as_well(table, segment, alignment, other):
            continue
        merge = _settle(table, segments, other, rows)
        if isinstance(merge, Merge) and merge.text != best.text:
            places = (_first_found(alignment, numbers), _first_found(other, numbers))
            return Doubt(
                merges=(best, merge),
                reason=AbstainReason.AMBIGUOUS,
                sketch_line=table.rows[segment.start].line,
                file_lines=places,
            )
    return None


def _fits_as_well(table: Lattice, segment: Segment, best: Alignment, other: Alignment) -> bool:
    """Whether a segment's other place is as well proven: by the lines found letter by letter, or by the whole score."""
    proof = _found_worth(table, segment, best.placements)
    proof_elsewhere = _found_worth(table, segment, other.placements)
    if _found_elsewhere(table, segment, best) - _found_elsewhere(table, segment, other) > _AS_PROVEN_WITHIN:
        return False  # the other place pushes other parts of the sketch from theirs
    numbers = range(segment.start, segment.end)
    unchanged = all(best.placements[n].kind is Kind.SAME for n in numbers if table.rows[n].text.strip())
    if unchanged and proof > _LONG_CONTEXT and proof_elsewhere > 0.6 * proof:
        return True  # it says nothing at the first place
    if proof_elsewhere >= proof - _AS_PROVEN_WITHIN and proof_elsewhere > 0.3:
        return True
    return best.score - other.score < _SURE_BY and proof - proof_elsewhere < _PROVEN_BY


def _found_elsewhere(table: Lattice, segment: Segment, alignment: Alignment) -> float:
    """Worth of what is found of all other segments."""
    whole = Segment(start=0, end=len(table.rows))
    return _found_worth(table, whole, alignment.placements) - _found_worth(table, segment, alignment.placements)


def _first_found(alignment: Alignment, numbers: Iterable[int]) -> int:
    return next((alignment.placements[n].at for n in numbers if alignment.placements[n].kind is not Kind.NEW), 0)
