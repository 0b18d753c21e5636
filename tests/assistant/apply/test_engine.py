"""Apply through its public name: sketches as models write them, in many languages, and what must be refused."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.assistant.apply.engine import apply
from etude.assistant.apply.request import AbstainReason, ApplyRequest, ApplyResult, Engine, HunkReady
from etude.errors import SketchUnusable
from etude.models.scripted import ScriptedModel

SHAPES = '''"""Shapes."""

import math
import sys


class Circle:
    """A round thing."""

    def __init__(self, radius):
        self.radius = radius

    def area(self):
        factor = 1
        return factor * math.pi * self.radius**2

    def scale(self, factor):
        self.radius *= factor
        return self


class Square:
    def __init__(self, side):
        self.side = side

    def area(self):
        factor = 1
        return factor * self.side**2


def main():
    circle = Circle(2)
    print(circle.area())
'''


def result_of(
    path: str, text: str, sketch: str, *, model: ScriptedModel | None = None, engine: Engine | None = None
) -> ApplyResult:
    async def run() -> ApplyResult:
        request = ApplyRequest(path=path, text=text, sketch=sketch)
        events = [event async for event in apply(request, model or ScriptedModel(), engine=engine)]
        results = [event for event in events if isinstance(event, ApplyResult)]
        assert len(results) == 1
        assert events[-1] is results[0]
        assert (results[0].patch is None) != (results[0].abstention is None)
        if results[0].patch and engine is not Engine.REWRITE:
            assert tuple(event.edit for event in events if isinstance(event, HunkReady)) == results[0].patch.edits
        return results[0]

    return asyncio.run(run())


def merged(path: str, text: str, sketch: str) -> str:
    result = result_of(path, text, sketch)
    assert result.patch is not None, result.abstention
    return result.patch.apply(text)


def refused(path: str, text: str, sketch: str) -> AbstainReason:
    result = result_of(path, text, sketch)
    assert result.abstention is not None, result.patch and result.patch.apply(text)
    assert result.abstention.message.endswith((".", "?"))
    return result.abstention.reason


def test_a_method_between_elisions_goes_to_the_class_that_is_shown() -> None:
    sketch = """```python
class Square:
    # ... existing code ...
    def area(self):
        factor = 2
        return factor * self.side**2
```"""
    changed = "        factor = 2\n        return factor * self.side**2"
    assert merged("shapes.py", SHAPES, sketch) == SHAPES.replace(
        "        factor = 1\n        return factor * self.side**2", changed
    )


def test_an_import_and_a_change_below() -> None:
    sketch = """import math
import os
import sys

# ... existing code ...

def main():
    circle = Circle(3)
    # ... rest of main ...
"""
    expected = SHAPES.replace("import math\n", "import math\nimport os\n").replace("Circle(2)", "Circle(3)")
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_a_dedented_method_is_indented_like_the_file() -> None:
    sketch = """def scale(self, factor, origin=0):
    if origin:
        raise ValueError(origin)
    self.radius *= factor
    return self
"""
    expected = SHAPES.replace(
        "    def scale(self, factor):\n",
        "    def scale(self, factor, origin=0):\n        if origin:\n            raise ValueError(origin)\n",
    )
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_wrapping_lines_in_an_if_moves_them_in() -> None:
    sketch = """def main():
    if sys.argv:
        circle = Circle(2)
        print(circle.area())
"""
    expected = SHAPES.replace(
        "    circle = Circle(2)\n    print(circle.area())\n",
        "    if sys.argv:\n        circle = Circle(2)\n        print(circle.area())\n",
    )
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_a_new_method_goes_to_the_end_of_its_class() -> None:
    sketch = """class Circle:
    # ... existing methods ...

    def diameter(self):
        return 2 * self.radius
"""
    expected = SHAPES.replace(
        "        return self\n", "        return self\n\n    def diameter(self):\n        return 2 * self.radius\n"
    )
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_changed_functions_listed_without_elisions_keep_what_stands_between() -> None:
    sketch = """def __init__(self, radius):
    self.radius = float(radius)

def main():
    circle = Circle(9)
    print(circle.area())
"""
    expected = SHAPES.replace("= radius", "= float(radius)").replace("Circle(2)", "Circle(9)")
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_a_rewritten_body_replaces_all_of_the_old_one() -> None:
    sketch = """class Circle:
    # ...
    def scale(self, factor):
        return Circle(self.radius * factor)
    # ...
"""
    expected = SHAPES.replace(
        "        self.radius *= factor\n        return self\n", "        return Circle(self.radius * factor)\n"
    )
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_a_diff_with_wrong_line_numbers() -> None:
    sketch = """```diff
--- a/shapes.py
+++ b/shapes.py
@@ -70,9 +71,8 @@ class Circle:
     def scale(self, factor):
-        self.radius *= factor
+        self.radius = self.radius * factor
         return self
```"""
    assert merged("shapes.py", SHAPES, sketch) == SHAPES.replace("radius *= factor", "radius = self.radius * factor")


def test_search_replace_blocks_with_drifted_context() -> None:
    sketch = """shapes.py
<<<<<<< SEARCH
def main():
    circle  = Circle(2)
    print(circle.area())
=======
def main():
    circle = Circle(2)
    print(circle.area(), file=sys.stderr)
>>>>>>> REPLACE
"""
    assert merged("shapes.py", SHAPES, sketch) == SHAPES.replace(".area())", ".area(), file=sys.stderr)")


def test_parts_in_another_order_than_the_file() -> None:
    sketch = """# ... existing code ...
def main():
    circle = Circle(5)
    print(circle.area())

# ... existing code ...

class Circle:
    \"\"\"A very round thing.\"\"\"
    # ... existing code ...
"""
    expected = SHAPES.replace("Circle(2)", "Circle(5)").replace("A round", "A very round")
    assert merged("shapes.py", SHAPES, sketch) == expected


def test_a_whole_file_may_drop_definitions() -> None:
    without = SHAPES.replace(
        "    def scale(self, factor):\n        self.radius *= factor\n        return self\n\n\n", "\n"
    )
    assert merged("shapes.py", SHAPES, f"```python\n{without}```").split() == without.split()


def test_prose_other_fences_and_commands_are_ignored() -> None:
    sketch = """Sure! First install it:

```bash
pip install shapes
```

Then change `main` in `shapes.py`:

```python
def main():
    circle = Circle(4)
    print(circle.area())
```

Let me know {if} that helps.
"""
    assert merged("shapes.py", SHAPES, sketch) == SHAPES.replace("Circle(2)", "Circle(4)")


JAVASCRIPT = """import { a } from './a';

export class Store {
  constructor(items) {
    this.items = items;
  }

  add(item) {
    this.items.push(item);
  }

  total() {
    let sum = 0;
    for (const item of this.items) {
      sum += item.price;
    }
    return sum;
  }
}

export const format = (value) => {
  return `${value} EUR`;
};
"""


def test_javascript_with_braces_and_elisions() -> None:
    sketch = """```js
export class Store {
  // ... existing code ...

  total() {
    let sum = 0;
    for (const item of this.items) {
      sum += item.price * item.count;
    }
    return sum;
  }
}
```"""
    assert merged("store.js", JAVASCRIPT, sketch) == JAVASCRIPT.replace("item.price;", "item.price * item.count;")


def test_javascript_method_at_the_end_of_a_class() -> None:
    sketch = """export class Store {
  // ... other methods ...

  clear() {
    this.items = [];
  }
}
"""
    expected = JAVASCRIPT.replace(
        "    return sum;\n  }\n", "    return sum;\n  }\n\n  clear() {\n    this.items = [];\n  }\n"
    )
    assert merged("store.js", JAVASCRIPT, sketch) == expected


GO = """package store

import "fmt"

// Add puts an item in.
func (s *Store) Add(item Item) {
\ts.items = append(s.items, item)
}

func (s *Store) Print() {
\tfor _, item := range s.items {
\t\tfmt.Println(item)
\t}
}
"""


def test_go_keeps_tabs_when_the_sketch_has_spaces() -> None:
    sketch = """func (s *Store) Print() {
    for _, item := range s.items {
        if item.Hidden {
            continue
        }
        fmt.Println(item)
    }
}
"""
    expected = GO.replace("\t\tfmt", "\t\tif item.Hidden {\n\t\t\tcontinue\n\t\t}\n\t\tfmt")
    assert merged("store.go", GO, sketch) == expected


RUST = "fn one() -> i32 {\n    1\n}\n\nfn two() -> i32 {\n    2\n}\n"
JAVA = "class A {\n    int f() {\n        return 1;\n    }\n\n    int g() {\n        return 2;\n    }\n}\n"
HTML = "<html>\n<body>\n  <h1>Hi</h1>\n  <p>one</p>\n</body>\n</html>\n"
CSS = "a {\n  color: red;\n}\n\nb {\n  color: blue;\n}\n"
SHELL = "set -e\nbuild() {\n  make all\n}\n\nbuild\n"
SQL = "SELECT a,\n       b\nFROM t\nWHERE a > 1;\n"
TOML = "[a]\nx = 1\n\n[b]\ny = 2\n"
RUBY = "class A\n  def f\n    1\n  end\n\n  def g\n    2\n  end\nend\n"
HELLO = "<!-- ... -->\n  <h1>Hello</h1>\n  <p>one</p>\n<!-- ... rest of the page ... -->"


@pytest.mark.parametrize(
    ("path", "text", "sketch", "old", "new"),
    [
        ("a.rs", RUST, "fn two() -> i32 {\n    22\n}\n// ...", "    2\n", "    22\n"),
        ("a.java", JAVA, "class A {\n    // ...\n    int g() {\n        return 3;\n    }\n}\n", "return 2", "return 3"),
        ("a.html", HTML, HELLO, "Hi", "Hello"),
        ("a.css", CSS, "/* ... */\nb {\n  color: green;\n}\n", "blue", "green"),
        ("a.sh", SHELL, "# ... existing code ...\nbuild() {\n  make -j2 all\n}\n", "make all", "make -j2 all"),
        ("a.sql", SQL, "-- ... existing code ...\nFROM t\nWHERE a > 2;\n", "a > 1", "a > 2"),
        ("a.toml", TOML, "# ...\n[b]\ny = 3\n", "y = 2", "y = 3"),
        ("a.rb", RUBY, "class A\n  # ...\n\n  def g\n    3\n  end\nend\n", "    2\n", "    3\n"),
    ],
)
def test_other_languages(path: str, text: str, sketch: str, old: str, new: str) -> None:
    assert merged(path, text, sketch) == text.replace(old, new)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_endings_stay_as_they_are(ending: str, last: bool) -> None:
    text = SHAPES.replace("\n", ending)
    text = text if last else text.removesuffix(ending)
    sketch = "def main():\n    circle = Circle(2)\n    circle.scale(3)\n    print(circle.area())\n"
    expected = SHAPES.replace("Circle(2)\n", "Circle(2)\n    circle.scale(3)\n").replace("\n", ending)
    assert merged("shapes.py", text, sketch) == (expected if last else expected.removesuffix(ending))


def test_mixed_endings_and_trailing_blanks_of_other_lines_stay() -> None:
    text = "a = 1  \r\nb = 2\n\tc = 3\t\r\nd = 4\n"
    sketch = "a = 1\nb = 20\n# ...\n"
    assert merged("notes.txt", text, sketch) == "a = 1  \r\nb = 20\n\tc = 3\t\r\nd = 4\n"


def test_two_places_are_a_question_not_a_guess() -> None:
    sketch = "    def area(self):\n        factor = 3\n        # ...\n"
    result = result_of("shapes.py", SHAPES, sketch)
    assert result.abstention is not None
    assert result.abstention.reason is AbstainReason.AMBIGUOUS
    assert [SHAPES.splitlines()[line] for line in result.abstention.candidates] == ["    def area(self):"] * 2


def test_the_model_decides_where_structure_cannot() -> None:
    sketch = "    def area(self):\n        factor = 3\n        # ...\n"

    def likes_squares(before: str, character: str) -> float:
        return -0.1 if "factor = 3" in before and "side" in before else -1.0

    result = result_of("shapes.py", SHAPES, sketch, model=ScriptedModel(score=likes_squares))
    assert result.patch is not None
    assert result.patch.apply(SHAPES) == SHAPES.replace(
        "factor = 1\n        return factor * self.side", "factor = 3\n        return factor * self.side"
    )


@pytest.mark.parametrize(
    ("sketch", "reason"),
    [
        ("```javascript\nfunction main() {\n  return 1;\n}\n```", AbstainReason.OTHER_FILE),
        ("```python\n# other/module.py\ndef main():\n    circle = Circle(3)\n```", AbstainReason.OTHER_FILE),
        ("# ...\n\ndef brand_new():\n    return 1\n\n# ...\n", AbstainReason.NO_ANCHOR),
        (
            "<<<<<<< SEARCH\n    self.nothing_like_it = 4\n=======\n    x = 1\n>>>>>>> REPLACE\n",
            AbstainReason.NO_ANCHOR,
        ),
        ("def main():\n    circle = Circle(2)\n    print(circle.area(\n", AbstainReason.NO_LONGER_PARSES),
        ("def main():\n    circle = Circle(2)\n    print(circle.area())\n", AbstainReason.NO_CHANGE),
    ],
)
def test_refusals_say_why(sketch: str, reason: AbstainReason) -> None:
    assert refused("shapes.py", SHAPES, sketch) is reason


@pytest.mark.parametrize("sketch", ["", "  \n\n", "```python\n```", "# ... existing code ..."])
def test_an_empty_sketch_is_an_error(sketch: str) -> None:
    with pytest.raises(SketchUnusable):
        result_of("shapes.py", SHAPES, sketch)


def test_an_empty_file_takes_the_sketch_as_it_is() -> None:
    assert merged("new.py", "", "```python\nx = 1\n```") == "x = 1\n"


REWRITE_SKETCH = "def main():\n    circle = Circle(3)\n    # ...\n"


def rewritten(change: tuple[str, str], sketch: str = REWRITE_SKETCH) -> ApplyResult:
    """RewriteApply with a model that copies its window with one change."""
    asked = ScriptedModel([""])
    result_of("shapes.py", SHAPES, sketch, model=asked, engine=Engine.REWRITE)
    draft = asked.asked[0][2]
    assert draft is not None
    assert draft in SHAPES
    answer = draft.replace(*change).removesuffix("\n")
    return result_of("shapes.py", SHAPES, sketch, model=ScriptedModel([answer]), engine=Engine.REWRITE)


def test_rewrite_takes_what_the_model_copies_and_changes() -> None:
    result = rewritten(("Circle(2)", "Circle(3)"))
    assert result.patch is not None, result.abstention
    assert result.patch.apply(SHAPES) == SHAPES.replace("Circle(2)", "Circle(3)")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("Circle(2)\n    print(circle.area())", "Circle(3)"), AbstainReason.LOST_CODE),
        (("Circle(2)", "Circle(3)\n    circle.scale(2)"), AbstainReason.INVENTED_CODE),
        (("nothing", "nothing"), AbstainReason.LOST_CODE),
    ],
)
def test_rewrite_does_not_believe_a_model_that_loses_or_invents(change: tuple[str, str], reason: AbstainReason) -> None:
    result = rewritten(change)
    assert result.abstention is not None
    assert result.abstention.reason is reason


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab =:#.\n\t(){}@-+<>", max_size=120), st.text(alphabet="ab =:#.\n\r\t(){}", max_size=120))
def test_any_sketch_gives_a_patch_or_a_reason(sketch: str, text: str) -> None:
    try:
        result = result_of("a.txt", text, sketch)
    except SketchUnusable:
        return
    if result.patch:
        assert result.patch.apply(text) != text
