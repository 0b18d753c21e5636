"""The language servers of one workspace: started when needed, told what changed, asked when edits have settled.

    servers = LanguageServers(root=root, view=root, start=isolation.start)
    await servers.changed(["shop/price.py"])         # only noted
    report = await servers.diagnostics()             # told and asked; never older than the last change

Diagnostics are pulled, or, from servers that only push, awaited for the version that was sent. They are reported as the
change against the state when the workspace was opened: a server that starts later is first shown the changed files as
they were (`original`).
"""

import asyncio
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from etude.edits import Patch, split_lines
from etude.errors import FileUnusable, LanguageServerUnavailable, OutsideRoot
from etude.workspace import lsp_values
from etude.workspace.folder import Folder
from etude.workspace.language_server import LanguageServer, Start, start_process
from etude.workspace.lsp_values import Found
from etude.workspace.server_specs import ServerSpec, default_specs
from etude.workspace.workspace import DiagnosticsReport, Place, Symbol

MEMORY_BYTES = 2_000_000_000

MAX_RESTARTS = 3
RESTART_SECONDS = 60.0

# A tree that takes longer is not asked as a whole again.
WHOLE_TREE_SECONDS = 10.0
PUSH_SECONDS = 15.0
# Servers that push tell of dependent files a moment after the changed one.
QUIET_SECONDS = 0.2

MAX_FILE_BYTES = 2_000_000
MAX_TOLD_PATHS = 5_000

Answer = TypeVar("Answer")


class _Running:
    """A server at work, and what its diagnostics were at the beginning."""

    def __init__(self, spec: ServerSpec, server: LanguageServer) -> None:
        self.spec = spec
        self.server = server
        self.dirty: set[str] = set()
        self.used = time.monotonic()
        self.baseline: dict[str, list[Found]] | None = None
        """By path; None until it was asked for."""
        self.whole_tree = spec.checks_whole_tree
        self.note = ""
        """What its reports leave out."""


class LanguageServers:
    """What all servers of a workspace say together."""

    def __init__(
        self,
        *,
        root: Path,
        view: Path,
        start: Start = start_process,
        specs: Sequence[ServerSpec] | None = None,
        original: Callable[[str], str | None] | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """`root` is the path servers see, `view` where this process reads the same tree.

        `original` gives the text that a file had when the workspace was opened.
        """
        self._root = root
        self._view = view
        self._opened: Folder | None = None
        self._start = start
        self._specs = default_specs() if specs is None else tuple(specs)
        self._original = original
        self._memory_bytes = memory_bytes
        self._running: dict[str, _Running] = {}
        self._baselines: dict[str, dict[str, list[Found]]] = {}
        self._changed: set[str] = set()
        self._restarts: dict[str, deque[float]] = {}
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        async with self._lock:
            for running in self._running.values():
                await running.server.close()
            self._running.clear()
            if self._opened:
                self._opened.close()
                self._opened = None

    async def changed(self, paths: Iterable[str]) -> None:
        """These files were written or removed; servers are told when the next question comes."""
        paths = set(paths)
        self._changed |= paths
        for running in self._running.values():
            running.dirty |= paths

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        """Of the paths, or of everything that changed or depends on it."""
        async with self._lock:
            before: list[Found] = []
            after: list[Found] = []
            asked, unavailable = [], []
            for spec in self._specs:
                mine = [path for path in (paths or sorted(self._changed)) if spec.speaks(path)]
                if not mine:
                    continue
                try:
                    was, now = await self._checked(spec, mine, only=set(paths))
                except LanguageServerUnavailable as error:
                    unavailable.append(str(error))
                    continue
                before += was
                after += now
                asked.append(spec.name)
                if note := self._running[spec.name].note:
                    unavailable.append(note)
            await self._keep_to_budget()
        appeared, gone, unchanged = lsp_values.difference(before, after)
        return DiagnosticsReport(
            appeared=tuple(appeared),
            gone=tuple(gone),
            num_unchanged=unchanged,
            servers=tuple(asked),
            unavailable=tuple(unavailable),
        )

    # One server.

    async def _checked(
        self, spec: ServerSpec, paths: Sequence[str], *, only: set[str]
    ) -> tuple[list[Found], list[Found]]:
        """Its diagnostics at the beginning and now; a server that dies meanwhile is asked once more, anew."""
        try:
            return await self._checked_once(spec, paths, only)
        except LanguageServerUnavailable:
            running = self._running.get(spec.name)
            if running is None or running.server.is_alive or running.server.hangs:
                raise
            return await self._checked_once(spec, paths, only)

    async def _checked_once(
        self, spec: ServerSpec, paths: Sequence[str], only: set[str]
    ) -> tuple[list[Found], list[Found]]:
        running = await self._server(spec)
        await self._take_baseline(running, paths)
        await self._settle(running)
        now = await self._pull(running, paths)
        baseline = running.baseline or {}
        # Of files that were not looked at now, nothing is known to be gone.
        wanted = only or ({*now, *baseline} if running.whole_tree else {*now})
        before = [found for path, items in baseline.items() if path in wanted for found in items]
        after = [found for path, items in now.items() if path in wanted for found in items]
        return before, after

    async def _server(self, spec: ServerSpec) -> _Running:
        running = self._running.get(spec.name)
        if running and running.server.is_alive:
            running.used = time.monotonic()
            return running
        self._check_restarts(spec.name)
        if running:
            self._restarts[spec.name].append(time.monotonic())
            await running.server.close()
        try:
            server = await LanguageServer.begin(
                spec.name,
                spec.argv,
                root=self._root,
                start=self._start,
                options=spec.options,
                settings=spec.settings,
            )
        except LanguageServerUnavailable:
            self._restarts[spec.name].append(time.monotonic())
            raise
        running = self._running[spec.name] = _Running(spec, server)
        running.baseline = self._baselines.get(spec.name)
        return running

    def _check_restarts(self, name: str) -> None:
        times = self._restarts.setdefault(name, deque(maxlen=MAX_RESTARTS))
        if len(times) == MAX_RESTARTS and time.monotonic() - times[0] < RESTART_SECONDS:
            raise LanguageServerUnavailable(f"{name} failed {MAX_RESTARTS} times within a minute and is left alone.")

    async def _take_baseline(self, running: _Running, paths: Sequence[str]) -> None:
        """Show it the changed files as they were, and ask."""
        baseline = self._baselines.setdefault(running.spec.name, {})
        is_first = running.baseline is None
        running.baseline = baseline
        if running.whole_tree and not is_first:
            return
        new = [path for path in paths if path not in baseline]
        if not new and not (is_first and running.whole_tree):
            return
        shown = sorted(self._changed) if running.whole_tree else new
        for path in [path for path in shown if running.spec.speaks(path)][:MAX_TOLD_PATHS]:
            text = self._original(path) if self._original and path in self._changed else self._text(path)
            await self._show(running, path, text)
        found = await self._pull(running, new)
        for path in {*new, *found}:
            baseline[path] = [] if self._is_new(path) else found.get(path, [])
        running.dirty |= {path for path in shown if path in self._changed}

    def _is_new(self, path: str) -> bool:
        """Was not there when the workspace was opened; the server could only be shown what it says now."""
        return self._original is not None and path in self._changed and self._original(path) is None

    async def _settle(self, running: _Running) -> None:
        """Tell everything that changed since the last question."""
        dirty, running.dirty = sorted(running.dirty), set()
        if not dirty:
            return
        server = running.server
        events = []
        for path in dirty[:MAX_TOLD_PATHS]:
            text = self._text(path)
            if path in server.documents:
                await self._show(running, path, text)
            kind = 3 if not self._exists(path) else 2
            events.append({"uri": server.uri(path), "type": kind})
            if kind == 2 and path not in running.server.documents:
                # A new file is told as one; for an old one that does no harm.
                events.append({"uri": server.uri(path), "type": 1})
        await server.tell("workspace/didChangeWatchedFiles", {"changes": events})

    async def _show(self, running: _Running, path: str, text: str | None) -> None:
        server = running.server
        if text is None:
            if path in server.documents:
                await server.shut(path)
        elif path in server.documents:
            await server.change(path, text)
        else:
            # Some servers check what depends on a document only when it changes, not when it is opened.
            disk = self._text(path)
            await server.open(path, text if disk is None else disk, running.spec.language)
            await server.change(path, text)

    # Asking.

    async def _pull(self, running: _Running, paths: Sequence[str]) -> dict[str, list[Found]]:
        """By path; of the whole tree where the server can."""
        if running.whole_tree:
            found = await self._pull_whole_tree(running)
            if found is not None:
                return found
        for path in paths:
            if path not in running.server.documents and (text := self._text(path)) is not None:
                await self._show(running, path, text)
        asked = sorted({*paths, *running.server.documents})
        if not running.server.pulls and (pushed := await self._await_pushes(running, asked)) is not None:
            return pushed
        return {path: await self._pull_one(running, path) for path in asked}

    async def _pull_whole_tree(self, running: _Running) -> dict[str, list[Found]] | None:
        server = running.server
        # A server holds its answer back until something differs from what we say we know; so we say something wrong.
        known = [{"uri": server.uri("etude-knows-nothing"), "value": "never"}]
        try:
            answer = await server.ask("workspace/diagnostic", {"previousResultIds": known}, seconds=WHOLE_TREE_SECONDS)
        except LanguageServerUnavailable:
            if not server.is_alive:
                raise
            running.whole_tree = False
            running.note = (
                f"{server.name} could not check the whole tree: errors in files that did not change may be missing."
            )
            return None
        found: dict[str, list[Found]] = {}
        items = answer.get("items") if isinstance(answer, dict) else None
        for item in items if isinstance(items, list) else []:
            path = server.path(item.get("uri")) if isinstance(item, dict) else None
            if path and item.get("items"):
                found[path] = lsp_values.diagnostics(item["items"], path, server, self._lines_for(server))
        return found

    async def _pull_one(self, running: _Running, path: str) -> list[Found]:
        server = running.server
        if path not in server.documents and not self._exists(path):
            return []
        answer = await server.ask("textDocument/diagnostic", {"textDocument": {"uri": server.uri(path)}})
        items = answer.get("items") if isinstance(answer, dict) else None
        return lsp_values.diagnostics(items, path, server, self._lines_for(server))

    async def _await_pushes(self, running: _Running, paths: Sequence[str]) -> dict[str, list[Found]] | None:
        """None if the server says meanwhile that it wants to be asked: pyright does so after it has begun."""
        server = running.server
        deadline = time.monotonic() + PUSH_SECONDS
        for path in paths:
            document = server.documents.get(path)
            while (document and document.published_version not in (None, document.version)) or (
                document and document.published is None
            ):
                if server.pulls:
                    return None
                document.arrived.clear()
                left = deadline - time.monotonic()
                if left <= 0 or not server.is_alive:
                    raise LanguageServerUnavailable(f"{server.name} said nothing of {path} in {PUSH_SECONDS:g} s.")
                with suppress(TimeoutError):
                    await asyncio.wait_for(document.arrived.wait(), left)
        await self._until_quiet(server, deadline)
        lines = self._lines_for(server)
        return {
            path: lsp_values.diagnostics(document.published, path, server, lines)
            for path in paths
            if (document := server.documents.get(path))
        }

    async def _until_quiet(self, server: LanguageServer, deadline: float) -> None:
        """What depends on a changed document is pushed without a new version; so wait until nothing comes."""
        documents = [*server.documents.values()]
        while time.monotonic() < deadline:
            for document in documents:
                document.arrived.clear()
            await asyncio.sleep(QUIET_SECONDS)
            if not any(document.arrived.is_set() for document in documents):
                return

    # Finding code.

    async def definition(self, path: str, line: int, column: int) -> list[Place]:
        answer, server = await self._find(path, "definition", line=line, column=column)
        return lsp_values.places(answer, server, self._lines_for(server))

    async def references(self, path: str, line: int, column: int) -> list[Place]:
        more = {"context": {"includeDeclaration": True}}
        answer, server = await self._find(path, "references", line=line, column=column, more=more)
        return lsp_values.places(answer, server, self._lines_for(server))

    async def hover(self, path: str, line: int, column: int) -> str:
        answer, _ = await self._find(path, "hover", line=line, column=column)
        return lsp_values.hover_text(answer)

    async def rename(self, path: str, line: int, column: int, name: str) -> list[Patch]:
        answer, server = await self._find(path, "rename", line=line, column=column, more={"newName": name})
        try:
            return lsp_values.patches(answer, server, lambda one: self._known_text(server, one) or "")
        except (ValueError, KeyError, TypeError):
            raise LanguageServerUnavailable(f"{server.name} answered a rename with edits that make no sense.") from None

    async def symbols(self, query: str = "", path: str = "") -> list[Symbol]:
        """Of one file, or, by a part of the name, of the whole tree."""
        if path:
            answer, server = await self._find(path, "documentSymbol")
            return lsp_values.symbols(answer, path, server, self._lines_for(server))
        found: list[Symbol] = []
        async with self._lock:
            for spec in self._specs:
                running = await self._server(spec)
                await self._settle(running)
                if running.server.can("workspaceSymbolProvider"):
                    answer = await running.server.ask("workspace/symbol", {"query": query})
                    found += lsp_values.symbols(answer, None, running.server, self._lines_for(running.server))
        return found

    async def _find(
        self, path: str, what: str, *, line: int = 0, column: int = 0, more: Mapping[str, Any] | None = None
    ) -> tuple[Any, LanguageServer]:
        """The answer of the first server for the file that can. Raises LanguageServerUnavailable."""
        async with self._lock:
            for spec in self._specs:
                if not spec.speaks(path):
                    continue
                running = await self._server(spec)
                server = running.server
                if not server.can(f"{what}Provider"):
                    continue
                await self._settle(running)
                if path not in server.documents:
                    await self._show(running, path, self._text(path))
                if path not in server.documents:
                    raise LanguageServerUnavailable(f"{path} is no text that {spec.name} can read.")
                document = {"textDocument": {"uri": server.uri(path)}}
                asked = server.position(path, line, column) if line else document
                answer = await server.ask(f"textDocument/{what}", {**asked, **(more or {})})
                await self._keep_to_budget()
                return answer, server
        raise LanguageServerUnavailable(f"There is no language server for {path} that can do this; see `etude doctor`.")

    # Files.

    def _lines_for(self, server: LanguageServer) -> Callable[[str], Sequence[str]]:
        known: dict[str, Sequence[str]] = {}

        def lines(path: str) -> Sequence[str]:
            if path not in known:
                known[path] = split_lines(self._known_text(server, path) or "")
            return known[path]

        return lines

    def _known_text(self, server: LanguageServer, path: str) -> str | None:
        document = server.documents.get(path)
        return document.text if document else self._text(path)

    def _text(self, path: str) -> str | None:
        """What the file says now. Links lead where they do in the tree: below a view, the system would follow them
        back to the user's."""
        try:
            status = self._folder().status(path)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            return self._folder().read_bytes(path, max_bytes=MAX_FILE_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError, FileUnusable, OutsideRoot):
            return None

    def _exists(self, path: str) -> bool:
        try:
            return self._folder().status(path) is not None
        except (OSError, ValueError, OutsideRoot):
            return False

    def _folder(self) -> Folder:
        self._opened = self._opened or Folder(view=self._view, root=self._root)
        return self._opened

    # Memory.

    async def _keep_to_budget(self) -> None:
        """Stop the servers that were not used for longest while all together take too much."""
        if len(self._running) < 2:
            return
        sizes = {name: await asyncio.to_thread(memory_of, one.server.process_id) for name, one in self._running.items()}
        for name in sorted(self._running, key=lambda name: self._running[name].used):
            if sum(sizes.values()) <= self._memory_bytes or len(self._running) == 1:
                return
            await self._running.pop(name).server.close()
            sizes.pop(name)


def memory_of(process: int) -> int:
    """Proportional set size of a process and all below it, in bytes."""
    total, todo = 0, [process]
    while todo:
        number = todo.pop()
        with suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{number}/smaps_rollup").read_text("ascii").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        with suppress(OSError, ValueError):
            for task in Path(f"/proc/{number}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text("ascii").split()]
    return total
