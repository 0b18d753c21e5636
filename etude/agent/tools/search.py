"""The search tool: lines of the workspace's files that hold a text or match a pattern.

Plain texts are looked for here. A pattern of the model's can take Python forever, and holds up the whole process while
it does, so patterns are matched in a process that is ended when its time is up.
"""

import asyncio
import fnmatch
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext, failed
from etude.edits import split_lines
from etude.errors import EtudeError
from etude.workspace.workspace import EntryKind, ReadsMany

MAX_HITS = 200
MAX_HITS_PER_FILE = 40
MAX_LINE_CHARACTERS = 240
# A folder tree of that depth is generated, or a cycle.
MAX_DEPTH = 40
MAX_FILES = 60_000
# What is larger is data.
MAX_FILE_BYTES = 2_000_000
SECONDS = 20.0
# Enough to read at once; few enough to look at the clock between them.
BATCH = 64

_MATCHER = Path(__file__).with_name("pattern_process.py")


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, description="What a line holds.")]
    pattern: Annotated[bool, msgspec.Meta(description="The text is a regular expression (Python's).")] = False
    ignore_case: bool = False
    path: Annotated[str, msgspec.Meta(description="A folder or file to search in.")] = "."
    files: Annotated[str, msgspec.Meta(description='Only files with such names, e.g. "*.py" or "tests/*.py".')] = "*"


@dataclass(slots=True, kw_only=True)
class Found:
    """What was found, and what kept the search from more."""

    hits: list[str] = field(default_factory=list)
    num_hits: int = 0
    num_files: int = 0
    cut: str = ""


async def search(arguments: SearchArguments, context: ToolContext) -> Answer:
    until = time.monotonic() + min(SECONDS, context.seconds_left)
    try:
        paths = await _paths(arguments, context)
        found = await (_matching if arguments.pattern else _holding)(arguments, paths, context, until)
    except _BadPattern as error:
        return failed(
            f"{arguments.text!r} is no regular expression: {error}. Leave pattern out to search for it as is."
        )
    return Answer(text=_text(arguments, found), record="search")


class _BadPattern(Exception):
    """Python cannot read it."""


def _text(arguments: SearchArguments, found: Found) -> str:
    lines = found.hits
    if not found.num_hits:
        what = "matches" if arguments.pattern else "holds"
        lines = [f"No line {what} {arguments.text!r} in the {found.num_files} files searched."]
    if found.num_hits > len(found.hits):
        lines = [*lines, f"({found.num_hits - len(found.hits)} more lines; search in fewer files or for more.)"]
    return "\n".join([*lines, *([found.cut] if found.cut else [])])


async def _paths(arguments: SearchArguments, context: ToolContext) -> list[str]:
    """The files to look into, in order. A path that is a file is one."""
    path = context.path(arguments.path)
    try:
        entries = await context.workspace.list(path, depth=MAX_DEPTH)
    except EtudeError:
        await context.workspace.read(path)
        return [path]
    wanted = [entry for entry in entries if entry.kind is EntryKind.FILE and not entry.ignored]
    return [
        entry.path for entry in wanted if entry.num_bytes <= MAX_FILE_BYTES and _is_named(entry.path, arguments.files)
    ][:MAX_FILES]


def _is_named(path: str, files: str) -> bool:
    return files == "*" or fnmatch.fnmatchcase(path, files) or fnmatch.fnmatchcase(PurePosixPath(path).name, files)


async def _texts(paths: Sequence[str], context: ToolContext, until: float) -> AsyncIterator[list[tuple[str, str]]]:
    """Batches of (path, text), without what is not text, as long as there is time."""
    for start in range(0, len(paths), BATCH):
        if time.monotonic() > until:
            return
        batch = paths[start : start + BATCH]
        if isinstance(context.workspace, ReadsMany):
            texts = await context.workspace.read_many(batch)
        else:
            texts = await asyncio.gather(*(_read(path, context) for path in batch))
        yield [(path, text) for path, text in zip(batch, texts, strict=True) if text is not None]


async def _read(path: str, context: ToolContext) -> str | None:
    try:
        return await context.workspace.read(path)
    except EtudeError:
        return None


# A text.


async def _holding(arguments: SearchArguments, paths: Sequence[str], context: ToolContext, until: float) -> Found:
    found = Found()
    wanted = arguments.text.lower() if arguments.ignore_case else arguments.text
    async for batch in _texts(paths, context, until):
        for path, text in batch:
            found.num_files += 1
            if wanted in (text.lower() if arguments.ignore_case else text):
                _add_hits(found, path, text, wanted, ignore_case=arguments.ignore_case)
    if time.monotonic() > until:
        found.cut = f"(The time was up after {found.num_files} of {len(paths)} files; search in a folder.)"
    return found


def _add_hits(found: Found, path: str, text: str, wanted: str, *, ignore_case: bool) -> None:
    in_file = 0
    for number, line in enumerate(split_lines(text), 1):
        if wanted not in (line.lower() if ignore_case else line):
            continue
        found.num_hits += 1
        in_file += 1
        if in_file <= MAX_HITS_PER_FILE and len(found.hits) < MAX_HITS:
            found.hits.append(hit_line(path, number, line))


def hit_line(path: str, number: int, line: str) -> str:
    line = line.strip()
    cut = f"{line[:MAX_LINE_CHARACTERS]}…" if len(line) > MAX_LINE_CHARACTERS else line
    return f"{path}:{number}: {cut}"


# A pattern.


async def _matching(arguments: SearchArguments, paths: Sequence[str], context: ToolContext, until: float) -> Found:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(_MATCHER), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    found = Found()
    try:
        async with asyncio.timeout(max(0.1, until - time.monotonic())):
            await _exchange(process, {"pattern": arguments.text, "ignore_case": arguments.ignore_case})
            async for batch in _texts(paths, context, until):
                for path, text in batch:
                    lines = await _exchange(process, {"text": text})
                    _note_matches(found, path, text, lines)
    except TimeoutError:
        found.cut = f"(The time was up after {found.num_files} of {len(paths)} files; the pattern may be slow.)"
    finally:
        await _end(process)
    return found


def _note_matches(found: Found, path: str, text: str, numbers: Sequence[int]) -> None:
    found.num_files += 1
    found.num_hits += len(numbers)
    lines = split_lines(text) if numbers else []
    room = min(MAX_HITS_PER_FILE, MAX_HITS - len(found.hits))
    found.hits += [hit_line(path, number, lines[number - 1]) for number in numbers[:room]]


async def _exchange(process: asyncio.subprocess.Process, request: dict[str, object]) -> list[int]:
    """Send a line of JSON, read one back: numbers of lines, or what is wrong with the pattern."""
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
    await process.stdin.drain()
    length = int(await process.stdout.readline() or b"0")
    answer = json.loads(await process.stdout.readexactly(length))
    if isinstance(answer, str):
        raise _BadPattern(answer)
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    # Also when we were cancelled ourselves: nothing is left running.
    await asyncio.shield(process.wait())


SEARCH = StructTool(
    name="search",
    description="Find lines in the workspace's text files. What git ignores, and hidden folders, are left out.",
    arguments=SearchArguments,
    action=search,
    line=lambda arguments: f"search {arguments.text}" + (f" in {arguments.path}" if arguments.path != "." else ""),
)
