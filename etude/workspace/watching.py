"""What changed in the user's tree, told as it happens: TreeWatch.

    watch = TreeWatch(root)
    await watch.ready()
    await watch.wait()
    watch.changed()          # {"src/pay.py"}

Three things escape the kernel's events: a write through another name (hard link) of a file, one through a memory map
until the file is closed, and one that another machine makes on a network disk. What to do about a change is the
shadow's business.
"""

import asyncio
import errno
import os
import re
import select
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from etude.workspace import inotify
from etude.workspace.inotify import Happening, Inotify

# A save is several steps (create, write, rename): whoever waits is woken once for all of them.
SETTLE_SECONDS = 0.008

# Without events the whole tree is looked through; never more than a tenth of the time.
_POLL_SECONDS = 1.0
_POLL_SHARE = 10

# How long `changed` waits for the thread that may be walking through a large new folder.
_PATIENCE_SECONDS = 0.05

# The clock that stamps files; it lags behind time.time() by a tick.
_FILE_CLOCK = getattr(time, "CLOCK_REALTIME_COARSE", 5)

_OWN_TEMPORARY = re.compile(r"\.etude-[0-9a-f]{12}\.tmp")

_LIMITS = {
    errno.ENOSPC: "the limit on watched folders (fs.inotify.max_user_watches) is reached",
    errno.EMFILE: "the limit on watchers (fs.inotify.max_user_instances) is reached",
    errno.ENOMEM: "the kernel has no memory left for watches",
}


class TreeWatch:
    """Watches everything below `root`; symlinks are seen, and not followed.

    Watching starts in a thread, at once; what changes from now on is told, however long that takes.
    """

    def __init__(self, root: Path, *, ignore: Collection[str] = ()) -> None:
        """`ignore` names files or folders relative to the root that are not watched, nor anything below them."""
        self.root = Path(os.path.realpath(root))
        self.problem: str | None = None
        """Why changes are seen late or not at all, with the way out; None when all is well."""
        self._ignored = frozenset(ignore)
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._is_ready = self._is_closed = False
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        # Everything that happened before this moment has been told, or is in the kernel's queue.
        self._since = _file_time()
        self._must_scan = True
        self._refused: str | None = None
        self._events = self._opened()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=f"watch {self.root}", daemon=True)
        self._thread.start()

    async def ready(self) -> None:
        """From here on a change is told as soon as it happened."""
        await self._until(lambda: self._is_ready)

    async def wait(self) -> None:
        """Until there is something in `changed`, or the watch is closed."""
        await self._until(lambda: bool(self._changed))

    def changed(self) -> set[str]:
        """What changed since the last call, relative to the root; once ready, everything up to this very moment.

        A path where nothing is any more was removed, with all that was below it. One that is a folder is new (what is
        below it is named as well), or the list of its names or its mode may have changed ("." is the root).
        """
        if self._is_ready and self._lock.acquire(timeout=_PATIENCE_SECONDS):
            try:
                self._take_events()
            finally:
                self._lock.release()
        # Taking one by one, since the thread may be adding: a set that is copied while it grows is an error.
        found: set[str] = set()
        with suppress(KeyError):
            while True:
                found.add(self._changed.pop())
        return found

    def close(self) -> None:
        """Ends the thread; fine to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._tell()
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)
        if self._events:
            self._events.close()

    # Waiting.

    async def _until(self, condition: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not condition() and not self._is_closed:
            waiter = (loop, loop.create_future())
            self._waiting.append(waiter)
            try:
                # What came between the question and the entry into the list has told nobody.
                if not condition() and not self._is_closed:
                    await waiter[1]
            finally:
                with suppress(ValueError):
                    self._waiting.remove(waiter)

    def _tell(self) -> None:
        for loop, future in [*self._waiting]:
            # A loop that was closed meanwhile waits for nothing.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, future)

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    # The thread.

    def _run(self) -> None:
        poll = self._poll()
        next_scan = time.monotonic()
        while not self._is_closed:
            if self._must_scan or (self.problem and time.monotonic() >= next_scan):
                seconds = self._scan()
                next_scan = time.monotonic() + max(_POLL_SECONDS, _POLL_SHARE * seconds)
            poll.poll(max(0, next_scan - time.monotonic()) * 1000 if self.problem else None)
            self._settle()
            with self._lock:
                self._take_events()
            if self._changed:
                self._tell()

    def _poll(self) -> "select.poll":
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._events:
            poll.register(self._events.descriptor, select.POLLIN)
        return poll

    def _settle(self) -> None:
        """Let a save come to its end, unless someone wants this to end."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if poll.poll(SETTLE_SECONDS * 1000):
            os.read(self._wake_read, 4096)

    def _scan(self) -> float:
        """Look through the whole tree for what is newer than what has been told; seconds it took."""
        started, begun, since = _file_time(), time.monotonic(), self._since
        self._must_scan = False
        self._refused = None if self._events else self._refused
        self._walk(".", since)
        self.problem = self._refused if self.root.is_dir() else self._no_root()
        # After an overflow while we looked, what was told ends where it ended before.
        self._since = since if self._must_scan else started
        self._is_ready = True
        self._tell()
        return time.monotonic() - begun

    # Looking through folders.

    def _walk(self, top: str, since: int) -> None:
        """Watch a folder and all below; report what was changed at or after `since` (0: everything)."""
        todo = [top]
        while todo and not self._is_closed:
            with self._lock:
                todo += self._enter(todo.pop(), since)
                self._take_events()

    def _enter(self, folder: str, since: int) -> list[str]:
        # First watched, then listed: what comes in between is then told twice, not never.
        self._watch(folder)
        folders: list[str] = []
        with suppress(OSError):
            if _is_newer(os.lstat(self._full(folder)), since):
                self._changed.add(folder)
            with os.scandir(self._full(folder)) as entries:
                for entry in entries:
                    path = _joined(folder, entry.name)
                    if self._is_ignored(path, entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                    elif not since or _is_entry_newer(entry, since):
                        self._changed.add(path)
        return folders

    def _watch(self, folder: str) -> None:
        if self._events is None:
            return
        try:
            watch = self._events.add(self._full(folder))
        except OSError as error:
            # Anything else: it is gone, or not ours to read.
            if error.errno in _LIMITS:
                self._fall_back(error)
            return
        before = self._watches.get(folder)
        if before is not None and before != watch:
            self._forget(folder, before)
        self._paths[watch] = folder
        self._watches[folder] = watch

    def _forget(self, folder: str, watch: int) -> None:
        self._watches.pop(folder, None)
        if self._paths.get(watch) == folder and self._events:
            del self._paths[watch]
            self._events.remove(watch)

    def _opened(self) -> Inotify | None:
        try:
            return Inotify()
        except OSError as error:
            self._fall_back(error)
            return None

    def _fall_back(self, error: OSError) -> None:
        reason = _LIMITS.get(error.errno or 0, str(error))
        self._refused = self.problem = (
            f"{self.root} cannot be watched: {reason}. Edits are found by looking through the tree every second or "
            "less often. Raise the limit with sysctl, or close other programs that watch files."
        )

    def _no_root(self) -> str:
        return f"{self.root} was moved or removed. Open the folder where it is now."

    # What the kernel tells. Called with the lock.

    def _take_events(self) -> None:
        if self._events is None or self._events.descriptor < 0:
            return
        drained_at = _file_time()
        for happening in self._events.read():
            self._take(happening)
        if not self._must_scan and self._is_ready and self.problem is None:
            self._since = drained_at

    def _take(self, happening: Happening) -> None:
        if happening.mask & inotify.OVERFLOW:
            self._must_scan = True
            self._wake()
            return
        folder = self._paths.get(happening.watch)
        if folder is None:
            return
        if happening.mask & (inotify.IGNORED | inotify.UNMOUNT):
            self._take_end(folder, happening)
        elif not happening.name:
            self._take_own(folder, happening.mask)
        elif not self._is_ignored(path := _joined(folder, happening.name), happening.name):
            self._changed.add(path)
            if happening.mask & inotify.IS_FOLDER:
                self._take_folder(path, happening.mask)

    def _take_end(self, folder: str, happening: Happening) -> None:
        self._paths.pop(happening.watch, None)
        if self._watches.get(folder) == happening.watch:
            del self._watches[folder]

    def _take_own(self, folder: str, mask: int) -> None:
        """Of a folder below the root its parent tells the same, with the name."""
        if folder != ".":
            return
        self._changed.add(".")
        if mask & (inotify.DELETE_SELF | inotify.MOVE_SELF):
            self.problem = self._no_root()

    def _take_folder(self, path: str, mask: int) -> None:
        if mask & inotify.MOVED_FROM:
            # The watches went along with the folder, and would tell its old name.
            below = path + "/"
            gone = [item for item in self._watches.items() if item[0] == path or item[0].startswith(below)]
            for folder, watch in gone:
                self._forget(folder, watch)
        elif mask & (inotify.CREATE | inotify.MOVED_TO):
            todo = [path]
            while todo and not self._is_closed:
                todo += self._enter(todo.pop(), 0)

    # Names.

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _is_ignored(self, path: str, name: str) -> bool:
        if path in self._ignored or _OWN_TEMPORARY.fullmatch(name):
            return True
        return name.endswith(".lock") and (path.startswith(".git/") or "/.git/" in path)


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _file_time() -> int:
    """Now, in nanoseconds, as a file written now would be stamped at the earliest."""
    return time.clock_gettime_ns(_FILE_CLOCK)


def _is_newer(status: os.stat_result, since: int) -> bool:
    return status.st_ctime_ns >= since


def _is_entry_newer(entry: "os.DirEntry[str]", since: int) -> bool:
    try:
        return _is_newer(entry.stat(follow_symlinks=False), since)
    except OSError:
        # Gone since it was listed, which is a change.
        return True


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
