"""The agent panel in a real browser, against a real server; the agent is scripted (`agent_script.py`)."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from etude.agent import runs
from etude.agent.run_folder import RunFolder
from etude.workspace.isolation import isolation_problem
from tests.agent.model_server import ModelServer
from tests.agent.model_server import call as call_of
from tests.end_to_end.agent_script import CART, FILES, HOSTILE, NEW_CART, TAX
from tests.end_to_end.test_page import LOW_CONTRAST, open_file

pytestmark = pytest.mark.browser


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs are kept; whatever still runs at the end is ended."""
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    yield tmp_path / "state"
    for summary in runs.runs():
        folder = RunFolder(tmp_path / "state" / "runs" / summary.id)
        if folder.is_alive():
            os.kill(folder.pid(), signal.SIGKILL)


def start(page: Page, task: str) -> None:
    page.keyboard.press("Alt+a")
    expect(page.get_by_role("textbox", name="Task for the agent")).to_be_focused()
    page.keyboard.type(task)
    page.keyboard.press("Control+Enter")


def finish(page: Page) -> None:
    """A run to its end, and its changes on the screen."""
    start(page, "Add a discount.")
    question(page).get_by_role("button", name="A percentage").click()
    page.get_by_role("button", name="Review 4 changed files").click()
    expect(changes(page)).to_be_visible()


def question(page: Page) -> Locator:
    return page.get_by_role("region", name="The agent asks")


def changes(page: Page) -> Locator:
    return page.get_by_role("region", name="Changes of the run")


def changed_file(page: Page, name: str) -> Locator:
    return changes(page).locator(".changes-file", has_text=name)


def call(page: Page, summary: str) -> Locator:
    return page.locator(".step-call-box", has_text=summary)


def tab(page: Page, name: str) -> Locator:
    return page.get_by_role("tab", name=re.compile(f"^{name}"))


def test_a_task_from_its_start_to_the_files_on_disk(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    start(page, "Add a discount.")
    plan = page.get_by_role("list", name="Plan").get_by_role("listitem")
    expect(plan).to_have_count(3)
    expect(plan.nth(0).get_by_role("img", name="done")).to_be_visible()
    expect(plan.nth(1)).to_have_attribute("aria-current", "step")
    expect(page.locator(".step-text")).to_have_text("I will look at how the total is made before I change anything.")
    expect(call(page, 'search "discount"')).to_contain_text("tool failed")
    expect(page).to_have_title("● The agent asks · shop · etude")
    expect(page.get_by_role("button", name="Agent: the agent asks you something")).to_be_visible()
    question(page).get_by_role("button", name="A percentage").click()
    expect(page.locator(".step-answer")).to_contain_text("A percentage")
    expect(page.locator(".agent-state")).to_have_text("Finished")
    expect(page).to_have_title("shop · etude")
    expect(page.locator(".agent-meta")).to_contain_text("scripted-1 · 3 turns")
    assert etude.read("shop/cart.py") == CART

    page.get_by_role("button", name="Review 4 changed files").click()
    changed_file(page, "cart.py").click()
    expect(changed_file(page, "cart.py")).to_contain_text("+3")
    page.locator(".cm-deletedChunk").nth(0).get_by_role("button", name="Accept").click()
    page.locator(".cm-deletedChunk").nth(2).get_by_role("button", name="Reject").click()
    expect(page.locator(".cm-deletedChunk").nth(0).locator(".hunk-accept")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".changes-bar")).to_contain_text("1 accepted · 1 rejected · 4 left")
    changed_file(page, "tax.py").click()
    page.keyboard.press("Alt+y")
    page.get_by_role("button", name="Apply 2 changes").click()
    expect(page.locator(".changes-report")).to_contain_text("Applied to 2 files.")
    assert etude.read("shop/cart.py") == CART.replace(
        "self.items = []\n", "self.items = []\n        self.discount = 0\n"
    )
    assert etude.read("shop/tax.py") == TAX
    assert etude.read("shop/old.py") == FILES["shop/old.py"]
    assert not (etude.root / "assets").exists()

    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast.is-good")).to_contain_text("taken back")
    assert etude.read("shop/cart.py") == CART
    assert not (etude.root / "shop" / "tax.py").exists()


@pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}")
def test_a_real_run_works_in_a_shadow_until_its_changes_are_accepted(
    state, start_etude, open_page, tmp_path, monkeypatch
):
    answers = [
        call_of("run", command="echo made > made.txt; cat README.md"),
        call_of("ask", question="Which name?", choices=["Shop", "Store"]),
        call_of("write", path="README.md", text="# Store\n"),
        call_of("finish", answer="Renamed."),
    ]
    with ModelServer(answers) as model:
        monkeypatch.setenv("ETUDE_MODEL_URL", model.url)
        monkeypatch.setenv("ETUDE_MODEL_NAME", "scripted")
        monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "none.toml"))
        etude = start_etude(FILES, "--real-agent")
        page = open_page(etude)
        start(page, "Rename the shop.")
        question(page).get_by_role("button", name="Store").click(timeout=20_000)
        expect(page.locator(".agent-state")).to_have_text("Finished", timeout=20_000)
        assert not (etude.root / "made.txt").exists()
        tab(page, "Terminal").click()
        expect(page.locator(".terminal-lines")).to_contain_text("# Shop")
        page.get_by_role("button", name="Review 2 changed files").click()
        changed_file(page, "README.md").click()
        page.keyboard.press("Alt+y")
        page.get_by_role("button", name="Apply 1 change").click()
        expect(page.locator(".changes-report")).to_contain_text("Applied to 1 file.")
        expect(page.locator(".agent-state")).to_have_text("Applied")
    assert etude.read("README.md") == "# Store\n"
    assert not (etude.root / "made.txt").exists()


def test_the_keyboard_alone_answers_reviews_and_applies(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    start(page, "Add a discount.")
    expect(question(page)).to_be_visible()
    question(page).get_by_role("textbox", name="Your answer").focus()
    page.keyboard.type("In percent, please.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".step-answer")).to_contain_text("In percent, please.")
    page.get_by_role("button", name="Review 4 changed files").focus()
    page.keyboard.press("Enter")
    expect(changed_file(page, "logo.png")).to_be_focused()
    page.keyboard.press("Alt+n")
    expect(page.locator(".changes-bar")).to_contain_text("0 accepted · 1 rejected")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(changed_file(page, "cart.py")).to_have_attribute("aria-current", "true")
    page.keyboard.press("Alt+n")
    page.keyboard.press("Alt+y")
    page.keyboard.press("Alt+k")
    page.keyboard.press("Alt+j")
    page.keyboard.press("Alt+y")
    expect(page.locator(".changes-bar")).to_contain_text("2 accepted · 2 rejected")
    page.get_by_role("button", name="Apply 2 changes").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".changes-report")).to_contain_text("Applied to 1 file.")
    assert etude.read("shop/cart.py") == NEW_CART.replace("        self.discount = 0\n", "")


def test_edits_of_the_person_are_kept_and_a_conflict_says_so(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    finish(page)
    etude.write({"shop/old.py": "unused = 2\n", "shop/cart.py": "# mine\n" + CART})
    page.keyboard.press("Control+Shift+Enter")
    page.get_by_role("button", name="Apply 6 changes").click()
    card = page.locator(".changes-report .card")
    expect(card).to_contain_text("1 file not written")
    expect(card).to_contain_text("shop/old.py")
    expect(changed_file(page, "old.py").get_by_role("img", name="conflict")).to_be_visible()
    assert etude.read("shop/old.py") == "unused = 2\n"
    assert etude.read("shop/cart.py") == "# mine\n" + NEW_CART
    assert (etude.root / "assets/logo.png").read_bytes().startswith(b"\x89PNG")
    card.get_by_role("button", name="Open your file").click()
    expect(page.locator(".document.is-active .cm-content")).to_contain_text("unused = 2")


def test_an_open_file_shows_what_was_applied(start_etude, open_page):
    page = open_page(start_etude(FILES))
    open_file(page, "cart", "shop/cart.py")
    expect(page.locator(".document.is-active .cm-content")).to_contain_text("class Cart")
    finish(page)
    page.keyboard.press("Control+Shift+Enter")
    page.get_by_role("button", name="Apply 6 changes").click()
    expect(page.locator(".changes-report")).to_contain_text("Applied to 4 files.")
    page.get_by_role("button", name="Close the changes").click()
    expect(page.locator(".document.is-active .cm-content")).to_contain_text("self.discount = 0")
    page.get_by_role("treeitem", name="shop").press("ArrowRight")
    expect(page.get_by_role("treeitem", name="tax.py")).to_be_visible()


def test_stop_ends_the_run_and_the_list_keeps_it(start_etude, open_page):
    page = open_page(start_etude(FILES))
    start(page, "endless")
    expect(call(page, "$ make watch").locator(".call-preview")).to_have_text("watching")
    expect(page.get_by_role("button", name="Agent: 1 run at work")).to_be_visible()
    page.get_by_role("button", name="Show changes so far").click()
    expect(page.locator(".changes-bar")).to_contain_text("still at work")
    expect(page.locator(".hunk-button").first).to_be_hidden()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".agent-state")).to_have_text("Stopped")
    expect(page.get_by_role("button", name="Reject all")).to_be_visible()
    page.get_by_role("button", name="All runs").click()
    row = page.locator(".agent-run")
    expect(row).to_contain_text("Stopped")
    row.click()
    page.get_by_role("button", name="Discard the run").click()
    page.locator(".toast").get_by_role("button", name="Discard the run").click()
    expect(page.locator(".agent-runs")).to_contain_text("No run yet")


def test_a_run_that_was_stopped_goes_on_with_something_else(start_etude, open_page):
    page = open_page(start_etude(FILES))
    start(page, "endless")
    expect(call(page, "$ make watch")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("textbox", name="What else the agent should do").fill("Add a discount instead.")
    page.keyboard.press("Enter")
    expect(page.locator(".step-notice")).to_contain_text("The run goes on.")
    expect(question(page)).to_be_visible()
    expect(page.locator(".agent-state")).to_have_text("Waits for your answer")


def test_a_page_that_is_opened_anew_finds_the_run_and_its_question(start_etude, open_page):
    page = open_page(start_etude(FILES))
    start(page, "Add a discount.")
    expect(question(page)).to_be_visible()
    page.reload()
    expect(page).to_have_title("● The agent asks · shop · etude")
    page.keyboard.press("Alt+a")
    page.locator(".agent-run", has_text="Waits for your answer").click()
    expect(call(page, "read shop/cart.py")).to_be_visible()
    question(page).get_by_role("button", name="An amount").click()
    expect(page.locator(".agent-state")).to_have_text("Finished")


def test_a_lost_connection_is_taken_up_where_it_was(start_etude, open_page):
    page = open_page(start_etude(FILES), may_lose_connection=True)
    cut = "() => { for (const socket of window.sockets) socket.close(); }"
    page.add_init_script(
        "window.sockets = []; const Real = WebSocket; window.WebSocket = class extends Real {"
        "constructor(...all) { super(...all); if (all[0].endsWith('/agent')) window.sockets.push(this); } };"
    )
    page.reload()
    expect(page.locator(".status")).to_be_visible()
    start(page, "Add a discount.")
    expect(question(page)).to_be_visible()
    page.evaluate(cut)
    page.wait_for_function("() => window.sockets.length === 2 && window.sockets[1].readyState === 1")
    expect(call(page, "read shop/cart.py")).to_have_count(1)
    question(page).get_by_role("button", name="An amount").click()
    expect(page.locator(".agent-state")).to_have_text("Finished")
    expect(call(page, "read shop/cart.py")).to_have_count(1)
    expect(call(page, "$ pytest -q")).to_have_count(1)


def test_hostile_output_stays_text_and_the_page_stays_quick(start_etude, open_page):
    page = open_page(start_etude(FILES))
    start(page, "hostile")
    expect(question(page)).to_contain_text(HOSTILE)
    expect(page.locator(".step-text")).to_have_text(HOSTILE)
    expect(page.locator(".plan-step")).to_contain_text(HOSTILE)
    call(page, "$ <script>").locator("summary").click()
    expect(page.locator(".call-text").last).to_have_text(HOSTILE)
    tab(page, "Diagnostics").click()
    expect(page.locator(".diagnostics")).to_contain_text(HOSTILE)
    tab(page, "Terminal").click()
    lines = page.locator(".terminal-line")
    expect(page.locator(".terminal-lines")).to_contain_text("the last line")
    assert lines.count() <= 1_000
    expect(lines.nth(-3)).to_have_text(f"red {HOSTILE}")
    expect(lines.nth(-3).locator(".ansi-31")).to_have_text("red")
    expect(page.locator(".terminal")).to_contain_text(re.compile("are left out here|Earlier lines are not shown"))
    assert "taken" not in page.title()
    assert page.locator(".agent script, .agent img:not(.icon)").count() == 0


def test_hundreds_of_turns_leave_a_page_that_one_can_read_back(start_etude, open_page):
    page = open_page(start_etude(FILES))
    start(page, "long")
    expect(page.locator(".agent-state")).to_have_text("Finished")
    expect(page.locator(".call-summary").last).to_have_text("$ make step-400")
    assert page.locator(".steps-log > *").count() <= 260
    page.locator(".steps").evaluate("(steps) => steps.scrollTo(0, 0)")
    page.get_by_role("button", name="Show earlier steps").click()
    assert page.locator(".steps-log > *").count() > 260
    tab(page, "Terminal").click()
    expect(page.locator(".terminal-command")).to_have_count(30)
    expect(page.locator(".terminal-title").last).to_have_text("$ make step-400")
    terminal = page.locator(".terminal")
    at_end = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight < 30"
    assert terminal.evaluate(at_end)
    terminal.evaluate("(box) => box.scrollTo(0, 0)")
    page.get_by_role("button", name="Latest").click()
    expect(page.get_by_role("button", name="Latest")).to_be_hidden()
    assert terminal.evaluate(at_end)


def test_a_read_only_server_shows_changes_and_applies_none(start_etude, open_page):
    etude = start_etude(FILES, "--read-only")
    page = open_page(etude)
    finish(page)
    expect(page.locator(".changes-bar")).to_contain_text("read-only")
    page.keyboard.press("Control+Shift+Enter")
    expect(page.get_by_role("button", name=re.compile("^Apply"))).to_have_count(0)
    assert etude.read("shop/cart.py") == CART


def test_an_empty_task_is_asked_for(start_etude, open_page):
    page = open_page(start_etude(FILES))
    page.keyboard.press("Alt+a")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="Say what is to be done")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_overflows_and_text_has_contrast(start_etude, open_page, dark: bool):
    page = open_page(start_etude(FILES), dark=dark)
    start(page, "Add a discount.")
    expect(question(page)).to_be_visible()
    _is_well_drawn(page)
    question(page).get_by_role("button", name="A percentage").click()
    expect(page.locator(".agent-state")).to_have_text("Finished")
    for name in ("Steps", "Terminal", "Diagnostics"):
        tab(page, name).click()
        _is_well_drawn(page)
    page.get_by_role("button", name="Review 4 changed files").click()
    changed_file(page, "cart.py").click()
    page.keyboard.press("Alt+y")
    _is_well_drawn(page)


# Where motion is reduced colours still change over a millisecond, and what inherits them a frame later.
DRAWN = """async () => {
  for (let frame = 0; frame < 4; frame++) {
    await new Promise((done) => requestAnimationFrame(done));
    await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
  }
}"""


def _is_well_drawn(page: Page) -> None:
    for width in (1280, 900, 600):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate(DRAWN)
        assert page.evaluate("() => document.documentElement.scrollWidth") == width
        low = page.evaluate(LOW_CONTRAST)
        assert low == [], low
    page.set_viewport_size({"width": 1280, "height": 800})
