"""The server as a person starts it: one process, one address, Ctrl-C."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from etude.errors import InputError
from etude.models.scripted import ScriptedModel
from etude.server.app import build_app, configured_model, listen, serve

PROGRAM = """
import sys
from pathlib import Path
from etude.models.scripted import ScriptedModel
from etude.server.app import serve
serve(Path(sys.argv[1]), model=ScriptedModel(), open_browser=False, announce=lambda line: print(line, flush=True))
print("bye", flush=True)
"""


@pytest.fixture
def process(tmp_path: Path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.communicate()


def _announced(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    address = process.stdout.readline().strip().removeprefix("etude is at ")
    url, _, token = address.partition("/#token=")
    return url, token


def test_the_printed_address_opens_etude_and_ctrl_c_ends_it_quietly(process):
    url, token = _announced(process)
    assert url.startswith("http://127.0.0.1:")
    assert len(token) >= 40
    answer = httpx.get(f"{url}/api/hello", headers={"authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.json()["readOnly"] is False
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "bye\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory of a process on Linux only")
def test_the_server_is_small_beside_a_model(process):
    url, token = _announced(process)
    httpx.get(f"{url}/api/files", headers={"authorization": f"Bearer {token}"}, trust_env=False)
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak_kilobytes = int(status.split("VmHWM:")[1].split()[0])
    assert peak_kilobytes < 150_000


def test_without_a_model_on_the_machine_the_page_says_so_and_merges_all_the_same(start_server, empty_cache):
    server = start_server(model=configured_model())
    text = "def area(width):\n    return width\n\n\ndef name():\n    return 1\n"
    with server.socket() as page:
        state = page.receive(type="model")
        while state["phase"] == "loading":
            state = page.receive(type="model")
        assert state["phase"] == "failed"
        assert "etude models fetch" in state["message"]
        sketch = "def area(width):\n    check(width)\n    return width\n"
        page.send({"type": "apply", "id": "1", "path": "a.py", "text": text, "sketch": sketch})
        assert page.receive(type="merged")["edits"]


def test_only_the_loopback_address_is_listened_on():
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_and_a_missing_folder_are_told_with_a_way_out(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="another port"):
        serve(tmp_path, model=ScriptedModel(), port=taken.getsockname()[1], open_browser=False)
    with pytest.raises(InputError, match="is not a folder"):
        build_app(tmp_path / "none", model=ScriptedModel(), token="t")
