"""A shadow as the agent uses it: commands, the user's saves, forks, what is left when it is closed or killed."""

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.shadow import belongings, soak
from etude.errors import FileNotWritable, FileUnusable, InputError, OutsideRoot, ShadowUnavailable, WorkspaceError
from etude.workspace.isolation import isolation_problem
from etude.workspace.shadow import ShadowWorkspace, clean_leftovers, open_shadow, state_home
from etude.workspace.workspace import ChangeKind, Command, CommandLimits, Ending, Followed

pytestmark = pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}")

PATIENCE_SECONDS = 10.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "state"
    monkeypatch.setenv("ETUDE_STATE", str(place))
    return place


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "app"
    (place / "pkg").mkdir(parents=True)
    (place / "pkg" / "pay.py").write_text("def total(items):\n    return 0\n\n\nVERSION = 1\n")
    (place / ".env").write_text("SECRET=1\n")
    (place / ".gitignore").write_text("*.log\n.env\n")
    subprocess.run(["git", "-C", str(place), "init", "-q"], check=True)
    yield place
    left = {line for line in belongings(place) if line.startswith(("mount", "process"))}
    assert not [line for line in left if str(tmp_path) in line]


def tree_hash(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        digest.update(f"{path.relative_to(root)} {path.lstat().st_mode}".encode())
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def in_shadow(root: Path, work: Callable[[ShadowWorkspace], Awaitable[object]]) -> None:
    async def opened() -> None:
        async with open_shadow(root) as shadow:
            await work(shadow)

    asyncio.run(opened())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.002)


def test_a_command_sees_the_dirty_tree_at_its_own_path_and_its_changes_are_the_patch(root: Path) -> None:
    before = tree_hash(root)

    async def work(shadow: ShadowWorkspace) -> None:
        line = (
            "pwd && cat .env && echo made > new.py && echo noise > x.log && mkdir -p __pycache__ && touch __pycache__/c"
        )
        result = await shadow.run(Command(line=line))
        assert result.output == f"{root}\nSECRET=1\n"
        assert {"new.py", "x.log"} <= set(result.changed)
        changes = {change.path: change for change in await shadow.changes()}
        assert changes["new.py"].kind is ChangeKind.ADDED and changes["new.py"].after == b"made\n"
        assert {path for path, change in changes.items() if not change.ignored} == {"new.py"}

    in_shadow(root, work)
    assert tree_hash(root) == before


def test_what_the_agents_git_does_stays_in_the_shadow(root: Path) -> None:
    before = tree_hash(root)

    async def work(shadow: ShadowWorkspace) -> None:
        commit = "git add -A && git -c user.name=e -c user.email=e@example.org commit -qm all && git log --oneline"
        assert (await shadow.run(Command(line=commit))).exit_code == 0
        assert await shadow.changes() == []

    in_shadow(root, work)
    assert tree_hash(root) == before


def test_a_save_of_the_user_arrives_by_itself_and_is_reported_once(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        await shadow.read("pkg/pay.py")
        (root / "pkg" / "new").write_text("saved = 1\n")
        (root / "pkg" / "new").rename(root / "pkg" / "pay.py")

        async def is_there() -> bool:
            return await shadow.read("pkg/pay.py") == "saved = 1\n"

        await until(is_there)
        assert Followed(path="pkg/pay.py") in await shadow.follow()
        assert await shadow.follow() == []
        assert await shadow.changes() == []

    in_shadow(root, work)


def test_what_the_user_saved_after_the_agent_read_is_not_overwritten(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        text = await shadow.read("pkg/pay.py")
        (root / "pkg" / "pay.py").write_text(text.replace("VERSION = 1", "VERSION = 2"))
        await shadow.write("pkg/pay.py", text.replace("return 0", "return sum(items)"))
        assert await shadow.read("pkg/pay.py") == "def total(items):\n    return sum(items)\n\n\nVERSION = 2\n"
        (change,) = await shadow.changes()
        assert change.before == (root / "pkg" / "pay.py").read_bytes()

    in_shadow(root, work)


def test_an_unsaved_buffer_is_what_commands_see(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        await shadow.set_buffer("pkg/pay.py", "unsaved\n")
        assert (await shadow.run(Command(line="cat pkg/pay.py"))).output == "unsaved\n"
        await shadow.set_buffer("pkg/pay.py", None)
        assert "VERSION" in (await shadow.run(Command(line="cat pkg/pay.py"))).output

    in_shadow(root, work)


def test_an_error_in_another_file_is_seen_after_an_edit_by_tool_by_command_and_by_the_user(root: Path) -> None:
    (root / "pkg" / "__init__.py").write_text("")
    (root / "use.py").write_text("from pkg.pay import VERSION\n\nnumber: int = VERSION\n")

    async def work(shadow: ShadowWorkspace) -> None:
        await shadow.diagnostics(["use.py"])
        await shadow.write("pkg/pay.py", "VERSION: str = 'one'\n")
        assert [one.place.path for one in (await shadow.diagnostics(["use.py"])).appeared] == ["use.py"]
        await shadow.run(Command(line="echo 'VERSION: int = 1' > pkg/pay.py"))
        assert (await shadow.diagnostics(["use.py"])).appeared == ()
        (root / "use.py").write_text("from pkg.pay import VERSION\n\nnumber: str = VERSION\n")
        await shadow.follow()
        assert [one.place.path for one in (await shadow.diagnostics(["use.py"])).appeared] == ["use.py"]

    in_shadow(root, work)


def test_forks_are_apart_and_go_when_the_block_ends(root: Path, state: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        await shadow.write("shared.py", "x = 1\n")
        async with shadow.fork(3) as forks:
            for number, fork in enumerate(forks):
                await fork.write("mine.py", f"x = {number}\n")
            said = [(await fork.run(Command(line="cat shared.py mine.py"))).output for fork in forks]
            assert said == [f"x = 1\nx = {number}\n" for number in range(3)]
        assert [change.path for change in await shadow.changes()] == ["shared.py"]
        assert not [path for path in belongings(root) if "/forks/" in path]

    in_shadow(root, work)


def test_going_back_tells_what_to_go_back_to_for_undoing_it(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        first = await shadow.snapshot("start")
        await shadow.run(Command(line="rm -r pkg && echo 1 > one"))
        undo = await shadow.restore(first)
        assert await shadow.changes() == []
        await shadow.restore(undo)
        assert {change.path for change in await shadow.changes()} == {"pkg/pay.py", "one"}

    in_shadow(root, work)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "out/passwd", "a\0b", "", ".git/config"])
def test_no_path_leaves_the_shadow(root: Path, path: str) -> None:
    (root / "out").symlink_to("/etc")

    async def work(shadow: ShadowWorkspace) -> None:
        with pytest.raises(OutsideRoot):
            await shadow.write(path, "x")
        if path != ".git/config":
            with pytest.raises(OutsideRoot):
                await shadow.read(path)

    in_shadow(root, work)


def test_a_link_swapped_in_by_a_command_does_not_lead_a_write_out(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def work(shadow: ShadowWorkspace) -> None:
        await shadow.run(Command(line=f"rm -r pkg && ln -s {outside} pkg && ln -s {root}/use.py inside"))
        with pytest.raises(OutsideRoot):
            await shadow.write("pkg/pay.py", "x")
        await shadow.write("inside", "kept inside")
        assert await shadow.read("use.py") == "kept inside"

    in_shadow(root, work)
    assert list(outside.iterdir()) == [] and not (root / "use.py").exists()


def test_a_link_into_gits_folder_is_no_way_to_write_there(root: Path) -> None:
    (root / "hooks").symlink_to(".git/hooks")

    async def work(shadow: ShadowWorkspace) -> None:
        with pytest.raises(OutsideRoot, match="git's own"):
            await shadow.write("hooks/pre-commit", "#!/bin/sh\n")
        with pytest.raises(FileNotWritable, match="NUL"):
            await shadow.write("nul.py", "a\0b")

    in_shadow(root, work)
    assert not (root / ".git" / "hooks" / "pre-commit").exists()


def test_cancelling_a_command_ends_it_and_what_it_changed_is_known(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        started = asyncio.Event()
        line = "echo half > half.py; echo started; sleep 300"
        running = asyncio.create_task(shadow.run(Command(line=line), on_output=lambda text: started.set()))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [change.path for change in await shadow.changes()] == ["half.py"]

    in_shadow(root, work)


def test_a_command_that_fills_the_disk_is_ended(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        limits = CommandLimits(disk_bytes=20_000_000, seconds=60)
        line = "for n in $(seq 400); do head -c 1000000 /dev/zero > big$n; done"
        result = await shadow.run(Command(line=line, limits=limits))
        assert result.ending is Ending.OUT_OF_DISK

    in_shadow(root, work)


def test_odd_files_do_not_stop_anything(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    (root / os.fsdecode(b"caf\xe9")).write_text("latin")
    os.mkfifo(root / "pipe")
    (root / "dir").mkdir()
    (root / "dir" / "back").symlink_to("..")

    async def work(shadow: ShadowWorkspace) -> None:
        paths = {entry.path for entry in await shadow.list(depth=4)}
        assert {"loop", "pipe", os.fsdecode(b"caf\xe9"), "dir/back"} <= paths
        for path in ("loop", "pipe", "dir"):
            with pytest.raises(FileUnusable):
                await shadow.read(path)
        await shadow.write("dir/back/pkg/pay.py", "through a link\n")
        assert [change.path for change in await shadow.changes()] == ["pkg/pay.py"]

    in_shadow(root, work)


def test_folders_without_end_do_no_harm_and_go(root: Path, state: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        loop = "import os\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\nopen('leaf', 'w').write('x')"
        assert (await shadow.run(Command(line=f'python3 -c "{loop}"; echo ok'))).output == "ok\n"
        await shadow.write("new.py", "x = 1\n")
        checkpoint = await shadow.snapshot()
        assert [change.path for change in await shadow.changes()] == ["new.py"]
        await shadow.run(Command(line="rm new.py"))
        await shadow.restore(checkpoint)
        assert await shadow.read("new.py") == "x = 1\n"

    in_shadow(root, work)
    assert not [path for path in belongings(root) if str(state / "shadows") in path and "owner" in path]


def test_a_folder_that_its_user_removed_is_named_and_the_agents_work_is_there(root: Path) -> None:
    elsewhere = root.with_name("elsewhere")

    async def work(shadow: ShadowWorkspace) -> None:
        await shadow.write("new.py", "x = 1\n")
        await asyncio.to_thread(root.rename, elsewhere)
        with pytest.raises(WorkspaceError, match="is gone"):
            await shadow.run(Command(line="ls"))
        assert await shadow.read("new.py") == "x = 1\n"
        await asyncio.to_thread(elsewhere.rename, root)
        assert "new.py" in (await shadow.run(Command(line="ls"))).output

    in_shadow(root, work)


def test_a_full_disk_stops_writing_and_nothing_else(root: Path, state: Path) -> None:
    if os.getuid():
        pytest.skip("only root may mount a small disk")
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(state)], check=True)
    try:

        async def work(shadow: ShadowWorkspace) -> None:
            result = await shadow.run(Command(line="head -c 5000000 /dev/zero > big; rm -f gone; cat .env"))
            assert "SECRET=1" in result.output
            with pytest.raises(FileNotWritable, match="No space"):
                await shadow.write("more.py", "x" * 1_000_000)
            with pytest.raises(WorkspaceError, match="No space"):
                await shadow.snapshot()
            assert "def total" in await shadow.read("pkg/pay.py")
            await shadow.run(Command(line="rm big"))
            await shadow.write("more.py", "x = 1\n")
            assert [change.path for change in await shadow.changes()] == ["more.py"]

        in_shadow(root, work)
        (state / "fill").write_bytes(b"x" * 2_000_000)
        with contextlib.suppress(OSError):
            (state / "rest").write_bytes(b"x" * 200_000)
        with pytest.raises(ShadowUnavailable, match="No space"):
            in_shadow(root, lambda shadow: shadow.read("pkg/pay.py"))
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_a_place_that_cannot_be_written_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "file"))
    with pytest.raises(ShadowUnavailable, match="ETUDE_STATE"):
        in_shadow(root, lambda shadow: shadow.read("pkg/pay.py"))


def test_a_shadow_cannot_be_kept_inside_its_own_tree(root: Path) -> None:
    async def work() -> None:
        async with open_shadow(root, state=root / "inner"):
            pass

    with pytest.raises(InputError, match="inside it"):
        asyncio.run(work())


def test_without_a_mechanism_no_shadow_is_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    async def work() -> None:
        async with open_shadow(root):
            pass

    with pytest.raises(ShadowUnavailable, match="etude doctor"):
        asyncio.run(work())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from etude.workspace.shadow import open_shadow
from etude.workspace.workspace import Command

async def work():
    async with open_shadow(Path(sys.argv[1])) as shadow:
        await shadow.write("pkg/pay.py", "mine")
        running = asyncio.create_task(shadow.run(Command(line="echo in; sleep 300"), on_output=print))
        await asyncio.sleep(0)
        await asyncio.to_thread(sys.stdin.readline)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(work())
"""


def test_after_a_kill_nothing_is_mounted_or_running_and_the_next_start_cleans_up(root: Path, state: Path) -> None:
    before = tree_hash(root)
    with subprocess.Popen(
        [sys.executable, "-u", "-c", KILLED, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdin
        assert "in" in process.stdout.readline()
        process.stdin.write("now\n")
        process.stdin.flush()
        assert process.wait() == -signal.SIGKILL
        # Whatever the sandbox ran holds our end of this pipe until it ends.
        process.stdout.read()
    assert len(list((state / "shadows").iterdir())) == 1
    assert len(clean_leftovers()) == 1
    assert list((state / "shadows").iterdir()) == []
    assert tree_hash(root) == before


def test_a_shadow_in_use_is_no_leftover(root: Path) -> None:
    async def work(shadow: ShadowWorkspace) -> None:
        assert clean_leftovers() == []
        assert (await shadow.run(Command(line="echo here"))).output == "here\n"

    in_shadow(root, work)


def test_many_shadows_leave_nothing(root: Path, tmp_path: Path) -> None:
    assert asyncio.run(soak(tmp_path / "small", 12)) == ()
    assert not list((state_home() / "shadows").glob("*"))


def test_five_hundred_random_actions_leave_the_users_tree_as_it_was(root: Path) -> None:
    chance = random.Random(7)
    before = tree_hash(root)
    names = ["pkg/pay.py", "pkg/new.py", "a/b/c.py", ".env", "x.log", "pkg"]

    async def act(shadow: ShadowWorkspace, kept: list[str]) -> None:
        name = chance.choice(names)
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                await shadow.write(name, f"value = {chance.random()}\n")
            case 4:
                await shadow.write(name, None)
            case 5 | 6:
                await shadow.read(name)
            case 7:
                await shadow.run(Command(line=chance.choice(LINES).format(name=name)))
            case 8 if len(kept) < 20:
                kept.append(await shadow.snapshot())
            case 9 if kept:
                await shadow.restore(chance.choice(kept))
            case 10:
                await shadow.changes()
            case _:
                await shadow.list(depth=3)

    async def work(shadow: ShadowWorkspace) -> None:
        kept: list[str] = []
        for _ in range(500):
            try:
                await act(shadow, kept)
            except InputError:
                continue
        assert tree_hash(root) == before

    in_shadow(root, work)
    assert tree_hash(root) == before


LINES = [
    "rm -rf {name}",
    "mkdir -p {name}",
    "echo appended >> {name}",
    "mv pkg moved; ln -sfn moved pkg",
    "chmod -R 700 .",
    "sed -i s/a/b/g $(find . -name '*.py')",
    "find . -delete",
]
