"""How a sketch's indentation becomes the file's: as written, shifted, or in other units."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from etude.assistant.apply.file_view import indentation

_BLANK = (" ", "\t")

Reindent = Callable[[str], str]
"""A sketch line (no ending) → the line as the file would indent it."""


def reindent_like(pairs: Sequence[tuple[str, str]], sketch_lines: Sequence[str], file_lines: Sequence[str]) -> Reindent:
    """Learn from (sketch line, file line) pairs of equal text how to indent the lines around them.

    Trusts the sketch as written when its outermost found lines stand where the file has them: lines that
    then differ were moved on purpose, e.g. into a new `if`. Tabs and spaces are changed only where sketch and file
    differ in them.
    """
    convert = _differ_in_tabs(pairs, sketch_lines, file_lines)
    tabs = uses_tabs(file_lines) if convert else uses_tabs(sketch_lines)
    widths = [(indentation(sketch), indentation(line)) for sketch, line in pairs if sketch.strip()]
    if not widths or _as_written(widths):
        return (lambda line: _with_width(line, indentation(line), tabs)) if convert else str.rstrip
    known = {
        width: Counter(file for sketch, file in widths if sketch == width).most_common(1)[0][0] for width, _ in widths
    }
    file_unit, sketch_unit = _unit([file for _, file in widths], file_lines), _sketch_unit(widths)

    def reindent(line: str) -> str:
        width = indentation(line)
        if width in known:
            return _with_width(line, known[width], tabs)
        below = [base for base in known if base < width]
        base = max(below) if below else min(known)
        levels = (width - base) / sketch_unit
        return _with_width(line, max(0, known[base] + round(levels * file_unit)), tabs)

    return reindent


def _differ_in_tabs(pairs: Sequence[tuple[str, str]], sketch_lines: Sequence[str], file_lines: Sequence[str]) -> bool:
    """Whether the sketch indents with spaces where the file has tabs, or the other way round."""
    first = [(sketch[:1], line[:1]) for sketch, line in pairs if sketch[:1] in _BLANK and line[:1] in _BLANK]
    if first:
        return 2 * sum(sketch != line for sketch, line in first) > len(first)
    indented = any(line[:1] in _BLANK for line in file_lines if line.strip())
    return indented and uses_tabs(sketch_lines) != uses_tabs(file_lines)


def uses_tabs(lines: Sequence[str]) -> bool:
    """Whether the file indents with tabs, judged by most of its indented lines."""
    tabbed = sum(line.startswith("\t") for line in lines)
    return tabbed > sum(line.startswith("  ") for line in lines)


def _as_written(widths: Sequence[tuple[int, int]]) -> bool:
    outermost = min(sketch for sketch, _ in widths)
    edge = [(sketch, file) for sketch, file in widths if sketch == outermost]
    return any(sketch == file for sketch, file in edge)


def _sketch_unit(widths: Sequence[tuple[int, int]]) -> int:
    steps = sorted({sketch for sketch, _ in widths})
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    file_steps = sorted({file for _, file in widths})
    if len(gaps) >= 1 and len(file_steps) == len(steps):
        return max(1, min(gaps))
    return 4


def _unit(file_widths: Sequence[int], lines: Sequence[str]) -> int:
    steps = sorted(set(file_widths))
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    if gaps:
        return min(gaps)
    return indentation_unit(lines)


def indentation_unit(lines: Sequence[str]) -> int:
    """Spaces a level in this file; 4 when nothing is indented."""
    widths = [indentation(line) for line in lines if line.strip() and line[0] in " \t"]
    for unit in (8, 4, 2):
        if widths and sum(width % unit == 0 for width in widths) >= 0.9 * len(widths):
            return unit
    return 4


def _with_width(line: str, width: int, tabs: bool) -> str:
    text = line.strip()
    if not text:
        return ""
    if indentation(line) == width and (line[:1] == "\t") == tabs:
        return line.rstrip()
    return ("\t" * (width // 4) + " " * (width % 4) if tabs else " " * width) + text
