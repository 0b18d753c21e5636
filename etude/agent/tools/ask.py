"""The ask tool: a question to the person, who may take any time, or not be there."""

from typing import Annotated

import msgspec

from etude.agent.events import QuestionAnswered, QuestionAsked
from etude.agent.toolbox import Answer, StructTool, ToolContext, ToolKind

NO_ANSWER = (
    "No answer: nobody is there to be asked. Choose what is most likely meant and easiest to undo, go on, "
    "and say in your final answer what you assumed."
)


class AskArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    question: Annotated[str, msgspec.Meta(min_length=1)]
    choices: Annotated[
        list[str], msgspec.Meta(max_length=12, description="Likely answers; any other can be given too.")
    ] = []


async def ask(arguments: AskArguments, context: ToolContext) -> Answer:
    asked = QuestionAsked(id=context.call_id, text=arguments.question, choices=arguments.choices)
    context.observer(asked)
    text = await context.person.answer(arguments.question, arguments.choices)
    context.observer(QuestionAnswered(id=context.call_id, text=text))
    return Answer(text=NO_ANSWER if text is None else f"The person answers: {text}")


ASK = StructTool(
    name="ask",
    description="Ask the person something that only they can decide, and wait for the answer. "
    "Not for what the files or a test can tell.",
    arguments=AskArguments,
    action=ask,
    kind=ToolKind.ASKS,
    line=lambda arguments: f"ask {arguments.question}",
)
