"""A file as Apply sees it: its lines, what each line is worth as an anchor, and which definitions surround it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etude.edits import split_lines
from etude.workspace.syntax import Definition, definitions, language_of

_KEYWORDS = (
    r"class|def|function|func|fn|interface|struct|impl|enum|trait|module|namespace|sub|proc|type|record|object|protocol"
)
_PYTHON_HEADER = re.compile(r"^\s*(?:async\s+def|def|class)\s+(?P<name>\w+)\s*[(:\[]")
_NAMED_HEADER = re.compile(
    rf"^\s*(?:[\w@]+\s+){{0,5}}?(?:{_KEYWORDS})\b[\s*&]*(?:\([^)]*\)\s*)?(?P<name>[A-Za-z_$][\w$.:]*)"
)
_BRACE_HEADER = re.compile(
    r"^\s*(?:[\w<>\[\],.*&:]+\s+){0,6}?(?P<name>[A-Za-z_$][\w$]*)\s*\([^;{}]*\)\s*(?:[\w\s:<>\[\],.|&*-]*)\{\s*$"
)
_ARROW_HEADER = re.compile(
    r"^\s*(?:export\s+)?(?:const|let|var)\s+(?P<name>[\w$]+)\s*(?::[^=]+)?=\s*(?:async\s*)?(?:\([^)]*\)|\w+)\s*(?::[^=]+)?=>"
)
_NOT_NAMES = {
    "if",
    "for",
    "while",
    "switch",
    "catch",
    "with",
    "return",
    "else",
    "elif",
    "do",
    "foreach",
    "using",
    "lock",
    "match",
}

# A line's worth as an anchor. A blank line proves nothing, a brace little, a long rare line much.
_BLANK_WORTH = 0.02
_PUNCTUATION_WORTH = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView:
    path: str
    lines: tuple[str, ...]
    """With their endings."""
    stripped: tuple[str, ...]
    language: str | None
    definitions: tuple[Definition, ...]
    scopes: tuple[tuple[str, ...], ...]
    """Per line, the names of the definitions it lies in; a header line lies in its parent."""
    header_at: dict[int, Definition]
    worth_N: np.ndarray
    """Per line, its worth as an anchor."""
    indents_N: np.ndarray
    """Per line, the width of its indentation."""
    counts: Counter[str]
    """How often each stripped line occurs."""

    def is_only(self, definition: Definition) -> bool:
        """Whether no other definition has its name and parents, as overloads and dispatched functions do."""
        same = (d for d in self.definitions if d.name == definition.name and d.parents == definition.parents)
        return sum(1 for _ in same) == 1


def view_file(path: str, text: str) -> FileView:
    lines = tuple(split_lines(text))
    stripped = tuple(line.strip() for line in lines)
    language = language_of(path)
    found = definitions(text, language) or tuple(definitions_by_indentation(lines))
    counts = Counter(stripped)
    return FileView(
        path=path,
        lines=lines,
        stripped=stripped,
        language=language,
        definitions=found,
        scopes=_scopes(len(lines), found),
        header_at={definition.header: definition for definition in reversed(found)},
        worth_N=np.array([worth(line) / counts[line] ** 0.3 for line in stripped], dtype=np.float64),
        indents_N=np.array([indentation(line) for line in lines], dtype=np.int64),
        counts=counts,
    )


def worth(stripped: str) -> float:
    """What a line proves when it is found again, between 0 and 2."""
    if not stripped:
        return _BLANK_WORTH
    if not any(character.isalnum() or character == "_" for character in stripped):
        return _PUNCTUATION_WORTH
    return 0.7 + min(len(stripped), 40) / 40


def closes_block(stripped: str) -> bool:
    """Whether a line does nothing but close what an earlier one opened."""
    return stripped[:1] in ("}", ")", "]") or stripped in ("end", "end;", "fi", "done", "esac")


def header_name(line: str, language: str | None = None) -> str | None:
    """The name that a line defines ("f" for "def f(x):"), judged by the line alone."""
    if language == "python":
        found = _PYTHON_HEADER.match(line)
        return found["name"] if found else None
    if line.rstrip().endswith((";", ",")):
        return None
    for pattern in (_NAMED_HEADER, _ARROW_HEADER, _BRACE_HEADER):
        found = pattern.match(line)
        if (
            found
            and found["name"] not in _NOT_NAMES
            and not line.lstrip().startswith(("#", "//", "*", "import ", "from ", "return "))
        ):
            return found["name"]
    return None


def indentation(line: str) -> int:
    """Width of the leading white space; a tab goes to the next multiple of four."""
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def definitions_by_indentation(lines: Sequence[str]) -> list[Definition]:
    """Definitions of a file without a grammar: header-like lines and what is indented below them."""
    found: list[Definition] = []
    stack: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        width = indentation(line)
        while stack and stack[-1][0] >= width:
            stack.pop()
        name = header_name(line)
        if name:
            parents = tuple(parent for _, parent in stack)
            end = block_end(lines, number)
            found.append(Definition(name=name, parents=parents, start=number, header=number, end=end))
            stack.append((width, name))
    return found


def block_end(lines: Sequence[str], header: int) -> int:
    """One past the last line that belongs to the header's block by indentation, its closing brace included."""
    width, end = indentation(lines[header]), header + 1
    for number in range(header + 1, len(lines)):
        if not lines[number].strip():
            continue
        if indentation(lines[number]) <= width:
            closes = closes_block(lines[number].strip()) and indentation(lines[number]) == width
            return number + 1 if closes else end
        end = number + 1
    return end


def _scopes(count: int, found: Sequence[Definition]) -> tuple[tuple[str, ...], ...]:
    scopes: list[tuple[str, ...]] = [()] * count
    for definition in found:  # outer before inner, so the innermost wins
        for number in range(definition.header + 1, min(definition.end, count)):
            scopes[number] = (*definition.parents, definition.name)
    return tuple(scopes)
