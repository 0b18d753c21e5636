"""The command line as a person or script meets it: a process with pipes, and one on a terminal of its own."""

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "etude.cli", *arguments]


def etude(
    *arguments: str, cwd: Path | None = None, stdin: str | bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run in a session of its own, so that no terminal of the test runner can be asked."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    environment = os.environ | {"COLUMNS": "80"} | (env or {})
    done = subprocess.run(
        command(*arguments), cwd=cwd, input=given, capture_output=True, env=environment, start_new_session=True
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


class Terminal:
    """A process on a terminal of its own; what it shows is read until a text appears."""

    def __init__(self, arguments: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
        pid, self._file = pty.fork()
        if pid == 0:
            os.chdir(cwd)
            os.environ.update({"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "80"} | (env or {}))
            os.execv(sys.executable, command(*arguments))
        self.pid, self.shown = pid, ""

    def until(self, text: str) -> str:
        deadline = time.monotonic() + 60
        while text not in self.shown and time.monotonic() < deadline and self._read():
            pass
        assert text in self.shown, self.shown
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._file)
        return code

    def _read(self) -> bool:
        if not select.select([self._file], [], [], 60)[0]:
            return False
        with contextlib.suppress(OSError):
            data = os.read(self._file, 65536)
            self.shown += data.decode("utf-8", "replace")
            return bool(data)
        return False
