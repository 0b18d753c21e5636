"""The page in a real browser, against a real server and the real engine."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

CART = '''\
"""A shopping cart."""

from shop.money import Money


class Cart:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)

    def total(self):
        total = Money(0)
        for item in self.items:
            total += item.price
        return total


def checkout(cart):
    if not cart.items:
        raise ValueError("the cart is empty")
    return f"Paid {cart.total()}"
'''
MONEY = '''\
"""Amounts of money."""


class Money:
    def __init__(self, cents):
        self.cents = cents

    def __add__(self, other):
        return Money(self.cents + other.cents)
'''
REPLY = """\
I would add a discount. First the cart:

```python
# shop/cart.py
class Cart:
    def __init__(self):
        self.items = []
        self.discount = 0

    # ... existing code ...

    def total(self):
        total = Money(0)
        for item in self.items:
            total += item.price
        return total.less(self.discount)


def checkout(cart):
    if not cart.items:
        raise ValueError("there is nothing in the cart")
    return f"Paid {cart.total()}"
```

And money learns to take a part off:

```python
# shop/money.py
class Money:
    # ... existing code ...

    def __add__(self, other):
        return Money(self.cents + other.cents)

    def less(self, percent):
        return Money(self.cents * (100 - percent) // 100)
```
"""
FILES = {"shop/cart.py": CART, "shop/money.py": MONEY, "README.md": "# Shop\n"}


def paste(page: Page, text: str) -> None:
    """Through the clipboard, as a person would, in place of what the sketch pane holds."""
    page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    page.keyboard.press("Control+i")
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+v")


def merge(page: Page, text: str) -> None:
    paste(page, text)
    page.keyboard.press("Control+Enter")


def open_file(page: Page, letters: str, path: str) -> None:
    page.keyboard.press("Control+p")
    expect(page.get_by_role("combobox", name="Go to file")).to_be_focused()
    page.keyboard.type(letters)
    expect(page.get_by_role("option", selected=True)).to_have_attribute("title", path)
    page.keyboard.press("Enter")
    expect(tab(page, path)).to_have_attribute("aria-selected", "true")


def tab(page: Page, path: str) -> Locator:
    return page.locator(f'[role=tab][title^="{path}"]')


def run(page: Page, name: str) -> Locator:
    return page.locator(".run", has_text=name)


def review(page: Page) -> Locator:
    return page.get_by_role("toolbar", name="Review of the changes")


def saved(page: Page, path: str) -> Locator:
    return page.locator(".toast.is-good", has_text=f"Saved {path}")


def editor(page: Page) -> Locator:
    return page.locator(".document.is-active .cm-content")


def test_a_reply_with_two_files_is_merged_reviewed_and_saved(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    merge(page, REPLY)
    expect(run(page, "cart.py")).to_contain_text("3 to review")
    expect(run(page, "money.py")).to_contain_text("1 to review")
    expect(review(page)).to_contain_text("1 of 3 changes")
    assert (etude.read("shop/cart.py"), etude.read("shop/money.py")) == (CART, MONEY)

    # The discount and the total are accepted, the new words of the error are not.
    hunk = page.locator(".document.is-active .cm-deletedChunk")
    hunk.nth(2).get_by_role("button", name="Reject").click()
    expect(review(page)).to_contain_text("of 2 changes")
    hunk.nth(0).get_by_role("button", name="Accept").click()
    hunk.nth(0).get_by_role("button", name="Accept").click()
    expect(review(page)).to_contain_text("Every change is decided")
    review(page).get_by_role("button", name="Save").click()
    expect(saved(page, "shop/cart.py")).to_be_visible()
    wanted = CART.replace("self.items = []\n", "self.items = []\n        self.discount = 0\n")
    wanted = wanted.replace("return total\n", "return total.less(self.discount)\n")
    assert etude.read("shop/cart.py") == wanted
    assert etude.read("shop/money.py") == MONEY
    expect(run(page, "cart.py")).to_contain_text("Saved")

    run(page, "money.py").click()
    expect(tab(page, "shop/money.py")).to_have_attribute("aria-selected", "true")
    review(page).get_by_role("button", name="Accept all").click()
    page.keyboard.press("Control+s")
    expect(saved(page, "shop/money.py")).to_be_visible()
    less = "\n    def less(self, percent):\n        return Money(self.cents * (100 - percent) // 100)\n"
    assert etude.read("shop/money.py") == MONEY + less

    page.get_by_role("button", name="Undo save").click()
    expect(page.locator(".toast", has_text="Undid the last save of shop/money.py")).to_be_visible()
    assert etude.read("shop/money.py") == MONEY
    assert etude.read("shop/cart.py") == wanted
    expect(editor(page)).not_to_contain_text("less")


def test_all_files_of_a_reply_are_accepted_and_saved_at_once(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    merge(page, REPLY)
    page.get_by_role("button", name="Accept and save all").click()
    expect(page.locator(".toast", has_text="Saved 2 files")).to_be_visible()
    assert "there is nothing in the cart" in etude.read("shop/cart.py")
    assert "def less" in etude.read("shop/money.py")


def test_the_keyboard_alone_does_everything(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    open_file(page, "cart", "shop/cart.py")
    merge(page, REPLY.split("And money")[0])
    expect(review(page)).to_contain_text("1 of 3 changes")
    page.keyboard.press("Alt+j")
    expect(review(page)).to_contain_text("2 of 3 changes")
    page.keyboard.press("Alt+k")
    expect(review(page)).to_contain_text("1 of 3 changes")
    page.keyboard.press("Alt+n")
    page.keyboard.press("Control+s")
    expect(page.locator(".toast", has_text="wait for your decision")).to_be_visible()
    assert etude.read("shop/cart.py") == CART
    page.keyboard.press("Alt+y")
    page.keyboard.press("Alt+y")
    expect(review(page)).to_contain_text("Every change is decided")
    page.keyboard.press("Control+s")
    expect(saved(page, "shop/cart.py")).to_be_visible()
    wanted = CART.replace("return total\n", "return total.less(self.discount)\n")
    wanted = wanted.replace("the cart is empty", "there is nothing in the cart")
    assert etude.read("shop/cart.py") == wanted
    page.keyboard.press("Control+Alt+z")
    expect(page.locator(".toast", has_text="Undid the last save")).to_be_visible()
    assert etude.read("shop/cart.py") == CART


def test_a_decision_is_taken_back_like_any_edit(start_etude, open_page):
    page = open_page(start_etude(FILES))
    merge(page, REPLY)
    expect(review(page)).to_contain_text("1 of 3 changes")
    page.keyboard.press("Control+e")
    page.keyboard.press("Alt+y")
    expect(review(page)).to_contain_text("of 2 changes")
    page.keyboard.press("Control+z")
    expect(review(page)).to_contain_text("of 3 changes")


def test_one_undo_takes_a_whole_merge_back(start_etude, open_page):
    page = open_page(start_etude(FILES))
    open_file(page, "cart", "shop/cart.py")
    page.keyboard.type("# mine\n")
    merge(page, REPLY.split("And money")[0])
    expect(review(page)).to_contain_text("1 of 3 changes")
    page.keyboard.press("Control+Shift+Enter")
    page.keyboard.press("Control+e")
    page.keyboard.press("Control+z")
    expect(editor(page)).not_to_contain_text("discount")
    expect(editor(page)).to_contain_text("# mine")


def test_what_is_typed_by_hand_is_merged_into_and_saved_too(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    open_file(page, "money", "shop/money.py")
    page.keyboard.press("Control+End")
    page.keyboard.type("\nEURO = Money(100)\n")
    expect(tab(page, "shop/money.py")).to_have_attribute("aria-label", "shop/money.py, not saved")
    merge(page, "EURO = Money(100)\nCENT = Money(1)\n")
    expect(review(page)).to_contain_text("1 of 1 change")
    page.keyboard.press("Control+Shift+Enter")
    page.keyboard.press("Control+s")
    expect(saved(page, "shop/money.py")).to_be_visible()
    text = etude.read("shop/money.py")
    assert text.startswith(MONEY.rstrip("\n"))
    assert text.count("EURO = Money(100)\n") == 1
    assert "CENT = Money(1)\n" in text


def test_hunks_arrive_while_the_merge_runs_and_escape_takes_them_back(start_etude, open_page):
    lines = [f"line {number}\n" for number in range(40)]
    etude = start_etude({"a.txt": "".join(lines)}, "--slow")
    page = open_page(etude)
    open_file(page, "a.txt", "a.txt")
    changed = "".join(["first changed\n", *lines[1:-1], "last changed\n"])
    merge(page, changed)
    expect(run(page, "a.txt")).to_contain_text("Merging")
    expect(page.locator(".progress-stage")).to_have_text("Finding the places")
    expect(editor(page)).not_to_contain_text("changed")
    etude.step(1)
    expect(editor(page)).to_contain_text("first changed")
    expect(page.locator(".progress-stage")).to_have_text("Choosing between 2 places")
    expect(editor(page)).not_to_contain_text("last changed")
    expect(page.locator(".hunk-button").first).to_be_hidden()
    page.keyboard.press("Escape")
    expect(run(page, "a.txt")).to_contain_text("Cancelled")
    expect(editor(page)).not_to_contain_text("changed")
    expect(tab(page, "a.txt")).to_have_attribute("aria-label", "a.txt")
    page.keyboard.press("Control+e")
    page.keyboard.press("Control+z")
    expect(editor(page)).not_to_contain_text("changed")

    etude.step(2)
    etude.step(3)
    page.keyboard.press("Control+Enter")
    expect(review(page)).to_contain_text("1 of 2 changes")
    expect(page.locator(".status-ran")).to_have_text("merge · 316 tokens · 1.4 s")
    page.keyboard.press("Control+Shift+Enter")
    page.keyboard.press("Control+s")
    expect(saved(page, "a.txt")).to_be_visible()
    assert etude.read("a.txt") == changed


TWICE = """\
class Circle:
    def describe(self):
        name = self.name
        return name


class Square:
    def describe(self):
        name = self.name
        return name
"""


def test_an_abstention_is_a_card_that_leads_to_the_places(start_etude, open_page):
    etude = start_etude({"shapes.py": TWICE})
    page = open_page(etude)
    open_file(page, "shapes", "shapes.py")
    merge(page, "    def describe(self):\n        name = self.name\n        check(name)\n        return name\n")
    card = page.locator(".card")
    expect(card).to_contain_text("It fits in more than one place")
    expect(run(page, "shapes.py")).to_contain_text("Not changed")
    places = card.locator(".candidate")
    expect(places).to_have_count(2)
    number = places.nth(1).locator(".candidate-line").inner_text()
    places.nth(1).click()
    expect(page.locator(".status")).to_contain_text(f"Ln {number}, Col 1")
    expect(page.locator(".cm-flash")).to_be_visible()
    card.get_by_role("button", name="Show where in the sketch").click()
    expect(page.locator(".cm-stuck")).to_be_visible()
    assert etude.read("shapes.py") == TWICE
    expect(tab(page, "shapes.py")).to_have_attribute("aria-label", "shapes.py")


def test_a_sketch_without_a_file_says_what_to_do(start_etude, open_page):
    page = open_page(start_etude(FILES))
    merge(page, "total = 1\n")
    expect(page.locator(".card")).to_contain_text("Open the file it is for")


def test_a_file_that_the_reply_makes_new_is_created_on_save(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    merge(page, "A new one:\n\n```python\n# shop/tax.py\ndef tax(cents):\n    return cents // 5\n```\n")
    expect(tab(page, "shop/tax.py")).to_have_attribute("aria-label", "shop/tax.py, changes to review")
    page.keyboard.press("Control+Shift+Enter")
    page.keyboard.press("Control+s")
    expect(saved(page, "shop/tax.py")).to_be_visible()
    assert etude.read("shop/tax.py").endswith("def tax(cents):\n    return cents // 5\n")
    expect(page.get_by_role("treeitem", name="tax.py")).to_be_visible()


def test_line_endings_that_nobody_touched_survive_the_editor(start_etude, open_page):
    etude = start_etude({"a.py": "a = 1\r\nb = 2\nc = 3\r\n"})
    page = open_page(etude)
    open_file(page, "a.py", "a.py")
    page.keyboard.press("Control+End")
    page.keyboard.type("d = 4")
    page.keyboard.press("Control+s")
    expect(saved(page, "a.py")).to_be_visible()
    assert etude.read("a.py") == "a = 1\r\nb = 2\nc = 3\r\nd = 4"


def test_a_read_only_server_lets_one_look_and_writes_nothing(start_etude, open_page):
    etude = start_etude(FILES, "--read-only")
    page = open_page(etude)
    expect(page.locator(".status-read-only")).to_have_text("Read-only")
    merge(page, REPLY)
    expect(review(page)).to_contain_text("1 of 3 changes")
    page.keyboard.press("Control+Shift+Enter")
    page.keyboard.press("Control+s")
    expect(page.locator(".toast", has_text="read-only")).to_be_visible()
    page.keyboard.press("Control+Alt+s")
    assert (etude.read("shop/cart.py"), etude.read("shop/money.py")) == (CART, MONEY)


def test_a_lost_connection_is_told_and_comes_back_by_itself(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude, may_lose_connection=True)
    open_file(page, "cart", "shop/cart.py")
    etude.stop()
    expect(page.locator(".status-link")).to_contain_text("Connection lost")
    merge(page, REPLY)
    expect(page.locator(".card")).to_contain_text("etude does not answer")
    page.keyboard.press("Control+e")
    page.keyboard.type("# kept\n")
    page.keyboard.press("Control+s")
    expect(page.locator(".toast.is-bad")).to_contain_text("etude does not answer")
    etude.start()
    expect(page.locator(".status-link")).to_have_count(0)
    page.keyboard.press("Control+s")
    expect(saved(page, "shop/cart.py")).to_be_visible()
    assert etude.read("shop/cart.py") == "# kept\n" + CART


def test_a_server_that_dies_in_a_merge_leaves_the_text_as_it_was(start_etude, open_page):
    etude = start_etude({"a.txt": "one\ntwo\nthree\n"}, "--slow")
    page = open_page(etude, may_lose_connection=True)
    open_file(page, "a.txt", "a.txt")
    merge(page, "ONE\ntwo\nTHREE\n")
    etude.step(1)
    expect(editor(page)).to_contain_text("ONE")
    etude.stop()
    expect(page.locator(".card")).to_contain_text("connection to etude was lost")
    expect(editor(page)).not_to_contain_text("ONE")
    expect(tab(page, "a.txt")).to_have_attribute("aria-label", "a.txt")


def test_a_file_that_someone_else_changed_is_not_overwritten_unasked(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    open_file(page, "money", "shop/money.py")
    page.keyboard.type("# mine\n")
    etude.write({"shop/money.py": "# theirs\n"})
    page.keyboard.press("Control+s")
    toast = page.locator(".toast.is-bad")
    expect(toast).to_contain_text("changed on disk by someone else")
    assert etude.read("shop/money.py") == "# theirs\n"
    toast.get_by_role("button", name="Reload from disk").click()
    expect(editor(page)).to_contain_text("# theirs")
    expect(tab(page, "shop/money.py")).to_have_attribute("aria-label", "shop/money.py")


def test_the_tree_is_walked_with_the_arrows(start_etude, open_page):
    page = open_page(start_etude(FILES))
    shop = page.get_by_role("treeitem", name="shop")
    expect(shop).to_have_attribute("aria-expanded", "false")
    shop.focus()
    page.keyboard.press("ArrowRight")
    expect(shop).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("treeitem", name="money.py")).to_be_focused()
    page.keyboard.press("Enter")
    expect(tab(page, "shop/money.py")).to_have_attribute("aria-selected", "true")
    expect(editor(page)).to_be_focused()


def test_an_address_without_the_token_says_where_to_find_it(start_etude, open_page):
    etude = start_etude(FILES)
    page = open_page(etude)
    expect(page).to_have_url(re.compile(r"/$"))
    page.evaluate("() => sessionStorage.clear()")
    page.reload()
    expect(page.get_by_role("heading", name="Open etude from its own address")).to_be_visible()


def test_the_help_lists_the_keys_and_closes(start_etude, open_page):
    page = open_page(start_etude(FILES))
    page.get_by_role("treeitem", name="shop").focus()
    page.keyboard.press("?")
    help = page.get_by_role("dialog", name="Keys")
    expect(help).to_contain_text("Accept the change")
    page.keyboard.press("Escape")
    expect(help).to_be_hidden()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [900, 1280])
def test_nothing_overflows_and_text_has_contrast(start_etude, open_page, tmp_path: Path, width: int, dark: bool):
    page = open_page(start_etude(FILES), width=width, dark=dark)
    merge(page, REPLY)
    expect(run(page, "money.py")).to_contain_text("1 to review")
    page.screenshot(path=tmp_path / "page.png")
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    bar = review(page).bounding_box()
    stage = page.locator(".editor").bounding_box()
    assert bar and stage
    assert stage["x"] <= bar["x"]
    assert bar["x"] + bar["width"] <= stage["x"] + stage["width"]
    low = page.evaluate(LOW_CONTRAST)
    assert low == [], low


def test_the_buttons_of_a_change_stay_in_sight_beside_long_lines(start_etude, open_page):
    etude = start_etude({"long.py": f"note = '{'wide ' * 80}'\nlimit = 1\n"})
    page = open_page(etude, width=900)
    merge(page, "```python\n# long.py\n# ... existing code ...\nlimit = 2\n```\n")
    accept = page.locator(".document.is-active .cm-deletedChunk").get_by_role("button", name="Accept")
    expect(accept).to_be_visible()
    button, stage = accept.bounding_box(), page.locator(".editor").bounding_box()
    assert button and stage
    assert button["x"] + button["width"] <= stage["x"] + stage["width"]
    accept.click()
    expect(review(page)).to_contain_text("Every change is decided")


# WCAG AA: 4.5 to 1 for text of this size, against the nearest painted background.
LOW_CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => {
    const alpha = top[3] ?? 1;
    return [0, 1, 2].map((at) => top[at] * alpha + below[at] * (1 - alpha));
  };
  const paper = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!colour.startsWith("rgb")) continue;
      layers.push(channels(colour));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = new Set();
  const texts = document.createTreeWalker(document.querySelector(".app"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    const below = paper(element);
    const ink = over(channels(getComputedStyle(element).color), below);
    const [dark, bright] = [light(ink), light(below)].sort((a, b) => a - b);
    const ratio = (bright + 0.05) / (dark + 0.05);
    const where = `${element.className || element.tagName} "${texts.currentNode.data.trim()}"`;
    if (ratio < 4.5) low.add(`${where} ${ratio.toFixed(2)}`);
  }
  return [...low];
}"""
