"""What `etude serve` costs: `python benchmarks/serve.py [--save]`.

Starts the server as a person does, on a folder of its own with a file of 300 lines, waits for the embedded model,
merges a sketch that is clear and one that makes the model choose, and reads the process's peak memory (VmHWM, which
counts mapped weights). Linux only.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import msgspec
from websockets.sync.client import ClientConnection, connect

from benchmarks.results import save_results
from etude.server.security import SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX

NUM_LINES = 300
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(?P<port>\d+)/#?(?:token=)?(?P<token>[\w-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    seconds_to_address: float
    """From the start of the process to the printed address."""
    seconds_to_model: float
    """From the start of the process to a model that is ready."""
    median_seconds_to_first_hunk: float
    """Of a clear sketch for a file of 300 lines, over the WebSocket."""
    seconds_to_choose: float
    """Of a sketch that fits two places, so that the model reads both."""
    peak_bytes: int
    """Peak resident memory of the server's process."""


def measure(*, rounds: int = 9) -> Measured:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        text = file_of_lines(NUM_LINES)
        (Path(folder) / "long.py").write_text(text, "utf-8")
        command = [sys.executable, "-m", "etude.cli", "serve", folder, "--no-browser"]
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                port, token = _address(process)
                to_address = time.perf_counter() - started
                _wait_for_model(port, token)
                to_model = time.perf_counter() - started
                with _socket(port, token) as socket:
                    hunks = [_seconds_to(socket, "hunk", text, clear_sketch(number)) for number in range(1, rounds + 1)]
                    choosing = _seconds_to(socket, "abstained", text, open_sketch())
                return Measured(
                    seconds_to_address=to_address,
                    seconds_to_model=to_model,
                    median_seconds_to_first_hunk=statistics.median(hunks),
                    seconds_to_choose=choosing,
                    peak_bytes=peak_bytes(process.pid),
                )
            finally:
                process.terminate()


def file_of_lines(num_lines: int) -> str:
    """Functions of five lines; two of them share what `open_sketch` shows."""
    functions = [
        f"def step_{number}(value):\n    total = value + {number}\n    if total > {number * 3}:\n"
        f"        total -= {number}\n    return total\n\n"
        for number in range(1, num_lines // 6 - 1)
    ]
    twins = [
        f"def twin_{name}(value):\n    shared = value * 2\n    again = shared + 1\n    return again\n\n\n"
        for name in "ab"
    ]
    return "\n".join(functions) + "\n" + "".join(twins)


def clear_sketch(number: int) -> str:
    return f"def step_{number}(value):\n    total = value + {number}00\n    # ... existing code ...\n"


def open_sketch() -> str:
    return "# ...\n    shared = value * 2\n    checked = True\n    again = shared + 1\n# ...\n"


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # ty: ignore[not-subscriptable]


def _address(process: subprocess.Popen[str]) -> tuple[int, str]:
    for line in process.stdout or ():
        found = _ADDRESS.search(line)
        if found:
            return int(found["port"]), found["token"]
    raise SystemExit("etude serve printed no address")


def _wait_for_model(port: int, token: str, *, most_seconds: float = 120) -> None:
    deadline = time.monotonic() + most_seconds
    headers = {"authorization": f"Bearer {token}"}
    while time.monotonic() < deadline:
        state = httpx.get(f"http://127.0.0.1:{port}/api/hello", headers=headers, trust_env=False).json()["model"]
        if state["phase"] == "ready":
            return
        if state["phase"] == "failed":
            raise SystemExit(f"the model did not load: {state['message']}")
        time.sleep(0.1)
    raise SystemExit(f"the model was not ready after {most_seconds:.0f} seconds")


def _socket(port: int, token: str) -> ClientConnection:
    offered = [SUBPROTOCOL, f"{TOKEN_SUBPROTOCOL_PREFIX}{token}"]
    origin = f"http://127.0.0.1:{port}"
    return connect(f"ws://127.0.0.1:{port}/ws", subprotocols=offered, origin=origin, proxy=None)  # ty: ignore[invalid-argument-type]


def _seconds_to(socket: ClientConnection, kind: str, text: str, sketch: str) -> float:
    """Seconds from sending a sketch to the first message of a kind; reads on to the end of this Apply."""
    name = f"{time.perf_counter_ns()}"
    message = {"type": "apply", "id": name, "path": "long.py", "text": text, "sketch": sketch}
    started, seconds = time.perf_counter(), None
    socket.send(msgspec.json.encode(message).decode())
    while True:
        received = msgspec.json.decode(socket.recv(timeout=120))
        if received.get("id") != name:
            continue
        if received["type"] == kind and seconds is None:
            seconds = time.perf_counter() - started
        if received["type"] not in ("progress", "hunk"):
            break
    if seconds is None:
        raise SystemExit(f"expected {kind!r}, got {received}")
    return seconds


def table(measured: Measured) -> str:
    rows = [
        ("address printed after", f"{measured.seconds_to_address:.2f} s"),
        ("model ready after", f"{measured.seconds_to_model:.2f} s"),
        ("first hunk, clear sketch, 300 lines (median)", f"{measured.median_seconds_to_first_hunk * 1000:.0f} ms"),
        ("a sketch that makes the model choose", f"{measured.seconds_to_choose:.2f} s"),
        ("peak memory of the server", f"{measured.peak_bytes / 1e6:.0f} MB"),
    ]
    return "\n".join(["| etude serve |  |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<commit>-serve.json")
    arguments = parser.parse_args()
    measured = measure()
    print(table(measured))
    if arguments.save:
        save_results("serve", asdict(measured))


if __name__ == "__main__":
    main()
