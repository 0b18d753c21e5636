"""One loaded model and its KV cache, used from one thread: tokens in, logits out.

The cache holds the state of a list of tokens; `reuse` cuts it to what the next call shares, `extend` appends.
Keys are kept as Q8_0 and values as F16 under flash attention: with this pair the runtime takes the same kernel
for every number of rows, so that a pass of 64 tokens gives the same bits as 64 passes of one (F16 with F16 does
not). `calibrate` does not trust that: it finds the grain at which passes agree on this CPU, and every pass is
padded to it.
"""

import ctypes
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from etude.errors import ForeignError, ModelCorrupt, ModelMissing, PromptTooLong
from etude.models import calibration as calibrations
from etude.models import llama_api
from etude.models.calibration import Calibration
from etude.models.speculation import CostCurve

# Rows of one pass without logits; larger passes read no faster here and take more memory.
PASS_ROWS = 256
# Rows of one pass that give logits: a row of logits is as wide as the vocabulary (0.2–0.6 MB).
LOGIT_ROWS = 64
# Cells beyond the context that padding and rejected guesses may use.
SPARE_CELLS = 64

_GRAINS = (1, 2, 4, 8, 16, 32)
_CURVE_ROWS = (1, 2, 4, 8, 16, 32, 64)
# Rounds over all sizes rather than tries of one: what else runs here then disturbs all sizes alike.
_CURVE_ROUNDS = 3
# Deeper than the 512 cells from which on some kernels split the work among threads.
_CALIBRATION_DEPTH = 544
_TYPE_Q8_0 = 8
_KEY_TYPES = (_TYPE_Q8_0, 30)
"""Q8_0, or BF16 where a head's width is not a multiple of 32."""


class LlamaSession:
    """Raises ModelMissing or ModelCorrupt when `path` is not a model that the runtime can load."""

    def __init__(self, path: Path, *, context_tokens: int, threads: int | None = None) -> None:
        self.path = path
        self.threads = threads or calibrations.usable_cpus()
        self.row_multiple = 1
        """Every pass computes a multiple of so many rows; see `calibrate`."""
        self._library = llama_api.library()
        self._model = _load_model(self._library, path)
        trained = self._library.llama_model_n_ctx_train(self._model)
        self.context_tokens = min(context_tokens, trained) if trained > 0 else context_tokens
        self._context = _open_context(self._library, self._model, self.context_tokens + SPARE_CELLS, self.threads)
        if not self._context:
            self._library.llama_model_free(self._model)
            raise ModelCorrupt(
                f"The runtime cannot open {path}: it knows no such architecture, or too little memory is free. "
                "Close other programs, or choose another model."
            )
        self._memory = self._library.llama_get_memory(self._context)
        self._vocabulary = self._library.llama_model_get_vocab(self._model)
        self.num_tokens_known = self._library.llama_vocab_n_tokens(self._vocabulary)
        self._cached: list[int] = []
        self._pieces: dict[int, bytes] = {}
        self._open_batch()

    def _open_batch(self) -> None:
        self._batch = self._library.llama_batch_init(PASS_ROWS, 0, 1)
        shape = (PASS_ROWS,)
        self._batch_tokens = np.ctypeslib.as_array(self._batch.token, shape)
        self._batch_positions = np.ctypeslib.as_array(self._batch.pos, shape)
        self._batch_logits = np.ctypeslib.as_array(self._batch.logits, shape)
        np.ctypeslib.as_array(self._batch.n_seq_id, shape)[:] = 1
        for row in range(PASS_ROWS):
            self._batch.seq_id[row][0] = 0

    def close(self) -> None:
        """Free the memory; the session is not used again."""
        if self._context:
            self._library.llama_batch_free(self._batch)
            self._library.llama_free(self._context)
            self._library.llama_model_free(self._model)
        self._context = self._model = None

    # --- text and tokens

    def tokenize(self, text: str, *, control: bool = False) -> list[int]:
        """Token ids of `text`; only with `control` do the names of control tokens become those tokens."""
        data = text.encode("utf-8", "replace")
        buffer = (ctypes.c_int32 * (len(data) + 8))()
        count = self._library.llama_tokenize(self._vocabulary, data, len(data), buffer, len(buffer), False, control)
        if count < 0:
            raise ForeignError(f"the model runtime failed to tokenize a text of {len(data)} bytes.")
        return list(buffer[:count])

    def piece(self, token: int) -> bytes:
        """The bytes that a token writes; none for a control token."""
        if token not in self._pieces:
            buffer = ctypes.create_string_buffer(512)
            count = self._library.llama_token_to_piece(self._vocabulary, token, buffer, len(buffer), 0, False)
            self._pieces[token] = buffer.raw[: max(count, 0)]
        return self._pieces[token]

    def ends_answer(self, token: int) -> bool:
        return bool(self._library.llama_vocab_is_eog(self._vocabulary, token))

    @property
    def start_token(self) -> int:
        """What stands before an empty prompt."""
        start = self._library.llama_vocab_bos(self._vocabulary)
        return start if start >= 0 else max(self._library.llama_vocab_eos(self._vocabulary), 0)

    def metadata(self, key: str) -> str:
        """A text of the file's metadata; empty when it has none of that name."""
        buffer = ctypes.create_string_buffer(1 << 15)
        count = self._library.llama_model_meta_val_str(self._model, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if count >= 0 else ""

    # --- the cache

    @property
    def length(self) -> int:
        """Tokens whose state is held."""
        return len(self._cached)

    def reuse(self, tokens: Sequence[int], *, most: int) -> int:
        """Keep the state of the longest shared prefix, at most `most` tokens; says how many."""
        shared = 0
        for ours, theirs in zip(self._cached[:most], tokens, strict=False):
            if ours != theirs:
                break
            shared += 1
        self.rewind(shared)
        return shared

    def rewind(self, length: int) -> None:
        """Forget the state of all tokens from `length` on."""
        self._library.llama_memory_seq_rm(self._memory, 0, length, -1)
        del self._cached[length:]

    def extend(self, tokens: Sequence[int], *, num_rows: int) -> np.ndarray:
        """Append tokens; the logits after each of the last `num_rows`, shape (num_rows, vocabulary).

        The array is the runtime's own memory: it is valid until the next call. num_rows ≤ LOGIT_ROWS.
        """
        assert 0 <= num_rows <= min(LOGIT_ROWS, len(tokens))
        self.check_room(len(tokens))
        at = 0
        while len(tokens) - at > PASS_ROWS:
            size = min(PASS_ROWS, len(tokens) - num_rows - at)
            self._pass(tokens[at : at + size], 0)
            at += size
        self._pass(tokens[at:], num_rows)
        pointer = self._library.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, (num_rows, self.num_tokens_known)) if num_rows else np.empty((0, 0))

    def check_room(self, num_more: int) -> None:
        """Raise PromptTooLong when so many more tokens do not fit."""
        if self.length + num_more > self.context_tokens:
            raise PromptTooLong(
                f"The prompt has {self.length + num_more} tokens; the context of {self.path.name} holds "
                f"{self.context_tokens}. Give it less text."
            )

    def _pass(self, tokens: Sequence[int], num_rows: int) -> None:
        """One forward pass, padded to the grain; the padding leaves no trace."""
        start, count = self.length, len(tokens)
        rows = -(-count // self.row_multiple) * self.row_multiple
        self._batch_tokens[:count] = tokens
        self._batch_tokens[count:rows] = tokens[-1]
        self._batch_positions[:rows] = np.arange(start, start + rows)
        self._batch_logits[:rows] = 0
        self._batch_logits[count - num_rows : count] = 1
        self._batch.n_tokens = rows
        code = self._library.llama_decode(self._context, self._batch)
        if code != llama_api.DECODE_OK:
            self.rewind(start)
            raise ForeignError(f"the model runtime failed at a pass of {rows} tokens after {start} (code {code}).")
        self._cached.extend(tokens)
        if rows > count:
            self.rewind(start + count)

    # --- measuring

    def calibrate(self, folder: Path) -> Calibration:
        """How passes agree and what they cost, measured on the first use and read from `folder` after that."""
        key = calibrations.key_of(self.path, threads=self.threads, runtime=llama_api.PACKAGE_VERSION)
        found = calibrations.load(folder, key)
        if found is None:
            found = self._measure()
            calibrations.save(folder, key, found)
        elif found.cpu_share < calibrations.QUIET_SHARE and calibrations.is_quiet_now():
            self.row_multiple = found.row_multiple or 1
            curve, cpu_share = self.measure_curve()
            found = Calibration(row_multiple=found.row_multiple, curve=curve, cpu_share=cpu_share)
            calibrations.save(folder, key, found)
        self.row_multiple = found.row_multiple or 1
        return found

    def _measure(self) -> Calibration:
        grain = self._find_grain()
        self.row_multiple = grain or 1
        curve, cpu_share = self.measure_curve()
        return Calibration(row_multiple=grain, curve=curve, cpu_share=cpu_share)

    def measure_curve(self, *, depth: int = _CALIBRATION_DEPTH) -> tuple[CostCurve, float]:
        """The cost of passes after `depth` tokens, and which share of the CPU we had meanwhile."""
        depth = min(depth, self.context_tokens // 2)
        tokens = self._arbitrary_tokens(depth + LOGIT_ROWS)
        self._restart(tokens[:depth])
        started, worked = time.perf_counter(), time.process_time()
        rounds = [[self._time_pass(tokens, depth, rows) for rows in _CURVE_ROWS] for _ in range(_CURVE_ROUNDS)]
        share = (time.process_time() - worked) / (time.perf_counter() - started) / self.threads
        self.rewind(0)
        best = [min(costs) for costs in zip(*rounds, strict=True)]
        return CostCurve(points=_rising(list(zip(_CURVE_ROWS, best, strict=True)))), share

    def _find_grain(self) -> int | None:
        depth = min(_CALIBRATION_DEPTH, self.context_tokens // 2)
        tokens = self._arbitrary_tokens(depth + LOGIT_ROWS)
        self.row_multiple = 1
        self._restart(tokens[:depth])
        reference = self._logits_in_passes(tokens[depth:], (LOGIT_ROWS,))
        for grain in _GRAINS:
            sizes = [grain * factor for factor in (1, 2, 3, 5, 7, 11, 13)]
            self.rewind(depth)
            if np.array_equal(self._logits_in_passes(tokens[depth:], sizes), reference):
                return grain
        return None

    def _logits_in_passes(self, tokens: Sequence[int], sizes: Iterable[int]) -> np.ndarray:
        """Logits of all `tokens`, computed in passes of the given sizes for as long as they fit, then of the first."""
        sizes = list(sizes)
        found, at = [], 0
        while at < len(tokens):
            size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
            size = min(size, len(tokens) - at)
            found.append(self.extend(tokens[at : at + size], num_rows=size).copy())
            at += size
        return np.concatenate(found)

    def _time_pass(self, tokens: Sequence[int], depth: int, rows: int) -> float:
        """Milliseconds; of small passes the fastest of two."""
        costs = []
        for _ in range(2 if rows <= 8 else 1):
            self.rewind(depth)
            start = time.perf_counter()
            self.extend(tokens[depth : depth + rows], num_rows=rows)
            costs.append(time.perf_counter() - start)
        return min(costs) * 1000

    def _restart(self, tokens: Sequence[int]) -> None:
        self.rewind(0)
        self.extend(tokens, num_rows=0)

    def _arbitrary_tokens(self, count: int) -> list[int]:
        return [int(token) for token in np.random.default_rng(0).integers(self.num_tokens_known, size=count)]


def _rising(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """More rows never cost less; where a measurement says so, something else had the CPU."""
    costs = np.minimum.accumulate([cost for _, cost in points][::-1])[::-1]
    return tuple((rows, float(cost)) for (rows, _), cost in zip(points, costs, strict=True))


def _load_model(library: llama_api.Library, path: Path) -> int:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelMissing(
            f"The model file {path} cannot be read ({error.strerror}). `etude models` lists what is here."
        ) from error
    if magic != b"GGUF":
        raise ModelCorrupt(f"{path} is not a GGUF model file: it begins with {magic!r}. Bring it again.")
    params = library.llama_model_default_params()
    params.load_mode = llama_api.LOAD_WITH_MMAP
    model = library.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise ModelCorrupt(
            f"The runtime cannot read the model {path}: it is damaged or of an unknown kind. Bring it again."
        )
    return model


def _open_context(library: llama_api.Library, model: int, num_cells: int, threads: int) -> int | None:
    for key_type in _KEY_TYPES:
        params = library.llama_context_default_params()
        params.n_ctx = num_cells
        params.n_batch = params.n_ubatch = PASS_ROWS
        params.n_outputs_max = LOGIT_ROWS
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_api.FLASH_ATTENTION_ON
        params.type_k, params.type_v = key_type, llama_api.TYPE_F16
        params.no_perf = True
        context = library.llama_init_from_model(model, params)
        if context:
            return context
    return None
