"""Which sketches the Apply benchmark runs: a fixed choice for a data file, a limit and a seed."""

import ast
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from benchmarks.apply_sketches.makers import POSITIVE
from benchmarks.apply_sketches.refusals import REFUSED, other_file
from benchmarks.apply_sketches.regions import Subject, look_at
from benchmarks.apply_sketches.styles import Sketch, Style
from benchmarks.edit_histories import TrueEdit

# A change beyond this is not what anyone writes as one sketch.
_MOST_CHANGED_LINES = 250
_MOST_REGIONS = 12

_SHARE_OF_REFUSALS = 0.2
_SHARE_OF_VARIANTS = 0.15


class Variant(StrEnum):
    """What a file is made of; the true result likewise. Sketches keep "\\n"."""

    PLAIN = "plain"
    CRLF = "crlf"
    TABS = "tabs"
    """Four spaces of indentation are a tab, in the sketch, too."""
    NO_LAST_NEWLINE = "no last newline"
    BOM = "bom"
    """A byte order mark is the first character, as decoded."""


_UNUSUAL = (Variant.CRLF, Variant.TABS, Variant.NO_LAST_NEWLINE, Variant.BOM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One sketch for one file."""

    name: str
    path: str
    variant: Variant
    before: str
    after: str
    """The true file; for a sketch that should be refused, what its author had in mind."""
    sketch: Sketch


@dataclass(slots=True, kw_only=True)
class Pool:
    """The edits in a random order, looked at when first needed."""

    edits: list[TrueEdit]
    subjects: dict[tuple[str, Variant], Subject | None] = field(default_factory=dict)

    def subject(self, edit: TrueEdit, variant: Variant) -> Subject | None:
        """None when the edit is too large or has no such variant."""
        key = edit.key, variant
        if key not in self.subjects:
            self.subjects[key] = _subject(edit, variant)
        return self.subjects[key]


def choose_cases(edits: Sequence[TrueEdit], *, limit: int, seed: int) -> list[Case]:
    """`limit` cases, fewer where the data has no more; every style gets about the same number."""
    pool = Pool(edits=_mixed(edits, seed))
    num_refused = round(limit * _SHARE_OF_REFUSALS / (len(REFUSED) + 1))
    num_applied = (limit - num_refused * (len(REFUSED) + 1)) // len(POSITIVE)
    cases: list[Case] = []
    for style in Style:
        wanted = num_refused if style.should_abstain else num_applied
        found = _cases(pool, style, seed)
        cases += [case for _, case in zip(range(max(wanted, 1)), found, strict=False)]
    return cases


def _mixed(edits: Sequence[TrueEdit], seed: int) -> list[TrueEdit]:
    """Shuffled, but every pull request once before any comes twice."""
    shuffled = list(edits)
    random.Random(seed).shuffle(shuffled)
    seen: Counter[tuple[str, int]] = Counter()
    ranks = []
    for edit in shuffled:
        ranks.append(seen[edit.repo, edit.pull])
        seen[edit.repo, edit.pull] += 1
    order = sorted(range(len(shuffled)), key=ranks.__getitem__)
    return [shuffled[at] for at in order]


def _cases(pool: Pool, style: Style, seed: int) -> Iterator[Case]:
    for edit in pool.edits:
        rng = random.Random(f"{seed} {style} {edit.key}")
        variant = rng.choice(_UNUSUAL) if rng.random() < _SHARE_OF_VARIANTS else Variant.PLAIN
        subject = pool.subject(edit, variant if variant in (Variant.TABS, Variant.NO_LAST_NEWLINE) else Variant.PLAIN)
        if subject is None:
            continue
        sketch = _sketch(pool, subject, style, rng)
        if sketch:
            yield _case(subject, variant, sketch)


def _sketch(pool: Pool, subject: Subject, style: Style, rng: random.Random) -> Sketch | None:
    if style is not Style.OTHER_FILE:
        return ({**POSITIVE, **REFUSED})[style](subject, rng)
    others = [edit for edit in pool.edits if edit.repo == subject.edit.repo and edit.path != subject.edit.path]
    for edit in rng.sample(others, min(len(others), 4)):
        other = pool.subject(edit, Variant.PLAIN)
        if other and (sketch := other_file(subject, other, rng)):
            return sketch
    return None


def _case(subject: Subject, variant: Variant, sketch: Sketch) -> Case:
    before, after = subject.edit.before, subject.edit.after
    if variant is Variant.CRLF:
        before, after = before.replace("\n", "\r\n"), after.replace("\n", "\r\n")
    if variant is Variant.BOM:
        before, after = "\ufeff" + before, "\ufeff" + after
    return Case(
        name=subject.edit.key, path=subject.edit.path, variant=variant, before=before, after=after, sketch=sketch
    )


def _subject(edit: TrueEdit, variant: Variant) -> Subject | None:
    if variant is Variant.NO_LAST_NEWLINE:
        edit = replace(edit, before=edit.before.rstrip("\n"), after=edit.after.rstrip("\n"))
    if variant is Variant.TABS:
        edit = replace(edit, before=_tabbed(edit.before), after=_tabbed(edit.after))
        if not _parses(edit.before) or not _parses(edit.after):
            return None
    subject = look_at(edit)
    changed = sum(r.old_end - r.old_start + r.new_end - r.new_start for r in subject.regions)
    too_large = changed > _MOST_CHANGED_LINES or len(subject.regions) > _MOST_REGIONS
    return None if too_large or not subject.regions else subject


def _tabbed(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        width = len(line) - len(line.lstrip(" "))
        lines.append("\t" * (width // 4) + " " * (width % 4) + line[width:])
    return "\n".join(lines)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
