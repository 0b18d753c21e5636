"""What must hold of a merge before anyone sees it. Each check answers None or why Apply abstains."""

from collections import Counter
from collections.abc import Sequence

from etude.assistant.apply.blocks import is_prose
from etude.assistant.apply.elisions import is_elision
from etude.assistant.apply.file_view import FileView
from etude.assistant.apply.request import AbstainReason, Abstention, ApplyRequest
from etude.assistant.apply.rows import Op, Rows, language_of_rows
from etude.assistant.apply.sketch import is_same_file
from etude.edits import split_lines
from etude.workspace.syntax import Definition, definitions, parses

# Languages whose code passes for each other's in fences and file names.
_FAMILIES = ({"javascript", "typescript", "tsx"}, {"c", "cpp"}, {"html", "css", "javascript", "typescript", "php"})


def for_another_file(request: ApplyRequest, rows: Rows, view: FileView) -> Abstention | None:
    """The sketch says itself that it is for another language or file."""
    said = language_of_rows(rows)
    if (
        said
        and view.language
        and said != view.language
        and not any({said, view.language} <= family for family in _FAMILIES)
    ):
        return _abstain(
            AbstainReason.OTHER_FILE,
            f"The sketch is marked as {said}, but {request.path} is {view.language}. Apply it to the file it is for.",
        )
    if rows.says_path and not is_same_file(rows.says_path, request.path):
        return _abstain(
            AbstainReason.OTHER_FILE, f"The sketch names {rows.says_path}, not {request.path}. Apply it to that file."
        )
    return None


def unclear_elision(rows: Rows) -> Abstention | None:
    """An elision on one side of a change only: what it keeps, nobody knows."""
    if rows.elided_change is None:
        return None
    return Abstention(
        reason=AbstainReason.LOST_CODE,
        message=f"Line {rows.elided_change + 1} of the sketch leaves out code inside a change. "
        "Show the changed lines whole.",
        sketch_line=rows.elided_change,
    )


def merged_badly(request: ApplyRequest, rows: Rows, view: FileView, text: str) -> Abstention | None:
    """The first check that the merged text fails."""
    return (
        _unchanged(request, text)
        or _elision_left(view, text)
        or _broken(request, view, text)
        or _defined_twice(rows, view, text)
    )


def _unchanged(request: ApplyRequest, text: str) -> Abstention | None:
    if _without_blank_lines(text) != _without_blank_lines(request.text):
        return None
    return _abstain(AbstainReason.NO_CHANGE, f"{request.path} already says what the sketch says.")


def _without_blank_lines(text: str) -> list[str]:
    return [line for line in split_lines(text) if line.strip()]


def _elision_left(view: FileView, text: str) -> Abstention | None:
    known = set(view.stripped)
    prose = is_prose(view.path)
    for line in split_lines(text):
        if line.strip() not in known and is_elision(line, prose=prose) and not _is_bare_ellipsis(line, view):
            return _abstain(
                AbstainReason.LOST_CODE,
                f"{line.strip()!r} would be written into the file; nothing tells which code it stands for.",
            )
    return None


def _is_bare_ellipsis(line: str, view: FileView) -> bool:
    return view.language == "python" and line.strip() == "..."


def _defined_twice(rows: Rows, view: FileView, text: str) -> Abstention | None:
    """A definition that the file has once and the result twice, letter by letter, although the sketch shows it once."""
    shown = Counter(row.text.strip() for row in rows.rows if row.op in (Op.SHOW, Op.ADD))
    lines = [line.strip() for line in split_lines(text)]
    for definition in definitions(text, view.language):
        header = lines[definition.header]
        if definition.header != definition.start or header not in shown:
            continue  # decorated ones are overloads, accessors, registered functions
        if lines.count(header) > max(view.counts[header], 1) and _times(text, view, definition) > shown[header]:
            return _abstain(
                AbstainReason.AMBIGUOUS,
                f"{definition.name!r} would be defined twice. Say which definition the sketch replaces.",
            )
    return None


def _times(text: str, view: FileView, definition: Definition) -> int:
    """How often the text defines this name in this place."""
    same = [d for d in definitions(text, view.language) if (d.name, d.parents) == (definition.name, definition.parents)]
    return len(same)


def _broken(request: ApplyRequest, view: FileView, text: str) -> Abstention | None:
    if parses(text, view.language) is not False or parses(request.text, view.language) is not True:
        return None
    return _abstain(
        AbstainReason.NO_LONGER_PARSES,
        f"{request.path} is well-formed {view.language} now and would not be after the merge. "
        "The sketch may be cut off or wrongly indented.",
    )


def _abstain(reason: AbstainReason, message: str, candidates: Sequence[int] = ()) -> Abstention:
    return Abstention(reason=reason, message=message, candidates=tuple(candidates))
