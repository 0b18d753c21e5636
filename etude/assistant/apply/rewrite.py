"""RewriteApply: the model writes the changed window anew, and speculation makes that fast.

    window of the file → prompt + draft (the window) → lines as they come → settled edits → checks → text

Only a window is rewritten: what stands outside it cannot change. The result is held against file and sketch:
a line that is in neither was invented, a line of the window that is gone although the sketch does not touch it
was lost; both make Apply abstain.
"""

import difflib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from etude.assistant.apply import lattice as lattices
from etude.assistant.apply.file_view import FileView, worth
from etude.assistant.apply.lattice import Kind
from etude.assistant.apply.merge import Doubt, Merge, merges, with_soft_gaps
from etude.assistant.apply.prompt import rewrite_chat
from etude.assistant.apply.request import AbstainReason, Abstention, ApplyRequest
from etude.assistant.apply.rows import Op, Rows
from etude.edits import Edit, Span, line_starts, split_lines
from etude.messages import Completion, Sampling, Usage
from etude.models.model import Model

# A window grows to whole definitions if those have at most this many lines; a longer one is cut around the change.
_MOST_WINDOW_LINES = 160
_MARGIN_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The end of a rewrite: a text, or why there is none."""

    text: str | None
    abstention: Abstention | None
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """File lines start..end."""

    start: int
    end: int


async def rewrite(request: ApplyRequest, rows: Rows, view: FileView, model: Model) -> AsyncIterator[Edit | Rewritten]:
    """Stream edits of the file as soon as they are settled, then one Rewritten."""
    window = window_of(rows, view)
    if window is None:
        yield Rewritten(text=None, abstention=_no_window(request), usage=Usage())
        return
    old = list(view.lines[window.start : window.end])
    settled = 0
    written = ""
    async for item in _answer(request, old, view, model):
        if isinstance(item, Completion):
            written, usage = item.text, item.usage
            break
        written += item
        edits = settled_edits(old, split_lines(written)[:-1])
        for edit in edits[settled:]:
            yield _in_file(edit, window, view)
        settled = max(settled, len(edits))
    new = _with_file_bytes(_like_file(split_lines(written), view), old)
    problem = invented(new, old, rows) or lost(new, old, rows, _removable(rows, view))
    text = "".join([*view.lines[: window.start], *_closed(new, old), *view.lines[window.end :]])
    yield Rewritten(text=None if problem else text, abstention=problem, usage=usage)


async def _answer(
    request: ApplyRequest, old: Sequence[str], view: FileView, model: Model
) -> AsyncIterator[str | Completion]:
    draft = "".join(old).replace("\r\n", "\n")
    chat = rewrite_chat(draft, request.sketch, request.instruction, view.language)
    # Room for the window, the sketch and some; a model that runs on is cut there and found out by the checks.
    most = (len(draft) + len(request.sketch)) // 2 + 64
    async for item in model.complete(chat, Sampling(max_tokens=most, stop=("\n```",)), draft=draft):
        yield item if isinstance(item, Completion) else item.text


def window_of(rows: Rows, view: FileView) -> Window | None:
    """The lines that the sketch concerns, grown to whole definitions; None when it fits nowhere."""
    table = lattices.build(with_soft_gaps(rows, view), view)
    placements = lattices.align(table).placements
    proven = [
        placement.at
        for row, placement in zip(table.rows, placements, strict=True)
        if placement.kind is not Kind.NEW and worth(row.text.strip()) > 0.3
    ]
    if not view.lines:
        return Window(start=0, end=0)
    if not proven:
        return Window(start=0, end=len(view.lines)) if len(view.lines) <= _MOST_WINDOW_LINES else None
    start, end = min(proven), max(proven) + 1
    for definition in reversed(view.definitions):  # inner before outer: take the largest that is small enough
        touches = definition.start < end and start < definition.end
        grown = Window(start=min(start, definition.start), end=max(end, definition.end))
        if touches and grown.end - grown.start <= _MOST_WINDOW_LINES:
            start, end = grown.start, grown.end
    return Window(start=max(0, start - _MARGIN_LINES), end=min(len(view.lines), end + _MARGIN_LINES))


def settled_edits(old: Sequence[str], new: Sequence[str]) -> list[Edit]:
    """Line edits of old → new (spans count lines) that a common line already follows, so they will not change."""
    opcodes = difflib.SequenceMatcher(None, _trimmed(old), _trimmed(new), autojunk=False).get_opcodes()
    edits = []
    for index, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        followed = index + 1 < len(opcodes) and any(
            worth(line.strip()) > 0.3 for line in old[i2 : opcodes[index + 1][2]]
        )
        if tag != "equal" and followed:
            edits.append(Edit(span=Span(start=i1, end=i2), text="".join(new[j1:j2])))
    return edits


def invented(new: Sequence[str], old: Sequence[str], rows: Rows) -> Abstention | None:
    """A line that neither the file nor the sketch has, or has so often."""
    known = Counter(line.strip() for line in old) + Counter(row.text.strip() for row in rows.rows)
    for line in new:
        known[line.strip()] -= 1
        if worth(line.strip()) > 0.3 and known[line.strip()] < 0:
            message = (
                f"The model wrote {line.strip()!r}, which is neither in the file nor in the sketch (or not so often)."
            )
            return Abstention(reason=AbstainReason.INVENTED_CODE, message=message)
    return None


def lost(new: Sequence[str], old: Sequence[str], rows: Rows, removable: set[str]) -> Abstention | None:
    """A sketched line that is missing, or lines gone from the window that the sketch does not replace."""
    present = {line.strip() for line in new}
    for row in rows.rows:
        if row.op in (Op.SHOW, Op.ADD) and worth(row.text.strip()) > 0.3 and row.text.strip() not in present:
            message = f"The model left out {row.text.strip()!r} of the sketch."
            return Abstention(reason=AbstainReason.LOST_CODE, message=message, sketch_line=row.line)
    shown = {row.text.strip() for row in rows.rows if row.op is not Op.KEEP}
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(
        None, _trimmed(old), _trimmed(new), autojunk=False
    ).get_opcodes():
        gone = [line.strip() for line in old[i1:i2] if worth(line.strip()) > 0.3 and line.strip() not in removable]
        replacing = sum(line.strip() in shown for line in new[j1:j2])
        if tag in ("delete", "replace") and len(gone) > replacing:
            message = f"{gone[0]!r} would be lost; the sketch does not speak of it."
            return Abstention(reason=AbstainReason.LOST_CODE, message=message)
    return None


def _removable(rows: Rows, view: FileView) -> set[str]:
    """Lines that the sketch takes away: those of a diff, and those that a merge by structure replaces."""
    removed = {row.text.strip() for row in rows.rows if row.op is Op.DROP}
    outcome = merges(rows, view)
    found = (outcome,) if isinstance(outcome, Merge) else outcome.merges if isinstance(outcome, Doubt) else ()
    return removed | {view.stripped[line] for merge in found for line in merge.dropped}


def _in_file(edit: Edit, window: Window, view: FileView) -> Edit:
    starts = line_starts(view.lines)
    span = Span(start=starts[window.start + edit.span.start], end=starts[window.start + edit.span.end])
    return Edit(span=span, text="".join(_like_file(split_lines(edit.text), view)))


def _like_file(lines: Sequence[str], view: FileView) -> list[str]:
    crlf = bool(view.lines) and view.lines[0].endswith("\r\n")
    return [line.replace("\r\n", "\n").replace("\n", "\r\n") for line in lines] if crlf else list(lines)


def _with_file_bytes(new: Sequence[str], old: Sequence[str]) -> list[str]:
    """Lines that the model copied take the file's bytes: trailing blanks and endings stay as they were."""
    result = list(new)
    matcher = difflib.SequenceMatcher(None, _trimmed(old), _trimmed(new), autojunk=False)
    for i, j, size in matcher.get_matching_blocks():
        result[j : j + size] = old[i : i + size]
    return result


def _trimmed(lines: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _closed(new: list[str], old: Sequence[str]) -> list[str]:
    """The stop text takes the last line's ending along; give it the ending the window had."""
    if not new or not old:
        return new
    last, old_last = new[-1], old[-1]
    return [*new[:-1], last.rstrip("\r\n") + old_last[len(old_last.rstrip("\r\n")) :]]


def _no_window(request: ApplyRequest) -> Abstention:
    message = f"No line of the sketch is in {request.path}; nothing tells where it belongs."
    return Abstention(reason=AbstainReason.NO_ANCHOR, message=message)
