"""The finish tool: the end of the work, and what there is to say about it."""

from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext


class FinishArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    answer: Annotated[
        str, msgspec.Meta(description="For the person: what was done and what was not, or what was asked.")
    ]


async def finish(arguments: FinishArguments, context: ToolContext) -> Answer:
    return Answer(text=arguments.answer, finished=True)


FINISH = StructTool(
    name="finish",
    description="End the work, when it is done and checked, or cannot be done.",
    arguments=FinishArguments,
    action=finish,
    line=lambda arguments: "finish",
)
