"""Merge a sketch into a file: `apply(request, model)` streams events and ends with the result.

Nothing here touches the disk; saving a Patch is the caller's, through `workspace/files.py`.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from etude.assistant.apply import checks
from etude.assistant.apply.choose import choose, comparable
from etude.assistant.apply.file_view import FileView, view_file
from etude.assistant.apply.merge import Doubt, Merge, merges
from etude.assistant.apply.request import (
    Abstention,
    ApplyEvent,
    ApplyRequest,
    ApplyResult,
    Engine,
    HunkReady,
    Progress,
)
from etude.assistant.apply.rewrite import Rewritten, rewrite
from etude.assistant.apply.rows import Rows
from etude.assistant.apply.sketch import read_rows
from etude.edits import Edit, Span, patch_from_texts, text_sha256
from etude.errors import Unsupported
from etude.messages import Usage
from etude.models.model import Model

# It needs no capable model and takes hundredths of a second; ARCHITECTURE.md says how the engines compare.
DEFAULT_ENGINE = Engine.MERGE

_BOM = "\ufeff"

# The model must find one merge more probable than the next by this much; below, Apply says that it does not know.
# On the development edits smollm2-135m guessed below 25 nats and was mostly right above; it still errs (dev/LOG.md).
_SURE_NATS = 30.0


async def apply(request: ApplyRequest, model: Model, *, engine: Engine | None = None) -> AsyncIterator[ApplyEvent]:
    """Stream Progress and HunkReady, then exactly one ApplyResult; never changes anything on disk.

    `engine` None takes the default. Raises SketchUnusable when the sketch holds no edit,
    and what the model raises.
    """
    started = time.perf_counter()
    engine = engine or DEFAULT_ENGINE
    if request.text.startswith(_BOM):
        async for event in _without_bom(request, model, engine):
            yield event
        return
    first_hunk_seconds: float | None = None
    yield Progress(stage="finding the places")
    view, rows = await asyncio.to_thread(_read, request)
    refused = checks.for_another_file(request, rows, view) or checks.unclear_elision(rows)
    if refused:
        yield ApplyResult(abstention=refused, engine=engine, model=model.name, seconds=time.perf_counter() - started)
        return
    stages = _merge if engine is Engine.MERGE else _rewrite
    async for event in stages(request, rows, view, model):
        if isinstance(event, HunkReady) and first_hunk_seconds is None:
            first_hunk_seconds = time.perf_counter() - started
        if isinstance(event, ApplyResult):
            seconds = time.perf_counter() - started
            event = replace(event, seconds=seconds, first_hunk_seconds=first_hunk_seconds)
        yield event


async def _without_bom(request: ApplyRequest, model: Model, engine: Engine) -> AsyncIterator[ApplyEvent]:
    """Apply to the text after a byte order mark; sketches never show one."""
    async for event in apply(replace(request, text=request.text[1:]), model, engine=engine):
        if isinstance(event, HunkReady):
            event = replace(event, edit=_moved(event.edit))
        if isinstance(event, ApplyResult) and event.patch:
            edits = tuple(map(_moved, event.patch.edits))
            patch = replace(event.patch, edits=edits, base_sha256=text_sha256(request.text))
            event = replace(event, patch=patch)
        yield event


def _moved(edit: Edit) -> Edit:
    return replace(edit, span=Span(start=edit.span.start + 1, end=edit.span.end + 1))


async def _merge(request: ApplyRequest, rows: Rows, view: FileView, model: Model) -> AsyncIterator[ApplyEvent]:
    """MergeApply: structure first, the model only where a choice is open."""
    usage = Usage()
    outcome = await asyncio.to_thread(merges, rows, view)
    if isinstance(outcome, Doubt):
        yield Progress(stage=f"choosing between {len(outcome.merges)} places", total=len(outcome.merges))
        outcome, usage = await _decide(outcome, request, model)
    if isinstance(outcome, Merge):
        outcome = await asyncio.to_thread(_checked, outcome.text, request, rows, view)
    if isinstance(outcome, Abstention):
        yield ApplyResult(abstention=outcome, engine=Engine.MERGE, model=model.name, usage=usage)
        return
    patch = patch_from_texts(request.path, request.text, outcome)
    for edit in patch.edits:
        yield HunkReady(edit=edit)
    yield ApplyResult(patch=patch, engine=Engine.MERGE, model=model.name, usage=usage)


async def _rewrite(request: ApplyRequest, rows: Rows, view: FileView, model: Model) -> AsyncIterator[ApplyEvent]:
    """RewriteApply: the model writes the window, the checks decide whether it is believed."""
    yield Progress(stage="rewriting")
    async for item in rewrite(request, rows, view, model):
        if not isinstance(item, Rewritten):
            yield HunkReady(edit=item)
            continue
        checked = item.abstention or await asyncio.to_thread(_checked, item.text or "", request, rows, view)
        if isinstance(checked, Abstention):
            yield ApplyResult(abstention=checked, engine=Engine.REWRITE, model=model.name, usage=item.usage)
            return
        patch = patch_from_texts(request.path, request.text, checked)
        yield ApplyResult(patch=patch, engine=Engine.REWRITE, model=model.name, usage=item.usage)


def _read(request: ApplyRequest) -> tuple[FileView, Rows]:
    view = view_file(request.path, request.text)
    return view, read_rows(request.sketch, view.lines, request.path)


def _checked(text: str, request: ApplyRequest, rows: Rows, view: FileView) -> str | Abstention:
    return checks.merged_badly(request, rows, view, text) or text


async def _decide(doubt: Doubt, request: ApplyRequest, model: Model) -> tuple[Merge | Abstention, Usage]:
    undecided = _undecided(doubt)
    if not comparable(doubt):
        return undecided, Usage()
    try:
        choice = await choose(doubt, request.text, model)
    except Unsupported:
        return undecided, Usage()
    chosen = choice.merge if choice.sure_by_nats >= _SURE_NATS else undecided
    return chosen, Usage(prompt_tokens=choice.num_tokens)


def _undecided(doubt: Doubt) -> Abstention:
    lines = " and ".join(str(line + 1) for line in doubt.file_lines)
    return Abstention(
        reason=doubt.reason,
        message=f"The sketch fits equally well at lines {lines}. Show a line more of what stands around the change.",
        sketch_line=doubt.sketch_line,
        candidates=doubt.file_lines,
    )
