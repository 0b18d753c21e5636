"""The user's MCP servers as tools of the agent: mcp_tools. https://modelcontextprotocol.io

    [[mcp_server]]                      in the user's etude.toml, never in a repository's
    name = "tickets"
    command = "tickets-mcp"
    arguments = ["--readonly"]
    environment = { TICKETS_TOKEN = "…" }

They are the user's own programs and run outside the sandbox. What they answer is not trusted: it is text for the model.
A server that does not start, does not answer or dies costs the run a call, not more.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from etude.agent.toolbox import Answer, ToolContext, ToolKind, WrongArguments, quoted
from etude.errors import InputError
from etude.messages import ToolSpec
from etude.traces import TurnError

BEGIN_SECONDS = 20.0
CALL_SECONDS = 120.0
END_SECONDS = 5.0

MAX_TOOLS = 100
MAX_SCHEMA_CHARACTERS = 20_000
MAX_DESCRIPTION_CHARACTERS = 2_000
MAX_ANSWER_CHARACTERS = 4_000_000

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
# As servers of the OpenAI protocol take them.
MAX_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A program that speaks MCP over its pipes."""

    name: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def servers_from_settings(tables: Sequence[object]) -> tuple[McpServer, ...]:
    """The [[mcp_server]] tables. Raises InputError with what is wrong."""
    return tuple(_from_table(table, number) for number, table in enumerate(tables, 1))


def _from_table(table: object, number: int) -> McpServer:
    where = f"[[mcp_server]] number {number}"
    if not isinstance(table, Mapping):
        raise InputError(f"{where} is not a table.")
    if unknown := table.keys() - {"name", "command", "arguments", "environment"}:
        raise InputError(
            f"{where} has no setting {sorted(unknown)[0]!r}; there are name, command, arguments and environment."
        )
    command, arguments = table.get("command"), table.get("arguments", [])
    environment = table.get("environment", {})
    if not isinstance(command, str) or not command:
        raise InputError(f'{where} needs a command, such as command = "my-server".')
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise InputError(f"{where}: arguments is a list of texts.")
    if not isinstance(environment, Mapping) or not all(isinstance(one, str) for one in environment.values()):
        raise InputError(f"{where}: environment is a table of texts.")
    name = str(table.get("name") or command.rpartition("/")[2])
    return McpServer(name=name, command=command, arguments=tuple(arguments), environment=dict(environment))


@dataclass(slots=True)
class McpTools:
    """What the servers offer, and why some offer nothing."""

    tools: list["McpTool"] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@asynccontextmanager
async def mcp_tools(servers: Sequence[McpServer]) -> AsyncGenerator[McpTools]:
    """The tools of the servers, which run until the end of the block. Raises InputError without the package."""
    found = McpTools()
    if not servers:
        yield found
        return
    _check_installed()
    connections = [_Connection(server) for server in servers]
    try:
        for problem in await asyncio.gather(*(connection.begin() for connection in connections)):
            found.problems += [problem] if problem else []
        names: set[str] = set()
        for connection in connections:
            found.tools += _tools_of(connection, names)
        yield found
    finally:
        await asyncio.gather(*(connection.end() for connection in connections))


def _check_installed() -> None:
    try:
        import mcp  # noqa: F401 (an extra, and seconds to import)
    except ImportError:
        raise InputError("MCP servers need the package mcp: pip install 'etude[mcp]'.") from None


class _Connection:
    """One server, held by a task of its own: what the SDK opens, it wants closed by the same task."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.client: Any = None
        self.offered: list[Any] = []
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> str:
        """Start it and ask what it offers; returns what went wrong."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(begun))
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await begun
        except TimeoutError:
            await self.end()
            return f"The MCP server {self.server.name} did not answer in {BEGIN_SECONDS:g} s."
        except Exception as error:
            return f"The MCP server {self.server.name} cannot be used: {_said(error)}."
        return ""

    async def _hold(self, begun: "asyncio.Future[None]") -> None:
        from mcp import Client, StdioServerParameters

        server = self.server
        environment = dict(server.environment) or None
        started = StdioServerParameters(command=server.command, args=[*server.arguments], env=environment)
        try:
            async with Client(started) as client:
                self.offered = (await client.list_tools()).tools
                self.client = client
                if not begun.done():
                    begun.set_result(None)
                await self._ended.wait()
        except BaseException as error:
            if not begun.done():
                begun.set_exception(error if isinstance(error, Exception) else ConnectionError("it was ended"))
            if not isinstance(error, Exception):
                raise
        finally:
            self.client = None

    async def end(self) -> None:
        self._ended.set()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=END_SECONDS)
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task


def _tools_of(connection: _Connection, names: set[str]) -> list["McpTool"]:
    tools = []
    for offered in connection.offered[:MAX_TOOLS]:
        schema: dict[str, object] = {"type": "object"}
        if isinstance(offered.input_schema, dict) and len(json.dumps(offered.input_schema)) <= MAX_SCHEMA_CHARACTERS:
            schema = offered.input_schema
        name = _free_name(f"{connection.server.name}_{offered.name}", names)
        description = (offered.description or offered.name)[:MAX_DESCRIPTION_CHARACTERS]
        spec = ToolSpec(name=name, description=description, parameters=schema)
        tools.append(McpTool(spec=spec, offered_as=offered.name, connection=connection))
    return tools


def _free_name(wanted: str, names: set[str]) -> str:
    name = _NOT_IN_NAMES.sub("_", wanted)[:MAX_NAME_CHARACTERS]
    number = 1
    while name in names:
        number += 1
        name = f"{name[: MAX_NAME_CHARACTERS - 4]}_{number}"
    names.add(name)
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of an MCP server, with the server's own schema."""

    spec: ToolSpec
    offered_as: str
    connection: _Connection
    # It works outside the workspace; what it changes there is no business of the shadow's.
    kind: ToolKind = ToolKind.LOOKS

    def read(self, arguments: str) -> dict[str, Any]:
        try:
            value = json.loads(arguments.strip() or "{}")
        except (ValueError, RecursionError) as error:
            raise WrongArguments(
                f"The arguments are not JSON: {error}. They were: {quoted(arguments)}", error=TurnError.MALFORMED_CALL
            ) from None
        if not isinstance(value, dict):
            raise WrongArguments(f"The arguments are not an object: {quoted(arguments)}")
        return value

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Answer:
        name = self.connection.server.name
        if self.connection.client is None:
            return Answer(text=f"The MCP server {name} has ended.", error=TurnError.TOOL_FAILED)
        try:
            async with asyncio.timeout(max(0.1, min(CALL_SECONDS, context.seconds_left))):
                result = await self.connection.client.call_tool(self.offered_as, arguments)
        except TimeoutError:
            said = f"The MCP server {name} did not answer in {CALL_SECONDS:g} s."
            return Answer(text=said, error=TurnError.TOOL_FAILED)
        except Exception as error:
            return Answer(text=f"The MCP server {name} failed: {_said(error)}.", error=TurnError.TOOL_FAILED)
        return Answer(text=_text_of(result), error=TurnError.TOOL_FAILED if result.is_error else None)


def _text_of(result: Any) -> str:
    """What of an answer is text; pictures and sounds are only named."""
    parts = [_block_text(block) or f"({block.type}, not shown)" for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(parts)[:MAX_ANSWER_CHARACTERS] or "(It answered nothing.)"


def _block_text(block: Any) -> str | None:
    return getattr(block, "text", None) or getattr(getattr(block, "resource", None), "text", None)


def _said(error: BaseException) -> str:
    """The sentence of an error, also where the SDK wraps it in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (str(error) or type(error).__name__).rstrip(".")
