"""PostgreSQL databases that branch with a shadow: a branch is a copy that the server makes of a whole database.

    made = await branch("postgresql:///app?host=/var/run/postgresql", "shadow-7")
    made.url            # postgresql:///etude_shadow_5d41402a_shadow_7_c0ffee?host=/var/run/postgresql
    await made.drop()

The server copies only what nobody is connected to. Passwords are in no message. SQLite is `databases.py`.
"""

import asyncio
import hashlib
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import DatabaseUnavailable, InputError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

PREFIX = "etude_shadow_"

# A gigabyte takes a few seconds to copy.
SECONDS = 120.0
_CONNECT_SECONDS = 5

# PostgreSQL cuts names after 63 bytes: 13 of the prefix, 8 + 1 of the owner, these, 1 + 6 that tell copies apart.
_MAX_ID_CHARACTERS = 30

# Where to be connected while a database is copied or dropped.
_MAINTENANCE = ("postgres", "template1")

_URL = re.compile(r"postgres(ql)?(\+\w+)?://")
# Up to the database, and what follows it.
_PARTS = re.compile(r"([^:/?]+://[^/?]*)(?:/[^?]*)?(?:\?(.*))?", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The table [shadow.database] of etude.toml."""

    url: str = field(repr=False)
    """Of the database that the program uses, as libpq reads it, or with a driver: "postgresql+psycopg:///app"."""
    variable: str = "DATABASE_URL"
    """Name in the shadow's environment that holds the branch's URL."""
    template: str = ""
    """Name of a database on the same server that is copied instead, since nobody is connected to it."""
    remote: bool = False
    """Whether the server may be another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A copy of a database, there until it is dropped."""

    url: str = field(repr=False)
    """As the one it was made from, with another database."""
    database: str
    readable: tuple[Path, ...]
    """Folders that a sandbox must see: of the server's unix socket. Without one the branch is reached by network."""
    remote: bool = False

    async def drop(self) -> None:
        """Remove it, ending connections to it; fine if it is gone. Raises DatabaseUnavailable."""
        await drop(self.url, self.database, remote=self.remote)


def settings_from(table: Mapping[str, object]) -> DatabaseSettings:
    """Raises InputError with the name of a setting that is wrong."""
    if unknown := table.keys() - {"url", "variable", "template", "remote"}:
        raise InputError(
            f"[shadow.database] has no setting {sorted(unknown)[0]!r}; there are url, variable, template and remote."
        )
    url, variable = table.get("url"), table.get("variable", "DATABASE_URL")
    template, remote = table.get("template", ""), table.get("remote", False)
    if not isinstance(url, str) or not url:
        raise InputError('[shadow.database] needs a url, such as url = "postgresql:///app?host=/var/run/postgresql".')
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise InputError(f"[shadow.database] variable = {variable!r} is no name for the environment.")
    if not isinstance(template, str) or not isinstance(remote, bool):
        raise InputError("[shadow.database] template is the name of a database, and remote is true or false.")
    return DatabaseSettings(url=url, variable=variable, template=template, remote=remote)


async def branch(
    url: str, name: str, *, template: str = "", owner: str | None = None, remote: bool = False, seconds: float = SECONDS
) -> Branch:
    """A copy of the database in `url` (or of `template`) for the shadow `name`. Raises DatabaseUnavailable.

    `owner` tells apart who makes branches on one server, by default this user on this machine: see `leftovers`.
    """
    parameters = _parameters(url)
    source = template or parameters.get("dbname") or parameters.get("user") or ""
    database = f"{_prefix(owner)}{_cleaned(name)}_{secrets.token_hex(3)}"
    async with _connected(url, remote=remote, seconds=seconds) as connection:
        try:
            await _execute(connection, "CREATE DATABASE {} TEMPLATE {}", database, source or connection.info.user)
        except BaseException:
            await _drop_quietly(connection, database)
            raise
        host = connection.info.host
    readable = (Path(host),) if host.startswith("/") else ()
    return Branch(url=_with_database(url, database), database=database, readable=readable, remote=remote)


async def leftovers(url: str, alive: Collection[str], *, owner: str | None = None, remote: bool = False) -> list[str]:
    """Databases of branches made by this owner whose shadow is not in `alive`. Raises DatabaseUnavailable."""
    kept = {_cleaned(name) for name in alive}
    prefix = _prefix(owner)
    async with _connected(url, remote=remote, seconds=SECONDS) as connection:
        cursor = await connection.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [prefix])
        names = [row[0] for row in await cursor.fetchall()]
    return sorted(name for name in names if name.removeprefix(prefix).rpartition("_")[0] not in kept)


async def drop(url: str, database: str, *, remote: bool = False) -> None:
    """Remove a branch, ending connections to it. Raises DatabaseUnavailable."""
    if not database.startswith(PREFIX):
        raise DatabaseUnavailable(f"{database!r} is not a branch of etude's; it is not dropped.")
    async with _connected(url, remote=remote, seconds=SECONDS) as connection:
        await _execute(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", database)


# Names and URLs.


def _prefix(owner: str | None) -> str:
    owner = owner or f"{socket.gethostname()}:{os.getuid()}"
    return f"{PREFIX}{hashlib.sha256(owner.encode()).hexdigest()[:8]}_"


def _cleaned(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())[:_MAX_ID_CHARACTERS].strip("_")


def _parameters(url: str) -> dict[str, str]:
    """As libpq understands it; a driver's name in the scheme is not its business."""
    from_psycopg = _psycopg().conninfo.conninfo_to_dict
    try:
        found = from_psycopg(_URL.sub("postgresql://", url, count=1))
    except Exception:
        # What psycopg says repeats what it was given, passwords included.
        raise DatabaseUnavailable(
            "The database's url cannot be read. Write it as postgresql://user@host/database, or for a unix socket "
            "postgresql:///database?host=/var/run/postgresql."
        ) from None
    return {key: str(value) for key, value in found.items() if value is not None}


def _with_database(url: str, database: str) -> str:
    if not _URL.match(url):
        return _psycopg().conninfo.make_conninfo(url, dbname=database)
    found = _PARTS.fullmatch(url)
    assert found
    start, query = found[1], [part for part in (found[2] or "").split("&") if part and not part.startswith("dbname=")]
    return f"{start}/{database}" + (f"?{'&'.join(query)}" if query else "")


def _check_local(parameters: Mapping[str, str]) -> None:
    hosts = parameters.get("hostaddr") or parameters.get("host")
    hosts = hosts or os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST") or ""
    if "service" in parameters or os.environ.get("PGSERVICE") or not all(map(_is_local, hosts.split(","))):
        raise DatabaseUnavailable(
            f"The database is on {hosts or 'a configured service'}, which may be another machine. Nothing leaves this "
            "one: use a local server, or set remote = true under [shadow.database]."
        )


def _is_local(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# The server.


def _psycopg():
    try:
        import psycopg
        import psycopg.conninfo
        import psycopg.sql
    except ImportError as error:
        raise DatabaseUnavailable(
            f"PostgreSQL databases need psycopg, which cannot be loaded: {error}. Run: pip install 'etude[postgres]'"
        ) from None
    return psycopg


@asynccontextmanager
async def _connected(url: str, *, remote: bool, seconds: float) -> "AsyncGenerator[AsyncConnection]":
    """To the server, not to the database itself. Raises DatabaseUnavailable, also for what fails in the block."""
    psycopg = _psycopg()
    parameters = _parameters(url)
    if not remote:
        _check_local(parameters)
    password = parameters.get("password") or "\0"
    try:
        async with asyncio.timeout(seconds), await _connection(parameters) as connection:
            yield connection
    except TimeoutError:
        raise DatabaseUnavailable(
            f"The database server did what it was asked for too slowly: it had {seconds:g} s. Try again, or use a "
            "smaller database as template under [shadow.database]."
        ) from None
    except psycopg.Error as error:
        reason = " ".join(str(error).replace(password, "…").split())
        raise DatabaseUnavailable(
            f"The database server failed: {reason}. Check the url under [shadow.database]."
        ) from None


async def _connection(parameters: Mapping[str, str]) -> "AsyncConnection":
    psycopg = _psycopg()
    options = {"connect_timeout": str(_CONNECT_SECONDS), "application_name": "etude"} | dict(parameters)
    for database in _MAINTENANCE:
        try:
            return await psycopg.AsyncConnection.connect(
                psycopg.conninfo.make_conninfo("", **options | {"dbname": database}), autocommit=True
            )
        except psycopg.OperationalError as error:
            if database == _MAINTENANCE[-1] or f'database "{database}" does not exist' not in str(error):
                raise
    raise AssertionError("unreachable")


async def _execute(connection: "AsyncConnection", query: str, *names: str) -> None:
    psycopg = _psycopg()
    composed = psycopg.sql.SQL(query).format(*map(psycopg.sql.Identifier, names))
    try:
        await connection.execute(composed)
    except psycopg.errors.ObjectInUse:
        raise DatabaseUnavailable(await _busy(connection, names[-1])) from None


async def _busy(connection: "AsyncConnection", database: str) -> str:
    cursor = await connection.execute(
        "SELECT DISTINCT coalesce(nullif(application_name, ''), 'a program') FROM pg_stat_activity WHERE datname = %s",
        [database],
    )
    programs = ", ".join(sorted(row[0] for row in await cursor.fetchall())[:5]) or "a program"
    return (
        f"The database {database} is in use by {programs}, and PostgreSQL copies only one that nobody is connected to. "
        f"Stop what uses it for a moment, or keep a copy (createdb -T {database} {database}_template) and set "
        f'template = "{database}_template" under [shadow.database].'
    )


async def _drop_quietly(connection: "AsyncConnection", database: str) -> None:
    """After a failure, or when the caller gave up: the server may have finished the copy all the same."""
    psycopg = _psycopg()
    if connection.closed:
        return
    try:
        await asyncio.shield(_execute(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", database))
    except (psycopg.Error, DatabaseUnavailable):
        return
