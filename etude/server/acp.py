"""The agent for editors: the Agent Client Protocol on stdio, https://agentclientprotocol.com.

A session is a shadow of the folder the editor works in. A prompt is a run of the loop in it; what was changed is
offered at the end, with its differences, and written through the editor where it can, so that unsaved text counts.
Standard output belongs to the protocol.
"""

import asyncio
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import acp
from acp import schema

from etude import __version__
from etude.agent import loop
from etude.agent.events import Notice
from etude.agent.landing import land
from etude.agent.limits import Limits
from etude.agent.mcp_client import McpServer, mcp_tools
from etude.agent.store import TraceStore, load
from etude.agent.tool_choice import tools_for
from etude.agent.toolbox import Tool
from etude.assistant.apply.agent_edit import apply_with
from etude.errors import EtudeError, TraceUnusable
from etude.models.model import Model
from etude.server.acp_editor import Editor
from etude.server.acp_updates import Updates
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.shadow import ShadowSettings, ShadowWorkspace, open_shadow
from etude.workspace.workspace import FileChange

OpenModel = Callable[[], Awaitable[Model]]

_STOPS = {
    StopReason.MAX_TURNS: "max_turn_requests",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.CONTEXT_FULL: "max_tokens",
    StopReason.STOPPED: "cancelled",
}
_APPLY, _REJECT = "apply", "reject"

INVALID_PARAMS, SESSION_FAILED = -32602, -32000


@dataclass(slots=True)
class Session:
    """One conversation, and the shadow it takes place in."""

    id: str
    shadow: ShadowWorkspace
    editor: Editor
    stack: AsyncExitStack
    tools: Sequence[Tool]
    problems: list[str]
    """What a person should know before the first answer."""
    store: TraceStore
    trace: Trace | None = None
    running: "asyncio.Task[Any] | None" = None


class EtudeAgent:
    """What an editor talks to; made for `acp.run_agent`."""

    def __init__(
        self,
        open_model: OpenModel,
        *,
        settings_for: Callable[[Path], ShadowSettings],
        limits: Limits,
        network: bool = False,
        mcp_servers: Sequence[McpServer] = (),
    ) -> None:
        self._open_model = open_model
        self._settings_for = settings_for
        self._limits = limits
        self._network = network
        self._mcp_servers = tuple(mcp_servers)
        self._model: Model | None = None
        self._opening = asyncio.Lock()
        self._sessions: dict[str, Session] = {}
        self._client: acp.Client | None = None
        self._capabilities = schema.ClientCapabilities()

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def close(self) -> None:
        for session in [*self._sessions.values()]:
            await self._close(session)
        if self._model:
            await self._model.close()

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> acp.InitializeResponse:
        self._capabilities = client_capabilities or schema.ClientCapabilities()
        return acp.InitializeResponse(
            # The version that we speak; an editor that does not ends the connection.
            protocol_version=acp.PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=False, prompt_capabilities=schema.PromptCapabilities(embedded_context=True)
            ),
            agent_info=schema.Implementation(name="etude", title="etude", version=__version__),
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> acp.AuthenticateResponse:
        return acp.AuthenticateResponse()

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> acp.NewSessionResponse:
        id = f"s-{secrets.token_hex(6)}"
        root = Path(cwd)
        if not root.is_absolute():
            raise acp.RequestError(INVALID_PARAMS, f"{cwd!r} is not a whole path. Name the folder from the top.")
        stack = AsyncExitStack()
        try:
            store = TraceStore(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etude-acp-"))))
            shadow = await stack.enter_async_context(open_shadow(root, settings=self._settings_for(root)))
            servers = [*self._mcp_servers, *_given_servers(mcp_servers or ())]
            tools = await stack.enter_async_context(mcp_tools(servers))
        except EtudeError as error:
            await stack.aclose()
            raise acp.RequestError(SESSION_FAILED, str(error)) from error
        except BaseException:
            await stack.aclose()
            raise
        editor = Editor(self._connected(), id, shadow, self._capabilities.fs)
        shadow.before_read = editor.hand_over
        self._sessions[id] = Session(
            id=id,
            shadow=shadow,
            editor=editor,
            stack=stack,
            tools=tools.tools,
            problems=[*shadow.problems, *tools.problems],
            store=store,
        )
        return acp.NewSessionResponse(session_id=id)

    async def close_session(self, session_id: str, **kwargs: Any) -> None:
        await self._close(self._session(session_id))

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> acp.PromptResponse:
        session = self._session(session_id)
        if session.running:
            raise acp.RequestError(INVALID_PARAMS, "This session is at work. Cancel it, or wait for its end.")
        statement = _statement(prompt)
        if not statement:
            raise acp.RequestError(INVALID_PARAMS, "The prompt holds no text. Say what is to be done.")
        session.running = asyncio.create_task(self._prompted(session, statement))
        try:
            return acp.PromptResponse(stop_reason=await session.running)
        except asyncio.CancelledError:
            return acp.PromptResponse(stop_reason="cancelled")
        except EtudeError as error:
            raise acp.RequestError(SESSION_FAILED, str(error)) from error
        finally:
            session.running = None

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        session = self._sessions.get(session_id)
        if session and session.running:
            session.running.cancel()

    async def _prompted(self, session: Session, statement: str) -> Any:
        """Work on it, then offer what was changed; returns the protocol's reason for the end."""
        updates = Updates(self._connected(), session.id, session.shadow.root)
        session.editor.open_question = ""
        try:
            trace = await self._run(session, statement, updates)
        finally:
            await asyncio.shield(updates.close())
        if trace is None:
            return "end_turn"
        await self._offer(session)
        return _STOPS.get(trace.stop_reason or StopReason.FINISHED, "end_turn")

    async def _run(self, session: Session, statement: str, updates: Updates) -> Trace | None:
        """None when the run was left for a question that the next prompt answers."""
        model = await self._opened_model()
        while session.problems:
            updates.observe(Notice(text=session.problems.pop(0)))
        running = asyncio.create_task(
            loop.run(
                Task(id=session.id, statement=statement),
                model,
                session.shadow,
                self._limits,
                observer=updates.observe,
                person=session.editor,
                tools=[*tools_for(session.shadow, apply=apply_with(model), network=self._network), *session.tools],
                store=session.store,
                resume=session.trace,
            )
        )
        session.editor.leave = running.cancel
        try:
            trace = await running
        except asyncio.CancelledError:
            if not session.editor.open_question:
                raise
            return None
        finally:
            # Also of a run that was cancelled: the conversation goes on from there.
            session.trace = _saved(session.store)
        updates.say_end(trace)
        return trace

    async def _opened_model(self) -> Model:
        async with self._opening:
            if self._model is None:
                self._model = await self._open_model()
            return self._model

    # What was changed.

    async def _offer(self, session: Session) -> None:
        """Show every change, and make those that are allowed; the others stay in the shadow."""
        changes = [change for change in await session.shadow.changes() if not change.ignored]
        if not changes:
            return
        root = session.shadow.root
        shown = schema.ToolCallUpdate(
            tool_call_id=f"apply-{secrets.token_hex(4)}",
            title=f"Apply changes to {len(changes)} {'file' if len(changes) == 1 else 'files'}",
            kind="edit",
            status="pending",
            content=[_shown(change, root) for change in changes],
            locations=[schema.ToolCallLocation(path=str(root / change.path)) for change in changes],
        )
        options = [
            schema.PermissionOption(option_id=_APPLY, name="Apply to my files", kind="allow_once"),
            schema.PermissionOption(option_id=_REJECT, name="Leave my files as they are", kind="reject_once"),
        ]
        answer = await self._connected().request_permission(session.id, shown, options)
        if getattr(answer.outcome, "option_id", None) != _APPLY:
            return
        said = await self._land(session, changes)
        if said:
            await self._connected().session_update(session.id, acp.update_agent_message_text(said))

    async def _land(self, session: Session, changes: Sequence[FileChange]) -> str:
        """Through the editor where it can take them, else on the disk; returns what was not applied."""
        rest, problems = await session.editor.write_all(changes)
        if rest:
            report = await land(rest, session.shadow.root)
            problems += [f"{item.path}: {item.reason}" for item in report.files if item.reason]
        await session.shadow.follow()
        return "\n".join(("Not applied, since your files changed meanwhile:", *problems)) if problems else ""

    # Sessions.

    def _session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise acp.RequestError(INVALID_PARAMS, f"There is no session {session_id!r}. Begin a new one.")
        return self._sessions[session_id]

    async def _close(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        if session.running:
            session.running.cancel()
            await asyncio.wait({session.running})
        await session.stack.aclose()

    def _connected(self) -> acp.Client:
        assert self._client, "requests come over a connection"
        return self._client


def _statement(prompt: Sequence[Any]) -> str:
    """The text of a prompt, with the files that were attached."""
    parts = []
    for block in prompt:
        resource: Any = getattr(block, "resource", None)
        if getattr(block, "text", None):
            parts.append(block.text)
        elif getattr(resource, "text", None):
            parts.append(f"{resource.uri}:\n```\n{resource.text}\n```")
        elif getattr(block, "uri", None):
            parts.append(str(block.uri))
    return "\n\n".join(parts).strip()


def _shown(change: FileChange, root: Path) -> schema.FileEditToolCallContent:
    before, after = _text(change.before), _text(change.after)
    return acp.tool_diff_content(str(root / change.path), after or "", before)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")


def _given_servers(servers: Sequence[Any]) -> list[McpServer]:
    """Those the editor names; only programs on this machine are started."""
    return [
        McpServer(
            name=server.name,
            command=server.command,
            arguments=tuple(server.args),
            environment={one.name: one.value for one in server.env},
        )
        for server in servers
        if isinstance(server, schema.McpServerStdio)
    ]


def _saved(store: TraceStore) -> Trace | None:
    try:
        return load(store.folder)
    except TraceUnusable:
        return None
