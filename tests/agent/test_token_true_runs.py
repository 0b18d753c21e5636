"""A run with the embedded model holds the very ids that the model read and sampled."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from etude.agent.limits import Limits
from etude.agent.loop import run
from etude.agent.tools.list import LIST
from etude.messages import Chunk, Completion, Prompt, Sampling
from etude.models import catalog
from etude.models.llama_cpp import EmbeddedModel
from etude.prompts.chat_format import ChatFormat, Segment
from etude.tasks import Task
from etude.traces import StopReason, Trace, context_token_ids
from etude.workspace.memory import MemoryWorkspace

pytestmark = pytest.mark.embedded


class Listening:
    """The embedded model, and what it was asked."""

    def __init__(self, model: EmbeddedModel) -> None:
        self.model = model
        self.prompts: list[Prompt] = []

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        self.prompts.append(prompt)
        async for item in self.model.complete(prompt, sampling, draft=draft):
            yield item

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        return await self.model.score(token_ids, start=start)

    async def encode(self, prompt: Prompt) -> list[int]:
        return await self.model.encode(prompt)

    def read_chat_format(self) -> ChatFormat:
        return self.model.read_chat_format()

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        return self.model.encode_segments(segments)

    async def close(self) -> None:
        await self.model.close()


async def run_three_turns(model: Listening) -> tuple[Trace, list[list[float]]]:
    """The trace, and the log-probabilities of each answer given the ids that the trace says were read."""
    task = Task(id="t", statement="Which files are there?")
    limits = Limits(turns=3, context_tokens=4_000, answer_tokens=12)
    trace = await run(task, model, MemoryWorkspace({"pay.py": "x = 1\n"}), limits, tools=[LIST])
    scores = []
    for index, turn in enumerate(trace.turns):
        read = context_token_ids(trace.turns, index)
        scores.append(await model.score([*read, *turn.token_ids], start=len(read)))
    return trace, scores


def test_the_embedded_models_run_is_token_true():
    name = "smollm2-135m"
    model = Listening(EmbeddedModel.load(catalog.require(name), name=name, context_tokens=4096))

    async def work() -> tuple[Trace, list[list[float]]]:
        try:
            return await run_three_turns(model)
        finally:
            await model.close()

    trace, scores = asyncio.run(work())
    assert (trace.stop_reason, len(trace.turns), trace.chat_format) == (StopReason.MAX_TURNS, 3, "smollm2")
    for index, turn in enumerate(trace.turns):
        assert context_token_ids(trace.turns, index) == model.prompts[index]
        assert len(turn.token_ids) == turn.usage.generated_tokens > 0
        assert list(turn.logprobs) == pytest.approx(scores[index], abs=1e-4)
    # All that the last turn read and said, but for its last token, need not be read again.
    for before, turn in zip(trace.turns, trace.turns[1:], strict=False):
        known = before.usage.prompt_tokens + before.usage.generated_tokens - 1
        assert turn.usage.reused_tokens >= known
