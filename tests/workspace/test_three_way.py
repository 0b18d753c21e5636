"""What two people made of one file."""

import time

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


def test_a_large_file_of_repeated_lines_is_merged_in_time():
    base = b"x\n\n}\n" * 100_000
    ours = b"1\n" + base[2:-4] + b"2\n"
    theirs = base[:300_000] + b"3\n" + base[300_000:]
    start = time.perf_counter()
    merged = merge(base, ours, theirs)
    assert merged.conflict or merged.content == b"1\n" + base[2:300_000] + b"3\n" + base[300_000:-4] + b"2\n"
    assert time.perf_counter() - start < 3


def test_two_files_with_nothing_in_common_are_not_compared_for_long():
    numbers = [b"%d\n" % number for number in range(60_000)]
    theirs = [b"-%d\n" % number for number in range(60_000)]
    base, ours, theirs = b"".join(numbers), b"".join(numbers[::-1]), b"".join(theirs)
    start = time.perf_counter()
    assert merge(base, ours, theirs) == Merged(content=ours, conflict=True)
    assert time.perf_counter() - start < 3


def test_a_usual_file_is_merged_within_5_ms():
    lines = [b"    line %d\n" % (number % 700) for number in range(1_000)]
    ours, theirs = [*lines], [*lines]
    ours[10], theirs[900] = b"ours\n", b"theirs\n"
    best = 9.0
    for _ in range(5):
        start = time.perf_counter()
        assert merge(b"".join(lines), b"".join(ours), b"".join(theirs)).merged
        best = min(best, time.perf_counter() - start)
    assert best < 0.005


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
