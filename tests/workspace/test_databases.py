"""SQLite files are copied while another process writes; the copy must be a state between two transactions."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

from etude.workspace.databases import copy_consistently, is_sqlite

# Two rows of every transaction are equal; the file is larger than the cache, so that pages spill early.
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
connection.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
connection.execute("PRAGMA cache_size = 10")
connection.execute("PRAGMA synchronous = OFF")
connection.execute("CREATE TABLE IF NOT EXISTS pair (id INTEGER PRIMARY KEY, value INTEGER, filler TEXT)")
connection.executemany("INSERT INTO pair VALUES (?, 0, ?)", [(n, "x" * 900) for n in range(200)])
print("ready", flush=True)
value = 0
while True:
    value += 1
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE pair SET value = ?", (value,))
    connection.execute("COMMIT")
"""

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("PRAGMA cache_size = 1")
connection.execute("CREATE TABLE note (text TEXT)")
connection.execute("INSERT INTO note VALUES ('committed')")
connection.execute("BEGIN EXCLUSIVE")
connection.executemany("INSERT INTO note VALUES (?)", [("half " + "x" * 3000,)] * 100)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def program(source, *arguments):
    argv = [sys.executable, "-c", source, *map(str, arguments)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def rows(path, query):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate"])
def test_copies_made_while_a_program_writes_are_whole(tmp_path, mode):
    source, target = tmp_path / "app.db", tmp_path / "copy.db"
    seen = set()
    with program(WRITER, source, mode):
        for _ in range(15):
            assert copy_consistently(source, target)
            values = rows(target, "SELECT value, count(*) FROM pair GROUP BY value")
            assert len(values) == 1 and values[0][1] == 200
            seen.add(values[0][0])
            target.unlink()
            for ending in ("-wal", "-shm", "-journal"):
                assert not (tmp_path / f"copy.db{ending}").exists()
    assert len(seen) > 1


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_what_is_not_committed_is_not_in_the_copy_and_a_lock_is_not_waited_for_long(tmp_path, mode):
    source, target = tmp_path / "app.db", tmp_path / "copy.db"
    with program(HOLDER, source, mode):
        before = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
        assert copy_consistently(source, target)
        assert rows(target, "SELECT text FROM note") == [("committed",)]
        target.unlink()
        assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_what_a_killed_program_left_in_a_journal_is_taken_into_account(tmp_path, mode):
    source, target = tmp_path / "app.db", tmp_path / "copy.db"
    with program(HOLDER, source, mode):
        pass
    assert (tmp_path / ("app.db-wal" if mode == "wal" else "app.db-journal")).exists()
    assert copy_consistently(source, target)
    assert rows(target, "SELECT text FROM note") == [("committed",)]
    assert not (tmp_path / "copy.db-wal").exists()


def test_what_only_looks_like_a_database_is_copied_as_it_is(tmp_path):
    source, target = tmp_path / "app.db", tmp_path / "copy.db"
    source.write_bytes(b"SQLite format 3\0" + b"nonsense" * 1000)
    (tmp_path / "app.db-journal").write_bytes(b"nonsense" * 100)
    copy_consistently(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert not (tmp_path / "copy.db-journal").exists()


def test_which_files_are_databases(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    (tmp_path / "text.db").write_text("SQLite format 3 is fine")
    (tmp_path / "link.db").symlink_to("a.db")
    os.mkfifo(tmp_path / "pipe")
    names = {path.name for path in tmp_path.iterdir() if is_sqlite(path)}
    assert names == {"a.db"}
    assert not is_sqlite(tmp_path / "missing")
