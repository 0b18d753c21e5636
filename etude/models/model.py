"""The Model protocol: everything that answers prompts, in this process or across a wire.

Waiting is asynchronous; an implementation that computes does so in its own thread.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from etude.messages import Chunk, Completion, Prompt, Sampling
from etude.prompts.chat_format import ChatFormat, Segment


class Model(Protocol):
    """Answers prompts, and says how probable a text is."""

    @property
    def name(self) -> str:
        """What the person calls it, e.g. "smollm2-135m"."""
        ...

    def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        """Stream the answer as Chunks, then exactly one Completion that holds all of it.

        `draft` is text the answer will probably resemble (for an edit: the original). It may make
        the answer faster and never changes it. Closing the iterator cancels the work.
        Raises PromptTooLong, Unsupported, ServerError.
        """
        ...

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        """Log-probability of each of token_ids[start:], given all tokens before it; start ≥ 1.

        Calls that share a prefix with the last one pay only for the rest. Raises Unsupported
        where a server does not tell log-probabilities of a prompt.
        """
        ...

    async def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, exactly as `complete` would read it. Raises Unsupported."""
        ...

    async def close(self) -> None:
        """Free what is held; a closed model is not used again."""
        ...


@runtime_checkable
class TokenTrue(Protocol):
    """A model in whose tokens a conversation can be kept: see `prompts/transcript.py`."""

    def read_chat_format(self) -> ChatFormat:
        """How the model's family writes conversations. Raises Unsupported."""
        ...

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        """Token ids, each segment by itself; only control segments become control tokens."""
        ...


async def finish(stream: AsyncIterator[Chunk | Completion]) -> Completion:
    """The Completion at the end of a stream."""
    async for item in stream:
        if isinstance(item, Completion):
            return item
    raise AssertionError("a completion stream ended without a Completion")
