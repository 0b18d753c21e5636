"""Parts of a sketch: adjacent rows, and what was found of them in the file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from etude.assistant.apply.file_view import FileView, header_name, worth
from etude.assistant.apply.lattice import Kind, Lattice, Placement
from etude.assistant.apply.rows import Op, Row, Rows

# Lines of code from an end of the sketch in which an end of the file must stand …
_NEAR = 6
# … and share of the file's lines of code that the sketch must have.
_MOST = 0.7
# Or percent of similarity of their first lines.
_ALIKE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Adjacent rows: `rows[start:end]` with no gap inside."""

    start: int
    end: int


def segments_of(rows: Sequence[Row]) -> list[Segment]:
    """The parts, in the sketch's order."""
    starts = [number for number, row in enumerate(rows) if number == 0 or row.gap_before is not None]
    return [Segment(start=start, end=end) for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]


def part_of(table: Lattice, segment: Segment) -> Lattice:
    """The lattice of one segment alone."""
    part = slice(segment.start, segment.end)
    return Lattice(
        view=table.view,
        rows=table.rows[part],
        match_RN=table.match_RN[part],
        similarity_RN=table.similarity_RN[part],
        new_R=table.new_R[part],
    )


def found_worth(table: Lattice, segment: Segment, placements: Sequence[Placement], offset: int = 0) -> float:
    """Worth of a segment's rows that are found letter by letter; `placements[n - offset]` is row n's."""
    numbers = range(segment.start, segment.end)
    return sum(worth(table.rows[n].text.strip()) for n in numbers if placements[n - offset].kind is Kind.SAME)


def found_lines(rows: Sequence[Row], placements: Sequence[Placement], segments: Iterable[Segment]) -> set[int]:
    """File lines that rows of these segments are matched with."""
    numbers = [n for segment in segments for n in range(segment.start, segment.end)]
    return {placements[n].at for n in numbers if placements[n].kind is not Kind.NEW and rows[n].text.strip()}


def span_of(placements: Sequence[Placement]) -> set[int]:
    """All file lines from the first matched one to the last."""
    found = [placement.at for placement in placements if placement.kind is not Kind.NEW]
    return set(range(min(found), max(found) + 1)) if found else set()


def is_same_header(table: Lattice, row: Row, placement: Placement) -> bool:
    """Whether a changed row is the header of the definition it is matched with, under the same name."""
    definition = table.view.header_at.get(placement.at) if placement.kind is Kind.CHANGED else None
    return definition is not None and header_name(row.text, table.view.language) == definition.name


def gap_after(rows: Sequence[Row], number: int, all_rows: Rows) -> int | None:
    """Indentation of the elision that the sketch writes after a row."""
    for following in rows[number + 1 :]:
        if following.gap_before is not None or following.text.strip():
            return None if following.soft_gap else following.gap_before
    return all_rows.gap_after


def spells_whole_file(rows: Rows, view: FileView) -> bool:
    """Whether the sketch has no gap and shows the file from its first line of code to its last, and most of it."""
    if rows.gap_after is not None or any(row.gap_before is not None or row.op is not Op.SHOW for row in rows.rows):
        return False
    shown = [row.text.strip() for row in rows.rows if worth(row.text.strip()) > 0.3]
    told = [line for line in view.stripped if worth(line) > 0.3]
    if not told or not shown:
        return False
    known = Counter(told)
    shared = sum(min(count, known[line]) for line, count in Counter(shown).items())
    begins = told[0] in shown[:_NEAR] or fuzz.ratio(told[0], shown[0]) >= _ALIKE
    ends = all(line in shown[-_NEAR:] for line in told[-2:])
    if _ends_with_definition(view):
        ends = _shows_last_definition(rows, view) or _renames_last_definition(rows, view, told, shown)
    return begins and ends and shared >= _MOST * len(told)


def _ends_with_definition(view: FileView) -> bool:
    last = max((definition.end for definition in view.definitions), default=None)
    return last is not None and not any(view.stripped[last:])


def _shows_last_definition(rows: Rows, view: FileView) -> bool:
    """Whether the sketch shows the last definition of the file under its name, whatever became of its body."""
    last = max(view.definitions, key=lambda definition: (definition.start, -definition.end))
    return any(header_name(row.text, view.language) == last.name for row in rows.rows)


def _renames_last_definition(rows: Rows, view: FileView, told: list[str], shown: list[str]) -> bool:
    """Whether the sketch ends with a definition of a new name whose last lines are those of the file's last one."""
    names = [name for row in rows.rows if (name := header_name(row.text, view.language))]
    known = {definition.name for definition in view.definitions}
    return bool(names) and names[-1] not in known and fuzz.ratio("\n".join(told[-3:]), "\n".join(shown[-3:])) >= _ALIKE
