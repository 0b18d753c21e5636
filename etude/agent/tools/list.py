"""The list tool: what is in a folder."""

from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext
from etude.workspace.workspace import Entry, EntryKind

MAX_ENTRIES = 400


class ListArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="A folder.")] = "."
    depth: Annotated[int, msgspec.Meta(ge=1, le=8, description="1 for the folder itself.")] = 2


async def list_folder(arguments: ListArguments, context: ToolContext) -> Answer:
    path = context.path(arguments.path)
    entries = await context.workspace.list(path, depth=arguments.depth)
    if not entries:
        return Answer(text=f"{path} is empty.")
    shown = [entry_line(entry) for entry in entries[:MAX_ENTRIES]]
    if len(entries) > MAX_ENTRIES:
        shown.append(f"({len(entries) - MAX_ENTRIES} more; list a folder in it, or with a smaller depth.)")
    return Answer(text="\n".join(shown), record="list")


def entry_line(entry: Entry) -> str:
    sign = {EntryKind.FOLDER: "/", EntryKind.LINK: "@", EntryKind.OTHER: "?"}.get(entry.kind, "")
    return f"{entry.path}{sign}{' (ignored by git)' if entry.ignored else ''}"


LIST = StructTool(
    name="list",
    description="List a folder. Folders end in /, links in @. What git ignores, and hidden folders, are not entered.",
    arguments=ListArguments,
    action=list_folder,
    line=lambda arguments: f"list {arguments.path}",
)
