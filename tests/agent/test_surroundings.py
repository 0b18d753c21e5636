"""What goes on around the calls, where the workspace is slow."""

import asyncio

from etude.agent.surroundings import DEAR_SECONDS, Surroundings
from etude.workspace.memory import MemoryWorkspace


class Slow(MemoryWorkspace):
    """Keeps checkpoints so slowly that one a turn would be too dear."""

    async def snapshot(self, label: str = "") -> str:
        await asyncio.sleep(DEAR_SECONDS + 0.05)
        return await super().snapshot(label)


def test_dear_checkpoints_are_taken_now_and_then() -> None:
    async def work() -> None:
        for workspace, taken in ((MemoryWorkspace({}), [True, True, True]), (Slow({}), [True, False, False])):
            around = Surroundings(workspace, lambda event: None)
            kept = [await around.checkpoint(before_changes=True) for _ in range(3)]
            assert [checkpoint is not None for checkpoint in kept] == taken

    asyncio.run(work())
