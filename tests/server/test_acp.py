"""`etude acp` as a process, spoken to by the protocol's own client; the model is a scripted server on a real socket."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from etude.workspace.isolation import isolation_problem
from tests.agent.model_server import ModelServer, call

acp = pytest.importorskip("acp")
from acp import schema  # noqa: E402 (an extra)

pytestmark = pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}")

SCRIPT = [
    call("plan", steps=[{"text": "look", "state": "done"}, {"text": "write", "state": "active"}]),
    call("read", path="a.py"),
    call("run", command="cat a.py; echo done"),
    call("write", path="a.py", text="x = 2\n"),
    call("finish", answer="x is two now."),
]


class Editor(acp.Client):
    """What the tests' editor does; `buffers` are its unsaved texts."""

    def __init__(self, *, allow: bool = True) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.buffers: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.allow = allow
        self.prints = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        if update.session_update == "tool_call_update":
            self.prints.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any) -> Any:
        self.asked.append(tool_call)
        chosen = options[0] if self.allow else options[-1]
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return acp.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **kwargs: Any) -> Any:
        if path in self.buffers:
            return acp.ReadTextFileResponse(content=self.buffers[path])
        try:
            return acp.ReadTextFileResponse(content=await asyncio.to_thread(Path(path).read_text))
        except OSError as error:
            raise acp.RequestError(-32002, str(error)) from error

    async def write_text_file(self, session_id: str, path: str, content: str, **kwargs: Any) -> None:
        self.written[path] = content
        await asyncio.to_thread(Path(path).write_text, content)

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    def said(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text("x = 1\n")
    return tmp_path / "app"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "etude.toml"))


def spoken(server: ModelServer, editor: Editor, work: Callable[[Any], Awaitable[None]], *, files: bool = True) -> None:
    async def opened() -> None:
        environment = {**acp.default_environment(), "ETUDE_MODEL_URL": server.url, "ETUDE_MODEL_NAME": "scripted"}
        environment |= {name: os.environ[name] for name in ("ETUDE_STATE", "ETUDE_CONFIG")}
        command = (sys.executable, "-m", "etude.cli", "acp")
        async with acp.spawn_agent_process(editor, *command, env=environment) as (agent, _):
            abilities = schema.FileSystemCapabilities(read_text_file=files, write_text_file=files)
            capabilities = schema.ClientCapabilities(fs=abilities)
            begun = await agent.initialize(acp.PROTOCOL_VERSION, client_capabilities=capabilities)
            assert begun.agent_info.name == "etude"
            await work(agent)

    asyncio.run(asyncio.wait_for(opened(), 60))


async def prompted(agent: Any, session: str, text: str) -> str:
    return (await agent.prompt(session_id=session, prompt=[acp.text_block(text)])).stop_reason


def test_a_prompt_is_worked_on_shown_and_written_through_the_editor(root: Path) -> None:
    editor = Editor()

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        assert await prompted(agent, session, "Make it two.") == "end_turn"

    with ModelServer(SCRIPT) as server:
        spoken(server, editor, work)
    assert editor.written == {str(root / "a.py"): "x = 2\n"}
    assert [entry.status for entry in editor.of("plan")[0].entries] == ["completed", "in_progress"]
    kinds = [update.kind for update in editor.of("tool_call")]
    assert {"read", "execute", "edit"} <= set(kinds)
    assert "x is two now." in editor.said()
    (offered,) = editor.asked
    assert (offered.content[0].old_text, offered.content[0].new_text) == ("x = 1\n", "x = 2\n")


def test_what_is_refused_stays_in_the_shadow(root: Path) -> None:
    editor = Editor(allow=False)

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        await prompted(agent, session, "Make it two.")

    with ModelServer(SCRIPT) as server:
        spoken(server, editor, work)
    assert (root / "a.py").read_text() == "x = 1\n" and editor.written == {}


def test_an_editor_without_files_has_them_written_on_the_disk(root: Path) -> None:
    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        await prompted(agent, session, "Make it two.")

    with ModelServer(SCRIPT) as server:
        spoken(server, Editor(), work, files=False)
    assert (root / "a.py").read_text() == "x = 2\n"


def test_unsaved_text_is_what_the_agent_reads_and_is_not_lost(root: Path) -> None:
    editor = Editor()
    editor.buffers[str(root / "a.py")] = "x = 1\n\n\nunsaved = True\n"

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        await prompted(agent, session, "Make it two.")

    script = [
        call("read", path="a.py"),
        call("run", command="cat a.py"),
        call("write", path="a.py", text="x = 2\n\n\nunsaved = True\n"),
        call("finish", answer="ok"),
    ]
    with ModelServer(script) as server:
        spoken(server, editor, work)
        sent = str(server.requests[-1])
    assert "unsaved = True" in sent
    assert editor.written == {str(root / "a.py"): "x = 2\n\n\nunsaved = True\n"}


def test_a_second_prompt_goes_on_in_the_same_conversation(root: Path) -> None:
    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        await prompted(agent, session, "First.")
        await prompted(agent, session, "Second.")

    with ModelServer([call("finish", answer="one"), call("finish", answer="two")]) as server:
        spoken(server, Editor(), work)
        sent = str(server.requests[-1])
    assert "First." in sent and "Second." in sent


def test_cancelling_stops_the_run(root: Path) -> None:
    editor = Editor()

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        running = asyncio.create_task(prompted(agent, session, "Run for long."))
        await editor.prints.wait()
        await agent.cancel(session_id=session)
        assert await running == "cancelled"

    with ModelServer([call("run", command="echo begun; sleep 300", seconds=400)]) as server:
        spoken(server, editor, work)


def test_a_cancelled_conversation_goes_on_with_what_was_said(root: Path) -> None:
    editor = Editor()

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        running = asyncio.create_task(prompted(agent, session, "Run for long."))
        await editor.prints.wait()
        await agent.cancel(session_id=session)
        assert await running == "cancelled"
        assert await prompted(agent, session, "Something else.") == "end_turn"

    def script(body: dict[str, Any]) -> list[Any]:
        end = call("finish", answer="done")
        return [call("run", command="echo begun; sleep 300", seconds=400), *[end] * 3]

    with ModelServer(script) as server:
        spoken(server, editor, work)
        sent = str(server.requests[-1])
    assert "Run for long." in sent and "Something else." in sent


def test_an_open_question_ends_the_turn_and_the_next_prompt_answers_it(root: Path) -> None:
    editor = Editor()

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        assert await prompted(agent, session, "Name it.") == "end_turn"
        assert "Which name?" in editor.said()
        assert await prompted(agent, session, "Call it Ada.") == "end_turn"

    with ModelServer([call("ask", question="Which name?"), *[call("finish", answer="It is Ada.")] * 3]) as server:
        spoken(server, editor, work)
        assert "Call it Ada." in str(server.requests[-1])
    assert "It is Ada." in editor.said()


def test_paths_that_lead_out_are_not_asked_of_the_editor(root: Path) -> None:
    editor = Editor()
    seen: list[str] = []
    read = editor.read_text_file

    async def noting(session_id: str, path: str, **kwargs: Any) -> Any:
        seen.append(path)
        return await read(session_id, path, **kwargs)

    editor.read_text_file = noting

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        await prompted(agent, session, "Look around.")

    script = [call("read", path="/etc/hostname"), call("read", path="../x"), call("finish", answer="no")]
    with ModelServer(script) as server:
        spoken(server, editor, work)
    assert seen == []


def test_a_write_that_the_editor_refuses_is_told_and_the_others_are_made(root: Path) -> None:
    (root / "b.py").write_text("y = 1\n")
    editor = Editor()
    write = editor.write_text_file

    async def full(session_id: str, path: str, content: str, **kwargs: Any) -> None:
        if path.endswith("a.py"):
            raise acp.RequestError(-32000, "disk full")
        await write(session_id, path, content, **kwargs)

    editor.write_text_file = full

    async def work(agent: Any) -> None:
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        assert await prompted(agent, session, "Make both two.") == "end_turn"

    script = [
        call("write", path="a.py", text="x = 2\n"),
        call("write", path="b.py", text="y = 2\n"),
        call("finish", answer="ok"),
    ]
    with ModelServer(script) as server:
        spoken(server, editor, work)
    assert (root / "b.py").read_text() == "y = 2\n"
    assert "disk full" in editor.said()


def test_wrong_requests_get_errors_that_say_what_is_wrong(root: Path) -> None:
    async def work(agent: Any) -> None:
        with pytest.raises(acp.RequestError, match="no session"):
            await prompted(agent, "s-unknown", "Hello?")
        with pytest.raises(acp.RequestError, match="not a folder"):
            await agent.new_session(cwd=str(root / "nowhere"), mcp_servers=[])
        session = (await agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        with pytest.raises(acp.RequestError, match="no text"):
            await prompted(agent, session, " ")

    with ModelServer([]) as server:
        spoken(server, Editor(), work)


def test_garbage_ends_nothing_and_the_end_of_input_ends_everything(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "etude.cli", "acp"],
        input='not json\n{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\n',
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert '"agentInfo"' in done.stdout and done.returncode == 0
    assert not list((tmp_path / "state").rglob("owner"))
