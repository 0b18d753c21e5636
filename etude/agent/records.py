"""What a conversation no longer holds, and where it can be read back: numbered records beside the trace.

    records = Records(folder)
    records.cut(output, "output", 8_000)        # head, "… 1,204 lines left out; read them with recall(…)", tail
    records.read("output:3", 41, 90)
    records.search("ImportError")

Records are only added. On disk they are lines of JSON in one file, so that a crash costs at most the record that was
being written; a disk that is full costs nothing but the memory the text takes. When to drop what is `compaction.py`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from etude.agent.terminal_text import clean
from etude.errors import InputError

_FILE_NAME = "records.jsonl"

# Beyond what a command's output or a model's answer is limited to; a longer text loses its middle.
MAX_RECORD_CHARACTERS = 16_000_000

# A run of thousands of turns stays far below; what comes after is cut for good, and says so.
MAX_TOTAL_CHARACTERS = 1_000_000_000
MAX_MEMORY_CHARACTERS = 200_000_000

# A kind becomes part of an id that a model writes.
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")

_ID = re.compile(rf"{_KIND.pattern}:\d{{1,12}}(?:-\d{{1,6}})?")

# Of a line that is found; the rest is read.
_MAX_HIT_CHARACTERS = 200

_MAX_TITLE_CHARACTERS = 300
_MAX_QUERY_CHARACTERS = 400

# The longest line that says what was left out.
_NOTE_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Where a text is kept: Record(id="output:3", title="$ pytest -q", num_lines=1204, num_characters=60311)."""

    id: str
    title: str = ""
    """One line that says what it is."""
    num_lines: int
    num_characters: int
    kept: bool = True
    """False when there was no room left; then the text cannot be read."""

    @property
    def kind(self) -> str:
        return self.id.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A line that was searched for: Hit(id="output:3", line=41, text="E  ImportError: …")."""

    id: str
    line: int
    """From 1."""
    text: str
    """Without indentation, and cut when it is long."""


class Records:
    """Numbered texts, on disk in `folder` or, without one, in memory. Opening a folder again finds them all."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / _FILE_NAME if folder else None
        self._records: dict[str, Record] = {}
        self._texts: dict[str, str | tuple[int, int]] = {}  # the text, or where its line is in the file
        self._last_number: dict[str, int] = {}
        self._num_characters = 0
        if folder and self._path:
            # Where nothing can be written, records are kept in memory; a run does not end for them.
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                self._load(self._path)

    def keep(self, kind: str, text: str, *, title: str = "", number: int | None = None) -> Record:
        """Add a text. With a `number` (a turn's) the id is "kind:number"; the same text again is the same record,
        another text under a number that is taken gets "kind:number-2"."""
        if not _KIND.fullmatch(kind):
            raise ValueError(f"a kind of record is a short lower-case word, not {kind[:40]!r}")
        text = _bounded(text)
        id = self._free_id(kind, text, number)
        if id in self._records:
            return self._records[id]
        return self._add(id, text, " ".join(title.split())[:_MAX_TITLE_CHARACTERS])

    def read(self, id: str, first_line: int = 1, last_line: int | None = None) -> str:
        """Lines of a record, both ends included, counted from 1. Raises InputError for what is not there."""
        record = self.find(id)
        if first_line < 1 or (last_line is not None and last_line < first_line):
            raise InputError(f"lines {first_line} to {last_line} are no range; lines count from 1.")
        if first_line > record.num_lines:
            raise InputError(f"{id} has {record.num_lines} lines; line {first_line} is beyond its end.")
        text = self._text(id)
        if first_line == 1 and (last_line is None or last_line >= record.num_lines):
            return text
        return "\n".join(text.split("\n")[first_line - 1 : last_line])

    def find(self, id: str) -> Record:
        """The record of that id. Raises InputError that names the ids there are."""
        if record := self._records.get(id):
            return record
        kinds = [f"{kind}:1 to {kind}:{number}" for kind, number in sorted(self._last_number.items())]
        raise InputError(f"there is no record {id[:80]!r}; there are {', '.join(kinds) or 'none yet'}.")

    def has(self, id: str) -> bool:
        return id in self._records

    def contents(self, kind: str = "") -> list[Record]:
        """All records, or those of one kind, oldest first."""
        return [record for record in self._records.values() if not kind or record.kind == kind]

    def search(self, query: str, limit: int = 20, *, id: str = "") -> list[Hit]:
        """Lines that hold the query, the newest records first; when none does, lines that hold all its words.
        With an id, of that record only."""
        query = query.strip().lower()[:_MAX_QUERY_CHARACTERS]
        if not query or limit < 1:
            return []
        ids = [self.find(id).id] if id else list(reversed(self._records))
        return self._hits(ids, [query], limit) or self._hits(ids, query.split(), limit)

    def cut(self, text: str, kind: str, max_characters: int, *, title: str = "") -> str:
        """The text as a reader wants it, or its two ends and, between them, a line that says how to see the rest."""
        text = clean(text)
        if len(text) <= max_characters:
            return text
        return shortened(text, self.keep(kind, text, title=title), max_characters)

    def _free_id(self, kind: str, text: str, number: int | None) -> str:
        if number is None:
            return f"{kind}:{self._last_number.get(kind, 0) + 1}"
        id, again = f"{kind}:{number}", 1
        while id in self._records and self._text(id) != text:
            again += 1
            id = f"{kind}:{number}-{again}"
        return id

    def _add(self, id: str, text: str, title: str) -> Record:
        most = MAX_TOTAL_CHARACTERS if self._path else MAX_MEMORY_CHARACTERS
        kept = self._num_characters + len(text) <= most
        record = Record(id=id, title=title, num_lines=text.count("\n") + 1, num_characters=len(text), kept=kept)
        self._note(record)
        self._texts[id] = self._written(record, text) if kept else ""
        return record

    def _note(self, record: Record) -> None:
        number = int(record.id.partition(":")[2].partition("-")[0])
        self._records[record.id] = record
        self._last_number[record.kind] = max(number, self._last_number.get(record.kind, 0))
        self._num_characters += record.num_characters

    def _written(self, record: Record, text: str) -> str | tuple[int, int]:
        """Where the text is now: in the file, or with us if the disk does not take it."""
        if not self._path:
            return text
        line = json.dumps({"id": record.id, "title": record.title, "text": text}).encode("ascii")
        try:
            return _append(self._path, line)
        except OSError:
            return text

    def _text(self, id: str) -> str:
        if not self._records[id].kept:
            raise InputError(f"{id} was not kept: the records of this run had reached their limit.")
        place = self._texts[id]
        if isinstance(place, str):
            return place
        assert self._path
        try:
            with self._path.open("rb") as file:
                file.seek(place[0])
                return str(json.loads(file.read(place[1]))["text"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{id} can no longer be read from {self._path}: {error}.") from error

    def _load(self, path: Path) -> None:
        """Find the records of an earlier process; what it did not finish writing is not one."""
        for offset, line in _lines(path):
            try:
                entry = json.loads(line)
                id, text, title = str(entry["id"]), str(entry["text"]), str(entry["title"])
                record = Record(id=id, title=title, num_lines=text.count("\n") + 1, num_characters=len(text))
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if not _ID.fullmatch(id):
                continue
            self._note(record)
            self._texts[id] = (offset, len(line))

    def _hits(self, ids: Sequence[str], words: Sequence[str], limit: int) -> list[Hit]:
        hits: list[Hit] = []
        for id in ids:
            if self._records[id].kept and len(hits) < limit:
                hits += _hits_in(id, self._text(id), words, limit - len(hits))
        return hits


def shortened(text: str, record: Record, max_characters: int, *, first_line: int = 1) -> str:
    """Head and tail of a kept text, which begins at `first_line` of its record. The tail gets more, since a command
    says at its end what went wrong."""
    lines = text.split("\n")
    room = max(max_characters - _NOTE_CHARACTERS, 80)
    lines = [_with_short_middle(line, max(room // 3, 40)) for line in lines]
    head = _num_fitting(lines, room * 2 // 5)
    tail = _num_fitting(lines[head:][::-1], room - sum(len(line) + 1 for line in lines[:head]))
    if head + tail == len(lines):
        return "\n".join([*lines, f"… {_way_to_read(record, first_line, 'some lines are cut')}"])
    note = f"… {_way_to_read(record, first_line + head, f'{len(lines) - head - tail:,} lines left out')}"
    return "\n".join([*lines[:head], note, *lines[len(lines) - tail :]])


def _way_to_read(record: Record, first_line: int, what: str) -> str:
    if not record.kept:
        return f"{what}; there was no room to keep them"
    return f'{what}; read them with recall(id="{record.id}", first_line={first_line})'


def _num_fitting(lines: Sequence[str], room: int) -> int:
    """How many of the first lines fit into that many characters, line ends included."""
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return number
    return len(lines)


def _with_short_middle(line: str, max_characters: int) -> str:
    if len(line) <= max_characters:
        return line
    half = max((max_characters - 40) // 2, 10)
    return f"{line[:half]} … {len(line) - 2 * half:,} characters left out … {line[-half:]}"


def _bounded(text: str) -> str:
    if len(text) <= MAX_RECORD_CHARACTERS:
        return text
    half = MAX_RECORD_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters were not kept …\n{text[-half:]}"


def _append(path: Path, line: bytes) -> tuple[int, int]:
    """Add a line in its own right, whatever half a line a crash or a full disk left before it; returns where it is."""
    with path.open("ab") as file:
        start = file.tell() + 1
        file.write(b"\n" + line)
    return start, len(line)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of every line that is not empty."""
    if not path.exists():
        return
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if line != b"\n":
                yield offset, line.rstrip(b"\n")
            offset += len(line)


def _hits_in(id: str, text: str, words: Sequence[str], limit: int) -> Iterator[Hit]:
    """The first lines of a text that hold all the words, which are in lower case."""
    lowered = text.lower()
    if not all(word in lowered for word in words):
        return
    for number, line in enumerate(text.split("\n"), 1):
        lowered = line.lower()
        if all(word in lowered for word in words):
            yield Hit(id=id, line=number, text=_around(line.strip(), words[0]))
            limit -= 1
        if limit <= 0:
            return


def _around(line: str, word: str) -> str:
    """A long line where the word is in it."""
    if len(line) <= _MAX_HIT_CHARACTERS:
        return line
    start = max(line.lower().find(word) - _MAX_HIT_CHARACTERS // 4, 0)
    return line[start : start + _MAX_HIT_CHARACTERS]
