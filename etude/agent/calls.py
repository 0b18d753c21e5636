"""The calls of one answer: each is read, run in its turn, and answered, whatever is wrong with it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from etude.agent.events import CallFinished, CallStarted
from etude.agent.limits import Clock, Limits, OutOfTime
from etude.agent.store import MAX_SUMMARY_CHARACTERS, summary_of
from etude.agent.toolbox import (
    Answer,
    Summarizes,
    Tool,
    Toolbox,
    ToolContext,
    ToolKind,
    WrongArguments,
    failed,
    kind_of,
    quoted,
    signature,
)
from etude.errors import EtudeError
from etude.messages import ToolCall
from etude.traces import ToolResult, TurnError

# Models ask for a dozen at most; a loop in one asks for thousands.
MAX_CALLS = 32
UNREADABLE = "This call could not be read: {call}\nWrite it again in the form that was asked for."
AFTER_FINISH = "Not done: finish was called before it."
NOT_DONE = "Not done: the run was stopped before."


async def answer_calls(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    context: ToolContext,
    *,
    limits: Limits,
    clock: Clock,
    results: list[ToolResult],
    answers: list[Answer],
) -> None:
    """Run the calls in order and add to `results` and `answers` as they come, so that nothing is lost when this is
    cancelled. Raises OutOfTime."""
    for call in calls:
        left = max(0.0, limits.seconds - clock.seconds)
        own = replace(context, call_id=call.id, seconds_left=left)
        is_over = any(answer.finished for answer in answers)
        result, answer = await _done(call, toolbox, own, clock, is_over=is_over)
        results.append(result)
        answers.append(answer)
        context.observer(finished_event(result))


async def _done(
    call: ToolCall, toolbox: Toolbox, context: ToolContext, clock: Clock, *, is_over: bool
) -> tuple[ToolResult, Answer]:
    tool = toolbox.find(call.name)
    arguments, problem = _read(call, tool, toolbox)
    summary = _summary(call, tool, arguments)
    context.observer(CallStarted(id=call.id, tool=call.name, summary=summary, arguments=call.arguments))
    started = time.perf_counter()
    if is_over:
        answer = failed(AFTER_FINISH)
    elif tool is None or problem:
        answer = problem or failed(toolbox.unknown(call.name))
    else:
        answer = await _called(tool, arguments, context, clock)
    result = ToolResult(
        call=call,
        text=context.records.cut(answer.text, answer.record, context.characters, title=summary),
        error=answer.error,
        seconds=time.perf_counter() - started,
        exit_code=answer.exit_code,
        opened=answer.opened,
        changed=answer.changed,
    )
    return result, answer


def unanswered(calls: Sequence[ToolCall]) -> list[ToolResult]:
    """What stands for the calls that a stop came before."""
    return [ToolResult(call=call, text=NOT_DONE, error=TurnError.TOOL_FAILED) for call in calls]


def finished_event(result: ToolResult) -> CallFinished:
    return CallFinished(
        id=result.call.id,
        text=result.text,
        error=result.error or "",
        seconds=result.seconds,
        changed=list(result.changed),
    )


def _read(call: ToolCall, tool: Tool | None, toolbox: Toolbox) -> tuple[Any, Answer | None]:
    """The validated arguments, or what is wrong with the call."""
    if not call.name:
        text = UNREADABLE.format(call=quoted(call.arguments))
        return None, Answer(text=text, error=TurnError.MALFORMED_CALL)
    if tool is None:
        return None, Answer(text=toolbox.unknown(call.name), error=TurnError.UNKNOWN_TOOL)
    try:
        return tool.read(call.arguments), None
    except WrongArguments as error:
        return None, Answer(text=f"{error}\nThe tool is {signature(tool.spec)}.", error=error.error)


async def _called(tool: Tool, arguments: Any, context: ToolContext, clock: Clock) -> Answer:
    """What the tool says, or why it could not."""
    asks = kind_of(tool) is ToolKind.ASKS
    timer = asyncio.timeout(None if asks else context.seconds_left)
    try:
        async with timer:
            with clock.paused() if asks else nullcontext():
                return await tool.call(arguments, context)
    except EtudeError as error:
        return failed(str(error))
    except TimeoutError:
        if timer.expired():
            raise OutOfTime from None
        return failed("It took too long and was given up.")


def _summary(call: ToolCall, tool: Tool | None, arguments: Any) -> str:
    if arguments is None or not isinstance(tool, Summarizes):
        return summary_of(call)
    line = " ".join(tool.summary(arguments).split())
    return line if len(line) <= MAX_SUMMARY_CHARACTERS else line[: MAX_SUMMARY_CHARACTERS - 1] + "…"
