"""Inside a run's process: the session that records events, asks the person, takes orders and says how it ended.

What is done in it, with which model and workspace, is given by the entry point, which sees all rooms.
"""

import asyncio
import itertools
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from etude.agent.best_of import Check
from etude.agent.events import (
    AgentEvent,
    Notice,
    Person,
    QuestionAnswered,
    QuestionAsked,
    Started,
    Stopped,
    TurnFinished,
    TurnStarted,
)
from etude.agent.run_control import Order, Request, taking_orders
from etude.agent.run_events import EventLog
from etude.agent.run_folder import RunFolder
from etude.agent.run_values import OpenQuestion, RunState, RunStatus
from etude.errors import EtudeError, InputError, ModelError
from etude.traces import StopReason
from etude.workspace.workspace import Checkpointed, FileChange

Work = Callable[["RunSession"], Awaitable[None]]

_STOP_MESSAGE = "It was stopped."


class RunSession:
    """What the work of a run is done with."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.record = folder.record()
        self.person: Person = _Attended(self)
        self.task: asyncio.Task[None] | None = None
        self._log = EventLog(folder)
        before = folder.status()
        self._status = RunStatus(model=before.model, num_turns=before.num_turns, cost=before.cost)
        self._stopped: Stopped | None = None
        self._workspace: Checkpointed | None = None
        self._changes: list[FileChange] | None = None
        self._question: OpenQuestion | None = None
        self._reply: asyncio.Future[str | None] | None = None
        self._numbers = itertools.count(1)
        self._asked: QuestionAsked | None = None
        self._one_question = asyncio.Lock()
        self._is_stopping = False
        self._check = ""

    # What the work uses.

    @property
    def root(self) -> Path:
        return Path(os.fsdecode(self.record.root))

    def observe(self, event: AgentEvent) -> None:
        """Record an event; the last one is held back until everything is saved."""
        if isinstance(event, Stopped):
            self._stopped = event
            return
        if isinstance(event, Started):
            event = msgspec.structs.replace(event, run=self.folder.id)
        # Before it is told: whoever reads of it may answer.
        self._note(event)
        self._log.append(event)

    def work_in(self, workspace: Checkpointed) -> None:
        """From now on the changes are those of this workspace."""
        self._workspace = workspace

    async def save(self) -> None:
        """Write down what is changed so far; the workspace must still be open."""
        # Of several attempts the best so far is saved as soon as there is one.
        if self._workspace is not None and self.record.options.best_of == 1:
            await self.save_changes(await self._workspace.changes())

    async def save_changes(self, changes: list[FileChange]) -> None:
        self._changes = [change for change in changes if not change.ignored]
        await asyncio.to_thread(self.folder.write_changes, self._changes)

    def checked(self, check: Check) -> None:
        """What the task's own check said in the end."""
        self._check = "passes" if check.passed else "fails"
        if check.message:
            self.observe(Notice(text=f"The check could not be run. {check.message}"))

    # What the process does around it.

    async def perform(self, work: Work) -> None:
        self._say(state=RunState.RUNNING)
        loop = asyncio.get_running_loop()
        async with taking_orders(self.folder, self._handle):
            self.task = asyncio.ensure_future(work(self))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop)
            try:
                await self.task
            except asyncio.CancelledError:
                self._ended_by(StopReason.STOPPED, _STOP_MESSAGE)
            except EtudeError as error:
                reason = StopReason.MODEL_FAILED if isinstance(error, ModelError) else StopReason.CRASHED
                self._ended_by(reason, str(error))
            except Exception as error:
                traceback.print_exc()
                while isinstance(error, ExceptionGroup):
                    error = error.exceptions[0]
                self._ended_by(StopReason.CRASHED, f"etude itself failed: {type(error).__name__}: {error}")
            self._finish()

    def _ended_by(self, reason: StopReason, message: str) -> None:
        if self._stopped is None:
            self._stopped = Stopped(reason=reason, message=message, answer="", changed=[])

    def _finish(self) -> None:
        stopped = self._stopped or Stopped(
            reason=StopReason.CRASHED, message="Nothing was done.", answer="", changed=[]
        )
        if self._changes is not None:
            stopped = msgspec.structs.replace(stopped, changed=[change.path for change in self._changes])
        stopped = msgspec.structs.replace(stopped, check=self._check)
        self._say(
            state=RunState.STOPPED,
            check=self._check,
            reason=stopped.reason,
            message=stopped.message,
            answer=stopped.answer,
            changed=list(stopped.changed),
            question=None,
            ended_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        self._log.append(stopped)
        self._log.close()

    def _say(self, **news: object) -> None:
        self._status = msgspec.structs.replace(self._status, **news)
        # A full disk must not end the work; the status is then merely old.
        with suppress(EtudeError):
            self.folder.write_status(self._status)

    def _note(self, event: AgentEvent) -> None:
        if isinstance(event, QuestionAsked):
            self._asked = event
            self._wait_for(event)
        elif isinstance(event, QuestionAnswered):
            self._asked = None
        elif isinstance(event, Started):
            self._say(model=event.model)
        elif isinstance(event, TurnStarted):
            self._say(num_turns=max(event.number, self._status.num_turns))
        elif isinstance(event, TurnFinished):
            self._say(cost=self._status.cost + event.cost)

    # Orders.

    async def _handle(self, request: Request) -> None:
        if request.order is Order.ANSWER:
            self._answer(request)
        elif request.order is Order.SAVE:
            await self.save()
        else:
            self._stop()

    def _stop(self) -> None:
        """Once: a second order must not interrupt the saving that the first one led to."""
        if self.task and not self._is_stopping:
            self._is_stopping = True
            self.task.cancel()

    def _answer(self, request: Request) -> None:
        if self._question is None or self._reply is None or self._reply.done():
            raise InputError(f"The run {self.folder.id} has no open question.")
        if request.question not in ("", self._question.id):
            raise InputError(f"The question {request.question} is no longer open; {self._question.id} is.")
        self._reply.set_result(request.text)
        # Before the order is answered: whoever looks now must not see the question as open.
        self._question = None
        self._say(state=RunState.RUNNING, question=None)

    # Questions.

    async def ask(self, text: str, choices: Sequence[str]) -> str | None:
        """Waits for an answer over the socket, as long as it takes. Who asks may have told of it before."""
        announced, self._asked = self._asked, None
        # Attempts that are made at once ask one after another.
        async with self._one_question:
            return await self._ask(text, choices, announced)

    async def _ask(self, text: str, choices: Sequence[str], announced: QuestionAsked | None) -> str | None:
        asked = announced or QuestionAsked(id=f"question-{next(self._numbers)}", text=text, choices=list(choices))
        self._reply = asyncio.get_running_loop().create_future()
        if announced is None:
            self._wait_for(asked)
            self._log.append(asked)
        try:
            answer = await self._reply
        finally:
            self._reply = self._question = None
            self._say(state=RunState.RUNNING, question=None)
        if announced is None:
            self._log.append(QuestionAnswered(id=asked.id, text=answer))
        return answer

    def _wait_for(self, asked: QuestionAsked) -> None:
        if self.record.options.unattended:
            return
        self._question = OpenQuestion(id=asked.id, text=asked.text, choices=asked.choices)
        self._say(state=RunState.WAITING, question=self._question)


class _Attended:
    """The Person of a run: whoever attaches to it. An unattended run gets no answer and no consent."""

    def __init__(self, session: RunSession) -> None:
        self._session = session

    async def answer(self, question: str, choices: Sequence[str]) -> str | None:
        if self._session.record.options.unattended:
            return None
        return await self._session.ask(question, choices)

    async def consents(self, action: str, detail: str) -> bool:
        question = f"May the agent {action}? {detail}".strip()
        answer = await self.answer(question, ["yes", "no"])
        if answer is None:
            self._session.observe(Notice(text=f"Nobody was there to allow this: {action}"))
        return answer is not None and answer.strip().lower() in ("yes", "y")
