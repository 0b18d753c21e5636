"""Imports go down only: the layer block of ARCHITECTURE.md against the imports of every module."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import etude

ROOT = Path(__file__).parents[2]
PACKAGE = Path(etude.__file__).parent
LIGHT_ROOMS = {"errors", "edits", "messages", "traces", "tasks"}
TORCH_ROOMS = {"network", "training"}
HEAVY = {"numpy", "httpx", "starlette", "rich", "gguf", "rapidfuzz", "tree_sitter", "platformdirs"}


def layers() -> dict[str, int]:
    block = re.search(r"```layers\n(.*?)```", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.DOTALL)
    assert block, "ARCHITECTURE.md has no layers block"
    return {room: depth for depth, line in enumerate(block[1].splitlines()) for room in line.split()}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(source: str) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the room"
            module = node.module or ""
            found += [f"etude.{alias.name}" for alias in node.names] if module == "etude" else [module]
    return found


def violations(modules: dict[str, str], depth: dict[str, int]) -> list[str]:
    """`modules` maps names such as "etude.edits" to their source."""
    problems = []
    for name, source in modules.items():
        room = room_of(name)
        if room and room not in depth:
            problems.append(f"{name}: the room {room!r} is not in ARCHITECTURE.md")
            continue
        for imported in imports_of(source):
            other = room_of(imported) if imported.startswith("etude") else ""
            if other.startswith("__") or not other or other == room:
                continue
            if room and depth.get(other, -1) <= depth[room]:
                problems.append(f"{name} ({room}) imports upward: {imported}")
    return problems


def own_modules() -> dict[str, str]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {_module_name(file): file.read_text("utf-8") for file in files}


def _module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_go_down_only() -> None:
    assert violations(own_modules(), layers()) == []


def test_an_upward_import_is_found() -> None:
    modules = {"etude.edits": "from etude.models.model import Model"}
    assert violations(modules, layers()) == ["etude.edits (edits) imports upward: etude.models.model"]


def test_a_room_that_is_not_drawn_is_found() -> None:
    assert violations({"etude.attic.box": ""}, layers()) != []


def test_light_rooms_use_the_standard_library_and_msgspec_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"msgspec", "etude"}
    for name, source in own_modules().items():
        if room_of(name) in LIGHT_ROOMS:
            assert {module.split(".")[0] for module in imports_of(source)} <= allowed, name


def test_torch_stays_in_its_rooms() -> None:
    for name, source in own_modules().items():
        if room_of(name) not in TORCH_ROOMS and name != "etude.models.torch_model":
            assert "torch" not in {module.split(".")[0] for module in imports_of(source)}, name


def test_importing_etude_prints_nothing_and_loads_nothing_heavy() -> None:
    probe = f"import etude, etude.cli, sys; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
