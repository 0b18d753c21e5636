"""What a run's process does: `python -m etude.cli.agent_process FOLDER LOCK`, started by `agent/runs.py`.

Here come together what the agent's room does not see: the model that is configured, a shadow of the tree, Apply.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from etude.agent.events import Notice
from etude.agent.mcp_client import mcp_tools, servers_from_settings
from etude.agent.run_folder import RunFolder
from etude.agent.run_process import RunSession
from etude.agent.settings import agent_settings, limits_for, may_use_network
from etude.agent.shadow_settings import shadow_settings
from etude.cli import leaving_threads
from etude.cli.agent_attempts import Working, perform
from etude.errors import ServerUnreachable
from etude.models import opening as models
from etude.models.model import Model
from etude.models.opening import Choice, ServerChoice
from etude.server.unwaited import use_unwaited_threads
from etude.tasks import Task
from etude.workspace.shadow import open_shadow

# Far hosts answer within one; the rest is for packets that are lost.
CONNECT_SECONDS = 10.0
PORTS = {"http": 80, "https": 443}


def main(folder: str, lock: str) -> int:
    # What this process starts must not hold the lock that says this process lives.
    os.set_inheritable(int(lock), False)
    asyncio.run(_live(RunSession(RunFolder(Path(folder)))))
    return 0


async def _live(session: RunSession) -> None:
    use_unwaited_threads()
    await session.perform(_work)


async def _work(session: RunSession) -> None:
    """The model and the shadow are made at the same time; what was changed is saved before the shadow closes."""
    record, settings = session.record, agent_settings()
    await _check_reachable(models.choose(record.options.model))
    opening = asyncio.create_task(asyncio.to_thread(models.open_model, record.options.model))
    try:
        state, how = session.folder.shadow, shadow_settings(session.root)
        servers = servers_from_settings(models.settings_tables("mcp_server"))
        async with (
            open_shadow(session.root, state=state, settings=how) as shadow,
            _opened(opening) as model,
            mcp_tools(servers) as mcp,
        ):
            session.work_in(shadow)
            for problem in [*shadow.problems, *mcp.problems]:
                session.observe(Notice(text=problem))
            working = Working(
                session=session,
                task=Task(id=record.id, statement=record.follow_up or record.statement, check=record.options.check),
                model=model,
                shadow=shadow,
                limits=limits_for(settings, record.options),
                network=may_use_network(settings, record.options),
                tools=mcp.tools,
                at_once=settings.attempts_at_once,
            )
            await perform(working)
    finally:
        opening.cancel()


async def _check_reachable(choice: Choice) -> None:
    """A server that is not there at the very beginning is not waited for, as one is that goes away later."""
    if not isinstance(choice, ServerChoice) or getproxies():
        return
    parts = urlsplit(choice.url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or PORTS.get(parts.scheme, 80))
    except (OSError, TimeoutError, ValueError) as error:
        raise ServerUnreachable(
            f"Nothing answers at {choice.url} ({error or 'no answer'}). Start the server, or correct its address.",
            url=choice.url,
        ) from error
    writer.close()


@asynccontextmanager
async def _opened(opening: "asyncio.Task[Model]") -> AsyncGenerator[Model]:
    model = await opening
    try:
        yield model
    finally:
        await model.close()


if __name__ == "__main__":
    sys.exit(leaving_threads(main(*sys.argv[1:3])))
