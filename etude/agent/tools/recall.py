"""The recall tool: reads what was cut or dropped from the conversation, or searches it."""

from typing import Annotated

import msgspec

from etude.agent.records import Records
from etude.agent.toolbox import Answer, StructTool, ToolContext, failed

MAX_LINES = 400
MAX_HITS = 40

# The record of records: one line each.
CONTENTS = "contents"

# For the line that says what is shown.
_HEADING_CHARACTERS = 200


class RecallArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(description='A record: "output:3", "turn:12"; "contents" lists them all.')] = ""
    first_line: Annotated[int, msgspec.Meta(ge=1)] = 1
    last_line: Annotated[int, msgspec.Meta(ge=1)] | None = None
    first_character: Annotated[int, msgspec.Meta(ge=1, description="Of the first line, when it is very long.")] = 1
    query: Annotated[str, msgspec.Meta(description="Instead of an id: words to look for in all records.")] = ""


async def recall(arguments: RecallArguments, context: ToolContext) -> Answer:
    if arguments.query:
        return Answer(text=_found(arguments.query, arguments.id, context.records, context.characters))
    if not arguments.id:
        return failed('Give the id of a record, or a query; recall(id="contents") lists the records.')
    if arguments.id == CONTENTS:
        lines = contents_lines(context.records)
    else:
        lines = context.records.read(arguments.id).split("\n")
    first, last = arguments.first_line, arguments.last_line or len(lines)
    if first > len(lines) or last < first:
        return failed(f"{arguments.id} has the lines 1 to {len(lines)}; {first} to {last} are none of them.")
    if arguments.first_character > len(lines[first - 1]) + 1:
        return failed(f"Line {first} of {arguments.id} has {len(lines[first - 1])} characters.")
    return Answer(text=_shown(arguments, lines, last, context.characters))


def contents_lines(records: Records) -> list[str]:
    """All records, oldest first."""
    lines = [
        f"{record.id} ({record.num_lines} lines){'' if record.kept else ', not kept'} {record.title}".rstrip()
        for record in records.contents()
    ]
    return lines or ["Nothing was cut or dropped yet."]


def _shown(arguments: RecallArguments, lines: list[str], last: int, characters: int) -> str:
    """As many lines as there is room for, and how to see more; a line that is too long by itself in pieces."""
    first, start = arguments.first_line, arguments.first_character - 1
    room = max(characters - _HEADING_CHARACTERS, 100)
    top = lines[first - 1][start:]
    if len(top) > room:
        where = f"line {first}, characters {start + 1} to {start + room} of {len(lines[first - 1])}"
        return f"{arguments.id}, {where}; go on with first_character={start + room + 1}:\n{top[:room]}"
    shown = [top]
    room -= len(top)
    for line in lines[first : min(last, first + MAX_LINES - 1)]:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    end = first + len(shown) - 1
    more = f"; go on with first_line={end + 1}" if end < last else ""
    return f"{arguments.id}, lines {first} to {end} of {len(lines)}{more}:\n" + "\n".join(shown)


def _found(query: str, id: str, records: Records, characters: int) -> str:
    hits = records.search(query, MAX_HITS, id=id)
    lines = [f"{hit.id}:{hit.line}: {hit.text}" for hit in hits]
    more = len(lines) == MAX_HITS
    while lines and sum(len(line) + 1 for line in lines) > max(characters - _HEADING_CHARACTERS, 0):
        lines.pop()
        more = True
    if not hits:
        return f"No line of {id or 'the records'} holds {query[:80]!r}, nor all its words."
    return "\n".join([*lines, *["There may be more; ask for something more particular."] * more])


def _line(arguments: RecallArguments) -> str:
    return f"recall {arguments.id or repr(arguments.query)}"


RECALL = StructTool(
    name="recall",
    description="Read what was cut from a long output or dropped from this conversation, or search all of it. "
    "Records are named where something was left out.",
    arguments=RecallArguments,
    action=recall,
    line=_line,
)
