"""A Model that plays back given completions: for tests, examples and demonstrations.

It keeps what it was asked, so that a test can look at the prompts. Its tokens are the characters
of the text (token id = code point), and its scores come from a function that the caller may give.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from etude.errors import ModelError, Unsupported
from etude.messages import Chat, Chunk, Completion, Prompt, Sampling, Usage
from etude.prompts.chat_format import ChatFormat, Segment

Score = Callable[[str, str], float]
"""(text before, character) → log-probability of that character."""


class ScriptedModel:
    """`ScriptedModel(["first answer", "second answer"])` answers in that order, then raises ModelError."""

    def __init__(
        self,
        answers: Iterable[str | Completion] = (),
        *,
        name: str = "scripted",
        chunk_characters: int = 16,
        seconds_per_chunk: float = 0.0,
        score: Score = lambda before, character: -1.0,
        chat_format: ChatFormat | None = None,
    ) -> None:
        self._chat_format = chat_format
        self._answers = list(answers)
        self._name = name
        self._chunk_characters = chunk_characters
        self._seconds_per_chunk = seconds_per_chunk
        self._score = score
        self.asked: list[tuple[Prompt, Sampling, str | None]] = []
        """Every (prompt, sampling, draft) that `complete` got."""

    @property
    def name(self) -> str:
        return self._name

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        self.asked.append((prompt, sampling, draft))
        if len(self.asked) > len(self._answers):
            raise ModelError(
                f"the script of model {self._name!r} has {len(self._answers)} answers; this is call {len(self.asked)}"
            )
        completion = _as_completion(self._answers[len(self.asked) - 1], self._name)
        for start in range(0, len(completion.text), self._chunk_characters):
            await asyncio.sleep(self._seconds_per_chunk)
            yield Chunk(text=completion.text[start : start + self._chunk_characters])
        yield completion

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        text = "".join(map(chr, token_ids))
        return [self._score(text[:at], text[at]) for at in range(start, len(text))]

    async def encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, Chat):
            prompt = "".join(f"{message.role}: {message.text}\n" for message in prompt.messages) + prompt.prefill
        return [ord(character) for character in prompt] if isinstance(prompt, str) else list(prompt)

    def read_chat_format(self) -> ChatFormat:
        """The format it was given. Raises Unsupported without one."""
        if self._chat_format is None:
            raise Unsupported(f"{self._name} was given no chat format; send it conversations.")
        return self._chat_format

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        return [ord(character) for segment in segments for character in segment.text]

    async def close(self) -> None:
        pass


def _as_completion(answer: str | Completion, name: str) -> Completion:
    if isinstance(answer, Completion):
        return answer
    ids = tuple(map(ord, answer))
    usage = Usage(generated_tokens=len(ids), num_passes=len(ids))
    return Completion(text=answer, token_ids=ids, logprobs=(-1.0,) * len(ids), usage=usage, model=name)
