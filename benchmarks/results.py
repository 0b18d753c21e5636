"""Results of benchmarks, kept as benchmarks/results/<commit>-<benchmark>.json."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "results"


def save_results(benchmark: str, values: Mapping[str, object]) -> Path:
    """Write the values, with the commit and the Python they were measured with."""
    asked = ["git", "-C", str(FOLDER.parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    about = {"benchmark": benchmark, "commit": commit, "python": sys.version.split()[0]}
    FOLDER.mkdir(exist_ok=True)
    target = FOLDER / f"{commit}-{benchmark}.json"
    target.write_text(json.dumps(about | dict(values), indent=1) + "\n", encoding="utf-8")
    return target
