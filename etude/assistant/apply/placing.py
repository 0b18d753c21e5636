"""Whether a path through the lattice may be believed: parts out of order, parts without proof, equal places."""

from collections.abc import Sequence

from etude.assistant.apply import lattice as lattices
from etude.assistant.apply.file_view import FileView, worth
from etude.assistant.apply.lattice import Alignment, Kind, Lattice, Placement
from etude.assistant.apply.request import AbstainReason, Abstention
from etude.assistant.apply.rows import Op, Rows
from etude.assistant.apply.segments import Segment, found_lines, found_worth, is_same_header, part_of, span_of

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
# A line of this worth beside an elision is not written a second time by chance.
_LONG_LINE = 1.2
# A part must fit this much better elsewhere, in lines' worth, to be taken out of the sketch's order.
_STRAYS_BY = 1.5


def place_strays(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Alignment:
    """Place segments again on their own that fit much better elsewhere than the sketch's order allows."""
    if len(segments) < 2:
        return alignment
    placements = list(alignment.placements)
    strays = {segment: alone for segment in segments if (alone := _stray(table, segment, placements))}
    # Parts that changed places are each in the other's way, so first all of them are moved at once.
    for moved in (strays, *({segment: alone} for segment, alone in strays.items())):
        staying = [segment for segment in segments if segment not in moved]
        taken = found_lines(table.rows, placements, staying)
        spans = [span_of(alone.placements) for alone in moved.values()]
        if taken & set().union(*spans) or sum(map(len, spans)) != len(set().union(*spans)):
            continue
        for segment, alone in moved.items():
            placements[segment.start : segment.end] = alone.placements
        if moved is strays:
            break
    return Alignment(score=alignment.score, placements=tuple(placements))


def _stray(table: Lattice, segment: Segment, placements: Sequence[Placement]) -> Alignment | None:
    """Where a segment fits much better, with more lines found letter by letter, one of them nowhere else."""
    part = part_of(table, segment)
    alone = lattices.align(part)
    if alone.score - lattices.score_of(part, placements[segment.start : segment.end]) < _STRAYS_BY:
        return None
    proof = found_worth(table, segment, placements)
    if found_worth(table, segment, alone.placements, offset=segment.start) < proof + 1:
        return None
    return alone if any(_tells_place(table.view, at) for at in alone.placements if at.kind is Kind.SAME) else None


def _tells_place(view: FileView, placement: Placement) -> bool:
    """Whether a found line alone tells its place: the file holds it once, and it is long or opens a definition."""
    text = view.stripped[placement.at]
    return view.counts[text] == 1 and (worth(text) >= _LONG_LINE or placement.at in view.header_at)


def missing_lines(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Abstention | None:
    """Parts that no line of the file proves, and lines that the file should have and has not."""
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
    if not changed or found_worth(table, segment, alignment.placements) > 0.3:
        return None
    if any(alignment.placements[n].similarity >= _RESEMBLES for n in changed):
        return None
    if any(is_same_header(table, table.rows[n], alignment.placements[n]) for n in changed):
        return None
    row = table.rows[changed[0]]
    return Abstention(
        reason=AbstainReason.NO_ANCHOR,
        message=f"No line around {row.text.strip()!r} is in the file. Show a line before or after it.",
        sketch_line=row.line,
    )


def cut_off(table: Lattice, alignment: Alignment, rows: Rows) -> Abstention | None:
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


def says_nothing(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Abstention | None:
    """A part that changes nothing and ends in a line that the file has often: its change is at another place."""
    counts = table.view.counts
    for segment in segments if len(segments) > 1 else ():
        told = [n for n in range(segment.start, segment.end) if worth(table.rows[n].text.strip()) > 0.3]
        if len(told) < 3 or any(alignment.placements[n].kind is not Kind.SAME for n in told):
            continue
        if any(table.rows[n].op is not Op.SHOW or alignment.placements[n].at in table.view.header_at for n in told):
            continue
        repeated = [n for n in (told[0], told[-1]) if counts[table.rows[n].text.strip()] > 2]
        if repeated:
            return Abstention(
                reason=AbstainReason.AMBIGUOUS,
                message=f"The part from {table.rows[told[0]].text.strip()!r} on changes nothing where it fits. "
                "Show more of what stands around the change.",
                sketch_line=table.rows[told[0]].line,
                candidates=(alignment.placements[told[0]].at,),
            )
    return None


def decorated_again(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Abstention | None:
    """A new decorator next to an elision, before a definition that has others: it may replace them or join them."""
    for segment in segments:
        number = segment.start
        while number < segment.end and _is_new_decorator(table, alignment, number):
            number += 1
        if number in (segment.start, segment.end) or alignment.placements[number].kind is not Kind.SAME:
            continue
        definition = table.view.header_at.get(alignment.placements[number].at)
        if definition is not None and definition.start < definition.header:
            row = table.rows[segment.start]
            return Abstention(
                reason=AbstainReason.AMBIGUOUS,
                message=f"{row.text.strip()!r} may replace or join the decorators of {definition.name!r}. "
                "Show the line above it.",
                sketch_line=row.line,
                candidates=(definition.start,),
            )
    return None


def _is_new_decorator(table: Lattice, alignment: Alignment, number: int) -> bool:
    row = table.rows[number]
    new = alignment.placements[number].kind is Kind.NEW
    return row.op is Op.SHOW and new and row.text.lstrip().startswith("@")


def context_twice(table: Lattice, segments: Sequence[Segment], alignment: Alignment) -> Abstention | None:
    """A row next to an elision that would be written a second time beside its only place in the file.

    It is context, and so an earlier or later row of the sketch is the new one; which, the sketch does not tell.
    """
    for segment in segments:
        told = [n for n in range(segment.start, segment.end) if worth(table.rows[n].text.strip()) > 0.5]
        span = span_of(alignment.placements[segment.start : segment.end])
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


def fits_as_well(table: Lattice, segment: Segment, best: Alignment, other: Alignment) -> bool:
    """Whether a segment's other place is as well proven: by the lines found letter by letter, or by the whole score."""
    proof = found_worth(table, segment, best.placements)
    proof_elsewhere = found_worth(table, segment, other.placements)
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
    return found_worth(table, whole, alignment.placements) - found_worth(table, segment, alignment.placements)
