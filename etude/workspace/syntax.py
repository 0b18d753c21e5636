"""What a file's text is made of: its language, its definitions, whether it parses.

Tree-sitter grammars where we have one; without one everything answers "unknown", and callers fall
back on lines. Line numbers count from 0, as `edits.split_lines` splits.
"""

import ast
import importlib
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_GRAMMARS = {
    "bash": ("tree_sitter_bash", "language"),
    "c": ("tree_sitter_c", "language"),
    "c_sharp": ("tree_sitter_c_sharp", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "css": ("tree_sitter_css", "language"),
    "go": ("tree_sitter_go", "language"),
    "html": ("tree_sitter_html", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "json": ("tree_sitter_json", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "python": ("tree_sitter_python", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}

_SUFFIXES = {
    "bash": ".sh .bash",
    "c": ".c .h",
    "c_sharp": ".cs",
    "cpp": ".cc .cpp .cxx .hpp .hh .hxx",
    "css": ".css",
    "go": ".go",
    "html": ".html .htm",
    "java": ".java",
    "javascript": ".js .jsx .mjs .cjs",
    "json": ".json",
    "php": ".php",
    "python": ".py .pyi",
    "ruby": ".rb",
    "rust": ".rs",
    "tsx": ".tsx",
    "typescript": ".ts .mts .cts",
}
_LANGUAGE_OF_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}

_ALIASES = {"py": "python", "python3": "python", "js": "javascript", "jsx": "javascript", "ts": "typescript"}
_ALIASES |= {
    "sh": "bash",
    "shell": "bash",
    "cs": "c_sharp",
    "csharp": "c_sharp",
    "c++": "cpp",
    "rs": "rust",
    "rb": "ruby",
}
_ALIASES |= {"golang": "go", "h": "c", "hpp": "cpp"}

# A generated file can nest deeper than the C stack likes; definitions below this depth do not matter to us.
_MAX_DEPTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A named thing with a body: a function, class, method, struct, …"""

    name: str
    parents: tuple[str, ...]
    """Names of the definitions around it, outermost first."""
    start: int
    """First line, decorators included."""
    header: int
    """Line of its name."""
    end: int
    """One past its last line."""


def language_of(path: str) -> str | None:
    """Language by file name, None when no grammar is known."""
    return _LANGUAGE_OF_SUFFIX.get(PurePosixPath(path.replace("\\", "/")).suffix.lower())


def language_of_tag(tag: str) -> str | None:
    """Language of a fence's tag such as "py" or "TypeScript"; None when we do not know it."""
    tag = tag.lower()
    tag = _ALIASES.get(tag, tag)
    return tag if tag in _GRAMMARS else None


def definitions(text: str, language: str | None) -> tuple[Definition, ...]:
    """Every definition, outer before inner; () for a language without a grammar."""
    root = _parse(text, language)
    return tuple(_walk(root, (), 0)) if root is not None else ()


def parses(text: str, language: str | None) -> bool | None:
    """Whether the text is well-formed in its language; None when we cannot tell."""
    if language == "python":
        return _python_parses(text.removeprefix("\ufeff"))
    root = _parse(text, language)
    return None if root is None else not root.has_error


def _python_parses(text: str) -> bool:
    # Tree-sitter forgives wrong indentation, Python does not.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _parse(text: str, language: str | None) -> "Node | None":
    grammar = _grammar(language) if language else None
    if grammar is None:
        return None
    from tree_sitter import Parser

    return Parser(grammar).parse(text.encode("utf-8", "replace")).root_node


@cache
def _grammar(language: str) -> "Language | None":
    if language not in _GRAMMARS:
        return None
    from tree_sitter import Language

    module, function = _GRAMMARS[language]
    pointer: object = getattr(importlib.import_module(module), function)()
    return Language(pointer)


def _walk(node: "Node", parents: tuple[str, ...], depth: int) -> list[Definition]:
    found: list[Definition] = []
    for child in node.named_children if depth < _MAX_DEPTH else ():
        name = _name_of(child)
        if name is None:
            found += _walk(child, parents, depth + 1)
            continue
        outer = node if node.type in ("decorated_definition", "export_statement") else child
        found.append(
            Definition(
                name=name,
                parents=parents,
                start=outer.start_point[0],
                header=child.start_point[0],
                end=child.end_point[0] + (child.end_point[1] > 0),
            )
        )
        found += _walk(child, (*parents, name), depth + 1)
    return found


def _name_of(node: "Node") -> str | None:
    """The name of a definition node: in most grammars a node with a body and a name."""
    if node.child_by_field_name("body") is None:
        return _name_of_assigned_function(node)
    named = node.child_by_field_name("name") or _innermost_declarator(node) or node.child_by_field_name("type")
    if named is None or node.type in ("for_statement", "type_switch_statement", "for_range_loop"):
        return None
    return (named.text or b"").decode("utf-8", "replace").split("\n")[0]


def _innermost_declarator(node: "Node") -> "Node | None":
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and (inner := declarator.child_by_field_name("declarator")) is not None:
        declarator = inner
    return declarator


def _name_of_assigned_function(node: "Node") -> str | None:
    # const f = (x) => {…} in JavaScript
    value = node.child_by_field_name("value") if node.type == "variable_declarator" else None
    if value is None or value.child_by_field_name("body") is None:
        return None
    named = node.child_by_field_name("name")
    return (named.text or b"").decode("utf-8", "replace") if named is not None else None
