"""`etude acp`: the agent of an editor, over the Agent Client Protocol on stdin and stdout."""

import argparse
import asyncio
import sys
from contextlib import redirect_stdout
from typing import cast

from etude.agent.mcp_client import servers_from_settings
from etude.agent.run_values import RunOptions
from etude.agent.settings import agent_settings, limits_for, may_use_network
from etude.agent.shadow_settings import shadow_settings
from etude.errors import InputError
from etude.models.model import Model
from etude.models.opening import open_model, settings_tables
from etude.server.unwaited import use_unwaited_threads


def run_acp(options: argparse.Namespace) -> int:
    """Until the editor closes our input."""
    try:
        import acp  # noqa: F401 (an extra, and a second to import)
    except ImportError:
        raise InputError("etude acp needs the package agent-client-protocol: pip install 'etude[acp]'.") from None
    asyncio.run(_serve(options.model))
    return 0


async def _serve(model_name: str | None) -> None:
    import acp

    from etude.server.acp import EtudeAgent

    use_unwaited_threads()
    settings, wanted = agent_settings(), RunOptions(model=model_name)

    async def opened() -> Model:
        return await asyncio.to_thread(open_model, model_name)

    agent = EtudeAgent(
        opened,
        settings_for=shadow_settings,
        limits=limits_for(settings, wanted),
        network=may_use_network(settings, wanted),
        mcp_servers=servers_from_settings(settings_tables("mcp_server")),
    )
    try:
        # Whatever prints by accident must not end up in the protocol.
        streams = await acp.stdio_streams()
        with redirect_stdout(sys.stderr):
            await acp.run_agent(cast(acp.Agent, agent), *reversed(streams))
    finally:
        await agent.close()
