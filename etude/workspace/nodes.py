"""What stands at a path of a tree that others change meanwhile: Node, Tree. Links on the way are not followed."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# A disk without hard links (FAT, some network disks).
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What stands at a path: Node(mode=0o100644, content=b"x = 1\\n")."""

    mode: int = 0
    """Kind and permissions as stat gives them; 0: nothing is there."""
    content: bytes | None = None
    """A file's bytes, a link's target; None for anything else, and for a file that is larger than was asked for."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


NOTHING = Node()


class Tree:
    """A folder, entered part by part without following links."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def node(self, path: str, *, max_bytes: int | None = None) -> Node:
        """Raises OSError, ELOOP or ENOTDIR, when a folder on the way is a link or something else."""
        try:
            with self.folder_of(path) as (folder, name):
                return node_at(folder, name, max_bytes=max_bytes)
        except FileNotFoundError:
            return NOTHING

    def names(self, path: str) -> list[str]:
        with self.folder_of(f"{path}/.") as (folder, _):
            return os.listdir(folder)  # noqa: PTH208 (a descriptor)

    @contextmanager
    def folder_of(self, path: str) -> Generator[tuple[int, str]]:
        """The open folder that holds the last part of a path, and that part."""
        *parts, name = path.split("/")
        folder = os.dup(self._descriptor)
        try:
            for part in parts:
                inner = os.open(part, FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)


def node_at(folder: int, name: str, *, max_bytes: int | None = None) -> Node:
    """What stands under a name in an open folder."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return Node(mode=status.st_mode, content=os.fsencode(os.readlink(name, dir_fd=folder)))
        if not stat.S_ISREG(status.st_mode) or (max_bytes is not None and status.st_size > max_bytes):
            return Node(mode=status.st_mode)
        with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb", buffering=0) as opened:
            return Node(mode=os.fstat(opened.fileno()).st_mode, content=opened.readall())
    except FileNotFoundError:
        return NOTHING


def folders_above(path: str) -> list[str]:
    """folders_above("a/b/c") is ["a", "a/b"]."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def link_or_move(name: str, folder: int, new_name: str, new_folder: int) -> None:
    """A second name for the same file, or where the disk knows no such thing another one."""
    try:
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)


def dress(descriptor: int, folder: int, original: str) -> None:
    """Give a file the owner and the extended attributes of the one it stands for, as far as we may."""
    with os.fdopen(os.open(original, _READ, dir_fd=folder), "rb") as opened:
        status = os.fstat(opened.fileno())
        with suppress(OSError):
            os.fchown(descriptor, -1, status.st_gid)
        with suppress(OSError):
            os.fchown(descriptor, status.st_uid, -1)
        for name in os.listxattr(opened.fileno()):
            with suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(opened.fileno(), name))
