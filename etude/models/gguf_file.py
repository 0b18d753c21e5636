"""The outline of a GGUF file: its metadata and where its tensors lie, without reading the weights.

The metadata is kept as the bytes it is, because a vocabulary of 150,000 strings is slow and large as
objects and nobody here needs it. The format: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from etude.errors import ModelCorrupt

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
# A header of more entries than this is not a language model but noise that would fill the memory.
MAX_ENTRIES = 1_000_000
MAX_STRING_BYTES = 64 << 20
MAX_DIMS = 8

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

Value = int | float | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """What the header says of one tensor."""

    name: str
    shape: tuple[int, ...]
    """As GGUF writes it: the contiguous dimension first."""
    type_id: int
    """ggml's number of the quantisation."""
    offset: int
    """From the start of the data section, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufOutline:
    """A file without its weights."""

    version: int
    metadata: bytes
    """All key-value pairs, verbatim."""
    num_pairs: int
    values: dict[str, Value]
    """Scalars and strings; arrays are left out."""
    value_offsets: dict[str, int]
    """Where each scalar lies within `metadata`."""
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    """Where the data section begins in the file."""
    alignment: int

    @property
    def family(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def context_tokens(self) -> int:
        return int(self.values.get(f"{self.family}.context_length", 0))


class _Reader:
    """Reads fields in order; a file that ends too early is an error with the file's name."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path

    def at(self) -> int:
        return self._file.tell()

    def take(self, count: int) -> bytes:
        data = self._file.read(count) if count <= MAX_STRING_BYTES else b""
        if len(data) != count:
            raise ModelCorrupt(f"{self._path} is cut off or damaged: its GGUF header is not whole. Bring it again.")
        return data

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def count(self) -> int:
        count = self.number("<Q")
        if count > MAX_ENTRIES:
            raise ModelCorrupt(f"{self._path} is damaged: its GGUF header speaks of {count} entries. Bring it again.")
        return count

    def string(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", "replace")


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def read_outline(path: Path) -> GgufOutline:
    """Raises ModelCorrupt when the file is not GGUF, of a version unknown here, or cut off."""
    with path.open("rb") as file:
        reader = _Reader(file, path)
        version = _read_version(reader, path)
        num_tensors, num_pairs = reader.count(), reader.count()
        start = reader.at()
        values, offsets = _read_pairs(reader, num_pairs, start)
        end = reader.at()
        tensors = tuple(_read_tensor(reader) for _ in range(num_tensors))
        alignment = int(values.get("general.alignment", DEFAULT_ALIGNMENT)) or DEFAULT_ALIGNMENT
        data_offset = -(-reader.at() // alignment) * alignment
        file.seek(start)
        metadata = reader.take(end - start)
    return GgufOutline(
        version=version,
        metadata=metadata,
        num_pairs=num_pairs,
        values=values,
        value_offsets=offsets,
        tensors=tensors,
        data_offset=data_offset,
        alignment=alignment,
    )


def header_bytes(outline: GgufOutline, tensors: tuple[TensorInfo, ...]) -> bytes:
    """The head of a file with the same metadata and these tensors, padded up to its data section."""
    head = [MAGIC, struct.pack("<IQQ", outline.version, len(tensors), outline.num_pairs), outline.metadata]
    for tensor in tensors:
        name = tensor.name.encode("utf-8")
        head += [struct.pack("<Q", len(name)), name, struct.pack("<I", len(tensor.shape))]
        head += [struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)]
        head += [struct.pack("<IQ", tensor.type_id, tensor.offset)]
    size = sum(map(len, head))
    return b"".join(head) + bytes(-size % outline.alignment)


def _read_version(reader: _Reader, path: Path) -> int:
    if reader.take(4) != MAGIC:
        raise ModelCorrupt(f"{path} is not a GGUF file. etude runs models in the GGUF format.")
    version = reader.number("<I")
    if version not in VERSIONS:
        raise ModelCorrupt(f"{path} is GGUF version {version}; etude reads versions 2 and 3. Convert it again.")
    return version


def _read_pairs(reader: _Reader, num_pairs: int, start: int) -> tuple[dict[str, Value], dict[str, int]]:
    values: dict[str, Value] = {}
    offsets: dict[str, int] = {}
    for _ in range(num_pairs):
        key, kind = reader.string(), reader.number("<I")
        at = reader.at() - start
        if kind == _STRING:
            values[key] = reader.string()
        elif kind == _ARRAY:
            _skip_array(reader)
        else:
            values[key], offsets[key] = reader.number(_layout(kind)), at
    return values, offsets


def _skip_array(reader: _Reader) -> None:
    kind, count = reader.number("<I"), reader.count()
    if kind == _STRING:
        for _ in range(count):
            reader.take(reader.number("<Q"))
    elif kind == _ARRAY:
        for _ in range(count):
            _skip_array(reader)
    else:
        reader.take(count * struct.calcsize(_layout(kind)))


def _read_tensor(reader: _Reader) -> TensorInfo:
    name, num_dims = reader.string(), reader.number("<I")
    shape = struct.unpack(f"<{num_dims}Q", reader.take(8 * num_dims)) if num_dims <= MAX_DIMS else ()
    if not shape or 0 in shape:
        raise ModelCorrupt(f"The GGUF header gives tensor {name!r} no shape: it is damaged. Bring the file again.")
    return TensorInfo(name=name, shape=shape, type_id=reader.number("<I"), offset=reader.number("<Q"))


def _layout(kind: int) -> str:
    if kind not in _SCALARS:
        raise ModelCorrupt(f"The GGUF header has a value of the unknown type {kind}. Bring the file again.")
    return _SCALARS[kind]
