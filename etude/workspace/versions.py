"""What stands at a path of a tree, as a value that can be compared and put elsewhere."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from etude.workspace.bases import MAX_KEPT_BYTES
from etude.workspace.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What stands at a path in one of the trees."""

    status: os.stat_result | None
    content: bytes | None
    """A file's bytes or a link's target; None for a folder, for nothing, and for files too large to merge."""
    mode: int | None

    @property
    def is_folder(self) -> bool:
        return self.mode is not None and stat.S_ISDIR(self.mode)

    @property
    def is_other(self) -> bool:
        """A socket, a pipe, a device: it is there, and cannot be copied."""
        return self.status is not None and self.mode is None


def version_of(folder: Folder, path: str, *, max_bytes: int | None = MAX_KEPT_BYTES) -> Version:
    status = folder.status(path)
    if status is None:
        return Version(status=None, content=None, mode=None)
    if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
        return Version(status=status, content=None, mode=None)
    too_large = max_bytes is not None and stat.S_ISREG(status.st_mode) and status.st_size > max_bytes
    return Version(status=status, content=None if too_large else folder.content(path), mode=status.st_mode)


def is_whole(version: Version) -> bool:
    """Whether the content is all there is to compare; not so for large files, folders and devices."""
    return version.content is not None or version.mode is None


def is_link(version: Version) -> bool:
    return version.mode is not None and stat.S_ISLNK(version.mode)


def names_in(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as scan:
            return {entry.name for entry in scan}
    except OSError:
        return set()


def below(path: str, name: str) -> str:
    return name if path == "." else f"{path}/{name}"


def ways_to(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
