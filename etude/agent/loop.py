"""The agent's loop: run(task, model, workspace, limits) → Trace.

A turn is: make room, ask the model, read its calls, run them, see what that changed, record. The trace is saved after
every turn, and everything the next turn sends is read from it. A run that goes wrong is a trace with a stop reason.
"""

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Never

from etude.agent.attempt import Attempt, Halt
from etude.agent.events import Nobody, Observer, Person, ignore
from etude.agent.limits import Limits, OutOfTime, fitted, out_of_time
from etude.agent.store import TraceStore, new_id
from etude.agent.tool_choice import tools_for
from etude.agent.toolbox import Tool, Toolbox
from etude.errors import EtudeError, ModelError, PromptTooLong, TraceUnusable
from etude.models.model import Model
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.workspace import Workspace

DEFAULT_LIMITS = Limits()
NOBODY = Nobody()


async def run(
    task: Task,
    model: Model,
    workspace: Workspace,
    limits: Limits = DEFAULT_LIMITS,
    *,
    observer: Observer = ignore,
    person: Person = NOBODY,
    tools: Sequence[Tool] | None = None,
    store: TraceStore | None = None,
    resume: Trace | None = None,
) -> Trace:
    """Work on the task until it is done or a limit is met; whatever goes wrong is in the trace's stop reason.

    `resume` goes on after the last turn of a trace; if `task` says something else than the trace's, that is the next
    message of the person.
    Cancelling saves the trace with StopReason.STOPPED and raises CancelledError.
    Raises TraceUnusable for a finished trace with nothing new to do, FileNotWritable when the trace cannot be begun.
    """
    toolbox = Toolbox(tools_for(workspace) if tools is None else tools)
    trace = _begun(task, model, toolbox, resume)
    limits = fitted(limits, model)
    attempt = Attempt(trace, model, workspace, limits, toolbox, observer=observer, person=person, store=store)
    try:
        await attempt.begin(resume)
        await _turns(attempt)
    except Halt as halt:
        return await attempt.end(halt.reason, halt.message, halt.answer)
    except asyncio.CancelledError:
        await attempt.end(StopReason.STOPPED, "It was stopped.")
        raise
    except OutOfTime:
        return await attempt.end(*out_of_time(limits))
    except PromptTooLong as error:
        return await attempt.end(StopReason.CONTEXT_FULL, str(error))
    except ModelError as error:
        return await attempt.end(StopReason.MODEL_FAILED, str(error))
    except Exception as error:
        return await attempt.end(StopReason.CRASHED, _described(error))


def _described(error: Exception) -> str:
    """A sentence where we foresaw it; else what to look for, since nobody sees the traceback of a saved run."""
    if isinstance(error, EtudeError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


async def _turns(attempt: Attempt) -> Never:
    """Turn after turn, until a Halt is raised."""
    while True:
        turn = attempt.next_turn()
        await attempt.make_room(turn)
        await attempt.ask(turn)
        try:
            await attempt.look_around(turn)
            await attempt.call(turn)
            await attempt.look_after(turn)
        finally:
            attempt.record(turn)
        attempt.judge(turn)


def _begun(task: Task, model: Model, toolbox: Toolbox, resume: Trace | None) -> Trace:
    """A new trace, or the one that is resumed as if it had not ended."""
    if resume is None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return Trace(id=new_id(), task=task, model=model.name, chat_format="", tools=toolbox.names, started_at=now)
    if resume.stop_reason is StopReason.FINISHED and resume.task.statement == task.statement:
        raise TraceUnusable(f"The run {resume.id} is finished. Give it something else to do, or fork it at a turn.")
    return replace(
        resume, task=task, model=model.name, tools=toolbox.names, stop_reason=None, stop_message="", answer=""
    )
