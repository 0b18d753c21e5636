"""A smoke of benchmarks/shadow.py: small, and with the same steps."""

import asyncio

import pytest

from benchmarks.shadow import measure, table
from etude.workspace.isolation import isolation_problem


@pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}")
def test_shadows_are_measured() -> None:
    measured = asyncio.run(measure(num_files=300, rounds=2, num_soaked=2))
    assert measured.leftovers == ()
    assert 0 < measured.open.median < 2 and 0 < measured.follow.median < 2 and 0 < measured.cross_file.median < 2
    assert 0 < measured.turn < 0.05
    assert "cp -a" in table(measured)
