"""What is kept of what a command prints, however much that is: Output."""

import asyncio
import codecs
from collections.abc import Callable

_PIECE_BYTES = 65_536


class Output:
    """The first and the last half of what a command prints."""

    def __init__(self, max_bytes: int, on_output: Callable[[str], None] | None) -> None:
        self._half = max(1, max_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._tell = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.num_bytes = 0

    async def read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        while piece := await process.stdout.read(_PIECE_BYTES):
            self._take(piece)
        if self._tell and (rest := self._decoder.decode(b"", True)):
            self._tell(rest)

    def _take(self, piece: bytes) -> None:
        self.num_bytes += len(piece)
        if self._tell and (text := self._decoder.decode(piece)):
            self._tell(text)
        room = self._half - len(self._head)
        self._head += piece[:room] if room > 0 else b""
        self._tail += piece[max(0, room) :]
        if len(self._tail) > 2 * self._half + _PIECE_BYTES:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = bytes(self._tail[-self._half :])
        missing = self.num_bytes - len(self._head) - len(tail)
        if missing <= 0:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "replace").rstrip("\n")
        return f"{head}\n… {missing:,} bytes left out …\n{tail.decode('utf-8', 'replace')}"
