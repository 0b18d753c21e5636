"""`etude apply`: merge a sketch into files, show the difference while it is made, ask, save.

    read everything → merge each file → ask about each → save all

Nothing is saved before the last answer is given, so an interruption anywhere changes nothing.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from etude.assistant.apply.engine import apply as apply_engine
from etude.assistant.apply.request import (
    AbstainReason,
    ApplyEvent,
    ApplyRequest,
    ApplyResult,
    HunkReady,
    Progress,
)
from etude.assistant.apply.sketch import split_files
from etude.cli import BAD_INPUT, DONE, LEFT_UNDONE
from etude.cli.sketch_source import read_sketch, stdin_is_sketch
from etude.cli.terminal import Questions, console_for, counted, draw_hunk, draw_lines, questions, visible
from etude.edits import Edit, Patch, split_lines, text_sha256, unified_diff
from etude.errors import EtudeError, InputError, SketchUnusable
from etude.models.model import Model
from etude.models.opening import choose, open_model
from etude.server.late_model import loaded_in_background
from etude.server.tree import list_files
from etude.server.unwaited import use_unwaited_threads
from etude.workspace.files import TextFile, create, read_text_file, save, within


class ApplyEngine(Protocol):
    def __call__(self, request: ApplyRequest, model: Model) -> AsyncIterator[ApplyEvent]: ...


ModelOpener = Callable[[str | None], Model]


class Outcome(StrEnum):
    """What became of a file; scripts read these in the JSON."""

    SAVED = "saved"
    MERGED = "merged"
    """A patch was made; it was not to be saved."""
    DECLINED = "declined"
    """The person said no."""
    UNCHANGED = "unchanged"
    """The file already says what the sketch says."""
    ABSTAINED = "abstained"
    """The model left it alone, with a reason."""
    FAILED = "failed"
    """It could not be saved; the old content is intact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One file and its part of the sketch."""

    path: str
    """As shown to the person, with slashes."""
    place: Path
    file: TextFile | None
    """None: the sketch is for a file that does not exist yet."""
    sketch: str

    @property
    def text(self) -> str:
        return self.file.text if self.file else ""


@dataclass(slots=True, kw_only=True)
class Merged:
    """A job with its result and what was decided about it."""

    job: Job
    result: ApplyResult
    outcome: Outcome
    patch: Patch | None
    """What is to be saved: all hunks, or those that were taken."""
    failure: str = ""


def run_apply(
    options: argparse.Namespace, *, engine: ApplyEngine = apply_engine, opener: ModelOpener = open_model
) -> int:
    choice = choose(options.model)
    jobs = read_jobs(options)
    view = View(quiet=options.json, diff_only=options.diff)
    # Most sketches leave nothing open, so the model is loaded only when it is asked something.
    model = loaded_in_background(lambda: opener(options.model), name=choice.name or str(choice))
    with ExitStack() as stack:
        asker = None
        if not (options.yes or options.diff or options.json):
            asker = stack.enter_context(questions(stdin_is_taken=stdin_is_sketch(options)))
        merged = asyncio.run(_merge_all(jobs, model, engine, view))
        _decide(merged, options, asker, view)
    _save_all([one for one in merged if one.outcome is Outcome.SAVED], view)
    code = exit_code(merged)
    if options.json:
        # JSON is UTF-8, whatever the terminal's encoding.
        _print_bytes(json_report(merged, code) + b"\n")
    return code


# --- reading


def read_jobs(options: argparse.Namespace) -> list[Job]:
    """Every file is read before any model is asked, so that bad input changes nothing."""
    places = {_sayable(path): path for path in options.files}
    if not places:
        return _jobs_of_reply(read_sketch(options))
    files = {path: _read(place) for path, place in places.items()}
    sketch = read_sketch(options)
    paths = list(places)
    parts = {paths[0]: sketch} if len(paths) == 1 else _parts_for(paths, sketch)
    return [Job(path=path, place=places[path], file=files[path], sketch=part) for path, part in parts.items()]


def _sayable(path: Path) -> str:
    """With slashes, and as text even where the name on disk is none: "caf\\xe9.py"."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _read(place: Path) -> TextFile:
    if not os.path.exists(place):  # noqa: PTH110 (Path.exists raises when a name is too long)
        raise InputError(
            f"There is no file {_sayable(place)}. Check the path, or leave it out: then the sketch says which."
        )
    return read_text_file(place)


def _parts_for(paths: Sequence[str], reply: str) -> dict[str, str]:
    parts = {part.path: part.text for part in split_files(reply, paths)}
    if missing := [path for path in paths if path not in parts]:
        raise SketchUnusable(f"The sketch does not name {', '.join(missing)}. Give a file name above each code block.")
    if extra := [path or "a block without a file name" for path in parts if path not in paths]:
        raise SketchUnusable(f"The sketch also holds {', '.join(extra)}. Name these files too, or no file at all.")
    return {path: parts[path] for path in paths}


def _jobs_of_reply(reply: str) -> list[Job]:
    root = Path()
    known = asyncio.run(list_files(root)).files
    jobs = []
    for part in split_files(reply, known):
        if part.path is None:
            raise SketchUnusable("The sketch names no file. Say which: `etude apply FILE`.")
        place = within(root, part.path)
        file = read_text_file(place) if place.exists() else None
        jobs.append(Job(path=part.path, place=place, file=file, sketch=part.text))
    if not jobs:
        raise SketchUnusable("No code is in the sketch. Give a code block, a diff or a chat reply that holds one.")
    return jobs


# --- merging


async def _merge_all(jobs: Sequence[Job], model: Model, engine: ApplyEngine, view: "View") -> list[Merged]:
    use_unwaited_threads()
    try:
        return [await _merge(job, model, engine, view) for job in jobs]
    finally:
        await model.close()


async def _merge(job: Job, model: Model, engine: ApplyEngine, view: "View") -> Merged:
    request = ApplyRequest(path=job.path, text=job.text, sketch=job.sketch)
    view.begin(job)
    with view.status(f"{job.path}: reading the sketch") as say:
        async for event in engine(request, model):
            if isinstance(event, Progress):
                say(f"{job.path}: {event.stage}{f' {event.done}/{event.total}' if event.total else ''}")
            elif isinstance(event, HunkReady):
                view.hunk(job, event.edit)
            else:
                view.result(job, event)
                return Merged(job=job, result=event, outcome=_outcome(event), patch=event.patch)
    raise AssertionError("apply ended without an ApplyResult")


def _outcome(result: ApplyResult) -> Outcome:
    if result.patch is not None:
        return Outcome.MERGED if result.patch.edits else Outcome.UNCHANGED
    assert result.abstention
    unchanged = result.abstention.reason is AbstainReason.NO_CHANGE
    return Outcome.UNCHANGED if unchanged else Outcome.ABSTAINED


# --- deciding and saving


def _decide(merged: Sequence[Merged], options: argparse.Namespace, asker: Questions | None, view: "View") -> None:
    for one in merged:
        if one.outcome is not Outcome.MERGED:
            continue
        if asker:
            _ask(one, asker, view)
        elif options.yes:
            one.outcome = Outcome.SAVED


def _ask(one: Merged, asker: Questions, view: "View") -> None:
    assert one.patch
    count = len(one.patch.edits)
    verb = "Save" if one.job.file else "Create"
    each = "/each" if count > 1 else ""
    question = f"{verb} {visible(one.job.path)} ({counted(count, 'hunk')})? [yes/no{each}]"
    answer = asker.ask(question, "yen" if each else "yn")
    if answer == "e":
        taken = [index for index, edit in enumerate(one.patch.edits) if _takes(one, edit, asker, view)]
        one.patch = one.patch.only(taken)
        answer = "y" if taken else "n"
    one.outcome = Outcome.SAVED if answer == "y" else Outcome.DECLINED
    if one.outcome is Outcome.DECLINED:
        view.declined(one)


def _takes(one: Merged, edit: Edit, asker: Questions, view: "View") -> bool:
    view.draw(one.job, edit)
    return asker.ask("Take this hunk? [yes/no]", "yn") == "y"


def _save_all(chosen: Sequence[Merged], view: "View") -> None:
    with _uninterrupted():
        for one in chosen:
            try:
                _save(one)
            except EtudeError as error:
                one.outcome, one.failure = Outcome.FAILED, str(error)
            view.saved(one)


def _save(one: Merged) -> None:
    assert one.patch
    text = one.patch.apply(one.job.text)
    if one.job.file:
        save(one.job.file, text)
        return
    create(one.job.place, text, make_folders=True)


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Ctrl-C between two files would leave half of a change; saving takes milliseconds, so it waits."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- reporting


def exit_code(merged: Sequence[Merged]) -> int:
    outcomes = {one.outcome for one in merged}
    if Outcome.FAILED in outcomes:
        return BAD_INPUT
    return LEFT_UNDONE if outcomes & {Outcome.ABSTAINED, Outcome.DECLINED} else DONE


def json_report(merged: Sequence[Merged], code: int) -> bytes:
    """{"exit_code": 0, "files": [{"path": "pay.py", "outcome": "saved", "diff": "--- a/pay.py…", …}]}"""
    return msgspec.json.encode({"exit_code": code, "files": [_file_report(one) for one in merged]})


def _file_report(one: Merged) -> dict[str, object]:
    result = one.result
    return {
        "path": one.job.path,
        "outcome": one.outcome,
        "new_file": one.job.file is None,
        "diff": _diff(one),
        "abstention": asdict(result.abstention) if result.abstention else None,
        "failure": one.failure or None,
        "engine": result.engine,
        "model": result.model,
        "usage": asdict(result.usage),
        "seconds": round(result.seconds, 3),
        "first_hunk_seconds": result.first_hunk_seconds,
        "sha256_before": text_sha256(one.job.text),
        "sha256_after": text_sha256(one.patch.apply(one.job.text) if one.patch else one.job.text),
    }


def _diff(one: Merged) -> str:
    return unified_diff(one.job.path, one.job.text, one.patch.apply(one.job.text)) if one.patch else ""


def _print_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class View:
    """What the person sees while it happens; the stream of hunks, or one unified diff, or nothing."""

    def __init__(self, *, quiet: bool, diff_only: bool) -> None:
        self._quiet = quiet
        self._diff_only = diff_only
        self._out = console_for(sys.stdout)
        self._progress = self._out if sys.stdout.isatty() and not quiet and not diff_only else console_for(sys.stderr)
        self._drawn: set[Edit] = set()

    @contextmanager
    def status(self, text: str) -> Generator[Callable[[str], None]]:
        """A spinner on a terminal; nothing elsewhere."""
        if self._quiet or not self._progress.is_terminal:
            yield lambda said: None
            return
        with self._progress.status(_short(text), spinner="line") as status:
            yield lambda said: status.update(_short(said))

    def begin(self, job: Job) -> None:
        self._drawn.clear()

    def hunk(self, job: Job, edit: Edit) -> None:
        if self._quiet or self._diff_only or edit in self._drawn:
            return
        if not self._drawn:
            self._out.print(visible(job.path) + ("" if job.file else " (new file)"), style="bold")
        self._drawn.add(edit)
        self.draw(job, edit)

    def draw(self, job: Job, edit: Edit) -> None:
        draw_hunk(self._out, job.text, edit)

    def result(self, job: Job, result: ApplyResult) -> None:
        for edit in result.patch.edits if result.patch else ():
            self.hunk(job, edit)
        if self._diff_only and not self._quiet and result.patch:
            self._print_diff(unified_diff(job.path, job.text, result.patch.apply(job.text)))
        if result.abstention:
            self._abstained(job, result)

    def saved(self, one: Merged) -> None:
        if one.failure:
            print(f"etude: {visible(one.failure)}", file=sys.stderr)
        elif not self._quiet:
            self._out.print(f"saved {visible(one.job.path)}")

    def declined(self, one: Merged) -> None:
        done = "changed" if one.job.file else "created"
        self._out.print(f"{visible(one.job.path)} is not {done}")

    def _print_diff(self, diff: str) -> None:
        if sys.stdout.isatty():
            draw_lines(self._out, (line.rstrip("\r\n") for line in split_lines(diff)))
            return
        # Byte for byte, so that `git apply` takes it whatever the line endings.
        _print_bytes(diff.encode("utf-8"))

    def _abstained(self, job: Job, result: ApplyResult) -> None:
        assert result.abstention
        message = result.abstention.message
        said = message if job.path in message else f"{job.path}: {message}"
        print(visible(said), file=sys.stderr)


def _short(text: str) -> str:
    """A line that fits a narrow terminal next to its spinner."""
    return visible(text) if len(text) <= 76 else visible(text[:75]) + "…"
