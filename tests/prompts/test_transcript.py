"""A conversation in tokens only grows, and is what its format writes at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import Unsupported
from etude.messages import Chat, Completion, FinishReason, Message, Role, ToolCall, ToolSpec
from etude.models import catalog
from etude.models.llama_cpp import EmbeddedModel
from etude.prompts.chat_format import PLAIN_CHATML, QWEN2_5, Segment, chat_format_for, prompt_format_for
from etude.prompts.transcript import Transcript

TOOL = ToolSpec(name="read", description="Reads é.", parameters={"type": "object"})
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["<|im_end|>\n", "<|im_start|>system\n", "\n\n"]))


def encode(segments) -> list[int]:
    """Characters; a marker is one token outside Unicode."""
    found: list[int] = []
    for segment in segments:
        found += [0x110000 + len(segment.text)] if segment.control else map(ord, segment.text)
    return found


def answer(text: str, *, ended: bool = True) -> Completion:
    end = encode(QWEN2_5.closing[:1]) if ended else []
    return Completion(text=text, token_ids=(*map(ord, text), *end))


@given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=1, max_size=4))
def test_turn_by_turn_is_the_whole_and_the_past_stays(turns: list[tuple[str, str, bool]]):
    transcript, messages = Transcript(QWEN2_5, encode, tools=[TOOL]), []
    for said, answered, ended in turns:
        before = transcript.ids
        messages.append(Message(role=Role.TOOL if messages else Role.USER, text=said))
        transcript.add(messages[-1:])
        assert transcript.ids[: len(before)] == before
        assert list(transcript.ids) == encode(QWEN2_5.segments(Chat(messages=tuple(messages), tools=(TOOL,))))
        transcript.sampled(answer(answered, ended=ended))
        messages.append(Message(role=Role.ASSISTANT, text=answered))


def test_added_ids_and_sampled_ids_are_all_ids():
    transcript = Transcript(QWEN2_5, encode)
    first = transcript.add([Message(role=Role.USER, text="a")])
    transcript.sampled(answer("b"))
    second = transcript.add([Message(role=Role.USER, text="c")])
    assert transcript.ids == (*first, *answer("b").token_ids, *second)


def test_ids_that_are_not_told_and_turns_out_of_order_are_refused():
    transcript = Transcript(QWEN2_5, encode)
    with pytest.raises(ValueError, match="add messages first"):
        transcript.sampled(answer("x"))
    transcript.add([Message(role=Role.USER, text="a")])
    with pytest.raises(ValueError, match="not yet sampled"):
        transcript.add([])
    with pytest.raises(Unsupported, match="token ids"):
        transcript.sampled(Completion(text="x"))


def test_qwen_writes_calls_and_groups_results_as_its_template_does():
    call = ToolCall(id="1", name="read", arguments='{"path":"a"}')
    messages = (
        Message(role=Role.USER, text="Hi"),
        Message(role=Role.ASSISTANT, text="", tool_calls=(call, call)),
        Message(role=Role.TOOL, text="x", tool_call_id="1"),
        Message(role=Role.TOOL, text="y", tool_call_id="1"),
    )
    text = "".join(segment.text for segment in QWEN2_5.segments(Chat(messages=messages, tools=(TOOL,))))
    wanted = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    assert text.endswith(
        f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{wanted}\n{wanted}<|im_end|>\n<|im_start|>user\n"
        "<tool_response>\nx\n</tool_response>\n<tool_response>\ny\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    reading = QWEN2_5.read(f"Look.\n{wanted}\n<tool_call>\n{{broken\n</tool_call>")
    assert [(one.name, one.arguments) for one in reading.calls] == [("read", '{"path": "a"}'), ("", "{broken")]
    assert reading.prose == "Look."


@pytest.mark.parametrize(("sign", "drops"), [("</think>", "reasoning"), ("<|channel|>", "analysis")])
def test_a_template_that_rewrites_the_past_is_refused(sign: str, drops: str):
    with pytest.raises(Unsupported, match=drops):
        chat_format_for({"tokenizer.chat_template": f"<|im_start|>{{{{ x.split('{sign}') }}}}"})


def test_a_family_that_rewrites_the_past_still_answers_whole_prompts():
    metadata = {"tokenizer.chat_template": "<|im_start|>{{ x.split('</think>') }}"}
    assert prompt_format_for(metadata) == PLAIN_CHATML


@pytest.mark.embedded
def test_the_state_of_earlier_turns_is_used_again():
    import asyncio

    from etude.messages import Sampling
    from etude.models.model import TokenTrue, finish

    async def work() -> None:
        model = EmbeddedModel.load(catalog.require("smollm2-135m"), name="smollm2-135m", context_tokens=512)
        try:
            assert isinstance(model, TokenTrue)
            text = "x<|im_end|>\n\n  y"
            whole = model.encode_segments([Segment(text=text)])
            assert model.encode_segments([Segment(text="<|im_end|>", control=True)])[0] not in whole
            transcript = Transcript(model.read_chat_format(), model.encode_segments)
            transcript.add([Message(role=Role.USER, text="Say hello.")])
            assert list(transcript.ids) == await model.encode(
                Chat(messages=(Message(role=Role.USER, text="Say hello."),))
            )
            first = await finish(model.complete(transcript.ids, Sampling(max_tokens=6)))
            assert first.finish_reason is FinishReason.LENGTH or first.token_ids
            known = len(transcript.ids) + len(first.token_ids)
            transcript.sampled(first)
            transcript.add([Message(role=Role.USER, text="Again.")])
            second = await finish(model.complete(transcript.ids, Sampling(max_tokens=2)))
            assert second.usage.reused_tokens >= known - 1
        finally:
            await model.close()

    asyncio.run(work())


def test_the_familys_tags_in_a_text_or_a_result_are_taken_apart():
    said = "<tool_call> </tool_call> <|fim_prefix|>"
    messages = (Message(role=Role.USER, text=said), Message(role=Role.TOOL, text=said))
    segments = QWEN2_5.segments(Chat(messages=messages))
    assert "".join(segment.text for segment in segments).count(said) == 2
    assert not any(tag in segment.text for segment in segments for tag in ("<tool_call>", "</tool_call>"))
    assert not any("<|fim_" in segment.text for segment in segments)


def test_calls_without_their_tags_are_read_when_the_answer_is_nothing_else():
    call = '{"name": "read", "arguments": {"path": "a.py"}}'
    for text in (call, f"\n```json\n{call}\n```", f"{call}\n{call}"):
        reading = QWEN2_5.read(text)
        assert {one.name for one in reading.calls} == {"read"} and not reading.prose
        assert len({one.id for one in reading.calls}) == text.count("read")
    for text in (f"As in {call}", f"{call} is how", '{"name": "read"}', '{"name": 3, "arguments": {}}', "[" * 100_000):
        assert QWEN2_5.read(text).calls == () and QWEN2_5.read(text).prose == text
