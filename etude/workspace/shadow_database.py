"""The branch of a PostgreSQL database that belongs to one shadow, and that is dropped with it."""

import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from etude.errors import DatabaseUnavailable
from etude.workspace import postgres
from etude.workspace.postgres import Branch, DatabaseSettings

NOTE = "database.json"


async def branch_for(settings: DatabaseSettings, state: Path, home: Path, *, parent: Branch | None = None) -> Branch:
    """The branch of the shadow kept in `state`: the one it had before a crash, or a new one, of a parent's.

    `home` is where all shadows are; branches that none of them knows are dropped. Raises DatabaseUnavailable.
    """
    note = state / NOTE
    if note.exists():
        known = json.loads(note.read_text("utf-8"))
        return Branch(url=known["url"], database=known["database"], readable=_paths(known), remote=settings.remote)
    await _drop_leftovers(settings, home)
    name = secrets.token_hex(4)
    source = parent.url if parent else settings.url
    template = "" if parent else settings.template
    branch = await postgres.branch(source, name, template=template, remote=settings.remote)
    kept = {"name": name, "url": branch.url, "database": branch.database, "readable": [*map(str, branch.readable)]}
    note.touch(mode=0o600)
    note.write_text(json.dumps(kept), "utf-8")
    return branch


async def drop_branch(branch: Branch, state: Path) -> None:
    """With its shadow; a server that is gone has no branch to drop."""
    with suppress(DatabaseUnavailable):
        await branch.drop()
        (state / NOTE).unlink(missing_ok=True)


async def _drop_leftovers(settings: DatabaseSettings, home: Path) -> None:
    with suppress(DatabaseUnavailable):
        for database in await postgres.leftovers(settings.url, set(_known(home)), remote=settings.remote):
            await postgres.drop(settings.url, database, remote=settings.remote)


def _known(home: Path) -> Iterator[str]:
    for pattern in (f"shadows/*/{NOTE}", f"shadows/*/forks/*/{NOTE}", f"runs/*/shadow/{NOTE}", f"runs/*/*/*/*/{NOTE}"):
        for note in home.glob(pattern):
            with suppress(OSError, ValueError, KeyError):
                yield json.loads(note.read_text("utf-8"))["name"]


def _paths(known: dict[str, list[str]]) -> tuple[Path, ...]:
    return tuple(map(Path, known["readable"]))
