"""The file of a run's events: written as they happen, read by whoever attaches, from the start and as it grows."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from typing import BinaryIO

import msgspec

from etude.agent.events import AgentEvent, CallFinished, Event, Notice, OutputPrinted, Stopped, TextWritten
from etude.agent.run_folder import RunFolder
from etude.agent.run_values import encoded

# A person reads no more of one command's output; the model's view of it is in the trace.
MAX_OUTPUT_CHARACTERS = 200_000
# A run of a thousand turns writes some ten; beyond this only what is not text is written.
MAX_FILE_BYTES = 100_000_000
READ_BYTES = 1_000_000
# Text that appears twenty times a second reads as flowing.
FOLLOW_SECONDS = 0.05

_decoder = msgspec.json.Decoder(AgentEvent)


class EventLog:
    """Appends events. Each is one write, so a reader and a crash meet whole lines."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = folder.events.open("ab", buffering=0)
        self._num_bytes = self._file.tell()
        self._printed: dict[str, int] = {}
        self._end_half_line(folder)

    def append(self, event: AgentEvent) -> None:
        for one in self._bounded(event):
            line = encoded(one) + b"\n"
            self._num_bytes += len(line)
            # A full disk loses some of what is shown, not the work.
            with suppress(OSError):
                self._file.write(line)

    def close(self) -> None:
        self._file.close()

    def _end_half_line(self, folder: RunFolder) -> None:
        """A loss of power may leave half a line, which would swallow the next."""
        if not self._num_bytes:
            return
        with folder.events.open("rb") as opened:
            opened.seek(-1, os.SEEK_END)
            if opened.read() != b"\n":
                self._file.write(b"\n")

    def _bounded(self, event: AgentEvent) -> Iterator[Event]:
        if isinstance(event, TextWritten | OutputPrinted) and self._num_bytes > MAX_FILE_BYTES:
            return
        if isinstance(event, CallFinished):
            self._printed.pop(event.id, None)
        if not isinstance(event, OutputPrinted):
            yield event
            return
        before = self._printed.get(event.id, 0)
        self._printed[event.id] = before + len(event.text)
        if before >= MAX_OUTPUT_CHARACTERS:
            return
        yield msgspec.structs.replace(event, text=event.text[: MAX_OUTPUT_CHARACTERS - before])
        if before + len(event.text) >= MAX_OUTPUT_CHARACTERS:
            yield OutputPrinted(id=event.id, text="\n… it prints on; the rest is not shown here.\n")


async def follow(folder: RunFolder) -> AsyncGenerator[AgentEvent]:
    """All events so far, then each as it comes; ends with Stopped, one of our own if the process died.

    A run that was resumed has a Stopped in the middle, which is passed over.
    """
    with folder.events.open("rb") as opened:
        lines = _Lines(opened)
        stopped: Stopped | None = None
        while True:
            # Before reading: what a process wrote before it ended is then read.
            alive = folder.is_alive()
            any_read = False
            for event in lines.read():
                any_read = True
                stopped = event if isinstance(event, Stopped) else None
                if stopped is None:
                    yield event
            if any_read:
                continue
            if stopped or not alive:
                yield stopped or crash_of(folder)
                return
            await asyncio.sleep(FOLLOW_SECONDS)


def so_far(folder: RunFolder) -> Iterator[AgentEvent]:
    """What is in the file now."""
    with folder.events.open("rb") as opened:
        lines = _Lines(opened)
        while found := list(lines.read()):
            yield from found


class _Lines:
    """Reads whole lines; what is not an event is named once each."""

    def __init__(self, opened: BinaryIO) -> None:
        self._opened = opened
        self._half = b""

    def read(self) -> Iterator[AgentEvent]:
        *lines, self._half = (self._half + self._opened.read(READ_BYTES)).split(b"\n")
        for line in lines:
            if line:
                yield _event(line)


def _event(line: bytes) -> AgentEvent:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Notice(text="A line of the record of this run cannot be read.")


def crash_of(folder: RunFolder) -> Stopped:
    """What is said of a run whose process is gone."""
    tail = folder.log_tail()
    said = f" It had printed:\n{tail}" if tail else ""
    return Stopped(
        reason="crashed",
        message=f"The process of this run is gone. `etude agent resume {folder.id}` goes on from its last turn.{said}",
        answer="",
        changed=folder.status().changed,
    )
