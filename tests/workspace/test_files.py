"""Files on a real disk: what is kept, what is refused, what a crash leaves."""

import os
import resource
import signal
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import FileChanged, FileNotWritable, FileUnusable, OutsideRoot
from etude.workspace.files import create, read_text_file, remove, save, within

BOM = b"\xef\xbb\xbf"
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away or mount")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pay.py"
    path.write_bytes(b"total = 0\n")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What is kept.


@pytest.mark.parametrize(
    "data",
    [b"", b"a", b"a\n", b"a\r\nb\r\n", b"a\r\nb\nc\rd", b"\ta\xc2\xa0\n\n\n", BOM, BOM + b"a\r\n", BOM + BOM + b"a"],
)
def test_only_the_changed_bytes_change(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    file = read_text_file(path)
    save(file, file.text + "é")
    assert path.read_bytes() == data + "é".encode()
    assert names(tmp_path) == ["a.txt"]


@given(data=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_what_can_be_read_can_be_written_back(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("files") / "a.txt"
    path.write_bytes(data)
    try:
        file = read_text_file(path)
    except FileUnusable:
        return
    saved = save(save(file, file.text + "x"), file.text)
    assert path.read_bytes() == data
    assert (saved.sha256, saved.text, saved.bom) == (file.sha256, file.text, file.bom)


def test_a_saved_file_can_be_saved_again(file: Path) -> None:
    first = save(read_text_file(file), "total = 1\n")
    assert first == read_text_file(file)
    assert save(first, "total = 2\n") == read_text_file(file)


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o640, 0o200, 0o4755])
def test_the_mode_is_kept(file: Path, mode: int) -> None:
    if mode == 0o200 and os.getuid() != 0:
        pytest.skip("only root reads what is not readable")
    file.chmod(mode)
    saved = save(read_text_file(file), "new\n")
    assert (file.stat().st_mode & 0o7777, saved.mode) == (mode, mode)


@AS_ROOT
def test_the_owner_is_kept(file: Path) -> None:
    os.chown(file, 12345, 23456)
    save(read_text_file(file), "new\n")
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_a_symlink_stays_one_and_its_target_is_replaced(tmp_path: Path, file: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.py"
    link.symlink_to("../pay.py")
    opened = read_text_file(link)
    save(opened, "new\n")
    assert (opened.path, opened.real_path) == (link, file)
    assert (link.readlink(), file.read_text("utf-8")) == (Path("../pay.py"), "new\n")
    assert names(tmp_path / "folder") == ["link.py"]


def test_other_names_of_a_file_keep_the_old_content(tmp_path: Path, file: Path) -> None:
    backup = tmp_path / "backup.py"
    backup.hardlink_to(file)
    opened = read_text_file(file)
    saved = save(opened, "new\n")
    assert (opened.num_links, saved.num_links) == (2, 1)
    assert (file.read_text("utf-8"), backup.read_text("utf-8")) == ("new\n", "total = 0\n")


def test_saving_the_same_text_touches_nothing(file: Path) -> None:
    opened = read_text_file(file)
    before = file.stat()
    assert save(opened, opened.text) == opened
    assert file.stat() == before


# What is refused before anything is read.


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"abc\0def", "byte 3 is NUL"),
        (b"ok\n\xff\n", "byte 3 is 0xff"),
        (b"caf\xe9", "byte 3 is 0xe9"),
        (BOM + b"caf\xe9", "byte 6 is 0xe9"),
        (b"\xed\xa0\x80", "byte 0 is 0xed"),
        ("hi".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_not_utf_8_text_is_refused_by_offset(file: Path, data: bytes, words: str) -> None:
    file.write_bytes(data)
    with pytest.raises(FileUnusable, match=words):
        read_text_file(file)


def test_a_large_file_is_refused_without_being_read(file: Path) -> None:
    os.truncate(file, 50_000_000)
    tracemalloc.start()
    with pytest.raises(FileUnusable, match=r"has 50\.0 MB; files up to 10 MB"):
        read_text_file(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_the_limit_can_be_given(file: Path) -> None:
    assert read_text_file(file, max_bytes=10).text == "total = 0\n"
    with pytest.raises(FileUnusable):
        read_text_file(file, max_bytes=9)


@pytest.mark.timeout(10)
def test_what_is_not_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(tmp_path / "socket"))
        for path, kind in [
            (tmp_path / "pipe", "a pipe"),
            (tmp_path / "socket", "a socket"),
            (tmp_path, "a folder"),
            (Path("/dev/zero"), "a device"),
        ]:
            with pytest.raises(FileUnusable, match=kind):
                read_text_file(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc on this system")
@pytest.mark.parametrize("name", ["status", "mem", "environ"])
def test_files_made_up_by_the_system_are_refused(name: str) -> None:
    with pytest.raises(FileUnusable):
        read_text_file(Path("/proc/self") / name)


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path, file: Path) -> None:
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    for path, words in [
        (tmp_path / "missing", "does not exist"),
        (tmp_path / "dangling", "is a link to gone, which does not exist"),
        (tmp_path / "loop", "cannot be read"),
        (file / "below", "cannot be read"),
        (tmp_path / ("a" * 300), "cannot be read"),
        (tmp_path / "a\0b", "is not a path"),
        (tmp_path / "a\ud800b", "is not a path"),
    ]:
        with pytest.raises(FileUnusable, match=words):
            read_text_file(path)


# What is refused before anything is written.


def assert_save_fails(path: Path, text: str, error: type[Exception], words: str) -> None:
    opened = read_text_file(path)
    before = names(path.parent)
    with pytest.raises(error, match=words):
        save(opened, text)
    assert path.read_bytes() == opened.text.encode()
    assert names(path.parent) == before


@pytest.mark.parametrize(
    ("text", "words"), [("ab\ud800", r"character 2 .* \(U\+D800\)"), ("a\0", "character 1 .* NUL")]
)
def test_text_that_no_text_file_can_hold_is_refused(file: Path, text: str, words: str) -> None:
    assert_save_fails(file, text, FileNotWritable, words)
    with pytest.raises(FileNotWritable, match=words):
        create(file.parent / "new.py", text)


def test_a_read_only_file_is_refused_even_for_root(file: Path) -> None:
    file.chmod(0o444)
    assert_save_fails(file, "new\n", FileNotWritable, "the file .* is read-only")


def test_a_file_in_a_read_only_folder_is_refused_even_for_root(tmp_path: Path, file: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        assert_save_fails(file, "new\n", FileNotWritable, "the folder .* is read-only")
    finally:
        tmp_path.chmod(0o755)


def test_a_file_changed_by_someone_else_is_not_overwritten(file: Path) -> None:
    opened = read_text_file(file)
    status = file.stat()
    file.write_bytes(b"total = 1\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(FileChanged, match="changed by someone else"):
        save(opened, "new\n")
    assert file.read_bytes() == b"total = 1\n"


def test_a_changed_file_is_not_overwritten_when_nothing_is_to_be_saved(file: Path) -> None:
    opened = read_text_file(file)
    file.write_bytes(b"total = 1\n")
    with pytest.raises(FileChanged):
        save(opened, opened.text)


def test_a_deleted_file_does_not_come_back(file: Path) -> None:
    opened = read_text_file(file)
    file.unlink()
    with pytest.raises(FileChanged, match="was deleted"):
        save(opened, "new\n")
    assert names(file.parent) == []


def test_a_link_that_points_elsewhere_now_is_not_followed(tmp_path: Path, file: Path) -> None:
    link, other = tmp_path / "link", tmp_path / "other.py"
    other.write_bytes(file.read_bytes())
    link.symlink_to(file)
    opened = read_text_file(link)
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(FileChanged, match="now points to"):
        save(opened, "new\n")
    assert file.read_bytes() == other.read_bytes() == b"total = 0\n"


def test_a_file_that_became_a_folder_is_not_overwritten(file: Path) -> None:
    opened = read_text_file(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(FileChanged, match="became unreadable"):
        save(opened, "new\n")


# What a full disk and a crash leave.


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "etude-test", os.fspath(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", os.fspath(folder)], check=True)


@AS_ROOT
def test_a_full_disk_leaves_the_old_file(tiny_disk: Path) -> None:
    file = tiny_disk / "a.py"
    file.write_bytes(b"old\n" * 1000)
    assert_save_fails(file, "new\n" * 50_000, FileNotWritable, "No space left on device. Free some space")
    with pytest.raises(FileNotWritable, match="No space left"):
        create(tiny_disk / "b.py", "new\n" * 50_000)
    assert names(tiny_disk) == ["a.py"]


def test_a_limit_on_file_sizes_leaves_the_old_file(file: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert_save_fails(file, "new\n" * 2000, FileNotWritable, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


SAVES_AND_DIES = """
import os, signal, sys
from pathlib import Path
from etude.workspace.files import read_text_file, remove, save
path, event, old, new = Path(sys.argv[1]), sys.argv[2], "old\\n" * 100_000, "new\\n" * 100_000
file = read_text_file(path)
sys.addaudithook(lambda name, args: name == event and os.kill(os.getpid(), signal.SIGKILL))
save(file, new)
"""


@pytest.mark.parametrize("event", ["os.chmod", "os.utime", "os.rename", "os.remove"])
def test_kill_9_in_the_middle_of_a_save_leaves_a_whole_file(file: Path, event: str) -> None:
    old, new = "old\n" * 100_000, "new\n" * 100_000
    file.write_text(old, "utf-8")
    done = subprocess.run([sys.executable, "-c", SAVES_AND_DIES, os.fspath(file), event])
    assert done.returncode == -signal.SIGKILL
    assert file.read_text("utf-8") == (new if event == "os.remove" else old)


SAVES_FOREVER = """
import sys
from pathlib import Path
from etude.workspace.files import read_text_file, remove, save
file = read_text_file(Path(sys.argv[1]))
while True:
    for letter in "ab":
        file = save(file, letter * 1_000_000)
        print(letter, flush=True)
"""


def test_kill_9_at_any_moment_leaves_a_whole_file(file: Path) -> None:
    file.write_text("b" * 1_000_000, "utf-8")
    for num_saves in range(1, 6):
        command = [sys.executable, "-c", SAVES_FOREVER, os.fspath(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            for _ in range(num_saves):
                process.stdout.readline()
            process.kill()
        text = file.read_text("utf-8")
        assert text in ("a" * 1_000_000, "b" * 1_000_000)


def test_ctrl_c_in_the_middle_leaves_nothing_behind(file: Path) -> None:
    interrupting = SAVES_AND_DIES.replace("SIGKILL", "SIGINT").replace("sys.argv[2]", "'os.rename'")
    done = subprocess.run([sys.executable, "-c", interrupting, os.fspath(file)], stderr=subprocess.PIPE)
    assert b"KeyboardInterrupt" in done.stderr
    assert (file.read_bytes(), names(file.parent)) == (b"total = 0\n", ["pay.py"])


SAVES_WHILE_ANOTHER_WRITES = """
import sys
from pathlib import Path
from etude.errors import FileChanged
from etude.workspace.files import read_text_file, remove, save
path = Path(sys.argv[1])
file = read_text_file(path)
sys.addaudithook(lambda name, args: name == "os.utime" and path.write_text("theirs\\n", "utf-8"))
try:
    save(file, "ours\\n")
except FileChanged as error:
    print(error)
"""


def test_a_file_changed_during_the_save_is_not_overwritten(file: Path) -> None:
    command = [sys.executable, "-c", SAVES_WHILE_ANOTHER_WRITES, os.fspath(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "changed by someone else" in done.stdout
    assert (file.read_text("utf-8"), names(file.parent)) == ("theirs\n", ["pay.py"])


# New files.


def test_a_new_file_is_written_and_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    made = create(path, "é\r\n")
    assert path.read_bytes() == b"\xc3\xa9\r\n"
    save(made, "x")
    assert (path.read_bytes(), names(tmp_path)) == (b"x", ["new.py"])


def test_a_new_file_gets_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        assert create(tmp_path / "new.py", "").mode == 0o640
    finally:
        os.umask(before)


def test_a_new_file_never_replaces_anything(tmp_path: Path, file: Path) -> None:
    (tmp_path / "dangling").symlink_to("gone")
    for taken in (file, tmp_path / "dangling", tmp_path):
        with pytest.raises(FileNotWritable, match="exists already"):
            create(taken, "new\n")
    assert file.read_bytes() == b"total = 0\n"
    assert names(tmp_path) == ["dangling", "pay.py"]


def test_a_new_file_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotWritable, match="Create its folder first"):
        create(tmp_path / "missing" / "new.py", "")


def test_folders_made_for_a_new_file_that_could_not_be_written_are_gone_again(tmp_path: Path, file: Path) -> None:
    for place in (tmp_path / "a" / "b" / ("n" * 300), file / "new.py"):
        with pytest.raises(FileNotWritable):
            create(place, "", make_folders=True)
    assert names(tmp_path) == ["pay.py"]
    assert create(tmp_path / "a" / "b" / "new.py", "x\n", make_folders=True).text == "x\n"


def test_a_file_is_removed_only_as_it_was_read(file: Path) -> None:
    read = read_text_file(file)
    file.write_text("theirs\n", "utf-8")
    with pytest.raises(FileChanged):
        remove(read)
    remove(read_text_file(file))
    assert names(file.parent) == []


# Paths from a wire.


@pytest.mark.parametrize(
    "relative", ["a.py", "folder/a.py", "./a.py", "new/not/there.py", "a b\u2028é.py", "..a", "a/..b"]
)
def test_paths_inside_the_root_are_allowed(tmp_path: Path, relative: str) -> None:
    assert within(tmp_path, relative) == tmp_path / relative


@pytest.mark.parametrize(
    "relative",
    ["", ".", "./", "..", "../a", "a/../../b", "a/..", "/etc/passwd", "//etc/passwd", "a\0b", "\0", "a\ud800"],
)
def test_paths_that_leave_the_root_are_refused(tmp_path: Path, relative: str) -> None:
    with pytest.raises(OutsideRoot):
        within(tmp_path, relative)


@pytest.mark.parametrize(
    "relative", [".git", ".git/config", "a/.GIT/hooks/x", "alias/config", ".git./x", ".git::$INDEX_ALLOCATION/x"]
)
def test_gits_own_folder_counts_as_outside(tmp_path: Path, relative: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "alias").symlink_to(".git")
    with pytest.raises(OutsideRoot, match="git's own"):
        within(tmp_path, relative)
    assert within(tmp_path, ".github/x.yml") == tmp_path / ".github" / "x.yml"
    assert within(tmp_path / ".git", "x") == tmp_path / ".git" / "x"


@pytest.mark.parametrize("relative", ["n" * 300, "d/" * 2000 + "x.py", "loop/x.py"])
def test_paths_that_no_system_can_hold_are_refused_in_short(tmp_path: Path, relative: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutsideRoot) as refused:
        within(tmp_path, relative)
    assert len(str(refused.value)) < 500


def test_links_may_move_inside_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_text("s", "utf-8")
    (tmp_path / "root-2").mkdir()
    (root / "inside").symlink_to("folder")
    (root / "outside").symlink_to("..")
    (root / "sibling").symlink_to("../root-2")
    (root / "file").symlink_to("../secret")
    assert within(root, "inside/a.py") == root / "inside" / "a.py"
    for relative in ("outside/secret", "outside", "file", "sibling/a.py", "inside/../../secret"):
        with pytest.raises(OutsideRoot):
            within(root, relative)


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    assert within(tmp_path / "root", "a.py") == tmp_path / "real" / "a.py"


@given(relative=st.text(alphabet="./a\\ ~\0", max_size=12))
def test_whatever_is_allowed_is_inside(tmp_path_factory: pytest.TempPathFactory, relative: str) -> None:
    root = tmp_path_factory.getbasetemp()
    try:
        path = within(root, relative)
    except OutsideRoot:
        return
    assert Path(os.path.normpath(path)).is_relative_to(root)
    assert Path(os.path.normpath(path)) != root
