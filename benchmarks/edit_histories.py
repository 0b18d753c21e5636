"""Real edits for the benchmarks, read from a file of pull requests (one JSON a line, gzipped or not).

It replays each file's steps and hands out pairs of texts: the whole change of a file, and single steps.
What cannot be used is skipped and counted, never mended.
"""

import ast
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SAMPLE = Path(__file__).parent / "data" / "edit_histories_sample.jsonl"
"""A few hand-made histories of the same form, for smoke tests."""

DATA_VARIABLE = "ETUDE_BENCH_DATA"

# Kept apart from the others, whose failures are there to look at; README.md says what was tuned to these all the same.
TEST_REPOS = frozenset({"scikit-learn/scikit-learn", "pylint-dev/pylint"})

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.MULTILINE)
_NEW_PATH = re.compile(r"^\+\+\+ b/(.+?)\s*$", re.MULTILINE)


class Split(StrEnum):
    """Which repositories to read."""

    ALL = "all"
    DEV = "dev"
    """For looking at failures and tuning."""
    TEST = "test"
    """Meant for measuring; README.md says what was looked at."""


class Skipped(StrEnum):
    """Why a file or a step gave no edit."""

    NO_REPLAY = "does not replay"
    """A diff does not fit, or the last text is not the final one."""
    NO_PARSE = "does not parse"
    UNCHANGED = "unchanged"
    """Equal, or different in white space only."""
    NEW_OR_GONE = "new or deleted file"


class ReplayError(Exception):
    """A recorded diff does not fit the text before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueEdit:
    """A text and what people made of it."""

    repo: str
    pull: int
    path: str
    """With slashes, relative to the repository."""
    step: int | None
    """Number of the step in its file, from 0; None for the whole change of the file."""
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.repo}#{self.pull}:{self.path}@{'all' if self.step is None else self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHistory:
    """One file of one pull request, replayed."""

    repo: str
    pull: int
    path: str
    versions: tuple[str, ...]
    """The original, then the text after each step; the last one is the final text."""
    orders: tuple[int, ...]
    """Place of each step in the order of the whole pull request: len(versions) - 1 numbers."""


def data_path(argument: str | None = None) -> Path:
    """The file to read: the argument, else the environment variable, else the sample."""
    return Path(argument or os.environ.get(DATA_VARIABLE) or SAMPLE)


def in_split(repo: str, split: Split) -> bool:
    return split is Split.ALL or (repo in TEST_REPOS) == (split is Split.TEST)


def read_histories(
    path: Path, *, split: Split = Split.ALL, skipped: Counter[Skipped] | None = None
) -> Iterator[FileHistory]:
    """Every file that replays exactly; the others are counted in `skipped`."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            pull = json.loads(line)
            if not in_split(pull["repo"], split):
                continue
            for file in pull["files"]:
                try:
                    yield _replayed(pull, file)
                except ReplayError:
                    _count(skipped, Skipped.NO_REPLAY)


def read_edits(path: Path, *, split: Split = Split.ALL) -> tuple[list[TrueEdit], Counter[Skipped]]:
    """All usable edits of the file, in its order, and what was skipped."""
    skipped: Counter[Skipped] = Counter()
    edits: list[TrueEdit] = []
    for history in read_histories(path, split=split, skipped=skipped):
        parses = [_parses(text) for text in history.versions]
        for start, end, step in _pairs(len(history.versions)):
            before, after = history.versions[start], history.versions[end]
            reason = _reason_to_skip(before, after, parses=parses[start] and parses[end])
            if reason:
                skipped[reason] += 1
                continue
            edits.append(
                TrueEdit(repo=history.repo, pull=history.pull, path=history.path, step=step, before=before, after=after)
            )
    return edits, skipped


def apply_diff(text: str, diff: str) -> str:
    """The text after one recorded diff; a hunk must fit at its own line, or else at exactly one place."""
    lines, at, done = text.split("\n"), 0, []
    for start, old, new in _hunks(diff):
        place = _place(lines, old, start, at)
        done += lines[at:place] + new
        at = place + len(old)
    return "\n".join(done + lines[at:])


def _replayed(pull: dict, file: dict) -> FileHistory:
    versions = [file["original"]]
    steps = sorted(file["steps"], key=lambda step: step["order"])
    for step in steps:
        versions.append(apply_diff(versions[-1], step["diff"]))
    if versions[-1] != file["final"]:
        raise ReplayError(f"{file['path']} ends with another text")
    return FileHistory(
        repo=pull["repo"],
        pull=pull["pull"],
        path=_path(file),
        versions=tuple(versions),
        orders=tuple(step["order"] for step in steps),
    )


def _path(file: dict) -> str:
    for step in file["steps"]:
        if found := _NEW_PATH.search(step["diff"]):
            return found[1]
    return re.sub(r"/py$", ".py", file["path"].replace("__", "/"))


def _hunks(diff: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """(line from 0, old lines, new lines) of each hunk."""
    heads = list(_HUNK.finditer(diff))
    if not heads:
        raise ReplayError("a diff without hunks")
    ends = [head.start() for head in heads[1:]] + [len(diff)]
    for head, end in zip(heads, ends, strict=True):
        num_old, num_new = (1 if count is None else int(count) for count in head.group(2, 3))
        old, new = _sides(diff[head.end() : end].split("\n")[1:], num_old, num_new)
        yield int(head[1]) - (1 if num_old else 0), old, new


def _sides(body: list[str], num_old: int, num_new: int) -> tuple[list[str], list[str]]:
    """The counts say where a hunk ends: some recorders leave empty lines behind it, or strip the
    one space of an empty context line."""
    old: list[str] = []
    new: list[str] = []
    for line in body:
        if len(old) == num_old and len(new) == num_new:
            break
        if line.startswith("\\"):
            continue
        if not line.startswith("+"):
            old.append(line[1:])
        if not line.startswith("-"):
            new.append(line[1:])
    return old, new


def _place(lines: list[str], old: list[str], start: int, at: int) -> int:
    if start >= at and lines[start : start + len(old)] == old:
        return start
    places = [n for n in range(at, len(lines) - len(old) + 1) if lines[n : n + len(old)] == old] if old else []
    if len(places) != 1:
        raise ReplayError(f"a hunk for line {start + 1} fits {len(places)} places")
    return places[0]


def _pairs(num_versions: int) -> Iterator[tuple[int, int, int | None]]:
    if num_versions > 2:
        yield 0, num_versions - 1, None
    for step in range(num_versions - 1):
        yield step, step + 1, step


def _reason_to_skip(before: str, after: str, *, parses: bool) -> Skipped | None:
    if not before.strip() or not after.strip():
        return Skipped.NEW_OR_GONE
    if _without_space(before) == _without_space(after):
        return Skipped.UNCHANGED
    return None if parses else Skipped.NO_PARSE


def _without_space(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _count(skipped: Counter[Skipped] | None, reason: Skipped) -> None:
    if skipped is not None:
        skipped[reason] += 1
