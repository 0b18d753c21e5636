"""What goes to a model and what comes back: messages, sampling, chunks, completions.

Values only. How messages become token ids is `prompts/chat_format.py`; who answers is `models/`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call a model wants made, e.g. ToolCall(id="c1", name="read", arguments='{"path": "a.py"}')."""

    id: str
    name: str
    arguments: str
    """JSON text as the model wrote it; not validated here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool a model may call."""

    name: str
    description: str
    parameters: dict[str, object]
    """JSON schema of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one speaker says: Message(role=Role.USER, text="Hello")."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """For role TOOL: the call this answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation to be answered."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    prefill: str = ""
    """The answer's first characters, given rather than generated."""


Prompt = Chat | str | Sequence[int]
"""A conversation, raw text, or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen. The default is greedy, which is what Apply and the tests use."""

    max_tokens: int = 1024
    temperature: float = 0.0
    """0 is greedy: the most probable token."""
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""


class FinishReason(StrEnum):
    """Why a completion ended."""

    END = "end"
    """The model said it was done."""
    STOP_TEXT = "stop_text"
    """One of Sampling.stop was met."""
    LENGTH = "length"
    """Sampling.max_tokens or the context was reached."""
    TOOL_CALLS = "tool_calls"
    """The model wants tools called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a completion cost."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens whose state was still in the cache; the rest were paid for."""
    generated_tokens: int = 0
    drafted_tokens: int = 0
    """Draft tokens that were verified."""
    accepted_tokens: int = 0
    """Draft tokens that the model agreed with."""
    num_passes: int = 0
    """Forward passes after the prompt."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of an answer while it is generated. Concatenated chunk texts are the completion's text."""

    text: str
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer. `token_ids` and `logprobs` have one entry a generated token, or are empty when
    the server does not tell them."""

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Natural logarithms of the probability of each generated token before temperature."""
    finish_reason: FinishReason = FinishReason.END
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """Name of the model that answered."""
