"""A model server on a real socket that answers as told: late, cut off, with garbage, with errors.

    async with MisbehavingServer(status(500), events(text("hi"))) as server: ...

It gives one reply a request, in order, and the last one for ever; it keeps what it was asked. The list of
models and what `offers` names are answered apart from that.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any] = field(default_factory=dict)


class MisbehavingServer:
    def __init__(
        self,
        *replies: Reply,
        models: Sequence[str] | None = None,
        offers: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None,
        port: int = 0,
    ) -> None:
        self._port = port
        self._replies = list(replies)
        self._models = models
        self._offers = offers or {}
        self._closing = asyncio.Event()
        self._handlers: set[asyncio.Task[Any]] = set()
        self.requests: list[Request] = []
        """All but those for the list of models."""
        self.times: list[float] = []
        """When each of `requests` came, in the loop's time."""
        self.was_asked = asyncio.Event()
        self.hung_up = asyncio.Event()
        """A client closed the connection before its reply was over."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self._closing.set()
        await asyncio.gather(*self._handlers)

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler
        self._handlers.add(handler)
        replying = asyncio.ensure_future(self._reply_to(await _read_request(reader))(writer))
        others = [asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(self._closing.wait())]
        await asyncio.wait({replying, *others}, return_when=asyncio.FIRST_COMPLETED)
        was_over = replying.done()
        for task in (replying, *others):
            task.cancel()
        failure, *_ = await asyncio.gather(replying, *others, return_exceptions=True)
        if isinstance(failure, ConnectionError) or not (was_over or self._closing.is_set()):
            self.hung_up.set()
        writer.close()
        self._handlers.discard(handler)

    def _reply_to(self, request: Request) -> Reply:
        if request.path == "/v1/models":
            return status(404) if self._models is None else whole({"data": [{"id": name} for name in self._models]})
        self.requests.append(request)
        self.was_asked.set()
        self.times.append(asyncio.get_running_loop().time())
        if request.path in self._offers:
            return whole(self._offers[request.path](request.body))
        if not self._replies:
            return status(404)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method=method, path=path, headers=headers, body=json.loads(body) if body else {})


# Replies.


def raw(*pieces: bytes, then: Reply | None = None) -> Reply:
    """Exactly these bytes, one piece at a time."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if then:
            await then(writer)

    return reply


async def silence(writer: asyncio.StreamWriter) -> None:
    """Nothing, until the client goes away."""
    await asyncio.Event().wait()


def endless(piece: bytes) -> Reply:
    """The same bytes over and over, until the client goes away."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(piece)
            await writer.drain()
            # The client may live in the same loop.
            await asyncio.sleep(0)

    return reply


def head(code: int = 200, kind: str = "text/event-stream", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} So it is", f"Content-Type: {kind}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def status(code: int, body: str = "", kind: str = "text/plain", **headers: str) -> Reply:
    return raw(head(code, kind, **headers), body.encode())


def whole(body: Any) -> Reply:
    """A JSON answer that is not streamed."""
    return status(200, json.dumps(body), "application/json")


def events(*answers: Any, done: bool = True, then: Reply | None = None) -> Reply:
    """A stream of server-sent events."""
    pieces = [f"data: {json.dumps(answer)}\n\n".encode() for answer in answers]
    return raw(head(), *pieces, *([b"data: [DONE]\n\n"] if done else []), then=then)


# Events of a chat.


def text(content: str, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": content}, **choice}]}


def finish(reason: str = "stop", **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason, **choice}]}


def tool_call(**call: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
