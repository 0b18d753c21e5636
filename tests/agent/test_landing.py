"""Changes are landed on real trees, and taken back; the processes that crash on the way are real, too."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.landing import Outcome, hunks, land, plan, recover, undo
from etude.edits import patch_from_texts
from etude.errors import FileNotWritable, FileUnusable, InputError
from etude.workspace.workspace import ChangeKind, FileChange

FILE = 0o100644

# A tree as path → (mode, content); folders are those of its files.
Tree = dict[str, tuple[int, bytes]]


def tree_at(root: Path) -> Tree:
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in [*files, *(name for name in folders if (Path(folder) / name).is_symlink())]:
            path = Path(folder) / name
            mode = path.lstat().st_mode
            content = os.fsencode(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes()
            found[str(path.relative_to(root))] = (mode, content)
    return found


def folders_at(root: Path) -> dict[str, int]:
    below = (Path(folder) / name for folder, folders, _ in os.walk(root) for name in folders)
    return {str(path.relative_to(root)): path.lstat().st_mode for path in below}


def write_tree(root: Path, tree: Tree) -> None:
    for path, (mode, content) in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(mode):
            (root / path).symlink_to(os.fsdecode(content))
        else:
            (root / path).write_bytes(content)
            (root / path).chmod(stat.S_IMODE(mode))


def changes_between(before: Tree, after: Tree) -> list[FileChange]:
    found = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old != new:
            kind = ChangeKind.ADDED if not old else ChangeKind.MODIFIED if new else ChangeKind.REMOVED
            mode, content = new or (0, None)
            mode_before, content_before = old or (None, None)
            found.append(
                FileChange(
                    path=path, kind=kind, before=content_before, after=content, mode=mode, mode_before=mode_before
                )
            )
    return found


def modified(path: str, before: bytes, after: bytes, **more) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.MODIFIED, before=before, after=after, **more)


def added(path: str, after: bytes, mode: int = FILE) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.ADDED, before=None, after=after, mode=mode)


def removed(path: str, before: bytes) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.REMOVED, before=before, after=None, mode=0)


@pytest.fixture(autouse=True)
def state(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("ETUDE_STATE", str(folder))
    return folder


def landed(root: Path, *changes: FileChange, **options):
    return asyncio.run(land(changes, root, **options))


def outcomes(report) -> dict[str, Outcome]:
    return {file.path: file.outcome for file in report.files}


BASE = b"one\ntwo\nthree\nfour\nfive\n"
AGENT = b"ONE\ntwo\nthree\nfour\nFIVE\n"


def test_a_clean_file_a_new_one_and_a_removed_one(tmp_path):
    write_tree(tmp_path, {"a.py": (FILE, BASE), "old/b.py": (FILE, b"b")})
    report = landed(
        tmp_path, modified("a.py", BASE, AGENT), added("new/deep/c.sh", b"c", 0o100755), removed("old/b.py", b"b")
    )
    assert set(outcomes(report).values()) == {Outcome.CLEAN}
    assert tree_at(tmp_path) == {"a.py": (FILE, AGENT), "new/deep/c.sh": (0o100755, b"c")}
    assert not (tmp_path / "old").exists()


def test_hunks_are_accepted_one_by_one(tmp_path):
    write_tree(tmp_path, {"a.py": (FILE, BASE)})
    change = modified("a.py", BASE, AGENT)
    edits = [hunk.edit for hunk in hunks(change)]
    assert edits == [*patch_from_texts("a.py", BASE.decode(), AGENT.decode()).edits]
    landed(tmp_path, change, accepted={"a.py": [1]})
    assert (tmp_path / "a.py").read_bytes() == BASE.replace(b"five", b"FIVE")


def test_what_the_person_changed_meanwhile_is_kept(tmp_path):
    theirs = BASE.replace(b"three", b"3")
    write_tree(tmp_path, {"a.py": (0o100755, theirs)})
    report = landed(tmp_path, modified("a.py", BASE, AGENT, mode_before=FILE))
    assert outcomes(report) == {"a.py": Outcome.MERGED}
    assert tree_at(tmp_path) == {"a.py": (0o100755, AGENT.replace(b"three", b"3"))}


def test_a_conflict_is_reported_with_both_versions_and_the_rest_is_landed(tmp_path):
    theirs = BASE.replace(b"one", b"eins")
    write_tree(tmp_path, {"a.py": (FILE, theirs)})
    changes = modified("a.py", BASE, AGENT), added("b.py", b"b")
    report = landed(tmp_path, *changes)
    assert outcomes(report) == {"a.py": Outcome.CONFLICT, "b.py": Outcome.CLEAN}
    (conflict,) = report.conflicts
    assert (conflict.before.content, conflict.after.content) == (theirs, AGENT)
    assert conflict.reason == "Both you and the agent changed the same lines of a.py."
    assert tree_at(tmp_path) == {"a.py": (FILE, theirs), "b.py": (FILE, b"b")}
    again = landed(tmp_path, *changes, overwrite=["a.py"])
    assert outcomes(again) == {"a.py": Outcome.CLEAN, "b.py": Outcome.SAME}
    assert (tmp_path / "a.py").read_bytes() == AGENT


@pytest.mark.parametrize(
    ("theirs", "change", "reason"),
    [
        ({}, modified("a", BASE, AGENT), "The agent changed a, and you have removed it."),
        ({"a": (FILE, b"x")}, removed("a", BASE), "The agent removed a, and you have changed it."),
        ({"a": (FILE, b"x")}, added("a", b"y"), "a is new in your tree, too, and different."),
        ({"a/x": (FILE, b"x")}, modified("a", BASE, AGENT), "a is a folder, or no file at all, in your tree."),
        ({"a/x": (FILE, b"x")}, added("a", b"y"), "a is a folder, or no file at all, in your tree."),
        ({"a": (FILE, b"x")}, added("a/b", b"y"), "A folder on the way to a/b is a link or a file in your tree"),
        ({"a": (FILE, b"\0x")}, modified("a", b"\0", b"\0y"), "Both you and the agent changed the same lines of a."),
        ({"a": (0o120777, b"b")}, modified("a", BASE, AGENT), "Both you and the agent changed a, and one of"),
        ({"a": (FILE, BASE)}, modified("a", BASE, b"b", mode=0o120777, mode_before=0o120777), "Both you and the agent"),
        ({"a": (FILE, b"x" * 3_000_000)}, modified("a", BASE, AGENT), "a is too large in your tree to be merged."),
        ({"a": (FILE, b"x")}, FileChange(path="a", kind=ChangeKind.MODIFIED, before=None, after=b"y"), "a is too lar"),
    ],
)
def test_conflicts_leave_everything_as_it_is(tmp_path, theirs, change, reason):
    write_tree(tmp_path, theirs)
    report = landed(tmp_path, change)
    assert [file.outcome for file in report.files] == [Outcome.CONFLICT]
    assert report.files[0].reason.startswith(reason)
    assert tree_at(tmp_path) == theirs


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", ".", "a//b", ".git/hooks/x", "sub/.GIT/config"])
def test_paths_outside_and_git_are_refused(tmp_path, path):
    report = landed(tmp_path, added(path, b"x"), removed(path, b"x"))
    assert {file.outcome for file in report.files} == {Outcome.REFUSED}
    assert tree_at(tmp_path) == {}


def test_no_link_is_followed_on_the_way(tmp_path):
    root, outside = tmp_path / "tree", tmp_path / "outside"
    root.mkdir()
    write_tree(outside, {"a": (FILE, BASE)})
    (root / "link").symlink_to("../outside")
    report = landed(root, modified("link/a", BASE, AGENT), added("link/b", b"b"), removed("link/a", BASE))
    assert {file.outcome for file in report.files} == {Outcome.CONFLICT}
    assert tree_at(outside) == {"a": (FILE, BASE)}


def test_a_link_is_replaced_and_its_target_is_not_touched(tmp_path):
    write_tree(tmp_path, {"target": (FILE, BASE), "link": (0o120777, b"target")})
    link = modified("link", b"target", AGENT, mode=FILE, mode_before=0o120777)
    report = landed(tmp_path, link, added("new", b"nowhere", 0o120777))
    assert {file.outcome for file in report.files} == {Outcome.CLEAN}
    expected = {"target": (FILE, BASE), "link": (FILE, AGENT), "new": (0o120777, b"nowhere")}
    assert tree_at(tmp_path) == expected


def test_permissions_alone_are_a_hunk(tmp_path):
    write_tree(tmp_path, {"run.sh": (FILE, BASE)})
    change = modified("run.sh", BASE, BASE, mode=0o104755, mode_before=FILE)
    assert [hunk.edit for hunk in hunks(change)] == [None]
    report = landed(tmp_path, change, accepted={"run.sh": [0]})
    assert tree_at(tmp_path) == {"run.sh": (0o100755, BASE)}
    asyncio.run(undo(report))
    assert tree_at(tmp_path) == {"run.sh": (FILE, BASE)}


def test_ignored_files_are_landed_only_by_name(tmp_path):
    change = FileChange(path="cache", kind=ChangeKind.ADDED, before=None, after=b"c", ignored=True)
    assert outcomes(landed(tmp_path, change)) == {"cache": Outcome.LEFT_OUT}
    assert outcomes(landed(tmp_path, change, accepted={"cache": [0]})) == {"cache": Outcome.CLEAN}


def test_a_moved_file_stays_where_it_is_if_its_new_place_is_taken(tmp_path):
    write_tree(tmp_path, {"a": (FILE, BASE), "b": (FILE, b"mine")})
    report = landed(tmp_path, removed("a", BASE), added("b", BASE))
    assert set(outcomes(report).values()) == {Outcome.CONFLICT}
    assert tree_at(tmp_path) == {"a": (FILE, BASE), "b": (FILE, b"mine")}


def test_what_the_person_did_to_a_file_that_the_agent_moved_goes_along(tmp_path):
    write_tree(tmp_path, {"old.py": (FILE, BASE.replace(b"three", b"3"))})
    moved = removed("old.py", BASE), added("new.py", BASE.replace(b"one", b"1")), added("other.py", b"x\n")
    report = landed(tmp_path, *moved)
    assert outcomes(report) == {"new.py": Outcome.MERGED, "old.py": Outcome.CLEAN, "other.py": Outcome.CLEAN}
    assert tree_at(tmp_path) == {
        "new.py": (FILE, b"1\ntwo\n3\nfour\nfive\n"),
        "other.py": (FILE, b"x\n"),
    }
    asyncio.run(undo(report))
    assert tree_at(tmp_path) == {"old.py": (FILE, BASE.replace(b"three", b"3"))}


def test_a_moved_file_that_both_changed_alike_stays_in_both_places(tmp_path):
    theirs = BASE.replace(b"one", b"eins")
    write_tree(tmp_path, {"old.py": (FILE, theirs)})
    report = landed(tmp_path, removed("old.py", BASE), added("new.py", BASE.replace(b"one", b"1")))
    assert outcomes(report) == {"new.py": Outcome.CLEAN, "old.py": Outcome.CONFLICT}
    assert (tmp_path / "old.py").read_bytes() == theirs


@pytest.mark.parametrize(
    ("accepted", "message"),
    [
        ({"b.py": [0]}, "'b.py' is accepted, but the agent did not change it"),
        ({"a.py": [2]}, "a.py has 2 hunks, numbered from 0; there is no hunk 2"),
        ({"a.py": [-1]}, "there is no hunk -1"),
    ],
)
def test_hunks_that_do_not_exist_are_an_error_and_nothing_is_written(tmp_path, accepted, message):
    write_tree(tmp_path, {"a.py": (FILE, BASE)})
    with pytest.raises(InputError, match=message):
        landed(tmp_path, modified("a.py", BASE, AGENT), accepted=accepted)
    assert tree_at(tmp_path) == {"a.py": (FILE, BASE)}


def test_read_only_files_and_folders_are_refused(tmp_path):
    write_tree(tmp_path, {"a": (0o100444, BASE), "locked/b": (FILE, BASE)})
    (tmp_path / "locked").chmod(0o555)
    report = landed(tmp_path, modified("a", BASE, AGENT), removed("locked/b", BASE), added("locked/c", b""))
    (tmp_path / "locked").chmod(0o755)
    assert {file.outcome for file in report.files} == {Outcome.REFUSED}
    assert report.files[0].reason == "a is read-only. Make it writable (chmod u+w) and land again."


def test_owner_and_attributes_of_a_file_are_kept(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(BASE)
    try:
        os.setxattr(file, "user.note", b"mine")
        os.chown(file, 12345, 12345)
    except OSError:
        pytest.skip("this disk or user cannot")
    landed(tmp_path, modified("a", BASE, AGENT))
    assert (file.stat().st_uid, os.getxattr(file, "user.note")) == (12345, b"mine")


def test_a_missing_root_is_said(tmp_path):
    with pytest.raises(FileUnusable, match="cannot be read"):
        landed(tmp_path / "missing", added("a", b""))


def test_undo_leaves_alone_what_was_changed_since(tmp_path):
    write_tree(tmp_path, {"a": (FILE, BASE), "b": (FILE, BASE), "gone/c": (FILE, BASE)})
    (tmp_path / "gone").chmod(0o700)
    report = landed(
        tmp_path,
        modified("a", BASE, AGENT),
        modified("b", BASE, AGENT),
        removed("gone/c", BASE),
        added("new/d", b"d"),
        added("kept/e", b"e"),
    )
    (tmp_path / "b").write_bytes(b"mine")
    (tmp_path / "kept/own").write_bytes(b"mine")
    back = asyncio.run(undo(report))
    assert outcomes(back) == dict.fromkeys(("a", "gone/c", "kept/e", "new/d"), Outcome.CLEAN) | {"b": Outcome.CONFLICT}
    assert tree_at(tmp_path) == {
        "a": (FILE, BASE),
        "b": (FILE, b"mine"),
        "gone/c": (FILE, BASE),
        "kept/own": (FILE, b"mine"),
    }
    assert {path: stat.S_IMODE(mode) for path, mode in folders_at(tmp_path).items()} == {"gone": 0o700, "kept": 0o755}


def test_a_full_disk_leaves_the_tree_as_it_was(tmp_path):
    program = f"""
import asyncio, pathlib, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_landing as t
from etude.errors import FileNotWritable
root = pathlib.Path(sys.argv[1])
t.write_tree(root, {{"a": (t.FILE, t.BASE), "b": (t.FILE, t.BASE)}})
try:
    t.landed(root, t.modified("a", t.BASE, t.AGENT), t.removed("b", t.BASE), t.added("big/c", b"x" * 500_000))
except FileNotWritable as error:
    print(error)
assert t.tree_at(root) == {{"a": (t.FILE, t.BASE), "b": (t.FILE, t.BASE)}}, t.tree_at(root)
assert t.folders_at(root) == {{}}
"""
    mount = 'mount -t tmpfs -o size=256k tmpfs "$1" && exec "$2" -c "$3" "$1"'
    enter = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces")
    argv = [*enter, "sh", "-c", mount, "sh", tmp_path, sys.executable, program]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "big/c was not written: No space left on device" in result.stdout


# A child of this program dies at its n-th step that changes something on disk.
DIES = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_landing as t
from etude.agent.landing import journals_folder
from pathlib import Path

def die_at(root, number):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [number]
    def deadly(call):
        def counted(*arguments, **options):
            left[0] -= 1
            return call(*arguments, **options) if left[0] >= 0 else os._exit(9)
        return counted
    for name in ("mkdir", "rmdir", "link", "rename", "unlink", "symlink", "fsync"):
        setattr(os, name, deadly(getattr(os, name)))
    t.landed(root, *t.CRASH_CHANGES)
    os._exit(0)
"""
CRASH_BEFORE: Tree = {"a": (FILE, BASE), "b": (FILE, b"b"), "c/d/e": (FILE, b"e"), "f": (0o120777, b"a")}
CRASH_AFTER: Tree = {"a": (0o100755, AGENT), "b/g": (FILE, b"g"), "c": (FILE, b"c"), "f": (0o120777, b"c")}
CRASH_CHANGES = changes_between(CRASH_BEFORE, CRASH_AFTER)


def run_dying(state: Path, program: str, *arguments: object) -> str:
    argv = [sys.executable, "-c", DIES + program, str(Path(__file__).parent), *map(str, arguments)]
    environment = os.environ | {"ETUDE_STATE": str(state)}
    result = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_crash_at_any_point_is_taken_back_or_was_the_end(tmp_path, state):
    program = """
code, number, seen = 9, 0, set()
while code == 9:
    root = Path(sys.argv[2]) / str(number)
    t.write_tree(root, t.CRASH_BEFORE)
    (root / "c/d").chmod(0o710)
    folders = t.folders_at(root)
    code = die_at(root, number)
    t.recover()
    tree = t.tree_at(root)
    assert tree in (t.CRASH_BEFORE, t.CRASH_AFTER), (number, tree)
    assert tree == t.CRASH_AFTER or t.folders_at(root) == folders, number
    assert not [*journals_folder().glob("*")]
    seen.add((code, tree == t.CRASH_AFTER))
    number += 1
print(number > 20, sorted(seen))
"""
    assert run_dying(state, program, tmp_path) == "True [(0, True), (9, False), (9, True)]\n"


def test_what_the_person_saved_after_a_crash_is_not_taken_back(tmp_path, state):
    write_tree(tmp_path, CRASH_BEFORE)
    # Late enough for "a" to be written, and too early for the end.
    program = """
import itertools
for number in itertools.count():
    assert die_at(Path(sys.argv[2]), number) == 9
    if (Path(sys.argv[2]) / "a").read_bytes() == t.AGENT:
        break
    t.recover()
"""
    run_dying(state, program, tmp_path)
    (tmp_path / "a").write_bytes(b"mine")
    assert recover() == [tmp_path]
    assert tree_at(tmp_path) == CRASH_BEFORE | {"a": (0o100755, b"mine")}


def test_what_cannot_be_put_back_is_kept_until_it_can(tmp_path, state, monkeypatch):
    write_tree(tmp_path, CRASH_BEFORE)
    rename = os.rename

    def failing(source, target, **options):
        # The disk goes bad after some steps, and for good.
        if target in ("a", "f") or str(source).endswith(".old"):
            raise OSError(5, "Input/output error")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(FileNotWritable, match=r"a was not written: Input.*Not all could be put back"):
        landed(tmp_path, *CRASH_CHANGES)
    monkeypatch.undo()
    assert tree_at(tmp_path) != CRASH_BEFORE
    assert recover(state / "landings") == [tmp_path]
    assert tree_at(tmp_path) == CRASH_BEFORE
    assert recover(state / "landings") == []


def test_a_person_who_saves_in_the_middle_is_taken_into_account(tmp_path, monkeypatch):
    write_tree(tmp_path, {"a": (FILE, BASE), "b": (FILE, BASE), "c": (FILE, BASE)})
    link, saves = os.link, iter([True])

    def interrupted(source, target, **options):
        if next(saves, False):
            (tmp_path / "b").write_bytes(BASE.replace(b"three", b"3"))
            (tmp_path / "c").unlink()
        link(source, target, **options)

    monkeypatch.setattr(os, "link", interrupted)
    report = landed(tmp_path, *(modified(path, BASE, AGENT) for path in "abc"))
    assert outcomes(report) == {"a": Outcome.CLEAN, "b": Outcome.MERGED, "c": Outcome.CONFLICT}
    assert tree_at(tmp_path) == {"a": (FILE, AGENT), "b": (FILE, AGENT.replace(b"three", b"3"))}


# Properties.

NAMES = ["a", "b", "a/b", "a/c", "b/a/c", "n\udcff"]
NODES = st.one_of(
    st.tuples(
        st.sampled_from([FILE, 0o100755, 0o100600]),
        st.lists(st.sampled_from([b"x\n", b"y\n", b"\n", b"z\r\n"]), max_size=8).map(b"".join),
    ),
    st.tuples(st.just(FILE), st.sampled_from([b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbfx\n"])),
    st.tuples(st.just(0o120777), st.sampled_from([b"a", b"nowhere", b"../.."])),
)


def _without_clashes(tree: Tree) -> Tree:
    return {path: node for path, node in tree.items() if not any(path.startswith(f"{other}/") for other in tree)}


TREES = st.dictionaries(st.sampled_from(NAMES), NODES, max_size=6).map(_without_clashes)


class Place:
    """A tree on disk for one example."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __enter__(self) -> Path:
        self.root = Path(tempfile.mkdtemp())
        write_tree(self.root, self.tree)
        return self.root

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root)


@settings(max_examples=100)
@given(user=TREES, agent=TREES)
def test_landing_everything_on_an_unchanged_tree_gives_the_agents_and_undo_the_persons(user, agent):
    changes = changes_between(user, agent)
    with Place(user) as root:
        folders = folders_at(root)
        everything = {change.path: range(len(hunks(change))) for change in changes}
        report = landed(root, *changes, accepted=everything)
        assert tree_at(root) == agent
        assert all(file.outcome is Outcome.CLEAN for file in report.files)
        asyncio.run(undo(report))
        assert tree_at(root) == user
        assert folders_at(root) == folders


@settings(max_examples=100)
@given(user=TREES, agent=TREES)
def test_landing_nothing_changes_nothing(user, agent):
    changes = changes_between(user, agent)
    with Place(user) as root:
        landed(root, *changes, accepted={change.path: [] for change in changes})
        landed(root, *changes, accepted={})
        assert tree_at(root) == user


@settings(max_examples=100)
@given(base=TREES, user=TREES, agent=TREES)
def test_a_tree_that_changed_loses_nothing_of_the_persons(base, user, agent):
    changes = changes_between(base, agent)
    with Place(user) as root:
        expected = plan(changes, root)
        report = landed(root, *changes)
        assert [*report.files] == expected
        now = tree_at(root)
        for path in user.keys() - {file.path for file in report.written}:
            assert now[path] == user[path]
        for file in report.written:
            known, had = base.get(file.path, (0, None)), user.get(file.path, (0, None))
            is_moved = not file.after.mode and any(other.outcome is Outcome.MERGED for other in report.written)
            assert known[1] == had[1] or file.outcome is Outcome.MERGED or file.after.content == had[1] or is_moved
        asyncio.run(undo(report))
        assert tree_at(root) == user
