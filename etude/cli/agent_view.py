"""What a run looks like in a terminal while it works: text as it flows, commands with the end of what they print,
the plan, diagnostics, questions. Plain lines where the output is no terminal.

On a terminal the lowest lines are alive: the line being written, the last output, and what is going on. Everything
above them stays.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from etude.agent.events import (
    AgentEvent,
    CallFinished,
    CallStarted,
    DiagnosticsChanged,
    Notice,
    OutputPrinted,
    PlanChanged,
    QuestionAnswered,
    QuestionAsked,
    Started,
    StepState,
    Stopped,
    TextWritten,
    TurnStarted,
)
from etude.agent.terminal_text import clean
from etude.cli.terminal import visible

# What is shown of a command's output: while it runs, and after it ended.
LIVE_LINES = 6
KEPT_LINES = 8
MAX_DIFF_LINES = 24
MAX_DIAGNOSTICS = 8
# Of one question or notice.
MAX_PROSE_LINES = 60
# A line of output without an end is not gathered for ever.
MAX_LINE_CHARACTERS = 2_000

_MARKS = {StepState.PENDING: "[ ]", StepState.ACTIVE: "[>]", StepState.DONE: "[x]"}


class RunView:
    """Shows events one by one: `show(event)` between `open()` and `close()`."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._spinner = Spinner("line")
        self._half_line = ""
        self._output: dict[str, _Tail] = {}
        self._calls: dict[str, CallStarted] = {}
        self._plan: dict[str, StepState] = {}
        self._turn = 0
        self._has_done = False
        self._since = now()
        self._is_waiting = False
        self._live = Live(
            console=console, get_renderable=self._alive, transient=True, refresh_per_second=8, redirect_stdout=False
        )

    def open(self) -> None:
        if self._console.is_terminal:
            self._live.start()

    def close(self) -> None:
        self._end_line()
        self._live.stop()

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, TextWritten):
            self._write(event.text)
            return
        if not isinstance(event, OutputPrinted):
            self._end_line()
        if shown := _SHOWN.get(type(event)):
            shown(self, event)

    def say(self, text: str, style: str = "") -> None:
        """A line of our own, above what is alive."""
        self._end_line()
        self._line(text, style)

    # Text of the model.

    def _write(self, text: str) -> None:
        *lines, self._half_line = (self._half_line + text).split("\n")
        for line in lines:
            self._prose(line)

    def _end_line(self) -> None:
        if self._half_line.strip():
            self._prose(self._half_line)
        self._half_line = ""

    def _prose(self, line: str) -> None:
        """What the model says; a blank line parts it from what was done before."""
        if self._has_done:
            self._console.print()
            self._has_done = False
        self._wrapped(line)

    def _wrapped(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Broken between words on a terminal; elsewhere as it is."""
        for line in text.splitlines()[:MAX_PROSE_LINES] or [""]:
            shown = Text(visible(line), style=style)
            if self._console.is_terminal:
                self._console.print(Padding(shown, (0, 0, 0, indent)), soft_wrap=False)
            else:
                self._console.print(Text(" " * indent).append_text(shown))

    def _line(self, text: str, style: str = "", *, indent: str = "") -> None:
        self._has_done = True
        shown = Text(indent + visible(text), style=style)
        if self._console.is_terminal:
            shown.truncate(self._console.width, overflow="ellipsis")
        self._console.print(shown)

    # Events.

    def _started(self, event: Started) -> None:
        self._line(f"{event.run} · {event.model or 'the model of the server'}", "bold")

    def _turn_started(self, event: TurnStarted) -> None:
        self._turn, self._since = event.number, self._now()

    def _call_started(self, event: CallStarted) -> None:
        self._calls[event.id] = event
        self._since = self._now()
        if event.summary.startswith("$ "):
            self._line(_one_line(event.summary), "bold")

    def _output_printed(self, event: OutputPrinted) -> None:
        self._output.setdefault(event.id, _Tail()).add(event.text)

    def _call_finished(self, event: CallFinished) -> None:
        call = self._calls.pop(event.id, None)
        tail = self._output.pop(event.id, None)
        self._since = self._now()
        if call is None or call.tool in ("plan", "ask", "finish"):
            return
        if call.summary.startswith("$ "):
            self._command_finished(event, tail.lines() if tail else [])
            return
        took = f"  {event.seconds:.1f} s" if event.seconds >= 1 else ""
        self._line(f"· {_one_line(call.summary)}{took}", "dim" if not event.error else "")
        if event.error:
            self._wrapped(_one_line(event.text), "red", indent=2)
        elif event.text.startswith("--- "):
            self._diff(event.text.splitlines()[2:])

    def _command_finished(self, event: CallFinished, lines: list[str]) -> None:
        if len(lines) > KEPT_LINES:
            self._line("…", "dim", indent="  ")
        for line in lines[-KEPT_LINES:]:
            self._line(line, "dim", indent="  ")
        ended = event.text.rstrip().splitlines()[-1:] or [""]
        said = next((line for line in event.text.splitlines()[::-1] if line.startswith("Exit code")), ended[0])
        self._line(f"{said.rstrip('.')} · {event.seconds:.1f} s", "red" if event.error else "green", indent="  ")

    def _diff(self, lines: list[str]) -> None:
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in lines[:MAX_DIFF_LINES]:
            self._line(line, styles.get(line[:1], ""), indent="  ")
        if len(lines) > MAX_DIFF_LINES:
            self._line(f"… {len(lines) - MAX_DIFF_LINES} more lines", "dim", indent="  ")

    def _plan_changed(self, event: PlanChanged) -> None:
        """Whole at first; then only the steps that are new or went on."""
        before, self._plan = self._plan, {step.text: step.state for step in event.steps}
        for step in event.steps:
            if before.get(step.text) is not step.state:
                done = step.state is StepState.DONE
                style = "green" if done else "bold" if step.state is StepState.ACTIVE else ""
                self._line(f"{_MARKS[step.state]} {_one_line(step.text)}", style)

    def _diagnostics_changed(self, event: DiagnosticsChanged) -> None:
        for mark, style, lines in (("+", "red", event.appeared), ("-", "green", event.gone)):
            for line in lines[:MAX_DIAGNOSTICS]:
                # Hints and warnings need no alarm.
                shown = style if mark == "-" or " error: " in line else ""
                self._wrapped(f"{mark} {_one_line(line)}", shown, indent=2)
            if len(lines) > MAX_DIAGNOSTICS:
                self._line(f"{mark} … {len(lines) - MAX_DIAGNOSTICS} more", style, indent="  ")

    def _question_asked(self, event: QuestionAsked) -> None:
        self._wrapped(f"? {event.text}", "bold cyan")
        for number, choice in enumerate(event.choices, 1):
            self._line(f"{number}  {_one_line(choice)}", indent="  ")
        self._is_waiting = True

    def _question_answered(self, event: QuestionAnswered) -> None:
        self._is_waiting = False
        self._wrapped("> (no answer)" if event.text is None else f"> {event.text}", "cyan")

    def _notice(self, event: Notice) -> None:
        self._wrapped(event.text, "magenta")

    def _stopped(self, event: Stopped) -> None:
        self._calls.clear()

    # What is alive.

    def _alive(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._half_line.strip():
            parts.append(Text(visible(self._half_line[-MAX_LINE_CHARACTERS:])))
        for tail in list(self._output.values())[-1:]:
            for line in tail.lines()[-LIVE_LINES:]:
                parts.append(Text("  " + visible(line), style="dim", no_wrap=True, overflow="ellipsis"))
        if not self._is_waiting:
            self._spinner.update(text=Text(self._doing(), style="dim"))
            parts.append(self._spinner)
        return Group(*parts)

    def _doing(self) -> str:
        seconds = int(self._now() - self._since)
        call = next(reversed(self._calls.values()), None)
        doing = _one_line(call.summary)[:50] if call else "thinking" if self._turn else "starting"
        took = f" · {seconds} s" if seconds else ""
        return f"turn {self._turn} · {doing}{took}" if self._turn else f"{doing}{took}"


_SHOWN: dict[type, Callable[..., None]] = {
    Started: RunView._started,
    TurnStarted: RunView._turn_started,
    CallStarted: RunView._call_started,
    OutputPrinted: RunView._output_printed,
    CallFinished: RunView._call_finished,
    PlanChanged: RunView._plan_changed,
    DiagnosticsChanged: RunView._diagnostics_changed,
    QuestionAsked: RunView._question_asked,
    QuestionAnswered: RunView._question_answered,
    Notice: RunView._notice,
    Stopped: RunView._stopped,
}


class _Tail:
    """The last lines of an output."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES + 1)
        self._half = ""

    def add(self, text: str) -> None:
        *lines, half = (self._half + text).split("\n")
        self._half = half[-MAX_LINE_CHARACTERS:]
        self._lines.extend(lines[-KEPT_LINES - 1 :])

    def lines(self) -> list[str]:
        half = [self._half] if self._half else []
        return [clean(line).rstrip() for line in (*self._lines, *half)]


def _one_line(text: str) -> str:
    """The first line, marked if there are more."""
    first, _, rest = text.strip().partition("\n")
    return f"{first} …" if rest else first


def silenced(view: RunView) -> "_Silenced":
    """The lowest lines stand still in the block, so that a person can type."""
    return _Silenced(view)


class _Silenced:
    def __init__(self, view: RunView) -> None:
        self._view = view

    def __enter__(self) -> None:
        self._view._live.stop()

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):
            self._view.open()
