"""What the agent's version of a file grew from: the user's version when the agent first touched it.

Kept on disk beside the shadow, line by line, so that a shadow reopened after a crash still merges three ways.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Of larger files no copy is kept: where both sides change one, it is a conflict.
MAX_KEPT_BYTES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The user's version of one file, as last followed."""

    known: bool = True
    """False when the user and a command changed the file at the same time: nobody saw what was there before."""
    digest: str | None = None
    """SHA-256 of the content, or of a link's target; None if there was no file."""
    mode: int | None = None
    """As stat gives it; None if there was no file."""


UNKNOWN = Base(known=False)
NOTHING = Base()


class Bases:
    """`record` what a path was, ask for it by `get` and `content`."""

    def __init__(self, folder: Path, entries: Mapping[str, Base] | None = None) -> None:
        self._folder = folder
        self._journal = folder / "bases.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._entries = dict(_read_journal(self._journal) if entries is None else {})
        for path, base in (entries or {}).items():
            self._set(path, base)

    def get(self, path: str) -> Base | None:
        """None: nobody but the user has touched the file."""
        return self._entries.get(path)

    def record(self, path: str, content: bytes | None, mode: int | None, *, digest: str | None = None) -> None:
        """`digest` is given for a file that is too large to keep."""
        self._set(path, Base(digest=digest if content is None else self._keep(content), mode=mode))

    def record_unknown(self, path: str) -> None:
        self._set(path, UNKNOWN)

    def content(self, base: Base) -> bytes | None:
        """What `record` was given; None also for content that was too large to keep."""
        if base.digest is None:
            return None
        with suppress(OSError):
            return (self._folder / base.digest).read_bytes()
        return None

    def entries(self) -> dict[str, Base]:
        return dict(self._entries)

    def shared_with(self, folder: Path, entries: Mapping[str, Base]) -> "Bases":
        """The same knowledge for a copy of the shadow, kept in another folder."""
        shared = Bases(folder, {})
        for path, base in entries.items():
            content = self.content(base)
            if content is not None:
                shared._keep(content)
            shared._set(path, base)
        return shared

    def replace(self, entries: Mapping[str, Base]) -> None:
        self._entries = {}
        self._journal.unlink(missing_ok=True)
        for path, base in entries.items():
            self._set(path, base)

    def _keep(self, content: bytes) -> str:
        digest = digest_of(content)
        kept = self._folder / digest
        if len(content) <= MAX_KEPT_BYTES and not kept.exists():
            partial = kept.with_suffix(".part")
            # On a full disk the work goes on; where both sides then change this file, it is a conflict.
            with suppress(OSError):
                partial.write_bytes(content)
                partial.replace(kept)
        return digest

    def _set(self, path: str, base: Base) -> None:
        self._entries[path] = base
        line = json.dumps([path, base.known, base.digest, base.mode])
        # What a full disk does not take is not known after a crash; until then it is.
        with suppress(OSError), self._journal.open("a", encoding="utf-8", errors="surrogateescape") as journal:
            journal.write(line + "\n")


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_journal(journal: Path) -> dict[str, Base]:
    """What was written before a crash; a last line that is cut off is left out."""
    entries: dict[str, Base] = {}
    with suppress(FileNotFoundError):
        for line in journal.read_text("utf-8", errors="surrogateescape").splitlines():
            with suppress(ValueError):
                path, known, digest, mode = json.loads(line)
                entries[path] = Base(known=known, digest=digest, mode=mode)
    return entries
