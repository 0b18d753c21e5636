"""Whole runs with scripted models: good ones, wrong calls, garbage, limits, failing servers, stops and resumption."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.events import (
    AgentEvent,
    CallFinished,
    CallStarted,
    DiagnosticsChanged,
    Notice,
    OutputPrinted,
    PlanChanged,
    QuestionAnswered,
    Started,
    Stopped,
    TextWritten,
    TurnFinished,
)
from etude.agent.limits import Limits, Prices
from etude.agent.loop import run
from etude.agent.store import TraceStore, fork, load
from etude.agent.tool_choice import tools_for
from etude.agent.toolbox import Answer as ToolAnswer
from etude.agent.toolbox import StructTool, ToolKind
from etude.errors import FileNotWritable, ModelError, PromptTooLong, ServerRefused, ServerUnreachable, TraceUnusable
from etude.messages import Chat, Chunk, Completion, FinishReason, Message, Prompt, Role, Sampling, ToolCall, Usage
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.traces import StopReason, Trace, Turn, TurnError
from etude.workspace.memory import MemoryWorkspace
from etude.workspace.workspace import Command, Diagnostic, Followed, Place, Severity

TASK = Task(id="t1", statement="Make total() right.")
FILES = {"pay.py": "def total(prices):\n    return max(prices)\n", "README.md": "# Pay\n"}


def say(text: str = "", *calls: tuple[str, object]) -> Completion:
    """An answer with calls; arguments that are not a text are written as JSON."""
    made = tuple(
        ToolCall(id=f"id{place}", name=name, arguments=given if isinstance(given, str) else json.dumps(given))
        for place, (name, given) in enumerate(calls)
    )
    reason = FinishReason.TOOL_CALLS if made else FinishReason.END
    return Completion(text=text, tool_calls=made, finish_reason=reason)


FINISH = say("", ("finish", {"answer": "It sums now."}))
READ = say("Let me look.", ("read", {"path": "pay.py"}))
EDIT = say("", ("edit", {"path": "pay.py", "old": "max", "new": "sum"}))


def attempt(
    answers: Iterable[str | Completion], workspace: MemoryWorkspace | None = None, **wanted: object
) -> tuple[Trace, ScriptedModel]:
    model = ScriptedModel(answers)
    limits = wanted.pop("limits", Limits(retry_seconds=0.0))
    trace = asyncio.run(run(TASK, model, workspace or MemoryWorkspace(FILES), limits, **wanted))  # ty: ignore
    return trace, model


def sent_to(model: ScriptedModel, number: int) -> tuple[Message, ...]:
    prompt = model.asked[number - 1][0]
    assert isinstance(prompt, Chat)
    return prompt.messages


def check_is_well_formed(messages: Sequence[Message]) -> None:
    """What every server takes: JSON objects as arguments, unique ids, each call answered right after it."""
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in messages:
        message.text.encode("utf-8")
        if message.role is Role.TOOL:
            assert message.tool_call_id == open_ids.pop(0)
            continue
        assert not open_ids, "a call was not answered"
        assert message.role is not Role.ASSISTANT or message.text.strip() or message.tool_calls
        for call in message.tool_calls:
            assert call.id not in seen
            seen.add(call.id)
            open_ids.append(call.id)
            assert call.name
            assert call.name.replace("_", "").replace("-", "").isalnum()
            assert isinstance(json.loads(call.arguments), dict)
            call.arguments.encode("utf-8")
    assert not open_ids


# A good run.


def test_a_run_reads_edits_checks_and_finishes() -> None:
    workspace = MemoryWorkspace(FILES, commands={"pytest -q": "1 passed\n"})
    trace, model = attempt([READ, EDIT, say("", ("run", {"command": "pytest -q"})), FINISH], workspace)
    assert (trace.stop_reason, trace.answer) == (StopReason.FINISHED, "It sums now.")
    assert workspace.files["pay.py"] == "def total(prices):\n    return sum(prices)\n"
    assert [turn.results[0].error for turn in trace.turns] == [None] * 4
    assert "    2     return max(prices)" in trace.turns[0].results[0].text
    assert trace.turns[1].results[0].changed == ("pay.py",)
    assert "+    return sum(prices)" in trace.turns[1].results[0].text
    assert trace.turns[2].results[0].exit_code == 0
    assert "1 passed" in sent_to(model, 4)[-1].text
    check_is_well_formed(sent_to(model, 4))


def test_the_first_messages_name_task_check_folder_and_tools() -> None:
    task = Task(id="t", statement="Do it.", check="make check")
    model = ScriptedModel([FINISH])
    asyncio.run(run(task, model, MemoryWorkspace(FILES)))
    system, user = sent_to(model, 1)
    assert (system.role, user.role) == (Role.SYSTEM, Role.USER)
    assert "/memory" in system.text
    assert "finish" in system.text
    assert "Do it." in user.text
    assert "make check" in user.text
    assert "pay.py" in user.text
    prompt = model.asked[0][0]
    assert isinstance(prompt, Chat)
    assert {spec.name for spec in prompt.tools} >= {"read", "edit", "run", "restore", "recall", "finish"}


def test_the_same_task_gives_the_same_prompt() -> None:
    prompts = [attempt([READ, FINISH])[1].asked[1][0] for _ in range(2)]
    assert prompts[0] == prompts[1]


def test_what_was_sent_is_the_concatenation_of_what_the_trace_holds() -> None:
    trace, model = attempt([READ, "no call", EDIT, FINISH])
    messages: list[Message] = []
    for number, turn in enumerate(trace.turns, 1):
        messages += turn.sent
        assert sent_to(model, number) == tuple(messages)
        messages.append(Message(role=Role.ASSISTANT, text=turn.text, tool_calls=turn.tool_calls))


def test_events_tell_the_run_in_order() -> None:
    seen: list[AgentEvent] = []
    workspace = MemoryWorkspace(FILES, commands={"ls": "pay.py\n"})
    plan = {"steps": [{"text": "look", "state": "active"}]}
    attempt([say("Hm.", ("plan", plan), ("run", {"command": "ls"})), FINISH], workspace, observer=seen.append)
    assert isinstance(seen[0], Started)
    assert isinstance(seen[-1], Stopped)
    assert seen[-1].reason == "finished"
    kinds = [type(event) for event in seen]
    assert kinds.index(TextWritten) < kinds.index(CallStarted) < kinds.index(PlanChanged) < kinds.index(OutputPrinted)
    assert [event.summary for event in seen if isinstance(event, CallStarted)] == ["plan (1 steps)", "$ ls", "finish"]
    assert kinds.count(TurnFinished) == 2
    assert all(msgspec.json.encode(event) for event in seen)


def test_calls_in_one_answer_run_in_order_and_each_is_answered() -> None:
    trace, model = attempt(
        [say("", ("write", {"path": "n.txt", "text": "1"}), ("read", {"path": "n.txt"}), ("nope", {})), FINISH]
    )
    results = trace.turns[0].results
    assert [result.call.name for result in results] == ["write", "read", "nope"]
    assert results[1].text == "    1 1"
    assert results[2].error is TurnError.UNKNOWN_TOOL
    check_is_well_formed(sent_to(model, 2))


def test_after_finish_nothing_else_is_done() -> None:
    workspace = MemoryWorkspace(FILES)
    trace, _ = attempt([say("", ("finish", {"answer": "Done."}), ("write", {"path": "late", "text": ""}))], workspace)
    assert trace.answer == "Done."
    assert "late" not in workspace.files
    assert len(trace.turns[0].results) == 2


# Wrong calls.


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (("raed", {"path": "pay.py"}), TurnError.UNKNOWN_TOOL, "Did you mean read?"),
        (("read", '{"path": "pay.py"'), TurnError.MALFORMED_CALL, "not JSON"),
        (("read", {"file": "pay.py"}), TurnError.WRONG_ARGUMENTS, "read(path: string"),
        (("read", {"path": "pay.py", "first_line": "1"}), TurnError.WRONG_ARGUMENTS, "first_line"),
        (("read", []), TurnError.WRONG_ARGUMENTS, "object"),
        (("read", {"path": "gone.py"}), TurnError.TOOL_FAILED, "does not exist"),
        (("read", {"path": "../etc/passwd"}), TurnError.TOOL_FAILED, "not inside"),
        (("run", {"command": "false"}), TurnError.COMMAND_FAILED, "command not found"),
        (("", "<tool_call>{"), TurnError.MALFORMED_CALL, "could not be read"),
    ],
)
def test_a_wrong_call_is_answered_recorded_and_sent_back_well_formed(
    call: tuple[str, object], error: TurnError, told: str
) -> None:
    trace, model = attempt([say("", call), FINISH])
    assert trace.stop_reason is StopReason.FINISHED
    assert trace.turns[0].results[0].error is error
    assert told in trace.turns[0].results[0].text
    assert told in sent_to(model, 2)[-1].text
    check_is_well_formed(sent_to(model, 2))


def test_a_wrong_call_is_kept_as_the_model_made_it() -> None:
    trace, _ = attempt([say("", ("read", '{"path": ')), FINISH])
    assert trace.turns[0].tool_calls[0].arguments == '{"path": '


def test_a_text_without_a_call_is_told_so() -> None:
    trace, model = attempt(["I think it is done.", FINISH])
    assert trace.turns[0].error is TurnError.NO_CALL
    assert "called no tool" in sent_to(model, 2)[-1].text


def test_too_many_calls_are_cut_off_and_told() -> None:
    trace, model = attempt([say("", *[("read", {"path": "pay.py"})] * 500), FINISH])
    assert len(trace.turns[0].results) == 32
    assert "500 calls" in sent_to(model, 2)[-1].text


names = st.one_of(st.sampled_from(["read", "edit", "run", "write", "finish", "plan", ""]), st.text(max_size=80))
arguments = st.one_of(
    st.text(max_size=60),
    st.dictionaries(
        st.sampled_from(["path", "text", "command", "old", "new", "steps", "answer"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=20), st.lists(st.text(max_size=5), max_size=2)),
        max_size=3,
    ).map(json.dumps),
)
garbage = st.builds(
    lambda text, calls, reason: Completion(
        text=text,
        tool_calls=tuple(ToolCall(id=id, name=name, arguments=given) for id, name, given in calls),
        finish_reason=reason,
    ),
    st.text(st.characters(), max_size=60),
    st.lists(st.tuples(st.sampled_from(["", "same", "\ud800"]), names, arguments), max_size=4),
    st.sampled_from(FinishReason),
)


@settings(max_examples=150)
@given(st.lists(garbage, max_size=8))
def test_any_garbage_gives_a_trace_and_what_is_sent_is_well_formed(answers: list[Completion]) -> None:
    trace, model = attempt(answers)
    assert trace.stop_reason in {StopReason.FINISHED, StopReason.MODEL_FAILED, StopReason.STUCK}
    for number in range(1, len(model.asked) + 1):
        check_is_well_formed(sent_to(model, number))
    for turn in trace.turns:
        assert len(turn.results) == len(turn.tool_calls)


# Limits.


def test_turns_are_limited() -> None:
    looks = [say("", ("read", {"path": "pay.py", "first_line": 1, "last_line": line})) for line in range(1, 100)]
    trace, _ = attempt(looks, limits=Limits(turns=7))
    assert (trace.stop_reason, len(trace.turns)) == (StopReason.MAX_TURNS, 7)
    assert "7 turns" in trace.stop_message


def test_tokens_and_money_are_limited() -> None:
    usage = Usage(prompt_tokens=1_000, reused_tokens=400, generated_tokens=100)
    answers = [replace(READ, usage=usage), replace(EDIT, usage=usage), replace(READ, usage=usage)] * 5
    trace, _ = attempt(answers, limits=Limits(tokens=1_400))
    assert (trace.stop_reason, len(trace.turns)) == (StopReason.MAX_TOKENS, 2)
    prices = Prices(prompt=10.0, reused=1.0, generated=100.0)
    trace, _ = attempt(answers, limits=Limits(cost=0.03, prices=prices))
    assert (trace.stop_reason, len(trace.turns)) == (StopReason.MAX_COST, 2)
    assert trace.turns[0].cost == pytest.approx(0.0164)


class Endless(ScriptedModel):
    """Never stops talking, whatever it was told; counts how much it was let."""

    def __init__(self) -> None:
        super().__init__()
        self.num_chunks = 0

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        self.asked.append((prompt, sampling, draft))
        while True:
            await asyncio.sleep(0)
            self.num_chunks += 1
            yield Chunk(text="blah " * 100)


def test_a_model_that_never_stops_is_cut_and_in_the_end_stuck() -> None:
    model = Endless()
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), Limits(answer_tokens=1_000)))
    assert trace.stop_reason is StopReason.STUCK
    assert len(trace.turns) == 6
    assert all(len(turn.text) <= 8_000 for turn in trace.turns)
    assert model.num_chunks <= 6 * 17
    assert "was cut" in sent_to(model, 2)[-1].text


def test_an_answer_of_300_000_tokens_is_cut_and_told() -> None:
    trace, model = attempt(["word " * 300_000, FINISH])
    assert trace.stop_reason is StopReason.FINISHED
    assert len(trace.turns[0].text) <= 16_000 * 8
    assert trace.turns[0].token_ids == ()
    assert "was cut" in sent_to(model, 2)[-1].text


def test_huge_arguments_are_not_kept() -> None:
    trace, model = attempt([say("", ("write", {"path": "a", "text": "x" * 1_000_000})), FINISH])
    assert trace.stop_reason is StopReason.FINISHED
    assert sum(len(message.text) for message in sent_to(model, 2)) < 20_000
    check_is_well_formed(sent_to(model, 2))


def test_time_is_limited_while_the_model_thinks() -> None:
    model = ScriptedModel(["never said"], seconds_per_chunk=3_600.0)
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), Limits(seconds=0.05)))
    assert (trace.stop_reason, trace.turns) == (StopReason.MAX_SECONDS, ())


class Nothing(msgspec.Struct):
    pass


async def _wait(arguments: Nothing, context: object) -> ToolAnswer:
    await asyncio.Event().wait()
    raise AssertionError


WAIT = StructTool(name="wait", description="", arguments=Nothing, action=_wait)


def test_time_is_limited_while_a_tool_works_and_the_turn_is_kept() -> None:
    tools = [WAIT, *tools_for(MemoryWorkspace())]
    answers = [say("", ("read", {"path": "pay.py"}), ("wait", {}), ("read", {"path": "pay.py"}))]
    trace, _ = attempt(answers, tools=tools, limits=Limits(seconds=0.2))
    assert trace.stop_reason is StopReason.MAX_SECONDS
    assert [result.error for result in trace.turns[0].results] == [None, TurnError.TOOL_FAILED, TurnError.TOOL_FAILED]


class Patient:
    """A person who takes their time, and then answers."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def answer(self, question: str, choices: Sequence[str]) -> str | None:
        await asyncio.sleep(self.seconds)
        return "the blue one"

    async def consents(self, action: str, detail: str) -> bool:
        return False


def test_a_person_may_take_longer_than_the_run() -> None:
    answers = [say("", ("ask", {"question": "Which?"})), FINISH]
    trace, _ = attempt(answers, limits=Limits(seconds=0.3), person=Patient(0.4))
    assert trace.stop_reason is StopReason.FINISHED
    assert "the blue one" in trace.turns[0].results[0].text


def test_nobody_there_is_a_typed_answer() -> None:
    seen: list[AgentEvent] = []
    trace, _ = attempt([say("", ("ask", {"question": "Which?"})), FINISH], observer=seen.append)
    assert trace.turns[0].results[0].text.startswith("No answer")
    assert [event.text for event in seen if isinstance(event, QuestionAnswered)] == [None]


# The context.


def test_a_long_run_is_compacted_and_goes_on() -> None:
    files = {f"f{number}.py": f"x{number} = 1\n" * 300 for number in range(60)}
    looks = [say("", ("read", {"path": name})) for name in files]
    trace, model = attempt([*looks, FINISH], MemoryWorkspace(files), limits=Limits(context_tokens=20_000))
    assert trace.stop_reason is StopReason.FINISHED
    fresh = [turn.number for turn in trace.turns if turn.fresh_context]
    assert fresh[0] == 1
    assert len(fresh) > 2
    for number in range(1, len(model.asked) + 1):
        messages = sent_to(model, number)
        check_is_well_formed(messages)
        assert TASK.statement in "".join(message.text for message in messages)
        assert sum(len(message.text) for message in messages) < 20_000 * 4


class Tiny(ScriptedModel):
    """Says that its context is small."""

    context_tokens = 8_000


def test_a_model_that_knows_its_context_is_not_sent_more() -> None:
    files = {f"f{number}.py": f"x{number} = 1\n" * 200 for number in range(20)}
    model = Tiny([*(say("", ("read", {"path": name})) for name in files), FINISH])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(files)))
    assert trace.stop_reason is StopReason.FINISHED
    assert {sampling.max_tokens for _, sampling, _ in model.asked} == {2_000}
    assert any(turn.fresh_context for turn in trace.turns[1:])


class Small(ScriptedModel):
    """Reads fewer characters than it is thought to."""

    def __init__(self, answers: Iterable[str | Completion], most: int) -> None:
        super().__init__(answers)
        self.most = most
        self.num_refused = 0

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        assert isinstance(prompt, Chat)
        length = sum(len(message.text) for message in prompt.messages)
        if length > self.most:
            self.num_refused += 1
            raise PromptTooLong(f"{length} characters are more than {self.most}.")
        async for item in super().complete(prompt, sampling, draft=draft):
            yield item


def test_a_prompt_that_is_too_long_is_compacted_and_asked_again() -> None:
    files = {f"f{number}.py": f"x{number} = 1\n" * 200 for number in range(20)}
    model = Small([*(say("", ("read", {"path": name})) for name in files), FINISH], 20_000)
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(files), Limits()))
    assert trace.stop_reason is StopReason.FINISHED
    assert sum(turn.fresh_context for turn in trace.turns) > 2
    assert model.num_refused == 1, "it is known from then on how much is too much"


def test_a_context_that_holds_nothing_is_full() -> None:
    trace = asyncio.run(run(TASK, Small([FINISH], 10), MemoryWorkspace(FILES)))
    assert trace.stop_reason is StopReason.CONTEXT_FULL


def test_a_long_output_is_cut_and_can_be_read_on() -> None:
    workspace = MemoryWorkspace(FILES, commands={"make": "\n".join(f"line {number}" for number in range(9_000))})
    recall = say("", ("recall", {"id": "output:1", "first_line": 5_001, "last_line": 5_001}))
    trace, _ = attempt([say("", ("run", {"command": "make"})), recall, FINISH], workspace)
    text = trace.turns[0].results[0].text
    assert len(text) <= 24_000
    assert "line 0\n" in text
    assert "line 8999" in text
    assert "line 5000" not in text
    assert "line 5000" in trace.turns[1].results[0].text


# Models and servers that fail.


class Failing(ScriptedModel):
    """Raises before each answer as often as it is told."""

    def __init__(self, answers: Iterable[str | Completion], errors: Iterable[Exception]) -> None:
        super().__init__(answers)
        self.errors = list(errors)

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        if self.errors:
            raise self.errors.pop(0)
        async for item in super().complete(prompt, sampling, draft=draft):
            yield item


BUSY = ServerRefused("Busy.", url="http://h", status=503)


def test_a_server_that_fails_for_a_while_is_asked_again() -> None:
    seen: list[AgentEvent] = []
    model = Failing([READ, FINISH], [BUSY, ServerUnreachable("Gone.", url="http://h")])
    limits = Limits(retry_seconds=0.0)
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), limits, observer=seen.append))
    assert trace.stop_reason is StopReason.FINISHED
    assert len([event for event in seen if isinstance(event, Notice) and "Asking again" in event.text]) == 2


def test_a_server_that_stays_away_ends_the_run() -> None:
    model = Failing([READ], [BUSY] * 50)
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), Limits(retries=3, retry_seconds=0.0)))
    assert (trace.stop_reason, trace.stop_message) == (StopReason.MODEL_FAILED, "Busy.")
    assert len(model.errors) == 46


@pytest.mark.parametrize("error", [ServerRefused("Wrong key.", url="http://h", status=401), ModelError("No.")])
def test_what_will_not_pass_is_not_asked_again(error: ModelError) -> None:
    model = Failing([READ], [error, error])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES)))
    assert trace.stop_reason is StopReason.MODEL_FAILED
    assert len(model.errors) == 1


def test_a_slip_of_ours_is_a_trace_that_was_saved(tmp_path: Path) -> None:
    model = Failing([READ], [ZeroDivisionError("oh")])
    trace = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), store=TraceStore(tmp_path)))
    assert trace.stop_reason is StopReason.CRASHED
    assert trace.stop_message.startswith("ZeroDivisionError: oh (test_loop.py, line ")
    assert load(tmp_path) == trace


def test_a_watcher_that_fails_does_not_lose_the_trace(tmp_path: Path) -> None:
    def watch(event: AgentEvent) -> None:
        if isinstance(event, CallFinished | Stopped):
            raise RuntimeError("the terminal is gone")

    trace, _ = attempt([READ, FINISH], observer=watch, store=TraceStore(tmp_path))
    assert trace.stop_reason is StopReason.CRASHED
    assert load(tmp_path) == trace


def test_a_trace_that_cannot_be_saved_ends_the_run_and_is_given_back(tmp_path: Path) -> None:
    class Full(TraceStore):
        """A disk without room."""

        def append(self, turn: Turn) -> None:
            raise FileNotWritable("No room.")

    trace, _ = attempt([READ, READ, FINISH], store=Full(tmp_path))
    assert (trace.stop_reason, trace.stop_message) == (StopReason.CRASHED, "No room.")
    assert len(trace.turns) == 1


def test_the_folder_of_another_run_is_left_as_it_is(tmp_path: Path) -> None:
    first, _ = attempt([READ, FINISH], store=TraceStore(tmp_path))
    with pytest.raises(TraceUnusable, match="empty folder"):
        attempt([READ, FINISH], store=TraceStore(tmp_path))
    assert load(tmp_path) == first


# What surrounds the calls.


def _divisions(files: dict[str, str]) -> list[Diagnostic]:
    """Every line with a 0 divided by is an error."""
    return [
        Diagnostic(
            place=Place(path=path, line=number, column=1, end_line=number, end_column=2),
            severity=Severity.ERROR,
            message=f"division by zero: {line.strip()}",
            server="memory",
        )
        for path, text in files.items()
        for number, line in enumerate(text.split("\n"), 1)
        if "/ 0" in line
    ]


def test_new_and_gone_diagnostics_are_told_once() -> None:
    seen: list[AgentEvent] = []
    bad, worse = "x = 1 / 0\n", "y = 2\nx = 1 / 0\nz = 3 / 0\n"
    answers = [
        say("", ("write", {"path": "a.py", "text": bad}), ("read", {"path": "pay.py"})),
        say("", ("write", {"path": "a.py", "text": worse})),
        READ,
        say("", ("write", {"path": "a.py", "text": "y = 2\n"})),
        FINISH,
    ]
    trace, model = attempt(answers, MemoryWorkspace(FILES, check=_divisions), observer=seen.append)
    first, second, third, fourth, _ = (turn.notes for turn in trace.turns)
    assert "a.py:1:1 error: division by zero: x = 1 / 0" in first[0]
    assert "z = 3" in second[0]
    assert "x = 1" not in second[0], "it only moved"
    assert third == ()
    assert "Gone (2)" in fourth[0]
    assert sent_to(model, 2)[-1].role is Role.TOOL
    assert "division by zero" in sent_to(model, 2)[-1].text
    changes = [event for event in seen if isinstance(event, DiagnosticsChanged)]
    assert [len(event.appeared) for event in changes] == [1, 2, 0]


def test_the_same_mistake_a_second_time_is_new() -> None:
    texts = ["x = 1 / 0\n", "x = 1 / 0\n" * 2]
    answers = [*(say("", ("write", {"path": "a.py", "text": text})) for text in texts), FINISH]
    trace, _ = attempt(answers, MemoryWorkspace(FILES, check=_divisions))
    assert [note.count("division by zero") for turn in trace.turns for note in turn.notes] == [1, 1]


class Followable(MemoryWorkspace):
    """The person edits between turns."""

    def __init__(self, files: dict[str, str], edits: list[list[Followed]]) -> None:
        super().__init__(files)
        self.edits = edits

    async def follow(self) -> list[Followed]:
        return self.edits.pop(0) if self.edits else []

    async def set_buffer(self, path: str, text: str | None) -> None:
        raise AssertionError


def test_edits_of_the_person_are_told() -> None:
    edits = [[Followed(path="pay.py")], [], [Followed(path="a", merged=True), Followed(path="b", conflict=True)]]
    trace, model = attempt([READ, EDIT, READ, FINISH], Followable(FILES, edits))
    assert "The person changed pay.py" in sent_to(model, 2)[-1].text
    assert trace.turns[1].notes == ()
    assert "both changes" in trace.turns[2].notes[0]
    assert "your version" in trace.turns[2].notes[0]


def test_a_turn_names_the_state_before_its_calls() -> None:
    workspace = MemoryWorkspace(FILES)
    trace, _ = attempt([READ, EDIT, READ, say("", ("write", {"path": "b", "text": ""})), FINISH], workspace)
    assert [turn.checkpoint for turn in trace.turns] == ["1", "1", "2", "2", "3"]
    asyncio.run(workspace.restore("2"))
    assert "sum" in workspace.files["pay.py"]
    assert "b" not in workspace.files
    asyncio.run(workspace.restore("1"))
    assert workspace.files == FILES


def test_a_command_that_changes_nothing_needs_no_checkpoint_after_it() -> None:
    def shell(command: Command, files: dict[str, str]) -> str:
        if command.line == "make":
            files["made"] = ""
        return ""

    workspace = MemoryWorkspace(FILES, commands=shell)
    look, make = (say("", ("run", {"command": command})) for command in ("ls", "make"))
    trace, _ = attempt([look, look, make, EDIT, FINISH], workspace)
    assert [turn.checkpoint for turn in trace.turns] == ["1", "1", "1", "2", "3"]


# Stopping and going on.


class Hanging(ScriptedModel):
    """Says when its script is over, and then hangs."""

    def __init__(self, answers: Iterable[str | Completion]) -> None:
        super().__init__(answers)
        self.num_left = len(list(answers))
        self.hangs = asyncio.Event()

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        self.num_left -= 1
        if self.num_left < 0:
            self.hangs.set()
            await asyncio.Event().wait()
        async for item in super().complete(prompt, sampling, draft=draft):
            yield item


def test_cancelling_while_the_model_thinks_saves_what_there_is(tmp_path: Path) -> None:
    async def stop_it() -> None:
        model = Hanging([READ, EDIT])
        task = asyncio.create_task(run(TASK, model, MemoryWorkspace(FILES), store=TraceStore(tmp_path)))
        await model.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop_it())
    trace = load(tmp_path)
    assert (trace.stop_reason, len(trace.turns)) == (StopReason.STOPPED, 2)
    model = ScriptedModel([FINISH])
    done = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), store=TraceStore(tmp_path), resume=trace))
    assert done.stop_reason is StopReason.FINISHED
    assert done.id == trace.id
    assert len(done.turns) == 3
    check_is_well_formed(sent_to(model, 1))
    assert load(tmp_path) == done


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.agent.test_loop import EDIT, FILES, READ, TASK, Hanging
from etude.agent.loop import run
from etude.agent.store import TraceStore
from etude.workspace.memory import MemoryWorkspace

async def main():
    model = Hanging([READ, EDIT])
    task = asyncio.create_task(run(TASK, model, MemoryWorkspace(FILES), store=TraceStore(Path(sys.argv[1]))))
    await model.hangs.wait()
    print("hangs", flush=True)
    await task

asyncio.run(main())
"""


def test_a_process_that_is_killed_leaves_a_trace_that_goes_on(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "hangs\n"
        process.kill()
    trace = load(tmp_path)
    assert (trace.stop_reason, len(trace.turns)) == (None, 2)
    model = ScriptedModel([FINISH])
    done = asyncio.run(run(TASK, model, MemoryWorkspace(FILES), store=TraceStore(tmp_path), resume=trace))
    assert (done.stop_reason, len(done.turns)) == (StopReason.FINISHED, 3)
    check_is_well_formed(sent_to(model, 1))
    assert load(tmp_path) == done


def test_cancelling_in_a_call_answers_all_calls_of_the_turn(tmp_path: Path) -> None:
    async def stop_it() -> None:
        waits = asyncio.Event()

        async def action(arguments: Nothing, context: object) -> ToolAnswer:
            waits.set()
            return await _wait(arguments, context)

        wait = StructTool(name="wait", description="", arguments=Nothing, action=action, kind=ToolKind.LOOKS)
        workspace = MemoryWorkspace(FILES)
        model = ScriptedModel([say("", ("read", {"path": "pay.py"}), ("wait", {}), ("read", {"path": "pay.py"}))])
        tools = [wait, *tools_for(workspace)]
        task = asyncio.create_task(run(TASK, model, workspace, store=TraceStore(tmp_path), tools=tools))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop_it())
    trace = load(tmp_path)
    assert trace.stop_reason is StopReason.STOPPED
    assert [result.error for result in trace.turns[0].results] == [None, TurnError.TOOL_FAILED, TurnError.TOOL_FAILED]
    model = ScriptedModel([FINISH])
    asyncio.run(run(TASK, model, MemoryWorkspace(FILES), resume=trace))
    check_is_well_formed(sent_to(model, 1))


def test_a_resumed_run_sends_what_it_would_have_sent(tmp_path: Path) -> None:
    answers = [READ, "no call", EDIT, say("", ("nope", "{")), FINISH]
    whole, model = attempt(answers, MemoryWorkspace(FILES))
    for stop in range(1, 5):
        again = ScriptedModel(answers[stop:])
        part = fork(whole, stop)
        workspace = MemoryWorkspace(FILES if stop < 3 else {**FILES, "pay.py": FILES["pay.py"].replace("max", "sum")})
        done = asyncio.run(run(TASK, again, workspace, resume=part))
        assert sent_to(again, 1) == sent_to(model, stop + 1)
        assert done.stop_reason is StopReason.FINISHED
        assert (done.parent, len(done.turns)) == (whole.id, 5)


def test_limits_hold_for_a_resumed_run_as_a_whole() -> None:
    looks = [say("", ("read", {"path": "pay.py", "last_line": line})) for line in range(1, 20)]
    trace, _ = attempt(looks, limits=Limits(turns=5))
    resumed, _ = attempt(looks, limits=Limits(turns=8), resume=trace)
    assert len(resumed.turns) == 8


def test_a_new_statement_goes_on_with_the_conversation() -> None:
    first, _ = attempt([READ, FINISH])
    model = ScriptedModel([say("", ("finish", {"answer": "Renamed."}))])
    task = Task(id="t2", statement="Now rename it.")
    second = asyncio.run(run(task, model, MemoryWorkspace(FILES), resume=first))
    assert second.answer == "Renamed."
    assert "Now rename it." in sent_to(model, 1)[-1].text
    assert "Let me look." in sent_to(model, 1)[2].text
    with pytest.raises(TraceUnusable, match="finished"):
        asyncio.run(run(TASK, model, MemoryWorkspace(FILES), resume=first))


# Overhead.


def test_a_turn_costs_little_however_long_the_run(tmp_path: Path) -> None:
    """The best of two, since the machine does other things too; nothing here may grow with the number of turns."""

    def seconds(folder: Path) -> float:
        answers = [
            say("hm", ("write", {"path": f"f{number}.py", "text": "x = 1\n" * 50}), ("read", {"path": "pay.py"}))
            for number in range(500)
        ]
        started = time.process_time()
        limits = Limits(turns=10_000, context_tokens=10_000_000)
        trace, _ = attempt([*answers, FINISH], store=TraceStore(folder), limits=limits)
        assert (trace.stop_reason, len(trace.turns)) == (StopReason.FINISHED, 501)
        return (time.process_time() - started) / len(trace.turns)

    assert min(seconds(tmp_path / str(number)) for number in range(2)) < 0.005
