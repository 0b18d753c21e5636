"""The tables [agent] and [shadow] of etude.toml, and what comes of them."""

import asyncio
from pathlib import Path

import pytest

from etude.agent.limits import Limits, Prices
from etude.agent.records import Records
from etude.agent.run_values import RunOptions
from etude.agent.settings import agent_settings, limits_for, may_use_network
from etude.agent.toolbox import ToolContext
from etude.agent.tools.run import run_tool
from etude.errors import InputError
from etude.workspace.memory import MemoryWorkspace


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "etude.toml"))
    return tmp_path / "etude.toml"


def test_without_a_file_the_defaults_hold(settings: Path) -> None:
    assert limits_for(agent_settings(), RunOptions()) == Limits()
    assert not may_use_network(agent_settings(), RunOptions())


def test_options_come_before_settings_before_defaults(settings: Path) -> None:
    settings.write_text(
        "[agent]\nmax_turns = 7\nmax_cost = 2\nnetwork = true\nprice_generated = 15\nmax_seconds = 60\n"
    )
    limits = limits_for(agent_settings(), RunOptions(max_turns=3, network=False))
    assert (limits.turns, limits.cost, limits.seconds, limits.tokens) == (3, 2.0, 60.0, Limits().tokens)
    assert limits.prices == Prices(generated=15.0)
    assert may_use_network(agent_settings(), RunOptions())
    assert not may_use_network(agent_settings(), RunOptions(network=False))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent]\nmax_turns = 0\n", "max_turns"),
        ("[agent]\nmax_turns = 'many'\n", "max_turns"),
        ("[agent]\nmax_cost = -1\n", "max_cost"),
        ("[agent]\ncontext_tokens = 12\n", "context_tokens"),
        ("[agent]\nmax_truns = 3\n", "max_truns"),
        ("agent = 3\n", r"\[agent\] on a line of its own"),
        ("[agent\n", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(settings: Path, text: str, said: str) -> None:
    settings.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        agent_settings()
    assert str(settings) in str(raised.value)


def test_commands_have_the_network_only_where_it_is_allowed() -> None:
    async def ran(*, network: bool) -> tuple[bool, str]:
        workspace = MemoryWorkspace(commands={"true": ""})
        tool = run_tool(network=network)
        await tool.call(tool.read('{"command": "true"}'), ToolContext(workspace=workspace, records=Records(None)))
        return workspace.ran[0].network, tool.spec.description

    assert asyncio.run(ran(network=False))[0] is False
    assert "without the network" in asyncio.run(ran(network=False))[1]
    assert asyncio.run(ran(network=True))[0] is True
    assert "with the network" in asyncio.run(ran(network=True))[1]
