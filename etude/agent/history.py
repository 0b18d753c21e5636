"""Turns as messages: what is sent to a model is read from the trace alone, so that a resumed run sends the same.

Whatever a model wrote, what goes back to it is well-formed: every call has a name, an id and arguments that are a JSON
object, every call is answered, and all text is UTF-8. Some servers refuse a conversation for ever after one bad call.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from etude.messages import Message, Role, ToolCall
from etude.traces import Turn

NO_CALL = (
    "You called no tool, so nothing was done. Call a tool to go on; when the work is done, or your text was the "
    "answer, call finish."
)
EMPTY = "(an empty answer)"
MAX_QUOTED_CHARACTERS = 2_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def conversation(turns: Sequence[Turn]) -> list[Message]:
    """What the model has read and written since the last fresh context; what answers the last turn is not in it."""
    start = max((at for at, turn in enumerate(turns) if turn.fresh_context), default=0)
    return [message for turn in turns[start:] for message in (*turn.sent, spoken(turn))]


def spoken(turn: Turn) -> Message:
    """What the model said, as it is sent back to it."""
    calls = tuple(map(_sendable, turn.tool_calls))
    text = sendable_text(turn.text)
    return Message(role=Role.ASSISTANT, text=text if text.strip() or calls else EMPTY, tool_calls=calls)


def reply_to(turn: Turn) -> list[Message]:
    """The results of a turn and the notes on it. Notes are added to the last result: after results, not every model
    can read a message of the person."""
    messages = [
        Message(role=Role.TOOL, text=sendable_text(result.text), tool_call_id=result.call.id) for result in turn.results
    ]
    notes = [*([NO_CALL] if turn.error else []), *turn.notes]
    if not notes:
        return messages
    text = sendable_text("\n\n".join(f"[note] {note}" for note in notes))
    if not messages:
        return [Message(role=Role.USER, text=text)]
    last = messages[-1]
    return [*messages[:-1], Message(role=Role.TOOL, text=f"{last.text}\n\n{text}", tool_call_id=last.tool_call_id)]


def sendable_text(text: str) -> str:
    """Halves of surrogate pairs, from names that are not UTF-8, as escapes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _sendable(call: ToolCall) -> ToolCall:
    name = call.name if _NAME.fullmatch(call.name) else "unreadable"
    arguments = call.arguments.strip() or "{}"
    if name != call.name or not is_object(arguments):
        quoted = sendable_text(f"{call.name[:64]} {arguments[:MAX_QUOTED_CHARACTERS]}".strip())
        arguments = msgspec.json.encode({"unreadable": quoted}).decode()
    return ToolCall(id=call.id, name=name, arguments=arguments)


def is_object(arguments: str) -> bool:
    """Whether the text is a JSON object, to the letter."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def identified(calls: Iterable[ToolCall], number: int) -> tuple[ToolCall, ...]:
    """With ids that are there, and unique in the conversation. Nine letters and digits: some templates want that."""
    return tuple(
        ToolCall(id=f"t{number:05}{place:03}", name=call.name, arguments=call.arguments)
        for place, call in enumerate(calls, 1)
    )
