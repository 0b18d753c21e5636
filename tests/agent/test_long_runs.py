"""A run of hundreds of turns goes through many compactions and still reads what it saw at the beginning."""

import asyncio
import json
from pathlib import Path

from etude.agent.limits import Limits
from etude.agent.loop import run
from etude.agent.store import TraceStore, load
from etude.messages import Chat, Completion, Role, ToolCall
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.traces import StopReason
from etude.workspace.memory import MemoryWorkspace

TURNS = 600
TASK = Task(id="long", statement="Find the port, then say it.")


def call(number: int, name: str, **arguments: object) -> Completion:
    made = ToolCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))
    return Completion(text=f"Turn {number}.", tool_calls=(made,))


def test_a_fact_of_the_third_turn_is_read_back_after_six_hundred(tmp_path: Path) -> None:
    files = {f"notes/{number}.txt": f"note {number}\n" * 150 for number in range(1, TURNS + 1)}
    files["notes/3.txt"] = "nothing\n" * 70 + "the port is 48151\n" + "nothing\n" * 70
    workspace = MemoryWorkspace(files)
    steps = [call(number, "read", path=f"notes/{number}.txt") for number in range(1, TURNS + 1)]
    steps[4] = call(5, "plan", steps=[{"text": "read all notes", "state": "active"}])
    steps[5] = call(6, "write", path="found.txt", text="soon\n")
    steps += [
        call(TURNS + 1, "recall", query="the port is"),
        call(TURNS + 2, "recall", id="turn:3", first_line=70, last_line=80),
        call(TURNS + 3, "finish", answer="48151"),
    ]
    model = ScriptedModel(steps)
    limits = Limits(turns=TURNS + 10, context_tokens=24_000)
    trace = asyncio.run(run(TASK, model, workspace, limits, store=TraceStore(tmp_path)))

    assert (trace.stop_reason, len(trace.turns)) == (StopReason.FINISHED, TURNS + 3)
    compactions = [turn for turn in trace.turns[1:] if turn.fresh_context]
    assert 20 <= len(compactions) <= 200
    found, read, _ = (turn.results[0] for turn in trace.turns[-3:])
    assert "turn:3:" in found.text and "the port is 48151" in read.text
    assert [turn for turn in load(tmp_path).turns if turn.fresh_context][1:] == compactions
    for turn in compactions:
        page = turn.sent[1].text
        assert turn.sent[0].role is Role.SYSTEM
        assert TASK.statement in page and "[>] read all notes" in page and "found.txt" in page
    for prompt, _, _ in model.asked:
        assert isinstance(prompt, Chat)
        assert sum(len(message.text) for message in prompt.messages) < 24_000 * 4
