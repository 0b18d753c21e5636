"""The runs of this machine, each a process of its own: `agent/runs.py` as the agent panel needs it.

What waits for the disk waits in a thread.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from etude.agent import runs
from etude.agent.events import AgentEvent
from etude.agent.landing import LandingReport
from etude.agent.run_values import RunOptions, RunSummary
from etude.server.agent_runs import Accepted
from etude.workspace.workspace import FileChange


class LocalRuns:
    """AgentRuns on this machine; `program` is what a run's process is."""

    def __init__(self, program: Sequence[str] = runs.PROGRAM) -> None:
        self._program = program

    async def start(self, root: Path, statement: str, options: RunOptions) -> str:
        return await asyncio.to_thread(runs.start, root, statement, options=options, program=self._program)

    async def runs(self, root: Path) -> list[RunSummary]:
        return await asyncio.to_thread(runs.runs, root)

    async def events(self, run: str) -> AsyncGenerator[AgentEvent]:
        async with aclosing(runs.events(run)) as events:
            async for event in events:
                yield event

    async def answer(self, run: str, question: str, text: str) -> None:
        await runs.answer(run, question, text)

    async def stop(self, run: str) -> None:
        await runs.stop(run)

    async def resume(self, run: str, follow_up: str) -> None:
        await asyncio.to_thread(runs.resume, run, follow_up, program=self._program)

    async def changes(self, run: str) -> list[FileChange]:
        return await runs.changes(run)

    async def land(self, run: str, accepted: Accepted) -> LandingReport:
        return await runs.land(run, accepted)

    async def discard(self, run: str) -> None:
        await runs.discard(run)
