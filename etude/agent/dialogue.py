"""How a conversation is put to a model and how its answer is read: in token ids, with the calls of its server, or with
calls written as text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from etude.agent.history import spoken
from etude.errors import Unsupported
from etude.messages import Chat, Completion, FinishReason, Message, Prompt, Role, ToolCall, ToolSpec
from etude.models.model import Model, TokenTrue
from etude.prompts.chat_format import ChatFormat, read_hermes
from etude.prompts.tool_text import describe_tools, read_calls, write_call, write_results
from etude.prompts.transcript import Encode, Transcript
from etude.traces import Turn

# What models write that were tuned for calls, when their server does not know.
CALL_MARKER = "<tool_call>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is sent."""

    prompt: Prompt
    context_ids: tuple[int, ...] = ()
    """Token ids of what was added since the last sampled ones, where we make them ourselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What is in an answer."""

    calls: tuple[ToolCall, ...]
    """One that cannot be read has the name "" and its text as arguments."""
    problems: tuple[str, ...] = ()
    """What is wrong with those, for the model."""


class Dialogue(Protocol):
    """One way of talking to one model."""

    @property
    def chat_format(self) -> str:
        """Name of the format that ids are made with; "" where a server does it."""
        ...

    @property
    def has_lost_track(self) -> bool:
        """What the model has said is not known in its ids; the next context has to be fresh."""
        ...

    def resume(self, turns: Sequence[Turn]) -> None:
        """The model has read and said what is in these turns."""
        ...

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        """What to send: `messages` were read or said before, `pending` are new; `fresh`, when there are none before."""
        ...

    def heard(self, answer: Completion) -> Heard:
        """The model has read what was asked last, and answered."""
        ...


def dialogue_with(model: Model, tools: Sequence[ToolSpec]) -> Dialogue:
    """In ids where the model's format allows it."""
    if isinstance(model, TokenTrue):
        try:
            return TokenDialogue(model.read_chat_format(), model.encode_segments, tools)
        except Unsupported:
            return NativeDialogue(tools)
    return NativeDialogue(tools)


class NativeDialogue:
    """The server knows how its model writes calls. Where one lets them pass as text, they are found in it."""

    chat_format = ""
    has_lost_track = False

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tuple(tools)

    def resume(self, turns: Sequence[Turn]) -> None:
        pass

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        return Asked(prompt=Chat(messages=(*messages, *pending), tools=self.tools))

    def heard(self, answer: Completion) -> Heard:
        if answer.tool_calls or CALL_MARKER not in answer.text:
            return Heard(calls=answer.tool_calls)
        return Heard(calls=read_hermes(answer.text).calls)


class TextDialogue:
    """Calls and results are written into plain messages, person and model in turns."""

    chat_format = ""
    has_lost_track = False

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def resume(self, turns: Sequence[Turn]) -> None:
        pass

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        whole = (*messages, *pending)
        return Asked(prompt=Chat(messages=tuple(as_text(whole, self._tools, names_in(whole)))))

    def heard(self, answer: Completion) -> Heard:
        return heard_in_text(answer, self._tools)


class TokenDialogue:
    """The conversation is kept in token ids; what was sampled is never made from text again."""

    def __init__(self, chat_format: ChatFormat, encode: Encode, tools: Sequence[ToolSpec]) -> None:
        self._format = chat_format
        self._encode = encode
        self._tools = tuple(tools)
        self._transcript = self._new()
        self.has_lost_track = False

    @property
    def chat_format(self) -> str:
        return self._format.name

    def _new(self) -> Transcript:
        return Transcript(self._format, self._encode, tools=self._tools if self._format.has_tools else ())

    def resume(self, turns: Sequence[Turn]) -> None:
        start = max((at for at, turn in enumerate(turns) if turn.fresh_context), default=0)
        messages: list[Message] = []
        for turn in turns[start:]:
            asked = self.asked(messages, turn.sent, fresh=not messages)
            if asked.context_ids != turn.context_ids:
                # It was another model's, or another version of the format.
                self.has_lost_track = True
                return
            self.heard(Completion(text=turn.text, token_ids=turn.token_ids))
            messages = [*turn.sent, spoken(turn)]

    def asked(self, messages: Sequence[Message], pending: Sequence[Message], *, fresh: bool) -> Asked:
        if fresh:
            self._transcript, self.has_lost_track = self._new(), False
        written = self._written(pending, names_in(messages[-1:]) | names_in(pending))
        context_ids = self._transcript.add(written)
        return Asked(prompt=self._transcript.ids, context_ids=context_ids)

    def _written(self, messages: Sequence[Message], names: Mapping[str, str]) -> Sequence[Message]:
        if not self._format.has_tools:
            return as_text(messages, self._tools, names)
        # An answer of this dialogue has its calls in its text already.
        return [
            replace(message, tool_calls=()) if message.tool_calls and self._format.read(message.text).calls else message
            for message in messages
        ]

    def heard(self, answer: Completion) -> Heard:
        try:
            self._transcript.sampled(answer)
        except Unsupported:
            self.has_lost_track = True
        if self._format.has_tools:
            return Heard(calls=self._format.read(answer.text).calls)
        return heard_in_text(answer, self._tools)


# Calls as text.


def heard_in_text(answer: Completion, tools: Sequence[ToolSpec]) -> Heard:
    reading = read_calls(answer.text, tools, ended=answer.finish_reason is FinishReason.END)
    unreadable = tuple(ToolCall(id="", name="", arguments=call.raw) for call in reading.malformed)
    return Heard(calls=(*reading.calls, *unreadable), problems=tuple(call.problem for call in reading.malformed))


def names_in(messages: Iterable[Message]) -> dict[str, str]:
    """Names of the calls by their ids."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def as_text(messages: Iterable[Message], tools: Sequence[ToolSpec], names: Mapping[str, str]) -> list[Message]:
    """The same conversation without calls: the system's message explains the tools, results are said by the person."""
    plain: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            message = replace(message, text=f"{message.text}\n\n{describe_tools(tools)}")
        elif message.role is Role.TOOL:
            id = message.tool_call_id or ""
            message = write_results([(ToolCall(id=id, name=names.get(id, ""), arguments=""), message.text)])
        elif message.tool_calls:
            message = _answer_as_text(message, tools)
        if plain and message.role is plain[-1].role:
            plain[-1] = replace(plain[-1], text=f"{plain[-1].text}\n\n{message.text}")
        else:
            plain.append(message)
    return plain


def _answer_as_text(message: Message, tools: Sequence[ToolSpec]) -> Message:
    """With its calls in its text, where they are not yet: they were made natively, by another model."""
    reading = read_calls(message.text, tools)
    calls = [] if reading.calls or reading.malformed else map(write_call, message.tool_calls)
    text = "\n".join([*([message.text] if message.text else []), *calls])
    return Message(role=Role.ASSISTANT, text=text)
