"""The read tool: lines of a file, or of a record such as "output:3"."""

import re
from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext, failed
from etude.edits import split_lines

MAX_LINES = 600
# Minified code has lines of a megabyte.
MAX_LINE_CHARACTERS = 1_000
MAX_RECORD_LINES = 400

_RECORD = re.compile(r"[a-z][a-z0-9_]*:\d+(?:-\d+)?")


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description='A file, or a record such as "output:3".')]
    first_line: Annotated[int, msgspec.Meta(ge=1)] = 1
    last_line: Annotated[int, msgspec.Meta(ge=1)] | None = None


async def read(arguments: ReadArguments, context: ToolContext) -> Answer:
    first, last = arguments.first_line, arguments.last_line or arguments.first_line + MAX_LINES - 1
    if last < first:
        return failed(f"Lines {first} to {last} are none: last_line comes before first_line.")
    if _RECORD.fullmatch(arguments.path):
        last = min(last, first + MAX_RECORD_LINES - 1)
        return Answer(text=context.records.read(arguments.path, first, last))
    path = context.path(arguments.path)
    lines = split_lines(await context.workspace.read(path))
    if not lines:
        return Answer(text=f"{path} is empty.")
    if first > len(lines):
        return failed(f"{path} has {len(lines)} lines; there is no line {first}.")
    return Answer(
        text=_numbered(path, lines, first, min(last, first + MAX_LINES - 1), context.characters), record="file"
    )


def _numbered(path: str, lines: list[str], first: int, last: int, room: int) -> str:
    """As many of the lines as there is room for, each with its number, and how to see more."""
    shown: list[str] = []
    # Some is left for the line at the end.
    left = room - 200 - len(path)
    for number, line in enumerate(lines[first - 1 : last], first):
        text = f"{number:>5} {_shortened(line)}"
        left -= len(text) + 1
        if left < 0 and shown:
            break
        shown.append(text)
    end = first + len(shown) - 1
    if first == 1 and end == len(lines):
        return "\n".join(shown)
    more = f" Read on with first_line={end + 1}." if end < len(lines) else ""
    return "\n".join([*shown, f"(Lines {first} to {end} of {len(lines)} of {path}.{more})"])


def _shortened(line: str) -> str:
    line = line.rstrip("\r\n")
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]}… ({len(line) - MAX_LINE_CHARACTERS} more characters)"


def _line(arguments: ReadArguments) -> str:
    lines = f":{arguments.first_line}" if arguments.first_line > 1 or arguments.last_line else ""
    return f"read {arguments.path}{lines}" + (f"-{arguments.last_line}" if arguments.last_line else "")


READ = StructTool(
    name="read",
    description="Read lines of a text file, with their numbers, or of a record of what was cut short earlier.",
    arguments=ReadArguments,
    action=read,
    line=_line,
)
