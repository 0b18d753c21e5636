"""What is kept of a run on disk, and whether its process lives: RunFolder, find, make.

    <state>/runs/<id>/
      run.json         what was asked, written once
      status.json      how far it is, replaced at each change
      events.jsonl     what a watcher saw, a line each
      lock             held by the process for as long as it lives, however it ends
      socket           where the process takes answers and orders
      changes.msgpack  what the agent changed, saved when the run ends
      log · shadow/ · trace/

`<state>` is ETUDE_STATE, or the user's state folder. A lock rather than a process id says who lives: the system takes
it back at any death, and never gives it to somebody else. Foreign files in the folder are passed over.
"""

import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from etude.agent.run_values import ALIVE, RunOptions, RunRecord, RunState, RunStatus, RunSummary, SavedChange, encoded
from etude.errors import FileNotWritable, InputError, RunUnknown
from etude.workspace.mounts import erase_tree
from etude.workspace.workspace import FileChange

MAX_STATEMENT_CHARACTERS = 100_000
# Each is a copy of the workspace with language servers of its own.
MAX_ATTEMPTS = 16
# A statement of that length, escaped, and the options.
MAX_JSON_BYTES = 2_000_000
MAX_LOG_CHARACTERS = 2_000
# A process that has said its end still takes a moment to go; whoever looks whether one lives, microseconds.
LOCK_SECONDS = 15.0

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
# Short enough to be typed, and to stand in a line of 80 columns beside a state and some words.
_SLUG_CHARACTERS = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's place on disk."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def shadow(self) -> Path:
        return self.path / "shadow"

    @property
    def trace(self) -> Path:
        return self.path / "trace"

    # Reading.

    def record(self) -> RunRecord:
        """Raises RunUnknown."""
        record = _read(self.path / "run.json", RunRecord)
        if record is None or record.id != self.id:
            raise RunUnknown(f"There is no run {self.id}. `etude agent status` lists them.")
        return record

    def status(self) -> RunStatus:
        return _read(self.path / "status.json", RunStatus) or RunStatus()

    def is_alive(self) -> bool:
        """Whether a process holds the lock."""
        descriptor = self._open_lock()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def summary(self) -> RunSummary:
        """Raises RunUnknown."""
        record = self.record()
        # In this order: a process that ends between the two looks has written its end before.
        alive = self.is_alive()
        status = self.status()
        state = RunState.CRASHED if status.state in ALIVE and not alive else status.state
        return RunSummary(
            id=self.id,
            root=Path(os.fsdecode(record.root)),
            statement=record.statement,
            state=state,
            options=record.options,
            status=status,
            started_at=record.started_at,
        )

    def pid(self) -> int:
        """Of the process that has the lock; means nothing where none has it. Raises ProcessLookupError."""
        try:
            return int((self.path / "pid").read_text("ascii"))
        except (OSError, ValueError):
            raise ProcessLookupError(f"{self.id} has no process") from None

    def log_tail(self) -> str:
        """The end of what the process printed, which says why it died."""
        with suppress(OSError), self.log.open("rb") as opened:
            opened.seek(max(0, self.log.stat().st_size - MAX_LOG_CHARACTERS))
            return opened.read().decode("utf-8", "replace").strip()
        return ""

    def changes(self) -> list[FileChange] | None:
        """What was saved when the run ended; None if nothing was. Raises InputError for a file that is damaged."""
        try:
            data = (self.path / "changes.msgpack").read_bytes()
        except FileNotFoundError:
            return None
        try:
            return [one.change() for one in msgspec.msgpack.decode(data, type=list[SavedChange])]
        except (msgspec.MsgspecError, ValueError) as error:
            raise InputError(f"The saved changes of {self.id} are damaged ({error}). Discard the run.") from None

    # Writing.

    def write_record(self, record: RunRecord) -> None:
        self._write("run.json", encoded(record))

    def write_status(self, status: RunStatus) -> None:
        # Written often, and after a loss of power the last but one does, too.
        self._write("status.json", encoded(status), is_synced=False)

    def write_pid(self, pid: int) -> None:
        self._write("pid", str(pid).encode(), is_synced=False)

    def write_changes(self, changes: list[FileChange]) -> None:
        """Ignored files are left out: nobody reviews caches and environments."""
        kept = [SavedChange.of(change) for change in changes if not change.ignored]
        self._write("changes.msgpack", msgspec.msgpack.encode(kept))

    def _write(self, name: str, data: bytes, *, is_synced: bool = True) -> None:
        """Whole or not at all, also for a reader in the middle of it and after a loss of power."""
        temporary = self.path / f".{name}.{os.getpid()}"
        try:
            with temporary.open("wb") as opened:
                opened.write(data)
                if is_synced:
                    opened.flush()
                    os.fsync(opened.fileno())
            temporary.replace(self.path / name)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise FileNotWritable(f"{self.path / name} was not written: {error.strerror}.") from error

    # The lock.

    @contextmanager
    def held(self) -> Generator[int]:
        """The lock as a descriptor that a process can inherit. Raises InputError while somebody else has it."""
        descriptor = self._open_lock()
        try:
            self._lock(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(f"The run {self.id} is still at work. Stop it first.") from None
                time.sleep(0.01)

    def _open_lock(self) -> int:
        try:
            return os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise RunUnknown(f"The run {self.id} cannot be opened: {error.strerror}.") from error

    def erase(self) -> None:
        erase_tree(self.path)


# Finding and making.


def runs_folder() -> Path:
    """Where runs are kept, made if need be. Raises InputError for a folder that others may write to."""
    chosen = os.environ.get("ETUDE_STATE")
    state = Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_state_dir("etude"))
    folder = state / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error.strerror}. Set ETUDE_STATE to a folder of yours.") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise InputError(f"{folder} is not a folder of yours. Set ETUDE_STATE to one.")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def find(name: str) -> RunFolder:
    """The run of that id, or the only one whose id starts so. Raises RunUnknown."""
    if not _ID.fullmatch(name):
        raise RunUnknown(f"{name[:60]!r} is not the name of a run. `etude agent status` lists them.")
    folders = [folder for folder in all_folders() if folder.id.startswith(name)]
    exact = [folder for folder in folders if folder.id == name]
    if len(exact or folders) > 1:
        raise RunUnknown(f"{name} could be {', '.join(sorted(folder.id for folder in folders)[:5])}. Say more of it.")
    if not folders:
        raise RunUnknown(f"There is no run {name}. `etude agent status` lists them.")
    return (exact or folders)[0]


def all_folders() -> list[RunFolder]:
    """Everything that has the form of a run and says what was asked."""
    found = []
    with os.scandir(runs_folder()) as entries:
        for entry in entries:
            if _ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                found.append(RunFolder(Path(entry.path)))
    return [folder for folder in found if _has_record(folder)]


def _has_record(folder: RunFolder) -> bool:
    try:
        folder.record()
    except RunUnknown:
        return False
    return True


@contextmanager
def made(root: Path, statement: str, options: RunOptions) -> Generator[tuple[RunFolder, int]]:
    """A new folder with what was asked, and its lock, so that it never seems dead; gone again if the block fails.

    Raises InputError.
    """
    check_request(root, statement, options)
    folder = _new_folder(statement)
    try:
        with folder.held() as lock:
            # Whoever attaches before the process writes its first event reads an empty file.
            folder.events.touch(mode=0o600)
            folder.write_status(RunStatus())
            # Last: without it the folder is not listed.
            folder.write_record(_new_record(folder.id, root, statement, options))
            yield folder, lock
    except OSError as error:
        folder.erase()
        raise FileNotWritable(f"{folder.path} was not written: {error.strerror}. Nothing was started.") from error
    except BaseException:
        folder.erase()
        raise


def _new_record(name: str, root: Path, statement: str, options: RunOptions) -> RunRecord:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    place = os.fsencode(root.resolve())
    return RunRecord(id=name, root=place, statement=statement, options=options, started_at=now)


def check_request(root: Path, statement: str, options: RunOptions) -> None:
    """Raises InputError with what is wrong."""
    if not statement.strip():
        raise InputError('Nothing was asked. Say what to do: etude agent "fix the failing test".')
    if len(statement) > MAX_STATEMENT_CHARACTERS:
        raise InputError(
            f"The task has {len(statement)} characters; {MAX_STATEMENT_CHARACTERS} can be given. "
            "Put the rest into a file of the folder and name it."
        )
    if not root.is_dir():
        raise InputError(f"{root} is not a folder. Name the folder to work in.")
    if not 1 <= options.best_of <= MAX_ATTEMPTS:
        raise InputError(f"{options.best_of} attempts were asked for; from 1 to {MAX_ATTEMPTS} can be made.")


def _new_folder(statement: str) -> RunFolder:
    words = re.sub(r"[^a-z0-9]+", "-", statement[:200].lower()).strip("-")[:_SLUG_CHARACTERS].rstrip("-")
    while True:
        path = runs_folder() / f"{words or 'run'}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise FileNotWritable(f"{path} cannot be made: {error.strerror}. Nothing was started.") from error
        return RunFolder(path)


def _read(path: Path, kind: type[T]) -> T | None:
    """None for what is not there, not ours, or not what it should be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        try:
            data = opened.read(MAX_JSON_BYTES + 1)
            return msgspec.json.decode(data, type=kind) if len(data) <= MAX_JSON_BYTES else None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
