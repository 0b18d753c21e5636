"""The checkpoint and restore tools: keep all files as they are, and go back to that."""

from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext, ToolKind
from etude.workspace.workspace import Checkpointed

MAX_LABEL_CHARACTERS = 60
MAX_NAMED_CHANGES = 30


class CheckpointArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL_CHARACTERS, description="To know it by.")] = ""


class RestoreArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checkpoint: Annotated[str, msgspec.Meta(description="The id that checkpoint or restore gave.")]


async def checkpoint(arguments: CheckpointArguments, context: ToolContext) -> Answer:
    workspace = context.workspace
    assert isinstance(workspace, Checkpointed)
    return Answer(text=f"Checkpoint {await workspace.snapshot(arguments.label)} keeps the files as they are now.")


async def restore(arguments: RestoreArguments, context: ToolContext) -> Answer:
    workspace = context.workspace
    assert isinstance(workspace, Checkpointed)
    before = {change.path: change.after for change in await workspace.changes()}
    undo = await workspace.restore(arguments.checkpoint)
    after = {change.path: change.after for change in await workspace.changes()}
    changed = tuple(sorted(path for path in before.keys() | after.keys() if before.get(path, 0) != after.get(path, 0)))
    named = ", ".join(changed[:MAX_NAMED_CHANGES]) or "nothing"
    more = f" and {len(changed) - MAX_NAMED_CHANGES} more" if len(changed) > MAX_NAMED_CHANGES else ""
    return Answer(
        text=f"All files are as they were at {arguments.checkpoint}; that changed {named}{more}. "
        f"To undo this, restore {undo}.",
        changed=changed,
    )


CHECKPOINT = StructTool(
    name="checkpoint",
    description="Keep all files as they are now, to be able to go back to them; what commands did is kept too.",
    arguments=CheckpointArguments,
    action=checkpoint,
    line=lambda arguments: f"checkpoint {arguments.label}".rstrip(),
)

RESTORE = StructTool(
    name="restore",
    description="Make all files as they were at a checkpoint. This can itself be undone.",
    arguments=RestoreArguments,
    action=restore,
    kind=ToolKind.CHANGES,
    line=lambda arguments: f"restore {arguments.checkpoint}",
)
