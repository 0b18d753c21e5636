"""Real language servers, ty and ruff, on small trees; and one that misbehaves."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from etude.errors import InputError, LanguageServerUnavailable
from etude.workspace import language_servers
from etude.workspace.language_servers import MAX_RESTARTS, PUSH_SECONDS, LanguageServers
from etude.workspace.lsp_values import MAX_DIAGNOSTICS
from etude.workspace.server_specs import ServerSpec, default_specs, servers_from_settings

PRICE = "def price(number: int) -> int:\n    return number * 2\n"
WRONG_PRICE = "def price(number: int) -> str:\n    return str(number)\n"
MISBEHAVING = Path(__file__).with_name("misbehaving_language_server.py")

Work = Callable[[LanguageServers], Awaitable[None]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "tree with space"
    (place / "shop").mkdir(parents=True)
    (place / "shop" / "__init__.py").write_text("")
    (place / "shop" / "price.py").write_text(PRICE)
    (place / "shop" / "use.py").write_text("from shop.price import price\n\ntotal: int = price(3)\n")
    return place


def served(root: Path, work: Work, **options: Any) -> None:
    """In a tree that is opened as it is now."""
    before = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}

    async def opened() -> None:
        servers = LanguageServers(root=root, view=root, original=before.get, **options)
        try:
            await work(servers)
        finally:
            await servers.close()

    asyncio.run(opened())


async def write(servers: LanguageServers, root: Path, path: str, text: str | None) -> None:
    if text is None:
        (root / path).unlink()
    else:
        (root / path).write_text(text)
    await servers.changed([path])


def only(name: str) -> list[ServerSpec]:
    return [spec for spec in default_specs() if spec.name == name]


def odd(mode: str) -> ServerSpec:
    return ServerSpec(name=mode, argv=(sys.executable, str(MISBEHAVING), mode), extensions=(".odd",), language="odd")


def test_an_edit_tells_what_it_broke_in_a_file_that_was_never_opened(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "shop/price.py", WRONG_PRICE)
        report = await servers.diagnostics()
        (broken,) = report.appeared
        assert (broken.place.path, broken.place.line, broken.server) == ("shop/use.py", 3, "ty")
        assert set(report.servers) == {"ty", "ruff"} and not report.gone and not report.unavailable
        await write(servers, root, "shop/price.py", PRICE)
        report = await servers.diagnostics()
        assert not report.appeared and not report.gone

    served(root, work)


def test_what_was_there_before_is_not_news_even_when_it_moves(root: Path) -> None:
    (root / "shop" / "old.py").write_text("import os\n\nnumber: int = 'text'\n")

    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "shop/old.py", "# a line\n# another\nimport os\n\nnumber: int = 'text'\n")
        report = await servers.diagnostics()
        assert not report.appeared and not report.gone and report.num_unchanged == 2
        await write(servers, root, "shop/old.py", "number: int = 7\n")
        assert {one.server for one in (await servers.diagnostics()).gone} == {"ty", "ruff"}

    served(root, work)


def test_all_of_a_new_file_is_news(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "shop/new.py", "import os\nnumber: int = 'text'\n")
        assert {one.server for one in (await servers.diagnostics()).appeared} == {"ruff", "ty"}
        await write(servers, root, "shop/new.py", None)
        assert not (await servers.diagnostics()).appeared

    served(root, work)


def test_diagnostics_are_never_older_than_the_last_edit(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        for number in range(5):
            await write(servers, root, "shop/price.py", WRONG_PRICE)
            await write(servers, root, "shop/price.py", f"{PRICE}# {number}\n")
            await write(servers, root, "shop/price.py", f"{WRONG_PRICE}# {number}\n")
            assert [one.place.path for one in (await servers.diagnostics()).appeared] == ["shop/use.py"]
            await write(servers, root, "shop/price.py", f"{PRICE}# again {number}\n")
            assert not (await servers.diagnostics()).appeared

    served(root, work, specs=only("ty"))


def test_a_server_that_pushes_is_waited_for_until_it_speaks_of_the_last_version(root: Path) -> None:
    (root / "a.odd").write_text("old")

    async def work(servers: LanguageServers) -> None:
        await servers.diagnostics(["a.odd"])
        await write(servers, root, "a.odd", "new")
        assert [one.message for one in (await servers.diagnostics(["a.odd"])).appeared] == ["of the new text"]

    served(root, work, specs=[odd("late")])


def test_a_slow_server_that_names_no_version_is_waited_for_until_it_speaks_again(root: Path) -> None:
    (root / "a.odd").write_text("old")

    async def work(servers: LanguageServers) -> None:
        await servers.diagnostics(["a.odd"])
        await write(servers, root, "a.odd", "new")
        assert [one.message for one in (await servers.diagnostics(["a.odd"])).appeared] == ["of the new text"]

    served(root, work, specs=[odd("versionless")])


def test_a_server_that_asks_to_be_asked_only_after_it_has_begun_is_asked_at_once(root: Path) -> None:
    (root / "a.odd").write_text("old")

    async def work(servers: LanguageServers) -> None:
        async with asyncio.timeout(PUSH_SECONDS / 2):
            report = await servers.diagnostics(["a.odd"])
        assert (report.servers, report.unavailable, report.num_unchanged) == (("registers",), (), 1)

    served(root, work, specs=[odd("registers")])


def test_links_below_a_view_do_not_lead_back_to_the_users_tree(root: Path, tmp_path: Path) -> None:
    view = tmp_path / "view"
    shutil.copytree(root, view)
    for tree in (root, view):
        (tree / "link").symlink_to(root / "shop")
    (view / "shop" / "price.py").write_text("cost = 1\n")

    async def work() -> None:
        servers = LanguageServers(root=root, view=view, specs=only("ty"))
        try:
            assert [one.name for one in await servers.symbols(path="link/price.py")] == ["cost"]
        finally:
            await servers.close()

    asyncio.run(work())


def test_a_report_is_of_the_files_that_were_asked_for(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "shop/price.py", WRONG_PRICE)
        assert not (await servers.diagnostics(["shop/price.py"])).appeared
        assert len((await servers.diagnostics(["shop/use.py"])).appeared) == 1

    served(root, work)


def test_no_server_is_started_for_nothing(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "notes.txt", "no code")
        assert (await servers.diagnostics()).servers == ()

    served(root, work)


def test_columns_count_code_points(root: Path) -> None:
    (root / "shop" / "wide.py").write_text("")

    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "shop/wide.py", "name = '😀é'; number: int = 'text'\n")
        (wrong,) = (await servers.diagnostics()).appeared
        assert (wrong.place.column, wrong.place.end_column) == (28, 34)
        assert await servers.definition("shop/wide.py", 1, 14) != []

    served(root, work, specs=only("ty"))


def test_code_is_found_and_renamed(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        (definition,) = await servers.definition("shop/use.py", 3, 15)
        assert (definition.path, definition.line, definition.column) == ("shop/price.py", 1, 5)
        found = await servers.references("shop/price.py", 1, 5)
        assert {(place.path, place.line) for place in found} >= {("shop/use.py", 1), ("shop/use.py", 3)}
        assert "int" in await servers.hover("shop/use.py", 3, 15)
        assert next(one.name for one in await servers.symbols(path="shop/price.py")) == "price"
        assert "shop/price.py" in {one.place.path for one in await servers.symbols("price")}
        patches = {patch.path: patch for patch in await servers.rename("shop/price.py", 1, 5, "cost")}
        assert patches["shop/price.py"].apply(PRICE) == PRICE.replace("price", "cost")
        changed = patches["shop/use.py"].apply((root / "shop" / "use.py").read_text())
        assert changed == "from shop.price import cost\n\ntotal: int = cost(3)\n"

    served(root, work)


def test_a_server_that_was_killed_is_started_again_and_knows_the_beginning(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        await servers.diagnostics(["shop/use.py"])
        for _ in range(2):
            process = servers._running["ty"].server.process_id
            os.killpg(process, signal.SIGKILL)
            await write(servers, root, "shop/price.py", WRONG_PRICE)
            assert [one.place.path for one in (await servers.diagnostics()).appeared] == ["shop/use.py"]

    served(root, work, specs=only("ty"))


def test_a_server_that_dies_again_and_again_is_left_alone_with_what_it_said(root: Path) -> None:
    (root / "a.odd").write_text("x")

    async def work(servers: LanguageServers) -> None:
        said = [(await servers.diagnostics(["a.odd"])).unavailable[0] for _ in range(MAX_RESTARTS + 1)]
        assert "I give up" in said[0] and "left alone" in said[-1]

    served(root, work, specs=[odd("dies")])


@pytest.mark.parametrize("mode", ["garbage", "huge", "mute"])
def test_a_server_that_does_not_speak_the_protocol_is_named_and_ended(
    root: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.workspace.language_server.BEGIN_SECONDS", 0.5)
    (root / "a.odd").write_text("x")

    async def work(servers: LanguageServers) -> None:
        report = await servers.diagnostics(["a.odd"])
        assert mode in report.unavailable[0] and not report.appeared

    served(root, work, specs=[odd(mode)])


def test_a_missing_server_is_named(root: Path) -> None:
    spec = ServerSpec(name="gone", argv=("/nowhere/server",), extensions=(".py",), language="python")

    async def work(servers: LanguageServers) -> None:
        assert "gone cannot be started" in (await servers.diagnostics(["shop/use.py"])).unavailable[0]
        with pytest.raises(LanguageServerUnavailable):
            await servers.definition("shop/use.py", 3, 15)

    served(root, work, specs=[spec])


def test_answers_that_lead_out_or_make_no_sense_are_left_out(root: Path) -> None:
    (root / "a.odd").write_text("x")

    async def work(servers: LanguageServers) -> None:
        assert await servers.definition("a.odd", 1, 1) == []
        report = await servers.diagnostics(["a.odd"])
        assert report.num_unchanged == 1 and not report.unavailable

    served(root, work, specs=[odd("outside")])


def test_a_flood_of_diagnostics_is_bounded(root: Path) -> None:
    (root / "a.odd").write_text("x")

    async def work(servers: LanguageServers) -> None:
        assert (await servers.diagnostics(["a.odd"])).num_unchanged == MAX_DIAGNOSTICS

    served(root, work, specs=[odd("many")])


def test_the_server_that_was_not_used_for_longest_makes_room(root: Path) -> None:
    async def work(servers: LanguageServers) -> None:
        await write(servers, root, "shop/price.py", WRONG_PRICE)
        await servers.diagnostics()
        assert len(servers._running) == 1
        # It comes back when it is asked again, and still knows how things were.
        assert [one.place.path for one in (await servers.diagnostics()).appeared] == ["shop/use.py"]

    served(root, work, memory_bytes=1)


def test_the_memory_of_a_process_counts_what_it_started() -> None:
    assert language_servers.memory_of(os.getpid()) > 5_000_000
    assert language_servers.memory_of(2**22 + 1) == 0


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ({"command": ["gopls"]}, "extensions"),
        ({"command": "gopls", "extensions": [".go"]}, "command"),
        ({"command": ["gopls"], "extensions": ["go"]}, "with its dot"),
        ({"command": ["gopls"], "extensions": [".go"], "kommand": 1}, "no setting 'kommand'"),
        ({"command": ["gopls"], "extensions": [".go"], "settings": 3}, "are tables"),
        ("gopls", "not a table"),
    ],
)
def test_a_wrong_setting_is_named(table: object, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        servers_from_settings([table])
