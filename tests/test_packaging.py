"""What `make` installs is what pyproject.toml asks for, and the papers are in order."""

import os
import re
import tomllib
from pathlib import Path

from etude.models.llama_api import PACKAGE, PACKAGE_VERSION

ROOT = Path(__file__).parents[1]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def wanted() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    return [*project["dependencies"], *(name for name in extras if not name.startswith("etude["))]


def test_every_dependency_is_pinned() -> None:
    names = {re.split(r"[<>=\[; ]", requirement)[0].lower() for requirement in wanted()}
    assert names <= pins().keys()


def test_the_binding_and_the_pinned_runtime_are_the_same_build() -> None:
    assert pins()[PACKAGE] == PACKAGE_VERSION
    assert f"{PACKAGE}=={PACKAGE_VERSION}" in wanted()


def test_the_first_screen_of_the_readme_names_the_two_commands() -> None:
    first_screen = (ROOT / "README.md").read_text("utf-8").splitlines()[:40]
    for command in ("make run", "make test"):
        assert any(command in line for line in first_screen), command


def test_ci_is_executable_and_runs_what_people_run() -> None:
    ci = ROOT / ".ci" / "run"
    assert os.access(ci, os.X_OK)
    assert "\nmake check" in ci.read_text("utf-8")
    check = (ROOT / "Makefile").read_text("utf-8").split("\ncheck:")[1].split("\n\n")[0]
    assert "test" in check.splitlines()[-1]


def test_the_licence_is_the_whole_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
