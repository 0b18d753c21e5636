"""The write tool: a whole file at once, or its removal."""

from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext, ToolKind
from etude.edits import split_lines
from etude.errors import FileUnusable


class WriteArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    text: Annotated[str | None, msgspec.Meta(description="All of the new content; null removes the file.")]


async def write(arguments: WriteArguments, context: ToolContext) -> Answer:
    path = context.path(arguments.path)
    was_there = await _is_there(path, context)
    await context.workspace.write(path, arguments.text)
    if arguments.text is None:
        return Answer(text=f"Removed {path}.", changed=(path,))
    lines = len(split_lines(arguments.text))
    done = "Replaced" if was_there else "Created"
    return Answer(text=f"{done} {path}: {lines} line{'s' * (lines != 1)}.", changed=(path,))


async def _is_there(path: str, context: ToolContext) -> bool:
    try:
        await context.workspace.read(path)
    except FileUnusable:
        return False
    return True


WRITE = StructTool(
    name="write",
    description="Create a file, with its folders, or replace all of it. To change a part of a file use edit.",
    arguments=WriteArguments,
    action=write,
    kind=ToolKind.CHANGES,
    line=lambda arguments: f"{'remove' if arguments.text is None else 'write'} {arguments.path}",
)
