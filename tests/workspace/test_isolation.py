"""Commands that behave badly, in a sandbox: what they reach, what they may use, what is left of them."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.errors import InputError, OutsideRoot, SandboxUnavailable
from etude.workspace import control_groups
from etude.workspace.isolation import MAX_LINE_CHARACTERS, Isolation, isolation_problem
from etude.workspace.workspace import Command, CommandLimits, CommandResult, Ending

pytestmark = pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.txt").write_text("A")
    yield tmp_path / "app"
    ours = f"etude-{os.getpid()}-"
    assert not [*control_groups.MOUNT.glob(f"{ours}*"), *control_groups.MOUNT.glob(f"*/{ours}*")]


def run(root: Path, line: str, *, folder: str = ".", network: bool = False, **limits: Any) -> CommandResult:
    async def work() -> CommandResult:
        isolation = Isolation(root=root)
        try:
            limited = CommandLimits(**{"seconds": 60, **limits})
            return await isolation.run(Command(line=line, folder=folder, network=network, limits=limited))
        finally:
            await isolation.close()

    return asyncio.run(work())


def processes_with(text: str) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in words and "pytest" not in words:
            found.append(words)
    return found


def test_a_command_works_in_the_tree_at_its_own_path(root: Path) -> None:
    (root / "sub").mkdir()
    result = run(root, "pwd; cat ../a.txt; echo made > made; echo err >&2; exit 3", folder="sub")
    assert (result.ending, result.exit_code) == (Ending.EXITED, 3)
    assert result.output == f"{root}/sub\nAerr\n"
    assert (root / "sub" / "made").read_text() == "made\n"


def test_a_signal_is_an_exit_code_as_shells_say_it(root: Path) -> None:
    assert run(root, "kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_nothing_of_the_user_is_there_but_the_tree(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("private")
    (tmp_path / "other").write_text("another project")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-ours")
    line = f"cat {home}/.ssh/id {tmp_path}/other /etc/shadow; ls -A ~; env; cat /proc/*/environ | tr '\\0' ' '"
    result = run(root, line)
    for secret in ("private", "another project", "root:", "sk-secret-of-ours", ".ssh\n"):
        assert secret not in result.output


def test_the_system_and_the_kernel_cannot_be_changed(root: Path) -> None:
    tries = [
        "touch /usr/x",
        "touch /etc/x",
        "cat /proc/sys/kernel/randomize_va_space > /proc/sys/kernel/randomize_va_space",
    ]
    tries += ["test -w /proc/sysrq-trigger -a ! -c /proc/sysrq-trigger", "head -c 1 /proc/kcore | grep -q ."]
    tries += ['test -n "$(find /proc/sys /proc/irq -type f -writable -print -quit)"']
    tries += ["mount -t tmpfs none /mnt", "unshare -U true", "mknod d b 8 0", "chroot / true"]
    result = run(root, "\n".join(f"({line}) 2>/dev/null && echo 'could: {line}'" for line in tries))
    assert "could" not in result.output


def test_there_is_no_network_unless_it_is_allowed(root: Path) -> None:
    line = "cat /proc/net/dev | tail -n +3 | grep -v '^ *lo:' | wc -l"
    assert run(root, line).output.strip() == "0"
    wanted = str(sum(not line.strip().startswith("lo:") for line in Path("/proc/net/dev").read_text().splitlines()[2:]))
    assert run(root, line, network=True).output.strip() == wanted


def test_daemons_end_with_the_command(root: Path) -> None:
    mark = "31415.0"
    line = f"(setsid sleep {mark} &) ; nohup sleep {mark} >/dev/null 2>&1 & disown; setsid -f sleep {mark}; echo done"
    assert run(root, line).output == "done\n"
    assert processes_with(mark) == []


def test_a_time_out_hands_back_what_was_printed_and_leaves_nothing(root: Path) -> None:
    mark = "27182.0"
    line = f"trap '' TERM INT HUP; echo before; (setsid sleep {mark} &); sleep {mark}; echo after"
    result = run(root, line, seconds=0.5)
    assert (result.ending, result.exit_code, result.output) == (Ending.TIMED_OUT, None, "before\n")
    assert result.seconds < 5
    assert processes_with(mark) == []


def test_closing_its_output_does_not_end_the_wait(root: Path) -> None:
    assert run(root, "exec >&- 2>&-; sleep 0.2; exit 7").exit_code == 7


def test_a_gigabyte_of_output_is_counted_and_its_ends_are_kept(root: Path) -> None:
    result = run(root, "echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last", output_bytes=2_000)
    assert result.num_output_bytes == 1_000_000_012
    assert result.output.startswith("first\nxxx") and result.output.endswith("x\nlast\n")
    assert len(result.output) < 2_100 and "999,998,012 bytes left out" in result.output


def test_output_that_is_not_text_is_replaced_and_told_in_pieces(root: Path) -> None:
    pieces: list[str] = []

    async def work() -> CommandResult:
        isolation = Isolation(root=root)
        line = "printf 'caf\\303'; sleep 0.1; printf '\\251 \\377'"
        try:
            return await isolation.run(Command(line=line), on_output=pieces.append)
        finally:
            await isolation.close()

    assert asyncio.run(work()).output == "".join(pieces) == "café \ufffd"


def test_too_much_memory_ends_the_command(root: Path) -> None:
    result = run(root, "head -c 900M /dev/zero | tail", memory_bytes=100_000_000)
    assert result.ending is Ending.OUT_OF_MEMORY


def test_a_fork_bomb_is_held_and_goes(root: Path) -> None:
    result = run(root, "bomb() { bomb | bomb & }; bomb; sleep 0.3; echo alive", num_processes=40, seconds=10)
    assert result.ending in (Ending.EXITED, Ending.TIMED_OUT)
    assert processes_with("bomb()") == []


def test_a_file_cannot_outgrow_the_limit(root: Path) -> None:
    run(root, "head -c 50000000 /dev/zero > big", disk_bytes=5_000_000)
    assert (root / "big").stat().st_size <= 5_000_000


def test_temporary_files_are_bounded_and_go(root: Path) -> None:
    result = run(root, "head -c 50000000 /dev/zero > /tmp/big; stat -c %s /tmp/big", disk_bytes=5_000_000)
    assert int(result.output.splitlines()[-1]) <= 5_000_000
    assert run(root, "ls -A /tmp | grep -v app | grep -v pytest").output == ""


def test_what_grows_on_the_disk_is_watched(root: Path) -> None:
    async def work() -> CommandResult:
        isolation = Isolation(root=root, disk_used=lambda: sum(path.stat().st_size for path in root.iterdir()))
        line = "for n in $(seq 200); do head -c 1000000 /dev/zero > f$n; sleep 0.01; done; echo full"
        limits = CommandLimits(disk_bytes=10_000_000)
        try:
            return await isolation.run(Command(line=line, limits=limits))
        finally:
            await isolation.close()

    assert asyncio.run(work()).ending is Ending.OUT_OF_DISK


def test_what_is_opened_is_recorded_even_by_those_who_hide(root: Path) -> None:
    (root / "secret").write_text("leak")
    (root / "sub").mkdir()
    (root / "tool.py").write_text(
        "import os\nos.chdir('sub')\nopen('../secret').read()\nos.rename('../a.txt', 'b.txt')\n"
    )
    line = "ln -s secret alias; cat alias; python3 -I -S tool.py; echo x > sub/new; cat missing; rm sub/new"
    result = run(root, line)
    assert result.opened_known
    opened = {path.path.removeprefix(f"{root}/"): path.written for path in result.opened if not path.written}
    assert {"secret", "alias", "tool.py", "missing"} <= opened.keys()
    written = {path.path.removeprefix(f"{root}/") for path in result.opened if path.written}
    assert {"sub/new", "sub/b.txt", "a.txt", "alias"} <= written


def test_a_record_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.workspace.opened_paths.MAX_PATHS", 100)
    result = run(root, "for n in $(seq 300); do : < a.txt; cat nothing$n 2>/dev/null; done; echo end")
    assert result.output == "end\n" and len(result.opened) == 100
    # What is missing from a full record may have been opened.
    assert not result.opened_known


OPENAT2_ACROSS_PAGES = """
import ctypes, mmap, struct
pages = mmap.mmap(-1, 8192)
start = 4096 - 4
pages[start : start + 24] = struct.pack("QQQ", 0, 0, 0)
how = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + start
print(ctypes.CDLL(None).syscall(437, -100, b"a.txt", ctypes.c_void_p(how), 24) > 0, open("a.txt").read())
"""


def test_flags_across_two_pages_do_not_stop_the_recorder(root: Path) -> None:
    (root / "tool.py").write_text(OPENAT2_ACROSS_PAGES)
    result = run(root, "python3 -I -S tool.py; cat a.txt")
    if "False A" in result.output:
        pytest.skip("this kernel has no openat2")
    assert result.output == "True A\nA" and result.opened_known
    assert f"{root}/a.txt" in {one.path for one in result.opened}


def test_the_folders_that_hold_mount_points_cannot_be_filled(root: Path) -> None:
    line = (
        "for place in / /dev /run ~; do head -c 9000000 /dev/zero > $place/big; done 2>/dev/null; du -cb /big /dev/big"
    )
    result = run(root, f"{line} /run/big ~/big 2>/dev/null | tail -1 | cut -f1", disk_bytes=1_000_000)
    # In the two that may be written.
    assert 0 < int(result.output) <= 2_100_000


def test_a_folder_that_holds_the_home_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "me" / ".ssh").mkdir(parents=True)
    (root / "me" / ".ssh" / "id").write_text("private")
    for home in (root, root / "me"):
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(InputError, match="holds your home"):
            run(root, "cat me/.ssh/id")


def test_what_only_some_may_read_in_etc_is_not_there(root: Path) -> None:
    line = "find /etc -type f ! -perm -o+r -size +0 2>/dev/null; find /etc -type d ! -perm -o+rx 2>/dev/null"
    assert run(root, line).output == ""


def test_a_sandbox_that_cannot_begin_is_no_failed_command(root: Path) -> None:
    async def work(line: str, folder: str = ".", enter: tuple[str, ...] = ()) -> CommandResult:
        isolation = Isolation(root=root, enter=enter)
        try:
            return await isolation.run(Command(line=line, folder=folder))
        finally:
            await isolation.close()

    # Nobody is mapped in there, so bubblewrap may not do anything.
    with pytest.raises(SandboxUnavailable):
        asyncio.run(work("touch ran", enter=("unshare", "-U", "--")))
    assert not (root / "ran").exists()
    with pytest.raises(InputError, match="does not exist"):
        asyncio.run(work("true", folder="missing"))
    assert asyncio.run(work("echo 'bwrap: said by a command'; exit 1")).exit_code == 1


def test_a_virtual_environment_of_the_tree_is_used(root: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")], check=True)
    assert run(root, "python -c 'import sys; print(sys.prefix)'").output == f"{root}/.venv\n"


def test_a_link_that_poses_as_an_interpreter_shows_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "private" / "bin").mkdir(parents=True)
    (tmp_path / "private" / "bin" / "python").write_text("no")
    (tmp_path / "private" / "notes").write_text("mine")
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(tmp_path / "private" / "bin" / "python")
    assert "mine" not in run(root, f"cat {tmp_path}/private/notes").output


@pytest.mark.parametrize("folder", ["..", "/etc", "a/../..", "a\0b"])
def test_a_folder_outside_is_refused(root: Path, folder: str) -> None:
    with pytest.raises(OutsideRoot):
        run(root, "true", folder=folder)


@pytest.mark.parametrize("line", ["echo \0", "x" * (MAX_LINE_CHARACTERS + 1)], ids=["nul", "long"])
def test_a_line_that_no_shell_takes_is_refused(root: Path, line: str) -> None:
    with pytest.raises(InputError):
        run(root, line)


def test_cancelling_ends_everything(root: Path) -> None:
    mark = "16180.0"

    async def work() -> None:
        isolation = Isolation(root=root)
        started = asyncio.Event()
        line = f"echo go; sleep {mark} & sleep {mark}"
        running = asyncio.create_task(isolation.run(Command(line=line), on_output=lambda text: started.set()))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert processes_with(mark) == []
        await isolation.close()

    asyncio.run(work())


def test_a_started_program_talks_through_pipes_and_is_ended(root: Path) -> None:
    async def work() -> None:
        isolation = Isolation(root=root)
        process = await isolation.start(["cat"])
        assert process.stdin and process.stdout
        process.stdin.write(b"hello\n")
        assert await process.stdout.readline() == b"hello\n"
        await isolation.close()
        assert process.returncode is not None

    asyncio.run(work())


def test_a_started_program_that_nobody_reads_is_ended(root: Path) -> None:
    async def work() -> None:
        isolation = Isolation(root=root)
        process = await isolation.start(["sh", "-c", "yes & yes >&2"])
        assert process.stdout and process.stderr
        await process.stdout.readline(), await process.stderr.readline()
        await asyncio.wait_for(isolation.close(), 10)
        assert process.returncode is not None

    asyncio.run(work())


WITHOUT_BUBBLEWRAP = """
import asyncio, sys
from pathlib import Path
from etude.errors import SandboxUnavailable
from etude.workspace.isolation import Isolation, isolation_problem
from etude.workspace.workspace import Command

print(isolation_problem())
try:
    asyncio.run(Isolation(root=Path(sys.argv[1])).run(Command(line="touch ran")))
except SandboxUnavailable as error:
    print(error)
"""


def test_without_bubblewrap_nothing_is_run(root: Path, tmp_path: Path) -> None:
    # In a process of its own, which has not found bubblewrap before.
    command = [sys.executable, "-c", WITHOUT_BUBBLEWRAP, str(root)]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    problem, error = done.stdout.splitlines()
    assert "bwrap is not installed" in problem and "bwrap is not installed" in error
    assert not (root / "ran").exists()


AS_NOBODY = """
import asyncio, subprocess, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from etude.workspace.isolation import Isolation
from etude.workspace.workspace import Command, CommandLimits

async def work():
    isolation = Isolation(root=Path(sys.argv[1]))
    done = await isolation.run(Command(line="id -u; echo mine > mine; cat a.txt"))
    print(done.ending, done.output.split(), done.opened_known, any(one.path.endswith("a.txt") for one in done.opened))
    limits = CommandLimits(num_processes=30, memory_bytes=200_000_000, seconds=10)
    # What else this user runs is no part of the limit.
    others = [subprocess.Popen(["sleep", "60"]) for _ in range(40)]
    piped = await isolation.run(Command(line="echo piped | cat", limits=limits))
    for other in others:
        other.kill()
        other.wait()
    print(piped.output.strip())
    bomb = await isolation.run(Command(line="bomb() { bomb | bomb & }; bomb; sleep 0.3; echo alive", limits=limits))
    hog = await isolation.run(Command(line="head -c 900M /dev/zero | tail", limits=limits))
    print(hog.ending)
    await isolation.close()

asyncio.run(work())
"""


def test_an_ordinary_user_is_isolated_the_same_way(root: Path, tmp_path: Path) -> None:
    python = Path("/usr/bin/python3")
    if os.getuid() or not python.exists() or not shutil.which("setpriv"):
        pytest.skip("needs root to become another user, and a Python that others can run")
    package = Path(__file__).parents[2] / "etude"
    copy = tmp_path / "lib" / "etude"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("static", "__pycache__"))
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == os.getuid() and len(place.parts) > 2:
            place.chmod(0o755)
    os.chown(root, 65534, -1)
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "HOME=/nonexistent"]
    code = textwrap.dedent(AS_NOBODY)
    done = subprocess.run(
        [*command, str(python), "-c", code, str(root), str(tmp_path / "lib")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"the system's Python lacks a package: {done.stderr.splitlines()[-1]}")
    assert done.stdout.splitlines() == ["exited ['65534', 'A'] True True", "piped", "out_of_memory"], done.stderr


def test_an_edit_right_after_a_run_counts_though_the_file_keeps_its_size(root: Path) -> None:
    for text in ("x = 1", "x = 2", "x = 3"):
        (root / "value.py").write_text(text)
        assert run(root, "python3 -c 'import value; print(value.x)'").output == f"{text[-1]}\n"
