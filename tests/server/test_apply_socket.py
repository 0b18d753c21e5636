"""Apply over the WebSocket, with the real engine and with ones that wait on purpose."""

import asyncio
import threading

import pytest
from websockets.exceptions import ConnectionClosed

from etude.assistant.apply.request import ApplyRequest, ApplyResult, Engine, HunkReady, Progress
from etude.edits import patch_from_texts
from etude.errors import ModelMissing
from etude.models.scripted import ScriptedModel
from etude.server.apply_socket import MAX_RUNNING
from etude.server.late_model import LateModel

FILE = "def area(width, height):\n    return width * height\n\n\ndef name():\n    return '𝄞'\n"
SKETCH = "def area(width, height):\n    check(width)\n    return width * height\n\n# ... existing code ...\n"


def _asked(id: str = "a1", **changes: object) -> dict[str, object]:
    asked = {"type": "apply", "id": id, "path": "shapes.py", "text": FILE, "sketch": SKETCH, "instruction": ""}
    return asked | changes


def _applied(text: str, edits: list[dict]) -> str:
    units = text.encode("utf-16-le")
    for edit in reversed(edits):
        units = units[: edit["start"] * 2] + edit["text"].encode("utf-16-le") + units[edit["end"] * 2 :]
    return units.decode("utf-16-le")


def test_a_sketch_is_merged_and_its_hunks_come_before_the_result(start_server):
    with start_server().socket() as socket:
        socket.send(_asked())
        assert socket.receive(type="progress", id="a1")["stage"]
        hunk = socket.receive(type="hunk", id="a1")
        merged = socket.receive(type="merged", id="a1")
    expected = FILE.replace("    return width", "    check(width)\n    return width")
    assert _applied(FILE, merged["edits"]) == expected
    assert hunk["edit"] in merged["edits"]
    assert merged["ran"]["engine"] == "merge"


def test_an_abstention_travels_with_its_reason(start_server):
    with start_server().socket() as socket:
        socket.send(_asked(sketch="totally_unrelated(1)\nnothing_like(2)\n"))
        abstained = socket.receive(type="abstained", id="a1")
    assert abstained["reason"]
    assert abstained["message"]


def test_a_sketch_that_cannot_be_used_fails_with_a_sentence(start_server):
    with start_server().socket() as socket:
        socket.send(_asked(sketch="   \n"))
        failed = socket.receive(type="failed", id="a1")
    assert failed["error"] == "SketchUnusable"
    assert failed["message"]


class Waiting:
    """An engine that sends one Progress and then waits until it is cancelled."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def __call__(self, request: ApplyRequest, model):
        try:
            yield Progress(stage="waiting")
            await asyncio.Event().wait()
        finally:
            self.closed.set()


def test_cancel_ends_the_engine_and_says_so(start_server):
    engine = Waiting()
    with start_server(apply=engine).socket() as socket:
        socket.send(_asked())
        socket.receive(type="progress", id="a1")
        assert not engine.closed.is_set()
        socket.send({"type": "cancel", "id": "a1"})
        socket.receive(type="cancelled", id="a1")
        assert engine.closed.is_set()
        socket.send(_asked())
        socket.receive(type="progress", id="a1")


def test_a_page_that_goes_away_leaves_nothing_running(start_server):
    engine = Waiting()
    with start_server(apply=engine).socket() as socket:
        socket.send(_asked())
        socket.receive(type="progress", id="a1")
    assert engine.closed.wait(timeout=20)


def test_merges_run_side_by_side_and_keep_their_events_apart(start_server):
    arrived = []
    everyone = asyncio.Event()

    async def engine(request: ApplyRequest, model):
        arrived.append(request.path)
        if len(arrived) == 3:
            everyone.set()
        await everyone.wait()
        patch = patch_from_texts(request.path, request.text, request.sketch)
        for edit in patch.edits:
            yield HunkReady(edit=edit)
            await asyncio.sleep(0)
        yield ApplyResult(patch=patch, engine=Engine.MERGE, model="none")

    with start_server(apply=engine).socket() as socket:
        for id in ("a", "b", "c"):
            socket.send(_asked(id, path=f"{id}.py", text="1\n2\n", sketch=f"{id}\n2\n"))
        results = {message["id"]: message for message in (socket.receive(type="merged") for _ in range(3))}
    assert {id: _applied("1\n2\n", result["edits"]) for id, result in results.items()} == {
        "a": "a\n2\n",
        "b": "b\n2\n",
        "c": "c\n2\n",
    }


def test_more_merges_than_fit_are_refused_not_queued_without_end(start_server):
    with start_server(apply=Waiting()).socket() as socket:
        for number in range(MAX_RUNNING + 1):
            socket.send(_asked(f"a{number}"))
        failed = socket.receive(type="failed")
        assert failed["id"] == f"a{MAX_RUNNING}"
        assert "running already" in failed["message"]


@pytest.mark.parametrize("message", ["", "nonsense", "[]", '{"type": "rm"}', '{"type": "apply", "id": 4}'])
def test_a_message_that_is_none_is_answered_and_the_socket_lives_on(start_server, message):
    with start_server().socket() as socket:
        socket.connection.send(message)
        assert socket.receive(type="failed")["error"] == "BadMessage"
        socket.connection.send(b"\xff\x00")
        assert socket.receive(type="failed")["error"] == "BadMessage"
        socket.send(_asked())
        socket.receive(type="merged", id="a1")


@pytest.mark.parametrize("change", [{"id": ""}, {"id": "x" * 65}, {"sketch": "x" * 2_000_001}])
def test_a_request_over_its_bounds_is_refused(start_server, change):
    with start_server().socket() as socket:
        socket.send(_asked(**change))
        assert socket.receive(type="failed")["error"] == "InputError"


def test_an_engine_that_breaks_fails_this_merge_only(start_server):
    async def engine(request: ApplyRequest, model):
        yield Progress(stage="about to break")
        raise RuntimeError("a bug")

    with start_server(apply=engine).socket() as socket:
        socket.send(_asked())
        failed = socket.receive(type="failed", id="a1")
        assert "a bug" in failed["message"]
        socket.send(_asked("a2"))
        socket.receive(type="failed", id="a2")


def test_the_page_hears_when_the_model_is_ready_and_merges_before_that(start_server):
    load_now = threading.Event()

    async def load() -> ScriptedModel:
        await asyncio.to_thread(load_now.wait)
        return ScriptedModel(name="late")

    server = start_server(model=LateModel(load, name="late"))
    with server.socket() as socket:
        assert socket.receive(type="model")["phase"] == "loading"
        socket.send(_asked())
        socket.receive(type="merged", id="a1")
        load_now.set()
        assert socket.receive(type="model") == {"type": "model", "name": "late", "phase": "ready", "message": ""}
        with server.client() as client:
            assert client.get("/api/hello").json()["model"]["phase"] == "ready"


def test_a_model_that_cannot_be_loaded_says_why_and_the_page_still_works(start_server):
    async def load() -> ScriptedModel:
        raise ModelMissing("The model is not on this machine. Run `etude models fetch`.")

    server = start_server(model=LateModel(load, name="absent"))
    with server.socket() as socket:
        state = socket.receive(type="model")
        while state["phase"] == "loading":
            state = socket.receive(type="model")
        assert (state["phase"], state["name"]) == ("failed", "absent")
        assert "etude models fetch" in state["message"]
        socket.send(_asked())
        socket.receive(type="merged", id="a1")


def test_stopping_the_server_closes_open_sockets(start_server):
    server = start_server()
    with server.socket() as socket:
        socket.receive(type="model")
        server.stop()
        with pytest.raises(ConnectionClosed):
            while True:
                socket.connection.recv(timeout=20)
