"""Records are found again after a crash, are read by line, are searched, and what is cut says where it is."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.records import Records
from etude.agent.terminal_text import clean
from etude.agent.toolbox import ToolContext, WrongArguments
from etude.agent.tools.recall import RECALL
from etude.errors import InputError
from etude.workspace.memory import MemoryWorkspace

LONG = "\n".join(f"line {number}" for number in range(1, 1001))


def test_a_record_is_read_whole_and_by_line(tmp_path: Path) -> None:
    for records in (Records(None), Records(tmp_path)):
        record = records.keep("output", LONG, title="$ pytest\n-q")
        assert (record.id, record.title, record.num_lines) == ("output:1", "$ pytest -q", 1000)
        assert records.read("output:1") == LONG
        assert records.read("output:1", 41, 42) == "line 41\nline 42"
        assert records.read("output:1", 1000, 5000) == "line 1000"
        assert records.keep("output", "again").id == "output:2"


@pytest.mark.parametrize(("first", "last"), [(0, 1), (5, 4), (1001, None)])
def test_lines_that_are_not_there_are_refused_with_the_number_of_lines(first: int, last: int | None) -> None:
    records = Records(None)
    records.keep("output", LONG)
    with pytest.raises(InputError, match="lines"):
        records.read("output:1", first, last)


def test_an_unknown_id_is_answered_with_the_ids_there_are() -> None:
    records = Records(None)
    records.keep("output", "a")
    records.keep("output", "b")
    with pytest.raises(InputError, match="output:1 to output:2"):
        records.read("../../etc/passwd")


@pytest.mark.parametrize("kind", ["../x", "", "Output", "a:b", "a" * 40])
def test_a_kind_that_could_not_be_an_id_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="kind"):
        Records(None).keep(kind, "text")


def test_records_are_found_by_the_next_process(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep("output", LONG, title="long")
    records.keep("turn", "a\udcff\x00\u2028b", number=7)
    again = Records(tmp_path)
    assert again.contents() == records.contents()
    assert (again.read("output:1"), again.read("turn:7")) == (LONG, "a\udcff\x00\u2028b")
    assert again.keep("turn", "next").id == "turn:8"
    assert Records(tmp_path).read("turn:8") == "next"


def test_a_crash_costs_only_the_record_that_was_being_written(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for text in ("first", "second", "third"):
        records.keep("output", text)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    again = Records(tmp_path)
    assert [record.id for record in again.contents()] == ["output:1", "output:2"]
    again.keep("output", "third, again")
    assert [Records(tmp_path).read(f"output:{number}") for number in (1, 2, 3)] == ["first", "second", "third, again"]


@pytest.mark.parametrize(
    "line",
    [b"[]", b"nothing", b'{"id": "output:x", "title": "", "text": ""}', b'{"id": 3}', b"\xff\xfe", b"[" * 100_000],
)
def test_lines_that_are_no_records_are_passed_over(tmp_path: Path, line: bytes) -> None:
    Records(tmp_path).keep("output", "good")
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(b"\n" + line)
    assert [record.id for record in Records(tmp_path).contents()] == ["output:1"]


def test_an_id_of_a_foreign_file_is_not_believed(tmp_path: Path) -> None:
    entry = {"id": "../../x:1", "title": "", "text": "planted"}
    (tmp_path / "records.jsonl").write_text(json.dumps(entry))
    assert Records(tmp_path).contents() == []


def test_a_full_disk_loses_no_record_of_this_process(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep("output", "on disk")
    path = tmp_path / "records.jsonl"
    path.rename(tmp_path / "moved")
    path.mkdir()  # nothing can be written to it
    assert records.keep("output", "in memory").id == "output:2"
    assert records.read("output:2") == "in memory"
    path.rmdir()
    (tmp_path / "moved").rename(path)
    assert records.read("output:1") == "on disk"


def test_the_same_turn_again_is_one_record_and_another_one_never_replaces_it() -> None:
    records = Records(None)
    assert records.keep("turn", "a", number=3).id == "turn:3"
    assert records.keep("turn", "a", number=3).id == "turn:3"
    assert records.keep("turn", "b", number=3).id == "turn:3-2"
    assert records.keep("turn", "b", number=3).id == "turn:3-2"
    assert (records.read("turn:3"), records.read("turn:3-2")) == ("a", "b")


def test_a_search_finds_the_phrase_then_the_words_the_newest_first() -> None:
    records = Records(None)
    records.keep("output", "x\n  ImportError: no module named pay\ny")
    records.keep("output", "the module pay has no ImportError")
    hits = records.search("importerror: no module")
    assert [(hit.id, hit.line, hit.text) for hit in hits] == [("output:1", 2, "ImportError: no module named pay")]
    assert [hit.id for hit in records.search("pay importerror")] == ["output:2", "output:1"]
    assert [hit.id for hit in records.search("pay importerror", limit=1)] == ["output:2"]
    assert records.search("   ") == records.search("absent") == []


def test_a_hit_in_a_very_long_line_is_shown_where_it_is() -> None:
    records = Records(None)
    records.keep("output", "a" * 100_000 + "needle" + "b" * 100_000)
    (hit,) = records.search("needle")
    assert "needle" in hit.text and len(hit.text) <= 200


# Cutting.


def test_a_cut_shows_both_ends_and_how_to_read_the_rest() -> None:
    records = Records(None)
    text = records.cut(LONG, "output", 400)
    lines = text.split("\n")
    (note,) = [line for line in lines if line.startswith("…")]
    at = lines.index(note)
    left_out = 1000 - len(lines) + 1
    assert note == f'… {left_out} lines left out; read them with recall(id="output:1", first_line={at + 1})'
    assert (lines[0], lines[-1]) == ("line 1", "line 1000")
    rest = records.read("output:1", at + 1, at + left_out)
    assert "\n".join([*lines[:at], rest, *lines[at + 1 :]]) == LONG


def test_a_short_text_is_not_kept() -> None:
    records = Records(None)
    assert records.cut("2 passed", "output", 400) == "2 passed"
    assert records.contents() == []


@settings(deadline=None)
@given(st.text(alphabet="ab\n\r\x1b[1m é", max_size=3000), st.integers(300, 1000))
def test_a_cut_text_is_never_longer_than_asked_and_loses_nothing(text: str, most: int) -> None:
    records = Records(None)
    cut = records.cut(text, "output", most)
    assert len(cut) <= most
    if cut != clean(text):
        assert records.read("output:1") == clean(text)
        assert 'recall(id="output:1"' in cut


def test_one_line_of_a_megabyte_is_cut_inside() -> None:
    records = Records(None)
    cut = records.cut("start" + "x" * 1_000_000 + "end", "output", 500)
    assert cut.startswith("start") and "end\n" in cut and len(cut) <= 500 and "left out" in cut


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r50%\r100%\nok", "100%\nok"),
        ("100%\r\n", "100%\n"),
        ("done\r\x1b[K", "done"),
        ("N\x08NA\x08A", "NA"),
        ("nul\x00bell\x07\ttab\x9b1m", "nulbell\ttab"),
        ("\x1b]never ended\nnext", "never ended\nnext"),
        ("plain é 漢 🙂", "plain é 漢 🙂"),
    ],
)
def test_terminal_output_becomes_plain_text(printed: str, shown: str) -> None:
    assert clean(printed) == shown


# The tool.


def ask(records: Records, arguments: str, characters: int = 2000) -> str:
    context = ToolContext(workspace=MemoryWorkspace({}), records=records, characters=characters)
    return asyncio.run(RECALL.call(RECALL.read(arguments), context)).text


def test_the_tool_reads_on_until_everything_was_shown() -> None:
    records = Records(None)
    records.keep("output", LONG)
    seen: list[str] = []
    while len(seen) < 1000:
        text = ask(records, f'{{"id": "output:1", "first_line": {len(seen) + 1}}}')
        assert len(text) <= 2000
        seen += text.split("\n")[1:]
    assert "\n".join(seen) == LONG


def test_the_tool_reads_a_long_line_in_pieces() -> None:
    records = Records(None)
    line = "".join(f"{number}," for number in range(2000))
    records.keep("output", f"a\n{line}\nb")
    seen, heading = "", "first_character=1:"
    while "first_character=" in heading:
        start = heading.rpartition("=")[2].rstrip(":")
        text = ask(records, f'{{"id": "output:1", "first_line": 2, "last_line": 2, "first_character": {start}}}')
        heading, _, piece = text.partition("\n")
        seen += piece
    assert seen == line


def test_the_tool_lists_and_searches() -> None:
    records = Records(None)
    records.keep("output", "needle\nhay", title="$ make")
    records.keep("turn", "another needle", number=4)
    assert ask(records, '{"id": "contents"}').split("\n")[1:] == ["output:1 (2 lines) $ make", "turn:4 (1 lines)"]
    assert ask(records, '{"query": "needle"}') == "turn:4:1: another needle\noutput:1:1: needle"
    assert ask(records, '{"query": "needle", "id": "output:1"}') == "output:1:1: needle"
    assert "No line" in ask(records, '{"query": "pin"}')


@pytest.mark.parametrize("arguments", ["{}", '{"id": "output:1", "first_line": 9}'])
def test_the_tool_says_what_is_wrong(arguments: str) -> None:
    records = Records(None)
    records.keep("output", "one line")
    assert "contents" in ask(records, arguments) or "1 to 1" in ask(records, arguments)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(WrongArguments):
        RECALL.read('{"id": 3}')
