"""What the agent panel needs of runs: the AgentRuns protocol. The real ones are `LocalRuns`, a fake `ScriptedRuns`."""

from collections.abc import AsyncGenerator, Collection, Mapping
from pathlib import Path
from typing import Protocol

from etude.agent.events import AgentEvent
from etude.agent.landing import LandingReport
from etude.agent.run_values import RunOptions, RunSummary
from etude.workspace.workspace import FileChange

Accepted = Mapping[str, Collection[int]]
"""Of each path the hunks that are wanted; a path that is not named stays as the person has it."""


class AgentRuns(Protocol):
    """Runs by their ids. All may raise EtudeError with a sentence for the person."""

    async def start(self, root: Path, statement: str, options: RunOptions) -> str: ...
    async def runs(self, root: Path) -> list[RunSummary]:
        """Those of this folder, the newest first."""
        ...

    def events(self, run: str) -> AsyncGenerator[AgentEvent]:
        """All from the first on; the last is Stopped."""
        ...

    async def answer(self, run: str, question: str, text: str) -> None: ...
    async def stop(self, run: str) -> None: ...
    async def resume(self, run: str, follow_up: str) -> None:
        """Let a run that has ended go on; `follow_up`, which may be empty, is what else to do."""
        ...

    async def changes(self, run: str) -> list[FileChange]:
        """So far, or in the end; ignored files left out."""
        ...

    async def land(self, run: str, accepted: Accepted) -> LandingReport: ...
    async def discard(self, run: str) -> None: ...
