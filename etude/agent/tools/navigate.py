"""The definition and references tools: code found by its language server, by name or by place."""

from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext, failed
from etude.edits import split_lines
from etude.errors import EtudeError
from etude.workspace.workspace import Navigable, Place, Symbol

MAX_PLACES = 60
MAX_EXCERPT_CHARACTERS = 160
# A name that half the code uses; asking the server about each would take minutes.
MAX_SYMBOLS = 8


class PlaceArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(description="A symbol by its name; or give a place:")] = ""
    path: str = ""
    line: Annotated[int, msgspec.Meta(ge=1)] = 1
    column: Annotated[int, msgspec.Meta(ge=1)] = 1


async def definition(arguments: PlaceArguments, context: ToolContext) -> Answer:
    workspace = context.workspace
    assert isinstance(workspace, Navigable)
    if arguments.name:
        symbols = await _named(arguments, workspace, context)
        return await _answer([symbol.place for symbol in symbols], f"is named {arguments.name!r}", context)
    if not arguments.path:
        return failed("Give the name of a symbol, or a path with line and column.")
    path = context.path(arguments.path)
    return await _answer(
        await workspace.definition(path, arguments.line, arguments.column), "is defined there", context
    )


async def references(arguments: PlaceArguments, context: ToolContext) -> Answer:
    workspace = context.workspace
    assert isinstance(workspace, Navigable)
    if not arguments.name and not arguments.path:
        return failed("Give the name of a symbol, or a path with line and column.")
    places = [
        Place(
            path=context.path(arguments.path or "."),
            line=arguments.line,
            column=arguments.column,
            end_line=arguments.line,
            end_column=arguments.column,
        )
    ]
    if arguments.name:
        places = [symbol.place for symbol in await _named(arguments, workspace, context)]
    found: dict[Place, None] = {}
    for place in places:
        found |= dict.fromkeys(await workspace.references(place.path, place.line, place.column))
    return await _answer(list(found), "refers to it", context)


async def _named(arguments: PlaceArguments, workspace: Navigable, context: ToolContext) -> list[Symbol]:
    """Symbols of exactly that name; a dotted one is looked up by its last part and kept if its container fits."""
    container, _, last = arguments.name.rpartition(".")
    path = context.path(arguments.path) if arguments.path else ""
    symbols = [symbol for symbol in await workspace.symbols(last, path) if symbol.name == last]
    fitting = [symbol for symbol in symbols if container and symbol.container.endswith(container.rpartition(".")[2])]
    return (fitting or symbols)[:MAX_SYMBOLS]


async def _answer(places: list[Place], what: str, context: ToolContext) -> Answer:
    if not places:
        return failed(f"Nothing {what}, as far as the language server knows. Try search.")
    texts: dict[str, list[str]] = {}
    shown = []
    for place in places[:MAX_PLACES]:
        if place.path not in texts:
            texts[place.path] = await _lines(place.path, context)
        lines = texts[place.path]
        excerpt = lines[place.line - 1].strip()[:MAX_EXCERPT_CHARACTERS] if place.line <= len(lines) else ""
        shown.append(f"{place.path}:{place.line}:{place.column} {excerpt}".rstrip())
    if len(places) > MAX_PLACES:
        shown.append(f"({len(places) - MAX_PLACES} more.)")
    return Answer(text="\n".join(shown), record="places")


async def _lines(path: str, context: ToolContext) -> list[str]:
    """Of a file; of one outside the workspace, such as a library's, none."""
    try:
        return split_lines(await context.workspace.read(context.path(path)))
    except EtudeError:
        return []


def _line(arguments: PlaceArguments) -> str:
    return arguments.name or f"{arguments.path}:{arguments.line}:{arguments.column}"


DEFINITION = StructTool(
    name="definition",
    description="Where something is defined: by its name, or by a place where it is used.",
    arguments=PlaceArguments,
    action=definition,
    line=lambda arguments: f"definition {_line(arguments)}",
)

REFERENCES = StructTool(
    name="references",
    description="Every place that uses something: by its name, or by a place where it stands.",
    arguments=PlaceArguments,
    action=references,
    line=lambda arguments: f"references {_line(arguments)}",
)
