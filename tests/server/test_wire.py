"""Both ends of the wire speak of the same values."""

import re
from pathlib import Path

import msgspec
import pytest

from etude.agent import events
from etude.server import agent_wire, wire

SOURCES = Path(__file__).parents[2] / "web" / "src"
NOT_SENT_AS_SUCH = {"Wire", "Failure", "FolderEntry", "Save", "Undo", "Split"}


def _structs(module, kind):
    return [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and name not in NOT_SENT_AS_SUCH | {"Event"}
    ]


STRUCTS = [
    *((struct, "wire.ts") for struct in _structs(wire, wire.Wire)),
    *((struct, "agent_wire.ts") for struct in _structs(agent_wire, wire.Wire)),
    *((struct, "agent_wire.ts") for struct in _structs(events, msgspec.Struct)),
]


@pytest.mark.parametrize(("struct", "source"), STRUCTS, ids=lambda value: getattr(value, "__name__", value))
def test_the_page_knows_each_value_by_the_same_fields(struct, source):
    text = (SOURCES / source).read_text("utf-8")
    interface = re.search(rf"export interface {struct.__name__} {{\n(.*?)\n}}", text, re.DOTALL)
    assert interface, f"web/src/{source} has no interface {struct.__name__}"
    on_page = dict(re.findall(r"^  (\w+): (.*);$", interface[1], re.MULTILINE))
    here = {field.encode_name for field in msgspec.structs.fields(struct)}
    tag, tag_field = struct.__struct_config__.tag, struct.__struct_config__.tag_field
    assert on_page.keys() == here | ({tag_field} if tag else set())
    assert on_page.get(tag_field) == (f'"{tag}"' if tag else None)
