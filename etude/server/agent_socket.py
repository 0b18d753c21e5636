"""The agent panel over a WebSocket: start, watch, answer, stop, and land what a run changed.

A connection watches one run at a time. Runs are those of the opened folder; they go on without any page.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from etude.agent.events import QuestionAnswered, QuestionAsked
from etude.agent.landing import LandingReport, Outcome, hunks
from etude.agent.run_values import RunOptions, RunSummary, encoded
from etude.errors import EtudeError, FileChanged, FileNotWritable, InputError, RunUnknown, boundary
from etude.server.agent_diff import for_the_eye, shown, version_of
from etude.server.agent_landings import Landings
from etude.server.agent_outbox import AgentOutbox
from etude.server.agent_runs import Accepted, AgentRuns
from etude.server.agent_wire import (
    AcceptedFile,
    AnswerQuestion,
    Attached,
    AttachRun,
    Changes,
    DiscardRun,
    Done,
    FromAgentPanel,
    LandChanges,
    Landed,
    LandedFile,
    ListRuns,
    ReadChanges,
    ResumeRun,
    Runs,
    RunShown,
    RunStarted,
    StartRun,
    StopRun,
    ToAgentPanel,
    UndoLanding,
)
from etude.server.wire import Failed
from etude.workspace.workspace import FileChange

# A person clicks no faster; a page that asks without end waits for its answers.
MAX_RUNNING_REQUESTS = 16
# No request of the panel is longer than a statement or a long list of hunks, escaped.
MAX_MESSAGE_CHARACTERS = 1_000_000
# Runs that were started elsewhere, or ended, appear in the list within this time.
LOOK_SECONDS = 1.0
MAX_RUNS_SHOWN = 200
MAX_SHOWN_CHARACTERS = 2_000

_decode = msgspec.json.Decoder(FromAgentPanel).decode


class AgentSocket:
    """Serves one connection until it closes; the runs go on."""

    def __init__(self, socket: WebSocket, *, root: Path, runs: AgentRuns, landings: Landings, read_only: bool) -> None:
        self._socket = socket
        self._root = root
        self._runs = runs
        self._landings = landings
        self._read_only = read_only
        self._outbox = AgentOutbox()
        self._requests: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._attaching = asyncio.Lock()
        self._look_now = asyncio.Event()

    async def serve(self) -> None:
        tasks = [asyncio.create_task(self._send_all()), asyncio.create_task(self._watch_runs())]
        try:
            await self._receive_all()
        finally:
            await _cancel([*tasks, *self._requests, *([self._watching] if self._watching else [])])

    async def _send_all(self) -> None:
        """One sender, so that messages never interleave."""
        with suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await self._socket.send_text(encoded(await self._outbox.take()).decode())

    async def _receive_all(self) -> None:
        while self._socket.client_state is WebSocketState.CONNECTED:
            event = await self._socket.receive()
            if event["type"] == "websocket.disconnect":
                return
            await self._take(event.get("text") or event.get("bytes") or "")

    async def _take(self, message: str | bytes) -> None:
        try:
            asked = _read(message)
        except InputError as error:
            await self._outbox.put(Failed(id="", error="BadMessage", message=str(error)))
            return
        if len(self._requests) >= MAX_RUNNING_REQUESTS:
            busy = "The last requests are still being worked on. Try again in a moment."
            await self._outbox.put(Failed(id=asked.id, error="InputError", message=busy))
            return
        request = asyncio.create_task(self._answer(asked))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _answer(self, asked: FromAgentPanel) -> None:
        try:
            with boundary("The agent panel's request"):
                answer = await self._carry_out(asked)
        except EtudeError as error:
            answer = Failed(id=asked.id, error=type(error).__name__, message=str(error))
        if answer is not None:
            await self._outbox.put(answer)
        self._look_now.set()

    async def _carry_out(self, asked: FromAgentPanel) -> ToAgentPanel | None:
        match asked:
            case StartRun():
                return await self._start(asked)
            case ListRuns():
                return Runs(id=asked.id, runs=_shown_runs(await self._runs.runs(self._root)))
            case AttachRun():
                return await self._attach(asked)
            case _:
                await self._check_is_here(asked.run)
                return await self._act_on_run(asked)

    async def _act_on_run(self, asked: FromAgentPanel) -> ToAgentPanel:
        match asked:
            case AnswerQuestion():
                await self._runs.answer(asked.run, asked.question, asked.text)
            case StopRun():
                await self._runs.stop(asked.run)
            case ResumeRun():
                await self._runs.resume(asked.run, asked.follow_up.strip())
            case DiscardRun():
                await self._runs.discard(asked.run)
            case ReadChanges():
                return await self._changes(asked)
            case LandChanges():
                return await self._land(asked)
            case UndoLanding():
                self._check_may_write()
                return _landed(asked, await self._landings.undo(asked.run), can_undo=False)
        return Done(id=asked.id)

    async def _start(self, asked: StartRun) -> RunStarted:
        statement = asked.statement.strip()
        if not statement:
            raise InputError("Say what is to be done first.")
        options = RunOptions(check=asked.check.strip(), best_of=asked.best_of)
        return RunStarted(id=asked.id, run=await self._runs.start(self._root, statement, options))

    # Watching.

    async def _attach(self, asked: AttachRun) -> None:
        """Answers itself: the answer has to be sent before the first event."""
        if asked.run:
            await self._check_is_here(asked.run)
        async with self._attaching:
            if self._watching is not None:
                await _cancel([self._watching])
            self._outbox.attach(asked.run)
            await self._outbox.put(Attached(id=asked.id, run=asked.run, after=asked.after))
            self._watching = asyncio.create_task(self._watch(asked)) if asked.run else None

    async def _watch(self, asked: AttachRun) -> None:
        try:
            with boundary("Watching the run"):
                await self._pass_events(asked.run, asked.after)
        except EtudeError as error:
            await self._outbox.put(Failed(id="", error=type(error).__name__, message=str(error)))
        self._look_now.set()

    async def _pass_events(self, run: str, after: int) -> None:
        number = 0
        async with aclosing(self._runs.events(run)) as events:
            async for event in events:
                number += 1
                if number > after:
                    await self._outbox.put_event(number, event)
                if isinstance(event, QuestionAsked | QuestionAnswered):
                    self._look_now.set()

    async def _watch_runs(self) -> None:
        sent: Sequence[RunShown] | None = None
        while True:
            with suppress(EtudeError), boundary("Listing the runs"):
                runs = _shown_runs(await self._runs.runs(self._root))
                if runs != sent:
                    self._outbox.put_runs(Runs(id="", runs=runs))
                    sent = runs
            self._look_now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), LOOK_SECONDS)

    # What a run changed.

    async def _changes(self, asked: ReadChanges) -> Changes:
        changes = await self._runs.changes(asked.run)
        files = await asyncio.to_thread(shown, changes)
        return Changes(id=asked.id, run=asked.run, version=version_of(changes), files=files)

    async def _land(self, asked: LandChanges) -> Landed:
        self._check_may_write()
        changes = await self._runs.changes(asked.run)
        if version_of(changes) != asked.version:
            raise FileChanged("The run's changes are no longer the ones shown here. Nothing was written: look again.")
        accepted = await asyncio.to_thread(_accepted, changes, asked.accepted)
        if not accepted:
            raise InputError("Nothing is accepted yet. Accept at least one change first.")
        report = await self._runs.land(asked.run, accepted)
        self._landings.keep(asked.run, report)
        return _landed(asked, report, can_undo=bool(report.written))

    async def _check_is_here(self, run: str) -> None:
        """A page of one folder sees and touches no other folder's runs."""
        if all(summary.id != run for summary in await self._runs.runs(self._root)):
            raise RunUnknown(f"There is no run {run!r:.80} in this folder; it may have been discarded.")

    def _check_may_write(self) -> None:
        if self._read_only:
            raise FileNotWritable("Nothing was written: etude was started read-only. Start it without --read-only.")


def _read(message: str | bytes) -> FromAgentPanel:
    if len(message) > MAX_MESSAGE_CHARACTERS:
        raise InputError(f"The message has {len(message)} characters; {MAX_MESSAGE_CHARACTERS} are the most.")
    try:
        return _decode(message)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"Not a message of the agent panel: {error}.") from None


def _accepted(changes: Sequence[FileChange], files: Sequence[AcceptedFile]) -> Accepted:
    accepted: dict[str, Sequence[int]] = {}
    for file in files:
        if not 0 <= file.number < len(changes):
            raise InputError(f"There is no file number {file.number} among the changes. Look again.")
        change = changes[file.number]
        wanted = [hunk.index for hunk in hunks(change)] if file.hunks is None else file.hunks
        if wanted:
            accepted[change.path] = wanted
    return accepted


def _landed(asked: LandChanges | UndoLanding, report: LandingReport, *, can_undo: bool) -> Landed:
    files = [
        LandedFile(path=for_the_eye(file.path), state=file.outcome, message=for_the_eye(file.reason))
        for file in report.files
        if file.outcome is not Outcome.LEFT_OUT
    ]
    return Landed(id=asked.id, run=asked.run, files=files, can_undo=can_undo)


def _shown_runs(summaries: Sequence[RunSummary]) -> list[RunShown]:
    return [_shown_run(summary) for summary in summaries[:MAX_RUNS_SHOWN]]


def _shown_run(summary: RunSummary) -> RunShown:
    status = summary.status
    return RunShown(
        run=summary.id,
        statement=summary.statement[:MAX_SHOWN_CHARACTERS],
        state=summary.state,
        reason=status.reason,
        message=status.message[:MAX_SHOWN_CHARACTERS],
        model=status.model,
        num_turns=status.num_turns,
        cost=status.cost,
        num_changed=len(status.changed),
        question=status.question.text[:MAX_SHOWN_CHARACTERS] if status.question else "",
        started_at=summary.started_at,
        ended_at=status.ended_at,
    )


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
