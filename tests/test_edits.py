"""Patches as values: they give back exactly the text they were made from, and git reads their diffs."""

import itertools
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from etude.edits import (
    Edit,
    Patch,
    Span,
    line_starts,
    patch_from_texts,
    split_lines,
    text_sha256,
    unified_diff,
)

# Few lines in many copies make difflib work; these ends are what str.splitlines would also split at.
LINES = st.sampled_from(["a", "b", "", " ", "\t", "é", "\x0c", "\u2028", "\x85", "\x1c", "😀", "c" * 9])
ENDINGS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", ""])
FILES = st.lists(st.tuples(LINES, ENDINGS).map("".join), max_size=12).map("".join)
# What git takes for a line ends with "\n"; a lone "\r" is none of its business.
GIT_FILES = st.lists(
    st.tuples(LINES, st.sampled_from(["\n", "\r\n"])).map("".join) | st.just("x\ry\n"), max_size=12
).map("".join)


def edit(start: int, end: int, text: str) -> Edit:
    return Edit(span=Span(start=start, end=end), text=text)


def patch(original: str, *edits: Edit) -> Patch:
    return Patch(path="a.py", base_sha256=text_sha256(original), edits=edits)


# Lines.


@given(FILES | st.text())
def test_lines_join_to_the_text_and_end_where_it_says(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(line.endswith(("\n", "\r")) for line in lines[:-1])
    assert all(line and not set(line[:-1].removesuffix("\r")) & set("\r\n") for line in lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a\n"]),
        ("a\n\nb", ["a\n", "\n", "b"]),
        ("a\r\nb\r\n", ["a\r\n", "b\r\n"]),
        ("a\rb\n\rc\r\n", ["a\r", "b\n", "\r", "c\r\n"]),
        ("a\x0cb\u2028c\x85d\x1ce\n", ["a\x0cb\u2028c\x85d\x1ce\n"]),
    ],
)
def test_lines_end_at_newlines_and_returns_only(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@given(FILES)
def test_line_starts_find_the_lines(text: str) -> None:
    lines = split_lines(text)
    starts = line_starts(lines)
    assert [text[begin:end] for begin, end in itertools.pairwise(starts)] == lines
    assert starts[-1] == len(text)


# Patches.


@given(FILES | st.text(), FILES | st.text())
@example("a\r\nb", "a\nb")
@example("a", "a\n")
@example("", "a")
def test_a_patch_gives_the_changed_text_exactly(original: str, changed: str) -> None:
    assert patch_from_texts("a.py", original, changed).apply(original) == changed


@given(FILES)
def test_equal_texts_need_no_edits(text: str) -> None:
    assert patch_from_texts("a.py", text, text).edits == ()


@given(FILES, FILES)
def test_edits_cover_whole_lines_and_change_something(original: str, changed: str) -> None:
    starts = set(line_starts(split_lines(original)))
    for found in patch_from_texts("a.py", original, changed).edits:
        assert {found.span.start, found.span.end} <= starts
        assert original[found.span.start : found.span.end] != found.text


@given(FILES, FILES, st.data())
def test_some_of_the_edits_make_some_of_the_changes(original: str, changed: str, data: st.DataObject) -> None:
    whole = patch_from_texts("a.py", original, changed)
    wanted = data.draw(st.sets(st.integers(0, len(whole.edits))))
    some = whole.only(wanted)
    assert some.edits == tuple(found for index, found in enumerate(whole.edits) if index in wanted)
    expected = original
    for found in reversed(some.edits):
        expected = expected[: found.span.start] + found.text + expected[found.span.end :]
    assert some.apply(original) == expected


@given(FILES, FILES)
def test_none_and_all_of_the_edits(original: str, changed: str) -> None:
    whole = patch_from_texts("a.py", original, changed)
    assert whole.only(()).apply(original) == original
    assert whole.only(range(len(whole.edits))) == whole


@given(FILES, FILES)
def test_the_ends_of_a_long_file_are_left_alone(original: str, changed: str) -> None:
    head = "".join(f"\nline {number}\n" for number in range(200))
    tail = "\n" + head.lstrip()
    whole = patch_from_texts("a.py", head + original + tail, head + changed + tail)
    assert whole.apply(head + original + tail) == head + changed + tail
    for found in whole.edits:
        assert len(head) <= found.span.start <= found.span.end <= len(head + original) + 1


def test_a_patch_refuses_another_text() -> None:
    with pytest.raises(ValueError, match=r"a\.py: this patch was made for another text"):
        patch("one", edit(0, 3, "two")).apply("one ")


@pytest.mark.parametrize("edits", [[(4, 5), (0, 1)], [(0, 3), (2, 4)], [(0, 3), (0, 3)]])
def test_edits_must_be_sorted_and_apart(edits: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlap or are unsorted"):
        patch("original", *(edit(start, end, "x") for start, end in edits))


def test_edits_may_touch() -> None:
    assert patch("abcd", edit(0, 2, "x"), edit(2, 2, "y"), edit(2, 4, "z")).apply("abcd") == "xyz"


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (2, 1)])
def test_a_span_runs_forward(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=rf"got {start}\.\.{end}"):
        Span(start=start, end=end)


# Diffs.


def applied_by_git(folder: Path, name: str, original: str, diff: str) -> bytes:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(original.encode())
    # Outside any repository, and without a person's settings.
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=diff.encode(),
        cwd=folder,
        env=environment,
        capture_output=True,
    )
    assert done.returncode == 0, (done.stderr.decode(), diff)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("original", "changed"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("a\nb", "a\nc"),
        ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("x\ry\nz\n", "x\ry\nZ\n"),
        ("x\ry\nz\n", "x\rY\nz\n"),
        ("a\x0c\nb\u2028b\n", "a\x0c\nb\u2028c\n"),
        ("a\n", ""),
        ("".join(f"{n}\n" for n in range(50)), "".join(f"{n}\n" for n in range(50) if n % 20)),
    ],
)
def test_git_applies_our_diffs(tmp_path: Path, original: str, changed: str) -> None:
    diff = unified_diff("a.py", original, changed)
    assert applied_by_git(tmp_path, "a.py", original, diff) == changed.encode()


@pytest.mark.parametrize("name", ["folder/a.py", "a b.py", "é.py"])
def test_git_finds_the_file_that_a_diff_names(tmp_path: Path, name: str) -> None:
    diff = unified_diff(name, "a\n", "b\n")
    assert applied_by_git(tmp_path, name, "a\n", diff) == b"b\n"


def test_git_applies_any_diff(tmp_path_factory: pytest.TempPathFactory) -> None:
    @given(GIT_FILES, LINES, GIT_FILES, LINES)
    def check(original: str, original_end: str, changed: str, changed_end: str) -> None:
        before, after = original + original_end, changed + changed_end
        assume(before != after)
        folder = tmp_path_factory.mktemp("git")
        assert applied_by_git(folder, "a.py", before, unified_diff("a.py", before, after)) == after.encode()

    check()


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("a.py", "a\r\nb", "a\r\nb") == ""
