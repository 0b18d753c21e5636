"""`etude doctor`: what is installed, what is missing, and how to get it. Exit 0 when etude can be used."""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from rich.table import Table
from rich.text import Text

from etude import __version__
from etude.cli.finding import Finding, Standing, missing, no_agent, note, ok
from etude.cli.sketch_source import clipboard_command
from etude.cli.terminal import console_for, megabytes
from etude.errors import EtudeError
from etude.models import calibration, catalog, llama_api
from etude.models.calibration import Calibration
from etude.models.opening import EmbeddedChoice, choose, settings_file

OLDEST_PYTHON = (3, 11)
# What fetching and preparing the default model needs for a moment.
NEEDED_SPACE_BYTES = 300_000_000
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


_STYLES = {
    Standing.OK: "green",
    Standing.NOTE: "yellow",
    Standing.NO_AGENT: "red",
    Standing.MISSING: "red",
}


def run_doctor() -> int:
    findings = [check() for check in CHECKS] + _agent() + [_development()]
    _print(findings)
    lacking = [finding.name for finding in findings if finding.standing is Standing.MISSING]
    barred = [finding.name for finding in findings if finding.standing is Standing.NO_AGENT]
    without = f", without its agent: {', '.join(barred)}" if barred else ""
    said = f"cannot be used yet: {', '.join(lacking)}" if lacking else f"can be used{without}"
    print(f"\netude {__version__} {said}.")
    return 1 if lacking else 0


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return missing("python", version, "etude needs Python 3.11 or newer.")
    return ok("python", f"{version} ({sys.executable})")


def _runtime() -> Finding:
    try:
        llama_api.library()
    except EtudeError as error:
        return missing("model runtime", "cannot be used", str(error))
    return ok("model runtime", f"{llama_api.PACKAGE} {llama_api.installed_version()}, layout as expected")


def _model() -> Finding:
    try:
        choice = choose()
        if not isinstance(choice, EmbeddedChoice):
            return ok("model", f"{choice}; your text goes there")
        catalog.require(choice.name)
    except EtudeError as error:
        return missing("model", "none can answer", str(error))
    if not catalog.verify(choice.name):
        return missing("model", f"{choice.name} is damaged", f"Bring it again: etude models fetch {choice.name}")
    return ok("model", f"{choice}, hash checked")


def _speculation() -> Finding:
    """Whether the cost of passes was measured, which decides how long drafts are."""
    measured = _calibration(catalog.installed(catalog.default_model_name()))
    if measured is None:
        return ok("speculation", "to be measured when a draft is first used (some seconds, once)")
    if measured.row_multiple is None:
        return note("speculation", "off: passes of different sizes disagree here", "Answers are right, but slower.")
    costs = dict(measured.curve.points)
    widest = max(costs)
    return ok("speculation", f"measured: 1 token {costs[min(costs)]:.0f} ms, {widest} tokens {costs[widest]:.0f} ms")


def _calibration(model: Path | None) -> Calibration | None:
    if model is None:
        return None
    key = calibration.key_of(model, threads=calibration.usable_cpus(), runtime=llama_api.PACKAGE_VERSION)
    return calibration.load(catalog.cache_folder() / "calibration", key)


def _other_models() -> Finding:
    others = [state.name for state in catalog.models() if state.path and state.name != catalog.default_model_name()]
    if others:
        return ok("other models", ", ".join(others))
    return note("other models", "none", "A larger code model: etude models fetch qwen2.5-coder-0.5b")


def _cache() -> Finding:
    folder = catalog.cache_folder()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return missing("cache folder", f"{folder} is not writable", "Set ETUDE_CACHE to a folder you may write to.")
    if free < NEEDED_SPACE_BYTES:
        return note("cache folder", f"{folder}, only {megabytes(free)} free", "Free some, or set ETUDE_CACHE.")
    return ok("cache folder", f"{folder}, {megabytes(free)} free")


def _settings() -> Finding:
    path = settings_file()
    return ok("settings", f"{path}" if path.exists() else f"none ({path} would be read)")


def _pip() -> Finding:
    if importlib.util.find_spec("pip"):
        return ok("pip", "here, to fetch the default model")
    return note("pip", "not in this Python", "To fetch the default model: python -m ensurepip")


def _git() -> Finding:
    if found := shutil.which("git"):
        return ok("git", found)
    return note("git", "not here", "Files are listed without .gitignore. Install git to respect it.")


def _clipboard() -> Finding:
    if command := clipboard_command():
        return ok("clipboard", command[0])
    return note("clipboard", "no program to read it", "For `etude apply --clipboard`: wl-clipboard, xclip or xsel")


def _page() -> Finding:
    import etude.server

    if (Path(etude.server.__file__).parent / "static" / "app.js").is_file():
        return ok("page", "built")
    return missing("page", "its bundle is not in this installation", "Build it with `make web`, or install a release.")


def _development() -> Finding:
    tools = {"node": ("node",), "chromium": CHROMIUM_NAMES}
    absent = [name for name, commands in tools.items() if not any(map(shutil.which, commands))]
    if not absent:
        return ok("for developers", "node and chromium are here")
    return note("for developers", f"no {' and no '.join(absent)}", "Only to build or test the page (CONTRIBUTING.md).")


def _agent() -> list[Finding]:
    try:
        from etude.cli.doctor_agent import AGENT_CHECKS
    except ImportError as error:
        # Locks and namespaces are not everywhere.
        return [no_agent("agent", f"not on {platform.system()}", f"It needs Linux ({error}).")]
    return [check() for check in AGENT_CHECKS]


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _runtime,
    _model,
    _speculation,
    _other_models,
    _cache,
    _settings,
    _page,
    _pip,
    _git,
    _clipboard,
)


def _print(findings: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, width=80)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        detail = Text(finding.detail)
        if finding.way_out:
            detail.append(f"\n{finding.way_out}", style="dim")
        table.add_row(Text(finding.standing, style=_STYLES[finding.standing]), finding.name, detail)
    console_for(sys.stdout).print(table, soft_wrap=False)
