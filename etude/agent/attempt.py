"""A run at work: Attempt holds what changes from turn to turn, and has a method for each stage of the loop."""

from contextlib import suppress
from dataclasses import replace

from etude.agent.asking import ask
from etude.agent.calls import answer_calls
from etude.agent.context import Context
from etude.agent.dialogue import Asked, NativeDialogue, TextDialogue, dialogue_with
from etude.agent.draft import Draft
from etude.agent.events import AgentEvent, Notice, Observer, Person, Started, Stopped, TurnFinished, TurnStarted
from etude.agent.limits import Clock, Limits, exceeded, spent_on
from etude.agent.prompt import opening, task_text
from etude.agent.records import Records
from etude.agent.store import TraceStore
from etude.agent.stuck import RepetitionWatch
from etude.agent.surroundings import Surroundings
from etude.agent.toolbox import KnowsItsKind, Toolbox, ToolContext, ToolKind, kind_of
from etude.errors import EtudeError, PromptTooLong, Unsupported
from etude.messages import Completion, Message, Role, ToolCall
from etude.models.model import Model
from etude.traces import StopReason, Trace
from etude.workspace.workspace import Checkpointed, Workspace

COMPACTED = "Earlier turns were taken out of the conversation to make room; what was dropped is kept as records."


class Halt(Exception):
    """The run ends here, in good order."""

    def __init__(self, reason: StopReason, message: str = "", answer: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.answer = answer


class _Watcher:
    """The observer; if it fails, the run ends before its next turn, and not in the middle of recording one."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.error: Exception | None = None

    def __call__(self, event: AgentEvent) -> None:
        if self.error is not None:
            return
        try:
            self._observer(event)
        except Exception as error:
            self.error = error


class Attempt:
    """One run, from `begin` over the stages of many turns to `end`. Making it raises what `TraceStore.begin` raises."""

    def __init__(
        self,
        trace: Trace,
        model: Model,
        workspace: Workspace,
        limits: Limits,
        toolbox: Toolbox,
        *,
        observer: Observer,
        person: Person,
        store: TraceStore | None,
    ) -> None:
        self._dialogue = dialogue_with(model, toolbox.specs)
        self._head = replace(trace, chat_format=self._dialogue.chat_format)
        self._turns = list(trace.turns)
        self._model = model
        self._workspace = workspace
        self._limits = limits
        self._toolbox = toolbox
        self._observer = observer = _Watcher(observer)
        self._store = store
        self._not_saved: EtudeError | None = None
        if store:
            store.begin(self._head)
        records = Records(store.folder / "records" if store else None)
        self._tool_context = ToolContext(
            workspace=workspace,
            records=records,
            person=person,
            observer=observer,
            characters=limits.longest_result,
        )
        self._context = Context(limits, toolbox.specs, records)
        self._surroundings = Surroundings(workspace, observer)
        self._watch = RepetitionWatch()
        self._clock = Clock()
        self._spent = spent_on(())

    async def begin(self, resume: Trace | None) -> None:
        """Say what is done, and put the first message together."""
        self._observer(
            Started(
                run=self._head.id,
                statement=self._head.task.statement,
                model=self._head.model,
                root=str(self._workspace.root),
            )
        )
        if resume is None or not resume.turns:
            is_copy = isinstance(self._workspace, Checkpointed)
            self._context.begin(await opening(self._head.task, self._workspace, self._toolbox.specs, is_copy=is_copy))
            return
        self._go_on(resume)

    def _go_on(self, resume: Trace) -> None:
        """Where the turns stopped. A task that says something else is a new message, with limits of its own."""
        task = self._head.task
        is_new = task.statement != resume.task.statement
        added = [Message(role=Role.USER, text=task_text(task))] if is_new else []
        self._context.resume(self._turns, added)
        self._dialogue.resume(self._turns)
        if self._dialogue.has_lost_track:
            self._context.start_over()
        if is_new:
            return
        self._spent = spent_on(self._turns)
        self._clock = Clock(already=sum(turn.seconds for turn in self._turns))
        for turn in self._turns[-20:]:
            self._watch.see(turn)

    # The stages of a turn.

    def next_turn(self) -> Draft:
        """Raises Halt when a limit is reached, and what went wrong where nothing could be raised."""
        if broken := self._observer.error or self._not_saved:
            raise broken
        if reached := exceeded(self._limits, self._spent, self._clock.seconds):
            raise Halt(*reached)
        draft = Draft(number=len(self._turns) + 1, started=self._clock.seconds)
        self._observer(TurnStarted(number=draft.number))
        return draft

    async def make_room(self, draft: Draft) -> None:
        if self._context.is_full():
            await self._compact(draft)

    async def ask(self, draft: Draft) -> None:
        """Put the conversation to the model; less of it, if the model says that it is too long."""
        while True:
            context = self._context
            asked = self._dialogue.asked(context.messages, context.pending, fresh=context.is_fresh)
            try:
                draft.answer = await self._answered(asked)
            except PromptTooLong:
                context.shrink()
                if not await self._compact(draft):
                    raise
            except Unsupported:
                if not isinstance(self._dialogue, NativeDialogue):
                    raise
                self._dialogue = TextDialogue(self._toolbox.specs)
            else:
                draft.context_ids = asked.context_ids
                draft.read(self._dialogue.heard(draft.answer), self._limits.longest_answer)
                return

    async def _answered(self, asked: Asked) -> Completion:
        left = self._limits.seconds - self._clock.seconds
        return await ask(self._model, asked.prompt, self._limits, observer=self._observer, seconds_left=left)

    async def look_around(self, draft: Draft) -> None:
        """Take in the person's edits, and keep the state before calls that may change it."""
        draft.notes += await self._surroundings.follow()
        tools = [self._toolbox.find(call.name) for call in draft.calls]
        changes = any(tool and kind_of(tool) is ToolKind.CHANGES for tool in tools)
        draft.checkpoint = await self._surroundings.checkpoint(before_changes=changes)

    async def call(self, draft: Draft) -> None:
        await answer_calls(
            draft.calls,
            self._toolbox,
            self._tool_context,
            limits=self._limits,
            clock=self._clock,
            results=draft.results,
            answers=draft.answers,
        )

    async def look_after(self, draft: Draft) -> None:
        """See what the changes did, once all of them are made."""
        changed = [path for result in draft.results for path in result.changed]
        if not changed and all(map(self._tells_changes, draft.calls)):
            self._surroundings.unchanged()
        draft.notes += await self._surroundings.diagnose(changed)

    def _tells_changes(self, call: ToolCall) -> bool:
        tool = self._toolbox.find(call.name)
        return tool is None or isinstance(tool, KnowsItsKind)

    def record(self, draft: Draft) -> None:
        """Whatever came of the turn, also when it was stopped in the middle."""
        turn = draft.turn(
            sent=self._context.pending,
            fresh_context=self._context.is_fresh,
            cost=self._limits.prices.cost(draft.answer.usage),
            seconds=self._clock.seconds - draft.started,
        )
        draft.judgement = self._watch.see(turn)
        if draft.judgement.reminder:
            turn = replace(turn, notes=(*turn.notes, draft.judgement.reminder))
            self._observer(Notice(text=draft.judgement.reminder))
        context_tokens = turn.usage.prompt_tokens or self._context.num_tokens
        self._turns.append(turn)
        self._spent = self._spent.plus(turn)
        self._context.said(turn)
        if self._dialogue.has_lost_track:
            self._context.start_over()
        try:
            if self._store:
                self._store.append(turn)
        except EtudeError as error:
            self._not_saved = error
        self._observer(
            TurnFinished(
                number=turn.number,
                context_tokens=context_tokens,
                generated_tokens=turn.usage.generated_tokens,
                seconds=turn.seconds,
                cost=turn.cost,
            )
        )

    def judge(self, draft: Draft) -> None:
        """Raises Halt when the agent is done, or will not get anywhere."""
        for answer in draft.answers:
            if answer.finished:
                raise Halt(StopReason.FINISHED, answer=answer.text)
        if draft.judgement.stuck:
            raise Halt(StopReason.STUCK, draft.judgement.stuck)

    async def _compact(self, draft: Draft) -> bool:
        done = await self._context.compact(self._head.task.statement, self._turns)
        if done:
            draft.notes.append(COMPACTED)
            self._observer(Notice(text=COMPACTED))
        return done

    # The end.

    async def end(self, reason: StopReason, message: str, answer: str = "") -> Trace:
        """Save and say how it ended."""
        # A disk that is full must not turn a trace into a crash.
        with suppress(EtudeError):
            if self._store:
                self._store.finish(reason, message, answer)
        self._observer(Stopped(reason=reason, message=message, answer=answer, changed=await self._changed()))
        return replace(self._head, turns=tuple(self._turns), stop_reason=reason, stop_message=message, answer=answer)

    async def _changed(self) -> list[str]:
        if isinstance(self._workspace, Checkpointed):
            # The run is over whether or not the workspace can still say this.
            with suppress(Exception):
                return [change.path for change in await self._workspace.changes() if not change.ignored]
        return sorted({path for turn in self._turns for result in turn.results for path in result.changed})
