"""The Apply benchmark: its data, its labels, its judge and the run itself."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.apply_baselines import difflib_merge, search_replace_merge
from benchmarks.apply_cases import Variant, choose_cases
from benchmarks.apply_judge import Outcome, judge, judge_refusal, same_code, untouched_bytes_changed
from benchmarks.apply_sketches.elided import deletion, elided_context, partial_function
from benchmarks.apply_sketches.makers import POSITIVE
from benchmarks.apply_sketches.refusals import REFUSED, ambiguous, silent_gap
from benchmarks.apply_sketches.regions import look_at, one_placement
from benchmarks.apply_sketches.styles import Sketch, Style
from benchmarks.edit_histories import (
    SAMPLE,
    ReplayError,
    Skipped,
    Split,
    TrueEdit,
    apply_diff,
    data_path,
    in_split,
    read_edits,
    read_histories,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def edits() -> list[TrueEdit]:
    # With a real data file in ETUDE_BENCH_DATA the labels are tried on it, too.
    return read_edits(data_path())[0][:150]


def sketches_of(edits: list[TrueEdit], *styles: Style) -> list[tuple[TrueEdit, Sketch]]:
    found = []
    for edit in edits:
        subject = look_at(edit)
        for style in styles:
            for seed in range(3):
                sketch = POSITIVE[style](subject, random.Random(f"{seed}{edit.key}"))
                found += [(edit, sketch)] if sketch else []
    return found


# Edit histories


def test_the_sample_replays_and_gives_whole_changes_and_steps() -> None:
    found, skipped = read_edits(SAMPLE)
    assert not skipped
    assert {edit.step is None for edit in found} == {True, False}
    assert found[0].path == "tides.py"
    for history in read_histories(SAMPLE):
        assert len(history.orders) == len(history.versions) - 1


def test_what_cannot_be_used_is_skipped_and_counted(tmp_path: Path) -> None:
    pull = json.loads(SAMPLE.read_text(encoding="utf-8").splitlines()[-1])
    broken = pull | {"files": [pull["files"][0] | {"final": "x = 1\n"}]}
    spaces = {"order": 1, "diff": "@@ -1,2 +1,2 @@\n-x = 1\n+x = 1  \n y = 2\n"}
    blank = pull | {
        "files": [{"path": "a__py", "original": "x = 1\ny = 2\n", "final": "x = 1  \ny = 2\n", "steps": [spaces]}]
    }
    bad = {"order": 1, "diff": "@@ -1 +1 @@\n-x = 1\n+x = (\n"}
    unparsed = pull | {"files": [{"path": "a__py", "original": "x = 1\n", "final": "x = (\n", "steps": [bad]}]}
    path = tmp_path / "histories.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in (broken, blank, unparsed)), encoding="utf-8")
    found, skipped = read_edits(path)
    assert found == []
    assert skipped == {Skipped.NO_REPLAY: 1, Skipped.UNCHANGED: 1, Skipped.NO_PARSE: 1}


def test_a_recorded_diff_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(ReplayError, match="0 places"):
        apply_diff("a\nb\n", "@@ -1,1 +1,1 @@\n-c\n+d\n")
    assert apply_diff("x\na\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n") == "x\na\n\nc\n"


def test_the_two_splits_share_no_repository() -> None:
    repos = ["scikit-learn/scikit-learn", "pylint-dev/pylint", "sympy/sympy", "sphinx-doc/sphinx"]
    assert [in_split(repo, Split.TEST) for repo in repos] == [True, True, False, False]
    assert all(in_split(repo, Split.TEST) != in_split(repo, Split.DEV) for repo in repos)


# Labels: what is promised to be unique gives the true file when applied by the letter


def full(lines: list[str]) -> list[tuple[int, str]]:
    return [(at, line.strip()) for at, line in enumerate(lines) if line.strip()]


def places(lines: list[str], old: list[str]) -> list[tuple[int, int]]:
    """Where the old lines stand, blank lines and indentation not counted; blank lines at their edges included."""
    have, wanted = full(lines), [word for _, word in full(old)]
    above, below = full(old)[0][0], len(old) - 1 - full(old)[-1][0]
    starts = [at for at in range(len(have)) if [word for _, word in have[at : at + len(wanted)]] == wanted]
    return [(have[at][0] - above, have[at + len(wanted) - 1][0] + 1 + below) for at in starts]


def all_replaced(lines: list[str], changes: list[tuple[list[str], list[str]]]) -> list[str]:
    """The lines with all changes made, each after the one before; there must be one way to do it."""
    found = itertools.product(*(places(lines, old) for old, _ in changes))
    ways = [way for way in found if all(end <= start for (_, end), (start, _) in itertools.pairwise(way))]
    assert len(ways) == 1, f"{len(ways)} ways for {changes}"
    for (start, end), (_, new) in reversed(list(zip(ways[0], changes, strict=True))):
        lines = lines[:start] + new + lines[end:]
    return lines


def by_blocks(text: str, sketch: str) -> str:
    lines = text.split("\n")
    block: dict[str, list[str]] = {}
    side = ""
    for line in sketch.split("\n"):
        if line in ("<<<<<<< SEARCH", "------- SEARCH"):
            block, side = {"old": [], "new": []}, "old"
        elif line == "=======" and side:
            side = "new"
        elif line in (">>>>>>> REPLACE", "+++++++ REPLACE") and side:
            lines, side = all_replaced(lines, [(block["old"], block["new"])]), ""
        elif side:
            block[side].append(line)
    return "\n".join(lines)


def by_hunks(text: str, sketch: str) -> str:
    body = sketch.removeprefix("```diff\n").removesuffix("```\n").removesuffix("\n").split("\n")
    starts = [at for at, line in enumerate(body) if line.startswith("@@")]
    hunks = [body[start + 1 : end] for start, end in zip(starts, [*starts[1:], len(body)], strict=True)]
    changes = [
        (
            [line[1:] for line in hunk if not line.startswith("+")],
            [line[1:] for line in hunk if not line.startswith("-")],
        )
        for hunk in hunks
    ]
    return "\n".join(all_replaced(text.split("\n"), changes))


def test_unique_blocks_give_the_true_file(edits: list[TrueEdit]) -> None:
    tried = 0
    for edit, sketch in sketches_of(edits, Style.SEARCH_REPLACE, Style.SEARCH_DRIFT):
        if not sketch.unique_anchor or sketch.how in ("stale comment", "other quotes", "dedented", "no blank lines"):
            continue
        assert by_blocks(edit.before, sketch.text) == edit.after, edit.key
        tried += 1
    assert tried >= 30


def test_unique_diffs_give_the_true_file(edits: list[TrueEdit]) -> None:
    tried = 0
    for edit, sketch in sketches_of(edits, Style.UNIFIED_DIFF):
        if sketch.unique_anchor:
            assert by_hunks(edit.before, sketch.text) == edit.after, edit.key
            tried += 1
    assert tried >= 20


def test_unique_parts_give_the_true_file_between_their_ends(edits: list[TrueEdit]) -> None:
    """Each part replaces what lies between its first and its last line, looked for as pairs of lines."""
    tried = 0
    for edit, sketch in sketches_of(edits, Style.ELIDED_CONTEXT, Style.SEVERAL_HUNKS, Style.IMPORT_AND_CHANGE):
        if not sketch.unique_anchor or sketch.text.startswith("```") or "class line" in sketch.how:
            continue
        result = by_parts(edit.before, sketch)
        if result is None:
            continue
        assert same_code(result, edit.after), f"{edit.key}\n{sketch.text}"
        tried += 1
    assert tried >= 10


def by_parts(text: str, sketch: Sketch) -> str | None:
    """None where two lines at an end are not enough to tell the place (the label reads the whole run)."""
    lines, parts = text.split("\n"), [[]]
    for line in sketch.text.split("\n"):
        if line.strip() in sketch.marks:
            parts.append([])
        else:
            parts[-1].append(line)
    for part in parts:
        words = full(part)
        if not words:
            continue
        new = part[words[0][0] : words[-1][0] + 1]
        have = full(lines)
        heads = [at for at, (_, word) in enumerate(have[:-1]) if [word, have[at + 1][1]] == [w for _, w in words[:2]]]
        tails = [at for at, (_, word) in enumerate(have[:-1]) if [word, have[at + 1][1]] == [w for _, w in words[-2:]]]
        if len(heads) != 1 or len(tails) != 1:
            return None
        lines = lines[: have[heads[0]][0]] + new + lines[have[tails[0] + 1][0] + 1 :]
    return "\n".join(lines)


def test_two_equal_places_are_not_one_placement() -> None:
    file = ["a", "b", "c", "", "a", "b", "d"]
    assert one_placement(file, [[("a", "b", "c")]])
    assert not one_placement(file, [[("a", "b")]])
    assert one_placement(file, [[("b", "c")], [("a", "b")]])
    assert not one_placement(file, [[("x",)]])
    assert not one_placement(file, [[("c",), ("b",)], [("a",)]])


def twins(body: str) -> str:
    return (
        f"def one(x):\n    log(x)\n{body}    return x\n\n\ndef two(x):\n    log(x)\n    return x\n" + "\n\nz = 1\n" * 12
    )


def test_a_change_between_equal_neighbours_is_not_promised_and_is_made_a_refusal() -> None:
    edit = TrueEdit(repo="a/b", pull=1, path="m.py", step=0, before=twins(""), after=twins("    x += 1\n"))
    subject = look_at(edit)
    refusal = ambiguous(subject, random.Random(1))
    assert refusal and refusal.how.startswith("a true edit") and not refusal.unique_anchor
    function = partial_function(subject, random.Random(1))
    assert function and function.unique_anchor, "the name tells the place"


def test_a_silent_loss_of_a_function_is_not_promised() -> None:
    before = "a = 1\nb = 2\n\n\ndef f():\n    return 1\n\n\nc = 3\nd = 4\n" + "\n\nz = 1\n" * 9
    edit = TrueEdit(
        repo="a/b", pull=1, path="m.py", step=0, before=before, after=before.replace("def f():\n    return 1\n\n\n", "")
    )
    made = [deletion(look_at(edit), random.Random(seed)) for seed in range(20)]
    assert all(
        sketch and sketch.unique_anchor == any("remove" in m or "delete" in m for m in sketch.marks) for sketch in made
    )
    assert {sketch.unique_anchor for sketch in made if sketch} == {True, False}


def test_every_style_is_made_of_the_sample_or_of_a_long_function(edits: list[TrueEdit]) -> None:
    styles = {case.sketch.style for case in choose_cases(read_edits(SAMPLE)[0], limit=400, seed=1)}
    assert styles >= set(POSITIVE)
    assert {style for style in Style if style.should_abstain} == {*REFUSED, Style.OTHER_FILE}
    body = "".join(f"    step_{n}(x)\n" for n in range(60))
    before = f"def long(x):\n    first(x)\n{body}    return x\n"
    edit = TrueEdit(
        repo="a/b", pull=1, path="m.py", step=0, before=before, after=before.replace("first(x)", "first(x, 1)")
    )
    gap = silent_gap(look_at(edit), random.Random(1))
    assert gap and "step_30" not in gap.text and "..." not in gap.text


def test_the_choice_of_cases_is_the_same_each_time_and_has_unusual_files(edits: list[TrueEdit]) -> None:
    sample = read_edits(SAMPLE)[0]
    once, again = (choose_cases(sample, limit=200, seed=3) for _ in range(2))
    assert once == again
    assert {case.variant for case in once} == set(Variant)
    assert all("\r\n" in case.before for case in once if case.variant is Variant.CRLF)


# The judge

BEFORE = "import a\n\n\ndef f():\n    return 1  # one\n\n\ndef g():\n    return 2\n"
AFTER = BEFORE.replace("return 2", "return 3")


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (AFTER, Outcome.RIGHT),
        (None, Outcome.ABSTAINED),
        (BEFORE, Outcome.ABSTAINED),
        (AFTER.replace("return 3", "return (3)"), Outcome.RIGHT),
        (AFTER.replace("return 3", "return 4"), Outcome.WRONG),
        (AFTER + "# ... existing code ...\n", Outcome.WRONG),
        (AFTER.replace("return 3", "return 3)"), Outcome.WRONG),
    ],
)
def test_judges(result: str | None, outcome: Outcome) -> None:
    assert judge(BEFORE, AFTER, result, ["# ... existing code ..."]).outcome is outcome


def test_a_lost_comment_is_counted_and_decides_where_only_comments_change() -> None:
    assert judge(BEFORE, AFTER, AFTER.replace("  # one", ""), []).comments_lost == 1
    only = BEFORE.replace("# one", "# 1")
    assert judge(BEFORE, only, only.replace("1  # 1", "1 # 1"), []).outcome is Outcome.RIGHT
    assert judge(BEFORE, only, BEFORE + "\n", []).outcome is Outcome.WRONG


def test_untouched_bytes_are_those_of_kept_lines_and_of_lines_put_between_them() -> None:
    assert untouched_bytes_changed(BEFORE, AFTER, AFTER) == 0
    assert untouched_bytes_changed(BEFORE, AFTER, AFTER.replace("return 3", "return (3)")) == 0
    assert untouched_bytes_changed(BEFORE, AFTER, AFTER.replace("import a\n", "import a\r\n")) == len("import a\n")
    assert untouched_bytes_changed(BEFORE, AFTER, AFTER.replace("def f", "x\ndef f")) == 2
    assert untouched_bytes_changed(BEFORE, AFTER, AFTER.replace("\n\n\ndef g", "\n\ndef g")) == 1


def test_a_refusal_that_changes_nothing_that_matters_is_harmless() -> None:
    assert judge_refusal(BEFORE, None).outcome is Outcome.ABSTAINED
    assert judge_refusal(BEFORE, BEFORE + "\n").outcome is Outcome.RIGHT
    assert judge_refusal(BEFORE, AFTER).outcome is Outcome.WRONG
    assert judge_refusal(BEFORE, AFTER, also_fine=AFTER).outcome is Outcome.RIGHT


# The baselines


def test_baselines_merge_an_elided_part() -> None:
    sketch = "def g():\n    x = 1\n    return 3\n"
    expected = BEFORE.replace("    return 2", "    x = 1\n    return 3")
    assert (
        search_replace_merge(BEFORE, f"<<<<<<< SEARCH\ndef g():\n    return 2\n=======\n{sketch}>>>>>>> REPLACE\n")
        == expected
    )
    diff = "@@\n def g():\n-    return 2\n+    x = 1\n+    return 3\n"
    assert search_replace_merge(BEFORE, diff) == expected
    assert difflib_merge(BEFORE, f"# ... existing code ...\n{sketch}") == expected
    assert search_replace_merge(BEFORE.replace("\n", "\r\n"), diff) == expected.replace("\n", "\r\n")
    assert search_replace_merge(BEFORE, "function other() {\n  return 7\n}\n") is None


def test_elided_context_shows_the_change_between_kept_lines(edits: list[TrueEdit]) -> None:
    made = [sketch for edit in edits if (sketch := elided_context(look_at(edit), random.Random(1)))]
    assert made
    assert all(sketch.text.count("\n") < 200 for sketch in made)


# The run


def test_the_benchmark_prints_its_tables_and_writes_failures(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/apply.py", str(SAMPLE), "--model", "none", "--limit", "60"]
    done = subprocess.run(
        [*command, "--failures", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "| **unique anchors** |" in done.stdout
    assert "matcher's failures fixed" in done.stdout
    assert "| two places |" in done.stdout
    for failure in tmp_path.glob("none/*"):
        assert {"before.py", "sketch.txt", "expected.py", "reason.txt"} <= {file.name for file in failure.iterdir()}
