"""Tool calls as text, for models without calls of their own.

    <call name="write">
    <arg name="path">src/a.py</arg>
    <arg name="content">
    print("hello")
    </arg>
    </call>

Values are raw: code needs no escaping, which small models get wrong in JSON (quotes, newlines, backslashes), and a
fence inside it ends nothing, as it would in a fenced block. A value that holds the end tag is written as JSON.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from etude.messages import Message, Role, ToolCall, ToolSpec
from etude.prompts.chat_format import MAX_CALLS_READ, refuse_constant

_CALL_HEAD = re.compile(r'<call name="([^"<>\n]{0,200})">')
_ARG_HEAD = re.compile(r'<arg name="([^"<>\n]{0,200})"( json)?>')
_SPACE = re.compile(r"\s*")
_PLAIN_NAME = re.compile(r'[^"<>\n]{1,200}')

_FORM = """To call a tool, write exactly this form; values are raw text, nothing in them is escaped:
<call name="TOOL">
<arg name="ARGUMENT">value</arg>
<arg name="ARGUMENT">
a value
of several lines
</arg>
</call>
You may write several calls. Their results come in the next message. The tools:"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedCall:
    """A call that could not be read."""

    raw: str
    problem: str
    """What was wrong, as a sentence for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReading:
    """An answer taken apart."""

    prose: str
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[MalformedCall, ...] = ()


class _Wrong(Exception):
    """Why a call cannot be read, and where reading goes on."""

    def __init__(self, problem: str, end: int) -> None:
        super().__init__(problem)
        self.end = end


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """What the system message says of the tools; "" without tools."""
    if not tools:
        return ""
    return "\n".join([_FORM, *(_describe(tool) for tool in tools)])


def _describe(tool: ToolSpec) -> str:
    return (
        f"- {tool.name}: {tool.description} Arguments (JSON schema): {json.dumps(tool.parameters, ensure_ascii=False)}"
    )


def write_call(call: ToolCall) -> str:
    """A call as a model should have written it; arguments that are no JSON object stand there as they are."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return f'<call name="{call.name}">\n{call.arguments}\n</call>'
    if not all(_PLAIN_NAME.fullmatch(name) for name in arguments):
        return f'<call name="{call.name}">\n{_json(arguments)}\n</call>'
    lines = [_write_argument(name, value) for name, value in arguments.items()]
    return "\n".join([f'<call name="{call.name}">', *lines, "</call>"])


def _write_argument(name: str, value: object) -> str:
    if not isinstance(value, str) or "</arg>" in value:
        return f'<arg name="{name}" json>{_json(value)}</arg>'
    return f'<arg name="{name}">\n{value}\n</arg>' if "\n" in value else f'<arg name="{name}">{value}</arg>'


def _json(value: object) -> str:
    return json.dumps(value).replace("<", "\\u003c")


def read_calls(text: str, tools: Sequence[ToolSpec] = (), *, ended: bool = False) -> TextReading:
    """The calls in an answer, in time linear in its length. `tools` tell which raw values are numbers and the like.

    What follows the first thousand calls stays prose. `ended`: the model ended the answer itself, so that a last call
    that lacks nothing but its end tag is one.
    """
    prose: list[str] = []
    calls: list[ToolCall] = []
    malformed: list[MalformedCall] = []
    specs, at = {tool.name: tool for tool in tools}, 0
    while len(calls) + len(malformed) < MAX_CALLS_READ and (start := text.find("<call ", at)) >= 0:
        prose.append(text[at:start])
        try:
            name, arguments, at = _read_call(text, start, specs, ended=ended)
            number = len(calls) + 1
            calls.append(ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments)))
        except _Wrong as wrong:
            at = wrong.end
            malformed.append(MalformedCall(raw=text[start:at], problem=str(wrong)))
    prose.append(text[at:])
    found = calls or malformed
    return TextReading(prose="".join(prose).strip() if found else text, calls=tuple(calls), malformed=tuple(malformed))


def _read_call(text: str, start: int, specs: dict[str, ToolSpec], *, ended: bool) -> tuple[str, dict[str, object], int]:
    head = _CALL_HEAD.match(text, start)
    if not head:
        raise _Wrong('a call must begin with <call name="TOOL">.', start + len("<call "))
    at, arguments = _skip_space(text, head.end()), {}
    if text.startswith("{", at):
        return head[1], *_read_json_body(text, at)
    while not text.startswith("</call>", at):
        if ended and arguments and at == len(text):
            return head[1], arguments, at
        arg = _ARG_HEAD.match(text, at)
        if not arg:
            raise _unexpected(text, at)
        end = text.find("</arg>", arg.end())
        if end < 0:
            raise _Wrong(f"the argument {arg[1]!r} is not closed by </arg>; the answer was cut off.", len(text))
        if arg[1] in arguments:
            raise _Wrong(f"the argument {arg[1]!r} is given twice.", _end_of_call(text, end))
        arguments[arg[1]] = _value(text[arg.end() : end], arg, specs.get(head[1]), text, end)
        at = _skip_space(text, end + len("</arg>"))
    return head[1], arguments, at + len("</call>")


def _value(raw: str, arg: re.Match[str], spec: ToolSpec | None, text: str, end: int) -> object:
    if not arg[2]:
        plain = raw[1:].removesuffix("\n") if raw.startswith("\n") else raw
        return plain if _takes_text(spec, arg[1]) else _loosely(plain)
    try:
        return json.loads(raw, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise _Wrong(f"the argument {arg[1]!r} says json and is none.", _end_of_call(text, end)) from None


def _takes_text(spec: ToolSpec | None, name: str) -> bool:
    properties = spec.parameters.get("properties") if spec else None
    schema = properties.get(name) if isinstance(properties, dict) else None
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)


def _loosely(raw: str) -> object:
    try:
        return json.loads(raw, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return raw


def _read_json_body(text: str, at: int) -> tuple[dict[str, object], int]:
    try:
        value, end = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(text, at)
    except (ValueError, RecursionError):
        raise _Wrong("the JSON in the call cannot be read.", _end_of_call(text, at)) from None
    end = _skip_space(text, end)
    if not text.startswith("</call>", end):
        raise _Wrong("after the JSON, </call> is missing.", _end_of_call(text, end))
    return value, end + len("</call>")


def _unexpected(text: str, at: int) -> _Wrong:
    if at >= len(text):
        return _Wrong("the call is not closed by </call>; the answer was cut off.", at)
    return _Wrong(
        f'in a call only <arg name="ARGUMENT"> or </call> may stand, not {text[at : at + 40]!r}.',
        _end_of_call(text, at),
    )


def _end_of_call(text: str, at: int) -> int:
    end = text.find("</call>", at)
    return end + len("</call>") if end >= 0 else len(text)


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def write_results(results: Sequence[tuple[ToolCall, str]]) -> Message:
    """What tools said, as one message of the user; a result cannot spell the end of itself."""
    parts = [f'<result call="{call.id}" name="{call.name}">\n{_inside(text)}\n</result>' for call, text in results]
    return Message(role=Role.USER, text="\n".join(parts))


def _inside(text: str) -> str:
    return text.replace("</result", "<\\/result")
