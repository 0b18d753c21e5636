"""The plan tool: the steps of the work, for the person to see and for the agent to keep in mind."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from etude.agent.events import PlanChanged, PlanStep, StepState
from etude.agent.toolbox import Answer, StructTool, ToolContext, WrongArguments, decode
from etude.traces import Turn

MAX_STEPS = 40
MAX_STEP_CHARACTERS = 300

_SIGNS = {StepState.PENDING: "[ ]", StepState.ACTIVE: "[>]", StepState.DONE: "[x]"}


class PlanArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    steps: Annotated[list[PlanStep], msgspec.Meta(min_length=1, max_length=MAX_STEPS)]


async def plan(arguments: PlanArguments, context: ToolContext) -> Answer:
    steps = steps_of(arguments)
    context.observer(PlanChanged(steps=list(steps)))
    return Answer(text=f"The plan is:\n{plan_text(steps)}")


def steps_of(arguments: PlanArguments) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(text=step.text[:MAX_STEP_CHARACTERS], state=step.state) for step in arguments.steps)


def plan_text(steps: Iterable[PlanStep]) -> str:
    return "\n".join(f"{_SIGNS[step.state]} {step.text}" for step in steps)


def last_plan(turns: Iterable[Turn]) -> tuple[PlanStep, ...]:
    """The plan after these turns, read from their calls."""
    steps: tuple[PlanStep, ...] = ()
    for result in (result for turn in turns for result in turn.results):
        if result.call.name != PLAN.name or result.error:
            continue
        try:
            steps = steps_of(decode(result.call.arguments, PlanArguments))
        except WrongArguments:
            continue
    return steps


PLAN = StructTool(
    name="plan",
    description="Say the steps of the work and how far each is; call it again with all of them when that changes. "
    "Worth it for work of several steps.",
    arguments=PlanArguments,
    action=plan,
    line=lambda arguments: f"plan ({len(arguments.steps)} steps)",
)
