"""The run tool: a shell command in the workspace."""

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from etude.agent.events import OutputPrinted
from etude.agent.toolbox import Answer, StructTool, ToolContext, ToolKind
from etude.traces import TurnError
from etude.workspace.workspace import Checkpointed, Command, CommandLimits, CommandResult, Ending, Workspace

DEFAULT_SECONDS = 120.0
MAX_SECONDS = 3600.0
MAX_NAMED_CHANGES = 15
# What tools write beside the work; nobody wants it listed.
_CACHES = frozenset({"__pycache__", "node_modules", ".git", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".venv"})

_ENDINGS = {
    Ending.TIMED_OUT: "It was ended after {seconds:g} seconds, with all it had started; above is what it had printed.",
    Ending.OUT_OF_MEMORY: "It was ended because it used more memory than a command may.",
    Ending.OUT_OF_DISK: "It was ended because it wrote more to the disk than a command may.",
    Ending.STOPPED: "It was stopped.",
}


class RunArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(min_length=1, description="A line for the shell.")]
    folder: Annotated[str, msgspec.Meta(description="Where it starts.")] = "."
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS, description="It is ended after so long.")] = (
        DEFAULT_SECONDS
    )


async def run(arguments: RunArguments, context: ToolContext) -> Answer:
    seconds = max(0.1, min(arguments.seconds, context.seconds_left))
    limits = replace(CommandLimits(), seconds=seconds)
    command = Command(line=arguments.command, folder=context.path(arguments.folder), limits=limits)
    before = await _state(context.workspace)
    result = await context.workspace.run(
        command, on_output=lambda text: context.observer(OutputPrinted(id=context.call_id, text=text))
    )
    changed = await _changed(result, before, context.workspace)
    return Answer(
        text=_text(result, seconds, changed),
        error=None if result.exit_code == 0 else TurnError.COMMAND_FAILED,
        exit_code=result.exit_code,
        opened=tuple(sorted({opened.path for opened in result.opened if not opened.written})),
        changed=changed,
    )


def _text(result: CommandResult, seconds: float, changed: tuple[str, ...]) -> str:
    output = result.output.rstrip("\n")
    parts = [output] if output else ["(It printed nothing.)"]
    if result.ending is Ending.EXITED:
        parts.append(f"Exit code {result.exit_code}.")
    else:
        parts.append(_ENDINGS[result.ending].format(seconds=seconds))
    if changed:
        more = f" and {len(changed) - MAX_NAMED_CHANGES} more" if len(changed) > MAX_NAMED_CHANGES else ""
        parts.append(f"It changed {', '.join(changed[:MAX_NAMED_CHANGES])}{more}.")
    return "\n".join(parts)


# What it changed.


async def _state(workspace: Workspace) -> dict[str, bytes | None] | None:
    """What differs from the user's tree, path by path, where a workspace can tell without recording commands."""
    if not isinstance(workspace, Checkpointed):
        return None
    return {change.path: change.after for change in await workspace.changes() if not change.ignored}


async def _changed(
    result: CommandResult, before: dict[str, bytes | None] | None, workspace: Workspace
) -> tuple[str, ...]:
    if before is not None and (after := await _state(workspace)) is not None:
        return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path, 0) != after.get(path, 0)))
    written = {_relative(opened.path, workspace) for opened in result.opened if opened.written}
    return tuple(sorted(path for path in written if path and not _CACHES & set(PurePosixPath(path).parts)))


def _relative(path: str, workspace: Workspace) -> str:
    named, root = PurePosixPath(path), PurePosixPath(workspace.root)
    return str(named.relative_to(root)) if named.is_relative_to(root) else ""


RUN = StructTool(
    name="run",
    description="Run a shell command in the workspace, without the network, and read what it prints. Nothing is typed "
    "into it, and what it leaves running is ended with it.",
    arguments=RunArguments,
    action=run,
    kind=ToolKind.CHANGES,
    line=lambda arguments: f"$ {arguments.command}",
)
