"""Which files a folder shows: what git would, or a bounded walk. Contents are not read here."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from etude.errors import FileUnusable
from etude.server.wire import FolderEntry, FolderListing, Listing
from etude.workspace.files import within

# The whole list is sent to the page at once, for the tree and quick-open; beyond this it asks by folder.
MAX_FILES = 20_000
MAX_FOLDER_ENTRIES = 2_000
GIT_TIMEOUT_SECONDS = 10

# Folders that hold what tools made; hidden only where no .gitignore speaks.
_MADE_FOLDERS = frozenset(
    {"node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "target"}
)


async def list_files(root: Path, *, max_files: int = MAX_FILES) -> Listing:
    """Every file of the folder, or `too_many`."""
    paths = await _git_files(root)
    git = paths is not None
    if paths is None:
        paths = await asyncio.to_thread(_walk, root, max_files)
    if len(paths) > max_files:
        return Listing(files=[], too_many=True, git=git)
    files = await asyncio.to_thread(_existing, root, paths)
    return Listing(files=files, too_many=False, git=git)


def list_folder(root: Path, relative: str) -> FolderListing:
    """One folder's entries, folders first; "" is the root."""
    folder = within(root, relative) if relative else root
    try:
        entries = sorted(_entries(folder), key=lambda entry: (not entry.is_folder, entry.name.lower()))
    except (FileNotFoundError, NotADirectoryError):
        raise FileUnusable(f"{relative} is not a folder. Choose one from the tree.") from None
    except OSError as error:
        raise FileUnusable(f"{relative or 'The folder'} cannot be listed: {error.strerror}.") from error
    return FolderListing(
        path=relative, entries=entries[:MAX_FOLDER_ENTRIES], truncated=len(entries) > MAX_FOLDER_ENTRIES
    )


def _entries(folder: Path) -> Iterator[FolderEntry]:
    with os.scandir(folder) as scan:
        for entry in scan:
            if entry.name != ".git" and _is_sendable(entry.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or _is_file(entry):
                    yield FolderEntry(name=entry.name, is_folder=is_folder)


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads round in a circle, or where we may not look
        return False


async def _git_files(root: Path) -> list[str] | None:
    """Tracked and untracked files that are not ignored; None outside a repository or without git."""
    # A repository's own configuration may name programs, to watch files or to fetch what is missing; listing must
    # not run them.
    command = ["git", "-C", str(root), "-c", "core.fsmonitor=false", "ls-files", "-coz", "--exclude-standard"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=environment
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), GIT_TIMEOUT_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    if process.returncode != 0:
        return None
    return list(dict.fromkeys(os.fsdecode(path) for path in output.split(b"\0") if path))


def _existing(root: Path, paths: list[str]) -> list[str]:
    """Git also names deleted files and submodules; names that are not UTF-8 cannot travel."""
    return sorted(path for path in paths if _is_sendable(path) and os.path.isfile(root / path))  # noqa: PTH113


def _is_sendable(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def _walk(root: Path, max_files: int) -> list[str]:
    """Files below the root until there is one too many."""
    paths: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git" and name not in _MADE_FOLDERS)
        below = Path(folder).relative_to(root)
        paths += [(below / name).as_posix() for name in files]
        if len(paths) > max_files:
            break
    return paths
