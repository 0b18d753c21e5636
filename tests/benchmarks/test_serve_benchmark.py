"""A smoke of benchmarks/serve.py: the numbers are read from a server that really runs."""

import pytest

from benchmarks.serve import measure, table


@pytest.mark.embedded
def test_the_server_is_measured() -> None:
    measured = measure(rounds=1)
    assert measured.seconds_to_address < measured.seconds_to_model
    assert 50e6 < measured.peak_bytes < 700e6
    assert "peak memory" in table(measured)
