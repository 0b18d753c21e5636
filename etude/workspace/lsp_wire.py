"""The language server protocol's framing over two pipes: messages as JSON with a length before them."""

import asyncio
import json
from typing import Any

from etude.errors import LanguageServerUnavailable

# A server that reports a hundred thousand diagnostics sends some tens of megabytes; more is a slip or an attack.
MAX_MESSAGE_BYTES = 64_000_000
MAX_HEADER_BYTES = 4_096


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None at the end. Raises LanguageServerUnavailable for what is not the protocol."""
    length = await _length(reader)
    if length is None:
        return None
    try:
        message = json.loads(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    except (ValueError, RecursionError):
        raise LanguageServerUnavailable("The language server sent something that is not JSON.") from None
    if not isinstance(message, dict):
        raise LanguageServerUnavailable("The language server sent something that is not a message.")
    return message


async def _length(reader: asyncio.StreamReader) -> int | None:
    length, num_bytes = None, 0
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise LanguageServerUnavailable("The language server sent a line without end.") from None
        num_bytes += len(line)
        if not line:
            return None
        if line in (b"\r\n", b"\n"):
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = value.strip()
        if num_bytes > MAX_HEADER_BYTES:
            raise LanguageServerUnavailable("The language server sent no message where one should begin.")
    if length is None or not length.isdigit() or int(length) > MAX_MESSAGE_BYTES:
        raise LanguageServerUnavailable(f"The language server announced a message of {length!r} bytes.")
    return int(length)


def written(message: dict[str, Any]) -> bytes:
    """A message as it goes over the pipe."""
    body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
