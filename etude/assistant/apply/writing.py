"""The merged text: every line is the file's or the sketch's, indented and ended like the file."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from etude.assistant.apply.file_view import FileView, header_name, indentation, worth
from etude.assistant.apply.indent import reindent_like
from etude.assistant.apply.lattice import Kind, Lattice, Placement
from etude.assistant.apply.rows import Op
from etude.assistant.apply.segments import Segment, is_same_header


def write(
    table: Lattice, segments: Sequence[Segment], placements: Sequence[Placement], dropped: Collection[int]
) -> str:
    """The file with the rows at their places and without the dropped lines."""
    view = table.view
    inserted: dict[int, list[str]] = {}
    replaced: dict[int, str] = {}
    sketch_lines = [row.text for row in table.rows]
    whole = _equal_pairs(table, placements, range(len(table.rows)))
    for segment in segments:
        numbers = range(segment.start, segment.end)
        reindent = reindent_like(_equal_pairs(table, placements, numbers) or whole, sketch_lines, view.lines)
        written = _without_edge_blanks(table, placements, numbers)
        for number in written:
            row, placement = table.rows[number], placements[number]
            if row.op is Op.DROP or (row.op is Op.KEEP and placement.kind is Kind.NEW):
                continue
            line = reindent(row.text)
            if number == written[0] and placement.kind is Kind.NEW and _opens_definition(table, written):
                blanks = _blanks_before(view, placement.at, indentation(line))
                inserted.setdefault(placement.at, []).extend([""] * blanks)
            if placement.kind is Kind.NEW:
                inserted.setdefault(placement.at, []).append(line)
            elif _lost_its_indentation(table, number) and placement.kind is Kind.SAME:
                continue
            elif row.op is Op.SHOW and _differs(line, view.lines[placement.at], placement):
                replaced[placement.at] = line
    return _assemble(view, inserted, replaced, dropped)


def _lost_its_indentation(table: Lattice, number: int) -> bool:
    """Whether this is the first line of a copied block, which often lacks its indentation, and has none."""
    row = table.rows[number]
    first = number == 0 or table.rows[number - 1].block != row.block
    return row.op is Op.SHOW and first and not row.text[:1].isspace()


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
        if placement.kind is Kind.SAME or is_same_header(table, row, placement):
            pairs.append((row.text, table.view.lines[placement.at]))
    return pairs


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


def _assemble(
    view: FileView, inserted: Mapping[int, list[str]], replaced: Mapping[int, str], dropped: Collection[int]
) -> str:
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
