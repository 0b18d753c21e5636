"""Brings what the tests need beyond Python packages: the embedded model, and Chromium for the page's tests.

    python dev/prepare_tests.py

What cannot be had is named with the tests that are skipped without it; under CI that is a failure.
"""

import os
import shutil
import subprocess
import sys

from etude.cli import main as etude
from etude.cli.doctor_command import CHROMIUM_NAMES
from etude.models import catalog


def main() -> int:
    skipped = [*_bring_model(), *_bring_chromium()]
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


def _has_chromium() -> bool:
    return any(shutil.which(name) for name in CHROMIUM_NAMES)


def _apt_install(*packages: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, stdin=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main())
