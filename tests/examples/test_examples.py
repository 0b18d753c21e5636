"""Every example runs, prints something and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip()
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_first_example_prints_the_merge() -> None:
    done = subprocess.run([sys.executable, EXAMPLES[0]], capture_output=True, text=True, timeout=60, check=True)
    assert "+    def total(self, discount=0):" in done.stdout
    assert "-    def add" not in done.stdout
