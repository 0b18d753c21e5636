"""The speculation benchmark runs on the sample and a tiny network, and finds no mismatch with plain decoding."""

import re
from pathlib import Path

import pytest

from benchmarks import speculation
from benchmarks.prompt_lookup import PromptLookup
from etude.models.tiny_network import write_tiny_network


def test_it_prints_a_table_for_all_modes(empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = write_tiny_network(tmp_path / "tiny.gguf")
    assert speculation.main(["--model", str(model), "--limit", "1", "--counted", "2"]) == 0
    rows = re.findall(r"^\| (free|forced|counted) \| (.+?) \|.* (\d+) \|$", capsys.readouterr().out, re.MULTILINE)
    assert [mode for mode, _, _ in rows] == ["free"] * 5 + ["forced"] * 5 + ["counted"] * 5
    assert {mismatches for _, _, mismatches in rows} == {"0"}


def test_prompt_lookup_takes_what_followed_the_first_occurrence_of_the_longest_match():
    lookup = PromptLookup([1, 2, 3, 4, 9, 2, 3, 5], longest=3, size=2)
    assert lookup.propose([2, 3], most=10) == [4, 9]
    assert lookup.propose([9, 2, 3], most=10) == [5, 9]
    assert lookup.propose([7], most=10) == []
    assert lookup.propose([2, 3], most=1) == [4]
