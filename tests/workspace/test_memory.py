"""The workspace in memory behaves as the others do: it is what most tests of the agent work in."""

import asyncio

import pytest

from etude.errors import CheckpointUnknown, FileNotWritable, FileUnusable, OutsideRoot
from etude.workspace.memory import MemoryWorkspace
from etude.workspace.workspace import ChangeKind, Checkpointed, Command, EntryKind, Following, Navigable

FILES = {"a.py": "x = 1\n", "src/deep/b.py": "y\n", ".git/config": "", "src/.env": "K=1"}


def test_it_is_what_it_says_and_no_more() -> None:
    workspace = MemoryWorkspace()
    assert isinstance(workspace, Checkpointed)
    assert not isinstance(workspace, Following)
    assert not isinstance(workspace, Navigable)


def test_files_are_written_read_and_removed() -> None:
    async def use() -> None:
        workspace = MemoryWorkspace(FILES)
        await workspace.write("./new/c.py", "z")
        assert await workspace.read("new/c.py") == "z"
        await workspace.write("new/c.py", None)
        with pytest.raises(FileUnusable, match="does not exist"):
            await workspace.read("new/c.py")
        for path, told in (("src", "folder"), ("a.py/b", "part of the path"), (".", "folder")):
            with pytest.raises(FileNotWritable, match=told):
                await workspace.write(path, "")
        with pytest.raises(FileNotWritable, match="no such file"):
            await workspace.write("gone", None)
        for path in ("", "/a.py", "../a.py", "src/../../a", "a\0"):
            with pytest.raises(OutsideRoot):
                await workspace.read(path)

    asyncio.run(use())


def test_folders_are_listed_as_deep_as_asked_and_hidden_ones_not_entered() -> None:
    async def use() -> None:
        workspace = MemoryWorkspace(FILES)
        assert [entry.path for entry in await workspace.list()] == [".git", "a.py", "src"]
        deep = {entry.path: entry.kind for entry in await workspace.list(depth=9)}
        assert deep == {
            ".git": EntryKind.FOLDER,
            "a.py": EntryKind.FILE,
            "src": EntryKind.FOLDER,
            "src/.env": EntryKind.FILE,
            "src/deep": EntryKind.FOLDER,
            "src/deep/b.py": EntryKind.FILE,
        }
        assert [entry.path for entry in await workspace.list("src/deep")] == ["src/deep/b.py"]
        for path in ("a.py", "nowhere"):
            with pytest.raises(FileUnusable):
                await workspace.list(path)

    asyncio.run(use())


def test_commands_are_answered_and_their_changes_seen() -> None:
    def shell(command: Command, files: dict[str, str]) -> str:
        files[command.line] = "made"
        return "ok\n"

    async def use() -> None:
        printed: list[str] = []
        workspace = MemoryWorkspace(FILES, commands=shell)
        result = await workspace.run(Command(line="out.txt"), on_output=printed.append)
        assert (result.exit_code, result.output, result.changed) == (0, "ok\n", ("out.txt",))
        assert printed == ["ok\n"]
        unknown = await MemoryWorkspace(commands={"ls": (2, "")}).run(Command(line="rm"))
        assert unknown.exit_code == 127

    asyncio.run(use())


def test_checkpoints_and_forks_are_apart() -> None:
    async def use() -> None:
        workspace = MemoryWorkspace(FILES)
        first = await workspace.snapshot("first")
        await workspace.write("a.py", "changed")
        async with workspace.fork(2) as (one, two):
            await one.write("only", "1")
            assert await two.read("a.py") == "changed"
            assert "only" not in workspace.files
            assert [change.path for change in await one.changes()] == ["a.py", "only"]
        undo = await workspace.restore(first)
        assert await workspace.changes() == []
        await workspace.restore(undo)
        (change,) = await workspace.changes()
        assert (change.kind, change.before, change.after) == (ChangeKind.MODIFIED, b"x = 1\n", b"changed")
        await workspace.write("a.py", None)
        assert [change.kind for change in await workspace.changes()] == [ChangeKind.REMOVED]
        with pytest.raises(CheckpointUnknown, match="first"):
            await workspace.restore("nope")

    asyncio.run(use())
