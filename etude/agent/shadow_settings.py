"""How shadows are made unless a run is told otherwise: the table [shadow] of etude.toml.

    [shadow]
    mechanism = "copy"          one that `etude doctor` lists; by default the best that works
    readable = ["~/sdk"]        what commands may read beside the system and the tree

An environment that was active where the run was started is there, too.
"""

import os
from pathlib import Path

import msgspec

from etude.errors import InputError
from etude.models.opening import settings_file, settings_table
from etude.workspace import enclosure
from etude.workspace.mounts import Mechanism
from etude.workspace.shadow import ShadowSettings


class ShadowTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The [shadow] table."""

    mechanism: Mechanism | None = None
    readable: list[str] = []


def shadow_settings(root: Path) -> ShadowSettings:
    """How the shadow of a tree is made. An environment that was active where the run was started is there, too."""
    try:
        table = msgspec.convert(settings_table("shadow"), ShadowTable)
    except msgspec.ValidationError as error:
        raise InputError(
            f"In {settings_file()}, [shadow] cannot be used: {error}. It takes mechanism, one of "
            f"{', '.join(Mechanism)}, and readable, a list of folders."
        ) from None
    readable = tuple(Path(place).expanduser().absolute() for place in table.readable)
    active = _active_environment(root)
    if active is None:
        return ShadowSettings(mechanism=table.mechanism, readable=readable)
    path = os.pathsep.join([str(active / "bin"), enclosure.environment(root, {})["PATH"]])
    return ShadowSettings(
        mechanism=table.mechanism,
        readable=(*readable, active, *_installation_of(active)),
        environment={"VIRTUAL_ENV": str(active), "PATH": path},
    )


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
