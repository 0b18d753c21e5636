"""Which paths are of no interest to a reviewer: ignored by git's rules, or made by well-known tools."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

Start = Callable[[Sequence[str]], Awaitable[asyncio.subprocess.Process]]
"""Starts a program in the workspace, isolated, with pipes."""

GIT_SECONDS = 10.0

# Caches and environments that no project keeps, whether or not its .gitignore says so.
MADE_FOLDERS = frozenset(
    {"node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox", ".hypothesis"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".ty_cache"}
)

# A repository's own configuration may name programs to run; none of them is needed to read ignore rules.
_CHECK = ("git", "-c", "core.fsmonitor=false", "-c", "safe.directory=*", "check-ignore", "-z", "--stdin")


async def ignored_paths(start: Start, paths: Iterable[str], is_repository: bool) -> set[str]:
    """Those of the paths that git ignores, or that lie in folders that tools make.

    Where git cannot say, a reviewer is shown too much rather than too little.
    """
    paths = list(paths)
    made = {path for path in paths if MADE_FOLDERS & set(PurePosixPath(path).parts)}
    asked = [path for path in paths if path not in made]
    if not is_repository or not asked:
        return made
    return made | await _ignored_by_git(start, asked)


async def _ignored_by_git(start: Start, paths: Sequence[str]) -> set[str]:
    question = b"".join(os.fsencode(path) + b"\0" for path in paths)
    process = await start(_CHECK)
    try:
        output, _ = await asyncio.wait_for(process.communicate(question), GIT_SECONDS)
    except TimeoutError:
        return set()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return {os.fsdecode(path) for path in output.split(b"\0") if path}
