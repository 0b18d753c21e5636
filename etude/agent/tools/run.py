"""The run tool: a shell command in the workspace."""

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from etude.agent.events import OutputPrinted
from etude.agent.toolbox import Answer, StructTool, ToolContext, ToolKind
from etude.traces import TurnError
from etude.workspace.git_ignore import MADE_FOLDERS
from etude.workspace.workspace import Command, CommandLimits, CommandResult, Ending

DEFAULT_SECONDS = 120.0
MAX_SECONDS = 3600.0
MAX_NAMED_CHANGES = 15
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


def run_tool(*, network: bool = False) -> StructTool[RunArguments]:
    """The tool for a run whose commands may use the network, or may not."""

    async def run(arguments: RunArguments, context: ToolContext) -> Answer:
        return await _run(arguments, context, network=network)

    return StructTool(
        name="run",
        description=f"Run a shell command in the workspace, {'with' if network else 'without'} the network, and read "
        "what it prints. Nothing is typed into it, and what it leaves running is ended with it.",
        arguments=RunArguments,
        action=run,
        kind=ToolKind.CHANGES,
        line=lambda arguments: f"$ {arguments.command}",
    )


async def _run(arguments: RunArguments, context: ToolContext, *, network: bool) -> Answer:
    seconds = max(0.1, min(arguments.seconds, context.seconds_left))
    limits = replace(CommandLimits(), seconds=seconds)
    folder = context.path(arguments.folder)
    command = Command(line=arguments.command, folder=folder, network=network, limits=limits)
    result = await context.workspace.run(
        command, on_output=lambda text: context.observer(OutputPrinted(id=context.call_id, text=text))
    )
    changed = tuple(path for path in result.changed if not MADE_FOLDERS & set(PurePosixPath(path).parts))
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
    if named := [path for path in changed if not path.startswith(".git/")]:
        more = f" and {len(named) - MAX_NAMED_CHANGES} more" if len(named) > MAX_NAMED_CHANGES else ""
        parts.append(f"It changed {', '.join(named[:MAX_NAMED_CHANGES])}{more}.")
    return "\n".join(parts)


RUN = run_tool()
