"""Runs that play back given events and given changes: the fake for tests of the page, and for showing it.

    ScriptedRuns(lambda statement: [TurnStarted(number=1), TextWritten(text="Looking."), …], changes=[FileChange(…)])

A question waits for its answer, `Until` for anything else. Landing is the real one.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etude.agent import landing
from etude.agent.events import AgentEvent, Notice, QuestionAnswered, QuestionAsked, Started, Stopped
from etude.agent.run_values import ALIVE, OpenQuestion, RunOptions, RunState, RunStatus, RunSummary
from etude.errors import InputError, RunUnknown
from etude.server.agent_runs import Accepted
from etude.traces import StopReason
from etude.workspace.workspace import FileChange


@dataclass(frozen=True, slots=True)
class Until:
    """A step of a script that waits: Until(gate.wait)."""

    condition: Callable[[], Awaitable[object]]


Script = Callable[[str], Sequence[AgentEvent | Until]]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run and everything that happened in it."""

    id: str
    root: Path
    statement: str
    options: RunOptions
    state: RunState = RunState.RUNNING
    events: list[AgentEvent] = field(default_factory=list)
    more: asyncio.Condition = field(default_factory=asyncio.Condition)
    question: QuestionAsked | None = None
    answer: asyncio.Future[str] | None = None
    playing: asyncio.Task[None] | None = None


class ScriptedRuns:
    """AgentRuns in this process and its memory."""

    def __init__(self, script: Script, *, changes: Sequence[FileChange] = (), name: str = "scripted") -> None:
        self._script = script
        self._changes = list(changes)
        self._name = name
        self._runs: dict[str, _Run] = {}

    async def start(self, root: Path, statement: str, options: RunOptions) -> str:
        run = _Run(id=f"run-{len(self._runs) + 1}", root=root, statement=statement, options=options)
        self._runs[run.id] = run
        run.playing = asyncio.create_task(self._play(run))
        return run.id

    async def runs(self, root: Path) -> list[RunSummary]:
        return [_summary(run, self._name) for run in reversed(self._runs.values()) if run.root == root]

    async def events(self, run: str) -> AsyncGenerator[AgentEvent]:
        found = self._find(run)
        for at in itertools.count():
            while len(found.events) <= at:
                async with found.more:
                    await found.more.wait()
            event = found.events[at]
            yield event
            if isinstance(event, Stopped):
                return

    async def answer(self, run: str, question: str, text: str) -> None:
        found = self._find(run)
        if found.question is None or found.question.id != question or found.answer is None or found.answer.done():
            raise InputError("The question is no longer open.")
        found.answer.set_result(text)

    async def stop(self, run: str) -> None:
        found = self._find(run)
        if found.state not in ALIVE or found.playing is None:
            return
        found.playing.cancel()
        await asyncio.gather(found.playing, return_exceptions=True)
        await self._end(found, StopReason.STOPPED, "You stopped it.")

    async def resume(self, run: str, follow_up: str) -> None:
        found = self._find(run)
        if found.state is not RunState.STOPPED:
            raise InputError("Only a run that has ended, and was not applied, can go on.")
        found.events.pop()
        found.statement, found.state = follow_up or found.statement, RunState.RUNNING
        await _say(found, Notice(text="The run goes on."))
        found.playing = asyncio.create_task(self._play(found))

    async def changes(self, run: str) -> list[FileChange]:
        self._find(run)
        return self._changes

    async def land(self, run: str, accepted: Accepted) -> landing.LandingReport:
        found = self._find(run)
        if found.state in ALIVE:
            raise InputError("The run is still at work. Wait for its end, or stop it.")
        report = await landing.land(self._changes, found.root, accepted=accepted)
        found.state = RunState.APPLIED if report.written else found.state
        return report

    async def discard(self, run: str) -> None:
        await self.stop(run)
        del self._runs[run]

    def _find(self, run: str) -> _Run:
        if run not in self._runs:
            raise RunUnknown(f"There is no run {run}.")
        return self._runs[run]

    async def _play(self, run: _Run) -> None:
        await _say(run, Started(run=run.id, statement=run.statement, model=self._name, root=str(run.root)))
        for step in self._script(run.statement):
            if isinstance(step, Until):
                await step.condition()
                continue
            await _say(run, step)
            if isinstance(step, QuestionAsked):
                await self._wait_for_answer(run, step)
        if run.state in ALIVE:
            await self._end(run, StopReason.FINISHED, "")

    async def _wait_for_answer(self, run: _Run, question: QuestionAsked) -> None:
        run.question, run.answer = question, asyncio.get_running_loop().create_future()
        run.state = RunState.WAITING
        text = await run.answer
        run.question, run.state = None, RunState.RUNNING
        await _say(run, QuestionAnswered(id=question.id, text=text))

    async def _end(self, run: _Run, reason: StopReason, message: str) -> None:
        run.state, run.question = RunState.STOPPED, None
        changed = [change.path for change in self._changes]
        await _say(run, Stopped(reason=reason, message=message, answer="", changed=changed))


async def _say(run: _Run, event: AgentEvent) -> None:
    async with run.more:
        run.events.append(event)
        run.more.notify_all()
    if isinstance(event, Stopped):
        run.state = RunState.STOPPED
    # Whoever watches gets its turn; a script of a thousand events is no single leap.
    await asyncio.sleep(0)


def _summary(run: _Run, model: str) -> RunSummary:
    ending = next((event for event in reversed(run.events) if isinstance(event, Stopped)), None)
    asked = run.question
    question = OpenQuestion(id=asked.id, text=asked.text, choices=asked.choices) if asked else None
    status = RunStatus(
        state=run.state,
        model=model,
        question=question,
        reason=ending.reason if ending else "",
        message=ending.message if ending else "",
        answer=ending.answer if ending else "",
        changed=ending.changed if ending else [],
    )
    return RunSummary(
        id=run.id,
        root=run.root,
        statement=run.statement,
        state=run.state,
        options=run.options,
        status=status,
        started_at="",
    )
