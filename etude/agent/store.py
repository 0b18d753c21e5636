"""Traces on disk: one JSON line for the head, one a turn, one for each end. Written as the run goes on.

    trace.jsonl
      {"format": "etude-trace-1", "id": …, "task": …, "model": …, "tools": […], …}
      {"number": 1, "sent": […], …}
      {"stop_reason": "finished", …}

A run that was killed leaves no end, and perhaps half a line; `load` drops that half. A run that is resumed goes on in
the same file, with a new head; the last head and the last end count.
"""

import json
import math
import os
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from etude.agent.events import (
    AgentEvent,
    CallFinished,
    CallStarted,
    Notice,
    Started,
    Stopped,
    TextWritten,
    TurnFinished,
    TurnStarted,
)
from etude.errors import FileNotWritable, TraceUnusable
from etude.messages import ToolCall
from etude.tasks import Task
from etude.traces import StopReason, Trace, Turn

FORMAT = "etude-trace-1"
FILE = "trace.jsonl"
MAX_SUMMARY_CHARACTERS = 80

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is known when a run begins."""

    format: str = FORMAT
    id: str
    task: Task
    model: str
    chat_format: str
    tools: tuple[str, ...]
    parent: str = ""
    started_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How it ended."""

    stop_reason: StopReason
    stop_message: str = ""
    answer: str = ""


class TraceStore:
    """Writes one run's trace into `folder`, which is made; only its owner may read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE

    def begin(self, trace: Trace) -> None:
        """Write the head, and the turns that are not there yet; a torn last line is cut off first.

        Raises TraceUnusable where another run is saved, FileNotWritable."""
        with _writing(self._path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            num_saved = self._continued(trace)
        self._write(head_of(trace))
        for turn in trace.turns[num_saved:]:
            self._write(turn)

    def append(self, turn: Turn) -> None:
        """Save a turn; it is in the file when this returns. Raises FileNotWritable."""
        self._write(turn)

    def finish(self, stop_reason: StopReason, message: str = "", answer: str = "") -> None:
        """Say how the run ended."""
        self._write(End(stop_reason=stop_reason, stop_message=message, answer=answer))

    def _continued(self, trace: Trace) -> int:
        """How many turns of the trace are in the file already."""
        if not self._path.exists() or not (length := self._path.read_bytes().rfind(b"\n") + 1):
            self._path.unlink(missing_ok=True)
            return 0
        os.truncate(self._path, length)
        saved = load(self.folder)
        if saved.id != trace.id or len(saved.turns) > len(trace.turns):
            raise TraceUnusable(
                f"{self.folder} holds {len(saved.turns)} turns of the run {saved.id}; it cannot take {trace.id}, "
                f"which has {len(trace.turns)}. Choose an empty folder."
            )
        return len(saved.turns)

    def _write(self, value: object) -> None:
        """A line as a whole or not at all."""
        line = encoded(value) + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        with _writing(self._path):
            descriptor = os.open(self._path, flags, 0o600)
            try:
                _write_whole(descriptor, line)
            finally:
                os.close(descriptor)


def head_of(trace: Trace) -> Head:
    return Head(
        id=trace.id,
        task=trace.task,
        model=trace.model,
        chat_format=trace.chat_format,
        tools=trace.tools,
        parent=trace.parent,
        started_at=trace.started_at,
    )


def _write_whole(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


@contextmanager
def _writing(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise FileNotWritable(f"{path} was not written: {error.strerror}. The run cannot be saved.") from error


def encoded(value: object) -> bytes:
    """JSON. What JSON cannot hold (halves of surrogate pairs, infinities) is written as Python's own module does."""
    if isinstance(value, Turn) and not all(map(math.isfinite, value.logprobs)):
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def decoded(line: bytes, kind: type[T]) -> T:
    """The other way round. Raises ValueError."""
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(line), kind)


# Reading.


def load(folder: Path) -> Trace:
    """The trace saved in `folder`, without a half-written last line. Raises TraceUnusable."""
    path = folder / FILE
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceUnusable(f"{path} cannot be read: {error.strerror}.") from None
    head, end, turns = None, None, []
    for number, line in enumerate(lines, 1):
        try:
            part = _part(line)
        except (ValueError, RecursionError) as error:
            raise TraceUnusable(f"{path} is damaged in line {number}: {error}. Choose another run.") from None
        if isinstance(part, Head):
            head, end = part, None
        elif isinstance(part, Turn):
            turns.append(part)
        else:
            end = part
    if head is None:
        raise TraceUnusable(f"{path} has no head, so no run was saved there. Choose another run.")
    return _trace(head, turns, end)


def _part(line: bytes) -> Head | Turn | End:
    """What a line holds. Raises ValueError."""
    if line.startswith(b'{"number"'):
        return decoded(line, Turn)
    if line.startswith(b'{"stop_reason"'):
        return decoded(line, End)
    if not line.startswith(b'{"format"'):
        raise ValueError(f"it begins with {line[:20]!r}")
    head = decoded(line, Head)
    if head.format != FORMAT:
        raise ValueError(f"its format is {head.format!r}, and this version of etude reads {FORMAT!r}")
    return head


def _trace(head: Head, turns: Sequence[Turn], end: End | None) -> Trace:
    return Trace(
        id=head.id,
        task=head.task,
        model=head.model,
        chat_format=head.chat_format,
        tools=head.tools,
        parent=head.parent,
        started_at=head.started_at,
        turns=tuple(turns),
        stop_reason=end.stop_reason if end else None,
        stop_message=end.stop_message if end else "",
        answer=end.answer if end else "",
    )


def new_id() -> str:
    return secrets.token_hex(8)


def fork(trace: Trace, turn_number: int) -> Trace:
    """A new run that has its first `turn_number` turns in common with `trace`; 0 begins anew.

    The workspace is not touched: go back to `trace.turns[turn_number].checkpoint` to have the files of that moment.
    Raises TraceUnusable."""
    if not 0 <= turn_number <= len(trace.turns):
        raise TraceUnusable(f"The run has {len(trace.turns)} turns; it cannot be forked after turn {turn_number}.")
    turns = trace.turns[:turn_number]
    return replace(trace, id=new_id(), parent=trace.id, turns=turns, stop_reason=None, stop_message="", answer="")


def replay(trace: Trace) -> Iterator[AgentEvent]:
    """What a watcher of the run would have seen, as far as the trace tells; nothing is run again."""
    yield Started(run=trace.id, statement=trace.task.statement, model=trace.model, root="")
    for turn in trace.turns:
        yield from _replayed(turn)
    if trace.stop_reason:
        changed = sorted({path for turn in trace.turns for result in turn.results for path in result.changed})
        yield Stopped(reason=trace.stop_reason, message=trace.stop_message, answer=trace.answer, changed=changed)


def _replayed(turn: Turn) -> Iterator[AgentEvent]:
    yield TurnStarted(number=turn.number)
    if turn.text:
        yield TextWritten(text=turn.text)
    for result in turn.results:
        call = result.call
        yield CallStarted(id=call.id, tool=call.name, summary=summary_of(call), arguments=call.arguments)
        yield CallFinished(
            id=call.id,
            text=result.text,
            error=result.error or "",
            seconds=result.seconds,
            changed=list(result.changed),
        )
    for note in turn.notes:
        yield Notice(text=note)
    yield TurnFinished(
        number=turn.number,
        context_tokens=turn.usage.prompt_tokens,
        generated_tokens=turn.usage.generated_tokens,
        seconds=turn.seconds,
        cost=turn.cost,
    )


def summary_of(call: ToolCall) -> str:
    """One line for a person, from a call alone: "read src/pay.py"."""
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = None
    first = next((str(value) for value in arguments.values()), "") if isinstance(arguments, dict) else ""
    line = " ".join(f"{call.name} {first[:MAX_SUMMARY_CHARACTERS]}".split())
    return line if len(line) <= MAX_SUMMARY_CHARACTERS else line[: MAX_SUMMARY_CHARACTERS - 1] + "…"
