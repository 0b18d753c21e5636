"""A hidden copy-on-write copy of the user's folder, at the same path, for an agent to work in: open_shadow.

    async with open_shadow(Path("/home/me/app")) as shadow:
        await shadow.write("pay.py", "…")
        await shadow.run(Command(line="pytest -q"))
        patch = await shadow.changes()

Everything is there that the user has: uncommitted and ignored files, environments, the editor's unsaved buffers. The
user's tree is never written. What the user changes meanwhile appears in the shadow, merged with the agent's work.
"""

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

import platformdirs

from etude.edits import Patch
from etude.errors import EtudeError, InputError, ShadowUnavailable, WorkspaceError
from etude.workspace.git_ignore import ignored_paths
from etude.workspace.isolation import Isolation
from etude.workspace.language_servers import LanguageServers
from etude.workspace.mounts import Mechanism, erase_tree, no_mechanism
from etude.workspace.postgres import Branch, DatabaseSettings
from etude.workspace.server_specs import ServerSpec
from etude.workspace.shadow_database import branch_for, drop_branch
from etude.workspace.shadow_tree import ShadowTree
from etude.workspace.three_way import merge
from etude.workspace.watching import TreeWatch
from etude.workspace.workspace import (
    Command,
    CommandResult,
    DiagnosticsReport,
    Entry,
    FileChange,
    Followed,
    Place,
    Symbol,
)

# Contents of ignored files (caches, environments) that are shown with the changes; beyond it only that they changed.
MAX_IGNORED_BYTES = 20_000_000

# What a read file said is remembered for merging what the user saves before the agent writes it back.
MAX_REMEMBERED = 500

OWNER_NAME = "owner"

_WAY_OUT = "Your files are as they were; look for space in the folder of etude's files (ETUDE_STATE)."

Given = ParamSpec("Given")
Got = TypeVar("Got")

# In a class with a method `list`, the built-in name means that method.
Places: TypeAlias = list[Place]
Symbols: TypeAlias = list[Symbol]
Patches: TypeAlias = list[Patch]
AllFollowed: TypeAlias = list[Followed]
Changes: TypeAlias = list[FileChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSettings:
    """How shadows are made; by default the best way this machine can."""

    mechanism: Mechanism | None = None
    readable: tuple[Path, ...] = ()
    """Beyond the system's folders and the tree, what commands may read."""
    environment: Mapping[str, str] | None = None
    """Beside the small clean one that commands get."""
    language_servers: tuple[ServerSpec, ...] | None = None
    """Those that can be started; None for the ones that come with etude."""
    database: DatabaseSettings | None = None
    """A PostgreSQL database that branches with the shadow."""


class ShadowWorkspace:
    """Workspace, Checkpointed, Following and Navigable over a ShadowTree; made by `open_shadow`."""

    def __init__(
        self,
        tree: ShadowTree,
        settings: ShadowSettings,
        *,
        watch: TreeWatch | None = None,
        branch: Branch | None = None,
    ) -> None:
        self._tree = tree
        self._settings = settings
        self._branch = branch
        self._watch = watch or TreeWatch(tree.root)
        environment = dict(settings.environment or {})
        if branch and settings.database:
            environment[settings.database.variable] = branch.url
        self._isolation = Isolation(
            root=tree.root,
            enter=tree.mounted.enter,
            readable=(*settings.readable, *(branch.readable if branch else ())),
            environment=environment,
            disk_used=tree.disk_bytes,
        )
        self._servers = LanguageServers(
            root=tree.root,
            view=tree.mounted.view,
            start=self._isolation.start,
            specs=settings.language_servers,
            original=tree.original_text,
        )
        # Files are looked at and written by one at a time; commands run beside.
        self._lock = asyncio.Lock()
        self.before_read: Callable[[str], Awaitable[None]] | None = None
        """Called with a path before it is read: an editor hands over its unsaved text here, by `set_buffer`."""
        self._followed: list[Followed] = []
        self._remembered: dict[str, str] = {}
        self._following = asyncio.create_task(self._keep_following())

    @property
    def root(self) -> Path:
        return self._tree.root

    @property
    def mechanism(self) -> Mechanism:
        return self._tree.mechanism

    @property
    def problems(self) -> list[str]:
        """What is not as good as it could be, for a person."""
        return [self._watch.problem] if self._watch.problem else []

    async def close(self) -> None:
        self._following.cancel()
        with suppress(asyncio.CancelledError):
            await self._following
        await self._servers.close()
        await self._isolation.close()
        self._watch.close()
        async with self._lock:
            await asyncio.to_thread(self._tree.close)
        if self._branch:
            await drop_branch(self._branch, self._tree.files.state)

    # Workspace.

    async def read(self, path: str) -> str:
        if self.before_read:
            await self.before_read(path)
        text = await self._in_thread(self._tree.folder.read_text, path)
        self._remembered[self._tree.folder.real_path(path)] = text
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        return text

    async def saved(self, path: str) -> bytes | None:
        """What the user's own file says on the disk; None if there is none. Raises OutsideRoot."""
        real_path = await self._in_thread(self._tree.folder.real_path, path)
        return await self._in_thread(self._tree.files.live.content, real_path)

    async def read_many(self, paths: Sequence[str]) -> Sequence[str | None]:
        return await self._in_thread(self._tree.folder.read_texts, paths)

    async def write(self, path: str, text: str | None) -> None:
        written = await self._in_thread(self._write, path, text)
        await self._servers.changed([written])

    def _write(self, path: str, text: str | None) -> str:
        self._carry_pending()
        if text is not None:
            path = self._tree.folder.real_path(path)
        self._tree.before_write(path)
        if text is None:
            self._tree.folder.remove(path)
            self._remembered.pop(path, None)
        else:
            text = self._with_unseen_edits(path, text)
            self._tree.folder.write_text(path, text)
            self._remembered[path] = text
        self._tree.see(path)
        return path

    def _with_unseen_edits(self, path: str, text: str) -> str:
        """What the user saved between the agent's reading of a file and its writing is not to be lost."""
        seen = self._remembered.get(path)
        now = self._tree.folder.content(path)
        if seen is None or now is None or now == seen.encode():
            return text
        merged = merge(seen.encode(), text.encode("utf-8", "surrogatepass"), now)
        if merged.conflict:
            self._followed.append(Followed(path=path, conflict=True))
        return text if merged.conflict or merged.content is None else merged.content.decode()

    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        entries = await self._in_thread(lambda: self._tree.folder.list(path, depth=depth))
        ignored = await ignored_paths(self._isolation.start, [entry.path for entry in entries], self._is_repository())
        return [replace(entry, ignored=entry.path in ignored) for entry in entries]

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        if not await asyncio.to_thread(self.root.is_dir):
            raise WorkspaceError(f"{self.root} is gone, so nothing is run in its shadow. Put the folder back first.")
        await self._in_thread(self._carry_pending)
        since = time.time_ns()
        try:
            result = await self._isolation.run(command, on_output=on_output)
        finally:
            changed = await asyncio.shield(self._notice(since))
        return replace(result, changed=tuple(sorted(changed)))

    async def _notice(self, since_ns: int) -> set[str]:
        changed = await self._in_thread(self._noticed, since_ns)
        if changed:
            await self._servers.changed(changed)
        return changed

    def _noticed(self, since_ns: int) -> set[str]:
        pending = self._watch.changed()
        changed = self._tree.notice(pending=pending, since_ns=since_ns)
        self._carry(pending)
        return changed

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        return await self._servers.diagnostics(paths)

    # Navigable.

    async def definition(self, path: str, line: int, column: int) -> Places:
        return await self._servers.definition(path, line, column)

    async def references(self, path: str, line: int, column: int) -> Places:
        return await self._servers.references(path, line, column)

    async def hover(self, path: str, line: int, column: int) -> str:
        return await self._servers.hover(path, line, column)

    async def symbols(self, query: str = "", path: str = "") -> Symbols:
        return await self._servers.symbols(query, path)

    async def rename(self, path: str, line: int, column: int, name: str) -> Patches:
        return await self._servers.rename(path, line, column, name)

    # Following.

    async def follow(self) -> AllFollowed:
        await self._carry_and_tell()
        followed, self._followed = self._followed, []
        return followed

    async def set_buffer(self, path: str, text: str | None) -> None:
        content = None if text is None else text.encode("utf-8", "replace")
        followed = await self._in_thread(self._tree.set_buffer, path, content)
        self._followed += followed
        if followed:
            await self._servers.changed([path])

    async def _keep_following(self) -> None:
        await self._watch.ready()
        while True:
            await self._watch.wait()
            # What fails now is tried again, and told, when the agent next asks.
            with suppress(OSError, EtudeError):
                await self._carry_and_tell()

    async def _carry_and_tell(self) -> None:
        changed = await self._in_thread(self._carry_pending)
        if changed:
            await self._servers.changed(changed)

    def _carry_pending(self) -> set[str]:
        return self._carry(self._watch.changed())

    def _carry(self, pending: Iterable[str]) -> set[str]:
        """Bring the user's changes in; returns the paths that are different now."""
        paths = set()
        for path in sorted(pending):
            followed = self._tree.carry(path)
            self._followed += followed
            paths |= {path, *(item.path for item in followed)}
        return paths

    # Checkpointed.

    async def snapshot(self, label: str = "") -> str:
        return await self._in_thread(self._snapshot, label)

    def _snapshot(self, label: str) -> str:
        self._noticed(time.time_ns())
        return self._tree.snapshot(label)

    async def restore(self, checkpoint: str) -> str:
        self._tree.checkpoint(checkpoint)
        undo, changed = await self._in_thread(self._restore, checkpoint)
        await self._servers.changed(changed)
        return undo

    def _restore(self, checkpoint: str) -> tuple[str, set[str]]:
        undo = self._snapshot(f"before going back to {checkpoint}")
        self._remembered.clear()
        return undo, self._tree.restore(checkpoint)

    @asynccontextmanager
    async def fork(self, count: int) -> AsyncGenerator[Sequence["ShadowWorkspace"]]:
        """`count` copies, each with servers of its own."""
        checkpoint = self._tree.checkpoint(await self.snapshot("before forking"))
        folders = [self._tree.files.state / "forks" / secrets.token_hex(4) for _ in range(count)]
        async with AsyncExitStack() as stack:
            forks = []
            for folder in folders:
                forks.append(await stack.enter_async_context(self._forked(folder, checkpoint.id)))
            yield forks

    @asynccontextmanager
    async def _forked(self, folder: Path, checkpoint: str) -> AsyncGenerator["ShadowWorkspace"]:
        await asyncio.to_thread(folder.mkdir, parents=True, mode=0o700)
        try:
            branch = await _branched(self._settings, folder, parent=self._branch)
            tree = await self._in_thread(lambda: self._tree.forked(folder, self._tree.checkpoint(checkpoint)))
            fork = ShadowWorkspace(tree, self._settings, branch=branch)
            try:
                yield fork
            finally:
                await fork.close()
        finally:
            await asyncio.to_thread(erase_tree, folder)

    async def changes(self) -> Changes:
        paths = [path for path in await self._in_thread(self._changed_paths) if not _is_of_git(path)]
        ignored = await ignored_paths(self._isolation.start, paths, self._is_repository())
        return await self._in_thread(self._changes, paths, ignored)

    def _changed_paths(self) -> Sequence[str]:
        self._noticed(time.time_ns())
        return self._tree.changed_paths()

    def _changes(self, paths: Sequence[str], ignored: set[str]) -> Changes:
        changes, left = [], MAX_IGNORED_BYTES
        for path in paths:
            change = self._tree.change(path)
            if change and path in ignored:
                left -= len(change.before or b"") + len(change.after or b"")
                change = replace(change, ignored=True)
                if left < 0:
                    change = replace(change, before=None, after=None)
            if change:
                changes.append(change)
        return changes

    def _is_repository(self) -> bool:
        return self._tree.folder.status(".git") is not None

    async def _in_thread(self, function: Callable[Given, Got], *arguments: Given.args, **named: Given.kwargs) -> Got:
        # Whoever is cancelled leaves; the thread works to its end, and the lock is held until then.
        return await asyncio.shield(asyncio.ensure_future(self._locked(function, *arguments, **named)))

    async def _locked(self, function: Callable[Given, Got], *arguments: Given.args, **named: Given.kwargs) -> Got:
        async with self._lock:
            try:
                return await asyncio.to_thread(function, *arguments, **named)
            except OSError as error:
                raise WorkspaceError(f"The shadow of {self.root} fails: {error.strerror}. {_WAY_OUT}") from error


@asynccontextmanager
async def open_shadow(
    root: Path, *, state: Path | None = None, settings: ShadowSettings | None = None
) -> AsyncGenerator[ShadowWorkspace]:
    """A shadow of the folder, gone at the end of the block.

    With `state` its files are kept there, and a shadow that was there before is opened again.
    Raises InputError, ShadowUnavailable, SandboxUnavailable.
    """
    root = _checked_root(root)
    folder = state or state_home() / "shadows" / secrets.token_hex(6)
    _check_apart(root, folder)
    if state is None:
        await asyncio.to_thread(clean_leftovers)
    with _kept_in(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _owning(folder):
        # Watching begins before the view is there, so that no change falls between.
        watch = TreeWatch(root)
        try:
            shadow = await _opened(root, folder, settings or ShadowSettings(), watch)
            try:
                yield shadow
            finally:
                await shadow.close()
        finally:
            if state is None:
                await asyncio.to_thread(erase_tree, folder)


def _checked_root(root: Path) -> Path:
    real_root = Path(os.path.realpath(root))
    if not real_root.is_dir():
        raise InputError(f"{root} is not a folder. Name the folder to work in.")
    return real_root


def _check_apart(root: Path, state: Path) -> None:
    if Path(os.path.realpath(state)).is_relative_to(root):
        raise InputError(
            f"A shadow of {root} cannot be kept in {state}, which lies inside it. "
            "Choose a folder further down, or another place for etude's files (ETUDE_STATE)."
        )


async def _opened(root: Path, folder: Path, settings: ShadowSettings, watch: TreeWatch) -> ShadowWorkspace:
    try:
        with _kept_in(folder):
            branch = await _branched(settings, folder)
            tree = await asyncio.to_thread(_open_tree, root, folder, settings.mechanism)
    except BaseException:
        watch.close()
        raise
    return ShadowWorkspace(tree, settings, watch=watch, branch=branch)


@contextmanager
def _kept_in(folder: Path) -> Generator[None]:
    """What the system says against keeping files there, as ShadowUnavailable."""
    try:
        yield
    except OSError as error:
        raise ShadowUnavailable(
            f"A shadow cannot be kept in {folder}: {error.strerror}. "
            "Free some space, or choose another place for etude's files (ETUDE_STATE)."
        ) from error


async def _branched(settings: ShadowSettings, state: Path, *, parent: Branch | None = None) -> Branch | None:
    if settings.database is None:
        return None
    return await branch_for(settings.database, state, state_home(), parent=parent)


def _open_tree(root: Path, state: Path, wanted: Mechanism | None) -> ShadowTree:
    """By the mechanism asked for, or the first that works here and does not copy everything."""
    kept = state / "mechanism"
    if kept.exists():
        wanted = Mechanism(kept.read_text("utf-8"))
    problems = []
    for mechanism in [wanted] if wanted else [one for one in Mechanism if one is not Mechanism.COPY]:
        try:
            tree = ShadowTree(root=root, state=state, mechanism=mechanism)
        except ShadowUnavailable as error:
            problems.append(f"{mechanism}: {error}")
            continue
        kept.write_text(mechanism, "utf-8")
        return tree
    raise no_mechanism(problems)


def state_home() -> Path:
    """Where etude keeps what it works on: ETUDE_STATE, or the user's state folder."""
    chosen = os.environ.get("ETUDE_STATE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_state_dir("etude"))


@contextmanager
def _owning(folder: Path) -> Generator[None]:
    """A lock that the system gives back however the process ends; what nobody owns is a leftover."""
    with (folder / OWNER_NAME).open("w") as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"The shadow in {folder} is in use by another etude. Stop that one first.") from None
        yield


def clean_leftovers() -> list[Path]:
    """Remove shadows whose process ended without doing so; returns their folders."""
    cleaned = []
    with suppress(OSError):
        for folder in (state_home() / "shadows").iterdir():
            if _is_leftover(folder):
                erase_tree(folder)
                cleaned.append(folder)
    return cleaned


def _is_leftover(folder: Path) -> bool:
    try:
        with (folder / OWNER_NAME).open("r+") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        # Just being made, or erased half-way.
        return time.time() - folder.stat().st_mtime > 60
    except OSError:
        return False


def _is_of_git(path: str) -> bool:
    return ".git" in path.split("/")
