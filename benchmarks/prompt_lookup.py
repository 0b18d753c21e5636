"""Prompt-lookup decoding, the baseline beside our drafting (github.com/apoorvumang/prompt-lookup-decoding).

The last n tokens are searched in everything so far, from the longest n down to one token; what followed the first
occurrence is the guess, always of the same length.
"""

from collections.abc import Sequence

import numpy as np


class PromptLookup:
    """A DraftSource over prompt and answer: `PromptLookup(prompt_ids, longest=3, size=10)`."""

    def __init__(self, prompt: Sequence[int], *, longest: int, size: int) -> None:
        self._prompt = list(prompt)
        self._longest = longest
        self._size = size

    def propose(self, written: Sequence[int], most: int) -> list[int]:
        text = np.array([*self._prompt, *written])
        count = min(self._size, most)
        for size in range(min(self._longest, len(text) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
            found = np.flatnonzero((windows == text[-size:]).all(axis=1))
            if len(found):
                start = int(found[0]) + size
                return text[start : start + count].tolist()
        return []

    def learn(self, written: Sequence[int], num_new: int) -> None:
        """Nothing: every guess is as long as the last."""
