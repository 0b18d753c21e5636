"""Branches of databases, on a PostgreSQL server of our own that listens on a unix socket only."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from etude.errors import DatabaseUnavailable, InputError
from etude.workspace.postgres import Branch, DatabaseSettings, branch, drop, leftovers, settings_from
from etude.workspace.shadow import ShadowSettings, ShadowWorkspace, open_shadow
from etude.workspace.workspace import Command

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("psycopg.sql")

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def as_other_user(*argv: object) -> list[str]:
    """PostgreSQL does not run as root."""
    if os.getuid():
        return [*map(str, argv)]
    return [
        "setpriv",
        "--reuid",
        "nobody",
        "--regid",
        "nogroup",
        "--clear-groups",
        "--pdeathsig",
        "KILL",
        *map(str, argv),
    ]


@pytest.fixture(scope="module")
def server() -> Generator[Path]:
    """The folder of the server's socket."""
    if not PROGRAMS:
        pytest.skip("PostgreSQL is not installed in /usr/lib/postgresql")
    programs = PROGRAMS[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        # As distributions have it: who may connect is said by the server, not by the folder.
        folder.chmod(0o755)
        if not os.getuid():
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        initdb = as_other_user(programs / "initdb", "-D", folder / "data", "-U", "boss", "-A", "trust", "--no-sync")
        subprocess.run([*initdb, "--locale=C", "--encoding=UTF8"], cwd=folder, check=True, capture_output=True)
        (folder / "data/pg_hba.conf").write_text("local all secret scram-sha-256\nlocal all all trust\n")
        options = ["-k", folder, "-h", "", "-c", "fsync=off", "-c", "autovacuum=off"]
        argv = as_other_user(programs / "postgres", "-D", folder / "data", *options)
        with subprocess.Popen(argv, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr
                assert any("ready to accept connections" in line for line in process.stderr)
                yield folder
            finally:
                process.send_signal(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder)


def query(url: str, text) -> list[tuple]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def url(server) -> Generator[str]:
    boss = f"postgresql://boss@/postgres?host={server}"
    query(boss, 'CREATE DATABASE "the app"')
    made = f"postgresql://boss@/the%20app?host={server}"
    query(made, "CREATE TABLE note (text text)")
    query(made, "INSERT INTO note VALUES ('first')")
    yield made
    for (name,) in query(boss, "SELECT datname FROM pg_database WHERE datname = 'the app' OR datname LIKE 'etude%'"):
        query(boss, psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(name)))


def test_a_branch_goes_its_own_way_and_is_dropped(server, url):
    made = asyncio.run(branch(url, "shadow-7"))
    assert made.database.startswith("etude_shadow_") and "_shadow_7_" in made.database
    assert made.url == f"postgresql://boss@/{made.database}?host={server}"
    assert made.readable == (server,)
    query(made.url, "INSERT INTO note VALUES ('second')")
    assert query(made.url, "SELECT text FROM note") == [("first",), ("second",)]
    assert query(url, "SELECT text FROM note") == [("first",)]
    # Even while a program is connected to it, and twice.
    with psycopg.connect(made.url):
        asyncio.run(made.drop())
    asyncio.run(made.drop())
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        query(made.url, "SELECT 1")


def test_a_branch_is_made_from_a_branch_and_from_a_template(url):
    async def run() -> tuple[Branch, Branch, Branch]:
        one = await branch(url, "one")
        query(one.url, "INSERT INTO note VALUES ('of one')")
        return one, await branch(one.url, "two"), await branch(url, "three", template=one.database)

    one, two, three = asyncio.run(run())
    for made in (two, three):
        assert query(made.url, "SELECT text FROM note") == [("first",), ("of one",)]
    assert len({one.database, two.database, three.database}) == 3


def test_eight_branches_at_once_have_eight_names(url):
    async def run() -> list[Branch]:
        return [await branch(url, "Same näme " * 9) for _ in range(8)]

    made = asyncio.run(run())
    assert len({item.database for item in made}) == 8
    assert all(len(item.database) <= 63 for item in made)
    assert query(made[-1].url, "SELECT count(*) FROM note") == [(1,)]


def test_a_database_in_use_is_not_copied_and_the_way_out_is_told(url):
    with psycopg.connect(url, application_name="gunicorn"), pytest.raises(DatabaseUnavailable) as caught:
        asyncio.run(branch(url, "x"))
    message = str(caught.value)
    assert "The database the app is in use by gunicorn" in message
    assert 'template = "the app_template" under [shadow.database]' in message
    assert asyncio.run(leftovers(url, [])) == []


def test_leftovers_are_those_of_this_owner_whose_shadow_is_gone(url):
    async def run() -> None:
        alive, gone = await branch(url, "run-1"), await branch(url, "run-10")
        other = await branch(url, "run-10", owner="somebody else")
        assert await leftovers(url, ["run-1"]) == [gone.database]
        assert await leftovers(url, [], owner="somebody else") == [other.database]
        for name in await leftovers(url, ["run-1"]):
            await drop(url, name)
        assert await leftovers(url, []) == [alive.database]

    asyncio.run(run())


def test_only_branches_are_dropped(url):
    with pytest.raises(DatabaseUnavailable, match="'the app' is not a branch"):
        asyncio.run(drop(url, "the app"))
    assert query(url, "SELECT text FROM note") == [("first",)]


def test_a_branch_that_is_given_up_leaves_nothing(server, url):
    active = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'CREATE DATABASE%'"

    async def run() -> None:
        with pytest.raises(DatabaseUnavailable, match="too slowly: it had"):
            await branch(url, "slow", seconds=0.2)
        making = asyncio.create_task(branch(url, "cancelled"))
        while not await asyncio.to_thread(query, f"postgresql://boss@/postgres?host={server}", active):
            pass
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        assert await leftovers(url, []) == []

    # The server waits five seconds for others to leave the database.
    with psycopg.connect(url):
        asyncio.run(run())


def test_a_name_cannot_break_out_of_its_quotes(server, url):
    query(url.replace("/the%20app", "/postgres"), 'CREATE DATABASE "etude""; DROP DATABASE x; --"')
    made = asyncio.run(branch(url, 'x"; DROP DATABASE "the app', template='etude"; DROP DATABASE x; --'))
    assert query(made.url, "SELECT 1") == [(1,)]
    assert query(url, "SELECT text FROM note") == [("first",)]


def test_passwords_are_in_no_message(server, url):
    boss = f"postgresql://boss@/postgres?host={server}"
    query(boss, "CREATE ROLE secret LOGIN PASSWORD 'hunter2'")
    try:
        wrong = [
            f"postgresql://secret:tr0mb0ne@/app?host={server}",
            f"postgresql://secret:hunter2@/app?host={server}",
            "postgresql://secret:hunter2@/app?host=/nowhere",
            "postgresql://secret:hunter2@db.example.com/app",
            "postgresql://secret:hunter2@[/app",
            "password=hunter2 nonsense",
        ]
        for url in wrong:
            with pytest.raises(DatabaseUnavailable) as caught:
                asyncio.run(branch(url, "x"))
            text = repr(caught.value) + repr(caught.value.__cause__)
            assert "hunter2" not in text and "tr0mb0ne" not in text
    finally:
        query(boss, "DROP ROLE secret")
    shown = repr(DatabaseSettings(url=wrong[1])) + repr(Branch(url=wrong[1], database="d", readable=()))
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example.com/app",
        "postgresql://127.0.0.1,db.example.com/app",
        "postgresql://localhost/app?hostaddr=192.0.2.1",
        "host=db.example.com dbname=app",
        "postgresql:///app?service=work",
    ],
)
def test_other_machines_are_not_talked_to(url):
    with pytest.raises(DatabaseUnavailable, match="Nothing leaves this one"):
        asyncio.run(branch(url, "x"))


def test_urls_with_a_driver_and_connection_strings_keep_their_form(server, url):
    driver = url.replace("postgresql://", "postgresql+psycopg://") + "&dbname=the%20app&connect_timeout=3"
    made = asyncio.run(branch(driver, "x"))
    assert made.url == f"postgresql+psycopg://boss@/{made.database}?host={server}&connect_timeout=3"
    made = asyncio.run(branch(f"host={server} user=boss dbname='the app'", "x"))
    assert query(made.url, "SELECT text FROM note") == [("first",)]
    assert f"dbname={made.database}" in made.url and f"host={server}" in made.url


def test_without_psycopg_the_extra_is_named():
    program = """
import asyncio, sys
sys.modules["psycopg"] = None
from etude.workspace.postgres import branch
try:
    asyncio.run(branch("postgresql:///app", "x"))
except Exception as error:
    print(type(error).__name__, error)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert result.stdout.startswith("DatabaseUnavailable ")
    assert "pip install 'etude[postgres]'" in result.stdout


def test_settings():
    table = {"url": "postgresql:///app", "variable": "PG_URL", "template": "app_template"}
    assert settings_from(table) == DatabaseSettings(url="postgresql:///app", variable="PG_URL", template="app_template")
    for wrong in (
        {},
        {"url": 3},
        {"url": "x", "vairable": "Y"},
        {"url": "x", "variable": "A B"},
        {"url": "x", "remote": 1},
    ):
        with pytest.raises(InputError, match=r"\[shadow.database\]"):
            settings_from(wrong)


def test_a_shadow_and_each_of_its_forks_have_a_database_of_their_own(url, tmp_path, monkeypatch):
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    root = tmp_path / "app"
    root.mkdir()
    settings = ShadowSettings(database=DatabaseSettings(url=url))

    async def asked(shadow: ShadowWorkspace, text: str) -> str:
        result = await shadow.run(Command(line=f'{PROGRAMS[-1].parent}/psql "$DATABASE_URL" -qAtc "{text}"'))
        assert result.exit_code == 0, result.output
        return result.output

    async def work() -> None:
        async with open_shadow(root, settings=settings) as shadow:
            await asked(shadow, "INSERT INTO note VALUES ('of the shadow')")
            async with shadow.fork(2) as (one, other):
                await asked(one, "DELETE FROM note")
                assert await asked(other, "SELECT text FROM note") == "first\nof the shadow\n"
            assert await asked(shadow, "SELECT count(*) FROM note") == "2\n"

    asyncio.run(work())
    assert query(url, "SELECT text FROM note") == [("first",)]
    assert asyncio.run(leftovers(url, ())) == []
