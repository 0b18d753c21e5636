"""One language server, spoken to over its pipes: LanguageServer.

It knows the text of every document it was told, so that positions are converted and diagnostics belong to a version.
Which servers there are and what they are asked is `language_servers.py`.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from etude.edits import split_lines
from etude.errors import LanguageServerUnavailable
from etude.workspace.lsp_wire import read_message, written

Start = Callable[[Sequence[str]], Awaitable[asyncio.subprocess.Process]]
"""Starts a program with pipes, where the server is to work."""

BEGIN_SECONDS = 30.0
ANSWER_SECONDS = 20.0
END_SECONDS = 1.0

_METHOD_NOT_FOUND = -32601
# The request was overtaken by a change, or the server wants it again.
_ASK_AGAIN = {-32801, -32802, -32800}
_TIMES_ASKED = 3

_STDERR_LINES = 20

CAPABILITIES = {
    "general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]},
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeWatchedFiles": {"dynamicRegistration": True},
        "diagnostics": {"refreshSupport": True},
        "symbol": {},
        "workspaceEdit": {"documentChanges": True},
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True, "relatedInformation": False},
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": True},
        "definition": {"linkSupport": True},
        "references": {},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "rename": {"prepareSupport": False},
    },
    "window": {"workDoneProgress": True},
}


@dataclass(slots=True)
class Document:
    """A text the server was told."""

    text: str
    version: int
    published: list[dict[str, Any]] | None = None
    """What the server pushed last."""
    published_version: int | None = None
    """For which version, if it says so."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class LanguageServer:
    """A running server; made by `LanguageServer.begin`."""

    def __init__(self, name: str, root: Path, process: asyncio.subprocess.Process, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.root = root
        self.documents: dict[str, Document] = {}
        """By path relative to the root."""
        self.capabilities: dict[str, Any] = {}
        self._process = process
        self._settings = settings
        self._encoding = "utf-16"
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._registered: set[str] = set()
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._problem = ""
        self.hangs = False
        """It was waited for in vain; to ask it again would only take as long again."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._read_errors())]

    @classmethod
    async def begin(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        root: Path,
        start: Start,
        options: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> "LanguageServer":
        """Start it and agree with it. Raises LanguageServerUnavailable with what it said."""
        try:
            process = await start(argv)
        except OSError as error:
            raise LanguageServerUnavailable(f"{name} cannot be started: {error.strerror}.") from None
        server = cls(name, root, process, settings)
        try:
            await server._agree(options)
        except BaseException:
            await server.close()
            raise
        return server

    async def _agree(self, options: Mapping[str, Any]) -> None:
        folder = {"uri": self.uri("."), "name": self.root.name}
        given = {
            "processId": None,
            "rootUri": folder["uri"],
            "workspaceFolders": [folder],
            "capabilities": CAPABILITIES,
            "initializationOptions": dict(options),
        }
        answer = await self.ask("initialize", given, seconds=BEGIN_SECONDS)
        self.capabilities = answer.get("capabilities", {}) if isinstance(answer, dict) else {}
        self._encoding = self.capabilities.get("positionEncoding", "utf-16")
        await self.tell("initialized", {})
        if self._settings:
            await self.tell("workspace/didChangeConfiguration", {"settings": dict(self._settings)})

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._problem

    @property
    def process_id(self) -> int:
        return self._process.pid

    def can(self, capability: str) -> bool:
        """Whether the server announced something such as "definitionProvider", or registered its method since."""
        # An empty object is a yes.
        return self.capabilities.get(capability) not in (None, False) or capability in self._registered

    @property
    def pulls(self) -> bool:
        return self.can("diagnosticProvider") or "textDocument/diagnostic" in self._registered

    async def close(self) -> None:
        """Ask it to end, then end it."""
        if self.is_alive:
            with suppress(LanguageServerUnavailable, TimeoutError):
                await self.ask("shutdown", None, seconds=END_SECONDS)
                await self.tell("exit", None)
                await asyncio.wait_for(self._process.wait(), END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail_all("it was closed")

    # Messages.

    async def ask(self, method: str, given: Any, *, seconds: float = ANSWER_SECONDS) -> Any:
        """The server's answer. Raises LanguageServerUnavailable when it is dead, does not answer, or refuses."""
        for _ in range(_TIMES_ASKED):
            error = None
            answer = await self._ask_once(method, given, seconds)
            if not isinstance(answer, _Refusal):
                return answer
            error = answer
            if error.code not in _ASK_AGAIN:
                break
        raise LanguageServerUnavailable(f"{self.name} did not answer {method}: {error.message}.")

    async def _ask_once(self, method: str, given: Any, seconds: float) -> Any:
        self._number += 1
        number = self._number
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, **({} if given is None else {"params": given})})
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            await self._send({"method": "$/cancelRequest", "params": {"id": number}})
            if method != "workspace/diagnostic":
                # A large tree may take its time; anything else does not, in a server that works.
                self.hangs = True
                self._fail_all(f"it did not answer {method} in {seconds:g} s")
            raise LanguageServerUnavailable(f"{self.name} did not answer {method} in {seconds:g} s.") from None
        finally:
            self._answers.pop(number, None)

    async def tell(self, method: str, given: Any) -> None:
        await self._send({"method": method, **({} if given is None else {"params": given})})

    async def _send(self, message: dict[str, Any]) -> None:
        if not self.is_alive or self._process.stdin is None:
            raise LanguageServerUnavailable(self._why())
        try:
            self._process.stdin.write(written(message))
            await asyncio.wait_for(self._process.stdin.drain(), ANSWER_SECONDS)
        except (ConnectionError, RuntimeError, TimeoutError):
            self._fail_all("it no longer reads what it is told")
            raise LanguageServerUnavailable(self._why()) from None

    def _why(self) -> str:
        said = " ".join(self._stderr)[-400:]
        reason = self._problem or f"it ended with code {self._process.returncode}"
        return f"The language server {self.name} does not work: {reason}." + (f" It said: {said}" if said else "")

    async def _listen(self) -> None:
        assert self._process.stdout
        try:
            while message := await read_message(self._process.stdout):
                await self._take(message)
            self._fail_all("it ended")
        except LanguageServerUnavailable as error:
            self._fail_all(str(error))
        except (AttributeError, TypeError, ValueError) as error:
            # A message of the wrong shape. Nobody would listen any more, and every question would run into its time.
            self._fail_all(f"it sent a message that makes no sense ({error})")

    async def _read_errors(self) -> None:
        assert self._process.stderr
        with suppress(ValueError):
            while line := await self._process.stderr.readline():
                self._stderr.append(line.decode("utf-8", "replace").strip()[:500])

    async def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            self._take_answer(message)
        elif "id" in message:
            await self._answer(message["id"], str(method), message.get("params"))
        elif method == "textDocument/publishDiagnostics":
            self._take_published(message.get("params"))

    def _take_answer(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        future = self._answers.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return
        error = message.get("error")
        if isinstance(error, dict):
            future.set_result(_Refusal(error.get("code", 0), str(error.get("message", ""))[:300]))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, id: Any, method: str, given: Any) -> None:
        result: Any = None
        if method == "workspace/configuration":
            items = given.get("items", []) if isinstance(given, dict) else []
            result = [_section(self._settings, _named_section(item)) for item in items]
        elif method == "workspace/workspaceFolders":
            result = [{"uri": self.uri("."), "name": self.root.name}]
        elif method == "client/registerCapability":
            self._registered |= {str(one.get("method")) for one in given.get("registrations", [])}
            # Who waits for diagnostics may now have to ask for them.
            self._wake()
        elif method == "workspace/applyEdit":
            result = {"applied": False}
        elif not method.startswith(("window/", "workspace/", "client/")):
            error = {"code": _METHOD_NOT_FOUND, "message": f"{method} is not known"}
            await self._send({"id": id, "error": error})
            return
        await self._send({"id": id, "result": result})

    def _take_published(self, given: Any) -> None:
        path = self.path(given.get("uri")) if isinstance(given, dict) else None
        document = self.documents.get(path) if path else None
        if document is None or not isinstance(given.get("diagnostics"), list):
            return
        document.published, document.published_version = given["diagnostics"], given.get("version")
        document.arrived.set()

    def _fail_all(self, reason: str) -> None:
        self._problem = self._problem or reason
        for future in self._answers.values():
            if not future.done():
                future.set_exception(LanguageServerUnavailable(self._why()))
        self._wake()

    def _wake(self) -> None:
        for document in self.documents.values():
            document.arrived.set()

    # Documents.

    async def open(self, path: str, text: str, language: str) -> None:
        """Tell the text of a document that was not told before."""
        self.documents[path] = Document(text=text, version=1)
        item = {"uri": self.uri(path), "languageId": language, "version": 1, "text": text}
        await self.tell("textDocument/didOpen", {"textDocument": item})

    async def change(self, path: str, text: str) -> None:
        """Tell a new text; nothing is told when it is the old one."""
        document = self.documents[path]
        if document.text == text:
            return
        document.text, document.version = text, document.version + 1
        # A server that names no version is only believed about this text when it speaks again.
        document.published, document.published_version = None, None
        document.arrived.clear()
        identity = {"uri": self.uri(path), "version": document.version}
        await self.tell("textDocument/didChange", {"textDocument": identity, "contentChanges": [{"text": text}]})
        await self.tell("textDocument/didSave", {"textDocument": {"uri": self.uri(path)}, "text": text})

    async def shut(self, path: str) -> None:
        del self.documents[path]
        await self.tell("textDocument/didClose", {"textDocument": {"uri": self.uri(path)}})

    def uri(self, path: str) -> str:
        return "file://" + quote(os.fsencode(self.root / path))

    def path(self, uri: Any) -> str | None:
        """Relative to the root; None for what lies outside."""
        if not isinstance(uri, str) or not uri.startswith("file:"):
            return None
        try:
            place = PurePosixPath(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))
        except ValueError:
            return None
        if ".." in place.parts or not place.is_relative_to(self.root):
            return None
        return str(place.relative_to(self.root))

    # Positions: lines and columns from 1 and in code points with us, from 0 and in units of the encoding with it.

    def column_in(self, line: str, character: Any) -> int:
        """Our column of its character in a line."""
        if not isinstance(character, int):
            return 1
        if self._encoding == "utf-32" or line.isascii():
            return min(max(0, character), len(line)) + 1
        codec, width = ("utf-8", 1) if self._encoding == "utf-8" else ("utf-16-le", 2)
        before = line.encode(codec, "surrogatepass")[: max(0, character) * width]
        return len(before.decode(codec, "ignore")) + 1

    def character_of(self, line: str, column: int) -> int:
        """Its character of our column in a line."""
        before = line[: max(0, column - 1)]
        if self._encoding == "utf-32":
            return len(before)
        codec, width = ("utf-8", 1) if self._encoding == "utf-8" else ("utf-16-le", 2)
        return len(before.encode(codec, "surrogatepass")) // width

    def position(self, path: str, line: int, column: int) -> dict[str, Any]:
        lines = split_lines(self.documents[path].text)
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return {
            "textDocument": {"uri": self.uri(path)},
            "position": {"line": line - 1, "character": self.character_of(text, column)},
        }


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error instead of an answer."""

    code: int
    message: str


def _named_section(item: Any) -> str:
    return str(item.get("section") or "") if isinstance(item, dict) else ""


def _section(settings: Mapping[str, Any], section: str) -> Any:
    """The part of the settings that a dotted name stands for."""
    found: Any = settings
    for name in filter(None, section.split(".")):
        found = found.get(name) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else found


async def start_process(argv: Sequence[str]) -> asyncio.subprocess.Process:
    """A program of the user's own, not isolated, in a process group of its own."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, limit=1 << 20
    )
