"""Reading and writing in a tree that other programs change at the same time, without ever leaving it.

A path is walked part by part from an open folder, and a symlink is followed by hand: whatever a command swaps for a
link in the meantime, nothing outside the tree is opened. `view` is where this process reaches the tree, `root` the
name the tree has for those who work in it; a link to an absolute path below `root` stays inside.

Git's own folder may be read and not written: what is written there, git runs.
"""

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from etude.errors import FileNotWritable, FileUnusable, OutsideRoot
from etude.workspace.files import MAX_BYTES, MAX_PATH_CHARACTERS, decoded, encoded, is_of_git
from etude.workspace.git_ignore import MADE_FOLDERS
from etude.workspace.workspace import Entry, EntryKind

# As the system itself allows on the way to one file.
MAX_LINKS = 40

MAX_ENTRIES = 20_000

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Found:
    """The open folder that holds the last part of a path, and that part, which is no link."""

    folder: int
    name: str
    """"." for the root itself."""
    path: str
    """The whole path with links followed, relative to the root."""


class Folder:
    """`Folder(view=Path("/proc/7/root/home/me/app"), root=Path("/home/me/app"))`; close it when done."""

    def __init__(self, *, view: Path, root: Path) -> None:
        self.view = view
        self.root = root
        self._descriptor = os.open(view, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read_bytes(self, path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
        """The content of a file. Raises FileUnusable, OutsideRoot."""
        with _reading(path), self._found(path) as found:
            descriptor = os.open(found.name, _READ, dir_fd=found.folder)
            with os.fdopen(descriptor, "rb", buffering=0) as opened:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise FileUnusable(f"{path} is not a file. Name a file, or list the folder.")
                if status.st_size > max_bytes:
                    raise FileUnusable(
                        f"{path} has {status.st_size / 1e6:.1f} MB; up to {max_bytes / 1e6:g} MB can be read at once."
                    )
                return opened.read(max_bytes + 1) if not status.st_size else opened.readall()

    def read_text(self, path: str, *, max_bytes: int = MAX_BYTES) -> str:
        """The text of a file, line endings and byte order mark untouched. Raises FileUnusable, OutsideRoot."""
        return decoded(Path(path), self.read_bytes(path, max_bytes=max_bytes), bom=False)

    def read_texts(self, paths: Sequence[str], *, max_bytes: int = MAX_BYTES) -> list[str | None]:
        """The text of each; None for what is no text, or cannot be read."""
        texts: list[str | None] = []
        for path in paths:
            try:
                texts.append(self.read_text(path, max_bytes=max_bytes))
            except (FileUnusable, OutsideRoot):
                texts.append(None)
        return texts

    def write_bytes(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace or create the file at one stroke, with its folders. Raises FileNotWritable, OutsideRoot.

        `mode` None keeps the old file's permission bits, or takes the usual ones.
        """
        _check_not_of_git(path)
        with _writing(path), self._found(path, make_folders=True) as found:
            # Also where a link leads there.
            _check_not_of_git(found.path)
            if mode is None:
                mode = _mode_of(found)
            _replace(found, lambda opened: opened.write(data), mode)

    def write_text(self, path: str, text: str) -> None:
        """As `write_bytes`, for UTF-8."""
        self.write_bytes(path, encoded(Path(path), text))

    def remove(self, path: str) -> None:
        """Remove a file or link (not what it points to). Raises FileNotWritable, OutsideRoot."""
        _check_not_of_git(path)
        with _writing(path), self._found(path, follow_last=False) as found:
            _check_not_of_git(found.path)
            os.unlink(found.name, dir_fd=found.folder)

    def real_path(self, path: str) -> str:
        """The path with links followed as far as it exists. Raises OutsideRoot."""
        try:
            with self._found(path) as found:
                return found.path
        except OSError:
            return str(PurePosixPath(path))

    def status(self, path: str) -> os.stat_result | None:
        """What stands at the path itself, links not followed; None if nothing, or where a folder above leads out."""
        try:
            with self._found(path, follow_last=False) as found:
                return os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
        except (OSError, OutsideRoot):
            return None

    def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        """Entries sorted by path. Raises FileUnusable, OutsideRoot."""
        with _reading(path), self._found(path) as found:
            descriptor = os.open(found.name, _FOLDER, dir_fd=found.folder)
            try:
                prefix = "" if path in (".", "") else f"{PurePosixPath(path)}/"
                entries = [*_entries(descriptor, prefix, depth, [MAX_ENTRIES])]
            finally:
                os.close(descriptor)
        return sorted(entries, key=lambda entry: entry.path)

    # The same for whoever mirrors another tree into this one: links are taken as they are, git's folder included.

    def put_file(self, path: str, data: bytes, mode: int) -> None:
        """Make the path a file with this content and mode, whatever stood there. Raises OSError."""
        with self._found(path, make_folders=True, follow_last=False) as found:
            self._clear(found)
            _replace(found, lambda opened: opened.write(data), mode)

    def put_copy(self, path: str, source: Path, mode: int) -> None:
        """As `put_file`, with the content of a file elsewhere, however large. Raises OSError."""
        with self._found(path, make_folders=True, follow_last=False) as found, source.open("rb") as reader:
            self._clear(found)
            _replace(found, lambda opened: shutil.copyfileobj(reader, opened, 1 << 20), mode)

    def put_link(self, path: str, target: str) -> None:
        with self._found(path, make_folders=True, follow_last=False) as found:
            self._clear(found)
            with suppress(FileNotFoundError):
                os.unlink(found.name, dir_fd=found.folder)
            os.symlink(target, found.name, dir_fd=found.folder)

    def put_folder(self, path: str, mode: int) -> None:
        with self._found(path, make_folders=True, follow_last=False) as found:
            status = _status(found)
            if status and not stat.S_ISDIR(status.st_mode):
                os.unlink(found.name, dir_fd=found.folder)
                status = None
            if status is None:
                os.mkdir(found.name, 0o700, dir_fd=found.folder)
            if not status or stat.S_IMODE(status.st_mode) != stat.S_IMODE(mode):
                os.chmod(found.name, stat.S_IMODE(mode), dir_fd=found.folder)

    def erase(self, path: str) -> None:
        """Remove whatever stands there, with everything below; nothing is fine, too."""
        try:
            with self._found(path, follow_last=False) as found:
                erase_at(found.folder, found.name)
        except (FileNotFoundError, NotADirectoryError):
            return

    def content(self, path: str) -> bytes | None:
        """A file's bytes, or a link's target; None for anything else."""
        try:
            with self._found(path, follow_last=False) as found:
                return content_at(found.folder, found.name)
        except (OSError, OutsideRoot):
            return None

    def digest(self, path: str) -> str | None:
        """SHA-256 of a file of any size; None for anything else."""
        try:
            with self._found(path, follow_last=False) as found:
                descriptor = os.open(found.name, _READ, dir_fd=found.folder)
                with os.fdopen(descriptor, "rb") as opened:
                    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
                    return hashlib.file_digest(opened, "sha256").hexdigest() if is_file else None
        except (OSError, OutsideRoot):
            return None

    def _clear(self, found: _Found) -> None:
        """A folder in the way of a file goes."""
        status = _status(found)
        if status and stat.S_ISDIR(status.st_mode):
            erase_at(found.folder, found.name)

    @contextmanager
    def _found(self, path: str, *, make_folders: bool = False, follow_last: bool = True) -> Generator[_Found]:
        walk = _Walk(self._descriptor, self.root, path)
        try:
            yield walk.to_end(make_folders=make_folders, follow_last=follow_last)
        finally:
            walk.close()


class _Walk:
    """The way from the root to a path: a stack of open folders and the parts still to go."""

    def __init__(self, descriptor: int, root: Path, path: str) -> None:
        if not path or "\0" in path or len(path) > MAX_PATH_CHARACTERS:
            raise OutsideRoot(f"{path[:40]!r} is not a path. Name a file relative to the workspace.")
        self._path = path
        self._root = root
        self._open = [os.dup(descriptor)]
        self._names: list[str] = []
        self._todo: list[str] = []
        self._num_links = 0
        self._push(path)

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)

    def to_end(self, *, make_folders: bool, follow_last: bool) -> _Found:
        while self._todo:
            part = self._todo.pop()
            is_last = not self._todo
            if part == "..":
                self._go_up()
            elif (follow_last or not is_last) and self._follow(part):
                continue
            elif is_last:
                return _Found(self._open[-1], part, "/".join((*self._names, part)))
            else:
                self._enter(part, make_folders=make_folders)
        return _Found(self._open[-1], ".", "/".join(self._names) or ".")

    def _push(self, path: str) -> None:
        pure = PurePosixPath(path)
        if pure.is_absolute():
            if not pure.is_relative_to(self._root):
                raise OutsideRoot(f"{self._path} leads out of the workspace, to {path}. Name a file inside it.")
            pure = pure.relative_to(self._root)
            while len(self._open) > 1:
                self._go_up()
        self._todo += reversed(pure.parts)

    def _go_up(self) -> None:
        if len(self._open) == 1:
            raise OutsideRoot(f"{self._path} leads out of the workspace. Name a file inside it.")
        os.close(self._open.pop())
        self._names.pop()

    def _follow(self, part: str) -> bool:
        """If the part is a link, go on along it."""
        try:
            target = os.readlink(part, dir_fd=self._open[-1])
        except OSError:
            return False
        self._num_links += 1
        if self._num_links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self._push(target)
        return True

    def _enter(self, part: str, *, make_folders: bool) -> None:
        if make_folders:
            with suppress(FileExistsError):
                os.mkdir(part, 0o777, dir_fd=self._open[-1])
        self._open.append(os.open(part, _FOLDER, dir_fd=self._open[-1]))
        self._names.append(part)


def content_at(folder: int, name: str) -> bytes | None:
    """A file's bytes or a link's target, by an open folder; None for anything else. Raises OSError."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(status.st_mode):
        return None
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb", buffering=0) as opened:
        return opened.readall()


def _check_not_of_git(path: str) -> None:
    if any(map(is_of_git, path.replace("\\", "/").split("/"))):
        raise OutsideRoot(f"{path!r} is git's own; etude does not write there. Use git commands.")


def _status(found: _Found) -> os.stat_result | None:
    try:
        return os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _replace(found: _Found, fill: Callable[[BinaryIO], object], mode: int) -> None:
    """Write a new file beside the old one and rename it over."""
    temporary = f".etude-{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=found.folder)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            fill(opened)
            os.fchmod(descriptor, stat.S_IMODE(mode))
        os.rename(temporary, found.name, src_dir_fd=found.folder, dst_dir_fd=found.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=found.folder)
        raise


def _mode_of(found: _Found) -> int:
    status = _status(found)
    if status is None:
        # As a program would get that creates a file; the umask cannot be asked for without setting it.
        return 0o644
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is not a file")
    return status.st_mode


def erase_at(folder: int, name: str) -> None:
    """Remove what stands under a name in an open folder, with everything below. Raises OSError.

    However deep it is: folders below are first moved up, so there is no recursion and no path.
    """
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    top = _opened_for_erasing(folder, name)
    try:
        while children := os.listdir(top):  # noqa: PTH208 (a descriptor)
            for child in children:
                _erase_child(top, child)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=folder)


def _erase_child(top: int, child: str) -> None:
    """Remove a file or an empty folder; of any other folder move up what is in it."""
    if not stat.S_ISDIR(os.stat(child, dir_fd=top, follow_symlinks=False).st_mode):
        os.unlink(child, dir_fd=top)
        return
    inner = _opened_for_erasing(top, child)
    try:
        for name in os.listdir(inner):  # noqa: PTH208 (a descriptor)
            if not stat.S_ISDIR(os.stat(name, dir_fd=inner, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=inner)
                continue
            try:
                os.rename(name, f".erased-{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)
            except OSError:
                # An overlay does not move folders of the user's; those are not made to be endless.
                erase_at(inner, name)
    finally:
        os.close(inner)
    os.rmdir(child, dir_fd=top)


def _opened_for_erasing(folder: int, name: str) -> int:
    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, 0o700, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _entries(descriptor: int, prefix: str, depth: int, left: list[int]) -> Iterator[Entry]:
    with os.scandir(descriptor) as scan:
        found = sorted(scan, key=lambda entry: entry.name)
    for entry in found:
        if left[0] <= 0:
            return
        left[0] -= 1
        kind = _kind_of(entry)
        num_bytes = entry.stat(follow_symlinks=False).st_size if kind is EntryKind.FILE else 0
        yield Entry(path=prefix + entry.name, kind=kind, num_bytes=num_bytes)
        if kind is EntryKind.FOLDER and depth > 1 and not _is_skipped(entry.name):
            with suppress(OSError):
                inner = os.open(entry.name, _FOLDER, dir_fd=descriptor)
                try:
                    yield from _entries(inner, f"{prefix}{entry.name}/", depth - 1, left)
                finally:
                    os.close(inner)


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in MADE_FOLDERS


def _kind_of(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_symlink():
        return EntryKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.FOLDER
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


@contextmanager
def _reading(path: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        raise FileUnusable(f"{path} does not exist. Check the name, or list the folder.") from None
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read: {error.strerror}.") from None


@contextmanager
def _writing(path: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        raise FileNotWritable(f"{path} does not exist; nothing was changed.") from None
    except OSError as error:
        raise FileNotWritable(f"{path} was not written: {error.strerror}; nothing was changed.") from None
