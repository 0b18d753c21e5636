"""The C API of llama.cpp as the runtime package exports it: structs, signatures, and the one place that loads it.

Nothing here decides anything; `llama_cpp.py` does. The struct layouts belong to one build, so `library()`
compares the defaults that the build itself reports with the ones we know and refuses to go on when they differ.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_float,
    c_int8,
    c_int32,
    c_size_t,
    c_uint32,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any

from etude.errors import ForeignError

PACKAGE = "xllamacpp"
PACKAGE_VERSION = "2026.10.11549"

LogCallback = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)

FLASH_ATTENTION_ON = 1
LOAD_WITH_MMAP = 1
TYPE_F16 = 1

# `ctypes` gives functions no static types; SIGNATURES are their types.
Library = Any

DECODE_OK = 0


class ModelParams(Structure):
    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


class ContextParams(Structure):
    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("moe_cache_size", c_size_t),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_log_set": (None, (LogCallback, c_void_p)),
    "llama_backend_init": (None, ()),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParams)),
    "llama_model_free": (None, (c_void_p,)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_model_n_ctx_train": (c_int32, (c_void_p,)),
    "llama_model_meta_val_str": (c_int32, (c_void_p, c_char_p, c_void_p, c_size_t)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParams)),
    "llama_free": (None, (c_void_p,)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
    "llama_batch_init": (Batch, (c_int32, c_int32, c_int32)),
    "llama_batch_free": (None, (Batch,)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_get_logits": (POINTER(c_float), (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_vocab_bos": (c_int32, (c_void_p,)),
    "llama_vocab_eos": (c_int32, (c_void_p,)),
    "llama_vocab_is_eog": (c_bool, (c_void_p, c_int32)),
    "llama_tokenize": (c_int32, (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool)),
    "llama_token_to_piece": (c_int32, (c_void_p, c_int32, c_void_p, c_int32, c_int32, c_bool)),
}
"""What each function returns and takes, in the order of the C declaration."""

_MODEL_DEFAULTS = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "main_gpu": 0,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_alloc": False,
}
_CONTEXT_DEFAULTS = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "yarn_ext_factor": -1.0,
    "type_k": TYPE_F16,
    "type_v": TYPE_F16,
    "embeddings": False,
    "offload_kqv": True,
    "op_offload": True,
}


@LogCallback
def _silence(level: int, text: bytes, data: int) -> None:
    """The runtime talks a lot on stderr; what matters to a person reaches them as an error."""


@cache
def library() -> Library:
    """The loaded runtime with typed functions. Raises ForeignError when it is absent or another build."""
    path = library_path()
    try:
        with _patient_threads():
            loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ForeignError(f"the model runtime {path.name} cannot be used: {error}. {_way_out()}") from error
    check_layout("llama_model_params", loaded.llama_model_default_params(), _MODEL_DEFAULTS)
    check_layout("llama_context_params", loaded.llama_context_default_params(), _CONTEXT_DEFAULTS)
    loaded.llama_log_set(_silence, None)
    loaded.llama_backend_init()
    return loaded


# Some tens of microseconds: longer than a layer's threads wait for each other, far shorter than a time slice.
_SPINS = "20000"


@contextmanager
def _patient_threads() -> Generator[None]:
    """How the runtime's threads wait for each other; OpenMP reads this when it is loaded.

    Threads that sleep at once make one-row passes three times slower on an idle machine; threads that spin without end
    take the core from whoever should go on first on a busy one. So they spin for some microseconds, then sleep.
    """
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def library_path() -> Path:
    """Where the runtime's shared object is. Finding it does not import the package, which would cost memory."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        found = sorted(path for pattern in ("*.so", "*.pyd", "*.dll", "*.dylib") for path in folder.glob(pattern))
        if found:
            return found[0]
    raise ForeignError(f"the model runtime {PACKAGE} is not installed. {_way_out()}")


def check_layout(struct: str, defaults: Structure, expected: Mapping[str, object]) -> None:
    """Raise ForeignError unless `defaults` holds the values that this build is known to give."""
    different = {name: getattr(defaults, name) for name, value in expected.items() if getattr(defaults, name) != value}
    if different:
        field, value = next(iter(different.items()))
        raise ForeignError(
            f"the model runtime is another build than etude knows: {struct}.{field} is {value!r}, "
            f"expected {expected[field]!r}; found {PACKAGE} {installed_version()}, "
            f"expected {PACKAGE_VERSION}. {_way_out()}"
        )


def installed_version() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return "(none)"


def _way_out() -> str:
    return f"Install it with: pip install {PACKAGE}=={PACKAGE_VERSION}"
