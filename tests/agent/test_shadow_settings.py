"""The table [shadow] of etude.toml, and the environment a run was started in."""

import os
import sys
import venv
from pathlib import Path

import pytest

from etude.agent.shadow_settings import language_servers, shadow_settings
from etude.errors import InputError
from etude.workspace.mounts import Mechanism


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "etude.toml"))
    return tmp_path / "etude.toml"


def test_an_active_environment_outside_the_tree_is_there_in_the_shadow(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    found = shadow_settings(tmp_path / "tree")
    assert tmp_path / "venv" in found.readable
    assert Path(os.path.realpath(sys.executable)).parent.parent in found.readable or sys.prefix.startswith("/usr")
    assert found.environment
    assert found.environment["PATH"].startswith(f"{tmp_path / 'venv' / 'bin'}:")
    assert shadow_settings(tmp_path).environment is None, "inside the tree it is found anyway"


def test_shadows_are_made_as_the_settings_say(settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    settings.write_text('[shadow]\nmechanism = "copy"\nreadable = ["/opt/sdk"]\n')
    found = shadow_settings(tmp_path)
    assert (found.mechanism, found.readable) == (Mechanism.COPY, (Path("/opt/sdk"),))
    settings.write_text('[shadow]\nmechanism = "magic"\n')
    with pytest.raises(InputError, match="one of overlay, overlay-user"):
        shadow_settings(tmp_path)


def test_language_servers_of_the_settings_join_ours_or_replace_them(settings: Path) -> None:
    names = {spec.name for spec in language_servers()}
    assert {"ty", "ruff"} <= names
    settings.write_text(
        '[[language_server]]\nname = "gopls"\ncommand = ["gopls"]\nextensions = [".go"]\n'
        '[[language_server]]\nname = "ty"\ncommand = ["my-ty"]\nextensions = [".py"]\n'
    )
    found = {spec.name: spec.argv for spec in language_servers()}
    assert found.keys() == names | {"gopls"}
    assert found["ty"] == ("my-ty",)
    settings.write_text('language_server = "gopls"\n')
    with pytest.raises(InputError, match="on a line of its own for each"):
        language_servers()


def test_a_database_of_the_settings_branches_with_the_shadow(settings: Path, tmp_path: Path) -> None:
    settings.write_text('[shadow.database]\nurl = "postgresql:///app"\n')
    database = shadow_settings(tmp_path).database
    assert database
    assert database.url == "postgresql:///app"
    settings.write_text("[shadow]\ndatabase = 3\n")
    with pytest.raises(InputError, match="must be a table"):
        shadow_settings(tmp_path)
