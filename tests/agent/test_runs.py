"""Runs as real processes: started, watched, asked, stopped, killed, recovered; and a state folder full of junk."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.agent import runs
from etude.agent.events import AgentEvent, Notice, OutputPrinted, QuestionAnswered, QuestionAsked, Started, Stopped
from etude.agent.run_folder import RunFolder, runs_folder
from etude.agent.run_values import RunOptions, RunState
from etude.errors import EtudeError, InputError, RunUnknown

PROGRAM = (sys.executable, str(Path(__file__).parent / "run_program.py"))

Start = Callable[..., str]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def start(state: Path, tmp_path: Path) -> Iterator[Start]:
    root = tmp_path / "tree"
    root.mkdir()

    def start(work: str, *, options: RunOptions | None = None) -> str:
        return runs.start(root, work, options=options or RunOptions(), program=PROGRAM)

    yield start
    for summary in runs.runs():
        folder = RunFolder(state / "runs" / summary.id)
        if folder.is_alive():
            os.kill(folder.pid(), signal.SIGKILL)


async def everything(run: str) -> list[AgentEvent]:
    return [event async for event in runs.events(run)]


async def until(run: str, kind: type[AgentEvent]) -> AgentEvent:
    async for event in runs.events(run):
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came")


def pid_of(run: str) -> int:
    return RunFolder(runs_folder() / run).pid()


def test_a_run_is_started_at_once_watched_and_listed(start: Start) -> None:
    run = start("finish")
    assert runs.find(run).state in (RunState.STARTING, RunState.RUNNING, RunState.STOPPED)
    events = asyncio.run(everything(run))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Stopped)
    assert (events[-1].reason, events[-1].answer) == ("finished", "done")
    (listed,) = runs.runs()
    assert (listed.id, listed.state, listed.statement) == (run, RunState.STOPPED, "finish")
    assert (listed.status.num_turns, listed.status.cost, listed.status.model) == (1, 0.5, "none")
    # Whoever comes late reads the same.
    assert asyncio.run(everything(run)) == events


def test_what_was_changed_is_kept_after_the_process_ended(start: Start) -> None:
    run = start("finish")
    last = asyncio.run(everything(run))[-1]
    changes = asyncio.run(runs.changes(run))
    assert [change.path for change in changes] == ["pay.py", "name-\udcff.txt"]
    assert (changes[0].before, changes[0].after, changes[1].after) == (b"old\n", b"new\n", b"\xff\0")
    assert isinstance(last, Stopped)
    assert last.changed == ["pay.py", "name-?.txt"]


def test_endless_output_is_cut_in_the_record(start: Start) -> None:
    printed = [event for event in asyncio.run(everything(start("finish"))) if isinstance(event, OutputPrinted)]
    assert [len(event.text) for event in printed[:1]] == [200_000]
    assert "not shown here" in printed[-1].text
    assert len(printed) == 2


def test_a_question_waits_and_is_answered(start: Start) -> None:
    async def scene() -> None:
        run = start("ask")
        asked = await until(run, QuestionAsked)
        assert isinstance(asked, QuestionAsked)
        summary = runs.find(run)
        assert summary.state is RunState.WAITING
        assert summary.status.question
        assert summary.status.question.text == "Which?"
        with pytest.raises(InputError, match="no longer open"):
            await runs.answer(run, "question-7", "x")
        await runs.answer(run, asked.id, "the b")
        events = await everything(run)
        assert [event.text for event in events if isinstance(event, QuestionAnswered)] == ["the b"]
        assert isinstance(events[-1], Stopped)
        assert events[-1].answer == "they said the b"

    asyncio.run(scene())


def test_nobody_answers_an_unattended_run(start: Start) -> None:
    events = asyncio.run(everything(start("ask", options=RunOptions(unattended=True))))
    assert isinstance(events[-1], Stopped)
    assert events[-1].answer == "they said None"
    events = asyncio.run(everything(start("consent", options=RunOptions(unattended=True))))
    assert isinstance(events[-1], Stopped)
    assert events[-1].answer == "allowed: False"


def test_consent_is_a_question(start: Start) -> None:
    async def scene() -> None:
        run = start("consent")
        asked = await until(run, QuestionAsked)
        assert isinstance(asked, QuestionAsked)
        assert asked.choices == ["yes", "no"]
        await runs.answer(run, "", "yes")
        last = (await everything(run))[-1]
        assert isinstance(last, Stopped)
        assert last.answer == "allowed: True"

    asyncio.run(scene())


def test_stopping_saves_what_was_changed(start: Start) -> None:
    async def scene() -> None:
        run = start("hang")
        await until(run, Started)
        stopped = await runs.stop(run)
        assert (stopped.state, stopped.status.reason) == (RunState.STOPPED, "stopped")
        assert [change.path for change in await runs.changes(run)] == ["pay.py", "name-\udcff.txt"]
        assert isinstance((await everything(run))[-1], Stopped)

    asyncio.run(scene())


def test_a_run_that_takes_no_order_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        monkeypatch.setattr(runs, "STOP_SECONDS", 0.2)
        run = start("stubborn")
        await until(run, Started)
        assert (await runs.stop(run)).state is RunState.CRASHED

    asyncio.run(scene())


def test_a_killed_process_is_seen_by_who_watches_and_by_the_list(start: Start) -> None:
    async def scene() -> None:
        run = start("hang")
        await until(run, Started)
        watching = asyncio.ensure_future(everything(run))
        await asyncio.sleep(0)
        os.kill(pid_of(run), signal.SIGKILL)
        last = (await watching)[-1]
        assert isinstance(last, Stopped)
        assert last.reason == "crashed"
        assert f"etude agent resume {run}" in last.message
        assert runs.find(run).state is RunState.CRASHED
        with pytest.raises(InputError, match="not at work"):
            await runs.answer(run, "", "x")
        assert await runs.changes(run) == []

    asyncio.run(scene())


def test_the_last_words_of_a_process_are_told(start: Start) -> None:
    last = asyncio.run(everything(start("die")))[-1]
    assert isinstance(last, Stopped)
    assert "the last words" in last.message


@pytest.mark.parametrize(
    ("work", "message"), [("fail", "No shadow here. Get one."), ("slip", "etude itself failed: ZeroDivisionError")]
)
def test_a_failure_is_an_end_with_a_reason(start: Start, work: str, message: str) -> None:
    run = start(work)
    last = asyncio.run(everything(run))[-1]
    assert isinstance(last, Stopped)
    assert last.reason == "crashed"
    assert message in last.message
    assert runs.find(run).state is RunState.STOPPED


def test_a_run_goes_on_after_a_crash(start: Start) -> None:
    async def scene() -> None:
        run = start("die")
        assert (await everything(run))[-1].message.startswith("The process of this run is gone")  # ty: ignore
        runs.resume(run, program=(sys.executable, "-c", _FINISH_INSTEAD, *PROGRAM[1:]))
        events = await everything(run)
        assert [type(event) for event in events].count(Stopped) == 1
        assert any(isinstance(event, Notice) and event.text == "The run goes on." for event in events)
        assert isinstance(events[-1], Stopped)
        assert events[-1].reason == "finished"

    asyncio.run(scene())


# The same process, with another work.
_FINISH_INSTEAD = """
import asyncio, runpy, sys
from pathlib import Path
program = runpy.run_path(sys.argv[1])
program["WORKS"]["die"] = program["finish"]
asyncio.run(program["RunSession"](program["RunFolder"](Path(sys.argv[2]))).perform(program["work"]))
"""


def test_a_run_at_work_is_neither_resumed_nor_landed(start: Start) -> None:
    async def scene() -> None:
        run = start("hang")
        with pytest.raises(InputError, match="still at work"):
            runs.resume(run, program=PROGRAM)
        with pytest.raises(InputError, match="still at work"):
            await runs.land(run)
        await runs.discard(run)

    asyncio.run(scene())


def test_discarding_ends_the_process_and_leaves_nothing(start: Start, state: Path) -> None:
    async def scene() -> None:
        run = start("hang")
        await until(run, Started)
        pid = pid_of(run)
        await runs.discard(run)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert list((state / "runs").iterdir()) == []
        with pytest.raises(RunUnknown):
            runs.find(run)

    asyncio.run(scene())


def test_several_runs_at_once_are_apart(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        names = [start("ask") for _ in range(3)]
        asked = await asyncio.gather(*(until(run, QuestionAsked) for run in names))
        assert len(asked) == 3
        await asyncio.gather(*(runs.answer(run, "", run) for run in names))
        lasts = [(await everything(run))[-1] for run in names]
        assert [last.answer for last in lasts if isinstance(last, Stopped)] == [f"they said {run}" for run in names]

    asyncio.run(scene())
    assert len(runs.runs(tmp_path / "tree")) == 3
    assert runs.runs(tmp_path) == []


def test_a_run_survives_the_process_and_the_terminal_that_started_it(state: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from etude.agent import runs;"
        f"print(runs.start(Path({str(tmp_path)!r}), 'ask', program={PROGRAM!r}))"
    )
    terminal, other_end = os.openpty()
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdin=other_end, stdout=subprocess.PIPE, stderr=other_end, start_new_session=True
    )
    os.close(other_end)
    assert starter.stdout
    run = starter.stdout.read().decode().strip()
    assert starter.wait() == 0
    starter.stdout.close()
    os.close(terminal)

    async def scene() -> None:
        await until(run, QuestionAsked)
        await runs.answer(run, "", "still there")
        last = (await everything(run))[-1]
        assert isinstance(last, Stopped)
        assert last.answer == "they said still there"

    asyncio.run(scene())


def test_an_id_may_be_shortened_as_long_as_it_is_clear(start: Start) -> None:
    first = start("finish")
    assert runs.find(first[:-1]).id == first
    second = start("finish")
    with pytest.raises(RunUnknown, match="could be"):
        runs.find("finish")
    for run in (first, second):
        asyncio.run(everything(run))


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "A", "x" * 60, "a\n", "-a", "\udcff"])
def test_a_name_that_is_none_is_refused(state: Path, name: str) -> None:
    with pytest.raises(RunUnknown):
        runs.find(name)


def test_junk_in_the_state_folder_is_passed_over(start: Start, state: Path) -> None:
    run = start("finish")
    asyncio.run(everything(run))
    junk = state / "runs"
    (junk / "a-file").write_text("x")
    (junk / "empty").mkdir()
    (junk / "link").symlink_to(junk / run)
    (junk / "Not A Run!").mkdir()
    os.mkdir(os.fsencode(junk) + b"/\xff")  # noqa: PTH102
    for name, content in {
        "nonsense": b"\xff\0",
        "empty-json": b"",
        "deep": b"[" * 100_000,
        "big": b'"' + b"x" * 3_000_000,
        "other-id": (junk / run / "run.json").read_bytes(),
    }.items():
        (junk / name).mkdir()
        (junk / name / "run.json").write_bytes(content)
    (junk / "pipe").mkdir()
    os.mkfifo(junk / "pipe" / "run.json")
    (junk / "away").mkdir()
    (junk / "away" / "run.json").symlink_to("/dev/zero")
    (junk / run / "status.json").write_bytes(b"{")
    (junk / run / "events.jsonl").write_bytes(b'nonsense\n{"event": "future"}\n')
    assert [summary.id for summary in runs.runs()] == [run]
    events = asyncio.run(everything(run))
    assert [type(event) for event in events] == [Notice, Notice, Stopped]


def test_the_folder_is_the_users_alone(start: Start, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start("finish")
    asyncio.run(everything(run))
    for folder in (state / "runs", state / "runs" / run):
        assert folder.stat().st_mode & 0o077 == 0
    (state / "runs").chmod(0o777)
    runs.runs()
    assert (state / "runs").stat().st_mode & 0o077 == 0
    (state.parent / "elsewhere").mkdir()
    (state.parent / "elsewhere" / "runs").symlink_to(state / "runs")
    with monkeypatch.context() as patch:
        patch.setenv("ETUDE_STATE", str(state.parent / "elsewhere"))
        with pytest.raises(InputError, match="not a folder of yours"):
            runs.runs()


@pytest.mark.parametrize(
    ("statement", "options", "message"),
    [
        ("  ", RunOptions(), "Nothing was asked"),
        ("x" * 100_001, RunOptions(), "100001 characters"),
        ("x", RunOptions(best_of=0), "from 1 to 16"),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_nothing(
    state: Path, tmp_path: Path, statement: str, options: RunOptions, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        runs.start(tmp_path, statement, options=options, program=PROGRAM)
    with pytest.raises(InputError, match="not a folder"):
        runs.start(tmp_path / "none", "x", program=PROGRAM)
    assert runs.runs() == []


def test_a_program_that_is_not_there_leaves_no_run(state: Path, tmp_path: Path) -> None:
    with pytest.raises(EtudeError, match="cannot be started"):
        runs.start(tmp_path, "x", program=(str(tmp_path / "no-python"),))
    assert runs.runs() == []


def test_nonsense_over_the_socket_is_answered(start: Start) -> None:
    async def scene() -> None:
        run = start("hang")
        await until(run, Started)
        with socket.socket(socket.AF_UNIX) as client:
            folder = os.open(runs_folder() / run, os.O_RDONLY)
            await asyncio.to_thread(client.connect, f"/proc/self/fd/{folder}/socket")
            os.close(folder)
            await asyncio.to_thread(client.sendall, b"nonsense\n")
            assert b"This is no order" in await asyncio.to_thread(client.recv, 1000)
        assert (await runs.stop(run)).status.reason == "stopped"

    asyncio.run(scene())


def test_a_landing_can_be_taken_back(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        run = start("finish")
        await everything(run)
        (tmp_path / "tree" / "pay.py").write_bytes(b"old\n")
        report = await runs.land(run, {"pay.py": [0]})
        assert (tmp_path / "tree" / "pay.py").read_bytes() == b"new\n"
        assert runs.find(run).state is RunState.APPLIED
        await runs.undo(run, report)
        assert (tmp_path / "tree" / "pay.py").read_bytes() == b"old\n"
        assert runs.find(run).state is RunState.STOPPED

    asyncio.run(scene())


def test_a_landing_that_writes_nothing_is_none(start: Start) -> None:
    async def scene() -> None:
        run = start("finish")
        await everything(run)
        assert (await runs.land(run, {})).written == ()
        assert runs.find(run).state is RunState.STOPPED

    asyncio.run(scene())
