"""What a run's process does: `python -m etude.cli.agent_process FOLDER LOCK`, started by `agent/runs.py`.

Here come together what the agent's room does not see: the model that is configured, a shadow of the tree, Apply.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

import msgspec

from etude.agent import loop
from etude.agent.best_of import Attempt, Best, best_of, check, choose, model_for, rows
from etude.agent.events import AgentEvent, Notice, Observer, Started, Stopped
from etude.agent.limits import Limits
from etude.agent.run_folder import RunFolder
from etude.agent.run_process import RunSession
from etude.agent.settings import agent_settings, limits_for, may_use_network
from etude.agent.shadow_settings import shadow_settings
from etude.agent.store import TraceStore, load
from etude.agent.tool_choice import tools_for
from etude.assistant.apply.agent_edit import apply_with
from etude.cli import _leaving_threads
from etude.errors import ServerUnreachable, TraceUnusable
from etude.models import opening as models
from etude.models.model import Model
from etude.models.opening import Choice, ServerChoice
from etude.server.unwaited import use_unwaited_threads
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.shadow import ShadowWorkspace, open_shadow
from etude.workspace.workspace import ForkableWorkspace

# Far hosts answer within one; the rest is for packets that are lost.
CONNECT_SECONDS = 10.0
PORTS = {"http": 80, "https": 443}


def main(folder: str, lock: str) -> int:
    # What this process starts must not hold the lock that says this process lives.
    os.set_inheritable(int(lock), False)
    asyncio.run(_live(RunSession(RunFolder(Path(folder)))))
    return 0


async def _live(session: RunSession) -> None:
    use_unwaited_threads()
    await session.perform(_work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """What a run works with."""

    session: RunSession
    task: Task
    model: Model
    shadow: ShadowWorkspace
    limits: Limits
    network: bool


async def _work(session: RunSession) -> None:
    """The model and the shadow are made at the same time; what was changed is saved before the shadow closes."""
    record, settings = session.record, agent_settings()
    await _check_reachable(models.choose(record.options.model))
    opening = asyncio.create_task(asyncio.to_thread(models.open_model, record.options.model))
    try:
        state, how = session.folder.shadow, shadow_settings(session.root)
        async with open_shadow(session.root, state=state, settings=how) as shadow, _opened(opening) as model:
            session.work_in(shadow)
            for problem in shadow.problems:
                session.observe(Notice(text=problem))
            working = Working(
                session=session,
                task=Task(id=record.id, statement=record.follow_up or record.statement, check=record.options.check),
                model=model,
                shadow=shadow,
                limits=limits_for(settings, record.options),
                network=may_use_network(settings, record.options),
            )
            await (_attempts if record.options.best_of > 1 else _attempt)(working)
    finally:
        opening.cancel()


async def _check_reachable(choice: Choice) -> None:
    """A server that is not there at the very beginning is not waited for, as one is that goes away later."""
    if not isinstance(choice, ServerChoice) or getproxies():
        return
    parts = urlsplit(choice.url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or PORTS.get(parts.scheme, 80))
    except (OSError, TimeoutError, ValueError) as error:
        raise ServerUnreachable(
            f"Nothing answers at {choice.url} ({error or 'no answer'}). Start the server, or correct its address.",
            url=choice.url,
        ) from error
    writer.close()


@asynccontextmanager
async def _opened(opening: "asyncio.Task[Model]") -> AsyncGenerator[Model]:
    model = await opening
    try:
        yield model
    finally:
        await model.close()


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
            tools=tools_for(shadow, apply=apply_with(working.model), network=working.network),
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


# Several attempts.


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
            observer=_inner(session.observe, number),
            person=session.person,
            tools=tools_for(fork, apply=apply_with(model), network=working.network),
            store=TraceStore(session.folder.path / "attempts" / str(number)),
        )

    made: list[Attempt] = []

    async def report(one: Attempt) -> None:
        """The best so far is saved, whatever happens to the others."""
        made.append(one)
        session.observe(_measured(one))
        await session.save_changes(list(choose(made)[0].changes))

    try:
        best = await best_of(task, working.shadow, count, attempt, network=working.network, report=report)
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


if __name__ == "__main__":
    sys.exit(_leaving_threads(main(*sys.argv[1:3])))
