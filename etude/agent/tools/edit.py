"""The edit tool: a sketch that Apply merges into one file, or, where no Apply is given, an exact replacement.

Apply lives above this room, so whoever starts a run hands it in: `edit_with(apply)`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, Tool, ToolContext, ToolKind, failed
from etude.edits import unified_diff

MAX_DIFF_LINES = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a sketch: Applied(text="x = 2\\n"), or Applied(text=None, reason="…")."""

    text: str | None
    """The file as it should be; None if the sketch could not be merged."""
    reason: str = ""
    """Why not, and what to do about it."""


Apply = Callable[[str, str, str, str], Awaitable[Applied]]
"""(path, text of the file, sketch, instruction)"""


class SketchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    sketch: Annotated[
        str,
        msgspec.Meta(
            description="The changed parts of the file as they should be, in order, each with a line or two around it; "
            'a comment such as "# ... existing code ..." stands for what stays.'
        ),
    ]
    instruction: Annotated[str, msgspec.Meta(description="The change in one sentence.")] = ""


class ReplaceArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    old: Annotated[str, msgspec.Meta(min_length=1, description="Text of the file, exactly, line breaks included.")]
    new: Annotated[str, msgspec.Meta(description="What stands there instead.")]
    everywhere: Annotated[bool, msgspec.Meta(description="Replace all of several occurrences.")] = False


def edit_with(apply: Apply) -> Tool:
    """The edit tool that merges sketches by `apply`."""

    async def edit(arguments: SketchArguments, context: ToolContext) -> Answer:
        path = context.path(arguments.path)
        before = await context.workspace.read(path)
        applied = await apply(path, before, arguments.sketch, arguments.instruction)
        if applied.text is None:
            return failed(f"The sketch was not applied to {path}, which is as it was. {applied.reason}")
        return await _written(path, before, applied.text, context)

    return StructTool(
        name="edit",
        description="Change parts of an existing file by a sketch of what is new. The answer is the difference made.",
        arguments=SketchArguments,
        action=edit,
        kind=ToolKind.CHANGES,
        line=lambda arguments: f"edit {arguments.path}",
    )


async def replace(arguments: ReplaceArguments, context: ToolContext) -> Answer:
    path = context.path(arguments.path)
    before = await context.workspace.read(path)
    old, new = arguments.old, arguments.new
    if "\r\n" in before and "\r" not in old + new:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = before.count(old)
    if not count:
        return failed(f"{path} does not contain the text in `old`, so it is as it was. Read the file and copy exactly.")
    if count > 1 and not arguments.everywhere:
        return failed(
            f"{path} contains the text in `old` {count} times, so it is as it was. "
            "Give more of the lines around it, or set everywhere."
        )
    return await _written(path, before, before.replace(old, new), context)


async def _written(path: str, before: str, after: str, context: ToolContext) -> Answer:
    if before == after:
        return Answer(text=f"Nothing to do: {path} says that already.")
    await context.workspace.write(path, after)
    lines = unified_diff(path, before, after, context=2).splitlines()
    if len(lines) > MAX_DIFF_LINES:
        lines = [*lines[:MAX_DIFF_LINES], f"({len(lines) - MAX_DIFF_LINES} more lines of the difference.)"]
    return Answer(text="\n".join(lines), changed=(path,), record="diff")


REPLACE = StructTool(
    name="edit",
    description="Change a part of an existing file: the exact text `old` becomes `new`. The answer is the difference.",
    arguments=ReplaceArguments,
    action=replace,
    kind=ToolKind.CHANGES,
    line=lambda arguments: f"edit {arguments.path}",
)
