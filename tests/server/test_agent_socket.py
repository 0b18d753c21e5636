"""The agent panel over its WebSocket: a real server and socket, runs that are scripted or real folders on disk."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus

from etude.agent.events import CallStarted, OutputPrinted, QuestionAsked, TextWritten, TurnStarted
from etude.agent.run_values import RunOptions
from etude.server.agent_outbox import MAX_CALL_TEXT, MAX_OUTPUT_WAITING, AgentOutbox
from etude.server.agent_socket import MAX_MESSAGE_CHARACTERS
from etude.server.agent_wire import Events
from etude.server.scripted_runs import ScriptedRuns, Until
from etude.workspace.workspace import ChangeKind, FileChange

BEFORE = "one\ntwo\nthree\nfour\nfive\n"
AFTER = "ONE\ntwo\nthree\nfour\nFIVE\n"
CHANGES = [
    FileChange(path="a.txt", kind=ChangeKind.MODIFIED, before=BEFORE.encode(), after=AFTER.encode()),
    FileChange(path="logo.png", kind=ChangeKind.ADDED, before=None, after=b"\x89PNG\0\0"),
]
ASKED = QuestionAsked(id="q1", text="Which?", choices=["this", "that"])


def _script(statement: str):
    return [
        TurnStarted(number=1),
        TextWritten(text=statement),
        *([ASKED] if "ask" in statement else []),
        *([Until(asyncio.Event().wait)] if "endless" in statement else []),
    ]


class Panel:
    """The panel's side of a socket."""

    def __init__(self, socket) -> None:
        self.socket = socket
        self.num = 0

    def ask(self, kind: str, **rest: object) -> dict:
        """The answer to a request."""
        self.num += 1
        id = f"r{self.num}"
        self.socket.send({"type": kind, "id": id, **rest})
        return self.answer(id)

    def answer(self, id: str) -> dict:
        while True:
            message = self.socket.receive_any()
            if message.get("id") == id:
                return message

    def events(self) -> Iterator[dict]:
        while True:
            message = self.socket.receive(type="events")
            yield from message["events"]

    def until(self, kind: str) -> list[dict]:
        seen = []
        for event in self.events():
            seen.append(event)
            if event["event"] == kind:
                return seen
        raise AssertionError("unreachable")

    def start(self, statement: str) -> str:
        started = self.ask("start", statement=statement)
        assert started["type"] == "run_started"
        return started["run"]

    def finished(self, statement: str = "do it") -> str:
        run = self.start(statement)
        self.ask("attach", run=run)
        self.until("stopped")
        return run


@pytest.fixture
def open_panel(start_server):
    """open_panel(script, changes) is a panel on a server whose runs are scripted; more panels come from `.again()`."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        server = None

        def open_one(script=_script, changes=CHANGES, **options) -> Panel:
            nonlocal server
            if server is None or script is not _script or options:
                server = start_server(runs=ScriptedRuns(script, changes=changes), **options)
            return Panel(stack.enter_context(server.socket(path="/agent")))

        yield open_one


@pytest.fixture
def project(tmp_path):
    return tmp_path / "project"


def test_a_run_is_started_and_watched_to_its_end(open_panel):
    panel = open_panel()
    run = panel.start("say hello")
    assert panel.ask("attach", run=run) == {"type": "attached", "id": "r2", "run": run, "after": 0}
    events = panel.until("stopped")
    assert [event["event"] for event in events] == ["started", "turn", "text", "stopped"]
    assert events[2]["text"] == "say hello"
    assert events[-1]["changed"] == ["a.txt", "logo.png"]


def test_the_list_tells_of_runs_without_being_asked(open_panel):
    panel = open_panel()
    run = panel.start("ask me")
    while True:
        runs = panel.socket.receive(type="runs")["runs"]
        if runs and runs[0]["state"] == "waiting":
            break
    assert (runs[0]["run"], runs[0]["question"], runs[0]["statement"]) == (run, "Which?", "ask me")


def test_a_question_waits_for_its_answer(open_panel):
    panel = open_panel()
    run = panel.start("ask me")
    panel.ask("attach", run=run)
    assert panel.until("question")[-1]["choices"] == ["this", "that"]
    assert "no longer open" in panel.ask("answer", run=run, question="q0", text="that")["message"]
    panel.socket.send({"type": "answer", "id": "a", "run": run, "question": "q1", "text": "that"})
    assert panel.until("stopped")[0] == {"event": "answer", "id": "q1", "text": "that"}


def test_stop_ends_a_run_that_would_go_on(open_panel):
    panel = open_panel()
    run = panel.start("endless")
    panel.ask("attach", run=run)
    panel.socket.send({"type": "stop", "id": "s", "run": run})
    assert panel.until("stopped")[-1]["reason"] == "stopped"


def test_a_run_that_has_ended_goes_on_with_what_else_is_to_be_done(open_panel):
    panel = open_panel()
    run = panel.finished("first this")
    assert panel.ask("resume", run=run, followUp="then that")["type"] == "done"
    panel.ask("attach", run=run)
    events = panel.until("stopped")
    assert [event["text"] for event in events if event["event"] == "text"] == ["first this", "then that"]
    panel.start("endless")
    assert panel.ask("resume", run="run-2")["error"] == "InputError"


def test_a_page_that_comes_back_gets_what_it_missed_and_no_more(open_panel):
    panel = open_panel()
    run = panel.start("ask me")
    panel.ask("attach", run=run)
    num = 0
    while num < 4:
        num = panel.socket.receive(type="events")["last"]
    panel.socket.connection.close()
    again = open_panel()
    assert again.ask("attach", run=run, after=num)["after"] == num
    again.socket.send({"type": "answer", "id": "a", "run": run, "question": "q1", "text": "this"})
    assert [event["event"] for event in again.until("stopped")] == ["answer", "stopped"]
    anew = open_panel()
    anew.ask("attach", run=run)
    assert [event["event"] for event in anew.until("stopped")][:2] == ["started", "turn"]


def test_watching_another_run_ends_the_events_of_the_first(open_panel):
    panel = open_panel()
    first, second = panel.start("endless"), panel.start("quick")
    panel.ask("attach", run=first)
    panel.ask("attach", run=second)
    message = panel.socket.receive(type="events")
    while message["run"] != second:
        message = panel.socket.receive(type="events")
    panel.ask("stop", run=first)
    panel.ask("attach", run=second)
    assert panel.socket.receive(type="events")["run"] == second


def test_changes_come_as_texts_with_hunks_by_line(open_panel):
    panel = open_panel()
    changes = panel.ask("changes", run=panel.finished())
    text, binary = changes["files"]
    assert (text["before"], text["after"], text["numAdded"], text["numRemoved"]) == (BEFORE, AFTER, 2, 2)
    assert text["hunks"] == [
        {"beforeStart": 0, "beforeEnd": 1, "afterStart": 0, "afterEnd": 1},
        {"beforeStart": 4, "beforeEnd": 5, "afterStart": 4, "afterEnd": 5},
    ]
    assert (binary["unshown"], binary["before"], binary["hunks"], binary["kind"]) == ("binary", None, [], "added")


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [("a\r\nb\r\n", "a\nb\n", "line endings"), ("a\n", "a\n", "Permissions change from 644 to 755")],
    ids=["line endings", "permissions"],
)
def test_what_the_text_does_not_show_is_said(open_panel, before, after, note):
    change = FileChange(
        path="a",
        kind=ChangeKind.MODIFIED,
        before=before.encode(),
        after=after.encode(),
        mode=0o100755 if before == after else 0o100644,
        mode_before=0o100644,
    )
    panel = open_panel(_script, [change])
    assert note in panel.ask("changes", run=panel.finished())["files"][0]["note"]


@pytest.mark.parametrize(
    "change",
    [
        FileChange(path="big", kind=ChangeKind.ADDED, before=None, after=b"x" * 3_000_000),
        FileChange(path="big", kind=ChangeKind.MODIFIED, before=None, after=b"of what was not kept"),
        FileChange(path="big", kind=ChangeKind.REMOVED, before=None, after=None),
    ],
    ids=lambda change: change.kind,
)
def test_a_file_that_is_too_large_is_named_and_not_sent(open_panel, change):
    panel = open_panel(_script, [change])
    file = panel.ask("changes", run=panel.finished())["files"][0]
    assert (file["unshown"], file["after"]) == ("too large", None)


def test_a_name_that_is_not_utf8_is_shown_and_landed_by_number(open_panel, project):
    change = FileChange(path="caf\udce9.txt", kind=ChangeKind.ADDED, before=None, after=b"hot\n")
    panel = open_panel(_script, [change])
    run = panel.finished()
    changes = panel.ask("changes", run=run)
    assert changes["files"][0]["path"] == "caf\ufffd.txt"
    landed = panel.ask("land", run=run, version=changes["version"], accepted=[{"number": 0}])
    assert landed["files"][0]["state"] == "clean"
    assert (project / "caf\udce9.txt").read_bytes() == b"hot\n"


def _land(panel: Panel, run: str, *accepted: dict) -> dict:
    version = panel.ask("changes", run=run)["version"]
    return panel.ask("land", run=run, version=version, accepted=list(accepted))


def test_accepted_hunks_land_and_nothing_else(open_panel, project):
    panel = open_panel()
    (project / "a.txt").write_text(BEFORE)
    run = panel.finished()
    landed = _land(panel, run, {"number": 0, "hunks": [1]})
    assert [(file["path"], file["state"]) for file in landed["files"]] == [("a.txt", "clean")]
    assert (project / "a.txt").read_text() == BEFORE.replace("five", "FIVE")
    assert not (project / "logo.png").exists()


def test_an_edit_of_the_person_is_merged_and_a_conflict_stays_theirs(open_panel, project):
    panel = open_panel()
    (project / "a.txt").write_text(BEFORE.replace("three", "3"))
    (project / "logo.png").write_bytes(b"mine")
    run = panel.finished()
    landed = _land(panel, run, {"number": 0}, {"number": 1})
    assert {file["path"]: file["state"] for file in landed["files"]} == {"a.txt": "merged", "logo.png": "conflict"}
    assert (project / "a.txt").read_text() == AFTER.replace("three", "3")
    assert (project / "logo.png").read_bytes() == b"mine"


def test_a_landing_is_taken_back_once(open_panel, project):
    panel = open_panel()
    (project / "a.txt").write_text(BEFORE)
    run = panel.finished()
    assert "nothing to take back" in panel.ask("undo", run=run)["message"]
    assert _land(panel, run, {"number": 0}, {"number": 1})["canUndo"] is True
    assert {file["state"] for file in panel.ask("undo", run=run)["files"]} == {"clean"}
    assert (project / "a.txt").read_text() == BEFORE
    assert not (project / "logo.png").exists()
    assert panel.ask("undo", run=run)["type"] == "failed"


def test_changes_that_are_no_longer_those_shown_are_not_landed(open_panel, project):
    panel = open_panel()
    (project / "a.txt").write_text(BEFORE)
    refused = panel.ask("land", run=panel.finished(), version="of yesterday", accepted=[{"number": 0}])
    assert refused["error"] == "FileChanged"
    assert (project / "a.txt").read_text() == BEFORE


@pytest.mark.parametrize("accepted", [[], [{"number": 0, "hunks": []}], [{"number": 7}]], ids=str)
def test_a_landing_of_nothing_is_refused_with_a_sentence(open_panel, accepted):
    panel = open_panel()
    run = panel.finished()
    refused = _land(panel, run, *accepted)
    assert (refused["type"], refused["error"]) == ("failed", "InputError")


def test_a_read_only_server_runs_the_agent_and_lands_nothing(open_panel, project):
    panel = open_panel(read_only=True)
    (project / "a.txt").write_text(BEFORE)
    run = panel.finished()
    assert "read-only" in _land(panel, run, {"number": 0})["message"]
    assert "read-only" in panel.ask("undo", run=run)["message"]
    assert (project / "a.txt").read_text() == BEFORE


def test_a_discarded_run_is_gone(open_panel):
    panel = open_panel()
    run = panel.start("endless")
    assert panel.ask("discard", run=run)["type"] == "done"
    assert panel.ask("list")["runs"] == []
    assert panel.ask("changes", run=run)["error"] == "RunUnknown"


def test_runs_of_another_folder_are_neither_seen_nor_touched(start_server, tmp_path):
    runs = ScriptedRuns(_script, changes=CHANGES)
    ready = threading.Event()
    started: list[str] = []

    class Both(ScriptedRuns):
        async def runs(self, root):
            if not started:
                started.append(await runs.start(tmp_path, "endless", RunOptions()))
                ready.set()
            return await runs.runs(root)

        async def changes(self, run):
            raise AssertionError("touched")

        stop = discard = changes

    with start_server(runs=Both(_script)).socket(path="/agent") as socket:
        panel = Panel(socket)
        assert panel.ask("list")["runs"] == []
        assert ready.wait(timeout=20)
        for kind in ("attach", "stop", "changes", "discard"):
            assert panel.ask(kind, run=started[0])["error"] == "RunUnknown"


@pytest.mark.parametrize(
    "message",
    ["", "nonsense", "[]", '{"type": "rm"}', '{"type": "start", "id": ""}', '{"type": "start", "id": "a"}', "[" * 5000],
    ids=lambda message: message[:30],
)
def test_a_message_that_is_none_is_answered_and_the_socket_lives_on(open_panel, message):
    panel = open_panel()
    panel.socket.connection.send(message)
    assert panel.socket.receive(type="failed")["error"] == "BadMessage"
    assert panel.ask("list")["type"] == "runs"


@pytest.mark.parametrize(
    "change",
    [
        {"statement": "x" * 100_001},
        {"bestOf": 0},
        {"bestOf": 99},
        {"check": "x" * 4_001},
        {"padding": "x" * MAX_MESSAGE_CHARACTERS},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_over_its_bounds_is_refused(open_panel, change):
    panel = open_panel()
    panel.socket.send({"type": "start", "id": "s", "statement": "do it"} | change)
    assert panel.socket.receive(type="failed")["error"] == "BadMessage"
    assert panel.ask("list")["runs"] == []


def test_an_empty_task_starts_nothing(open_panel):
    assert "Say what" in open_panel().ask("start", statement=" \n")["message"]


def test_without_the_token_there_is_no_panel(start_server):
    server = start_server(runs=ScriptedRuns(_script))
    with pytest.raises(InvalidStatus), server.socket(path="/agent", token="wrong"):
        pass


def test_five_megabytes_of_output_end_with_the_last_line_and_name_what_is_left_out(open_panel):
    pieces = [OutputPrinted(id="c1", text=f"line {number}\n" * 50) for number in range(10_000)]
    panel = open_panel(lambda statement: [CallStarted(id="c1", tool="run", summary="$ yes", arguments="{}"), *pieces])
    run = panel.finished()
    panel.ask("attach", run=run)
    printed = "".join(event["text"] for event in panel.until("stopped") if event["event"] == "output")
    assert printed.endswith("line 9999\n")
    if len(printed) < sum(len(piece.text) for piece in pieces):
        assert "are left out here" in printed


# The outbox, without a socket: what a page that reads nothing leads to.


def test_a_page_that_does_not_read_keeps_the_end_of_an_output_only():
    async def fill() -> list:
        outbox = AgentOutbox()
        outbox.attach("run")
        for number in range(500):
            await outbox.put_event(number + 1, OutputPrinted(id="c1", text=f"{number:04}" * 1000))
        return [await outbox.take()]

    [batch] = asyncio.run(fill())
    [event] = batch.events
    assert batch.last == 500
    assert event.text.endswith("0499")
    assert event.text.startswith(f"\n… {500 * 4000 - MAX_OUTPUT_WAITING} characters are left out here")
    assert len(event.text) < MAX_OUTPUT_WAITING + 200


@pytest.mark.parametrize("ids", [("c1", "c2"), ("c1",)], ids=["two commands in turn", "text in between"])
def test_a_page_that_does_not_read_makes_the_run_wait_not_the_memory_grow(ids):
    async def fill() -> int:
        outbox = AgentOutbox()
        outbox.attach("run")
        put = 0

        async def pump() -> None:
            nonlocal put
            for number in range(100_000):
                await outbox.put_event(number + 1, OutputPrinted(id=ids[number % len(ids)], text="x" * 1000))
                await outbox.put_event(number + 1, TextWritten(text="y" * 1000))
                put += 1

        task = asyncio.create_task(pump())
        for _ in range(10_000):
            await asyncio.sleep(0)
        assert outbox.is_full
        held = put
        while outbox.is_full:
            await outbox.take()
        for _ in range(10):
            await asyncio.sleep(0)
        assert put > held
        task.cancel()
        return held

    assert asyncio.run(fill()) < 2_000


def test_long_arguments_are_cut_in_the_middle():
    async def cut() -> str:
        outbox = AgentOutbox()
        await outbox.put_event(1, CallStarted(id="c", tool="write", summary="", arguments="a" * 300_000 + "z"))
        batch = await outbox.take()
        assert isinstance(batch, Events)
        call = batch.events[0]
        assert isinstance(call, CallStarted)
        return call.arguments

    arguments = asyncio.run(cut())
    assert len(arguments) < MAX_CALL_TEXT + 200
    assert arguments.startswith("aaa")
    assert arguments.endswith("z")
