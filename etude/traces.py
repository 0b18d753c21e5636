"""The record of one agent run: Turn, Trace, StopReason.

A trace is token-true. The ids a model read in turn k are the concatenation of `context_ids` and `token_ids` of all
turns from the last one with `fresh_context` up to k-1, and then `context_ids` of turn k; nothing is tokenized twice.
Saving and resuming is `agent/store.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from etude.messages import Message, ToolCall, Usage
from etude.tasks import Task


class StopReason(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    """The agent said it was done."""
    STOPPED = "stopped"
    """A person stopped it."""
    STUCK = "stuck"
    """It repeated itself, and the reminder did not help."""
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    MAX_SECONDS = "max_seconds"
    MAX_COST = "max_cost"
    CONTEXT_FULL = "context_full"
    """Even compacted, the conversation does not fit the model."""
    MODEL_FAILED = "model_failed"
    """The model or its server let us down, after retries."""
    CRASHED = "crashed"
    """A slip of etude's own; `Trace.stop_message` names it."""


class TurnError(StrEnum):
    """What was wrong with a call; the answer the model got says how to do it right."""

    UNKNOWN_TOOL = "unknown_tool"
    MALFORMED_CALL = "malformed_call"
    """The call is not the JSON (or text form) that was asked for."""
    WRONG_ARGUMENTS = "wrong_arguments"
    NO_CALL = "no_call"
    """The model wrote text and called nothing."""
    TOOL_FAILED = "tool_failed"
    """The call was right and the tool could not do it: no such file, the sketch did not apply, …"""
    COMMAND_FAILED = "command_failed"
    """A command ended with an exit code other than 0, or was ended for a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call gave: ToolResult(call=ToolCall(…), text="2 passed in 0.1s")."""

    call: ToolCall
    """As the model made it, e.g. with arguments that are not JSON."""
    text: str
    """What the model reads; long output is cut and says how to see the rest."""
    error: TurnError | None = None
    seconds: float = 0.0
    exit_code: int | None = None
    """For commands that ended by themselves."""
    opened: tuple[str, ...] = ()
    """Absolute paths that a command opened for reading, sorted; the practice judges by them."""
    changed: tuple[str, ...] = ()
    """Paths, relative to the workspace, that the call wrote or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the model and what came of it."""

    number: int
    """From 1."""
    sent: tuple[Message, ...]
    """Messages added to the context since the last turn: the task at first, then tool results and notes."""
    fresh_context: bool = False
    """The context starts anew with `sent`: the first turn, and the first after a compaction."""
    context_ids: tuple[int, ...] = ()
    """Token ids of what was added since the last turn's sampled ids; empty if the model does not tell."""
    text: str
    """The answer as the model wrote it, calls in text form included."""
    token_ids: tuple[int, ...] = ()
    """Token ids that were sampled."""
    logprobs: tuple[float, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    """As understood; a call that could not be read has the name "" and the raw text as arguments."""
    results: tuple[ToolResult, ...] = ()
    """One a call, in order."""
    error: TurnError | None = None
    """The answer as a whole was wrong: NO_CALL or MALFORMED_CALL. Errors of calls are in their results."""
    checkpoint: str | None = None
    """State of the workspace before this turn's calls, where the workspace can take one."""
    notes: tuple[str, ...] = ()
    """What happened beside the calls: edits of the person that were followed, a compaction, a reminder."""
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    """In the currency of the configured prices; 0 without prices."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole run."""

    id: str
    task: Task
    model: str
    chat_format: str
    """Name of the format the ids were made with; "" when a server did it."""
    tools: tuple[str, ...]
    """Names that were offered."""
    turns: tuple[Turn, ...] = ()
    stop_reason: StopReason | None = None
    """None while the run goes on, or after a crash that left no time to say."""
    stop_message: str = ""
    """For a person: which limit, which error."""
    answer: str = ""
    """What the agent said when it finished."""
    parent: str = ""
    """Id of the trace this one was forked from."""
    started_at: str = ""
    """ISO 8601, UTC."""


def context_token_ids(turns: Sequence[Turn], index: int) -> tuple[int, ...]:
    """The ids the model read before it sampled `turns[index]`; empty where they are not known."""
    start = max(at for at in range(index + 1) if turns[at].fresh_context)
    ids: list[int] = []
    for turn in turns[start:index]:
        ids += [*turn.context_ids, *turn.token_ids]
    return (*ids, *turns[index].context_ids)
