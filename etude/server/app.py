"""etude on a loopback address: the page, its HTTP interface and its WebSocket.

    serve(Path("."))

The model is loaded in the background; the page opens at once and shows how far it is.
"""

import asyncio
import secrets
import socket
import threading
import webbrowser
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from etude.assistant.apply.engine import apply as apply_sketch
from etude.assistant.apply.sketch import split_files
from etude.errors import InputError, boundary
from etude.models.model import Model
from etude.models.opening import choose, open_model
from etude.server.agent_landings import Landings
from etude.server.agent_runs import AgentRuns
from etude.server.agent_socket import AgentSocket
from etude.server.api import ReplySplitter, Room, exception_handlers, routes
from etude.server.apply_socket import ApplyEngine, ApplySocket
from etude.server.late_model import LateModel, already_loaded, loaded_in_background
from etude.server.local_runs import LocalRuns
from etude.server.saves import Saves
from etude.server.security import MAX_BODY_BYTES, SUBPROTOCOL, Guard
from etude.server.unwaited import use_unwaited_threads

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {"app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml"}
OPEN_PATHS = ("/", *(f"/{name}" for name in MEDIA_TYPES))


def build_app(
    root: Path,
    *,
    model: Model,
    token: str,
    read_only: bool = False,
    apply: ApplyEngine = apply_sketch,
    split: ReplySplitter = split_files,
    runs: AgentRuns | None = None,
) -> Starlette:
    """The whole application for one folder. Raises InputError when `root` is not a folder."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder. Name the folder to work in.")
    late = model if isinstance(model, LateModel) else already_loaded(model)
    agent_runs, landings = runs or LocalRuns(), Landings()
    room = Room(root=root.resolve(), read_only=read_only, model=late, saves=Saves(root.resolve()), split=split)

    async def socket_of_page(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol=SUBPROTOCOL)
        await ApplySocket(websocket, model=late, apply=apply).serve()

    async def socket_of_agent_panel(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol=SUBPROTOCOL)
        panel = AgentSocket(websocket, root=room.root, runs=agent_runs, landings=landings, read_only=read_only)
        await panel.serve()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        late.begin()
        yield
        await late.close()

    return Starlette(
        routes=[
            *_static_routes(),
            *routes(room),
            WebSocketRoute("/ws", socket_of_page),
            WebSocketRoute("/agent", socket_of_agent_panel),
        ],
        middleware=[Middleware(Guard, token=token, open_paths=OPEN_PATHS)],
        exception_handlers=exception_handlers(),
        lifespan=lifespan,
    )


def serve(
    root: Path,
    *,
    model: Model | None = None,
    port: int = 0,
    read_only: bool = False,
    open_browser: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Run until Ctrl-C; `announce` gets the address with its token. Port 0 takes a free one.

    `model` None takes the one that the person configured, or the embedded default.
    """
    token = secrets.token_urlsafe(32)
    app = build_app(root, model=model or configured_model(), token=token, read_only=read_only)
    with listen(port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/#token={token}"
        announce(f"etude is at {address}")
        if open_browser:
            # A text-mode browser would hold us up until it is left.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve_until_asked_to_end(app, listener))


async def _serve_until_asked_to_end(app: Starlette, listener: socket.socket) -> None:
    use_unwaited_threads()
    await server_for(app).serve(sockets=[listener])


def configured_model() -> LateModel:
    """Not loaded yet. Raises InputError when the settings cannot be used."""
    return loaded_in_background(open_model, name=choose().name or "model server")


def listen(port: int) -> socket.socket:
    """A socket that already takes connections, on the loopback address only."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        way_out = "Choose another port, or none for any free one."
        with boundary(f"Listening on port {port}", raises=InputError, way_out=way_out):
            listener.bind(("127.0.0.1", port))
            listener.listen()
    except InputError:
        listener.close()
        raise
    return listener


def server_for(app: Starlette) -> uvicorn.Server:
    """uvicorn, quiet and with bounds; compression would only cost time on the loopback."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="websockets-sansio",
        ws_max_size=MAX_BODY_BYTES,
        ws_per_message_deflate=False,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_level="warning",
        limit_concurrency=200,
        timeout_graceful_shutdown=2,
        lifespan="on",
    )
    return uvicorn.Server(config)


def _static_routes() -> list[Route]:
    async def index(request: Request) -> Response:
        page = (STATIC / "index.html").read_text("utf-8").replace("{{nonce}}", request.state.nonce)
        return Response(page, media_type="text/html")

    async def static(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response((STATIC / name).read_bytes(), media_type=MEDIA_TYPES[name])

    return [Route("/", index), *(Route(f"/{name}", static) for name in MEDIA_TYPES)]
