"""What a run's process does: `python -m etude.cli.agent_process FOLDER LOCK`, started by `agent/runs.py`.

Here come together what the agent's room does not see: the model that is configured, a shadow of the tree, Apply.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from etude.agent import loop
from etude.agent.best_of import Attempt, Best, best_of, model_for, rows
from etude.agent.events import AgentEvent, Notice, Observer, Started, Stopped
from etude.agent.limits import Limits
from etude.agent.run_folder import RunFolder
from etude.agent.run_process import RunSession
from etude.agent.settings import agent_settings, limits_for
from etude.agent.store import TraceStore, load
from etude.agent.tool_choice import tools_for
from etude.assistant.apply.agent_edit import apply_with
from etude.cli import _leaving_threads
from etude.errors import TraceUnusable
from etude.models.model import Model
from etude.models.opening import open_model
from etude.server.unwaited import use_unwaited_threads
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.shadow import ShadowWorkspace, open_shadow
from etude.workspace.workspace import ForkableWorkspace


def main(folder: str, lock: str) -> int:
    # What this process starts must not hold the lock that says this process lives.
    os.set_inheritable(int(lock), False)
    asyncio.run(_live(RunSession(RunFolder(Path(folder)))))
    return 0


async def _live(session: RunSession) -> None:
    use_unwaited_threads()
    await session.perform(_work)


async def _work(session: RunSession) -> None:
    """The model and the shadow are made at the same time; what was changed is saved before the shadow closes."""
    limits = limits_for(agent_settings(), session.record.options)
    opening = asyncio.create_task(asyncio.to_thread(open_model, session.record.options.model))
    try:
        async with open_shadow(session.root, state=session.folder.shadow) as shadow:
            session.work_in(shadow)
            for problem in shadow.problems:
                session.observe(Notice(text=problem))
            async with _closing(opening) as model:
                await (_attempts if session.record.options.best_of > 1 else _attempt)(session, model, shadow, limits)
    finally:
        opening.cancel()


@asynccontextmanager
async def _closing(opening: "asyncio.Task[Model]") -> AsyncGenerator[Model]:
    model = await opening
    try:
        yield model
    finally:
        await model.close()


def _task(session: RunSession) -> Task:
    record = session.record
    return Task(id=record.id, statement=record.follow_up or record.statement, check=record.options.check)


async def _attempt(session: RunSession, model: Model, shadow: ShadowWorkspace, limits: Limits) -> None:
    store = TraceStore(session.folder.trace)
    try:
        await loop.run(
            _task(session),
            model,
            shadow,
            limits,
            observer=session.observe,
            person=session.person,
            tools=tools_for(shadow, apply=apply_with(model)),
            store=store,
            resume=_saved(store),
        )
    finally:
        await session.save()


def _saved(store: TraceStore) -> Trace | None:
    """The turns of before, where the run goes on; None at its first start."""
    try:
        return load(store.folder)
    except TraceUnusable:
        return None


# Several attempts.


async def _attempts(session: RunSession, model: Model, shadow: ShadowWorkspace, limits: Limits) -> None:
    task, count = _task(session), session.record.options.best_of
    session.observe(Started(run=session.record.id, statement=task.statement, model=model.name, root=str(shadow.root)))

    async def attempt(number: int, fork: ForkableWorkspace) -> Trace:
        session.observe(Notice(text=f"Attempt {number} of {count}."))
        answering = model_for(model, number)
        return await loop.run(
            replace(task, id=f"{task.id}-{number}"),
            answering,
            fork,
            limits,
            observer=_inner(session.observe, number),
            person=session.person,
            tools=tools_for(fork, apply=apply_with(answering)),
            store=TraceStore(session.folder.path / "attempts" / str(number)),
        )

    best = await best_of(task, shadow, count, attempt, report=lambda one: session.observe(_measured(one)))
    await session.save_changes(best.changes)
    session.observe(Notice(text=table(best)))
    session.observe(_end_of(best))


def _inner(observe: Observer, number: int) -> Observer:
    """An attempt neither begins nor ends the run; its calls have names of their own."""

    def observe_inner(event: AgentEvent) -> None:
        if isinstance(event, Started | Stopped):
            return
        if hasattr(event, "id"):
            event = msgspec.structs.replace(event, id=f"{number}/{event.id}")
        observe(event)

    return observe_inner


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


def _end_of(best: Best) -> Stopped:
    kept = best.kept
    message = f"{best.reason} {kept.message}".strip()
    # The best of attempts that all failed their check is not a task that is done.
    reason = StopReason.STUCK if kept.check and not kept.check.passed else kept.stop_reason
    return Stopped(reason=reason, message=message, answer=kept.answer, changed=[])


if __name__ == "__main__":
    sys.exit(_leaving_threads(main(*sys.argv[1:3])))
