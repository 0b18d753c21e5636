"""How a conversation is put to a model and how its answer is read: with calls as its server knows them, or as text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from etude.messages import Chat, Completion, Message, Prompt, Role, ToolCall, ToolSpec
from etude.traces import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is sent."""

    prompt: Prompt
    context_ids: tuple[int, ...] = ()
    """Token ids of what was added since the last sampled ones, where we make them ourselves."""
    stop: tuple[str, ...] = ()


class Dialogue(Protocol):
    """One way of talking to one model."""

    @property
    def chat_format(self) -> str:
        """Name of the format that ids are made with; "" where a server does it."""
        ...

    def resume(self, turns: Sequence[Turn]) -> None:
        """The model has read and said what is in these turns."""
        ...

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        """What to send: `messages` were read or said before, `pending` are new. May be called again with less,
        when the model did not take it."""
        ...

    def heard(self, asked: Asked, answer: Completion) -> tuple[ToolCall, ...]:
        """The model has read `asked` and answered: its calls, one that cannot be read with the name "" and its text
        as arguments."""
        ...


class ToolText(Protocol):
    """How calls are written in plain text, for models that know no other way."""

    def explain(self, tools: Sequence[ToolSpec]) -> str:
        """What a model is told of the tools and how to call them."""
        ...

    def read(self, text: str) -> Sequence[ToolCall]:
        """The calls in an answer; one that was begun and cannot be read has the name ""."""
        ...


class NativeDialogue:
    """The server knows how its model writes calls. Where one lets them pass as text, they are found in it."""

    chat_format = ""

    def __init__(self, tools: Sequence[ToolSpec], form: ToolText | None = None) -> None:
        self._tools = tuple(tools)
        self._form = form

    def resume(self, turns: Sequence[Turn]) -> None:
        pass

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        return Asked(prompt=Chat(messages=(*messages, *pending), tools=self._tools))

    def heard(self, asked: Asked, answer: Completion) -> tuple[ToolCall, ...]:
        if answer.tool_calls or self._form is None:
            return answer.tool_calls
        return tuple(self._form.read(answer.text))


class TextDialogue:
    """Calls and results are written into plain messages, person and model in turns."""

    chat_format = ""

    def __init__(self, tools: Sequence[ToolSpec], form: ToolText) -> None:
        self._form = form
        self._explanation = form.explain(tools)

    def resume(self, turns: Sequence[Turn]) -> None:
        pass

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        return Asked(prompt=Chat(messages=tuple(as_text((*messages, *pending), self._explanation))))

    def heard(self, asked: Asked, answer: Completion) -> tuple[ToolCall, ...]:
        return tuple(self._form.read(answer.text))


def as_text(messages: Iterable[Message], explanation: str) -> list[Message]:
    """The same conversation without calls: the first message explains the tools, results are said by the person."""
    plain: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM and not plain:
            message = replace(message, text=f"{message.text}\n\n{explanation}")
        elif message.role is Role.TOOL:
            message = Message(role=Role.USER, text=f"Result:\n{message.text}")
        elif message.tool_calls:
            message = Message(role=Role.ASSISTANT, text=message.text or _written(message.tool_calls))
        if plain and message.role is plain[-1].role:
            plain[-1] = replace(plain[-1], text=f"{plain[-1].text}\n\n{message.text}")
        else:
            plain.append(message)
    return plain


def _written(calls: Sequence[ToolCall]) -> str:
    """For calls that were made natively before, by another model."""
    return "\n".join(f"{call.name} {call.arguments}" for call in calls)


def dialogues_for(tools: Sequence[ToolSpec], form: ToolText | None) -> tuple[Dialogue, Dialogue | None]:
    """How to talk to a model at first, and what to do if it knows no calls."""
    return NativeDialogue(tools, form), TextDialogue(tools, form) if form else None
