"""Conversations in token ids are what was sent and sampled; models that know no calls are talked to in text."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

import pytest

from etude.agent.dialogue import as_text, names_in
from etude.agent.limits import Limits
from etude.agent.loop import run
from etude.agent.store import fork
from etude.errors import Unsupported
from etude.messages import Chat, Chunk, Completion, Message, Prompt, Role, Sampling, ToolCall
from etude.models.scripted import ScriptedModel
from etude.prompts.chat_format import QWEN2_5, SMOLLM2, ChatFormat, Segment
from etude.tasks import Task
from etude.traces import StopReason, Trace, TurnError, context_token_ids
from etude.workspace.memory import MemoryWorkspace

TASK = Task(id="t", statement="Look at pay.py.")
FILES = {"pay.py": "x = 1\n", "other.py": "y = 2\n"}

READ = 'I look.\n<call name="read">\n<arg name="path">pay.py</arg>\n</call>\n<call name="list">\n</call>'
FINISH = '<call name="finish">\n<arg name="answer">Seen.</arg>\n</call>'
HERMES_READ = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "pay.py"}}\n</tool_call>'
HERMES_FINISH = '<tool_call>\n{"name": "finish", "arguments": {"answer": "Seen."}}\n</tool_call>'


class Textual(ScriptedModel):
    """A model whose format has no calls."""

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        assert isinstance(prompt, Chat)
        if prompt.tools or any(message.tool_calls or message.role is Role.TOOL for message in prompt.messages):
            raise Unsupported("No calls here.")
        async for item in super().complete(prompt, sampling, draft=draft):
            yield item


def test_a_model_without_calls_works_in_text() -> None:
    model = Textual([READ, "what now?", '<call name="read">nonsense', FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES)))
    assert (trace.stop_reason, trace.answer, trace.chat_format) == (StopReason.FINISHED, "Seen.", "")
    assert trace.turns[0].text == READ
    assert [result.call.name for result in trace.turns[0].results] == ["read", "list"]
    assert trace.turns[1].error is TurnError.NO_CALL
    assert trace.turns[2].results[0].error is TurnError.MALFORMED_CALL
    assert "<arg name" in trace.turns[2].notes[0]
    last = model.asked[-1][0]
    assert isinstance(last, Chat)
    roles = [message.role for message in last.messages]
    assert roles == [Role.SYSTEM, *[Role.USER, Role.ASSISTANT] * 3, Role.USER]
    assert '<call name="TOOL">' in last.messages[0].text
    assert last.messages[2].text == READ
    assert 'name="read">\n    1 x = 1' in last.messages[3].text


def test_calls_that_a_server_let_pass_as_text_are_found() -> None:
    model = ScriptedModel([HERMES_READ, HERMES_FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES)))
    assert trace.answer == "Seen."
    sent = model.asked[1][0]
    assert isinstance(sent, Chat)
    assert [call.name for call in sent.messages[2].tool_calls] == ["read"]
    assert [message.role for message in sent.messages[3:]] == [Role.TOOL]


def test_native_calls_of_an_earlier_model_become_text() -> None:
    call = ToolCall(id="1", name="read", arguments='{"path": "a"}')
    messages = [
        Message(role=Role.SYSTEM, text="You are."),
        Message(role=Role.USER, text="Do."),
        Message(role=Role.ASSISTANT, text="", tool_calls=(call,)),
        Message(role=Role.TOOL, text="x", tool_call_id="1"),
        Message(role=Role.TOOL, text="y", tool_call_id="2"),
    ]
    plain = as_text(messages, (), names_in(messages))
    assert [message.role for message in plain] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER]
    assert plain[2].text == '<call name="read">\n<arg name="path">a</arg>\n</call>'
    assert "\nx\n" in plain[3].text
    assert "\ny\n" in plain[3].text


# In ids.


class Tokens(ScriptedModel):
    """Its tokens are characters, and a token above all characters for each control marker."""

    def __init__(self, answers: Iterable[str | Completion], chat_format: ChatFormat = QWEN2_5) -> None:
        super().__init__(answers)
        self.chat_format = chat_format

    def read_chat_format(self) -> ChatFormat:
        return self.chat_format

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        ids: list[int] = []
        for segment in segments:
            marker = 0x110000 + sum(map(ord, segment.text))
            ids += [marker] if segment.control else map(ord, segment.text)
        return ids

    def sent(self, number: int) -> tuple[int, ...]:
        prompt = self.asked[number - 1][0]
        assert not isinstance(prompt, Chat | str)
        return tuple(prompt)


def text_of(ids: Iterable[int]) -> str:
    return "".join(chr(id) if id < 0x110000 else "|" for id in ids)


def check_is_token_true(trace: Trace, model: Tokens, *, first: int = 1) -> None:
    """What the trace says the model read is what it was sent, id by id."""
    for number, turn in enumerate(trace.turns[first - 1 :], 1):
        assert context_token_ids(trace.turns, first + number - 2) == model.sent(number)
        assert turn.token_ids
        assert len(turn.logprobs) == len(turn.token_ids)


SCRIPTS = [
    (QWEN2_5, [HERMES_READ, "no call", '<tool_call>\n{"name": ', HERMES_READ * 2, HERMES_FINISH]),
    (SMOLLM2, [READ, "no call", '<call name="read">', READ, FINISH]),
]


@pytest.mark.parametrize(("chat_format", "answers"), SCRIPTS, ids=["with calls", "in text"])
def test_the_trace_holds_the_ids_that_were_sent_and_sampled(chat_format: ChatFormat, answers: list[str]) -> None:
    model = Tokens(answers, chat_format)
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES)))
    assert (trace.stop_reason, trace.answer, trace.chat_format) == (StopReason.FINISHED, "Seen.", chat_format.name)
    check_is_token_true(trace, model)
    assert text_of(model.sent(2)).startswith(text_of(model.sent(1)) + answers[0])
    assert "    1 x = 1" in text_of(trace.turns[1].context_ids)
    errors = [error for turn in trace.turns for error in [turn.error, *(result.error for result in turn.results)]]
    assert {error for error in errors if error} == {TurnError.NO_CALL, TurnError.MALFORMED_CALL}


@pytest.mark.parametrize(("chat_format", "answers"), SCRIPTS, ids=["with calls", "in text"])
def test_a_resumed_run_goes_on_in_the_same_ids(chat_format: ChatFormat, answers: list[str]) -> None:
    whole_model = Tokens(answers, chat_format)
    whole = asyncio.run(run(TASK, whole_model, MemoryWorkspace(FILES)))
    for stop in range(1, len(answers)):
        model = Tokens(answers[stop:], chat_format)
        trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), resume=fork(whole, stop)))
        assert model.sent(1) == whole_model.sent(stop + 1)
        assert not any(turn.fresh_context for turn in trace.turns[1:])
        check_is_token_true(trace, model, first=stop + 1)


def test_a_run_resumed_by_another_model_begins_its_ids_anew() -> None:
    first = asyncio.run(run(TASK, Tokens([HERMES_READ]), MemoryWorkspace(FILES)))
    model = Tokens([FINISH], SMOLLM2)
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), resume=first))
    assert trace.turns[1].fresh_context
    assert trace.chat_format == SMOLLM2.name
    check_is_token_true(trace, model, first=2)
    assert "    1 x = 1" in text_of(model.sent(1))


def test_an_answer_without_ids_does_not_end_the_run() -> None:
    untold = replace(Completion(text=HERMES_READ), token_ids=())
    model = Tokens([untold, HERMES_READ, HERMES_FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES)))
    assert trace.stop_reason is StopReason.FINISHED
    assert [turn.fresh_context for turn in trace.turns] == [True, True, False]
    assert context_token_ids(trace.turns, 2) == model.sent(3)
    assert text_of(model.sent(2)).count(HERMES_READ) == 1


def test_compaction_begins_a_fresh_context_of_ids() -> None:
    reads = [HERMES_READ.replace("pay.py", f"f{number}.py") for number in range(30)]
    files = {f"f{number}.py": f"x{number} = 1\n" * 300 for number in range(30)}
    model = Tokens([*reads, HERMES_FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(files), Limits(context_tokens=20_000)))
    assert trace.stop_reason is StopReason.FINISHED
    assert sum(turn.fresh_context for turn in trace.turns) > 2
    check_is_token_true(trace, model)
