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
# Anchors are found by their last three tokens; shorter matches only count near the pointer.
ANCHOR_TOKENS = 3
NEAR_TOKENS = 256
MAX_ANCHORS = 64


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
