"""A real server of the test's own: uvicorn on an ephemeral loopback port, stopped when the test ends."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest
from websockets.sync.client import ClientConnection, connect

from etude.models.scripted import ScriptedModel
from etude.server.app import build_app, listen, server_for
from etude.server.security import SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX

TOKEN = "the-token-of-this-test"


class PageSocket:
    """The page's WebSocket, speaking in dicts."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, message: dict[str, object]) -> None:
        self.connection.send(msgspec.json.encode(message).decode())

    def receive_any(self) -> dict:
        return msgspec.json.decode(self.connection.recv(timeout=20))

    def receive(self, *, type: str, id: str | None = None) -> dict:
        """The next message of this type (and id); the ones before it are passed over."""
        while True:
            message = self.receive_any()
            if message["type"] == type and id in (None, message.get("id")):
                return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server under test and the ways to talk to it."""

    root: Path
    port: int
    stop: Callable[[], None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, *, token: str = TOKEN) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {token}"}, trust_env=False)

    @contextmanager
    def socket(self, *, token: str = TOKEN, origin: str | None = None, path: str = "/ws") -> Generator[PageSocket]:
        offered = [SUBPROTOCOL, f"{TOKEN_SUBPROTOCOL_PREFIX}{token}"]
        uri = f"ws://127.0.0.1:{self.port}{path}"
        with connect(uri, subprotocols=offered, origin=origin, proxy=None) as connection:  # ty: ignore[invalid-argument-type]
            yield PageSocket(connection)


StartServer = Callable[..., Running]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """start_server(read_only=…, apply=…, model=…) serves `tmp_path/project`."""
    stops: list[Callable[[], None]] = []
    root = tmp_path / "project"
    root.mkdir()

    def start(**options: object) -> Running:
        options = {"model": ScriptedModel(), "token": TOKEN, "read_only": False} | options
        server = server_for(build_app(root, **options))  # ty: ignore[invalid-argument-type]
        listener = listen(0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        port = listener.getsockname()[1]

        def stop() -> None:
            server.should_exit = True
            thread.join(timeout=20)
            listener.close()
            assert not thread.is_alive(), "the server did not stop"

        stops.append(stop)
        return Running(root=root, port=port, stop=stop)

    yield start
    for stop in stops:
        stop()
