"""The tools that read, list, search, write and edit files."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence

import pytest

from etude.agent.records import Records
from etude.agent.toolbox import Answer, Tool, ToolContext, WrongArguments
from etude.agent.tools.edit import REPLACE, Applied, edit_with
from etude.agent.tools.list import LIST
from etude.agent.tools.read import READ
from etude.agent.tools.search import SEARCH
from etude.agent.tools.write import WRITE
from etude.errors import EtudeError
from etude.traces import TurnError
from etude.workspace.memory import MemoryWorkspace
from etude.workspace.workspace import Command, CommandResult, DiagnosticsReport, Entry, EntryKind

FILES = {
    "pay.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_pay.py": "from pay import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
    "docs/a.md": "Total cost\r\nis total\r\n",
    ".env": "TOTAL=1\n",
    ".cache/x.py": "total\n",
    "empty.py": "",
}


def use(tool: Tool, workspace: MemoryWorkspace, **arguments: object) -> Answer:
    context = ToolContext(workspace=workspace, records=Records(None))
    return asyncio.run(tool.call(tool.read(json.dumps(arguments)), context))


def answer(tool: Tool, **arguments: object) -> str:
    return use(tool, MemoryWorkspace(FILES), **arguments).text


# Reading.


def test_lines_are_read_with_their_numbers() -> None:
    assert answer(READ, path="pay.py") == "    1 def total(prices):\n    2     return sum(prices)"
    text = answer(READ, path="tests/test_pay.py", first_line=4, last_line=4)
    assert text.startswith("    4 def test_total():\n")
    assert "Lines 4 to 4 of 5" in text
    assert "first_line=5" in text


@pytest.mark.parametrize("path", ["pay.py", "./pay.py", "/memory/pay.py", " pay.py"])
def test_a_path_can_be_written_in_several_ways(path: str) -> None:
    assert "sum(prices)" in answer(READ, path=path)


def test_a_long_file_is_read_in_parts_that_fit() -> None:
    workspace = MemoryWorkspace({"a": "".join(f"line {number}\n" for number in range(1, 5_001))})
    seen, first = [], 1
    while True:
        text = use(READ, workspace, path="a", first_line=first).text
        assert len(text) <= 24_000
        seen += [line.split()[-1] for line in text.split("\n") if line[:5].strip().isdigit()]
        if "first_line=" not in text:
            break
        first = int(text.rpartition("first_line=")[2].strip(".)"))
    assert seen == [str(number) for number in range(1, 5_001)]


def test_lines_of_any_length_fit() -> None:
    workspace = MemoryWorkspace({"a.min.js": "x" * 3_000_000 + "\nlast\n", "wide": ("y" * 990 + "\n") * 500})
    text = use(READ, workspace, path="a.min.js").text
    assert len(text) < 2_000
    assert "2999000 more characters" in text
    assert "last" in text
    assert len(use(READ, workspace, path="wide").text) <= 24_000


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"path": "pay.py", "first_line": 9}, "2 lines"), ({"path": "pay.py", "first_line": 2, "last_line": 1}, "before")],
)
def test_lines_that_are_not_there_are_told(arguments: dict[str, object], told: str) -> None:
    result = use(READ, MemoryWorkspace(FILES), **arguments)
    assert result.error is TurnError.TOOL_FAILED
    assert told in result.text


def test_a_record_is_read_by_its_id() -> None:
    records = Records(None)
    records.keep("output", "one\ntwo\nthree")
    context = ToolContext(workspace=MemoryWorkspace(), records=records)
    arguments = READ.read('{"path": "output:1", "first_line": 2, "last_line": 2}')
    assert asyncio.run(READ.call(arguments, context)).text == "two"


# Listing.


def test_a_folder_is_listed_with_what_is_in_it() -> None:
    assert answer(LIST).split("\n") == [
        ".cache/", ".env", "docs/", "docs/a.md", "empty.py", "pay.py", "tests/", "tests/test_pay.py"
    ]  # fmt: skip
    assert answer(LIST, path="tests", depth=1) == "tests/test_pay.py"


def test_a_large_folder_is_listed_in_part() -> None:
    text = use(LIST, MemoryWorkspace({f"f{number:05}": "" for number in range(5_000)})).text
    assert "4600 more" in text
    assert len(text.split("\n")) == 401


# Searching.


def test_a_text_is_found_with_file_and_line() -> None:
    assert answer(SEARCH, text="total(").split("\n") == [
        "pay.py:1: def total(prices):",
        "tests/test_pay.py:4: def test_total():",
        "tests/test_pay.py:5: assert total([1, 2]) == 3",
    ]
    assert (
        answer(SEARCH, text="total", ignore_case=True, path="docs") == "docs/a.md:1: Total cost\ndocs/a.md:2: is total"
    )
    assert answer(SEARCH, text="total", files="*.md") == "docs/a.md:2: is total"
    assert answer(SEARCH, text="total", path="pay.py") == "pay.py:1: def total(prices):"


class OneByOne:
    """A workspace that only reads file by file."""

    def __init__(self) -> None:
        self._inner = MemoryWorkspace(FILES)
        self.root = self._inner.root

    async def read(self, path: str) -> str:
        return await self._inner.read(path)

    async def write(self, path: str, text: str | None) -> None:
        raise AssertionError

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        raise AssertionError

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        raise AssertionError

    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        found = await self._inner.list(path, depth=depth)
        return [*found, Entry(path="gone.py", kind=EntryKind.FILE)]


@pytest.mark.parametrize("pattern", [False, True])
def test_reading_many_at_once_and_one_by_one_find_the_same(pattern: bool) -> None:
    arguments = SEARCH.read(json.dumps({"text": "total", "pattern": pattern}))
    texts = [
        asyncio.run(SEARCH.call(arguments, ToolContext(workspace=workspace, records=Records(None)))).text
        for workspace in (MemoryWorkspace(FILES), OneByOne())
    ]
    assert texts[0] == texts[1]
    assert "pay.py:1" in texts[0]


def test_a_text_is_not_a_pattern() -> None:
    workspace = MemoryWorkspace({"a": "f(x)\nf.x\n"})
    assert use(SEARCH, workspace, text="f.x").text == "a:2: f.x"


def test_a_pattern_is_found_with_file_and_line() -> None:
    assert answer(SEARCH, text=r"^def \w+\(", pattern=True).split("\n") == [
        "pay.py:1: def total(prices):",
        "tests/test_pay.py:4: def test_total():",
    ]
    assert answer(SEARCH, text="total$", pattern=True, files="docs/*") == "docs/a.md:2: is total"
    assert answer(SEARCH, text="TOTAL C", pattern=True, ignore_case=True) == "docs/a.md:1: Total cost"


def test_nothing_found_says_how_much_was_searched() -> None:
    assert answer(SEARCH, text="nowhere") == "No line holds 'nowhere' in the 5 files searched."


def test_a_wrong_pattern_is_told() -> None:
    result = use(SEARCH, MemoryWorkspace(FILES), text="(", pattern=True)
    assert result.error is TurnError.TOOL_FAILED
    assert "no regular expression" in result.text


def test_many_hits_are_cut() -> None:
    workspace = MemoryWorkspace({f"f{number}": "hit\n" * 100 for number in range(10)})
    for pattern in (False, True):
        lines = use(SEARCH, workspace, text="hit", pattern=pattern).text.split("\n")
        assert len(lines) == 201
        assert lines[-1].startswith("(800 more lines")


def test_a_pattern_that_never_ends_is_given_up_while_the_loop_goes_on() -> None:
    workspace = MemoryWorkspace({"a": "a" * 60 + "!\n"})

    async def search() -> tuple[Answer, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        context = ToolContext(workspace=workspace, records=Records(None), seconds_left=0.5)
        result = await SEARCH.call(SEARCH.read('{"text": "(a+)+$", "pattern": true}'), context)
        ticking.cancel()
        return result, ticks

    started = time.monotonic()
    result, ticks = asyncio.run(search())
    assert time.monotonic() - started < 10
    assert "The time was up" in result.text
    assert ticks > 5


# Writing and editing.


def test_files_are_created_replaced_and_removed() -> None:
    workspace = MemoryWorkspace(FILES)
    created = use(WRITE, workspace, path="src/new.py", text="a\nb")
    assert (created.text, created.changed) == ("Created src/new.py: 2 lines.", ("src/new.py",))
    assert use(WRITE, workspace, path="/memory/src/new.py", text="a\n").text == "Replaced src/new.py: 1 line."
    assert workspace.files["src/new.py"] == "a\n"
    assert use(WRITE, workspace, path="src/new.py", text=None).text == "Removed src/new.py."
    assert "src/new.py" not in workspace.files


def test_an_exact_text_is_replaced() -> None:
    workspace = MemoryWorkspace(FILES)
    result = use(REPLACE, workspace, path="pay.py", old="sum(prices)", new="sum(prices, 0)")
    assert workspace.files["pay.py"] == "def total(prices):\n    return sum(prices, 0)\n"
    assert result.changed == ("pay.py",)
    assert "-    return sum(prices)\n+    return sum(prices, 0)" in result.text


def test_line_endings_of_the_file_are_kept() -> None:
    workspace = MemoryWorkspace(FILES)
    use(REPLACE, workspace, path="docs/a.md", old="cost\nis", new="price\nwas")
    assert workspace.files["docs/a.md"] == "Total price\r\nwas total\r\n"


@pytest.mark.parametrize(
    ("old", "told"), [("nowhere", "does not contain"), ("total", "2 times"), ("prices", "2 times")]
)
def test_a_text_that_is_not_there_once_changes_nothing(old: str, told: str) -> None:
    workspace = MemoryWorkspace({"pay.py": "total = total\nprices(prices)\n"})
    before = dict(workspace.files)
    result = use(REPLACE, workspace, path="pay.py", old=old, new="x")
    assert result.error is TurnError.TOOL_FAILED
    assert told in result.text
    assert workspace.files == before


def test_all_of_several_are_replaced_when_asked() -> None:
    workspace = MemoryWorkspace({"a": "x x x"})
    use(REPLACE, workspace, path="a", old="x", new="y", everywhere=True)
    assert workspace.files["a"] == "y y y"


def test_a_sketch_goes_through_apply() -> None:
    asked: list[Sequence[str]] = []

    async def apply(path: str, text: str, sketch: str, instruction: str) -> Applied:
        asked.append((path, text, sketch, instruction))
        return Applied(text=text.replace("sum", sketch)) if sketch else Applied(text=None, reason="It says nothing.")

    workspace = MemoryWorkspace(FILES)
    edit = edit_with(apply)
    done = use(edit, workspace, path="pay.py", sketch="fsum", instruction="Use fsum.")
    assert asked == [("pay.py", FILES["pay.py"], "fsum", "Use fsum.")]
    assert workspace.files["pay.py"] == "def total(prices):\n    return fsum(prices)\n"
    assert "+    return fsum(prices)" in done.text
    refused = use(edit, workspace, path="pay.py", sketch="")
    assert refused.error is TurnError.TOOL_FAILED
    assert "as it was. It says nothing." in refused.text
    assert use(edit, workspace, path="pay.py", sketch="fsum").changed in ((), ("pay.py",))


@pytest.mark.parametrize("tool", [READ, LIST, SEARCH, WRITE, REPLACE])
@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a\0b", ""])
def test_no_path_leaves_the_folder(tool: Tool, path: str) -> None:
    more: dict[str, object] = {"text": "x"} if tool in (SEARCH, WRITE) else {}
    more |= {"old": "x", "new": "y"} if tool is REPLACE else {}
    workspace = MemoryWorkspace(FILES)
    try:
        result = use(tool, workspace, path=path, **more)
    except (EtudeError, WrongArguments):
        pass
    else:
        # The empty path is the folder itself.
        assert path == ""
        assert result.error is None
    assert workspace.files == FILES
