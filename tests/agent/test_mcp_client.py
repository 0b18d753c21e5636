"""The user's MCP servers as tools: a real server made with the SDK, as a process."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etude.agent import mcp_client
from etude.agent.loop import run
from etude.agent.mcp_client import MAX_ANSWER_CHARACTERS, McpServer, McpTools, mcp_tools, servers_from_settings
from etude.agent.records import Records
from etude.agent.tool_choice import tools_for
from etude.agent.toolbox import Answer, ToolContext, WrongArguments
from etude.errors import InputError
from etude.messages import Completion, ToolCall
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.traces import StopReason, TurnError
from etude.workspace.memory import MemoryWorkspace

pytest.importorskip("mcp")

PROCESS = Path(__file__).with_name("mcp_server_process.py")
TICKETS = McpServer(
    name="my tickets", command=sys.executable, arguments=(str(PROCESS),), environment={"TICKETS_TOKEN": "t-1"}
)


def with_tools(work: Callable[[McpTools], Awaitable[None]], *servers: McpServer) -> None:
    async def opened() -> None:
        async with mcp_tools(servers) as found:
            await work(found)

    asyncio.run(asyncio.wait_for(opened(), 60))


async def called(found: McpTools, name: str, **arguments: object) -> Answer:
    tool = next(tool for tool in found.tools if tool.offered_as == name)
    context = ToolContext(workspace=MemoryWorkspace({}), records=Records(None))
    return await tool.call(tool.read(json.dumps(arguments)), context)


def test_tools_have_valid_names_their_own_schema_and_answer() -> None:
    async def work(found: McpTools) -> None:
        specs = {tool.spec.name: tool.spec for tool in found.tools}
        assert specs["my_tickets_add"].description == "Add two numbers."
        assert json.dumps(specs["my_tickets_add"].parameters["required"]) == '["first", "second"]'
        assert await called(found, "add", first=2, second=3) == Answer(text="5")
        assert json.loads((await called(found, "lookup", id="7")).text)["id"] == "7"

    with_tools(work, TICKETS)


def test_a_server_gets_what_is_configured_and_none_of_our_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ours")

    async def work(found: McpTools) -> None:
        ticket = json.loads((await called(found, "lookup", id="7")).text)
        assert (ticket["token"], ticket["key"]) == ("t-1", "")

    with_tools(work, TICKETS)


def test_errors_hangs_and_crashes_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_client, "CALL_SECONDS", 0.5)

    async def work(found: McpTools) -> None:
        failed = await called(found, "fail")
        assert failed.error is TurnError.TOOL_FAILED and "no such ticket" in failed.text
        assert "did not answer" in (await called(found, "hang")).text
        crashed = await called(found, "crash")
        assert crashed.error is TurnError.TOOL_FAILED
        assert (await called(found, "add", first=1, second=1)).error is TurnError.TOOL_FAILED

    with_tools(work, TICKETS)


def test_a_flood_is_bounded() -> None:
    async def work(found: McpTools) -> None:
        assert len((await called(found, "flood")).text) == MAX_ANSWER_CHARACTERS

    with_tools(work, TICKETS)


def test_a_server_that_does_not_start_is_named_and_the_others_work() -> None:
    async def work(found: McpTools) -> None:
        assert len(found.problems) == 1 and "broken" in found.problems[0]
        assert (await called(found, "add", first=1, second=2)).text == "3"

    with_tools(work, McpServer(name="broken", command="/nowhere/server"), TICKETS)


def test_two_servers_of_one_name_have_tools_of_different_names() -> None:
    async def work(found: McpTools) -> None:
        names = [tool.spec.name for tool in found.tools]
        assert len(names) == 12 == len(set(names))

    with_tools(work, TICKETS, TICKETS)


def test_arguments_that_are_no_object_are_wrong() -> None:
    async def work(found: McpTools) -> None:
        for text in ("[1]", "{", "3"):
            with pytest.raises(WrongArguments):
                found.tools[0].read(text)

    with_tools(work, TICKETS)


def test_the_agent_calls_them_like_its_own() -> None:
    async def work(found: McpTools) -> None:
        calls = [
            ToolCall(id="1", name="my_tickets_add", arguments='{"first": 20, "second": 22}'),
            ToolCall(id="2", name="finish", arguments='{"answer": "42"}'),
        ]
        model = ScriptedModel([Completion(text="", tool_calls=(call,)) for call in calls])
        workspace = MemoryWorkspace({})
        tools = [*tools_for(workspace), *found.tools]
        trace = await run(Task(id="t", statement="add"), model, workspace, tools=tools)
        assert trace.stop_reason is StopReason.FINISHED
        assert trace.turns[0].results[0].text == "42"

    with_tools(work, TICKETS)


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ({"name": "x"}, "needs a command"),
        ({"command": "x", "arguments": "y"}, "list of texts"),
        ({"command": "x", "environment": {"A": 1}}, "table of texts"),
        ({"command": "x", "url": "http://h"}, "no setting 'url'"),
        ("x", "not a table"),
    ],
)
def test_a_wrong_setting_is_named(table: object, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        servers_from_settings([table])
