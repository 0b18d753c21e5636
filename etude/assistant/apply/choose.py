"""Let the model choose among merges by its own scores: it reads, and never writes.

For each merge: how much more probable does the text around its changes become, given what stands before it?
The sum of log-probabilities over the changed windows of the merged file minus that of the same windows of the
file as it is. Merges in doubt hold the same new lines in different places, so the sums compare like with like.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from etude.assistant.apply.merge import Doubt, Merge
from etude.edits import line_starts, patch_from_texts, split_lines
from etude.models.model import Model

# Lines of context the model reads before and after a change. More costs time on a small CPU and adds little.
_LINES_BEFORE = 24
_LINES_AFTER = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    merge: Merge
    sure_by_nats: float
    """Log-probability by which it beats the next best."""
    num_tokens: int
    """What the model read for it."""


async def choose(doubt: Doubt, original: str, model: Model) -> Choice:
    """The merge the model finds most probable. Raises Unsupported when the model cannot score."""
    scored = [await _gain(merge.text, original, model) for merge in doubt.merges]
    gains = [gain for gain, _ in scored]
    order = sorted(range(len(gains)), key=lambda index: -gains[index])
    return Choice(
        merge=doubt.merges[order[0]],
        sure_by_nats=gains[order[0]] - gains[order[1]],
        num_tokens=sum(count for _, count in scored),
    )


def comparable(doubt: Doubt) -> bool:
    """Whether all merges hold the same lines, in other places: only then do sums of log-probabilities compare."""
    contents = [Counter(line.strip() for line in split_lines(merge.text)) for merge in doubt.merges]
    return all(content == contents[0] for content in contents)


async def _gain(merged: str, original: str, model: Model) -> tuple[float, int]:
    """(nats that the changes add to the text around them, tokens read)."""
    total, num_tokens = 0.0, 0
    for before, old, new, after in _windows(merged, original):
        for text, sign in ((new + after, 1), (old + after, -1)):
            value, count = await _log_probability(before, text, model)
            total += sign * value
            num_tokens += count
    return total, num_tokens


def _windows(merged: str, original: str) -> list[tuple[str, str, str, str]]:
    """(text before, old text, new text, text after) of each change."""
    lines = split_lines(original)
    index_of = {offset: index for index, offset in enumerate(line_starts(lines))}
    windows = []
    for edit in patch_from_texts("", original, merged).edits:
        first, last = index_of[edit.span.start], index_of[edit.span.end]
        before = "".join(lines[max(0, first - _LINES_BEFORE) : first])
        after = "".join(lines[last : last + _LINES_AFTER])
        windows.append((before, original[edit.span.start : edit.span.end], edit.text, after))
    return windows


async def _log_probability(before: str, text: str, model: Model) -> tuple[float, int]:
    if not text:
        return 0.0, 0
    prefix: Sequence[int] = await model.encode(before or "\n")
    # Encoded apart, so that the boundary is the same for every merge.
    tokens = [*prefix, *await model.encode(text)]
    return sum(await model.score(tokens, start=max(1, len(prefix)))), len(tokens)
