"""What was measured once about a model on this CPU: which passes agree bit for bit, and what a pass costs.

A pass computes some rows (tokens) at once. Kernels may differ by row count, and then so do the logits in their
last bits, which is enough to flip a near tie. `row_multiple` is the grain at which they agree here.

The measurement is kept as JSON in the cache folder:

    {"version": 2, "row_multiple": 1, "milliseconds": {"1": 8.1, …}, "cpu_share": 0.93}
"""

import contextlib
import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import msgspec

from etude.models.speculation import CostCurve

# Raised when passes are measured or computed in another way.
VERSION = 2
# A curve measured with less of the CPU than this is measured again when the machine is quiet.
QUIET_SHARE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured about one model with one number of threads."""

    row_multiple: int | None
    """Passes of any multiple of so many rows give the same bits; None when no grain was found, and then
    speculation is off, because it could change an answer."""
    curve: CostCurve
    """Cost of a pass by its rows, padding included."""
    cpu_share: float = 1.0
    """Of the CPU that was asked for, what we had while measuring; a low one means that something else ran."""


class _Stored(msgspec.Struct, frozen=True):
    version: int
    row_multiple: int | None
    milliseconds: dict[int, float]
    cpu_share: float


def key_of(model: Path, *, threads: int, runtime: str) -> str:
    """A name that changes with the model file, the CPU, the threads and the runtime's build."""
    stat = model.stat()
    with model.open("rb") as file:
        head = file.read(1 << 16)
    facts = (str(stat.st_size), str(stat.st_mtime_ns), cpu_name(), str(threads), runtime, str(VERSION))
    return hashlib.sha256(head + "\n".join(facts).encode()).hexdigest()[:32]


def cpu_name() -> str:
    """The CPU as the system names it, with its features where it tells them; kernels are chosen by those."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return f"{platform.machine()} {platform.processor()}"


def usable_cpus() -> int:
    """CPUs that this process may use: fewer than the machine has under taskset and in many containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_quiet_now() -> bool:
    """Whether measuring again would be any better; True where the system does not tell."""
    if not hasattr(os, "getloadavg"):
        return True
    return os.getloadavg()[0] < usable_cpus() / 2


def load(folder: Path, key: str) -> Calibration | None:
    """None when it was never measured, or by another version."""
    try:
        stored = msgspec.json.decode((folder / f"{key}.json").read_bytes(), type=_Stored)
    except (OSError, msgspec.DecodeError):
        return None
    if stored.version != VERSION or not stored.milliseconds:
        return None
    points = tuple(sorted(stored.milliseconds.items()))
    return Calibration(row_multiple=stored.row_multiple, curve=CostCurve(points=points), cpu_share=stored.cpu_share)


def save(folder: Path, key: str, calibration: Calibration) -> None:
    """Atomic; a cache that cannot be written only means measuring again."""
    stored = _Stored(
        version=VERSION,
        row_multiple=calibration.row_multiple,
        milliseconds=dict(calibration.curve.points),
        cpu_share=calibration.cpu_share,
    )
    temporary = folder / f"{key}.json.{os.getpid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.encode(stored))
        temporary.replace(folder / f"{key}.json")
