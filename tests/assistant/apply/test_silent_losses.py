"""Sketches that once lost or broke code without a word; each test is named for what happened."""

import time

import pytest

from etude.assistant.apply.request import AbstainReason, ApplyResult
from etude.assistant.apply.sketch import is_same_file, resolve_path, split_files
from tests.assistant.apply.test_engine import merged, result_of

TEN = "".join(f"def step_{n}(x):\n    y = x + {n}\n    print(y, {n})\n    return y * {n}\n\n\n" for n in range(10))


def outcome(path: str, text: str, sketch: str) -> str | AbstainReason:
    result: ApplyResult = result_of(path, text, sketch)
    if result.abstention:
        return result.abstention.reason
    assert result.patch
    return result.patch.apply(text)


@pytest.mark.parametrize("share", range(1, 10))
def test_a_prefix_of_the_file_is_not_taken_for_the_whole(share: int) -> None:
    prefix = "".join(TEN.splitlines(keepends=True)[: 6 * share]).replace("x + 0", "x + 100")
    result = outcome("steps.py", TEN, f"```python\n{prefix}```")
    assert result in (TEN.replace("x + 0", "x + 100"), AbstainReason.LOST_CODE)


SMALL = """import os


def config():
    path = os.getcwd()
    name = "a"
    size = 3
    return path, name, size


def main():
    print(config())
"""


def test_one_function_of_a_small_file_is_not_the_whole_file() -> None:
    sketch = 'def config():\n    path = os.getcwd()\n    name = "b"\n    size = 3\n    return path, name, size\n'
    assert merged("small.py", SMALL, f"```python\n{sketch}```") == SMALL.replace('"a"', '"b"')


GO = """package main

func config() string {
\tname := "a"
\tsize := 3
\treturn name
}

func main() {
\tprintln(config())
}
"""


def test_one_function_of_a_small_go_file_is_not_the_whole_file() -> None:
    sketch = 'func config() string {\n\tname := "b"\n\tsize := 3\n\treturn name\n}\n'
    assert merged("main.go", GO, f"```go\n{sketch}```") == GO.replace('"a"', '"b"')


TWO = """def f(x):
    if x:
        return 0
    y = work(x)
    log(y)
    return y


def g(y):
    d = 1
    return d
"""


def test_an_elision_in_a_body_before_an_outer_one_keeps_the_body() -> None:
    sketch = """def f(x):
    if x is None:
        return 0
    # ... existing code ...

# ... existing code ...

def g(y):
    d = 2
    return d
"""
    assert merged("two.py", TWO, sketch) == TWO.replace("if x:", "if x is None:").replace("d = 1", "d = 2")


def test_an_elision_at_the_end_of_a_fence_keeps_the_body() -> None:
    sketch = "```python\ndef f(x):\n    if x is None:\n        return 0\n    # ... existing code ...\n```\n\n"
    sketch += "```python\ndef g(y):\n    d = 2\n    return d\n```"
    assert merged("two.py", TWO, sketch) == TWO.replace("if x:", "if x is None:").replace("d = 1", "d = 2")


@pytest.mark.parametrize("guard", ["if x is None:\n        return 0", "if x is not None:\n        return y"])
def test_a_guard_does_not_finish_a_function(guard: str) -> None:
    result = outcome("two.py", TWO, f"def f(x):\n    {guard}\n")
    assert result is AbstainReason.LOST_CODE or "log(y)" in str(result)


def test_an_elision_in_a_replacement_does_not_delete_what_it_stands_for() -> None:
    old, new = "    y = work(x)\n    log(y)\n    return y\n", "    y = play(x)\n    # ... rest ...\n"
    sketch = f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"
    assert outcome("two.py", TWO, sketch) is AbstainReason.LOST_CODE
    diff = "@@ -4,3 +4,2 @@\n-    y = work(x)\n-    log(y)\n+    y = play(x)\n+    # ... rest ...\n     return y\n"
    assert outcome("two.py", TWO, f"```diff\n{diff}```") is AbstainReason.LOST_CODE


def test_an_ellipsis_argument_is_code() -> None:
    text = "class A(Model):\n    name: str\n    size: int = 0\n"
    sketch = "class A(Model):\n    name: str = Field(...)\n    size: int = 0\n"
    assert merged("a.py", text, sketch) == sketch


def test_a_new_stub_is_code_and_an_old_one_with_a_body_is_elided() -> None:
    stubs = "class P(Protocol):\n    def a(self) -> int: ...\n"
    sketch = "class P(Protocol):\n    def a(self) -> int: ...\n    def b(self) -> str: ...\n"
    assert merged("p.py", stubs, sketch) == sketch
    elided = "def f(x): ...\n\ndef g(y):\n    d = 3\n    return d\n"
    assert merged("two.py", TWO, elided) == TWO.replace("d = 1", "d = 3")


def test_headings_of_markdown_are_no_elisions() -> None:
    text = "# Title\n\nSome words.\n\n## Use\n\nRun it.\n"
    sketch = "Some words.\n\n## Other options\n\nMore words.\n\n## Use\n"
    assert "## Other options\n" in merged("README.md", text, sketch)


@pytest.mark.parametrize(
    "comment", ["# text is truncated", "# the value is unchanged", "# same as above", "# output skipped"]
)
def test_comments_of_the_code_are_no_elisions(comment: str) -> None:
    sketch = f"def g(y):\n    {comment}\n    d = 2\n    return d\n"
    assert comment in merged("two.py", TWO, sketch)


def test_a_makefile_without_recipes_gets_its_tabs() -> None:
    sketch = "CC = gcc\n\nall:\n\t$(CC) main.c\n"
    assert "\n\t$(CC) main.c\n" in merged("Makefile", "CC = gcc\n", sketch)


def test_spaces_in_a_raw_string_of_a_tabbed_file_stay() -> None:
    text = "package a\n\nfunc b() string {\n\tx := 1\n\treturn `\na:\n  b: 1\n`\n}\n"
    sketch = "func b() string {\n\tx := 1\n\treturn `\na:\n  b: 1\n  c: 2\n`\n}\n"
    assert "  b: 1\n  c: 2\n" in merged("a.go", text, sketch)


def test_the_same_name_in_another_folder_is_another_file() -> None:
    sketch = "```python b/config.py\ndef g(y):\n    d = 2\n    return d\n```"
    assert outcome("a/config.py", TWO, sketch) is AbstainReason.OTHER_FILE
    assert not is_same_file("b/config.py", "a/config.py")
    assert resolve_path("app/admin/models.py", ["app/models.py"]) == "app/admin/models.py"
    assert resolve_path("cart.py", ["src/cart.py"]) == "src/cart.py"
    assert [part.path for part in split_files("`utils/cart.py`:\n```python\nx = 1\n```", ["src/cart.py"])] == [
        "utils/cart.py"
    ]


def test_before_and_after_are_not_both_written() -> None:
    text = "def h(y):\n    return y\n\n\ndef k(z):\n    return z\n"
    before, after = "def h(y):\n    return y\n", "def h(y):\n    return y * 2\n"
    reply = f"Current code:\n```python\n{before}```\nChange to:\n```python\n{after}```\n"
    assert merged("h.py", text, reply) == text.replace("return y\n", "return y * 2\n")


def test_example_usage_is_not_written_into_the_file() -> None:
    sketch = "```python\ndef g(y):\n    d = 2\n    return d\n```\nExample usage:\n```python\nprint(g(2))\n```"
    assert outcome("two.py", TWO, sketch) in (AbstainReason.NO_ANCHOR, TWO.replace("d = 1", "d = 2"))


def test_a_ruby_class_variable_is_no_diff() -> None:
    text = "class A\n  @@count = 4\n  def f\n    1\n  end\nend\n"
    assert merged("a.rb", text, "class A\n  @@count = 5\n  # ...\nend\n") == text.replace("= 4", "= 5")
    assert merged("b.rb", "@@count = 4\n@@size = 1\n", "@@count = 5\n@@size = 1\n") == "@@count = 5\n@@size = 1\n"


def test_a_new_method_after_a_closing_parenthesis_stays_outside_it() -> None:
    text = "class A:\n    def f(self):\n        return dict(\n            a=1,\n        )\n\n\nx = 1\n"
    sketch = "class A:\n    # ...\n\n    def g(self):\n        return 2\n"
    expected = text.replace("        )\n", "        )\n\n    def g(self):\n        return 2\n")
    assert merged("a.py", text, sketch) == expected


def test_a_huge_sketch_for_a_huge_file_is_refused_in_words() -> None:
    text = "".join(f"x_{n} = {n}\n" for n in range(3000))
    with pytest.raises(Exception, match="too long to compare"):
        outcome("a.py", text, text.replace("x_1 = 1\n", "x_1 = 2\n"))


ENTRIES = {
    "urls.py": ('urlpatterns = [\n    path("a/", a),\n    path("b/", b),\n]\n', '    path("c/", c),\n', "]\n"),
    "shapes.py": ("class A:\n    size: int = 1\n    name: str = ''\n\n\nx = 1\n", "    weight: int = 2\n", ""),
    "flags.py": (
        'p = make()\np.add("--a", type=int)\np.add("--b", type=int)\nrun(p)\n',
        'p.add("--c", type=int)\n',
        "run(p)\n",
    ),
    "table.js": ("const t = {\n  a: 1,\n  b: 2,\n};\n", "  c: 3,\n", "};\n"),
}


@pytest.mark.parametrize("path", ENTRIES)
def test_a_new_entry_after_an_elision_does_not_replace_the_last_one(path: str) -> None:
    text, entry, after = ENTRIES[path]
    first = text.splitlines(keepends=True)[0]
    result = outcome(path, text, f"{first}    # ... existing entries ...\n{entry}{after}")
    assert isinstance(result, AbstainReason) or all(line in result for line in text.splitlines())
    assert path == "shapes.py" or (isinstance(result, str) and f"{entry}{after}" in result)


def test_a_part_of_a_json_object_does_not_drop_the_others() -> None:
    text = '{\n  "name": "a",\n  "version": "1",\n  "scripts": {\n    "test": "x"\n  }\n}\n'
    sketch = '{\n  "scripts": {\n    "test": "y"\n  }\n}\n'
    result = outcome("package.json", text, sketch)
    assert isinstance(result, AbstainReason) or '"version"' in result


def test_fences_inside_markdown_do_not_end_it() -> None:
    text = "# Tool\n\nUse it.\n\n## Licence\n\nMIT\n"
    sketch = "```markdown\n# Tool\n\nUse it.\n\n```bash\nmake\n```\n\nDone.\n\n## Licence\n```\n"
    assert "```bash\nmake\n```\n\nDone.\n" in merged("README.md", text, sketch)


def test_an_introduction_without_a_fence_is_not_written_into_the_file() -> None:
    assert merged("a.yaml", "a: 1\nb: 2\n", "Change b to 5:\na: 1\nb: 5\n") == "a: 1\nb: 5\n"


def test_a_path_above_a_fence_keeps_its_first_dot() -> None:
    reply = "`.github/workflows/ci.yml`\n```yaml\na: 1\n```"
    assert [part.path for part in split_files(reply, [".github/workflows/ci.yml"])] == [".github/workflows/ci.yml"]
    assert [part.path for part in split_files("../out.py\n```python\nx = 1\n```")] == ["../out.py"]


@pytest.mark.parametrize("line", ["-" * 50_000, "a/" * 30_000, "[" * 40_000, "`x` " * 20_000])
def test_a_long_line_above_a_fence_takes_no_time(line: str) -> None:
    started = time.perf_counter()
    split_files(f"{line}\n```python\nx = 1\n```")
    assert time.perf_counter() - started < 2


def test_a_thousand_fences_are_refused_in_words() -> None:
    with pytest.raises(Exception, match="Apply it in pieces"):
        outcome("a.py", "x = 1\n", "```\nx = 2\n```\n" * 1000)


def test_a_changed_decorator_next_to_an_elision_is_not_put_on_top_of_the_old_one() -> None:
    text = "@reg(A, B)\ndef f(x):\n    return 1\n\n\ndef g(y):\n    return 2\n"
    sketch = "# ... existing code ...\n\n@reg(A)\ndef f(x):\n    return 1\n"
    assert outcome("f.py", text, sketch) is AbstainReason.AMBIGUOUS


def test_a_part_that_changes_nothing_among_lines_that_repeat_is_asked_about() -> None:
    rules = "".join(f"    when(\n        kind(a, b),\n        rule_{n},\n    ),\n" for n in range(4))
    text = f"import os\n\nx = 1\nrules = [\n    first,\n{rules}]\n"
    sketch = "import os\n\nx = 2\n# ...\n    first,\n    when(\n        kind(a, b),\n# ...\n"
    assert outcome("rules.py", text, sketch) is AbstainReason.AMBIGUOUS
