"""The Model that plays back: what tests and examples rely on."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ModelError, Unsupported
from etude.messages import Chat, Chunk, Completion, FinishReason, Message, Role, Sampling, ToolCall
from etude.models.model import Model, finish
from etude.models.scripted import ScriptedModel
from etude.prompts.chat_format import PLAIN_CHATML

HELLO = Chat(messages=(Message(role=Role.USER, text="Hi"),), prefill="Sure")
GREEDY = Sampling()


def items_of(model: Model) -> list[Chunk | Completion]:
    async def collect() -> list[Chunk | Completion]:
        return [item async for item in model.complete(HELLO, GREEDY)]

    return asyncio.run(collect())


@given(st.text(), st.integers(1, 9))
def test_the_chunks_make_the_text(text: str, chunk_characters: int) -> None:
    *chunks, completion = items_of(ScriptedModel([text], chunk_characters=chunk_characters))
    assert isinstance(completion, Completion)
    assert all(isinstance(chunk, Chunk) and 0 < len(chunk.text) <= chunk_characters for chunk in chunks)
    assert "".join(chunk.text for chunk in chunks) == completion.text == text
    assert "".join(map(chr, completion.token_ids)) == text
    assert len(completion.logprobs) == completion.usage.generated_tokens == len(text)


def test_answers_come_in_order_and_then_end() -> None:
    model = ScriptedModel(["one", "two"], name="script")
    assert [items_of(model)[-1].text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ModelError, match="model 'script' has 2 answers; this is call 3"):
        items_of(model)


def test_a_completion_is_played_back_as_it_is() -> None:
    call = ToolCall(id="c1", name="read", arguments="{}")
    completion = Completion(text="", finish_reason=FinishReason.TOOL_CALLS, tool_calls=(call,), model="other")
    assert items_of(ScriptedModel([completion])) == [completion]


def test_what_was_asked_is_kept() -> None:
    model = ScriptedModel(["a"])
    asyncio.run(finish(model.complete(HELLO, GREEDY, draft="draft")))
    assert model.asked == [(HELLO, GREEDY, "draft")]


def test_closing_the_stream_ends_it() -> None:
    async def test() -> None:
        stream = ScriptedModel(["a long answer"], chunk_characters=1).complete(HELLO, GREEDY)
        assert isinstance(stream, AsyncGenerator)
        assert await anext(stream) == Chunk(text="a")
        await stream.aclose()
        assert [item async for item in stream] == []

    asyncio.run(test())


def test_scores_come_from_the_given_function() -> None:
    model = ScriptedModel(score=lambda before, character: -float(len(before) + (character == "c")))
    ids = asyncio.run(model.encode("abcd"))
    assert asyncio.run(model.score(ids)) == [-1.0, -3.0, -3.0]
    assert asyncio.run(model.score(ids, start=3)) == [-3.0]


def test_prompts_are_encoded_as_their_characters() -> None:
    model = ScriptedModel()
    assert "".join(map(chr, asyncio.run(model.encode(HELLO)))) == "user: Hi\nSure"
    assert asyncio.run(model.encode([1, 2])) == [1, 2]


def test_a_stream_without_a_completion_is_our_own_slip() -> None:
    async def cut() -> AsyncGenerator[Chunk | Completion]:
        yield Chunk(text="a")

    with pytest.raises(AssertionError, match="without a Completion"):
        asyncio.run(finish(cut()))


def test_it_keeps_a_conversation_in_tokens_only_with_a_chat_format():
    with pytest.raises(Unsupported, match="no chat format"):
        ScriptedModel().read_chat_format()
    model = ScriptedModel(chat_format=PLAIN_CHATML)
    assert model.encode_segments(model.read_chat_format().closing) == [*map(ord, "<|im_end|>\n")]
