"""A real tree is changed, and the watch must name what changed at once: `changed()` right after the change."""

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.workspace import inotify, watching
from etude.workspace.watching import TreeWatch


@asynccontextmanager
async def watched(root: Path, **options) -> AsyncGenerator[TreeWatch]:
    watch = TreeWatch(root, **options)
    try:
        async with asyncio.timeout(10):
            await watch.ready()
            watch.changed()
            yield watch
    finally:
        watch.close()


def changes(root: Path, *steps) -> list[set[str]]:
    """What the watch tells after each step."""

    async def run() -> list[set[str]]:
        async with watched(root) as watch:
            told = []
            for step in steps:
                step()
                told.append(watch.changed())
            return told

    return asyncio.run(run())


def test_a_write_a_new_file_and_a_removal_are_named(tmp_path):
    (tmp_path / "src").mkdir()
    file = tmp_path / "src/pay.py"
    file.write_text("1")
    written, nothing, added, removed = changes(
        tmp_path,
        lambda: file.write_text("2"),
        lambda: file.read_text(),
        lambda: (tmp_path / "new.py").write_text(""),
        file.unlink,
    )
    assert written == {"src/pay.py"}
    assert nothing == set()
    assert added == {"new.py"}
    assert removed == {"src/pay.py"}


def test_a_save_that_renames_a_temporary_file_over_the_old_one(tmp_path):
    (tmp_path / "pay.py").write_text("1")

    def save():
        (tmp_path / "pay.py~").write_text("2")
        (tmp_path / "pay.py~").replace(tmp_path / "pay.py")

    assert changes(tmp_path, save) == [{"pay.py", "pay.py~"}]


def test_a_file_that_stays_open_is_named_with_every_write(tmp_path):
    with (tmp_path / "log").open("w", buffering=1) as log:
        first, second = changes(tmp_path, lambda: log.write("a\n"), lambda: log.write("b\n"))
    assert first == second == {"log"}


def test_what_is_in_a_new_folder_is_named_and_watched(tmp_path):
    def make():
        (tmp_path / "a/b/c").mkdir(parents=True)
        (tmp_path / "a/b/c/f").write_text("")

    made, again = changes(tmp_path, make, lambda: (tmp_path / "a/b/c/f").write_text("2"))
    assert made == {"a", "a/b", "a/b/c", "a/b/c/f"}
    assert again == {"a/b/c/f"}


def test_a_renamed_folder_is_told_under_its_new_name_only(tmp_path):
    (tmp_path / "old/deep").mkdir(parents=True)
    (tmp_path / "old/deep/f").write_text("1")
    renamed, written = changes(
        tmp_path, lambda: (tmp_path / "old").rename(tmp_path / "new"), lambda: (tmp_path / "new/deep/f").write_text("2")
    )
    assert renamed == {"old", "new", "new/deep", "new/deep/f"}
    assert written == {"new/deep/f"}


def test_a_folder_that_left_the_tree_is_watched_no_more(tmp_path):
    (tmp_path / "tree/old").mkdir(parents=True)
    left, written = changes(
        tmp_path / "tree",
        lambda: (tmp_path / "tree/old").rename(tmp_path / "outside"),
        lambda: (tmp_path / "outside/f").write_text(""),
    )
    assert left == {"old"}
    assert written == set()


def test_a_removed_and_remade_folder_is_watched(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)

    def remake():
        shutil.rmtree(tmp_path / "a")
        (tmp_path / "a/b").mkdir(parents=True)

    _, written = changes(tmp_path, remake, lambda: (tmp_path / "a/b/f").write_text(""))
    assert written == {"a/b/f"}


def test_links_are_told_and_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    root = tmp_path / "tree"
    root.mkdir()
    (root / "cycle").symlink_to(".")
    (root / "out").symlink_to("../outside")
    made, outside = changes(
        root, lambda: (root / "link").symlink_to("nowhere"), lambda: (tmp_path / "outside/f").write_text("")
    )
    assert made == {"link"}
    assert outside == set()


def test_names_that_are_not_utf8_are_told(tmp_path):
    folder = os.fsencode(tmp_path) + b"/b\xff"
    os.mkdir(folder)  # noqa: PTH102 (a path of bytes)

    def write():
        os.close(os.open(folder + b"/n\xfe", os.O_CREAT | os.O_WRONLY))

    assert changes(tmp_path, write, lambda: (tmp_path / "f").write_text("")) == [{os.fsdecode(b"b\xff/n\xfe")}, {"f"}]


def test_a_new_mode_is_told(tmp_path):
    (tmp_path / "run.sh").write_text("")
    assert changes(tmp_path, lambda: (tmp_path / "run.sh").chmod(0o755)) == [{"run.sh"}]


def test_sockets_and_pipes_do_no_harm(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert changes(tmp_path, lambda: (tmp_path / "f").write_text("")) == [{"f"}]


def test_git_is_watched_without_its_locks(tmp_path):
    git = tmp_path / ".git/refs"
    git.mkdir(parents=True)

    def commit():
        (git / "main.lock").write_text("1")
        (git / "main.lock").replace(git / "main")

    assert changes(tmp_path, commit) == [{".git/refs/main"}]


def test_ignored_folders_and_temporary_files_of_our_own_are_not_told(tmp_path):
    (tmp_path / "out/deep").mkdir(parents=True)

    async def run():
        async with watched(tmp_path, ignore=["out"]) as watch:
            (tmp_path / "out/deep/f").write_text("")
            (tmp_path / ".etude-0123456789ab.tmp").write_text("")
            return watch.changed()

    assert asyncio.run(run()) == set()


def test_changes_before_it_was_ready_are_told(tmp_path):
    for number in range(300):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}/f").write_text("")
    # The clock of files moves in ticks: what is older than one of them was before the watch.
    settled = time.clock_gettime_ns(time.CLOCK_REALTIME)
    while time.clock_gettime_ns(5) <= settled:
        time.sleep(0.001)

    async def run():
        watch = TreeWatch(tmp_path)
        try:
            (tmp_path / "d299/f").write_text("2")
            (tmp_path / "d0/new").write_text("")
            (tmp_path / "d150/f").unlink()
            await watch.ready()
            return watch.changed()
        finally:
            watch.close()

    told = asyncio.run(run())
    assert {"d299/f", "d0/new"} <= told
    assert told & {"d150", "d150/f"}
    assert not any(path.startswith("d7") for path in told)


def test_dropped_events_are_made_up_for_by_looking(tmp_path, monkeypatch):
    class Forgetful(inotify.Inotify):
        forgets = False

        def read(self):
            found = super().read()
            if not (self.forgets and found):
                return found
            Forgetful.forgets = False
            return [inotify.Happening(-1, inotify.OVERFLOW, "")]

    monkeypatch.setattr(watching, "Inotify", Forgetful)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/gone").write_text("")

    async def run():
        async with watched(tmp_path) as watch:
            Forgetful.forgets = True
            (tmp_path / "b").mkdir()
            (tmp_path / "b/f").write_text("")
            (tmp_path / "a/gone").unlink()
            told = await told_until(watch, lambda told: {"b/f", "a"} <= told)
            (tmp_path / "b/f").write_text("2")
            return told, watch.changed(), watch.problem

    told, after, problem = asyncio.run(run())
    assert told == {".", "b", "b/f", "a"}
    assert after == {"b/f"}
    assert problem is None


async def told_until(watch: TreeWatch, enough) -> set[str]:
    told: set[str] = set()
    async with asyncio.timeout(10):
        while not enough(told):
            await watch.wait()
            told |= watch.changed()
    return told


LIMITED = """
import asyncio, sys
from pathlib import Path
from etude.workspace.watching import TreeWatch

root = Path(sys.argv[1])

async def run():
    watch = TreeWatch(root)
    await watch.ready()
    print(watch.problem)
    watch.changed()
    for number in range(6):
        (root / f"d{number}/new").write_text("")
    told = set()
    while not {f"d{number}/new" for number in range(6)} <= told:
        await watch.wait()
        told |= watch.changed()
    watch.close()

asyncio.run(asyncio.wait_for(run(), 15))
"""


@pytest.mark.parametrize("limit", ["max_inotify_watches", "max_inotify_instances"])
def test_at_the_limit_of_watches_edits_are_still_found_and_the_problem_is_told(tmp_path, limit):
    for number in range(6):
        (tmp_path / f"d{number}").mkdir()
    allowed = 3 if limit == "max_inotify_watches" else 0
    lower = f'echo {allowed} > /proc/sys/user/{limit} && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", lower, "sh", sys.executable, "-c", LIMITED]
    if subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces")
    result = subprocess.run([*argv, tmp_path], capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stderr
    assert "cannot be watched: the limit on" in result.stdout


def test_a_root_that_was_removed_is_a_problem_until_it_is_back(tmp_path):
    root = tmp_path / "tree"
    root.mkdir()

    async def run():
        async with watched(root) as watch:
            root.rmdir()
            assert "." in watch.changed()
            gone = watch.problem
            root.mkdir()
            (root / "f").write_text("")
            await told_until(watch, lambda told: "f" in told)
            return gone, watch.problem

    gone, back = asyncio.run(run())
    assert gone == f"{root} was moved or removed. Open the folder where it is now."
    assert back is None


def test_a_file_that_vanishes_while_its_folder_is_listed_hides_no_other(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "gone").write_text("")
    scandir = os.scandir

    @contextmanager
    def listed(path):
        with scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name != "gone")
        (tmp_path / "gone").unlink(missing_ok=True)
        yield found

    monkeypatch.setattr(os, "scandir", listed)
    told = changes(tmp_path, *[lambda name=name: (tmp_path / name / "f").write_text("") for name in ("a", "b", "c")])
    assert told == [{"a/f"}, {"b/f"}, {"c/f"}]


# Whatever is done, what is told is enough to make a copy follow.

FOLDERS = ["a", "a/b", "c", "c/a"]
PATHS = [*FOLDERS, "f", "a/f", "a/b/f", "c/f", "c/a/f"]
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(PATHS), st.sampled_from(["", "x", "xy"])),
    st.tuples(st.just("mkdir"), st.sampled_from(FOLDERS), st.just("")),
    st.tuples(st.just("move"), st.sampled_from(PATHS), st.sampled_from([*PATHS, "../out"])),
    st.tuples(st.just("move"), st.just("../out"), st.sampled_from(PATHS)),
    st.tuples(st.just("remove"), st.sampled_from(PATHS), st.just("")),
    st.tuples(st.just("link"), st.sampled_from(PATHS), st.sampled_from(["a", ".", "nowhere"])),
    st.tuples(st.just("chmod"), st.sampled_from(PATHS), st.sampled_from(["700", "711"])),
)


def do(root: Path, step: tuple[str, str, str]) -> None:
    verb, path, argument = step
    place = root / path
    with suppress(OSError, shutil.Error):
        if verb == "write":
            place.write_text(argument)
        elif verb == "mkdir":
            place.mkdir(parents=True)
        elif verb == "move":
            os.rename(place, root / argument)  # noqa: PTH104 (as programs do)
        elif verb == "remove" and place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif verb == "remove":
            place.unlink()
        elif verb == "link":
            place.symlink_to(argument)
        elif not place.is_symlink():
            place.chmod(int(argument, 8))


def state_of(root: Path) -> dict[str, tuple[int, str]]:
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            place = Path(folder, name)
            is_plain = place.is_file() and not place.is_symlink()
            content = place.read_text() if is_plain else str(place.readlink()) if place.is_symlink() else ""
            found[str(place.relative_to(root))] = (place.lstat().st_mode, content)
    return found


def is_covered(path: str, told: set[str], now: dict[str, tuple[int, str]]) -> bool:
    parent = path.rpartition("/")[0]
    if path in told or (path not in now and (parent or ".") in told):
        return True
    return bool(parent) and not (parent in now and stat.S_ISDIR(now[parent][0])) and is_covered(parent, told, now)


@settings(max_examples=100, deadline=None)
@given(batches=st.lists(st.lists(STEPS, max_size=5), max_size=6))
def test_what_is_told_covers_every_difference(batches):
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "root")
        root.mkdir()

        async def run() -> None:
            async with watched(root) as watch:
                before = state_of(root)
                for batch in batches:
                    for step in batch:
                        do(root, step)
                    told, now = watch.changed(), state_of(root)
                    different = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
                    assert all(is_covered(path, told, now) for path in different), (told, different)
                    before = now

        asyncio.run(run())


def test_waiting_ends_within_30_ms_of_a_save(tmp_path):
    async def run():
        async with watched(tmp_path) as watch:
            best = 9.0
            for number in range(10):
                waiting = asyncio.create_task(watch.wait())
                await asyncio.sleep(0)
                start = time.perf_counter()
                (tmp_path / "f").write_text(str(number))
                await waiting
                best = min(best, time.perf_counter() - start)
                assert watch.changed() == {"f"}
            return best

    assert asyncio.run(run()) < 0.03


def test_waiting_ends_when_the_watch_is_closed(tmp_path):
    async def run():
        async with watched(tmp_path) as watch:
            waiting = asyncio.create_task(watch.wait())
            await asyncio.sleep(0)
            watch.close()
            await waiting
            watch.close()

    asyncio.run(run())


def test_closing_before_it_is_ready_leaves_no_thread_and_no_descriptor(tmp_path):
    before = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    for _ in range(20):
        TreeWatch(tmp_path).close()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before  # noqa: PTH208
