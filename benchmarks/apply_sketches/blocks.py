"""Diffs and SEARCH/REPLACE blocks."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.apply_sketches.regions import Region, Subject, around, mask_pieces, one_placement, placed_once
from benchmarks.apply_sketches.styles import Sketch, Style, indent_of


def unified_diff(subject: Subject, rng: random.Random) -> Sketch | None:
    hunks = [_hunk(subject, region_group) for region_group in _hunk_groups(subject, rng.randint(1, 3))]
    if sum(len(hunk.lines) for hunk in hunks) > 300:
        return None
    numbers = rng.choice(list(_HUNK_HEADS))
    lines = _diff_head(subject.edit.path, rng)
    strip_blank = rng.random() < 0.5
    for hunk in hunks:
        lines.append(_HUNK_HEADS[numbers](hunk, subject, rng))
        lines += ["" if strip_blank and line == " " else line for line in hunk.lines]
    old = [tuple(line[1:].strip() for line in hunk.lines if line[0] != "+" and line[1:].strip()) for hunk in hunks]
    unique = all(old) and one_placement(subject.before, [[run] for run in old])
    text = "\n".join(lines) + "\n"
    if rng.random() < 0.7:
        text = f"```diff\n{text}```\n"
    return Sketch(style=Style.UNIFIED_DIFF, text=text, unique_anchor=unique, how=f"numbers {numbers}")


def search_replace(subject: Subject, rng: random.Random) -> Sketch | None:
    blocks = _blocks(subject, rng.randint(1, 3))
    if not blocks:
        return None
    unique = all(placed_once(subject.before, old) for old, _ in blocks)
    text = _block_text(subject.edit.path, blocks, rng)
    return Sketch(style=Style.SEARCH_REPLACE, text=text, unique_anchor=unique, how=f"{len(blocks)} blocks")


def search_drift(subject: Subject, rng: random.Random) -> Sketch | None:
    """One block is off in one way; both its sides, as a model that remembers wrongly would copy it."""
    blocks = _blocks(subject, rng.randint(2, 4))
    ways = list(_DRIFTS.items())
    rng.shuffle(ways)
    at = rng.randrange(len(blocks)) if blocks else 0
    for name, drift in ways if blocks else ():
        drifted = drift(*blocks[at], rng)
        if drifted is None:
            continue
        old, new, any_line = drifted
        others = [block for index, block in enumerate(blocks) if index != at]
        unique = placed_once(subject.before, old, any_line) and all(placed_once(subject.before, b) for b, _ in others)
        blocks[at] = (old, new)
        text = _block_text(subject.edit.path, blocks, rng)
        return Sketch(style=Style.SEARCH_DRIFT, text=text, unique_anchor=unique, how=name)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    old_start: int
    num_old: int
    new_start: int
    num_new: int
    lines: tuple[str, ...]
    """With " ", "-" or "+" in front."""


def _hunk_groups(subject: Subject, context: int) -> list[tuple[int, int, list[Region]]]:
    """(first and one past the last old line, regions) of each hunk."""
    groups: list[tuple[int, int, list[Region]]] = []
    for region in subject.regions:
        start, end = max(region.old_start - context, 0), min(region.old_end + context, len(subject.before))
        if groups and start <= groups[-1][1]:
            start, _, regions = groups.pop()
            groups.append((start, end, [*regions, region]))
        else:
            groups.append((start, end, [region]))
    return groups


def _hunk(subject: Subject, group: tuple[int, int, list[Region]]) -> Hunk:
    start, end, regions = group
    lines, at = [], start
    for region in regions:
        lines += [" " + line for line in subject.before[at : region.old_start]]
        lines += ["-" + line for line in subject.old(region)]
        lines += ["+" + line for line in subject.after[region.new_start : region.new_end]]
        at = region.old_end
    lines += [" " + line for line in subject.before[at:end]]
    return Hunk(
        old_start=start,
        num_old=end - start,
        new_start=regions[0].new_start - (regions[0].old_start - start),
        num_new=sum(line[0] != "-" for line in lines),
        lines=tuple(lines),
    )


def _exact(hunk: Hunk, subject: Subject, rng: random.Random) -> str:
    return f"@@ -{hunk.old_start + 1},{hunk.num_old} +{hunk.new_start + 1},{hunk.num_new} @@"


def _shifted(hunk: Hunk, subject: Subject, rng: random.Random) -> str:
    old = max(1, hunk.old_start + 1 + rng.choice([-1, 1]) * rng.randint(1, 60))
    new = max(1, old + rng.randint(-3, 3))
    return f"@@ -{old},{hunk.num_old} +{new},{hunk.num_new} @@"


def _miscounted(hunk: Hunk, subject: Subject, rng: random.Random) -> str:
    old, new = (max(1, number + rng.choice([-3, -2, -1, 1, 2, 3])) for number in (hunk.num_old, hunk.num_new))
    return f"@@ -{hunk.old_start + 1 + rng.randint(-5, 5)},{old} +{hunk.new_start + 1},{new} @@"


def _with_section(hunk: Hunk, subject: Subject, rng: random.Random) -> str:
    inside = [f for f in subject.old_functions if f.start < hunk.old_start < f.end]
    section = subject.before[inside[0].body_start - 1].strip() if inside else ""
    return f"{_shifted(hunk, subject, rng)} {section}".rstrip()


_HUNK_HEADS: dict[str, Callable[[Hunk, Subject, random.Random], str]] = {
    "exact": _exact,
    "shifted": _shifted,
    "miscounted": _miscounted,
    "with section": _with_section,
    "missing": lambda hunk, subject, rng: "@@",
    "dots": lambda hunk, subject, rng: "@@ ... @@",
}


def _diff_head(path: str, rng: random.Random) -> list[str]:
    heads = [
        [f"--- a/{path}", f"+++ b/{path}"],
        [f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}"],
        [f"--- {path}", f"+++ {path}"],
        [],
    ]
    return rng.choice(heads)


Block = tuple[tuple[str, ...], tuple[str, ...]]
"""(SEARCH lines, REPLACE lines)"""


def _blocks(subject: Subject, context: int) -> list[Block]:
    """A block for each part; empty where there is nothing to search for or far too much."""
    blocks = []
    for start, end in mask_pieces(subject, around(subject, context)):
        old_start, old_end = _old_line(subject, start), _old_end(subject, end)
        blocks.append((subject.before[old_start:old_end], subject.after[start:end]))
    searchable = all(any(line.strip() for line in old) for old, _ in blocks)
    return blocks if searchable and sum(len(old) + len(new) for old, new in blocks) <= 300 else []


def _old_line(subject: Subject, start: int) -> int:
    if start in subject.kept:
        return subject.kept[start]
    return next(region.old_start for region in subject.regions if region.new_start == start)


def _old_end(subject: Subject, end: int) -> int:
    if end - 1 in subject.kept:
        return subject.kept[end - 1] + 1
    return next(region.old_end for region in subject.regions if region.new_end == end)


def _block_text(path: str, blocks: Sequence[Block], rng: random.Random) -> str:
    search, middle, replaced = rng.choice(
        [("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE")] * 5 + [("------- SEARCH", "=======", "+++++++ REPLACE")]
    )
    texts = ["\n".join([search, *old, middle, *new, replaced]) + "\n" for old, new in blocks]
    dress = rng.choice(["bare", "one path", "a fence each"])
    if dress == "bare":
        return "\n".join(texts)
    if dress == "one path":
        return f"{path}\n" + "\n".join(texts)
    return "\n".join(f"{path}\n```python\n{text}```\n" for text in texts)


# Drifts: (SEARCH, REPLACE, texts inside strings) → both changed, and the line of SEARCH that now reads otherwise

Drifted = tuple[tuple[str, ...], tuple[str, ...], int | None] | None


def _trailing_space(old: tuple[str, ...], new: tuple[str, ...], rng: random.Random) -> Drifted:
    full = [at for at, line in enumerate(old) if line.strip()]
    chosen = rng.sample(full, min(len(full), 2))
    return tuple(line + " " * (2 * (at in chosen)) for at, line in enumerate(old)), new, None


def _stale_comment(old: tuple[str, ...], new: tuple[str, ...], rng: random.Random) -> Drifted:
    def reword(line: str) -> str | None:
        words = line.split(" ")
        return " ".join(words[:-1]) if re.match(r"\s*# \w+ \w+ \w+", line) and ">>>" not in line else None

    return _reworded(old, new, reword)


def _other_quotes(old: tuple[str, ...], new: tuple[str, ...], rng: random.Random) -> Drifted:
    def requote(line: str) -> str | None:
        for one, other in (("'", '"'), ('"', "'")):
            if (
                line.count(one) == 2
                and other not in line
                and "\\" not in line
                and "#" not in line
                and ">>>" not in line
            ):
                return line.replace(one, other)
        return None

    return _reworded(old, new, requote)


def _reworded(old: tuple[str, ...], new: tuple[str, ...], reword: Callable[[str], str | None]) -> Drifted:
    """The first line that both sides share and that can be reworded; not near strings of several lines."""
    if any('"""' in line or "'''" in line for line in old + new):
        return None
    for at, line in enumerate(old):
        changed = reword(line)
        if changed is not None and old.count(line) == 1 and new.count(line) == 1:
            return _put(old, at, changed), _put(new, new.index(line), changed), at
    return None


def _put(lines: tuple[str, ...], at: int, line: str) -> tuple[str, ...]:
    return (*lines[:at], line, *lines[at + 1 :])


def _dedented(old: tuple[str, ...], new: tuple[str, ...], rng: random.Random) -> Drifted:
    width = min(len(indent_of(line)) for line in old + new if line.strip())
    return (tuple(line[width:] for line in old), tuple(line[width:] for line in new), None) if width else None


def _no_blank_lines(old: tuple[str, ...], new: tuple[str, ...], rng: random.Random) -> Drifted:
    if all(line.strip() for line in old) or any('"""' in line or "'''" in line for line in old + new):
        return None
    return tuple(line for line in old if line.strip()), tuple(line for line in new if line.strip()), None


_DRIFTS: dict[str, Callable[[tuple[str, ...], tuple[str, ...], random.Random], Drifted]] = {
    "trailing space": _trailing_space,
    "stale comment": _stale_comment,
    "other quotes": _other_quotes,
    "dedented": _dedented,
    "no blank lines": _no_blank_lines,
}
