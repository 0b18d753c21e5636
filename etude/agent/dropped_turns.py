"""A turn of a conversation as one piece: split, kept in the records, shortened, listed in a table of contents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from etude.agent.pinned import one_line
from etude.agent.records import Records, shortened
from etude.messages import Message, Role, ToolCall

_MAX_CALL_CHARACTERS = 120
_MAX_OUTCOME_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """An answer and everything up to the next: results, and what a person or the loop said."""

    number: int
    messages: tuple[Message, ...]
    whole: str | None = None
    """Where the messages are shortened: the id of the record with the whole ones."""


def split_turns(messages: Sequence[Message], last_turn: int) -> tuple[tuple[Message, ...], list[Piece]]:
    """What comes before the first answer, and the turns, of which the last has the number `last_turn`."""
    starts = [at for at, message in enumerate(messages) if message.role is Role.ASSISTANT]
    first = max(last_turn, len(starts)) - len(starts) + 1
    ends = [*starts[1:], len(messages)]
    pieces = [
        Piece(number=number, messages=tuple(messages[start:end]))
        for number, (start, end) in enumerate(zip(starts, ends, strict=False), first)
    ]
    return tuple(messages[: starts[0]] if starts else messages), pieces


def keep_turn(piece: Piece, records: Records) -> str:
    """The id of the record that has the turn word for word. One that an earlier compaction shortened is there."""
    if piece.whole:
        return piece.whole
    return _kept_earlier(piece, records) or _keep(piece, records)


def _kept_earlier(piece: Piece, records: Records) -> str:
    id = f"turn:{piece.number}"
    named = any(f'recall(id="{id}"' in message.text for message in piece.messages)
    return id if named and records.has(id) else ""


def _keep(piece: Piece, records: Records) -> str:
    return records.keep("turn", written(piece.messages), title=_line(piece), number=piece.number).id


def shorten_turn(piece: Piece, max_characters: int, records: Records) -> Piece:
    """The turn with what is long in its results left out; its answer and its calls stay as they are."""
    if not any(_is_long(message, max_characters) for message in piece.messages):
        return piece
    # In a record that was made from longer messages the lines are elsewhere.
    lines_known = not piece.whole and not _kept_earlier(piece, records)
    record = records.find(keep_turn(piece, records))
    messages: list[Message] = []
    for at, message in enumerate(piece.messages):
        if _is_long(message, max_characters):
            first_line = _text_line(piece.messages, at) if lines_known else 1
            text = shortened(message.text, record, max_characters, first_line=first_line)
            message = replace(message, text=min(text, message.text, key=len))
        messages.append(message)
    return replace(piece, messages=tuple(messages), whole=record.id)


def _is_long(message: Message, max_characters: int) -> bool:
    return message.role is not Role.ASSISTANT and len(message.text) > max_characters


def written(messages: Sequence[Message]) -> str:
    """All that the messages say, word for word, for reading."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return "\n".join(_written(message, names) for message in messages)


def _written(message: Message, names: Mapping[str, str]) -> str:
    about = f" ({one_line(names.get(message.tool_call_id, ''), 80)})" if message.tool_call_id else ""
    calls = [f"## call {one_line(call.name, 80)}\n{call.arguments}" for call in message.tool_calls]
    return "\n".join([f"## {message.role}{about}", message.text, *calls])


def _text_line(messages: Sequence[Message], at: int) -> int:
    """The line of the record where the text of `messages[at]` begins."""
    return written(messages[:at]).count("\n") + 1 + (1 if at else 0) + 1


# The table of contents.


def contents(records: Records, fits: Callable[[str], bool]) -> str:
    """One line a dropped turn, the newest ones if there is no room for all, and how to see the rest."""
    turns = records.contents("turn")
    if not turns:
        return ""
    lines = [f"- {record.id} {record.title}".rstrip() for record in turns]
    number = len(lines)
    while number and not fits("\n".join(lines[len(lines) - number :])):
        number //= 2
    more = [] if number == len(lines) else [f'- ({len(lines) - number} older ones: recall(id="contents"))']
    return "\n".join(
        [
            "## Earlier turns, kept word for word",
            f'recall(id="{turns[-1].id}") reads one, recall(query="…") searches all of them.',
            *more,
            *lines[len(lines) - number :],
        ]
    )


def _line(piece: Piece) -> str:
    """run {"command": "pytest -q"} → 12 lines, … Exit code 1."""
    answer, *others = piece.messages
    results = {message.tool_call_id: message.text for message in others if message.role is Role.TOOL}
    calls = [f"{_call(call)} → {_outcome(results.get(call.id, ''))}" for call in answer.tool_calls[:4]]
    return "; ".join(calls) or one_line(answer.text, _MAX_CALL_CHARACTERS)


def _call(call: ToolCall) -> str:
    return f"{one_line(call.name, 40)} {one_line(call.arguments, _MAX_CALL_CHARACTERS)}"


def _outcome(text: str) -> str:
    text = text.strip()
    last = one_line(text[text.rfind("\n") + 1 :], _MAX_OUTCOME_CHARACTERS)
    num_lines = text.count("\n") + 1
    return last if num_lines == 1 else f"{num_lines} lines, … {last}"
