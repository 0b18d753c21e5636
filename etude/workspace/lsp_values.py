"""What language servers answer, as values of etude's: diagnostics, places, symbols, edits.

Answers are not trusted: what does not have the shape of the protocol, or lies outside the tree, is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from etude.edits import Edit, Patch, Span, line_starts, split_lines, text_sha256
from etude.workspace.language_server import LanguageServer
from etude.workspace.workspace import Diagnostic, Place, Severity, Symbol

# More is not read by anybody.
MAX_DIAGNOSTICS = 5_000
MAX_PLACES = 2_000
MAX_MESSAGE_CHARACTERS = 2_000

_SEVERITIES = {1: Severity.ERROR, 2: Severity.WARNING, 3: Severity.INFORMATION, 4: Severity.HINT}

_KINDS = (
    *("file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum"),
    *("interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key", "null"),
    *("enum-member", "struct", "event", "operator", "type-parameter"),
)
"""The protocol's SymbolKind, from 1."""

Lines = Callable[[str], Sequence[str]]
"""The lines of a file, as the server knows it."""

Found = tuple[Diagnostic, str]
"""A diagnostic, and the text of its line: what is the same in both is the same diagnostic, wherever it moved."""


def diagnostics(items: Any, path: str, server: LanguageServer, lines: Lines) -> list[Found]:
    if not isinstance(items, list):
        return []
    found = []
    text = lines(path)
    for item in items[:MAX_DIAGNOSTICS]:
        if isinstance(item, dict) and (place := _place(item.get("range"), path, server, text)):
            line = text[place.line - 1].strip() if place.line <= len(text) else ""
            found.append((_diagnostic(item, place, server.name), line))
    return found


def _diagnostic(item: dict[str, Any], place: Place, server: str) -> Diagnostic:
    severity = item.get("severity")
    code = item.get("code")
    return Diagnostic(
        place=place,
        severity=_SEVERITIES.get(severity, Severity.ERROR) if isinstance(severity, int) else Severity.ERROR,
        message=str(item.get("message", ""))[:MAX_MESSAGE_CHARACTERS],
        server=server,
        code=str(code) if isinstance(code, str | int) else "",
    )


def difference(before: Iterable[Found], after: Iterable[Found]) -> tuple[list[Diagnostic], list[Diagnostic], int]:
    """What appeared, what is gone, and how many stayed; lines that moved do not matter, how often counts."""
    old, new = [*before], [*after]
    stayed = Counter(map(_identity, old)) & Counter(map(_identity, new))
    return _without(new, stayed), _without(old, stayed), stayed.total()


def _identity(found: Found) -> tuple[str, ...]:
    one, line = found
    return one.place.path, one.server, one.code, one.message, line


def _without(found: Iterable[Found], stayed: Counter[tuple[str, ...]]) -> list[Diagnostic]:
    left = Counter(stayed)
    kept = []
    for one in found:
        if left[_identity(one)] > 0:
            left[_identity(one)] -= 1
        else:
            kept.append(one[0])
    return sorted(kept, key=lambda diagnostic: (diagnostic.place.path, diagnostic.place.line, diagnostic.place.column))


def _place(span: Any, path: str, server: LanguageServer, lines: Sequence[str]) -> Place | None:
    try:
        start, end = span["start"], span["end"]
        first, last = int(start["line"]), int(end["line"])
        if first < 0 or last < first:
            return None
        return Place(
            path=path,
            line=first + 1,
            column=server.column_in(_line(lines, first), start["character"]),
            end_line=last + 1,
            end_column=server.column_in(_line(lines, last), end["character"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number].rstrip("\r\n") if number < len(lines) else ""


def places(answer: Any, server: LanguageServer, lines: Lines) -> list[Place]:
    """Of a definition or of references: one location, several, or links to them."""
    items = answer if isinstance(answer, list) else [answer]
    found = []
    for item in items[:MAX_PLACES]:
        if not isinstance(item, dict):
            continue
        path = server.path(item.get("uri") or item.get("targetUri"))
        span = item.get("range") or item.get("targetSelectionRange")
        if path and (place := _place(span, path, server, lines(path))):
            found.append(place)
    return found


def hover_text(answer: Any) -> str:
    contents = answer.get("contents") if isinstance(answer, dict) else None
    parts = contents if isinstance(contents, list) else [contents]
    texts = (part.get("value") if isinstance(part, dict) else part for part in parts)
    return "\n\n".join(text for text in texts if isinstance(text, str))


def symbols(answer: Any, path: str | None, server: LanguageServer, lines: Lines) -> list[Symbol]:
    """Of a document (a tree) or of the workspace (a list)."""
    found: list[Symbol] = []
    todo = [(item, "") for item in reversed(answer)] if isinstance(answer, list) else []
    while todo and len(found) < MAX_PLACES:
        item, container = todo.pop()
        if not isinstance(item, dict):
            continue
        location = item.get("location") or {"range": item.get("selectionRange") or item.get("range")}
        if not isinstance(location, dict):
            continue
        where = path or server.path(location.get("uri"))
        place = _place(location.get("range"), where, server, lines(where)) if where else None
        name, kind = str(item.get("name", "")), item.get("kind")
        if place:
            kind_name = _KINDS[kind - 1] if isinstance(kind, int) and 0 < kind <= len(_KINDS) else "symbol"
            container = str(item.get("containerName") or container)
            found.append(Symbol(name=name, kind=kind_name, place=place, container=container))
        children = item.get("children")
        todo += [(child, name) for child in reversed(children)] if isinstance(children, list) else []
    return found


def patches(answer: Any, server: LanguageServer, text_of: Callable[[str], str]) -> list[Patch]:
    """Of a rename. Raises ValueError for edits that overlap."""
    edits: dict[str, list[Any]] = {}
    if isinstance(answer, dict):
        for uri, items in (answer.get("changes") or {}).items():
            edits.setdefault(uri, []).extend(items)
        for change in answer.get("documentChanges") or []:
            if isinstance(change, dict) and "textDocument" in change:
                edits.setdefault(change["textDocument"]["uri"], []).extend(change.get("edits", []))
    found = []
    for uri, items in edits.items():
        if (path := server.path(uri)) is not None:
            found.append(_patch(path, items, server, text_of(path)))
    return sorted(found, key=lambda patch: patch.path)


def _patch(path: str, items: Sequence[dict[str, Any]], server: LanguageServer, text: str) -> Patch:
    lines = split_lines(text)
    starts = line_starts(lines)
    made = []
    for item in items:
        place = _place(item.get("range"), path, server, lines)
        if place:
            start, end = _offset(starts, place.line, place.column), _offset(starts, place.end_line, place.end_column)
            made.append(Edit(span=Span(start=start, end=end), text=str(item.get("newText", ""))))
    made.sort(key=lambda edit: edit.span)
    return Patch(path=path, base_sha256=text_sha256(text), edits=tuple(made))


def _offset(starts: Sequence[int], line: int, column: int) -> int:
    return min(starts[min(line - 1, len(starts) - 1)] + column - 1, starts[-1])
