"""Which model answers: by name, by settings, by environment; nothing leaves the machine unasked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from etude.errors import InputError, ModelMissing, ModelUnknown
from etude.models.fetching import import_file
from etude.models.opening import EmbeddedChoice, ServerChoice, choose, open_model

MakeGguf = Callable[..., Path]
DEFAULT = EmbeddedChoice(name="smollm2-135m")


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of the test, not yet written."""
    for name in ("ETUDE_MODEL_URL", "ETUDE_MODEL_NAME", "ETUDE_MODEL_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "etude.toml"))
    return tmp_path / "etude.toml"


def test_without_settings_the_embedded_default_answers() -> None:
    assert choose() == DEFAULT
    with pytest.raises(ModelMissing, match="etude models fetch smollm2-135m"):
        open_model()


def test_settings_may_name_another_embedded_model(settings: Path) -> None:
    settings.write_text('[model]\nname = "qwen2.5-coder-0.5b"\n', "utf-8")
    assert choose() == EmbeddedChoice(name="qwen2.5-coder-0.5b")


def test_settings_may_name_a_server(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text('[model]\nurl = "http://gpu:8080/v1"\nname = "big"\nkey_env = "TEAM_KEY"\n', "utf-8")
    monkeypatch.setenv("TEAM_KEY", "secret")
    assert choose() == ServerChoice(url="http://gpu:8080/v1", name="big", key="secret")


def test_a_key_never_shows_when_the_choice_is_printed() -> None:
    choice = ServerChoice(url="http://gpu:8080/v1", name="big", key="secret")
    assert "secret" not in f"{choice} {choice!r}"


def test_the_environment_takes_precedence(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text('[model]\nurl = "http://gpu:8080/v1"\nname = "big"\nkey = "old"\n', "utf-8")
    monkeypatch.setenv("ETUDE_MODEL_URL", "http://other/v1")
    monkeypatch.setenv("ETUDE_MODEL_NAME", "small")
    monkeypatch.setenv("ETUDE_MODEL_KEY", "new")
    assert choose() == ServerChoice(url="http://other/v1", name="small", key="new")


def test_a_key_is_not_sent_to_a_server_it_was_not_given_for(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text('[model]\nurl = "http://gpu:8080/v1"\nkey = "secret"\n', "utf-8")
    monkeypatch.setenv("ETUDE_MODEL_URL", "http://other/v1")
    assert choose() == ServerChoice(url="http://other/v1", name="")


def test_a_name_given_is_embedded_when_the_catalog_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_MODEL_URL", "http://gpu:8080/v1")
    assert choose("smollm2-135m") == DEFAULT
    assert choose("gpt-99") == ServerChoice(url="http://gpu:8080/v1", name="gpt-99")


def test_an_imported_model_can_be_named(make_gguf: MakeGguf) -> None:
    import_file(make_gguf("mine.gguf"))
    assert choose("mine") == EmbeddedChoice(name="mine")


def test_an_unknown_name_without_a_server_is_unknown() -> None:
    with pytest.raises(ModelUnknown, match="gpt-99"):
        choose("gpt-99")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model", "not valid TOML"),
        ("model = 3", "must be a table"),
        ("[model]\nurl = 3", "has url = 3"),
        ('[model]\nmodle = "x"', "has modle = 'x'"),
        ('[model]\nurl = "http://x"\nkey_env = "NOT_SET_ANYWHERE"', r"\$NOT_SET_ANYWHERE"),
    ],
)
def test_unusable_settings_are_named(settings: Path, text: str, said: str) -> None:
    settings.write_text(text, "utf-8")
    with pytest.raises(InputError, match=said) as caught:
        choose()
    assert str(settings) in str(caught.value)
