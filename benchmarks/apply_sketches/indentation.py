"""The same code at another indentation."""

import random
from collections.abc import Callable
from dataclasses import replace

from benchmarks.apply_sketches.elided import one_part, usual_elision, whole_functions
from benchmarks.apply_sketches.regions import Subject
from benchmarks.apply_sketches.styles import Sketch, Style, dressed, indent_of


def wrong_indentation(subject: Subject, rng: random.Random) -> Sketch | None:
    sketch = whole_functions(subject, rng, usual_elision, elide_inside=rng.random() < 0.5, bare=rng.random() < 0.8)
    if sketch is None:
        sketch = one_part(subject, rng)
    if sketch is None:
        return None
    ways = list(_INDENTATIONS.items())
    rng.shuffle(ways)
    for name, change in ways:
        text = change(sketch.text)
        if text is not None and text != sketch.text:
            how = f"{sketch.how}; {name}"
            return dressed(rng, replace(sketch, style=Style.WRONG_INDENTATION, text=text, how=how))
    return None


def _dedented(text: str) -> str | None:
    return _shifted(text, -min((len(indent_of(line)) for line in text.split("\n") if line.strip()), default=0))


def _shifted(text: str, by: int) -> str | None:
    lines = text.split("\n")
    if any("\t" in indent_of(line) or len(indent_of(line)) + by < 0 for line in lines if line.strip()):
        return None
    return "\n".join(" " * (len(indent_of(line)) + by) + line.lstrip(" ") if line.strip() else line for line in lines)


def _with_tabs(text: str) -> str | None:
    def tabbed(line: str) -> str:
        width = len(indent_of(line))
        return "\t" * (width // 4) + " " * (width % 4) + line[width:]

    if any("\t" in indent_of(line) for line in text.split("\n")):
        return None
    return "\n".join(tabbed(line) for line in text.split("\n"))


def _first_line_bare(text: str) -> str | None:
    first, _, rest = text.partition("\n")
    return first.lstrip() + "\n" + rest


_INDENTATIONS: dict[str, Callable[[str], str | None]] = {
    "dedented": _dedented,
    "shifted by 4": lambda text: _shifted(text, 4),
    "shifted by 2": lambda text: _shifted(text, 2),
    "shifted by -4": lambda text: _shifted(text, -4),
    "tabs": _with_tabs,
    "first line bare": _first_line_bare,
}
