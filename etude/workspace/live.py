"""The user's own tree, in which nothing is written or run without consent: LiveWorkspace."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from etude.edits import unified_diff
from etude.errors import Refused
from etude.workspace.sandbox import Sandbox
from etude.workspace.workspace import Command, CommandResult, DiagnosticsReport, Entry

Consent = Callable[[str, str], Awaitable[bool]]
"""(what is to be done, in a few words; all of it, such as a diff) → whether the person allows it."""


class LiveWorkspace:
    """A Workspace over the user's tree; commands are isolated as everywhere, and see the tree itself."""

    def __init__(self, root: Path, consents: Consent) -> None:
        self._inner = Sandbox(root)
        self._consents = consents

    @property
    def root(self) -> Path:
        return self._inner.root

    async def close(self) -> None:
        await self._inner.close()

    async def read(self, path: str) -> str:
        return await self._inner.read(path)

    async def write(self, path: str, text: str | None) -> None:
        before, was_there = await self._text_of(path), await self._inner.exists(path)
        what = f"remove {path}" if text is None else f"write {path}"
        await self._ask(what, unified_diff(path, before, text or ""))
        if (await self._text_of(path), await self._inner.exists(path)) != (before, was_there):
            raise Refused(f"{path} changed while the question was open. Read it again.")
        await self._inner.write(path, text)

    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        return await self._inner.list(path, depth=depth)

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        await self._ask("run a command" + (" with network" if command.network else ""), command.line)
        return await self._inner.run(command, on_output=on_output)

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        return await self._inner.diagnostics(paths)

    async def _text_of(self, path: str) -> str:
        """What would be lost; a file that cannot be shown is not overwritten."""
        return await self._inner.read(path) if await self._inner.exists(path) else ""

    async def _ask(self, action: str, detail: str) -> None:
        if not await self._consents(action, detail):
            raise Refused(f"The person did not allow to {action}. Find another way, or ask what is wanted.")
