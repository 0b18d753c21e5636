"""A tiny random llama network as a GGUF file: answers nonsense in milliseconds, for tests and demonstrations.

Its vocabulary is the 256 bytes, some merges that make tokenizing as treacherous as a real vocabulary's, and the
ChatML markers. The weights come from a seed; no training has touched them.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, TokenType
from gguf.quants import quantize

WIDTH = 64
NUM_HEADS = 2
HEAD_WIDTH = WIDTH // NUM_HEADS
FEED_FORWARD = 128
NUM_LAYERS = 2
CONTEXT_TOKENS = 2048

MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = ("Ġ Ġ", "ĠĠ ĠĠ", "d e", "de f", "Ġ =", "r e", "re t", "e l", "el f", "s elf", "( )", "Ċ Ċ", ". self", "i n")
_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def write_tiny_network(path: Path, *, seed: int = 0) -> Path:
    """Write the network to `path`; the same seed gives the same bytes."""
    writer = GGUFWriter(path, "llama")
    _add_shape(writer)
    _add_vocabulary(writer)
    for name, values, kind in _tensors(np.random.default_rng(seed)):
        if kind is Kind.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary() -> list[str]:
    """Every token as byte-level BPE spells it."""
    merged = ["".join(merge.split()) for merge in _MERGES]
    return [*_byte_letters(), *merged, *MARKERS]


def _byte_letters() -> list[str]:
    """One printable letter a byte, as byte-level BPE defines them: itself where printable, else from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _add_shape(writer: GGUFWriter) -> None:
    writer.add_name("tiny random network")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(NUM_LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_WIDTH)


def _add_vocabulary(writer: GGUFWriter) -> None:
    tokens = vocabulary()
    kinds = [TokenType.CONTROL if token in MARKERS else TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(list(_MERGES))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _writable() -> np.ndarray:
    """1 for each token that the network may write, else 0: answers are ASCII, so that their text can be a draft."""
    letters = _byte_letters()
    mute = {letters[byte] for byte in range(256) if not 0x20 <= byte < 0x7F and byte != 0x0A}
    return np.array([[0.0 if token in mute else 1.0] for token in vocabulary()], dtype=np.float32)


def _tensors(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray, Kind]]:
    def weights(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(np.float32)

    ones = np.ones(WIDTH, dtype=np.float32)
    yield "token_embd.weight", weights(len(vocabulary()), WIDTH, 8.0), Kind.Q8_0
    yield "output_norm.weight", ones, Kind.F32
    yield "output.weight", weights(len(vocabulary()), WIDTH, 2.0) * _writable(), Kind.Q8_0
    for layer in range(NUM_LAYERS):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", ones, Kind.F32
        yield f"{block}.attn_q.weight", weights(WIDTH, WIDTH, 2.0), Kind.Q4_0
        yield f"{block}.attn_k.weight", weights(HEAD_WIDTH, WIDTH, 2.0), Kind.Q4_0
        yield f"{block}.attn_v.weight", weights(HEAD_WIDTH, WIDTH, 2.0), Kind.Q4_0
        yield f"{block}.attn_output.weight", weights(WIDTH, WIDTH, 2.0), Kind.Q4_0
        yield f"{block}.ffn_norm.weight", ones, Kind.F32
        yield f"{block}.ffn_gate.weight", weights(FEED_FORWARD, WIDTH), Kind.Q4_0
        yield f"{block}.ffn_up.weight", weights(FEED_FORWARD, WIDTH), Kind.Q4_0
        yield f"{block}.ffn_down.weight", weights(WIDTH, FEED_FORWARD, 2.0), Kind.Q4_0
