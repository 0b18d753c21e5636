"""What must hold of a merge before anyone sees it. Each check answers None or why Apply abstains."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from etude.assistant.apply.elisions import is_elision
from etude.assistant.apply.file_view import FileView
from etude.assistant.apply.request import AbstainReason, Abstention, ApplyRequest
from etude.assistant.apply.sketch import Rows, language_of_rows
from etude.edits import split_lines
from etude.workspace.syntax import parses

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
            AbstainReason.OTHER_FILE, f"The sketch is marked as {said}, but {request.path} is {view.language}."
        )
    if rows.says_path and _name(rows.says_path) != _name(request.path) and "." in _name(rows.says_path):
        return _abstain(AbstainReason.OTHER_FILE, f"The sketch names {rows.says_path}, not {request.path}.")
    return None


def merged_badly(request: ApplyRequest, view: FileView, text: str) -> Abstention | None:
    """The first check that the merged text fails."""
    return _unchanged(request, text) or _elision_left(view, text) or _broken(request, view, text)


def _unchanged(request: ApplyRequest, text: str) -> Abstention | None:
    if _without_blank_lines(text) != _without_blank_lines(request.text):
        return None
    return _abstain(AbstainReason.NO_CHANGE, f"{request.path} already says what the sketch says.")


def _without_blank_lines(text: str) -> list[str]:
    return [line for line in split_lines(text) if line.strip()]


def _elision_left(view: FileView, text: str) -> Abstention | None:
    known = set(view.stripped)
    for line in split_lines(text):
        if line.strip() not in known and is_elision(line) and not _is_bare_ellipsis(line, view):
            return _abstain(
                AbstainReason.LOST_CODE,
                f"{line.strip()!r} would be written into the file; nothing tells which code it stands for.",
            )
    return None


def _is_bare_ellipsis(line: str, view: FileView) -> bool:
    return view.language == "python" and line.strip() == "..."


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


def _name(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).name
