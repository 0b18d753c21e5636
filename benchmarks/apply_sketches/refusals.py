"""Sketches that should be refused: nobody could know from file and sketch what the result should be."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.apply_sketches.blocks import search_replace, unified_diff
from benchmarks.apply_sketches.elided import (
    ELISION,
    elided_context,
    partial_function,
    render,
    several_hunks,
    usual_elision,
    whole_functions,
    worth_eliding,
)
from benchmarks.apply_sketches.regions import Region, Subject, around, mask_pieces, num_full
from benchmarks.apply_sketches.styles import Maker, Sketch, Style, dressed, indent_of


def other_file(subject: Subject, other: Subject, rng: random.Random) -> Sketch | None:
    """A good sketch for `other`, where hardly a line of it stands in this file and no name is defined here."""
    maker = rng.choice([elided_context, several_hunks, partial_function, search_replace, unified_diff])
    sketch = maker(other, rng)
    if sketch is None or not sketch.unique_anchor:
        return None
    here = {line.strip() for line in subject.before}
    lines = [line.lstrip("+- ").strip() for line in sketch.text.split("\n")]
    code = [line for line in lines if len(line) > 8 and line not in sketch.marks]
    names = set(re.findall(r"(?:def|class) (\w+)", sketch.text))
    defined = set(re.findall(r"(?:def|class) (\w+)", subject.edit.before))
    if len(code) < 4 or names & defined or sum(line in here for line in code) > 0.2 * len(code):
        return None
    return replace(sketch, style=Style.OTHER_FILE, unique_anchor=False, how=f"for {other.edit.path}; {sketch.how}")


def ambiguous(subject: Subject, rng: random.Random) -> Sketch | None:
    """The old lines of the only region, with one line around, stand letter by letter somewhere else, too."""
    pieces = mask_pieces(subject, around(subject, 1))
    if len(subject.regions) != 1 or len(pieces) != 1:
        return _invented_between_twins(subject, rng)
    region, (start, end) = subject.regions[0], pieces[0]
    if start == region.new_start or end == region.new_end:
        return _invented_between_twins(subject, rng)
    old = subject.before[subject.kept[start] : subject.kept[end - 1] + 1]
    if len(_places(subject.before, old)) < 2:
        return _invented_between_twins(subject, rng)
    return _two_places(old, subject.after[start:end], "a true edit", rng)


def hidden_deletion(subject: Subject, rng: random.Random) -> Sketch | None:
    removed = [region for region in subject.regions if region.new_start == region.new_end]
    removed = [region for region in removed if num_full(subject.old(region)) >= 3]
    if not removed:
        return None
    region = rng.choice(removed)
    start, end = max(region.old_start - 4, 0), min(region.old_end + 4, len(subject.before))
    first = next(line for line in subject.old(region) if line.strip())
    indent = indent_of(first)
    head, tail = subject.before[start : region.old_start], subject.before[region.old_end : end]
    if num_full(head) < 2 or num_full(tail) < 2:
        return None
    code = "\n".join([*head, indent + ELISION, *tail]).strip("\n")
    text = f"I removed the part that starts with `{first.strip()}`:\n\n```python\n{code}\n```\n"
    return Sketch(style=Style.HIDDEN_DELETION, text=text, unique_anchor=False, marks=(ELISION,))


def silent_gap(subject: Subject, rng: random.Random) -> Sketch | None:
    """A long function whose elisions were forgotten."""
    sketch = whole_functions(subject, rng, lambda *_: _FORGOTTEN, elide_inside=True, bare=True)
    if sketch is None or not sketch.unique_anchor:
        return None
    functions = [
        function
        for function in subject.new_functions
        if any(function.start <= region.new_start < function.end for region in subject.regions)
    ]
    if len(functions) != 1 or sketch.text.count(_FORGOTTEN) != 1:
        return None
    shown = {line for line in sketch.text.split("\n") if line.strip()}
    whole = range(functions[0].start, functions[0].end)
    # Prose of a docstring does not count: shortening it would be nothing strange.
    code = [line for line in whole if line not in subject.string_lines and subject.after[line].strip()]
    hidden = sum(subject.after[line] not in shown for line in code)
    if hidden < 15:
        return None
    text = re.sub(rf"\n*[ \t]*{_FORGOTTEN}\n+", "\n", sketch.text)
    sketch = Sketch(style=Style.SILENT_GAP, text=text, unique_anchor=False, how=f"{hidden} lines left out")
    return dressed(rng, sketch)


def wrong_language(subject: Subject, rng: random.Random) -> Sketch | None:
    names = [function.name for function in subject.old_functions] or ["update"]
    parts = [part for part in rng.choice(names).split("_") if part] or ["run"]
    camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
    language, code = rng.choice(_FOREIGN)
    text = code.replace("NAME", camel)
    fenced = rng.random() < 0.5
    text = f"```{language}\n{text}```\n" if fenced else text
    return Sketch(style=Style.WRONG_LANGUAGE, text=text, unique_anchor=False, how=language)


def cut_off(subject: Subject, rng: random.Random) -> Sketch | None:
    """Ends within a changed line, in an open fence."""
    maker = rng.choice([elided_context, several_hunks, partial_function, search_replace, unified_diff])
    sketch = maker(subject, rng)
    if sketch is None or not sketch.unique_anchor:
        return None
    lines = sketch.text.split("\n")
    if not any(line.startswith("```") for line in lines):
        lines = ["```python", *lines]
    region = subject.regions[-1]
    new = {line.strip() for line in subject.after[region.new_start : region.new_end] if len(line.strip()) >= 12}
    new -= {line.strip() for line in subject.before}
    places = [at for at, line in enumerate(lines) if line.lstrip("+ ").strip() in new and not line.startswith("-")]
    if not places:
        return None
    at = rng.choice(places)
    full = lines[at].rstrip()
    code_at = len(full) - len(full.lstrip("+ "))
    cut = code_at + int((len(full) - code_at) * rng.uniform(0.3, 0.7))
    text = "\n".join([*lines[:at], full[:cut]])
    return replace(sketch, style=Style.CUT_OFF, text=text, unique_anchor=False, how=f"{sketch.style}; {sketch.how}")


def already_applied(subject: Subject, rng: random.Random) -> Sketch | None:
    """Shows the file as it is, with elisions; a person would say that there is nothing to do."""
    if len(subject.regions) > 3 or any(region.new_start == region.new_end for region in subject.regions):
        return None
    back = _unchanged(subject)
    pieces = mask_pieces(back, (line for region in subject.regions for line in _old_window(subject, region)))
    if not worth_eliding(back, pieces):
        return None
    lines, marks = render(back, pieces, usual_elision, rng, first=True, last=True, extra={})
    text = "\n".join(lines) + "\n"
    return dressed(rng, Sketch(style=Style.ALREADY_APPLIED, text=text, unique_anchor=False, marks=marks))


def no_anchor(subject: Subject, rng: random.Random) -> Sketch | None:
    added = [subject.after[region.new_start : region.new_end] for region in subject.regions if not subject.old(region)]
    inner = [lines for lines in added if _is_inner_code(lines) and not _is_like_the_file(subject, lines)]
    if not inner:
        return None
    lines = list(rng.choice(inner))
    indent = indent_of(next(line for line in lines if line.strip()))
    text = "\n".join([indent + ELISION, *lines, indent + ELISION]) + "\n"
    return dressed(rng, Sketch(style=Style.NO_ANCHOR, text=text, unique_anchor=False, marks=(ELISION,)))


REFUSED: dict[Style, Maker] = {
    Style.AMBIGUOUS: ambiguous,
    Style.HIDDEN_DELETION: hidden_deletion,
    Style.SILENT_GAP: silent_gap,
    Style.WRONG_LANGUAGE: wrong_language,
    Style.CUT_OFF: cut_off,
    Style.ALREADY_APPLIED: already_applied,
    Style.NO_ANCHOR: no_anchor,
}
"""`other_file` needs a second subject and is not in the table."""


_FORGOTTEN = "@forgotten@"

_FOREIGN = (
    (
        "javascript",
        "// ... existing code ...\n\nexport function NAME(options = {}) {\n  const { limit = 10 } = options;\n"
        "  return this.items.slice(0, limit);\n}\n\n// ... existing code ...\n",
    ),
    (
        "java",
        "public class Main {\n    // ... existing code ...\n\n    public int NAME(int count) {\n"
        "        return Math.max(count, 0);\n    }\n}\n",
    ),
    (
        "rust",
        "// ... existing code ...\n\nfn NAME(count: usize) -> Option<usize> {\n    count.checked_sub(1)\n}\n",
    ),
    ("html", '<!-- ... existing code ... -->\n<section id="NAME">\n  <h2>Results</h2>\n</section>\n'),
    ("css", "/* ... existing styles ... */\n\n.NAME {\n  display: flex;\n  gap: 0.5rem;\n}\n"),
    ("sql", "-- ... existing statements ...\n\nALTER TABLE NAME ADD COLUMN updated_at TIMESTAMP;\n"),
    ("go", "// ... existing code ...\n\nfunc NAME(ctx context.Context, n int) error {\n\treturn nil\n}\n"),
)


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    wanted = tuple(wanted)
    return [at for at in range(len(lines)) if tuple(lines[at : at + len(wanted)]) == wanted]


def _invented_between_twins(subject: Subject, rng: random.Random) -> Sketch | None:
    """Three lines that stand twice, the middle one changed; the edit is made up, no place is the true one."""
    before = subject.before
    seen: dict[tuple[str, ...], list[int]] = {}
    for at in range(len(before) - 2):
        if all(len(line.strip()) > 3 and line.startswith("    ") for line in before[at : at + 3]):
            seen.setdefault(tuple(before[at : at + 3]), []).append(at)
    twins = [lines for lines, places in seen.items() if len(places) > 1 and _takes_a_line(lines)]
    if not twins:
        return None
    old = rng.choice(twins)
    new = (old[0], f'{indent_of(old[1])}log.debug("reached")', old[1], old[2])
    return _two_places(old, new, "a made-up edit", rng)


def _takes_a_line(lines: Sequence[str]) -> bool:
    """Whether a statement could stand between the first and the second line."""
    statement = re.fullmatch(r"\s+[\w.]+(\(.*\)| = .*[\w)])", lines[1]) is not None
    return statement and re.search(r"[\w\])]:?$", lines[0]) is not None


def _two_places(old: Sequence[str], new: Sequence[str], how: str, rng: random.Random) -> Sketch:
    if rng.random() < 0.4:
        text = "\n".join(["<<<<<<< SEARCH", *old, "=======", *new, ">>>>>>> REPLACE"]) + "\n"
        return Sketch(style=Style.AMBIGUOUS, text=text, unique_anchor=False, how=f"{how}, search/replace")
    indent = indent_of(new[0])
    text = "\n".join([indent + ELISION, *new, indent + ELISION]) + "\n"
    sketch = Sketch(style=Style.AMBIGUOUS, text=text, unique_anchor=False, marks=(ELISION,), how=f"{how}, elided")
    return dressed(rng, sketch)


def _unchanged(subject: Subject) -> Subject:
    return replace(subject, after=subject.before, regions=(), kept={line: line for line in range(len(subject.before))})


def _old_window(subject: Subject, region: Region) -> range:
    return range(max(region.old_start - 3, 0), min(region.old_end + 3, len(subject.before)))


def _is_like_the_file(subject: Subject, lines: Sequence[str]) -> bool:
    """Whether a line begins like one of the file: it could be meant to replace that one."""
    beginnings = {_beginning(line) for line in subject.before}
    return any(_beginning(line) in beginnings for line in lines if line.strip())


def _beginning(line: str) -> str:
    """The called or assigned name; of other statements the whole line."""
    found = re.match(r"\s*([\w.]+)\s*(\(|[^=]?=[^=])", line)
    return found[1] if found else line.strip()


def _is_inner_code(lines: Sequence[str]) -> bool:
    """Statements inside a body: they say nothing of where they belong."""
    full = [line for line in lines if line.strip()]
    heads = re.compile(r"\s*(def |class |async |import |from |@|[\"'#.)\]}])|[^:(]*: |.*[^)\w\]]$")
    return 0 < len(full) <= 8 and all(line.startswith("    ") for line in full) and not heads.match(full[0])
