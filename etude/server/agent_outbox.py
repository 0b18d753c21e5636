"""What waits to be sent to an agent panel. A page that reads slowly makes nothing grow.

Answers go first and are few. The list of runs is replaced by a newer one. Events keep their order and are held back at
the run while too many wait; only what a command prints does not wait: then its older part is left out, with a note.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

import msgspec

from etude.agent.events import AgentEvent, CallFinished, CallStarted, OutputPrinted, TextWritten
from etude.server.agent_wire import Events, Runs, ToAgentPanel

# In characters. A batch is what the page takes in at once without a stutter.
MAX_BATCH = 128_000
MAX_WAITING = 1_000_000
# The end of a long output is what one reads; the panel keeps about as much.
MAX_OUTPUT_WAITING = 200_000
# Arguments and answers of a call; the trace has all of them.
MAX_CALL_TEXT = 20_000
MAX_ANSWERS_WAITING = 64

Piece = OutputPrinted | TextWritten


@dataclass(slots=True)
class _Waiting:
    """An event, and how many events of the run the page has with it."""

    number: int
    event: AgentEvent
    left_out: int = 0

    @property
    def size(self) -> int:
        match self.event:
            case OutputPrinted() | TextWritten():
                return len(self.event.text)
            case CallStarted():
                return len(self.event.arguments) + 200
            case CallFinished():
                return len(self.event.text) + 200
        return 500


class AgentOutbox:
    """For one socket: many put, one takes."""

    def __init__(self) -> None:
        self._answers: deque[ToAgentPanel] = deque()
        self._runs: Runs | None = None
        self._run = ""
        self._events: deque[_Waiting] = deque()
        self._num_waiting = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, answer: ToAgentPanel) -> None:
        """An answer; waits while the page takes none."""
        while len(self._answers) >= MAX_ANSWERS_WAITING:
            self._room.clear()
            await self._room.wait()
        self._answers.append(answer)
        self._more.set()

    def put_runs(self, runs: Runs) -> None:
        self._runs = runs
        self._more.set()

    def attach(self, run: str) -> None:
        """Events are of this run from now on; those that still wait are forgotten."""
        self._run = run
        self._events.clear()
        self._num_waiting = 0
        self._room.set()

    @property
    def is_full(self) -> bool:
        """Whether the run has to wait."""
        return self._num_waiting > MAX_WAITING

    async def put_event(self, number: int, event: AgentEvent) -> None:
        while self.is_full and not self._continues_the_last(event):
            self._room.clear()
            await self._room.wait()
        if self._continues_the_last(event):
            self._lengthen(number, event)
        else:
            self._append(_Waiting(number, _cut(event)))

    def _continues_the_last(self, event: AgentEvent) -> bool:
        last = self._events[-1].event if self._events else None
        if isinstance(event, OutputPrinted):
            return isinstance(last, OutputPrinted) and last.id == event.id
        # Joined up to a size only: an answer without end is then no single message without end.
        return isinstance(event, TextWritten) and isinstance(last, TextWritten) and len(last.text) < MAX_CALL_TEXT

    def _lengthen(self, number: int, event: AgentEvent) -> None:
        waiting = self._events.pop()
        self._num_waiting -= waiting.size
        assert isinstance(event, Piece)
        assert isinstance(waiting.event, Piece)
        waiting.event = msgspec.structs.replace(waiting.event, text=waiting.event.text + event.text)
        waiting.number = number
        self._append(waiting)

    def _append(self, waiting: _Waiting) -> None:
        _keep_the_end(waiting)
        self._events.append(waiting)
        self._num_waiting += waiting.size
        self._more.set()

    async def take(self) -> ToAgentPanel:
        """What is to be sent next."""
        while True:
            self._more.clear()
            message = self._next()
            if message is not None:
                self._room.set()
                return message
            await self._more.wait()

    def _next(self) -> ToAgentPanel | None:
        if self._answers:
            return self._answers.popleft()
        if self._runs is not None:
            runs, self._runs = self._runs, None
            return runs
        return self._batch() if self._events else None

    def _batch(self) -> Events:
        events: list[AgentEvent] = []
        size, number = 0, 0
        while self._events and (not events or size + self._events[0].size <= MAX_BATCH):
            waiting = self._events.popleft()
            size += waiting.size
            number = waiting.number
            events.append(_with_note(waiting))
        self._num_waiting -= size
        return Events(run=self._run, last=number, events=events)


def _keep_the_end(waiting: _Waiting) -> None:
    if not isinstance(waiting.event, OutputPrinted):
        return
    text = waiting.event.text
    waiting.left_out += max(0, len(text) - MAX_OUTPUT_WAITING)
    waiting.event = msgspec.structs.replace(waiting.event, text=text[-MAX_OUTPUT_WAITING:])


def _with_note(waiting: _Waiting) -> AgentEvent:
    event = waiting.event
    if not waiting.left_out or not isinstance(event, OutputPrinted):
        return event
    note = f"\n… {waiting.left_out} characters are left out here; it printed faster than it could be shown …\n"
    return msgspec.structs.replace(event, text=note + event.text)


def _cut(event: AgentEvent) -> AgentEvent:
    match event:
        case CallStarted():
            return msgspec.structs.replace(event, arguments=_cut_text(event.arguments))
        case CallFinished():
            return msgspec.structs.replace(event, text=_cut_text(event.text))
    return event


def _cut_text(text: str) -> str:
    over = len(text) - MAX_CALL_TEXT
    if over <= 0:
        return text
    half = MAX_CALL_TEXT // 2
    return f"{text[:half]}\n… {over} characters are left out here; the trace has them …\n{text[-half:]}"
