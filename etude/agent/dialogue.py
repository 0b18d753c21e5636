"""How a conversation is put to a model and how its answer is read: with the calls of its server, as text, or as ids."""

from collections.abc import Sequence
from typing import Protocol

from etude.messages import Chat, Completion, Message, Prompt, ToolCall, ToolSpec


class Dialogue(Protocol):
    """One way of talking to one model. Messages are only added between two calls of `prompt` with `fresh`."""

    @property
    def chat_format(self) -> str: ...

    def prompt(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Prompt:
        """What is sent: `messages` were sent or answered before, `pending` are new."""
        ...

    def calls(self, answer: Completion) -> tuple[ToolCall, ...]:
        """The calls in an answer; one that cannot be read has the name "" and its text as arguments."""
        ...


class NativeDialogue:
    """The server knows how the model writes calls."""

    chat_format = ""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def prompt(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Prompt:
        return Chat(messages=(*messages, *pending), tools=self._tools)

    def calls(self, answer: Completion) -> tuple[ToolCall, ...]:
        return answer.tool_calls
