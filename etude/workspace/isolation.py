"""Running programs where they can do no harm: Isolation, over bubblewrap.

    isolation = Isolation(root=Path("/home/me/app"))
    result = await isolation.run(Command(line="pytest -q"))

A command sees what `enclosure.py` shows it, has no network, no privileges and its own processes, and is ended with all
of them when it is over, takes too long or uses too much. Without bubblewrap nothing is run.
"""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

from etude.errors import InputError, OutsideRoot, SandboxUnavailable
from etude.workspace import control_groups, enclosure
from etude.workspace.command_output import Output
from etude.workspace.control_groups import ControlGroup
from etude.workspace.opened_paths import OpenedPaths, is_possible
from etude.workspace.workspace import Command, CommandLimits, CommandResult, Ending

# The system takes no longer arguments.
MAX_LINE_CHARACTERS = 100_000

_WATCH_SECONDS = 0.2
# Looking at the disk takes this share of the time at most.
_WATCH_SHARE = 10

# "$1" and on, up to "--", are files to enter a control group by; the rest is the command.
_ENTER_GROUP = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 126; shift; done; shift; exec "$@"'

# One message of a language server may be long.
_LINE_BYTES = 1 << 20

_INSTALL = "Install bubblewrap and util-linux (apt install bubblewrap util-linux); without them no command is run."


class Isolation:
    """How programs are run for one tree."""

    def __init__(
        self,
        *,
        root: Path,
        enter: Sequence[str] = (),
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        record_opened: bool = True,
        disk_used: Callable[[], int] | None = None,
    ) -> None:
        """`root` is the tree's path inside; `enter` goes before bubblewrap, to have that path show a shadow.

        `disk_used` says how many bytes the tree takes beyond what it had; a command that adds too many is ended.
        """
        self._root = root
        self._enter = tuple(enter)
        self._readable = tuple(readable)
        self._writable = tuple(writable)
        self._environment = dict(environment or {})
        self._record_opened = record_opened and is_possible() and not _is_set_user_id()
        self._disk_used = disk_used
        self._running: set[asyncio.subprocess.Process] = set()
        self._groups: list[ControlGroup] = []

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        """Run to the end or to a limit. Raises SandboxUnavailable, OutsideRoot, InputError."""
        _check_line(command.line)
        limits = command.limits
        words = self._enclosed(
            [enclosure.shell(), "-c", command.line],
            folder=_inside(self._root, command.folder),
            environment=command.environment,
            network=command.network,
            limits=limits,
        )
        self._groups = [group for group in self._groups if not group.removed()]
        group = control_groups.made(memory_bytes=limits.memory_bytes, num_processes=limits.num_processes)
        recorder = OpenedPaths() if self._record_opened else None
        output = Output(limits.output_bytes, on_output)
        started = time.monotonic()
        ending, process = Ending.STOPPED, None
        try:
            process = await self._begun(words, group, recorder)
            ending = await self._until_end(process, output, limits, group)
        finally:
            if process:
                await self._end(process)
            known, opened = await asyncio.to_thread(recorder.finish) if recorder else (False, ())
            if group and not await asyncio.to_thread(group.removed):
                # Its processes are ended, and it cannot be removed before they are gone, which takes a moment.
                self._groups.append(group)
        if process.returncode == 1 and output.text().startswith("bwrap: "):
            await asyncio.to_thread(_check_it_ran, output.text(), recorder)
        return CommandResult(
            ending=ending,
            exit_code=_exit_code(process.returncode) if ending is Ending.EXITED else None,
            output=output.text(),
            num_output_bytes=output.num_bytes,
            seconds=time.monotonic() - started,
            opened=opened,
            opened_known=known,
        )

    async def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, network: bool = False
    ) -> asyncio.subprocess.Process:
        """A program with pipes that is ended with us, for instance a language server. Raises SandboxUnavailable."""
        words = self._enclosed(
            argv, folder=self._root, environment=environment or {}, network=network, limits=CommandLimits()
        )
        pipe = asyncio.subprocess.PIPE
        process = await _spawned([*self._enter, *words], stdin=pipe, stderr=pipe)
        self._running = {one for one in self._running if one.returncode is None} | {process}
        return process

    async def close(self) -> None:
        """End whatever still runs."""
        for process in tuple(self._running):
            # Of one with an input of its own nobody may be reading the output, and a full pipe is never at its end.
            streams = (process.stdout, process.stderr) if process.stdin else ()
            await asyncio.gather(self._end(process), *(_thrown_away(stream) for stream in streams if stream))
        for group in self._groups:
            await asyncio.to_thread(group.remove)

    def _enclosed(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        network: bool,
        limits: CommandLimits,
    ) -> list[str]:
        enclosure.check_root(self._root)
        bubblewrap = _tool("bwrap")
        arguments = enclosure.arguments(
            root=self._root,
            folder=folder,
            readable=(*self._readable, *_own_programs(words)),
            writable=self._writable,
            environment=enclosure.environment(self._root, {**self._environment, **environment}),
            network=network,
            temporary_bytes=limits.disk_bytes,
        )
        # By their whole paths: a search along PATH would show in the record of what was run.
        limited = [_tool("prlimit"), f"--fsize={limits.disk_bytes}", "--core=0"]
        if os.getuid() != 0:
            # Set inside, where the kernel counts the sandbox's processes; outside, it would count all of this user's.
            limited.append(f"--nproc={limits.num_processes}")
        return [bubblewrap, *arguments, *limited, *words]

    async def _begun(
        self, words: list[str], group: ControlGroup | None, recorder: OpenedPaths | None
    ) -> asyncio.subprocess.Process:
        if recorder:
            words = recorder.wrap(words)
        words = [*self._enter, *words]
        if group:
            words = ["sh", "-c", _ENTER_GROUP, "sh", *group.process_files, "--", *words]
        process = await _spawned(
            words,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.STDOUT,
            descriptors=recorder.descriptors if recorder else (),
        )
        self._running.add(process)
        if recorder:
            recorder.started()
        return process

    async def _until_end(
        self, process: asyncio.subprocess.Process, output: Output, limits: CommandLimits, group: ControlGroup | None
    ) -> Ending:
        """How it ends: by itself, or because it used too much; then it may still run."""
        reading = asyncio.create_task(output.read(process))
        watching = asyncio.create_task(self._watch(process, limits, group))
        waiting = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({watching, waiting}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            ending = watching.result() if watching.done() else Ending.EXITED if waiting.done() else Ending.TIMED_OUT
            await self._end(process)
            # Everything that could write has ended, so this comes to an end, too.
            await reading
            if group and group.ran_out_of_memory() and ending is Ending.EXITED and process.returncode:
                return Ending.OUT_OF_MEMORY
            return ending
        finally:
            for task in (reading, watching, waiting):
                task.cancel()

    async def _watch(
        self, process: asyncio.subprocess.Process, limits: CommandLimits, group: ControlGroup | None
    ) -> Ending:
        """Ends when too much is used; what the kernel watches over is not looked at."""
        at_first = await asyncio.to_thread(self._disk_used) if self._disk_used else 0
        pause = _WATCH_SECONDS
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            if self._disk_used and await asyncio.to_thread(self._disk_used) - at_first > limits.disk_bytes:
                return Ending.OUT_OF_DISK
            if not group and await asyncio.to_thread(_uses_too_much, process.pid, limits):
                return Ending.OUT_OF_MEMORY
            pause = max(_WATCH_SECONDS, _WATCH_SHARE * (time.monotonic() - started))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """The whole tree: the group we know of, and with bubblewrap's child the namespace of all others."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
        self._running.discard(process)


async def _spawned(
    words: Sequence[str],
    *,
    stdin: int,
    stderr: int,
    descriptors: tuple[int, ...] = (),
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=descriptors,
            limit=_LINE_BYTES,
            # bubblewrap is process 1 inside, and what is in its environment can be read there.
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        )
    except OSError as error:
        raise SandboxUnavailable(f"{words[0]} cannot be run: {error.strerror}. {_INSTALL}") from None


def isolation_problem() -> str | None:
    """Why commands cannot be isolated on this machine, with the way out; None when they can. It is really tried."""
    for tool in ("bwrap", "prlimit"):
        if not shutil.which(tool):
            return f"{tool} is not installed. {_INSTALL}"
    arguments = enclosure.arguments(
        root=Path("/usr"),
        folder=Path("/usr"),
        readable=(),
        writable=(),
        environment={"PATH": "/usr/bin:/bin"},
        network=False,
        temporary_bytes=1_000_000,
    )
    try:
        tried = subprocess.run(["bwrap", *arguments, "true"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work: {error}."
    if tried.returncode == 0:
        return None
    said = (tried.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return f"bubblewrap does not work here: {said}.{_namespace_advice()}"


def _namespace_advice() -> str:
    """What systems forbid user namespaces by, and how they are allowed again."""
    for name, forbidden, advice in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "an AppArmor profile for bwrap that allows userns"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ):
        with suppress(OSError):
            if Path("/proc/sys", name).read_text("ascii").strip() == forbidden:
                return f" User namespaces are forbidden ({name.replace('/', '.')}); it takes {advice}."
    return " In a container, it must be allowed to make user namespaces."


@cache
def _tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise SandboxUnavailable(f"{name} is not installed. {_INSTALL}")
    return found


@cache
def _is_set_user_id() -> bool:
    """A bubblewrap that gets its rights from its file cannot be started by a process that renounced new ones."""
    found = shutil.which("bwrap")
    return bool(found) and bool(Path(found).stat().st_mode & stat.S_ISUID)


def _check_line(line: str) -> None:
    if "\0" in line:
        raise InputError("A command cannot hold a NUL character. Write it as an escape.")
    if len(line) > MAX_LINE_CHARACTERS:
        raise InputError(
            f"The command has {len(line):,} characters; {MAX_LINE_CHARACTERS:,} can be run. Run a script instead."
        )


def _inside(root: Path, folder: str) -> Path:
    pure = PurePosixPath(folder)
    if pure.is_absolute():
        pure = pure.relative_to(root) if pure.is_relative_to(root) else PurePosixPath("..")
    if ".." in pure.parts or "\0" in folder:
        raise OutsideRoot(f"{folder!r} is not a folder inside the workspace. Name one relative to it.")
    return root / pure


def _own_programs(words: Sequence[str]) -> tuple[Path, ...]:
    """The folder of a program that is named by its path, such as a language server installed beside etude."""
    program = Path(words[0])
    if not program.is_absolute() or program.is_relative_to("/usr"):
        return ()
    if not (program.parent.parent / "pyvenv.cfg").exists():
        return program.parent, Path(os.path.realpath(program))
    python = Path(os.path.realpath(program.parent / "python"))
    return program.parent.parent, *enclosure.python_installation(python)


async def _thrown_away(stream: asyncio.StreamReader) -> None:
    # Whoever reads it already brings it to its end.
    with suppress(RuntimeError):
        while await stream.read(_LINE_BYTES):
            pass


def _check_it_ran(said: str, recorder: OpenedPaths | None) -> None:
    """Tell words of bubblewrap, which could not begin, from a command's that look the same. Raises what went wrong."""
    if recorder and recorder.is_known and recorder.saw_command:
        return
    reason = said.strip().splitlines()[0]
    if "Can't chdir" in reason:
        raise InputError(f"The folder to start in does not exist ({reason.removeprefix('bwrap: ')}). List the folders.")
    problem = isolation_problem()
    if problem or (recorder and recorder.is_known):
        raise SandboxUnavailable(problem or f"bubblewrap could not begin here: {reason.removeprefix('bwrap: ')}.")


def _uses_too_much(process: int, limits: CommandLimits) -> bool:
    """Resident memory of a process and all below it, where what they share counts more than once; and how many."""
    total, count, todo = 0, 0, [process]
    while todo and count <= limits.num_processes:
        count += 1
        number = todo.pop()
        with suppress(OSError, ValueError):
            total += int(Path(f"/proc/{number}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for task in Path(f"/proc/{number}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text("ascii").split()]
    return total > limits.memory_bytes or count > limits.num_processes


def _exit_code(returncode: int | None) -> int | None:
    return None if returncode is None else returncode if returncode >= 0 else 128 - returncode
