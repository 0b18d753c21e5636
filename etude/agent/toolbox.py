"""What a model can call: Tool, its arguments as a msgspec.Struct, its Answer, and how a wrong call is answered.

A tool of ours is a StructTool: a Struct says the arguments, an async function does the work. Whatever else fulfils
the Tool protocol (a tool of an MCP server) works alike.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import msgspec
from rapidfuzz import process

from etude.agent.events import Nobody, Observer, Person, ignore
from etude.agent.records import Records
from etude.errors import InputError
from etude.messages import ToolSpec
from etude.traces import TurnError
from etude.workspace.workspace import Workspace

# A wrong call is quoted back; nobody needs to see all of a large one.
MAX_QUOTED_CHARACTERS = 200
# Far beyond any file a model writes at once, and what the strict decoder takes milliseconds for.
MAX_ARGUMENT_CHARACTERS = 4_000_000


class WrongArguments(InputError):
    """Arguments that a tool cannot take; the message says what is wrong with them."""

    def __init__(self, message: str, *, error: TurnError = TurnError.WRONG_ARGUMENTS) -> None:
        super().__init__(message)
        self.error = error


class ToolKind(StrEnum):
    """What a call can do beyond answering."""

    LOOKS = "looks"
    CHANGES = "changes"
    """It may change files."""
    ASKS = "asks"
    """It waits for a person, whose time is not the run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call gave: Answer(text="2 passed"). What is too long for the conversation is cut by the loop."""

    text: str
    error: TurnError | None = None
    exit_code: int | None = None
    opened: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Paths, relative to the workspace, that the call wrote or removed."""
    record: str = "output"
    """Kind under which a text that is too long is kept: "output" gives "output:3"."""
    finished: bool = False
    """The agent is done, and `text` is its answer."""


def failed(text: str) -> Answer:
    """The call was right, and it could not be done."""
    return Answer(text=text, error=TurnError.TOOL_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a call may use."""

    workspace: Workspace
    records: Records
    person: Person = field(default_factory=Nobody)
    observer: Observer = ignore
    call_id: str = ""
    seconds_left: float = 3600.0
    """Of the run; nothing a call starts should take longer."""
    characters: int = 24_000
    """What a result may have before it is cut; a tool that can give its answer in parts keeps to it."""

    def path(self, path: str) -> str:
        """Relative to the workspace's root, as workspaces want it; models like to write absolute ones."""
        named = PurePosixPath(path.strip())
        root = PurePosixPath(self.workspace.root)
        return str(named.relative_to(root) if named.is_relative_to(root) else named)


class Tool(Protocol):
    """Something a model can call."""

    @property
    def spec(self) -> ToolSpec: ...

    def read(self, arguments: str) -> object:
        """JSON text → validated arguments. Raises WrongArguments with a sentence."""
        ...

    async def call(self, arguments: Any, context: ToolContext) -> Answer:
        """Do it, with what `read` gave. Errors of etude's own become the answer."""
        ...


@runtime_checkable
class KnowsItsKind(Protocol):
    """A tool that says what it does, and whose answers name what they changed; any other may have changed anything."""

    @property
    def kind(self) -> ToolKind: ...


def kind_of(tool: Tool) -> ToolKind:
    return tool.kind if isinstance(tool, KnowsItsKind) else ToolKind.CHANGES


@runtime_checkable
class Summarizes(Protocol):
    """A tool that can say in one line for a person what a call does."""

    def summary(self, arguments: Any) -> str: ...


Arguments = TypeVar("Arguments", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class StructTool(Generic[Arguments]):
    """A tool whose arguments are a Struct; the model reads its fields' `msgspec.Meta(description=…)`."""

    name: str
    description: str
    arguments: type[Arguments]
    action: Callable[[Arguments, ToolContext], Awaitable[Answer]]
    kind: ToolKind = ToolKind.LOOKS
    line: Callable[[Arguments], str] | None = None
    """One line for a person: "edit src/pay.py"."""

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, parameters=schema_of(self.arguments))

    def read(self, arguments: str) -> Arguments:
        return decode(arguments, self.arguments)

    async def call(self, arguments: Arguments, context: ToolContext) -> Answer:
        return await self.action(arguments, context)

    def summary(self, arguments: Arguments) -> str:
        return self.line(arguments) if self.line else self.name


# Arguments.


def decode(arguments: str, kind: type[Arguments]) -> Arguments:
    """Strictly: no other types, no unknown names. Some servers send nothing for a call without arguments."""
    if len(arguments) > MAX_ARGUMENT_CHARACTERS:
        raise WrongArguments(f"The arguments have {len(arguments)} characters; {MAX_ARGUMENT_CHARACTERS} are read.")
    try:
        return msgspec.json.decode(arguments.strip() or "{}", type=kind)
    except msgspec.ValidationError as error:
        raise WrongArguments(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WrongArguments(
            f"The arguments are not JSON: {error}. They were: {quoted(arguments)}", error=TurnError.MALFORMED_CALL
        ) from None


def quoted(text: str) -> str:
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}…"


def schema_of(kind: type[msgspec.Struct]) -> dict[str, object]:
    """A JSON schema in one piece, since not every server follows references."""
    (top,), components = msgspec.json.schema_components((kind,))
    schema = cast(dict[str, object], _inlined(top, components))
    schema.setdefault("additionalProperties", False)
    return schema


def _inlined(schema: object, components: Mapping[str, object]) -> object:
    if isinstance(schema, list):
        return [_inlined(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(reference := schema.get("$ref"), str):
        return _inlined(components[reference.rpartition("/")[2]], components)
    return {key: _inlined(value, components) for key, value in schema.items() if key != "title"}


def signature(spec: ToolSpec) -> str:
    """The schema in one line: read(path: string, first_line?: integer)."""
    properties = spec.parameters.get("properties")
    required = spec.parameters.get("required") or ()
    if not isinstance(properties, dict) or not isinstance(required, Sequence):
        return f"{spec.name}(…)"
    parts = [f"{name}{'' if name in required else '?'}: {_type(kind)}" for name, kind in properties.items()]
    return f"{spec.name}({', '.join(parts)})"


def _type(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    if isinstance(several := schema.get("anyOf"), list):
        return " | ".join(map(_type, several))
    if isinstance(choices := schema.get("enum"), list):
        return " | ".join(f'"{choice}"' for choice in choices)
    if schema.get("type") == "array":
        return f"[{_type(schema.get('items'))}]"
    if schema.get("type") == "object" and isinstance(inner := schema.get("properties"), dict):
        return "{" + ", ".join(f"{name}: {_type(kind)}" for name, kind in inner.items()) + "}"
    return str(schema.get("type", "any"))


# Finding a tool.


class Toolbox:
    """The tools of one run by name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.spec.name in self._tools:
                raise ValueError(f"two tools are named {tool.spec.name!r}")
            self._tools[tool.spec.name] = tool

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def unknown(self, name: str) -> str:
        """What a model is told that called something else."""
        nearest = process.extractOne(name[:64], self.names, score_cutoff=50)
        guess = f" Did you mean {nearest[0]}?" if nearest else ""
        return f"There is no tool {quoted(name)!r}.{guess} The tools are: {', '.join(self.names)}."
