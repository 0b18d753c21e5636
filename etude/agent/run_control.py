"""Orders to a run's process over a Unix socket in its folder: one line of JSON there, one back.

The folder is the user's alone, so whoever can connect may give orders.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from etude.agent.run_folder import RunFolder
from etude.agent.run_values import encoded
from etude.errors import EtudeError, InputError

MAX_LINE_BYTES = 1_000_000
# Saving the changes of a large tree is the longest that any order takes.
REPLY_SECONDS = 60.0
# What the system takes as a socket's path (108 with the final zero on Linux, 104 elsewhere).
_MAX_PATH_BYTES = 100


class Order(StrEnum):
    """What a process can be told."""

    ANSWER = "answer"
    STOP = "stop"
    SAVE = "save"
    """Write down what is changed so far."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    order: Order
    question: str = ""
    text: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    error: str = ""


Handler = Callable[[Request], Awaitable[None]]
"""Raises EtudeError with what is then told."""


@asynccontextmanager
async def taking_orders(folder: RunFolder, handle: Handler) -> AsyncGenerator[None]:
    path = folder.path / "socket"
    path.unlink(missing_ok=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):
            writer.write(encoded(await _reply(handle, await reader.readline())) + b"\n")
            await writer.drain()
        writer.close()

    with _short(path) as address:
        server = await asyncio.start_unix_server(serve, address, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _reply(handle: Handler, line: bytes) -> Reply:
    try:
        await handle(msgspec.json.decode(line, type=Request))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Reply(error=f"This is no order: {error}.")
    except EtudeError as error:
        return Reply(error=str(error))
    return Reply()


async def order(folder: RunFolder, request: Request) -> None:
    """Raises InputError with what the process says against it, or when there is no process."""
    try:
        async with asyncio.timeout(REPLY_SECONDS):
            reply = await _asked(folder, encoded(request) + b"\n")
    except (OSError, ValueError, msgspec.MsgspecError):
        raise InputError(f"The run {folder.id} is not at work.") from None
    except TimeoutError:
        raise InputError(f"The run {folder.id} does not react. `etude agent stop {folder.id}` ends it.") from None
    if reply.error:
        raise InputError(reply.error)


async def _asked(folder: RunFolder, line: bytes) -> Reply:
    with _short(folder.path / "socket") as address:
        reader, writer = await asyncio.open_unix_connection(address, limit=MAX_LINE_BYTES)
    try:
        writer.write(line)
        await writer.drain()
        return msgspec.json.decode(await reader.readline(), type=Reply)
    finally:
        writer.close()


@contextmanager
def _short(path: Path) -> Generator[str]:
    """The socket's path, or a way around the system's limit on its length."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
