"""A folder of its own, in which a model reads, writes and runs without being asked: Sandbox.

For trees that nobody else works in, such as a fresh checkout that a task is attempted or graded in. For the user's
own tree there are `shadow.py` and `live.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from etude.errors import FileUnusable, InputError, OutsideRoot
from etude.workspace.folder import Folder
from etude.workspace.isolation import Isolation
from etude.workspace.language_servers import LanguageServers
from etude.workspace.layers import disk_bytes
from etude.workspace.workspace import Command, CommandResult, DiagnosticsReport, Entry


class Sandbox:
    """A Workspace over one folder; made by `open_sandbox`."""

    def __init__(
        self, root: Path, *, readable: Sequence[Path] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._root = root
        self._folder = Folder(view=root, root=root)
        self._isolation = Isolation(
            root=root, readable=readable, environment=environment, disk_used=lambda: disk_bytes([root])
        )
        self._originals: dict[str, str | None] = {}
        self._servers = LanguageServers(root=root, view=root, start=self._isolation.start, original=self._originals.get)

    @property
    def root(self) -> Path:
        return self._root

    async def close(self) -> None:
        await self._servers.close()
        await self._isolation.close()
        self._folder.close()

    async def read(self, path: str) -> str:
        return await asyncio.to_thread(self._folder.read_text, path)

    async def read_many(self, paths: Sequence[str]) -> Sequence[str | None]:
        return await asyncio.to_thread(self._folder.read_texts, paths)

    async def exists(self, path: str) -> bool:
        return await asyncio.to_thread(self._folder.status, path) is not None

    async def write(self, path: str, text: str | None) -> None:
        if path not in self._originals:
            # Diagnostics are told as the change against this; what commands write counts as new.
            with suppress(FileUnusable, OutsideRoot):
                self._originals[path] = await asyncio.to_thread(self._folder.read_text, path)
            self._originals.setdefault(path, None)
        if text is None:
            await asyncio.to_thread(self._folder.remove, path)
        else:
            await asyncio.to_thread(self._folder.write_text, path, text)
        await self._servers.changed([path])

    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        return await asyncio.to_thread(self._folder.list, path, depth=depth)

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        result = await self._isolation.run(command, on_output=on_output)
        prefix = f"{self._root}/"
        written = {
            one.path.removeprefix(prefix) for one in result.opened if one.written and one.path.startswith(prefix)
        }
        await self._servers.changed(written)
        return result

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        return await self._servers.diagnostics(paths)


@asynccontextmanager
async def open_sandbox(
    root: Path, *, readable: Sequence[Path] = (), environment: Mapping[str, str] | None = None
) -> AsyncGenerator[Sandbox]:
    """The folder as a sandbox, until the end of the block; what was changed in it stays. Raises InputError."""
    real_root = await asyncio.to_thread(root.resolve)
    if not await asyncio.to_thread(real_root.is_dir):
        raise InputError(f"{root} is not a folder. Name the folder to work in.")
    sandbox = Sandbox(real_root, readable=readable, environment=environment)
    try:
        yield sandbox
    finally:
        await sandbox.close()
