"""Runs: agents at work in processes of their own, which survive the terminal or page that started them.

    run = start(Path("."), "Fix the failing test.", options=RunOptions(check="pytest -q"))
    async for event in events(run): ...
    report = await land(run)

`start`, `resume` and `runs` return at once; what waits for a process is asynchronous. Ids are the names of folders
(`run_folder.py`). Several runs may be at work in one tree, each in a shadow of its own. Any process of the user may
attach to any run.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from etude.agent import run_control, run_events, run_folder
from etude.agent.events import AgentEvent, Notice
from etude.agent.run_control import Order, Request
from etude.agent.run_events import EventLog
from etude.agent.run_folder import RunFolder
from etude.agent.run_values import ALIVE, RunOptions, RunState, RunSummary
from etude.errors import InputError, RunUnknown
from etude.traces import StopReason
from etude.workspace.mounts import erase_tree
from etude.workspace.workspace import FileChange

if TYPE_CHECKING:
    from etude.agent.landing import LandingReport

# The entry point sees rooms that this one does not, so it is named and not imported. "-P": the folder it starts in
# is no place to import from.
PROGRAM = (sys.executable, "-P", "-m", "etude.cli.agent_process")

DEFAULTS = RunOptions()

# Settings that may hold relative paths; the process starts elsewhere.
_PATH_VARIABLES = ("ETUDE_CONFIG", "ETUDE_CACHE", "ETUDE_STATE")

# Outcomes of a landing that leave nothing of a file to be done.
_THERE = ("clean", "merged", "same", "left_out")

# An orderly end saves the changes and closes language servers.
STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.02


def start(root: Path, statement: str, *, options: RunOptions = DEFAULTS, program: Sequence[str] = PROGRAM) -> str:
    """Begin a run and return its id, before its process has done anything. Raises InputError."""
    with run_folder.made(root, statement, options) as (folder, lock):
        _spawn(folder, program, lock)
    return folder.id


def resume(
    name: str, follow_up: str = "", *, options: RunOptions | None = None, program: Sequence[str] = PROGRAM
) -> str:
    """Let a run that ended or crashed go on from its last turn, in the shadow as it was. Raises InputError.

    `follow_up` is the next thing to do; a run that finished needs one.
    """
    folder = run_folder.find(name)
    record = folder.record()
    _check_goes_on(folder, follow_up)
    with folder.held() as lock:
        follow_up = follow_up or record.follow_up
        folder.write_record(msgspec.structs.replace(record, options=options or record.options, follow_up=follow_up))
        log = EventLog(folder)
        # The last event is then not Stopped, so whoever attaches now waits for the process.
        log.append(Notice(text="The run goes on."))
        log.close()
        # What the ended process said of itself no longer holds.
        folder.write_status(msgspec.structs.replace(folder.status(), state=RunState.STARTING, question=None))
        _spawn(folder, program, lock)
    return folder.id


def _check_goes_on(folder: RunFolder, follow_up: str) -> None:
    summary = folder.summary()
    if summary.state in ALIVE:
        raise InputError(f"The run {folder.id} is still at work. Stop it first, or wait.")
    if folder.trace.is_dir() and not folder.shadow.is_dir():
        raise InputError(f"The run {folder.id} was applied, and its shadow is gone. Start a new one.")
    if summary.status.reason == StopReason.FINISHED and not follow_up:
        raise InputError(f'The run {folder.id} is finished. Say what else to do: etude agent resume {folder.id} "…"')
    if summary.options.best_of > 1:
        raise InputError(
            f"The run {folder.id} was the best of {summary.options.best_of} attempts, which are gone. Start a new one."
        )


def runs(root: Path | None = None) -> list[RunSummary]:
    """All runs, or those of a tree, the newest first."""
    summaries = []
    for folder in run_folder.all_folders():
        with suppress(RunUnknown):
            summaries.append(folder.summary())
    if root is not None:
        real_root = root.resolve()
        summaries = [summary for summary in summaries if summary.root == real_root]
    return sorted(summaries, key=lambda summary: summary.started_at, reverse=True)


def find(name: str) -> RunSummary:
    """The run of that id, or the only one whose id starts so. Raises RunUnknown."""
    return run_folder.find(name).summary()


async def events(name: str) -> AsyncGenerator[AgentEvent]:
    """Everything from the start, then as it happens; the last is Stopped, also when the process died."""
    async with aclosing(run_events.follow(run_folder.find(name))) as followed:
        async for event in followed:
            yield event


def folder() -> Path:
    """Where runs are kept."""
    return run_folder.runs_folder()


def events_so_far(name: str) -> Iterator[AgentEvent]:
    """What is on record now, without waiting for more."""
    return run_events.so_far(run_folder.find(name))


def log_of(name: str) -> str:
    """The end of what the run's process printed, which is nothing unless something went wrong."""
    return run_folder.find(name).log_tail()


async def answer(name: str, question: str, text: str | None) -> None:
    """Answer the open question; None says that nobody will. Raises InputError when it is no longer open."""
    await run_control.order(run_folder.find(name), Request(order=Order.ANSWER, question=question, text=text))


async def stop(name: str) -> RunSummary:
    """End a run and wait until it has saved what it changed; one that does not react is killed."""
    folder = run_folder.find(name)
    await _end(folder)
    return folder.summary()


async def changes(name: str) -> list[FileChange]:
    """What the agent changed, so far or in the end; of a crashed run what its shadow still holds."""
    folder = run_folder.find(name)
    if folder.summary().state in ALIVE:
        with suppress(InputError):
            await run_control.order(folder, Request(order=Order.SAVE))
    summary = folder.summary()
    # A full disk, too, may have kept a run from saving. Of several attempts the best so far is saved by itself.
    is_unsaved = summary.state is RunState.CRASHED or folder.changes() is None
    if is_unsaved and summary.state not in ALIVE and summary.options.best_of == 1:
        await _recover(folder)
    return folder.changes() or []


async def land(name: str, accepted: Mapping[str, Collection[int]] | None = None) -> "LandingReport":
    """Put the changes of an ended run into the live tree, three-way: all, or some hunks of some files.

    Once all is there, its shadow is not needed; what it had changed stays on record until the run is discarded.
    """
    folder = run_folder.find(name)
    summary = folder.summary()
    if summary.state in ALIVE:
        raise InputError(f"The run {folder.id} is still at work. Wait for its end, or stop it.")
    from etude.agent import landing

    found = await changes(name)
    with folder.held():
        report = await landing.land(found, summary.root, accepted=accepted)
        if report.written:
            folder.write_status(msgspec.structs.replace(folder.status(), state=RunState.APPLIED))
        if accepted is None and all(file.outcome in _THERE for file in report.files):
            await asyncio.to_thread(erase_tree, folder.shadow)
    return report


async def undo(name: str, report: "LandingReport") -> "LandingReport":
    """Take a landing back; files that were changed since stay, and are told as conflicts."""
    from etude.agent import landing

    folder = run_folder.find(name)
    with folder.held():
        undone = await landing.undo(report)
        folder.write_status(msgspec.structs.replace(folder.status(), state=RunState.STOPPED))
    return undone


async def discard(name: str) -> None:
    """End a run and remove everything that is kept of it, its changes too."""
    folder = run_folder.find(name)
    await _end(folder)
    with folder.held():
        await asyncio.to_thread(folder.erase)


# Processes.


def _spawn(folder: RunFolder, program: Sequence[str], lock: int) -> None:
    """A process without our terminal and in its own session, holding the lock from its first moment."""
    with folder.log.open("ab") as log:
        try:
            process = subprocess.Popen(
                [*program, str(folder.path), str(lock)],
                cwd=folder.path,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"{program[0]} cannot be started: {error.strerror}.") from error
        folder.write_pid(process.pid)
    # Someone must take note of its end, or it stays in the list of processes as long as we live.
    threading.Thread(target=process.wait, daemon=True, name=f"etude-{folder.id}").start()


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    for name in _PATH_VARIABLES:
        if environment.get(name):
            environment[name] = str(Path(environment[name]).expanduser().absolute())
    return environment


async def _end(folder: RunFolder) -> None:
    if not folder.is_alive():
        return
    try:
        await run_control.order(folder, Request(order=Order.STOP))
        is_asked = True
    except InputError:
        # It does not listen yet, or no more.
        is_asked = False
    if is_asked and await _is_gone(folder, STOP_SECONDS):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(folder.pid(), number)
        if await _is_gone(folder, STOP_SECONDS):
            return


async def _is_gone(folder: RunFolder, seconds: float) -> bool:
    until = asyncio.get_running_loop().time() + seconds
    while folder.is_alive():
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


async def _recover(folder: RunFolder) -> None:
    """What a killed process left in its shadow, saved as it would have done."""
    if not folder.shadow.is_dir():
        return
    from etude.workspace.shadow import open_shadow

    root = folder.summary().root
    with folder.held():
        async with open_shadow(root, state=folder.shadow) as shadow:
            folder.write_changes(await shadow.changes())
