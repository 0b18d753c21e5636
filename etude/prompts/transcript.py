"""A conversation kept as the token ids that were really sent and sampled. It only grows.

A turn is `ids = transcript.add(messages)`, the model answers `transcript.ids`, `transcript.sampled(completion)`.
Sampled ids are never made from text again: another tokenization of the same text would be another past.
"""

from collections.abc import Callable, Sequence

from etude.errors import Unsupported
from etude.messages import Chat, Completion, Message, ToolSpec
from etude.prompts.chat_format import ChatFormat, Segment

Encode = Callable[[Sequence[Segment]], list[int]]
"""Token ids of segments, each encoded by itself, e.g. EmbeddedModel.encode_segments."""


class Transcript:
    """`Transcript(model.read_chat_format(), model.encode_segments, tools=specs)`."""

    def __init__(self, chat_format: ChatFormat, encode: Encode, *, tools: Sequence[ToolSpec] = ()) -> None:
        self._format = chat_format
        self._encode = encode
        self._tools = tuple(tools)
        self._ids: list[int] = []
        self._num_told = 0
        self._waits = False

    @property
    def ids(self) -> tuple[int, ...]:
        """Everything so far; after `add` the prompt whose continuation is the answer."""
        return tuple(self._ids)

    def add(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Append messages and open an answer. Returns all ids since the last sampled one (Turn.context_ids)."""
        if self._waits:
            raise ValueError("the last answer was opened and not yet sampled; add all messages of a turn at once")
        if self._ids:
            new = self._format.continuation(messages)
        else:
            new = self._format.segments(Chat(messages=tuple(messages), tools=self._tools))
        self._ids += self._encode(new)
        self._waits = True
        return tuple(self._ids[self._num_told :])

    def sampled(self, completion: Completion) -> None:
        """Append an answer's ids as they are and close its turn. Raises Unsupported when they are not told."""
        if not self._waits:
            raise ValueError("no answer was opened; add messages first")
        if completion.text and not completion.token_ids:
            raise Unsupported("The model does not tell its token ids; send it the conversation instead.")
        self._ids += completion.token_ids
        self._num_told = len(self._ids)
        end, rest = self._encode(self._format.closing[:1]), self._encode(self._format.closing[1:])
        # At a limit or a stop text the model did not end its turn itself.
        has_ended = list(completion.token_ids[-len(end) :]) == end
        self._ids += rest if has_ended else [*end, *rest]
        self._waits = False
