"""What a text is made of, in every language that has a grammar here; and what is said where there is none."""

import pytest

from etude.workspace.syntax import Definition, definitions, language_of, language_of_tag, parses

PYTHON = """import os


@cache
@other
def top(x):
    def inner():
        return x
    return inner


class Box:
    async def open(self):
        return os


value = lambda x: x
"""


def test_definitions_have_their_decorators_headers_ends_and_parents() -> None:
    assert definitions(PYTHON, "python") == (
        Definition(name="top", parents=(), start=3, header=5, end=9),
        Definition(name="inner", parents=("top",), start=6, header=6, end=8),
        Definition(name="Box", parents=(), start=11, header=11, end=14),
        Definition(name="open", parents=("Box",), start=12, header=12, end=14),
    )


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("a.sh", "f() {\n  true\n}\n", ["f"]),
        ("a.c", "static int *f(int x) {\n  return 0;\n}\nstruct s { int x; };\n", ["f", "s"]),
        ("a.cs", "class A { int F() { return 1; } }\n", ["A", "F"]),
        ("a.cpp", "namespace n { struct S { int f() { return 1; } }; }\n", ["n", "S", "f"]),
        ("a.go", "package a\n\nfunc (s *S) Add(x int) {\n}\n", ["Add"]),
        ("A.java", "class A {\n  int f() { return 1; }\n}\n", ["A", "f"]),
        ("a.js", "export const f = (x) => {\n  return x;\n};\nclass A { g() {} }\n", ["f", "A", "g"]),
        ("a.php", "<?php\nfunction f() { return 1; }\n", ["f"]),
        ("a.rb", "class A\n  def f\n    1\n  end\nend\n", ["A", "f"]),
        ("a.rs", "impl S {\n    fn f() -> i32 { 1 }\n}\n", ["S", "f"]),
        ("a.ts", "interface I { x: number }\nfunction f(): void {}\n", ["I", "f"]),
        ("a.tsx", "export function A() {\n  return <b/>;\n}\n", ["A"]),
        ("a.css", "a {\n  color: red;\n}\n", []),
        ("a.html", "<p>one</p>\n", []),
        ("a.json", "{}\n", []),
        ("a.unknown", "def f():\n", []),
    ],
)
def test_definitions_of_many_languages(path: str, text: str, names: list[str]) -> None:
    assert [definition.name for definition in definitions(text, language_of(path))] == names


@pytest.mark.parametrize(
    ("language", "good", "bad"),
    [
        ("python", "if x:\n    y\n", "if x:\ny\n"),
        ("javascript", "f({a: 1});\n", "f({a: 1);\n"),
        ("json", "[1]", "[1"),
        ("go", "package a\n", "package a\n\nfunc {\n"),
        ("rust", "fn f() {}\n", "fn f( {}\n"),
    ],
)
def test_whether_a_text_parses(language: str, good: str, bad: str) -> None:
    assert parses(good, language) is True
    assert parses(bad, language) is False


def test_nobody_can_tell_without_a_grammar() -> None:
    assert parses("anything", None) is None
    assert definitions("def f():\n    pass\n", None) == ()


def test_a_byte_order_mark_and_a_nul_do_not_confuse_python() -> None:
    assert parses("\ufeffx = 1\n", "python") is True
    assert parses("x = \0\n", "python") is False


def test_deep_nesting_neither_crashes_nor_hangs() -> None:
    deep = "(" * 5000 + ")" * 5000
    assert parses(deep, "python") is False
    assert definitions("f(" * 5000 + ")" * 5000, "javascript") == ()


@pytest.mark.parametrize(
    ("tag", "language"),
    [("py", "python"), ("TypeScript", "typescript"), ("c++", "cpp"), ("golang", "go"), ("text", None), ("", None)],
)
def test_the_tags_of_fences(tag: str, language: str | None) -> None:
    assert language_of_tag(tag) == language


def test_the_language_is_that_of_the_suffix() -> None:
    assert language_of("src\\Main.PY") == "python"
    assert language_of("Makefile") is None
