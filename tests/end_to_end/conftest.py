"""A browser, and etude as its own process, for the tests of the page."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from etude.cli.doctor_command import CHROMIUM_NAMES

TOKEN = "the-token-of-this-test"
SERVER = Path(__file__).parent / "page_server.py"
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

expect.set_options(timeout=8_000)


# Not for the whole session: while Playwright is open its event loop counts as running, and every asyncio.run() of the
# tests after these would fail.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        reason = "no Chromium on this machine; `apt-get install chromium` brings one"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@dataclass(slots=True)
class Etude:
    """The server process of one test, on one folder, always at the same port and token."""

    root: Path
    port: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = field(default=None)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/#token={TOKEN}"

    def start(self) -> None:
        command = [sys.executable, str(SERVER), str(self.root), str(self.port), TOKEN, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == str(self.port), "the server did not start"

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        self.process.communicate(timeout=20)
        self.process = None

    def write(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(text.encode())

    def read(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def step(self, number: int) -> None:
        """Let the `--slow` engine go on."""
        (self.root.parent / f"step-{number}").touch()


StartEtude = Callable[..., Etude]


@pytest.fixture
def start_etude(tmp_path: Path) -> Iterator[StartEtude]:
    """start_etude({"a.py": "…"}, "--read-only") serves a folder with these files."""
    started: list[Etude] = []

    def start(files: dict[str, str], *options: str) -> Etude:
        etude = Etude(tmp_path / "shop", _free_port(), options)
        etude.root.mkdir()
        etude.write(files)
        started.append(etude)
        etude.start()
        return etude

    yield start
    for etude in started:
        etude.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """open_page(etude) is the page in a context of its own; a complaint of the browser fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_one(etude: Etude, *, width: int = 1280, dark: bool = False, may_lose_connection: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        contexts.append(context)
        origin = f"http://127.0.0.1:{etude.port}"
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"script error: {error}"))
        page.on("dialog", lambda dialog: complaints.append(f"the browser's own dialog: {dialog.message}"))
        page.on("request", lambda request: complaints.extend(_foreign(request.url, origin)))
        if not may_lose_connection:
            page.on("console", lambda message: complaints.extend(_complaint(message.type, message.text)))
        page.goto(etude.address)
        expect(page.locator(".status")).to_be_visible()
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def _foreign(url: str, origin: str) -> list[str]:
    is_own = url.startswith((origin, origin.replace("http", "ws", 1), "data:"))
    return [] if is_own else [f"request to {url}"]


def _complaint(kind: str, text: str) -> list[str]:
    # A refused request is part of what some tests show; the page answers it with a sentence.
    is_refusal = "Failed to load resource" in text
    return [f"{kind}: {text}"] if kind in ("error", "warning") and not is_refusal else []
