"""Both ends of the wire speak of the same values."""

import re
from pathlib import Path

import msgspec
import pytest

from etude.server import wire

WIRE_TS = Path(__file__).parents[2] / "web" / "src" / "wire.ts"
NOT_SENT_AS_SUCH = {"Wire", "Failure", "FolderEntry", "Save", "Undo", "Split"}
STRUCTS = [
    value
    for name, value in vars(wire).items()
    if isinstance(value, type) and issubclass(value, wire.Wire) and name not in NOT_SENT_AS_SUCH
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_the_page_knows_each_value_by_the_same_fields(struct):
    source = WIRE_TS.read_text("utf-8")
    interface = re.search(rf"export interface {struct.__name__} {{\n(.*?)\n}}", source, re.DOTALL)
    assert interface, f"web/src/wire.ts has no interface {struct.__name__}"
    on_page = dict(re.findall(r"^  (\w+): (.*);$", interface[1], re.MULTILINE))
    here = {field.encode_name for field in msgspec.structs.fields(struct)}
    tag = struct.__struct_config__.tag
    assert on_page.keys() == here | ({"type"} if tag else set())
    assert on_page.get("type") == (f'"{tag}"' if tag else None)
