"""Apply over a WebSocket: one connection of the page, its running applies, and their events as they come."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import partial

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from etude.assistant.apply.request import ApplyEvent, ApplyRequest, ApplyResult, HunkReady, Progress
from etude.errors import EtudeError, InputError, boundary
from etude.models.model import Model
from etude.server.late_model import LateModel
from etude.server.page_text import wire_edits
from etude.server.wire import (
    MAX_ID_CHARACTERS,
    MAX_SKETCH_CHARACTERS,
    Abstained,
    Apply,
    Cancel,
    Cancelled,
    Failed,
    FromPage,
    HunkSent,
    Merged,
    ProgressSent,
    Ran,
    ToPage,
)

ApplyEngine = Callable[[ApplyRequest, Model], AsyncIterator[ApplyEvent]]

# More at once only slow each other down on one machine.
MAX_RUNNING = 8

_decode = msgspec.json.Decoder(FromPage).decode
_encode = msgspec.json.Encoder().encode


class ApplySocket:
    """Serves one connection until it closes; then everything it had running is cancelled."""

    def __init__(self, socket: WebSocket, *, model: LateModel, apply: ApplyEngine) -> None:
        self._socket = socket
        self._model = model
        self._apply = apply
        self._running: dict[str, asyncio.Task[None]] = {}
        self._outbox: asyncio.Queue[ToPage] = asyncio.Queue()

    async def serve(self) -> None:
        self._outbox.put_nowait(self._model.state)
        stop_listening = self._model.listen(self._outbox.put_nowait)
        sender = asyncio.create_task(self._send_all())
        try:
            await self._receive_all()
        finally:
            stop_listening()
            await _cancel(sender, *self._running.values())

    async def _send_all(self) -> None:
        """One sender, so that messages never interleave."""
        with suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await self._socket.send_text(_encode(await self._outbox.get()).decode())

    async def _receive_all(self) -> None:
        while self._socket.client_state is WebSocketState.CONNECTED:
            event = await self._socket.receive()
            if event["type"] == "websocket.disconnect":
                return
            self._take(event.get("text") or event.get("bytes") or "")

    def _take(self, message: str | bytes) -> None:
        try:
            asked = _decode(message)
        except (msgspec.MsgspecError, UnicodeError) as error:
            self._outbox.put_nowait(Failed(id="", error="BadMessage", message=f"Not a message of the page: {error}."))
            return
        match asked:
            case Apply():
                self._start(asked)
            case Cancel() if asked.id in self._running:
                self._running[asked.id].cancel()

    def _start(self, asked: Apply) -> None:
        try:
            _check(asked, running=self._running)
        except InputError as error:
            self._outbox.put_nowait(_failed(asked.id[:MAX_ID_CHARACTERS], error))
            return
        task = asyncio.create_task(self._run(asked))
        self._running[asked.id] = task
        task.add_done_callback(partial(self._ended, asked.id))

    def _ended(self, id: str, task: asyncio.Task[None]) -> None:
        self._running.pop(id, None)
        if task.cancelled():
            self._outbox.put_nowait(Cancelled(id=id))

    async def _run(self, asked: Apply) -> None:
        try:
            with boundary("Apply"):
                await self._stream(asked)
        except EtudeError as error:
            self._outbox.put_nowait(_failed(asked.id, error))

    async def _stream(self, asked: Apply) -> None:
        request = ApplyRequest(path=asked.path, text=asked.text, sketch=asked.sketch, instruction=asked.instruction)
        events = self._apply(request, self._model)
        async with aclosing(events):  # ty: ignore[invalid-argument-type]
            async for event in events:
                self._outbox.put_nowait(_on_wire(asked, event))


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _check(asked: Apply, *, running: dict[str, asyncio.Task[None]]) -> None:
    if not asked.id or len(asked.id) > MAX_ID_CHARACTERS or asked.id in running:
        raise InputError(f"The id {asked.id!r:.80} is empty, too long or already running. Choose another.")
    if len(running) >= MAX_RUNNING:
        raise InputError(f"{MAX_RUNNING} merges are running already. Wait for one or cancel it.")
    if len(asked.sketch) > MAX_SKETCH_CHARACTERS:
        raise InputError(
            f"The sketch has {len(asked.sketch)} characters; {MAX_SKETCH_CHARACTERS} are the most. "
            "Paste one file's part."
        )


def _failed(id: str, error: EtudeError) -> Failed:
    return Failed(id=id, error=type(error).__name__, message=str(error))


def _on_wire(asked: Apply, event: ApplyEvent) -> ToPage:
    match event:
        case Progress():
            return ProgressSent(id=asked.id, stage=event.stage, done=event.done, total=event.total)
        case HunkReady():
            return HunkSent(id=asked.id, edit=wire_edits(asked.text, (event.edit,))[0])
        case ApplyResult():
            return _result_on_wire(asked, event)


def _result_on_wire(asked: Apply, result: ApplyResult) -> Merged | Abstained:
    ran = Ran(
        engine=result.engine,
        model=result.model,
        seconds=result.seconds,
        tokens=result.usage.prompt_tokens - result.usage.reused_tokens + result.usage.generated_tokens,
        first_hunk_seconds=result.first_hunk_seconds,
    )
    if result.patch is not None:
        return Merged(id=asked.id, edits=wire_edits(asked.text, result.patch.edits), ran=ran)
    assert result.abstention is not None
    return Abstained(
        id=asked.id,
        reason=result.abstention.reason,
        message=result.abstention.message,
        sketch_line=result.abstention.sketch_line,
        candidates=list(result.abstention.candidates),
        ran=ran,
    )
