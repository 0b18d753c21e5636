"""What the user does to a file, brought into the shadow: Carrying.

The user's tree lies below the overlay and changes while it is mounted, which the kernel leaves undefined: a file the
user replaces may be seen old or new. So each change is written through the view: as it is where the agent has not
touched the file, else merged three ways against the version of the user's that the agent's grew from (`bases.py`).
"""

import os
import stat

from etude.errors import OutsideRoot
from etude.workspace.bases import UNKNOWN, Base
from etude.workspace.databases import COMPANIONS, copy_consistently, is_sqlite
from etude.workspace.shadow_files import ShadowFiles
from etude.workspace.three_way import merge
from etude.workspace.versions import Version, below, is_link, is_whole, names_in, version_of
from etude.workspace.workspace import Followed


class Carrying:
    """`carry(path)` for each path that changed in the user's tree."""

    def __init__(self, files: ShadowFiles) -> None:
        self._files = files

    def carry(self, path: str) -> list[Followed]:
        """Bring what the user did at a path into the shadow."""
        try:
            return self._carry(path)
        except (OSError, OutsideRoot):
            # A folder above is a link of the agent's that leads out, the disk is full, …: the shadow keeps what it has.
            return [Followed(path=path, conflict=True)]

    def _carry(self, path: str) -> list[Followed]:
        if path.rpartition("/")[2].startswith(".etude-") and path.endswith(".tmp"):
            return []
        theirs, ours = self._files.live_version(path), self._files.folder.status(path)
        if theirs.is_other:
            return []
        ours_is_folder = ours is not None and stat.S_ISDIR(ours.st_mode)
        if theirs.is_folder:
            return self._carry_folder(path, theirs, is_there=ours_is_folder)
        if ours_is_folder:
            return self._carry_over_folder(path, theirs)
        database = self._database_of(path)
        return self._carry_database(database) if database else self._carry_file(path, theirs, ours)

    def _carry_plain(self, path: str) -> list[Followed]:
        return self._carry_file(path, self._files.live_version(path), self._files.folder.status(path))

    def _database_of(self, path: str) -> str | None:
        """The user's SQLite database that the path is, or is a companion of."""
        names = [path, *(path.removesuffix(ending) for ending in COMPANIONS if path.endswith(ending))]
        return next((name for name in names if is_sqlite(self._files.root / name)), None)

    def _carry_database(self, path: str) -> list[Followed]:
        """A database and its companions go together, as they are between two transactions, or not at all."""
        group = [path, *(path + ending for ending in COMPANIONS)]
        if any(self._files.is_agents(one) for one in group):
            return [Followed(path=path, conflict=True)]
        copy = self._files.state / "carried.sqlite"
        if not copy_consistently(self._files.root / path, copy):
            # It only looks like one.
            return [found for one in group for found in self._carry_plain(one)]
        self._files.folder.put_copy(path, copy, (self._files.root / path).stat().st_mode)
        copy.unlink()
        for one in group[1:]:
            self._files.folder.erase(one)
        for one in group:
            self._files.see(one)
            version = version_of(self._files.folder, one)
            self._files.bases.record(one, version.content, version.mode, digest=self._files.folder.digest(one))
        return [Followed(path=path)]

    def _carry_folder(self, path: str, theirs: Version, *, is_there: bool) -> list[Followed]:
        if not is_there and self._files.touched(path):
            return [Followed(path=path, conflict=True)]
        if not is_there:
            self._files.folder.put_folder(path, theirs.mode or 0o755)
            self._files.see(path)
        followed = []
        for name in sorted(
            names_in(self._files.root / path) ^ (names_in(self._files.folder.view / path) if is_there else set())
        ):
            followed += self.carry(below(path, name))
        return followed

    def _carry_over_folder(self, path: str, theirs: Version) -> list[Followed]:
        """The user has no folder here (any more), and the shadow does."""
        followed = []
        for name in sorted(names_in(self._files.folder.view / path)):
            followed += self.carry(below(path, name))
        if any(item.conflict for item in followed) or names_in(self._files.folder.view / path):
            return [*followed, Followed(path=path, conflict=True)] if theirs.mode is not None else followed
        self._files.folder.erase(path)
        self._files.see(path)
        return [*followed, *self._carry_file(path, theirs, None)] if theirs.mode is not None else followed

    def _carry_file(self, path: str, theirs: Version, ours: os.stat_result | None) -> list[Followed]:
        touched = self._files.touched(path)
        if not touched and self._shows(path, theirs, ours):
            return []
        base = self._files.bases.get(path) or UNKNOWN
        mine = version_of(self._files.folder, path)
        if touched and mine.content == theirs.content and mine.mode == theirs.mode and is_whole(mine):
            self._files.record(path, theirs)
            return []
        if not touched or self._files.equals(self._files.folder, path, mine, base):
            self._files.put(path, theirs)
            return [Followed(path=path)]
        if self._files.equals(self._files.live, path, theirs, base):
            return []
        return [self._merge(path, base, mine, theirs)]

    def _shows(self, path: str, theirs: Version, ours: os.stat_result | None) -> bool:
        """Whether the view already shows the user's version, and a listing of the folder would."""
        if theirs.status is None or ours is None or path in self._files.buffers:
            return theirs.mode is None and ours is None
        parent = path.rpartition("/")[0]
        return _looks(theirs.status) == _looks(ours) and not (parent and self._files.touched(parent))

    def _merge(self, path: str, base: Base, mine: Version, theirs: Version) -> Followed:
        if not base.known or not is_whole(mine) or not is_whole(theirs) or is_link(mine) or is_link(theirs):
            return Followed(path=path, conflict=True)
        merged = merge(self._files.bases.content(base), mine.content, theirs.content)
        if merged.conflict:
            return Followed(path=path, conflict=True)
        if merged.content is None:
            self._files.folder.erase(path)
        else:
            mode = theirs.mode if mine.mode == base.mode else mine.mode
            self._files.folder.put_file(path, merged.content, mode or theirs.mode or 0o644)
        self._files.see(path)
        self._files.record(path, theirs)
        return Followed(path=path, merged=True)


def _looks(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode
