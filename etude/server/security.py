"""Who may talk to the server: the guard in front of every request.

The page's static files are open to whoever reaches the port; they hold nothing. Everything else needs
the token, which the page keeps in its own session storage and not in a cookie: a cookie of 127.0.0.1 would
also be sent to every other local server, whatever its port.
"""

import secrets
from collections.abc import Iterable

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from etude.server.wire import Failure

# A file of the largest size that can be edited, escaped as JSON, and a sketch beside it.
MAX_BODY_BYTES = 24 * 1024 * 1024

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

# WebSocket clients in browsers cannot set headers; the token travels as an offered subprotocol instead.
SUBPROTOCOL = "etude"
TOKEN_SUBPROTOCOL_PREFIX = "etude.token."


class Guard:
    """Refuses what does not come from the page or its owner; adds the headers that keep the page closed."""

    def __init__(self, app: ASGIApp, *, token: str, open_paths: Iterable[str]) -> None:
        self._app = app
        self._token = token
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        await self._app(scope, _bounded(receive), _with_headers(scope, send, nonce))

    def _refusal(self, scope: Scope) -> HTTPException | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not _is_own_host(host, scope):
            return HTTPException(421, f"This server does not answer to the host {host!r:.80}; open it at 127.0.0.1.")
        if scope["type"] == "http" and scope["path"] in self._open_paths:
            return None
        if not _is_own_origin(headers, host):
            return HTTPException(403, "Only etude's own page may talk to this server.")
        if not secrets.compare_digest(_given_token(headers).encode(), self._token.encode()):
            return HTTPException(401, "The token is missing or from an earlier start; use the address etude printed.")
        return None


def _is_own_host(host: str, scope: Scope) -> bool:
    """Any other name is a foreign site whose DNS was turned to this machine."""
    name, _, port = host.rpartition(":")
    server = scope.get("server")
    return name in LOOPBACK_NAMES and server is not None and port == str(server[1])


def _is_own_origin(headers: Headers, host: str) -> bool:
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return False
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _given_token(headers: Headers) -> str:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip()
    for offered in headers.get("sec-websocket-protocol", "").split(","):
        if offered.strip().startswith(TOKEN_SUBPROTOCOL_PREFIX):
            return offered.strip().removeprefix(TOKEN_SUBPROTOCOL_PREFIX)
    return ""


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: HTTPException) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.detail})
        return
    body = msgspec.json.encode(Failure(error="Refused", message=refusal.detail))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    send = _with_headers(scope, send, nonce="")
    await send({"type": "http.response.start", "status": refusal.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _bounded(receive: Receive) -> Receive:
    """Count the body as it comes; a Content-Length can be absent or a lie."""
    seen = 0

    async def receive_bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b"")) if message["type"] == "http.request" else 0
        if seen > MAX_BODY_BYTES:
            raise HTTPException(413, f"The request is larger than {MAX_BODY_BYTES // 1024**2} MB; nothing was done.")
        return message

    return receive_bounded


def _with_headers(scope: Scope, send: Send, nonce: str) -> Send:
    policy = content_security_policy(Headers(scope=scope).get("host", ""), nonce)

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = policy
            headers["x-content-type-options"] = "nosniff"
            headers["x-frame-options"] = "DENY"
            headers["referrer-policy"] = "no-referrer"
            headers["cross-origin-opener-policy"] = "same-origin"
            headers["cross-origin-resource-policy"] = "same-origin"
            headers["cache-control"] = "no-store"
        await send(message)

    return send_with_headers


def content_security_policy(host: str, nonce: str) -> str:
    """Own files only; the nonce is for the style element in which CodeMirror keeps its rules."""
    style = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
    return (
        f"default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data:; "
        f"connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
