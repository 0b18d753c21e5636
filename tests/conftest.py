"""What several rooms' tests need: an empty cache, and a model file small enough to make on the spot."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize
from hypothesis import settings

from etude.cli.doctor_command import CHROMIUM_NAMES
from etude.models import catalog

MakeGguf = Callable[..., Path]

# The same examples in every run; and a busy machine is not a slow function.
settings.register_profile("etude", deadline=None, derandomize=True)
settings.load_profile("etude")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what this machine cannot run; under CI everything must be there."""
    if os.environ.get("CI"):
        return
    if item.get_closest_marker("embedded") and catalog.installed(catalog.default_model_name()) is None:
        pytest.skip("the embedded model is not here: etude models fetch")
    if item.get_closest_marker("browser") and not any(map(shutil.which, CHROMIUM_NAMES)):
        pytest.skip("Chromium is not here")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ETUDE_CACHE of the test's own, also for the processes that it starts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ETUDE_CACHE", str(folder))
    return folder


@pytest.fixture
def make_gguf(tmp_path: Path) -> MakeGguf:
    """make_gguf("a.gguf", seed=1) writes a valid GGUF file of random weights; it is no language model."""

    def make(name: str = "tiny.gguf", *, seed: int = 0, rows: int = 64) -> Path:
        path = tmp_path / name
        random = np.random.default_rng(seed)
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_context_length(128)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
        writer.add_token_list(["<s>", "a", "é", "\n"])
        writer.add_array("etude.test.numbers", [1, 2, 3])
        for tensor, kind in _TENSORS.items():
            values = random.standard_normal((rows, 64), dtype=np.float32)
            if kind is Kind.F32:
                writer.add_tensor(tensor, values[0])
            else:
                writer.add_tensor(tensor, quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


_TENSORS = {
    "token_embd.weight": Kind.Q4_1,
    "blk.0.attn_norm.weight": Kind.F32,
    "blk.0.attn_q.weight": Kind.Q4_1,
    "blk.0.attn_k.weight": Kind.Q5_0,
    "blk.0.ffn_up.weight": Kind.Q8_0,
    "blk.0.ffn_down.weight": Kind.F16,
    "blk.1.ffn_down.weight": Kind.Q4_0,
}
