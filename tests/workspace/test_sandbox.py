"""A folder to work in without asking, and the user's own tree, where everything is asked for."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etude.errors import FileNotWritable, FileUnusable, InputError, OutsideRoot, Refused
from etude.workspace.isolation import isolation_problem
from etude.workspace.live import LiveWorkspace
from etude.workspace.sandbox import Sandbox, open_sandbox
from etude.workspace.workspace import Command, Workspace

needs_isolation = pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "app"
    root.mkdir()
    (root / "a.txt").write_text("A\n")
    (tmp_path / "private").write_text("mine")
    (root / "out").symlink_to(tmp_path / "private")
    return root


def in_sandbox(root: Path, work: Callable[[Sandbox], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        async with open_sandbox(root) as sandbox:
            await work(sandbox)

    asyncio.run(all_of_it())


def in_live(root: Path, answer: Callable[[str, str], bool], work: Callable[[Workspace], Awaitable[None]]) -> None:
    async def consents(action: str, detail: str) -> bool:
        return answer(action, detail)

    async def all_of_it() -> None:
        live = LiveWorkspace(root, consents)
        try:
            await work(live)
        finally:
            await live.close()

    asyncio.run(all_of_it())


@needs_isolation
def test_files_and_commands_see_the_same_tree(root: Path) -> None:
    async def work(sandbox: Sandbox) -> None:
        await sandbox.write("sub/b.txt", "B\r\n")
        result = await sandbox.run(Command(line="cat sub/b.txt; echo C > c.txt"))
        assert result.output == "B\r\n"
        assert await sandbox.read("c.txt") == "C\n"
        await sandbox.write("a.txt", None)
        assert [entry.path for entry in await sandbox.list(depth=2)] == ["c.txt", "out", "sub", "sub/b.txt"]

    in_sandbox(root, work)
    assert not (root / "a.txt").exists()


def test_nothing_outside_is_read_or_written(root: Path, tmp_path: Path) -> None:
    async def work(sandbox: Sandbox) -> None:
        for path in ("../private", "out", str(tmp_path / "private"), "a\0b"):
            with pytest.raises(OutsideRoot):
                await sandbox.read(path)
            with pytest.raises((OutsideRoot, FileNotWritable)):
                await sandbox.write(path, "changed")
        with pytest.raises(FileUnusable):
            await sandbox.read("missing")

    in_sandbox(root, work)
    assert (tmp_path / "private").read_text() == "mine"


@needs_isolation
def test_a_link_swapped_in_by_a_command_is_not_followed(root: Path, tmp_path: Path) -> None:
    async def work(sandbox: Sandbox) -> None:
        await sandbox.run(Command(line=f"rm a.txt; ln -s {tmp_path}/private a.txt; cat a.txt"))
        with pytest.raises(OutsideRoot):
            await sandbox.read("a.txt")

    in_sandbox(root, work)


def test_a_folder_that_is_none_is_refused(root: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        in_sandbox(root / "a.txt", lambda sandbox: sandbox.read("a.txt"))  # ty: ignore[invalid-argument-type]


def test_nothing_of_the_users_is_written_or_run_without_consent(root: Path) -> None:
    asked: list[tuple[str, str]] = []

    def refuse(action: str, detail: str) -> bool:
        asked.append((action, detail))
        return False

    async def work(live: Workspace) -> None:
        assert await live.read("a.txt") == "A\n"
        for text in ("B\n", None):
            with pytest.raises(Refused):
                await live.write("a.txt", text)
        with pytest.raises(Refused):
            await live.run(Command(line="touch ran", network=True))

    in_live(root, refuse, work)
    assert [action for action, _ in asked] == ["write a.txt", "remove a.txt", "run a command with network"]
    assert "-A" in asked[0][1] and "+B" in asked[0][1] and asked[2][1] == "touch ran"
    assert (root / "a.txt").read_text() == "A\n" and not (root / "ran").exists()


@needs_isolation
def test_with_consent_it_is_done_in_isolation(root: Path, tmp_path: Path) -> None:
    async def work(live: Workspace) -> None:
        await live.write("a.txt", "B\n")
        result = await live.run(Command(line=f"cat a.txt; cat {tmp_path}/private"))
        assert result.output.startswith("B\n") and "mine" not in result.output

    in_live(root, lambda action, detail: True, work)


def test_what_the_person_saves_while_being_asked_is_not_overwritten(root: Path) -> None:
    def save_and_allow(action: str, detail: str) -> bool:
        (root / "a.txt").write_text("the person's\n")
        return True

    async def work(live: Workspace) -> None:
        with pytest.raises(Refused, match="changed while"):
            await live.write("a.txt", "B\n")

    in_live(root, save_and_allow, work)
    assert (root / "a.txt").read_text() == "the person's\n"


@needs_isolation
def test_what_the_first_edit_in_a_sandbox_breaks_is_news(root: Path) -> None:
    (root / "price.py").write_text("def price(number: int) -> int:\n    return number\n")
    (root / "use.py").write_text("from price import price\n\ntotal: int = price(3)\n")

    async def work(sandbox: Sandbox) -> None:
        await sandbox.write("price.py", "def price(number: int) -> str:\n    return str(number)\n")
        assert [one.place.path for one in (await sandbox.diagnostics()).appeared] == ["use.py"]

    in_sandbox(root, work)
