"""Which model answers: the one named, the one in the settings, or the embedded default.

Settings are the `[model]` table of etude.toml in the user's configuration folder, or the environment:

    [model]
    name = "qwen2.5-coder-0.5b"         an embedded model …
    url = "http://127.0.0.1:8080/v1"    … or, with a url, the model of that name on a server
    key_env = "TEAM_KEY"                the variable that holds the server's key

ETUDE_MODEL_URL, ETUDE_MODEL_NAME and ETUDE_MODEL_KEY take precedence. Without a url nothing leaves this machine.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from etude.errors import InputError, ModelUnknown
from etude.models import catalog
from etude.models.model import Model

_KEYS = {"name", "url", "key", "key_env"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedChoice:
    """A model of the catalog, or an imported one, in this process."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} (embedded, in this process)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoice:
    """A model on an OpenAI-compatible server that the person configured."""

    url: str
    name: str
    """Empty: whatever the server serves."""
    key: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.name or 'its model'} on {self.url}"


Choice = EmbeddedChoice | ServerChoice


def settings_file() -> Path:
    """ETUDE_CONFIG, or etude.toml in the user's configuration folder; it need not exist."""
    chosen = os.environ.get("ETUDE_CONFIG")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_config_dir("etude")) / "etude.toml"


def choose(name: str | None = None) -> Choice:
    """Who will answer, without loading anything. Raises ModelUnknown, InputError."""
    configured = _configured()
    if name is None:
        return configured
    try:
        catalog.state_of(name)
    except ModelUnknown:
        if isinstance(configured, ServerChoice):
            return ServerChoice(url=configured.url, name=name, key=configured.key)
        raise
    return EmbeddedChoice(name=name)


def open_model(name: str | None = None) -> Model:
    """The model that answers, loaded. Raises ModelUnknown, ModelMissing, ModelCorrupt, InputError."""
    choice = choose(name)
    if isinstance(choice, ServerChoice):
        from etude.models.http import HttpModel

        return HttpModel(url=choice.url, model=choice.name, api_key=choice.key)
    path = catalog.require(choice.name)
    # The runtime is some 30 MB that a person with a server never loads.
    from etude.models.llama_cpp import EmbeddedModel

    return EmbeddedModel.load(path, name=choice.name)


def _configured() -> Choice:
    table = _model_table()
    url = os.environ.get("ETUDE_MODEL_URL")
    # A key in the settings belongs to the server in the settings, not to any other.
    key = os.environ.get("ETUDE_MODEL_KEY") or (None if url else _key(table))
    url = url or table.get("url", "")
    name = os.environ.get("ETUDE_MODEL_NAME") or ("" if url != table.get("url", "") else table.get("name", ""))
    if not url:
        return EmbeddedChoice(name=name or catalog.default_model_name())
    return ServerChoice(url=url, name=name, key=key)


def _key(table: Mapping[str, str]) -> str | None:
    variable = table.get("key_env")
    if variable and variable not in os.environ:
        raise InputError(f"{settings_file()} takes the server's key from ${variable}, which is not set. Set it.")
    return os.environ[variable] if variable else table.get("key")


def settings_table(name: str) -> dict[str, object]:
    """The table of that name in etude.toml as it stands there, {} if there is none. Raises InputError."""
    table = _settings().get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"In {settings_file()}, {name} must be a table: [{name}] on a line of its own.")
    return table


def settings_tables(name: str) -> list[object]:
    """All [[name]] of etude.toml. Raises InputError."""
    tables = _settings().get(name, [])
    if not isinstance(tables, list):
        raise InputError(f"In {settings_file()}, {name} must be tables: [[{name}]] on a line of its own for each.")
    return tables


def _settings() -> dict[str, object]:
    path = settings_file()
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The settings {path} cannot be read ({error}).") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The settings {path} are not valid TOML: {error}.") from error


def _model_table() -> dict[str, str]:
    path = settings_file()
    table = settings_table("model")
    checked = {}
    for key, value in table.items():
        if key not in _KEYS or not isinstance(value, str):
            raise InputError(
                f"In {path}, [model] has {key} = {value!r}; it takes texts named {', '.join(sorted(_KEYS))}."
            )
        checked[key] = value
    return checked
