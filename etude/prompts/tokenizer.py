"""Token ids of a format's segments, and how many a text has. What was encoded lately is remembered, up to a bound.

Segments are encoded each by itself. A control marker is one token and ends what a tokenizer looks at, so that a
conversation encoded turn by turn has the ids of the whole one.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from etude.prompts.chat_format import Segment

Tokenize = Callable[[str, bool], Sequence[int]]
"""(text, whether the names of control tokens in it become those tokens) → token ids."""

# With its ids some 6 MB: the tools, the task and the files of a conversation, which is encoded anew after a
# compaction and in each fork.
REMEMBERED_CHARACTERS = 1_000_000
# So that a flood of small texts is bounded too.
_ENTRY_CHARACTERS = 100


class Tokenizer(Protocol):
    """Makes token ids for one model."""

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        """Ids of the segments, each by itself; only control segments become control tokens."""
        ...

    def count(self, text: str) -> int:
        """How many tokens a text has by itself."""
        ...


class RememberingTokenizer:
    """A Tokenizer that asks its model once for what comes again; may be used from several threads."""

    def __init__(self, tokenize: Tokenize, *, remembered_characters: int = REMEMBERED_CHARACTERS) -> None:
        self._tokenize = tokenize
        self._room = remembered_characters
        self._used = 0
        self._known: OrderedDict[Segment, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_remembered(self) -> int:
        """Segments whose ids are held."""
        return len(self._known)

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        ids: list[int] = []
        for segment in segments:
            ids += self._ids_of(segment)
        return ids

    def count(self, text: str) -> int:
        return len(self._ids_of(Segment(text=text)))

    def _ids_of(self, segment: Segment) -> Sequence[int]:
        with self._lock:
            if segment in self._known:
                self._known.move_to_end(segment)
                return self._known[segment]
        ids = array("i", self._tokenize(segment.text, segment.control))
        with self._lock:
            self._remember(segment, ids)
        return ids

    def _remember(self, segment: Segment, ids: "array[int]") -> None:
        if segment in self._known or _cost(segment) > self._room:
            return
        self._known[segment] = ids
        self._used += _cost(segment)
        while self._used > self._room:
            forgotten, _ = self._known.popitem(last=False)
            self._used -= _cost(forgotten)


def _cost(segment: Segment) -> int:
    return len(segment.text) + _ENTRY_CHARACTERS
