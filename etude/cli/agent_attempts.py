"""Doing a task in a run's process: one attempt in the shadow, or several in copies of it of which the best is kept."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from etude.agent import loop
from etude.agent.best_of import Attempt, Best, best_of, check, choose, model_for, rows
from etude.agent.events import AgentEvent, CallFinished, CallStarted, Notice, Observer, Started, Stopped
from etude.agent.limits import Limits
from etude.agent.run_process import RunSession
from etude.agent.store import TraceStore, load
from etude.agent.tool_choice import tools_for
from etude.agent.toolbox import Tool
from etude.assistant.apply.agent_edit import apply_with
from etude.errors import TraceUnusable
from etude.models.model import Model
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.shadow import ShadowWorkspace
from etude.workspace.workspace import ForkableWorkspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """What a run works with."""

    session: RunSession
    task: Task
    model: Model
    shadow: ShadowWorkspace
    limits: Limits
    network: bool
    tools: Sequence[Tool] = ()
    """Of the user's MCP servers."""
    at_once: int = 1
    """Attempts of best-of-n."""


async def perform(working: Working) -> None:
    """As many attempts as were asked for."""
    await (_attempts if working.session.record.options.best_of > 1 else _attempt)(working)


async def _attempt(working: Working) -> None:
    session, shadow = working.session, working.shadow
    store = TraceStore(session.folder.trace)
    try:
        trace = await loop.run(
            working.task,
            working.model,
            shadow,
            working.limits,
            observer=session.observe,
            person=session.person,
            tools=[*tools_for(shadow, apply=apply_with(working.model), network=working.network), *working.tools],
            store=store,
            resume=_saved(store),
        )
    finally:
        # Before the check, which leaves caches and reports behind.
        await session.save()
    if working.task.check and trace.stop_reason is StopReason.FINISHED:
        session.checked(await check(working.task, shadow, network=working.network))


def _saved(store: TraceStore) -> Trace | None:
    """The turns of before, where the run goes on; None at its first start."""
    try:
        return load(store.folder)
    except TraceUnusable:
        return None


async def _attempts(working: Working) -> None:
    session, task, count = working.session, working.task, working.session.record.options.best_of
    session.observe(
        Started(run=task.id, statement=task.statement, model=working.model.name, root=str(working.shadow.root))
    )

    async def attempt(number: int, fork: ForkableWorkspace) -> Trace:
        session.observe(Notice(text=f"Attempt {number} of {count}."))
        model = model_for(working.model, number)
        return await loop.run(
            replace(task, id=f"{task.id}-{number}"),
            model,
            fork,
            working.limits,
            observer=(_inner if working.at_once == 1 else _brief)(session.observe, number),
            person=session.person,
            tools=[*tools_for(fork, apply=apply_with(model), network=working.network), *working.tools],
            store=TraceStore(session.folder.path / "attempts" / str(number)),
        )

    made: list[Attempt] = []

    async def report(one: Attempt) -> None:
        """The best so far is saved, whatever happens to the others."""
        made.append(one)
        session.observe(_measured(one))
        await session.save_changes(list(choose(made)[0].changes))

    try:
        best = await best_of(
            task,
            working.shadow,
            count,
            attempt,
            at_once=working.at_once,
            network=working.network,
            report=report,
        )
    except asyncio.CancelledError:
        session.observe(_stopped_after(made, count))
        raise
    await session.save_changes(best.changes)
    if best.kept.check:
        session.checked(best.kept.check)
    session.observe(Notice(text=table(best)))
    message = f"{best.reason} {best.kept.message}".strip()
    session.observe(Stopped(reason=best.kept.stop_reason, message=message, answer=best.kept.answer, changed=[]))


def _stopped_after(made: Sequence[Attempt], count: int) -> Stopped:
    message = f"It was stopped after {len(made)} of {count} attempts."
    if not made:
        return Stopped(reason=StopReason.STOPPED, message=message, answer="", changed=[])
    kept, reason = choose(made)
    return Stopped(reason=StopReason.STOPPED, message=f"{message} {reason}", answer=kept.answer, changed=[])


def _inner(observe: Observer, number: int) -> Observer:
    """An attempt neither begins nor ends the run; its calls have names of their own."""

    def observe_inner(event: AgentEvent) -> None:
        if isinstance(event, Started | Stopped):
            return
        if hasattr(event, "id"):
            event = msgspec.structs.replace(event, id=f"{number}/{event.id}")
        observe(event)

    return observe_inner


def _brief(observe: Observer, number: int) -> Observer:
    """Of attempts made at once a line a call, since what they say and print would be mixed up."""

    def observe_brief(event: AgentEvent) -> None:
        if isinstance(event, CallStarted):
            observe(msgspec.structs.replace(event, id=f"{number}/{event.id}", summary=f"{number}: {event.summary}"))
        elif isinstance(event, CallFinished):
            observe(msgspec.structs.replace(event, id=f"{number}/{event.id}"))
        elif isinstance(event, Notice):
            observe(Notice(text=f"{number}: {event.text}"))

    return observe_brief


def _measured(one: Attempt) -> Notice:
    check = "" if one.check is None else ", its check passes" if one.check.passed else ", its check fails"
    failed = f" {one.message}" if one.message else ""
    return Notice(text=f"Attempt {one.number}: {one.stop_reason}{check}, {one.num_lines} lines changed.{failed}")


def table(best: Best) -> str:
    """The attempts in columns, and why one was kept."""
    lines = rows(best)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, best.reason])
