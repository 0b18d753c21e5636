"""A model server on a real socket that plays a script: one answer a turn, told by how many answers the request holds.

    with ModelServer([call("write", path="a.py", text="x = 2\n"), call("finish", answer="Done.")]) as server: ...

So several runs, attempts and resumed runs may ask at once, and each hears its own next answer.
"""

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Answer = str | dict[str, Any]
"""Text, or a call made by `call`."""
Script = Sequence[Answer] | Callable[[dict[str, Any]], Sequence[Answer]]
"""Or chosen by the request, e.g. by its seed."""


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": json.dumps(arguments)}


class ModelServer:
    """`url` is where it listens; `requests` are the bodies it was sent."""

    def __init__(self, script: Script, *, wait: threading.Event | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script = script
        self._wait = wait
        """The last answer is held back until then."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(json.dumps({"data": [{"id": "scripted"}]}).encode(), "application/json")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append(body)
                events = "".join(f"data: {json.dumps(event)}\n\n" for event in server.answer(body))
                self._send(f"{events}data: [DONE]\n\n".encode(), "text/event-stream")

            def _send(self, data: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with suppress(ConnectionError):
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        script = self._script if isinstance(self._script, Sequence) else self._script(body)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if self._wait and turn >= len(script) - 1:
            self._wait.wait(60)
        return _events(script[min(turn, len(script) - 1)], turn)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wait:
            self._wait.set()
        self._server.shutdown()
        self._server.server_close()


def _events(answer: Answer, turn: int) -> list[dict[str, Any]]:
    if isinstance(answer, str):
        return [_delta({"content": answer}), _delta({}, "stop")]
    made = {"index": 0, "id": f"call-{turn}", "type": "function", "function": answer}
    return [_delta({"content": "So be it.\n"}), _delta({"tool_calls": [made]}), _delta({}, "tool_calls")]


def _delta(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
