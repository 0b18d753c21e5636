"""From a sketch's rows to the merges of file and sketch that are possible, best first.

    rows → lattice.align → placing (may it be believed?) → settling (what else goes?) → writing → Merge

A Merge never holds text of its own: every line is the file's or the sketch's, indented like the file.
What cannot be settled by structure is left as a Doubt with the alternatives; `choose.py` asks the model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from etude.assistant.apply import lattice as lattices
from etude.assistant.apply.blocks import is_prose
from etude.assistant.apply.elisions import is_elision
from etude.assistant.apply.file_view import FileView, header_name, indentation
from etude.assistant.apply.lattice import Alignment, Kind, Lattice
from etude.assistant.apply.placing import (
    context_twice,
    cut_off,
    decorated_again,
    fits_as_well,
    missing_lines,
    place_strays,
    says_nothing,
)
from etude.assistant.apply.request import AbstainReason, Abstention
from etude.assistant.apply.rows import Op, Row, Rows
from etude.assistant.apply.segments import Segment, segments_of, spells_whole_file
from etude.assistant.apply.settling import Merge, settle
from etude.workspace.syntax import Definition

# Reading gaps between listed definitions must explain this much more, in lines' worth.
_EXPLAINS_MORE_BY = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Merges that structure alone cannot tell apart; the first is the one structure likes best."""

    merges: tuple[Merge, ...]
    reason: AbstainReason
    sketch_line: int
    file_lines: tuple[int, ...]
    """Where each merge puts the part in doubt."""


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
        prose = is_prose(self.table.view.path)
        lost = [n for n, at in enumerate(self.alignment.placements) if at.kind is not Kind.SAME]
        shown = [n for n in lost if self.table.rows[n].op is Op.SHOW]
        return {n for n in shown if is_elision(self.table.rows[n].text, prose=prose)}

    def outcome(self) -> Merge | Doubt | Abstention:
        table, segments = self.table, segments_of(self.table.rows)
        alignment = place_strays(table, segments, self.alignment)
        refused = (
            missing_lines(table, segments, alignment)
            or cut_off(table, alignment, self.rows)
            or says_nothing(table, segments, alignment)
            or decorated_again(table, segments, alignment)
        )
        if refused:
            return refused
        best = context_twice(table, segments, alignment) or settle(table, segments, alignment, self.rows)
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


def _doubt(table: Lattice, segments: Sequence[Segment], alignment: Alignment, rows: Rows, best: Merge) -> Doubt | None:
    """Another placing of a segment that fits as well and gives another text."""
    for segment in segments:
        numbers = range(segment.start, segment.end)
        found = {n: {alignment.placements[n].at} for n in numbers if alignment.placements[n].kind is not Kind.NEW}
        if not found:
            continue
        other = lattices.align(table, found)
        if not fits_as_well(table, segment, alignment, other):
            continue
        merge = settle(table, segments, other, rows)
        if isinstance(merge, Merge) and merge.text != best.text:
            places = (_first_found(alignment, numbers), _first_found(other, numbers))
            return Doubt(
                merges=(best, merge),
                reason=AbstainReason.AMBIGUOUS,
                sketch_line=table.rows[segment.start].line,
                file_lines=places,
            )
    return None


def _first_found(alignment: Alignment, numbers: Iterable[int]) -> int:
    return next((alignment.placements[n].at for n in numbers if alignment.placements[n].kind is not Kind.NEW), 0)
