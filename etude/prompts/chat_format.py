"""How a conversation becomes the text a model was trained to answer; one class a model family.

A format yields segments rather than one string, because only the format's own markers may become control
tokens: what a person or a file says stays text, even when it spells a marker.

A format with tools only appends: `segments(chat)`, the sampled answer, `closing`, `continuation(more)` is the whole
conversation. Families whose template rewrites what was said are refused, since their past would change its ids.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from etude.errors import Unsupported
from etude.messages import Chat, Message, Role, ToolCall, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a prompt: Segment(text="<|im_start|>", control=True), then Segment(text="user\\nHello")."""

    text: str
    control: bool = False
    """A marker of the format, to be read as one control token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An answer taken apart."""

    prose: str
    """What stands outside the calls."""
    calls: tuple[ToolCall, ...] = ()
    """One that could not be read has the name "" and its raw text as arguments."""


class ChatFormat(Protocol):
    """How one model family writes a conversation."""

    @property
    def name(self) -> str:
        """What a Trace calls it, e.g. "qwen2.5"."""
        ...

    @property
    def has_tools(self) -> bool:
        """False: calls must be described and written as text (`prompts/tool_text.py`)."""
        ...

    @property
    def closing(self) -> tuple[Segment, ...]:
        """What ends an answer: first the marker that the model samples itself when it is done."""
        ...

    def continuation(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        """What follows a closed answer: these messages and the opening of the next answer."""
        ...

    def read(self, text: str) -> Reading:
        """Prose and calls of an answer."""
        ...

    def segments(self, chat: Chat) -> tuple[Segment, ...]:
        """The prompt whose continuation is the answer. Raises Unsupported for what the format cannot say."""
        ...


_CLOSING = (Segment(text="<|im_end|>", control=True), Segment(text="\n"))
_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_NO_TOOLS = "This model's chat format has no tool calls; describe the tools as text (prompts/tool_text.py)."
# The words of the family's published template: the model was tuned with them.
_TOOLS_HEAD = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_CALLS = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
# From here on the tags are meant as tokens.
_TOOLS_TAIL = (
    "<tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_INSIDE_TAG = re.compile(r"(?<=<)(?=/?tool_call>|\|(?:fim_|repo_name|file_sep))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatML:
    """<|im_start|>role, newline, text, <|im_end|>: SmolLM2, and what has no tools of its own."""

    default_system: str = ""
    """What the family's own template puts first when the conversation has no system message."""
    name: str = "chatml"
    has_tools: bool = False
    closing: tuple[Segment, ...] = _CLOSING

    def segments(self, chat: Chat) -> tuple[Segment, ...]:
        if chat.tools:
            raise Unsupported(_NO_TOOLS)
        messages = _with_system(chat.messages, self.default_system)
        return (*(segment for message in messages for segment in _plain_turn(message)), *_open_answer(chat.prefill))

    def continuation(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        return (*(segment for message in messages for segment in _plain_turn(message)), *_open_answer())

    def read(self, text: str) -> Reading:
        return Reading(prose=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class HermesChatML:
    """ChatML with calls as JSON between <tool_call> tags and results grouped in a user's turn: Qwen2.5."""

    default_system: str = ""
    name: str = "qwen2.5"
    has_tools: bool = True
    closing: tuple[Segment, ...] = _CLOSING

    def segments(self, chat: Chat) -> tuple[Segment, ...]:
        messages = _with_system(chat.messages, self.default_system)
        if not chat.tools:
            return (*_hermes_turns(messages), *_open_answer(chat.prefill))
        # With tools there is always a system turn: the list of tools stands in it.
        first = messages[0] if messages and messages[0].role is Role.SYSTEM else Message(role=Role.SYSTEM, text="")
        rest = messages[1:] if messages and messages[0] is first else messages
        system = (*_open_hermes("system", first.text + _tool_list(chat.tools)), Segment(text=_TOOLS_TAIL), *_CLOSING)
        return (*system, *_hermes_turns(rest), *_open_answer(chat.prefill))

    def continuation(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        return (*_hermes_turns(messages), *_open_answer())

    def read(self, text: str) -> Reading:
        return read_hermes(text)


def _with_system(messages: Sequence[Message], default: str) -> tuple[Message, ...]:
    if not default or (messages and messages[0].role is Role.SYSTEM):
        return tuple(messages)
    return Message(role=Role.SYSTEM, text=default), *messages


def _open_turn(role: str, text: str) -> tuple[Segment, ...]:
    return Segment(text="<|im_start|>", control=True), Segment(text=f"{role}\n{text}")


def _open_answer(prefill: str = "") -> tuple[Segment, ...]:
    return _open_turn(Role.ASSISTANT, prefill)


def _plain_turn(message: Message) -> tuple[Segment, ...]:
    if message.tool_calls or message.role is Role.TOOL:
        raise Unsupported(_NO_TOOLS)
    return _closed_turn(message.role, message.text)


def _closed_turn(role: str, text: str) -> tuple[Segment, ...]:
    if role != Role.ASSISTANT:
        return (*_open_turn(role, text), *_CLOSING)
    # An answer is sampled after its opening was read: both are encoded apart, here as there.
    return (*_open_answer(), *((Segment(text=text),) if text else ()), *_CLOSING)


def _hermes_turns(messages: Sequence[Message]) -> tuple[Segment, ...]:
    found: list[Segment] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        if role is Role.TOOL:
            found += (*_open_hermes(Role.USER, "\n".join(map(_result, group))), *_CLOSING)
            continue
        for message in group:
            is_ours = role is Role.ASSISTANT
            turn = _closed_turn(role, _with_calls(message)) if is_ours else _open_hermes(role, message.text)
            found += turn if is_ours else (*turn, *_CLOSING)
    return tuple(found)


def _result(message: Message) -> str:
    return f"<tool_response>\n{message.text}\n</tool_response>"


def _with_calls(message: Message) -> str:
    calls = [f"{_CALL}\n{_call_json(call)}\n{_CALL_END}" for call in message.tool_calls]
    return "\n".join([*([message.text] if message.text or not calls else []), *calls])


def _call_json(call: ToolCall) -> str:
    return f'{{"name": "{call.name}", "arguments": {_json(arguments_object(call.arguments))}}}'


def arguments_object(arguments: str) -> dict[str, object]:
    """A call's arguments; what is no JSON object becomes {"malformed": text}, so that templates can read it."""
    try:
        found = json.loads(arguments, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"malformed": arguments}


def refuse_constant(name: str) -> object:
    """For a JSON parser: NaN and Infinity, which Python reads and nobody else."""
    raise ValueError(f"{name} is no JSON")


def _open_hermes(role: str, text: str) -> tuple[Segment, ...]:
    """A turn of someone other than the model: the family's tags in it are taken apart, so that they stay text.

    Its vocabulary holds them as tokens that no tokenizer setting turns off.
    """
    start, opening = _open_turn(role, text)
    return start, *_apart(opening.text)


def _apart(text: str) -> tuple[Segment, ...]:
    return tuple(Segment(text=piece) for piece in _INSIDE_TAG.split(text))


def _tool_list(tools: Sequence[ToolSpec]) -> str:
    return "".join([_TOOLS_HEAD, *("\n" + _json(_tool_object(tool)) for tool in tools), _TOOLS_CALLS])


def _tool_object(tool: ToolSpec) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# More calls than any answer means. Python's JSON errors count the lines before them, which makes each broken call
# cost as much as all the text before it.
MAX_CALLS_READ = 1_000


def read_hermes(text: str) -> Reading:
    """Calls are read as JSON, not up to the next end tag: an argument may contain one.

    What follows the first thousand stays prose.
    """
    prose, calls, at = [], [], 0
    while len(calls) < MAX_CALLS_READ and (start := text.find(_CALL, at)) >= 0:
        prose.append(text[at:start])
        call, at = _hermes_call(text, start + len(_CALL), f"call_{len(calls) + 1}")
        calls.append(call)
    prose.append(text[at:])
    if not calls:
        bare = _bare_calls(text)
        return Reading(prose="" if bare else text, calls=bare)
    return Reading(prose="".join(prose).strip(), calls=tuple(calls))


def _bare_calls(text: str) -> tuple[ToolCall, ...]:
    """Small models of the family leave the tags out: an answer that is nothing but calls is taken as such."""
    body = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    calls: list[ToolCall] = []
    while body and len(calls) < MAX_CALLS_READ:
        try:
            value, end = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(body)
        except (ValueError, RecursionError):
            return ()
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "arguments" not in value:
            return ()
        calls.append(_hermes_call(body[:end], 0, f"call_{len(calls) + 1}")[0])
        body = body[end:].strip()
    return tuple(calls)


def _hermes_call(text: str, start: int, call_id: str) -> tuple[ToolCall, int]:
    begin = start
    while begin < len(text) and text[begin].isspace():
        begin += 1
    try:
        value, end = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(text, begin)
    except (ValueError, RecursionError):
        value, end = None, begin
    closed = text.find(_CALL_END, end)
    after = closed + len(_CALL_END) if closed >= 0 else len(text)
    extra = text[end : closed if closed >= 0 else len(text)].strip()
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or extra:
        raw = text[start : closed if closed >= 0 else len(text)].strip()
        return ToolCall(id=call_id, name="", arguments=raw), after
    arguments = value.get("arguments", {})
    # Some models write the object as a string, as the wire has it.
    encoded = arguments if isinstance(arguments, str) else _json(arguments)
    return ToolCall(id=call_id, name=value["name"], arguments=encoded), after


# The default system lines are those of the families' published templates: the models were tuned with them.
SMOLLM2 = ChatML(default_system="You are a helpful AI assistant named SmolLM, trained by Hugging Face", name="smollm2")
QWEN2_5 = HermesChatML(default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
PLAIN_CHATML = ChatML()

TEMPLATE_KEY = "tokenizer.chat_template"
_KNOWN_TEMPLATES: tuple[tuple[str, ChatFormat], ...] = (
    ("named SmolLM", SMOLLM2),
    ("You are Qwen", QWEN2_5),
    ("<|im_start|>", PLAIN_CHATML),
)
"""What a template says of itself → its format; the first that fits."""


# A template's own words for taking back what the model has said.
_REWRITING_TEMPLATES = (
    ("</think>", "drops the reasoning of earlier turns (as Qwen3 and DeepSeek-R1 do)"),
    ("<|channel|>", "drops the analysis of earlier turns (as gpt-oss does)"),
)


def chat_format_for(metadata: Mapping[str, str]) -> ChatFormat:
    """The format for conversations that grow, by a model's GGUF metadata. Raises Unsupported for a family without
    one here, and for one whose template rewrites the past.
    """
    template = metadata.get(TEMPLATE_KEY, "")
    for sign, reason in _REWRITING_TEMPLATES:
        if sign in template:
            raise Unsupported(
                f"{metadata.get('general.name', 'this model')} has a chat template that {reason}, so the tokens of a "
                "conversation's past would change. Use its server (a conversation over HTTP), or Qwen2.5."
            )
    return prompt_format_for(metadata)


def prompt_format_for(metadata: Mapping[str, str]) -> ChatFormat:
    """The format for prompts that are encoded whole each time, where no past has to stay. Raises Unsupported for a
    family without one here.
    """
    template = metadata.get(TEMPLATE_KEY, "")
    for sign, chat_format in _KNOWN_TEMPLATES:
        if sign in template:
            return chat_format
    reason = "a chat template that etude does not know" if template else "no chat template"
    name = metadata.get("general.name", "this model")
    raise Unsupported(f"{name} has {reason}; give it text instead of a conversation, or choose another model.")
