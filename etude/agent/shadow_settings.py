"""How shadows are made unless a run is told otherwise: the table [shadow] of etude.toml.

    [shadow]
    mechanism = "copy"          one that `etude doctor` lists; by default the best that works
    readable = ["~/sdk"]        what commands may read beside the system and the tree

    [shadow.database]           a PostgreSQL database that branches with the shadow: workspace/postgres.py
    [[language_server]]         one more language server: workspace/server_specs.py

An environment that was active where the run was started is there, too.
"""

import os
from pathlib import Path

import msgspec

from etude.errors import InputError
from etude.models.opening import settings_file, settings_table, settings_tables
from etude.workspace import enclosure
from etude.workspace.mounts import Mechanism
from etude.workspace.postgres import DatabaseSettings, settings_from
from etude.workspace.server_specs import ServerSpec, default_specs, servers_from_settings
from etude.workspace.shadow import ShadowSettings


class ShadowTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The [shadow] table."""

    mechanism: Mechanism | None = None
    readable: list[str] = []


def shadow_settings(root: Path) -> ShadowSettings:
    """How the shadow of a tree is made. Raises InputError with what is wrong in the file."""
    table = settings_table("shadow")
    database = table.pop("database", None)
    wanted = _read(table)
    active = _active_environment(root)
    places = tuple(Path(place).expanduser().absolute() for place in wanted.readable)
    return ShadowSettings(
        mechanism=wanted.mechanism,
        readable=(*places, active, *_installation_of(active)) if active else places,
        environment=_environment(root, active) if active else None,
        language_servers=language_servers(),
        database=_database(database),
    )


def _read(table: dict[str, object]) -> ShadowTable:
    try:
        return msgspec.convert(table, ShadowTable)
    except msgspec.ValidationError as error:
        raise InputError(
            f"In {settings_file()}, [shadow] cannot be used: {error}. It takes mechanism, one of "
            f"{', '.join(Mechanism)}, readable, a list of folders, and the table database."
        ) from None


def language_servers() -> tuple[ServerSpec, ...]:
    """Those that come with etude and those of the settings, which replace one of the same name."""
    ours = servers_from_settings(settings_tables("language_server"))
    names = {spec.name for spec in ours}
    return (*(spec for spec in default_specs() if spec.name not in names), *ours)


def _database(table: object) -> DatabaseSettings | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise InputError(f"In {settings_file()}, [shadow.database] must be a table.")
    return settings_from(table)


def _environment(root: Path, active: Path) -> dict[str, str]:
    path = os.pathsep.join([str(active / "bin"), enclosure.environment(root, {})["PATH"]])
    return {"VIRTUAL_ENV": str(active), "PATH": path}


def _active_environment(root: Path) -> Path | None:
    """One outside the tree; what is inside is found anyway."""
    active = Path(os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or "")
    if not active.is_absolute() or not (active / "bin").is_dir() or active.is_relative_to(root):
        return None
    return active


def _installation_of(environment: Path) -> tuple[Path, ...]:
    """What a virtual environment is made from."""
    prefix = Path(os.path.realpath(environment / "bin" / "python")).parent.parent
    return (prefix,) if (prefix / "lib").is_dir() and len(prefix.parts) > 2 else ()
