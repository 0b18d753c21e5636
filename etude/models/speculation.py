"""Speculative edits: guess the next tokens from a draft text, so that one pass of the model can confirm many.

    original tokens ─┐
                     ├→ Drafter.propose(written) → guess → (the model's pass) → Drafter.learn(guess, agreed)
    written tokens  ─┘

Pure logic over token ids; nothing here knows a runtime. A guess never decides anything: the caller keeps the
tokens that the model itself chooses.

Where to read on: the longest suffix of what was written that also stands in the original (or earlier in the
output), nearest to where we last were. How far to guess: as long as the expected number of confirmed tokens per
millisecond grows, by the runtime's measured cost curve and by how often guesses after matches of that length
came true. Guesses are checked against what the model wrote even in passes that verified none, so a drafter that
has fallen silent notices when the text is copied again.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# Suffixes longer than this say no more about where we are; code repeats in far shorter stretches.
LONGEST_SUFFIX = 32
# Places to read on are found by the last three written tokens: fewer occur everywhere.
ANCHOR_TOKENS = 3
# Of the places with the same three tokens only so many, nearest to where we were, are looked at.
MAX_PLACES = 48
# A guess no longer than this is looked at, whatever the caller would allow.
LONGEST_GUESS = 256
# A guess must promise to be this much faster than none: the promise is an estimate, a pass in vain is a loss.
WORTH_IT = 1.15
# Of guesses whose expected speed is this close, the longest is taken: fewer passes, and estimates are rough.
NEAR_BEST = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCurve:
    """Milliseconds that a pass takes by its rows: CostCurve(points=((1, 8.0), (16, 46.0), (64, 170.0)))."""

    points: tuple[tuple[int, float], ...]
    """(rows, milliseconds), by rows."""

    @property
    def max_rows(self) -> int:
        return self.points[-1][0]

    def milliseconds(self, rows: int) -> float:
        """Linear between the points, and along the last slope beyond them."""
        if len(self.points) == 1:
            return self.points[0][1] * rows / self.points[0][0]
        sizes = [size for size, _ in self.points]
        at = min(max(bisect_right(sizes, rows), 1), len(self.points) - 1)
        (rows0, cost0), (rows1, cost1) = self.points[at - 1], self.points[at]
        return cost0 + (cost1 - cost0) * (rows - rows0) / (rows1 - rows0)

    def ceiling(self) -> float:
        """The best speed-up over one row a pass that any drafting can reach."""
        single = self.milliseconds(1)
        return max(rows * single / self.milliseconds(rows) for rows in range(1, self.max_rows + 1))


class DraftSource(Protocol):
    """Guesses what follows."""

    def propose(self, written: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `written`; empty to compute one token plainly."""
        ...

    def learn(self, written: Sequence[int], num_new: int) -> None:
        """The model has written the last `num_new` tokens of `written` since `propose` was asked."""
        ...


class NoDraft:
    """Plain decoding."""

    def propose(self, written: Sequence[int], most: int) -> list[int]:
        return []

    def learn(self, written: Sequence[int], num_new: int) -> None:
        pass


class Drafter:
    """`Drafter(original_tokens, curve)` for one answer: call `propose`, run the model, call `learn`, repeat."""

    def __init__(self, original: Sequence[int], curve: CostCurve) -> None:
        self._original = _Text(original)
        self._output = _Text()
        self._costs = [curve.milliseconds(rows) for rows in range(1, LONGEST_GUESS + 2)]
        self._trust = _Trust()
        self._place: _Place | None = None
        self._pointer = 0
        """Where in the original we read last; the nearest of equal places wins."""

    def propose(self, written: Sequence[int], most: int) -> list[int]:
        self._output.grow(written)
        if self._place is None:
            self._place = self._find_place(written)
        if self._place is None or most <= 0:
            return []
        guess = self._place.reading(most)
        return guess[: self._worthwhile(self._place.matched, len(guess))]

    def learn(self, written: Sequence[int], num_new: int) -> None:
        place, new = self._place, written[len(written) - num_new :]
        if place is None:
            return
        expected = place.reading(num_new)
        agreed = _common_prefix(expected, new)
        self._trust.saw(place.matched, agreed, missed=agreed < len(expected))
        if place.text is self._original:
            self._pointer = place.at + agreed
        self._place = place.moved(num_new) if agreed == num_new else None

    def _find_place(self, written: Sequence[int]) -> "_Place | None":
        """The longest match; of equals the original before the output."""
        in_original = self._start(written) or self._original.place_after(written, near=self._pointer)
        in_output = self._output.place_after(written, near=len(written))
        found = [place for place in (in_original, in_output) if place]
        return max(found, key=lambda place: place.matched, default=None)

    def _start(self, written: Sequence[int]) -> "_Place | None":
        """Behind the first few tokens, when they are the original's too."""
        size = len(written)
        if size > ANCHOR_TOKENS or size >= len(self._original.tokens) or self._original.tokens[:size] != list(written):
            return None
        return _Place(text=self._original, at=size, matched=_MATCHED_AT_START + size)

    def _worthwhile(self, matched: int, most: int) -> int:
        """How many tokens to guess: the most expected tokens a millisecond, the model's own included."""
        survival, expected = 1.0, 1.0
        speeds = [expected / self._costs[0]]
        for size in range(1, most + 1):
            survival *= self._trust.chance(matched + size - 1)
            expected += survival
            speeds.append(expected / self._costs[size])
        best = max(speeds)
        if best < WORTH_IT * speeds[0]:
            return 0
        return max(size for size, speed in enumerate(speeds) if speed >= NEAR_BEST * best)


# The answer usually begins as the original does; as good as a match of so many tokens more.
_MATCHED_AT_START = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where to read on: text.tokens[at:], after a match of `matched` tokens."""

    text: "_Text"
    at: int
    matched: int

    def reading(self, count: int) -> list[int]:
        return self.text.tokens[self.at : self.at + count]

    def moved(self, count: int) -> "_Place | None":
        if self.at + count >= len(self.text.tokens):
            return None
        return _Place(text=self.text, at=self.at + count, matched=self.matched + count)


class _Text:
    """Tokens with an index of where each three of them end."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self.grow(tokens)

    def grow(self, tokens: Sequence[int]) -> None:
        """Take over what `tokens` has beyond ours."""
        known = len(self.tokens)
        self.tokens.extend(tokens[known:])
        # A place needs a token to read on with, so what ends with the last token is indexed on the next growth.
        for end in range(max(known, ANCHOR_TOKENS), len(self.tokens)):
            self._ends.setdefault(tuple(self.tokens[end - ANCHOR_TOKENS : end]), []).append(end)

    def place_after(self, written: Sequence[int], *, near: int) -> _Place | None:
        """After the longest match of the end of `written`; of equals the nearest, of those the later."""
        ends = self._ends.get(tuple(written[-ANCHOR_TOKENS:]), []) if len(written) >= ANCHOR_TOKENS else []
        candidates = _nearest(ends, near, MAX_PLACES)
        if not candidates:
            return None
        matched = {end: _common_suffix(self.tokens, end, written) for end in candidates}
        best = max(candidates, key=lambda end: (matched[end], -abs(end - near), end))
        return _Place(text=self, at=best, matched=matched[best])


def _nearest(sorted_numbers: Sequence[int], to: int, count: int) -> Sequence[int]:
    """At most `count` of the numbers around `to`."""
    if len(sorted_numbers) <= count:
        return sorted_numbers
    middle = bisect_right(sorted_numbers, to)
    start = min(max(middle - count // 2, 0), len(sorted_numbers) - count)
    return sorted_numbers[start : start + count]


def _common_suffix(tokens: Sequence[int], end: int, written: Sequence[int]) -> int:
    """Length of the longest common end of tokens[:end] and `written`, up to LONGEST_SUFFIX."""
    most = min(end, len(written), LONGEST_SUFFIX)
    size = 0
    while size < most and tokens[end - 1 - size] == written[-1 - size]:
        size += 1
    return size


def _common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> int:
    size = 0
    while size < min(len(ours), len(theirs)) and ours[size] == theirs[size]:
        size += 1
    return size


# Match lengths that are counted together: (longest match, chance that the next token agrees, how many observations
# that belief is worth). The chances were counted on 200 windows of real edits of 1–5 lines.
_CLASSES = (
    (3, 0.76, 4.0),
    (4, 0.82, 4.0),
    (6, 0.89, 5.0),
    (8, 0.95, 6.0),
    (10, 0.965, 8.0),
    (16, 0.988, 16.0),
    (LONGEST_SUFFIX, 0.995, 30.0),
    (96, 0.998, 100.0),
)


class _Trust:
    """How often the next token came true after a match of each length."""

    def __init__(self) -> None:
        self._hits = [chance * weight for _, chance, weight in _CLASSES]
        self._seen = [weight for _, _, weight in _CLASSES]

    def chance(self, matched: int) -> float:
        index = _class_of(matched)
        return self._hits[index] / self._seen[index]

    def saw(self, matched: int, agreed: int, *, missed: bool) -> None:
        """From a match of `matched`, `agreed` tokens came true and then, if `missed`, one did not."""
        for step in range(agreed + missed):
            index = _class_of(matched + step)
            self._seen[index] += 1
            self._hits[index] += step < agreed


def _class_of(matched: int) -> int:
    return next((index for index, (longest, _, _) in enumerate(_CLASSES) if matched <= longest), len(_CLASSES) - 1)
