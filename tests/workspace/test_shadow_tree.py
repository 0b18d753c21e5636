"""The files of a shadow, by every mechanism this machine has: what is the agent's, what is the user's, going back."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.errors import CheckpointUnknown
from etude.workspace.mounts import Mechanism, erase_tree, problem
from etude.workspace.shadow_tree import ShadowTree
from etude.workspace.workspace import ChangeKind, Followed

Picture = dict[str, tuple[int, bytes]]
"""Path → mode and content of every file, link and folder."""


def picture(folder: Path) -> Picture:
    found: Picture = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            status = path.lstat()
            is_file = stat.S_ISREG(status.st_mode)
            content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if is_file else b""
            found[str(path.relative_to(folder))] = (status.st_mode, content)
    return found


def fill(root: Path) -> None:
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "a.py").write_text("1\n2\n3\n4\n5\n")
    (root / "pkg" / "b.py").write_text("b\n")
    (root / "pkg" / "deep" / "c.py").write_text("c\n")
    (root / "link").symlink_to("a.py")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)


def let_clock_tick() -> None:
    """What is written now is older than whatever comes next."""
    time.sleep(0.03)


@pytest.fixture(params=[one for one in Mechanism if one is not Mechanism.REFLINK], ids=str)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ShadowTree]:
    if reason := problem(request.param, tmp_path / "trial"):
        pytest.skip(f"{request.param}: {reason}")
    root = tmp_path / "root, with: odd\\ name"
    root.mkdir()
    fill(root)
    let_clock_tick()
    opened = opened_tree(root, tmp_path / "state", request.param)
    yield opened
    opened.close()
    erase_tree(tmp_path / "state")


def opened_tree(root: Path, state: Path, mechanism: Mechanism) -> ShadowTree:
    state.mkdir()
    return ShadowTree(root=root, state=state, mechanism=mechanism)


def shell(tree: ShadowTree, line: str) -> set[str]:
    since = time.time_ns()
    subprocess.run([*tree.mounted.enter, "sh", "-c", f'cd "$0" && {line}', str(tree.root)], check=True)
    return tree.notice(pending=(), since_ns=since)


def kinds(tree: ShadowTree) -> dict[str, ChangeKind]:
    changes = (tree.change(path) for path in tree.changed_paths())
    return {change.path: change.kind for change in changes if change}


def test_the_view_shows_the_tree_at_its_own_path_and_nothing_reaches_the_original(tree: ShadowTree) -> None:
    before = picture(tree.root)
    changed = shell(tree, "sed -i s/1/one/ a.py && rm -r pkg && mkdir pkg && echo z > pkg/z && chmod 700 run.sh && pwd")
    assert picture(tree.root) == before
    assert {"a.py", "pkg/z", "pkg/b.py", "run.sh"} <= changed
    assert kinds(tree) == {
        "a.py": ChangeKind.MODIFIED,
        "pkg/b.py": ChangeKind.REMOVED,
        "pkg/deep/c.py": ChangeKind.REMOVED,
        "pkg/z": ChangeKind.ADDED,
        "run.sh": ChangeKind.MODIFIED,
    }


def test_touching_without_changing_is_no_change(tree: ShadowTree) -> None:
    shell(tree, "touch a.py && cp pkg/b.py t && mv t pkg/b.py && echo q > q && rm q")
    assert kinds(tree) == {}


def test_a_save_of_the_user_appears_and_is_not_the_agents(tree: ShadowTree) -> None:
    shell(tree, "cat a.py pkg/b.py && ls -R")
    (tree.root / "new").write_text("saved\n")
    (tree.root / "new").rename(tree.root / "a.py")
    (tree.root / "pkg" / "b.py").unlink()
    (tree.root / "fresh").mkdir()
    (tree.root / "fresh" / "f.py").write_text("f")
    for path in ("a.py", "new", "pkg/b.py", "fresh"):
        tree.carry(path)
    shown = subprocess.run(
        [*tree.mounted.enter, "sh", "-c", 'cd "$0" && cat a.py fresh/f.py && ls pkg', str(tree.root)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == "saved\nfdeep\n"
    assert kinds(tree) == {}


def test_edits_of_both_are_merged_and_overlapping_ones_reported(tree: ShadowTree) -> None:
    shell(tree, "sed -i s/1/one/ a.py && echo mine > pkg/b.py")
    (tree.root / "a.py").write_text("1\n2\n3\n4\nfive\n")
    (tree.root / "pkg" / "b.py").write_text("theirs\n")
    assert tree.carry("a.py") == [Followed(path="a.py", merged=True)]
    assert tree.carry("pkg/b.py") == [Followed(path="pkg/b.py", conflict=True)]
    assert tree.folder.read_text("a.py") == "one\n2\n3\n4\nfive\n"
    assert tree.folder.read_text("pkg/b.py") == "mine\n"
    change = tree.change("a.py")
    assert change and change.before == b"1\n2\n3\n4\nfive\n"


def test_a_file_that_user_and_command_changed_at_once_has_no_base_and_is_a_conflict(tree: ShadowTree) -> None:
    since = time.time_ns()
    subprocess.run([*tree.mounted.enter, "sh", "-c", 'echo agent > "$0/a.py"', str(tree.root)], check=True)
    (tree.root / "a.py").write_text("user\n")
    tree.notice(pending={"a.py"}, since_ns=since)
    assert tree.carry("a.py") == [Followed(path="a.py", conflict=True)]
    change = tree.change("a.py")
    assert change and change.before is None and change.after == b"agent\n"


def test_a_users_edit_below_a_link_that_leads_out_is_a_conflict(tree: ShadowTree, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    shell(tree, f"rm -r pkg && ln -s {outside} pkg")
    (tree.root / "pkg" / "b.py").write_text("theirs\n")
    assert tree.carry("pkg/b.py") == [Followed(path="pkg/b.py", conflict=True)]
    assert list(outside.iterdir()) == []
    assert kinds(tree)["pkg"] is ChangeKind.ADDED
    tree.restore(tree.snapshot())


def test_an_unsaved_buffer_stands_for_the_file_until_it_is_closed(tree: ShadowTree) -> None:
    tree.set_buffer("a.py", b"unsaved\n")
    assert shell(tree, "grep -q unsaved a.py") == set()
    assert kinds(tree) == {}
    tree.set_buffer("a.py", None)
    assert tree.folder.read_text("a.py") == "1\n2\n3\n4\n5\n"
    assert (tree.root / "a.py").read_text() == "1\n2\n3\n4\n5\n"


def test_going_back_covers_shell_changes_and_can_be_taken_back(tree: ShadowTree) -> None:
    start = picture(tree.folder.view)
    first = tree.snapshot()
    shell(
        tree, "rm -r pkg && echo x >> a.py && ln -sf run.sh link && mkdir -p n/m && echo 1 > n/m/1 && chmod 600 run.sh"
    )
    worked = picture(tree.folder.view)
    second = tree.snapshot()
    tree.restore(first)
    assert picture(tree.folder.view) == start
    assert kinds(tree) == {}
    tree.restore(second)
    assert picture(tree.folder.view) == worked


def test_going_back_keeps_what_the_user_saved_since(tree: ShadowTree) -> None:
    shell(tree, "sed -i s/1/one/ a.py")
    first = tree.snapshot()
    shell(tree, "echo more >> a.py")
    (tree.root / "a.py").write_text("1\n2\n3\n4\nfive\n")
    (tree.root / "untracked").write_text("mine")
    tree.carry("a.py")
    tree.carry("untracked")
    tree.restore(first)
    assert tree.folder.read_text("a.py") == "one\n2\n3\n4\nfive\n"
    assert tree.folder.read_text("untracked") == "mine"


def test_forks_start_from_a_checkpoint_and_go_their_own_ways(tree: ShadowTree, tmp_path: Path) -> None:
    shell(tree, "echo x >> a.py && rm pkg/b.py")
    checkpoint = tree.checkpoint(tree.snapshot())
    forks = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        forks.append(tree.forked(tmp_path / name, checkpoint))
    try:
        shell(forks[0], "echo only-here > f")
        assert kinds(forks[1]) == {"a.py": ChangeKind.MODIFIED, "pkg/b.py": ChangeKind.REMOVED} == kinds(tree)
        assert kinds(forks[0]) == {**kinds(tree), "f": ChangeKind.ADDED}
    finally:
        for fork, name in zip(forks, ("one", "two"), strict=True):
            fork.close()
            erase_tree(tmp_path / name)


def sql(tree: ShadowTree, *statements: str, enter: bool = True) -> list[list[int]]:
    """Inside, since SQLite follows the view's path back into the user's tree. Says what the last statement found."""
    line = (
        "import json, sqlite3, sys; c = sqlite3.connect('app.db'); "
        "print(json.dumps([c.execute(s).fetchall() for s in sys.argv[1:]][-1])); c.commit()"
    )
    place = [*tree.mounted.enter, "env", "-C", str(tree.root)] if enter else ["env", "-C", str(tree.root)]
    found = subprocess.run([*place, sys.executable, "-c", line, *statements], check=True, capture_output=True)
    tree.notice(pending=(), since_ns=time.time_ns())
    return json.loads(found.stdout)


def test_a_database_in_use_goes_back_with_the_tree(tree: ShadowTree) -> None:
    sql(tree, "pragma journal_mode = wal", "create table t (x)", "insert into t values (1)")
    first = tree.snapshot()
    sql(tree, "insert into t values (2)")
    tree.restore(first)
    assert sql(tree, "select x from t") == [[1]]
    assert not (tree.root / "app.db").exists()


def test_a_database_of_the_users_is_carried_whole(tree: ShadowTree) -> None:
    sql(tree, "pragma journal_mode = wal", "create table t (x)", enter=False)
    tree.carry("app.db")
    with closing(sqlite3.connect(tree.root / "app.db")) as connection:
        connection.execute("insert into t values (7)")
        connection.commit()
        assert tree.carry("app.db-wal") == [Followed(path="app.db")]
        assert sql(tree, "select x from t") == [[7]]
    assert kinds(tree) == {}


def test_odd_trees_do_no_harm(tree: ShadowTree) -> None:
    name = os.fsdecode(b"caf\xe9\n.txt")
    (tree.root / name).write_text("not UTF-8")
    (tree.root / "loop").symlink_to("loop")
    (tree.root / "up").symlink_to("..")
    os.mkfifo(tree.root / "pipe")
    (tree.root / "secret").write_text("s")
    (tree.root / "secret").chmod(0)
    for path in (name, "loop", "up", "pipe", "secret"):
        tree.carry(path)
    let_clock_tick()
    shell(tree, "rm -f loop && mkfifo p2 && echo n > n")
    first = tree.snapshot()
    shell(tree, "rm -f n")
    tree.restore(first)
    assert kinds(tree) == {"loop": ChangeKind.REMOVED, "n": ChangeKind.ADDED}


def test_an_unknown_checkpoint_is_named_with_those_there_are(tree: ShadowTree) -> None:
    tree.snapshot()
    with pytest.raises(CheckpointUnknown, match="c1"):
        tree.restore("c9")


def test_a_shadow_is_opened_again_after_its_process_was_killed(tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "state"
    root.mkdir()
    fill(root)
    let_clock_tick()
    tree = opened_tree(root, state, Mechanism.OVERLAY)
    shell(tree, "sed -i s/1/one/ a.py")
    tree.mounted.holder.kill()
    tree.mounted.holder.wait()
    tree.close()
    (root / "a.py").write_text("1\n2\n3\n4\nfive\n")
    again = ShadowTree(root=root, state=state, mechanism=Mechanism.OVERLAY)
    try:
        again.carry("a.py")
        assert again.folder.read_text("a.py") == "one\n2\n3\n4\nfive\n"
    finally:
        again.close()
        erase_tree(state)


# Anything may happen in any order.

NAMES = st.sampled_from(["a.py", "pkg", "pkg/b.py", "pkg/deep", "pkg/deep/c.py", "link", "n", "n/m", "n/m/x"])
WRITE = st.tuples(st.sampled_from(["write", "append", "replace"]), NAMES, st.sampled_from(["x", "y", "zz"]))
OTHER = st.tuples(st.sampled_from(["remove", "mkdir", "link", "move", "mode"]), NAMES, NAMES)
ACTION = st.one_of(WRITE, OTHER)
STEP = st.tuples(st.sampled_from(["agent", "agent", "user", "snapshot", "restore"]), ACTION)

LINES = {
    "write": 'mkdir -p "$(dirname "$1")" && printf "%s\\n" "$2" > "$1"',
    "append": 'printf "%s\\n" "$2" >> "$1"',
    "replace": 'printf "%s\\n" "$2" > t.tmp && mv -T t.tmp "$1"',
    "remove": 'rm -rf "$1"',
    "mkdir": 'mkdir -p "$1"',
    "link": 'ln -sfn "$2" "$1"',
    "move": 'mv -T "$1" "$2"',
    "mode": 'chmod 700 "$1"',
}


# The user does nothing while the agent does something.
HOUR_NS = 3_600 * 10**9


def act(folder: Path, enter: tuple[str, ...], action: tuple[str, str, str]) -> None:
    """A shell does it, and may fail to."""
    kind, first, second = action
    line = f'cd "$0" && {{ {LINES[kind]}; }} 2>/dev/null; true'
    subprocess.run([*enter, "sh", "-c", line, str(folder), first, second], check=True)


def apply_changes(tree: ShadowTree, target: Path) -> None:
    """What landing does, on a copy of the user's tree."""
    changes = [change for path in tree.changed_paths() if (change := tree.change(path))]
    for change in sorted(changes, key=lambda change: change.path, reverse=True):
        if change.kind is not ChangeKind.ADDED:
            (target / change.path).unlink()
            for parent in (target / change.path).parents:
                if parent == target or any(parent.iterdir()):
                    break
                if not (tree.folder.view / parent.relative_to(target)).is_dir():
                    parent.rmdir()
    for change in changes:
        if change.after is None:
            continue
        place = target / change.path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(change.mode):
            place.symlink_to(os.fsdecode(change.after))
        else:
            place.write_bytes(change.after)
            place.chmod(stat.S_IMODE(change.mode))


def files_of(shown: Picture) -> Picture:
    return {path: entry for path, entry in shown.items() if not stat.S_ISDIR(entry[0])}


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(steps=st.lists(STEP, min_size=3, max_size=14))
def test_whatever_happens_the_users_tree_is_only_changed_by_the_user(
    tmp_path: Path, steps: list[tuple[str, tuple[str, str, str]]]
) -> None:
    place = tmp_path / str(time.monotonic_ns())
    root, twin = place / "root", place / "twin"
    root.mkdir(parents=True)
    fill(root)
    shutil.copytree(root, twin, symlinks=True)
    tree = opened_tree(root, place / "state", Mechanism.OVERLAY)
    kept: dict[str, Picture] = {}
    try:
        for who, action in steps:
            if who == "agent":
                act(root, tree.mounted.enter, action)
                tree.notice(pending=(), since_ns=time.time_ns() + HOUR_NS)
            elif who == "user" and not kept:
                act(root, (), action)
                act(twin, (), action)
                for path in sorted(picture(root).keys() | {"a.py", "pkg", "link", "n", action[1], action[2]}):
                    tree.carry(path)
            elif who == "snapshot":
                kept[tree.snapshot()] = picture(tree.folder.view)
            elif who == "restore" and kept:
                checkpoint = next(iter(kept))
                tree.restore(checkpoint)
                assert picture(tree.folder.view) == kept[checkpoint]
            assert picture(root) == picture(twin)
        if not any(who == "user" for who, _ in steps):
            apply_changes(tree, twin)
            assert files_of(picture(twin)) == files_of(picture(tree.folder.view))
    finally:
        tree.close()
        erase_tree(place)
