"""The HTTP side of the page: what is here, read, save, undo, take a reply apart."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ExceptionHandler

import etude
from etude.errors import (
    EtudeError,
    FileChanged,
    FileNotWritable,
    FileUnusable,
    InputError,
    OutsideRoot,
)
from etude.server.late_model import LateModel
from etude.server.saves import Saves
from etude.server.tree import list_files, list_folder
from etude.server.wire import Failure, Hello, Save, Split, SplitFile, SplitReply, Undo, Undone

Body = TypeVar("Body")

STATUS_OF_ERROR: tuple[tuple[type[EtudeError], int], ...] = (
    (OutsideRoot, 403),
    (FileChanged, 409),
    (FileUnusable, 422),
    (FileNotWritable, 422),
    (InputError, 400),
    (EtudeError, 500),
)


class FilePart(Protocol):
    """What of a reply belongs to one file."""

    @property
    def path(self) -> str | None: ...

    @property
    def text(self) -> str: ...


ReplySplitter = Callable[[str, Sequence[str]], Sequence[FilePart]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the endpoints work on."""

    root: Path
    read_only: bool
    model: LateModel
    saves: Saves
    split: ReplySplitter


def routes(room: Room) -> list[Route]:
    async def hello(request: Request) -> Response:
        return _answer(
            Hello(
                root=room.root.name or str(room.root),
                read_only=room.read_only,
                version=etude.__version__,
                model=room.model.state,
            )
        )

    async def files(request: Request) -> Response:
        return _answer(await list_files(room.root))

    async def folder(request: Request) -> Response:
        return _answer(await asyncio.to_thread(list_folder, room.root, request.query_params.get("path", "")))

    async def file(request: Request) -> Response:
        return _answer(await asyncio.to_thread(room.saves.open, request.query_params.get("path", "")))

    async def save(request: Request) -> Response:
        asked = await _body(request, Save)
        _check_may_write(room, asked.path)
        if asked.base_sha256 is None:
            return _answer(await asyncio.to_thread(room.saves.create, asked.path, asked.text))
        return _answer(await asyncio.to_thread(room.saves.save, asked.path, asked.text, asked.base_sha256))

    async def undo(request: Request) -> Response:
        asked = await _body(request, Undo)
        _check_may_write(room, asked.path)
        return _answer(Undone(file=await asyncio.to_thread(room.saves.undo, asked.path)))

    async def split(request: Request) -> Response:
        asked = await _body(request, Split)
        known = (await list_files(room.root)).files
        return _answer(await asyncio.to_thread(_split, room, asked, known))

    return [
        Route("/api/hello", hello),
        Route("/api/files", files),
        Route("/api/folder", folder),
        Route("/api/file", file),
        Route("/api/save", save, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
        Route("/api/split", split, methods=["POST"]),
    ]


async def _body(request: Request, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InputError(f"The request is not understood: {error}.") from None


def _check_may_write(room: Room, path: str) -> None:
    if room.read_only:
        raise FileNotWritable(f"{path} was not written: etude was started read-only. Start it without --read-only.")


def _split(room: Room, asked: Split, known: Sequence[str]) -> SplitReply:
    """Parts without a file name belong to the open file."""
    parts = [(part.path or asked.path, part.text) for part in room.split(asked.reply, known)]
    return SplitReply(
        files=[SplitFile(path=path, text=text, exists=room.saves.exists(path)) for path, text in parts if path]
    )


def _answer(value: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


async def on_etude_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EtudeError)
    status = next(status for kind, status in STATUS_OF_ERROR if isinstance(error, kind))
    return _answer(Failure(error=type(error).__name__, message=str(error)), status=status)


async def on_http_error(request: Request, error: Exception) -> Response:
    status, detail = getattr(error, "status_code", 500), getattr(error, "detail", "Something went wrong.")
    return _answer(Failure(error="Refused", message=str(detail)), status=status)


async def on_unforeseen(request: Request, error: Exception) -> Response:
    """Our own slip: the page says so, the terminal shows the trace."""
    message = f"etude itself failed ({type(error).__name__}). Nothing was changed; the terminal shows more."
    return _answer(Failure(error="Unforeseen", message=message), status=500)


def exception_handlers() -> dict[object, ExceptionHandler]:
    return {EtudeError: on_etude_error, HTTPException: on_http_error, Exception: on_unforeseen}
