"""Models that know no calls are talked to in text, and calls that a server let pass as text are found."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

from etude.agent.dialogue import as_text
from etude.agent.loop import run
from etude.errors import Unsupported
from etude.messages import Chat, Chunk, Completion, Message, Prompt, Role, Sampling, ToolCall, ToolSpec
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.traces import StopReason, TurnError
from etude.workspace.memory import MemoryWorkspace

TASK = Task(id="t", statement="Look at pay.py.")
FILES = {"pay.py": "x = 1\n"}


class Lines:
    """A line ">>> name {…}" is a call."""

    def explain(self, tools: Sequence[ToolSpec]) -> str:
        return f"To call one of {', '.join(tool.name for tool in tools)}, write >>> and its name and arguments."

    def read(self, text: str) -> Sequence[ToolCall]:
        return [self._call(line[4:]) for line in text.split("\n") if line.startswith(">>> ")]

    def _call(self, line: str) -> ToolCall:
        name, _, arguments = line.partition(" ")
        return ToolCall(id="", name=name if arguments else "", arguments=arguments or line)


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


READ = 'I look.\n>>> read {"path": "pay.py"}\n>>> list {}'
FINISH = ">>> finish " + json.dumps({"answer": "Seen."})


def test_a_model_without_calls_works_in_text() -> None:
    model = Textual([READ, "what now?", ">>> nonsense", FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), tool_text=Lines()))
    assert (trace.stop_reason, trace.answer) == (StopReason.FINISHED, "Seen.")
    assert trace.turns[0].text == READ
    assert [result.call.name for result in trace.turns[0].results] == ["read", "list"]
    assert trace.turns[1].error is TurnError.NO_CALL
    assert trace.turns[2].results[0].error is TurnError.MALFORMED_CALL
    last = model.asked[-1][0]
    assert isinstance(last, Chat)
    roles = [message.role for message in last.messages]
    assert roles == [Role.SYSTEM, *[Role.USER, Role.ASSISTANT] * 3, Role.USER]
    assert "write >>>" in last.messages[0].text
    assert last.messages[2].text == READ
    assert "    1 x = 1" in last.messages[3].text


def test_without_a_form_such_a_model_cannot_be_used() -> None:
    trace = asyncio.run(run(TASK, Textual([READ]), MemoryWorkspace(FILES), tool_text=None))
    assert trace.stop_reason is StopReason.MODEL_FAILED


def test_calls_that_came_as_text_are_found() -> None:
    model = ScriptedModel([READ, FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), tool_text=Lines()))
    assert trace.answer == "Seen."
    sent = model.asked[1][0]
    assert isinstance(sent, Chat)
    assert [call.name for call in sent.messages[2].tool_calls] == ["read", "list"]
    assert [message.role for message in sent.messages[3:]] == [Role.TOOL, Role.TOOL]


def test_native_calls_of_an_earlier_model_become_text() -> None:
    call = ToolCall(id="1", name="read", arguments='{"path": "a"}')
    plain = as_text(
        [
            Message(role=Role.SYSTEM, text="You are."),
            Message(role=Role.USER, text="Do."),
            Message(role=Role.ASSISTANT, text="", tool_calls=(call,)),
            Message(role=Role.TOOL, text="x", tool_call_id="1"),
            Message(role=Role.TOOL, text="y", tool_call_id="2"),
        ],
        "Tools.",
    )
    assert [(message.role, message.text) for message in plain] == [
        (Role.SYSTEM, "You are.\n\nTools."),
        (Role.USER, "Do."),
        (Role.ASSISTANT, 'read {"path": "a"}'),
        (Role.USER, "Result:\nx\n\nResult:\ny"),
    ]
