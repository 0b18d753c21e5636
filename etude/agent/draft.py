"""A turn while it happens: Draft, which becomes a Turn whether or not it could be finished."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from etude.agent.calls import MAX_CALLS, unanswered
from etude.agent.dialogue import Heard
from etude.agent.history import identified
from etude.agent.stuck import Judgement
from etude.agent.toolbox import Answer
from etude.messages import Completion, FinishReason, Message, ToolCall
from etude.traces import ToolResult, Turn, TurnError

CUT = "Your answer was cut: it may have {tokens} tokens. Do less in one answer; write large files in parts."
TOO_MANY_CALLS = "Your answer had {calls} calls; only the first {most} were done."


@dataclass(slots=True, kw_only=True)
class Draft:
    """A turn while it happens."""

    number: int
    started: float
    """On the run's clock."""
    answer: Completion = field(default_factory=lambda: Completion(text=""))
    context_ids: tuple[int, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: list[ToolResult] = field(default_factory=list)
    """One for each call that was done, in order."""
    answers: list[Answer] = field(default_factory=list)
    """What the results were made of."""
    checkpoint: str | None = None
    notes: list[str] = field(default_factory=list)
    judgement: Judgement = field(default_factory=Judgement)

    def read(self, heard: Heard, longest: int) -> None:
        """Take the calls of the answer, and note what is wrong with it as a whole."""
        calls = heard.calls
        self.calls = identified(calls[:MAX_CALLS], self.number)
        self.notes += heard.problems[:MAX_CALLS]
        if self.answer.finish_reason is FinishReason.LENGTH:
            self.notes.append(CUT.format(tokens=longest))
        if len(calls) > MAX_CALLS:
            self.notes.append(TOO_MANY_CALLS.format(calls=len(calls), most=MAX_CALLS))

    def turn(self, *, sent: Sequence[Message], fresh_context: bool, cost: float, seconds: float) -> Turn:
        return Turn(
            number=self.number,
            sent=tuple(sent),
            fresh_context=fresh_context,
            context_ids=self.context_ids,
            text=self.answer.text,
            token_ids=self.answer.token_ids,
            logprobs=self.answer.logprobs,
            tool_calls=self.calls,
            results=(*self.results, *unanswered(self.calls[len(self.results) :])),
            error=None if self.calls else TurnError.NO_CALL,
            checkpoint=self.checkpoint,
            notes=tuple(self.notes),
            usage=self.answer.usage,
            cost=cost,
            seconds=seconds,
        )
