"""Brings what the tests need beyond their own packages: the embedded model, Chromium for the page's tests, the programs
that shadows are made with, and a package of the package index for the agent to mend.

    python dev/prepare_tests.py

What cannot be had is named with the tests that are skipped without it; under CI that is a failure.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dev import mended_package
from etude.cli import main as etude
from etude.cli.doctor_command import CHROMIUM_NAMES
from etude.models import catalog

PROGRAMS = {"bwrap": "bubblewrap", "fuse-overlayfs": "fuse-overlayfs", "nsenter": "util-linux", "git": "git"}


def main() -> int:
    skipped = [*_bring_model(), *_bring_chromium(), *_bring_programs(), *_bring_package()]
    for reason in skipped:
        print(f"note: {reason}", file=sys.stderr)
    return 1 if skipped and os.environ.get("CI") else 0


def _bring_model() -> list[str]:
    name = catalog.default_model_name()
    if catalog.installed(name) or etude(["models", "fetch", name]) == 0:
        return []
    return ["tests marked `embedded` are skipped: the embedded model could not be fetched"]


def _bring_chromium() -> list[str]:
    if _has_chromium():
        return []
    if shutil.which("apt-get") and os.geteuid() == 0:
        print("installing Chromium for the page's tests", flush=True)
        _apt_install("chromium")
    if _has_chromium():
        return []
    return ["tests marked `browser` are skipped: Chromium is not here (Debian: apt-get install chromium)"]


def _bring_programs() -> list[str]:
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    missing += [] if any(Path("/usr/lib/postgresql").glob("*/bin/postgres")) else ["postgresql"]
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        print(f"installing {', '.join(missing)} for the tests of shadows", flush=True)
        _apt_install(*missing)
    still = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    return [f"tests of shadows are skipped (Debian: apt-get install {' '.join(still)})"] if still else []


def _bring_package() -> list[str]:
    if mended_package.is_here():
        return []
    print(f"fetching {mended_package.REQUIREMENT} for the agent's test", flush=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    folder = mended_package.WHEEL.parent
    subprocess.run([*pip, "--dest", str(folder), mended_package.REQUIREMENT], stdin=subprocess.DEVNULL, check=False)
    return [] if mended_package.is_here() else [f"the agent's test on {mended_package.REQUIREMENT} is skipped"]


def _has_chromium() -> bool:
    return any(shutil.which(name) for name in CHROMIUM_NAMES)


def _apt_install(*packages: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, stdin=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main())
