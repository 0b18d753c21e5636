"""Reading and saving for the page, and taking a save back."""

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from etude.errors import FileChanged, InputError
from etude.server.page_text import from_page, to_page
from etude.server.wire import OpenedFile
from etude.workspace.files import TextFile, create, read_text_file, remove, save, within

# Enough to take back an afternoon; the oldest are forgotten.
MAX_KEPT_SAVES = 100
MAX_KEPT_CHARACTERS = 32_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One save that can be taken back."""

    path: str
    before: TextFile | None
    """None when the save created the file."""
    sha256_after: str


class Saves:
    """The files of one root as the page edits them. One per server; what it keeps is in memory only."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: deque[Saved] = deque(maxlen=MAX_KEPT_SAVES)
        # Two requests that both saw the file as it was read must not both save it.
        self._one_at_a_time = threading.Lock()

    def open(self, path: str) -> OpenedFile:
        return self._opened(path, read_text_file(self._place(path)))

    def exists(self, path: str) -> bool:
        return self._place(path).is_file()

    def save(self, path: str, page_text: str, base_sha256: str) -> OpenedFile:
        """Write what the page shows; raises FileChanged unless the file is still the one it was read from."""
        with self._one_at_a_time:
            return self._save(path, page_text, base_sha256)

    def create(self, path: str, page_text: str) -> OpenedFile:
        """Write a new file, and the folders it lies in."""
        with self._one_at_a_time:
            created = create(self._place(path), page_text, make_folders=True)
            self._keep(Saved(path=path, before=None, sha256_after=created.sha256))
            return self._opened(path, created)

    def undo(self, path: str) -> OpenedFile | None:
        """Take the last save of `path` back; None when that save had created the file."""
        with self._one_at_a_time:
            return self._undo(path)

    def _save(self, path: str, page_text: str, base_sha256: str) -> OpenedFile:
        file = read_text_file(self._place(path))
        if file.sha256 != base_sha256:
            raise FileChanged(
                f"{path} was changed on disk by someone else since it was opened. Nothing was written: "
                "reload it, or save again to replace what is there."
            )
        saved = save(file, from_page(page_text, file.text))
        if saved.sha256 != file.sha256:
            self._keep(Saved(path=path, before=file, sha256_after=saved.sha256))
        return self._opened(path, saved)

    def _undo(self, path: str) -> OpenedFile | None:
        last = self._last(path)
        if last is None:
            raise InputError(f"{path} was not saved from here since etude was started; there is nothing to undo.")
        now = read_text_file(self._place(path))
        if now.sha256 != last.sha256_after:
            raise FileChanged(f"{path} was changed by someone else since it was saved here; the save was not undone.")
        if last.before is None:
            remove(now)
        else:
            now = save(now, last.before.text)
        self._kept.remove(last)
        return None if last.before is None else self._opened(path, now)

    def _opened(self, path: str, file: TextFile) -> OpenedFile:
        can_undo = self._last(path) is not None
        return OpenedFile(path=path, text=to_page(file.text), sha256=file.sha256, can_undo=can_undo)

    def _last(self, path: str) -> Saved | None:
        return next((saved for saved in reversed(self._kept) if saved.path == path), None)

    def _keep(self, saved: Saved) -> None:
        self._kept.append(saved)
        while len(self._kept) > 1 and sum(_size(kept) for kept in self._kept) > MAX_KEPT_CHARACTERS:
            self._kept.popleft()

    def _place(self, path: str) -> Path:
        return within(self._root, path)


def _size(saved: Saved) -> int:
    return len(saved.before.text) if saved.before else 0
