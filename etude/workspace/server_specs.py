"""Which language servers there are: ty and ruff for Python, and those the person configured.

[[language_server]]
name = "gopls"
command = ["gopls"]
extensions = [".go"]
language = "go"                     what the server calls the language; by default the extension
settings = { gopls = { staticcheck = true } }
options = {}                        initialization options
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.errors import InputError

PYTHON = (".py", ".pyi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A language server that can be started."""

    name: str
    argv: tuple[str, ...]
    """Program, as a name on PATH or a whole path, and its arguments."""
    extensions: tuple[str, ...]
    language: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    checks_whole_tree: bool = False
    """Answers for files that were never opened, and for all of them at once."""

    def speaks(self, path: str) -> bool:
        return path.endswith(self.extensions)


def default_specs() -> tuple[ServerSpec, ...]:
    """Those that are installed beside etude."""
    specs = []
    if ty := _beside("ty"):
        # Only in this mode does it answer for files that are not open.
        whole = {"diagnosticMode": "workspace"}
        specs.append(
            ServerSpec(
                name="ty",
                argv=(ty, "server"),
                extensions=PYTHON,
                language="python",
                options=whole,
                settings={"ty": whole},
                checks_whole_tree=True,
            )
        )
    if ruff := _beside("ruff"):
        specs.append(ServerSpec(name="ruff", argv=(ruff, "server"), extensions=PYTHON, language="python"))
    return tuple(specs)


def _beside(name: str) -> str | None:
    """The program that was installed with etude, or one on PATH."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name)


def servers_from_settings(tables: Sequence[object]) -> tuple[ServerSpec, ...]:
    """The [[language_server]] tables. Raises InputError with the name of what is wrong."""
    return tuple(_from_table(table, number) for number, table in enumerate(tables, 1))


def _from_table(table: object, number: int) -> ServerSpec:
    where = f"[[language_server]] number {number}"
    if not isinstance(table, Mapping):
        raise InputError(f"{where} is not a table.")
    known = {"name", "command", "extensions", "language", "options", "settings"}
    if unknown := table.keys() - known:
        raise InputError(f"{where} has no setting {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}.")
    command, extensions = _words(table, "command", where), _words(table, "extensions", where)
    if bad := [extension for extension in extensions if not extension.startswith(".")]:
        raise InputError(f'{where}: {bad[0]!r} is not an extension; write it with its dot, such as ".go".')
    name = table.get("name", command[0])
    options, settings = table.get("options", {}), table.get("settings", {})
    language = table.get("language", extensions[0].removeprefix("."))
    if not isinstance(name, str) or not isinstance(language, str):
        raise InputError(f"{where}: name and language are texts.")
    if not isinstance(options, Mapping) or not isinstance(settings, Mapping):
        raise InputError(f"{where}: options and settings are tables.")
    return ServerSpec(
        name=name, argv=command, extensions=extensions, language=language, options=options, settings=settings
    )


def _words(table: Mapping[str, object], name: str, where: str) -> tuple[str, ...]:
    words = table.get(name)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise InputError(f'{where} needs {name}, a list of texts such as {name} = ["…"].')
    return tuple(words)
