"""Following a run from a terminal: events as they come, questions answered at the keyboard, Ctrl-C."""

import asyncio
import os
import signal
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from rich.console import Console

from etude.agent import runs
from etude.agent.events import AgentEvent, QuestionAnswered, QuestionAsked, Stopped
from etude.agent.run_values import RunStatus, encoded
from etude.cli.agent_review import print_files, reviewed
from etude.cli.agent_view import RunView, silenced
from etude.cli.terminal import console_for, counted, visible
from etude.errors import EtudeError, InputError
from etude.traces import StopReason
from etude.workspace.workspace import FileChange


@dataclass(slots=True, kw_only=True)
class Watched:
    """How the watching ended."""

    stopped: Stopped | None = None
    """None: the person let go before the end."""
    changes: list[FileChange] = field(default_factory=list)


async def watch(run: str, *, as_json: bool, asks: bool, owns: bool) -> Watched:
    """Show a run to its end. Of a run that we own, Ctrl-C stops it first, and lets go only the second time."""
    console = console_for(sys.stdout)
    view = None if as_json else RunView(console)
    following = _Following(run, view, asks=asks, owns=owns)
    if view:
        view.open()
    try:
        watched = Watched(stopped=await following.to_the_end())
    finally:
        if view:
            view.close()
    if watched.stopped is None:
        if not as_json:
            console.print(f"{run} goes on. Watch: etude agent attach {run} · end: etude agent stop {run}")
        return watched
    with suppress(EtudeError):
        watched.changes = await runs.changes(run)
    if view:
        print_end(console, watched.stopped, watched.changes, runs.find(run).status)
    return watched


def replay(run: str) -> None:
    """What happened so far, in plain lines, without waiting for more; then what the process itself said."""
    console = console_for(sys.stdout)
    view = RunView(console)
    for event in runs.events_so_far(run):
        view.show(event)
        if isinstance(event, Stopped):
            print_end(console, event, [], None)
    if tail := runs.log_of(run):
        print(visible_lines(tail), file=sys.stderr)


def log_as_json(run: str) -> None:
    for event in runs.events_so_far(run):
        _print_json(event)


def visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.splitlines()))


def print_end(console: Console, stopped: Stopped, changes: list[FileChange], status: RunStatus | None) -> None:
    """Why it ended, what it says, what is different now."""
    is_done = stopped.reason == StopReason.FINISHED
    console.print()
    console.print(stopped.reason.replace("_", " "), style="bold green" if is_done else "bold red")
    if stopped.check:
        console.print(f"its check {stopped.check}", style="bold green" if stopped.check == "passes" else "bold red")
    for text in (stopped.message, stopped.answer):
        for line in text.splitlines():
            console.print(visible(line), soft_wrap=not console.is_terminal)
    if status and status.num_turns:
        cost = f", {status.cost:.2f}" if status.cost else ""
        console.print(f"{counted(status.num_turns, 'turn')}{cost}", style="dim")
    if files := reviewed(changes):
        console.print()
        print_files(console, files)


class _Following:
    """One watching: the stream, the question being asked, Ctrl-C."""

    def __init__(self, run: str, view: RunView | None, *, asks: bool, owns: bool) -> None:
        self._run = run
        self._view = view
        self._asks = asks
        self._owns = owns
        self._asking: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[object] | None = None
        self._let_go = asyncio.Event()
        self._typed: str | None = ""
        """What stands on the screen already."""

    async def to_the_end(self) -> Stopped | None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        reading = asyncio.ensure_future(self._read())
        leaving = asyncio.ensure_future(self._let_go.wait())
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            for task in (reading, leaving, self._asking, self._stopping):
                if task:
                    task.cancel()

    async def _read(self) -> Stopped:
        async with aclosing(runs.events(self._run)) as events:
            async for event in events:
                self._show(event)
                if isinstance(event, Stopped):
                    return event
        raise AssertionError("the events of a run ended without Stopped")

    def _show(self, event: AgentEvent) -> None:
        if self._view is None:
            _print_json(event)
        elif not (isinstance(event, QuestionAnswered) and event.text == self._typed):
            self._view.show(event)
        if isinstance(event, QuestionAsked) and self._asks and self._view:
            self._asking = asyncio.ensure_future(self._ask(event))
        if isinstance(event, QuestionAnswered | Stopped) and self._asking:
            self._asking.cancel()

    def _interrupted(self) -> None:
        if not self._owns or self._stopping:
            self._let_go.set()
            return
        if self._view:
            self._view.say("Stopping; what it did is kept. Ctrl-C again leaves it to itself.", "bold")
        self._stopping = asyncio.ensure_future(runs.stop(self._run))

    async def _ask(self, asked: QuestionAsked) -> None:
        """At the keyboard, if it is still open; somebody else may be faster."""
        question = runs.find(self._run).status.question
        if question is None or question.id != asked.id:
            return
        assert self._view
        with silenced(self._view):
            self._typed = await _line_of(sys.stdin.fileno(), "> ")
            text = meant(self._typed, asked.choices)
            with suppress(InputError):
                await runs.answer(self._run, asked.id, text)


async def _line_of(descriptor: int, prompt: str) -> str | None:
    """What is typed; None at the end of input (Ctrl-D). Not in a thread, which could not be taken back."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(descriptor, came.set)
    try:
        while True:
            sys.stdout.write(prompt)
            sys.stdout.flush()
            came.clear()
            await came.wait()
            # A terminal gives a line at a time.
            line = os.read(descriptor, 65_536).decode("utf-8", "replace")
            if not line:
                sys.stdout.write("\n")
                return None
            if line.strip():
                return line.strip()
    finally:
        loop.remove_reader(descriptor)


def meant(typed: str | None, choices: list[str]) -> str | None:
    """The choice of that number, or what was typed."""
    if typed and typed.isascii() and typed.isdigit() and 1 <= int(typed[:4]) <= len(choices):
        return choices[int(typed[:4]) - 1]
    return typed


def _print_json(event: AgentEvent) -> None:
    print(encoded(event).decode("utf-8"), flush=True)
