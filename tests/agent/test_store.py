"""Traces come back from disk as they were, whatever interrupted the writing."""

import json
import math
import resource
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.events import CallFinished, Started, Stopped, TextWritten
from etude.agent.store import FILE, TraceStore, decoded, encoded, fork, load, new_id, replay, summary_of
from etude.errors import FileNotWritable, TraceUnusable
from etude.messages import Message, Role, ToolCall
from etude.tasks import Task
from etude.traces import StopReason, ToolResult, Trace, Turn, TurnError

CALL = ToolCall(id="t1", name="read", arguments='{"path": "pay.py"}')


def turn(number: int, **more: object) -> Turn:
    sent = (Message(role=Role.USER, text="Do it."),)
    result = ToolResult(call=CALL, text="x = 1", changed=("pay.py",))
    made = Turn(number=number, sent=sent, text=f"answer {number}", tool_calls=(CALL,), results=(result,))
    return replace(made, **more)


def trace(num_turns: int = 3) -> Trace:
    task = Task(id="t", statement="Do it.")
    turns = tuple(turn(number, fresh_context=number == 1) for number in range(1, num_turns + 1))
    return Trace(id=new_id(), task=task, model="m", chat_format="", tools=("read",), turns=turns)


def save(folder: Path, given: Trace) -> Trace:
    store = TraceStore(folder)
    store.begin(replace(given, turns=()))
    for one in given.turns:
        store.append(one)
    store.finish(StopReason.FINISHED, "", "Done.")
    return replace(given, stop_reason=StopReason.FINISHED, answer="Done.")


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    saved = save(tmp_path / "run", trace())
    assert load(tmp_path / "run") == saved
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600


@given(st.text(st.characters(), max_size=50), st.lists(st.floats(max_value=0, allow_nan=False), max_size=4))
def test_any_text_and_any_logprob_survive(text: str, logprobs: list[float]) -> None:
    one = turn(1, text=text, logprobs=tuple(logprobs), token_ids=tuple(range(len(logprobs))))
    line = encoded(one)
    assert b"\n" not in line
    assert line.startswith(b'{"number"')
    assert decoded(line, Turn) == one


def test_infinities_are_kept() -> None:
    assert decoded(encoded(turn(1, logprobs=(-math.inf,))), Turn).logprobs == (-math.inf,)


def test_every_way_of_being_cut_short_gives_the_turns_before(tmp_path: Path) -> None:
    save(tmp_path, trace(2))
    data = (tmp_path / FILE).read_bytes()
    lengths = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for length in range(lengths[0], len(data), 37):
        (tmp_path / FILE).write_bytes(data[:length])
        whole_lines = sum(end <= length for end in lengths)
        loaded = load(tmp_path)
        assert len(loaded.turns) == min(2, whole_lines - 1)
        assert loaded.stop_reason is None


def test_a_run_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    save(tmp_path, trace(3))
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-120])
    loaded = load(tmp_path)
    store = TraceStore(tmp_path)
    store.begin(loaded)
    store.append(turn(4))
    store.finish(StopReason.MAX_TURNS)
    again = load(tmp_path)
    assert [one.number for one in again.turns] == [one.number for one in loaded.turns] + [4]
    assert again.stop_reason is StopReason.MAX_TURNS


def test_going_on_forgets_the_earlier_end(tmp_path: Path) -> None:
    saved = save(tmp_path, trace(1))
    TraceStore(tmp_path).begin(replace(saved, stop_reason=None, answer=""))
    assert load(tmp_path).stop_reason is None


def test_a_fork_is_saved_whole_in_a_folder_of_its_own(tmp_path: Path) -> None:
    saved = save(tmp_path / "a", trace(3))
    forked = fork(saved, 2)
    assert (forked.parent, len(forked.turns), forked.stop_reason, forked.answer) == (saved.id, 2, None, "")
    with pytest.raises(TraceUnusable, match="Choose an empty folder"):
        TraceStore(tmp_path / "a").begin(forked)
    TraceStore(tmp_path / "b").begin(forked)
    assert load(tmp_path / "b") == forked
    with pytest.raises(TraceUnusable, match="3 turns"):
        fork(saved, 4)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        (b"", "no head"),
        (b'{"format": "etude-trace-1"', "no head"),
        (b'{"format":"etude-trace-9","id":"a","task":{"id":"","statement":""},"model":"","chat_format":"","tools":[]}\n',
         "etude-trace-9"),
        (b"\xff\xfe\n", "line 1"),
        (b'{"number": 1}\n', "line 1"),
        (b"[" * 100_000 + b"\n", "line 1"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_said(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(TraceUnusable, match=told):
        load(tmp_path)


def test_a_line_that_finds_no_room_is_taken_back(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.begin(trace(0))
    before = (tmp_path / FILE).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(FileNotWritable):
            store.append(turn(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / FILE).read_bytes() == before
    store.append(turn(1))
    assert load(tmp_path).turns == (turn(1),)


def test_a_replay_shows_what_was_seen(tmp_path: Path) -> None:
    wrong = ToolResult(call=CALL, text="No.", error=TurnError.TOOL_FAILED)
    saved = save(tmp_path, replace(trace(2), turns=(turn(1), turn(2, results=(wrong,)))))
    events = list(replay(saved))
    assert isinstance(events[0], Started)
    assert [event.text for event in events if isinstance(event, TextWritten)] == ["answer 1", "answer 2"]
    assert [event.error for event in events if isinstance(event, CallFinished)] == ["", "tool_failed"]
    assert isinstance(events[-1], Stopped)
    assert events[-1].changed == ["pay.py"]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '{"path": "a\\nb"}', json.dumps({"path": "x" * 10_000})])
def test_a_summary_is_one_short_line(arguments: str) -> None:
    line = summary_of(ToolCall(id="1", name="read", arguments=arguments))
    assert line.startswith("read")
    assert "\n" not in line
    assert len(line) <= 80
