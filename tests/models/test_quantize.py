"""Requantising: the right types, the same weights up to rounding, the same bytes each time, whole or not at all."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from etude.errors import ModelCorrupt, Unsupported
from etude.models import quantize
from etude.models.gguf_file import read_outline
from etude.models.quantize import requantise

MakeGguf = Callable[..., Path]


def weights(path: Path) -> dict[str, np.ndarray]:
    tensors = gguf.GGUFReader(path).tensors
    return {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}


def kinds(path: Path) -> dict[str, Kind]:
    return {tensor.name: tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors}


def test_weights_become_fast_types_and_fast_ones_stay(make_gguf: MakeGguf, tmp_path: Path) -> None:
    requantise(make_gguf(), tmp_path / "ready.gguf")
    assert kinds(tmp_path / "ready.gguf") == {
        "token_embd.weight": Kind.Q8_0,
        "blk.0.attn_norm.weight": Kind.F32,
        "blk.0.attn_q.weight": Kind.Q8_0,
        "blk.0.attn_k.weight": Kind.Q8_0,
        "blk.0.ffn_up.weight": Kind.Q8_0,
        "blk.0.ffn_down.weight": Kind.Q8_0,
        "blk.1.ffn_down.weight": Kind.Q4_0,
    }


def test_weights_are_the_same_up_to_rounding(make_gguf: MakeGguf, tmp_path: Path) -> None:
    source = make_gguf()
    requantise(source, tmp_path / "ready.gguf")
    before, after = weights(source), weights(tmp_path / "ready.gguf")
    assert before.keys() == after.keys()
    for name, values in before.items():
        # Q8_0 has 256 steps over the range of a block; half a step, and the rounding of the step itself.
        assert values.shape == after[name].shape
        assert np.abs(values - after[name]).max() <= np.abs(values).max() / 230, name
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"):
        assert np.array_equal(before[name], after[name]), name


def test_metadata_stays_except_the_name_of_the_quantisation(make_gguf: MakeGguf, tmp_path: Path) -> None:
    source = make_gguf()
    requantise(source, tmp_path / "ready.gguf")
    before, after = gguf.GGUFReader(source).fields, gguf.GGUFReader(tmp_path / "ready.gguf").fields
    changed = {name for name, field in before.items() if field.contents() != after[name].contents()}
    assert (list(before), changed) == (list(after), {"general.file_type"})
    assert after["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0


def test_blocks_of_rows_give_the_bytes_of_one_piece(
    make_gguf: MakeGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_gguf(rows=77)
    requantise(source, tmp_path / "whole.gguf")
    monkeypatch.setattr(quantize, "BLOCK_ELEMENTS", 640)
    heard: list[int] = []
    requantise(source, tmp_path / "blocks.gguf", heard.append)
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "blocks.gguf").read_bytes()
    assert len(heard) > 7
    assert heard == sorted(heard)


def test_a_requantised_file_requantised_again_is_the_same(make_gguf: MakeGguf, tmp_path: Path) -> None:
    requantise(make_gguf(), tmp_path / "once.gguf")
    requantise(tmp_path / "once.gguf", tmp_path / "twice.gguf")
    assert (tmp_path / "once.gguf").read_bytes() == (tmp_path / "twice.gguf").read_bytes()


def test_the_outline_tells_family_and_context(make_gguf: MakeGguf) -> None:
    outline = read_outline(make_gguf())
    assert (outline.family, outline.context_tokens, len(outline.tensors)) == ("llama", 128, 7)


def test_a_file_cut_off_anywhere_is_corrupt_and_leaves_nothing(make_gguf: MakeGguf, tmp_path: Path) -> None:
    data = make_gguf().read_bytes()
    # The last padding is not needed; everything before it is.
    for length in [*range(0, 700, 13), len(data) // 2, len(data) - 64]:
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(data[:length])
        with pytest.raises(ModelCorrupt):
            requantise(cut, tmp_path / "ready.gguf")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cut.gguf", "tiny.gguf"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_headers_never_crash(make_gguf: MakeGguf, tmp_path: Path) -> None:
    data = make_gguf().read_bytes()
    head = read_outline(tmp_path / "tiny.gguf").data_offset
    random = np.random.default_rng(7)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        damaged[int(random.integers(4, head))] = int(random.integers(256))
        (tmp_path / "damaged.gguf").write_bytes(damaged)
        try:
            requantise(tmp_path / "damaged.gguf", tmp_path / "ready.gguf")
        except (ModelCorrupt, Unsupported):
            refused += 1
    assert refused > 30


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ModelCorrupt, match=r"model\.bin is not a GGUF file"):
        read_outline(tmp_path / "model.bin")
