"""What two people made of one file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.workspace.three_way import Merged, merge

BASE = b"one\ntwo\nthree\nfour\nfive\n"


def test_changes_of_different_lines_are_both_kept():
    ours, theirs = BASE.replace(b"one", b"1"), BASE.replace(b"five", b"5")
    assert merge(BASE, ours, theirs) == Merged(content=b"1\ntwo\nthree\nfour\n5\n", merged=True)


def test_changes_of_the_same_line_keep_ours_and_say_so():
    ours = BASE.replace(b"two", b"2")
    assert merge(BASE, ours, BASE.replace(b"two", b"zwei")) == Merged(content=ours, conflict=True)


def test_the_same_change_is_made_once():
    both = BASE.replace(b"two", b"2")
    assert merge(BASE, both, both) == Merged(content=both)
    ours, theirs = both.replace(b"five", b"5"), both
    assert merge(BASE, ours, theirs) == Merged(content=ours, merged=True)


def test_changes_of_neighbouring_lines_conflict():
    assert merge(BASE, BASE.replace(b"two", b"2"), BASE.replace(b"three", b"3")).conflict


def test_different_insertions_at_one_place_conflict():
    assert merge(b"a\nb\n", b"a\nx\nb\n", b"a\ny\nb\n").conflict


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        (BASE, BASE, b"x", Merged(content=b"x")),
        (BASE, b"x", BASE, Merged(content=b"x")),
        (None, None, b"x", Merged(content=b"x")),
        (None, b"x", None, Merged(content=b"x")),
        (None, b"x", b"x", Merged(content=b"x")),
        (None, b"x", b"y", Merged(content=b"x", conflict=True)),
        (BASE, None, BASE, Merged(content=None)),
        (BASE, BASE, None, Merged(content=None)),
        (BASE, None, None, Merged(content=None)),
        (BASE, None, b"x", Merged(content=None, conflict=True)),
        (BASE, b"x", None, Merged(content=b"x", conflict=True)),
        (None, None, None, Merged(content=None)),
        (b"\0", b"\0a", b"b\0", Merged(content=b"\0a", conflict=True)),
        (b"\xff\n\n\n", b"a\xff\n\n\n", b"\xff\n\n\nb", Merged(content=b"a\xff\n\n\n", conflict=True)),
    ],
)
def test_files_that_one_side_does_not_have_or_that_are_not_text(base, ours, theirs, expected):
    assert merge(base, ours, theirs) == expected


def test_line_endings_and_the_missing_last_one_are_kept():
    base = b"a\r\nb\r\nc\r\nd"
    merged = merge(base, base.replace(b"a", b"A"), base.replace(b"d", b"D"))
    assert merged.content == b"A\r\nb\r\nc\r\nD"


def test_the_byte_order_mark_follows_whoever_changed_it():
    mark = b"\xef\xbb\xbf"
    ours, theirs = BASE.replace(b"one", b"1"), BASE.replace(b"five", b"5")
    both = b"1\ntwo\nthree\nfour\n5\n"
    assert merge(mark + BASE, mark + ours, mark + theirs).content == mark + both
    assert merge(BASE, ours, mark + theirs).content == mark + both
    assert merge(mark + BASE, ours, mark + theirs).content == both
    assert merge(mark + BASE, mark + BASE, BASE).content == BASE


LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "}\n", "é\r\n"]), max_size=12).map("".join)


@given(before=LINES, middle=LINES, after=LINES, ours=LINES, theirs=LINES)
def test_disjoint_edits_are_both_kept(before, middle, after, ours, theirs):
    fence = "=1=\n=2=\n=3=\n"
    parts = [before, fence, middle, fence.replace("=", "#"), after]
    base = "".join(parts).encode()
    mine = "".join([ours, *parts[1:]]).encode()
    yours = "".join([*parts[:-1], theirs]).encode()
    assert merge(base, mine, yours).content == "".join([ours, *parts[1:-1], theirs]).encode()


@given(base=LINES, ours=LINES, theirs=LINES)
def test_merging_is_symmetric_and_loses_nothing_silently(base, ours, theirs):
    one = merge(base.encode(), ours.encode(), theirs.encode())
    other = merge(base.encode(), theirs.encode(), ours.encode())
    assert one.conflict == other.conflict
    assert one.conflict or one.content == other.content
    assert not one.conflict or one.content == ours.encode()
