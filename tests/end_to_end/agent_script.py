"""What the scripted agent of `page_server.py` does; a task with "hostile", "long" or "endless" chooses."""

import asyncio
from collections.abc import Iterator, Sequence

from etude.agent.events import (
    AgentEvent,
    CallFinished,
    CallStarted,
    DiagnosticsChanged,
    Notice,
    OutputPrinted,
    PlanChanged,
    PlanStep,
    QuestionAsked,
    StepState,
    Stopped,
    TextWritten,
    TurnFinished,
    TurnStarted,
)
from etude.server.scripted_runs import Until
from etude.workspace.workspace import ChangeKind, FileChange

CART = """\
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
"""
NEW_CART = (
    CART.replace("self.items = []\n", "self.items = []\n        self.discount = 0\n")
    .replace("return total\n", "return total.less(self.discount)\n")
    .replace("the cart is empty", "there is nothing in the cart")
)
TAX = "def tax(cents):\n    return cents // 5\n"
FILES = {"shop/cart.py": CART, "shop/old.py": "unused = 1\n", "README.md": "# Shop\n"}
CHANGES = [
    FileChange(path="assets/logo.png", kind=ChangeKind.ADDED, before=None, after=b"\x89PNG\0\0logo"),
    FileChange(path="shop/cart.py", kind=ChangeKind.MODIFIED, before=CART.encode(), after=NEW_CART.encode()),
    FileChange(path="shop/old.py", kind=ChangeKind.REMOVED, before=b"unused = 1\n", after=None),
    FileChange(path="shop/tax.py", kind=ChangeKind.ADDED, before=None, after=TAX.encode()),
]
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
PLAN = ("Find where the total is made", "Add a discount to the cart", "Run the tests")


def script(statement: str) -> Sequence[AgentEvent | Until]:
    scripts = {"hostile": _hostile, "long": _long, "endless": _endless}
    chosen = next((made for name, made in scripts.items() if name in statement), _discount)
    return list(chosen())


def _plan(done: int) -> PlanChanged:
    states = [StepState.DONE] * done + [StepState.ACTIVE] + [StepState.PENDING] * len(PLAN)
    return PlanChanged(steps=[PlanStep(text=text, state=state) for text, state in zip(PLAN, states, strict=False)])


def _turn(number: int, *events: AgentEvent) -> Iterator[AgentEvent]:
    yield TurnStarted(number=number)
    yield from events
    yield TurnFinished(number=number, context_tokens=3200 * number, generated_tokens=210, seconds=2.4, cost=0.004)


def _discount() -> Iterator[AgentEvent]:
    yield from _turn(
        1,
        TextWritten(text="I will look at how the total is made "),
        TextWritten(text="before I change anything."),
        _plan(0),
        CallStarted(id="c1", tool="read", summary="read shop/cart.py", arguments='{"path": "shop/cart.py"}'),
        CallFinished(id="c1", text=CART, seconds=0.02),
        CallStarted(id="c2", tool="search", summary='search "discount"', arguments='{"text": "discount"}'),
        CallFinished(id="c2", text="no match", error="tool_failed", seconds=0.3),
    )
    yield from _turn(
        2,
        _plan(1),
        CallStarted(id="c3", tool="ask", summary="ask", arguments="{}"),
        QuestionAsked(
            id="q1", text="Should the discount be a percentage or an amount?", choices=["A percentage", "An amount"]
        ),
        CallFinished(id="c3", text="A percentage"),
    )
    yield from _turn(
        3,
        TextWritten(text="A percentage it is. The cart keeps it, and the total takes it off at the end."),
        CallStarted(
            id="c4", tool="edit", summary="edit shop/cart.py", arguments='{"path": "shop/cart.py", "sketch": "…"}'
        ),
        CallFinished(id="c4", text="3 hunks", seconds=0.4, changed=["shop/cart.py"]),
        DiagnosticsChanged(
            appeared=["shop/cart.py:15:22 error: Money has no attribute less [ty]"],
            gone=["shop/cart.py:1:1 warning: unused import [ruff]"],
        ),
        _plan(2),
        CallStarted(id="c5", tool="run", summary="$ pytest -q", arguments='{"command": "pytest -q"}'),
        OutputPrinted(id="c5", text="collecting …\rcollected 3 items\n\n\x1b[32m.\x1b[0m\x1b[32m.\x1b[0m"),
        OutputPrinted(
            id="c5",
            text="\x1b[31mF\x1b[0m\n\x1b[31m\x1b[1mFAILED\x1b[0m tests/test_cart.py::test_total\n1 failed, 2 passed\n",
        ),
        CallFinished(id="c5", text="1 failed, 2 passed", error="command_failed", seconds=1.3),
        Notice(text="You saved README.md meanwhile; the agent sees your version."),
    )
    changed = [change.path for change in CHANGES]
    answer = "The cart has a discount, in percent. The total takes it off."
    yield Stopped(reason="finished", message="", answer=answer, changed=changed)


def _hostile() -> Iterator[AgentEvent]:
    line = "\x1b[2J\x1b]0;taken\x07\x1b[31mred\x1b[0m " + HOSTILE + "\n"
    yield from _turn(
        1,
        TextWritten(text=HOSTILE),
        CallStarted(id="c1", tool=HOSTILE, summary=f"$ {HOSTILE}", arguments=HOSTILE),
        *[OutputPrinted(id="c1", text=line * 50) for _ in range(5_000_000 // (len(line) * 50) + 1)],
        OutputPrinted(id="c1", text="the last line\n"),
        CallFinished(id="c1", text=HOSTILE, error="command_failed"),
        PlanChanged(steps=[PlanStep(text=HOSTILE)]),
        DiagnosticsChanged(appeared=[HOSTILE], gone=[]),
        QuestionAsked(id="q1", text=HOSTILE, choices=[HOSTILE]),
    )


def _long() -> Iterator[AgentEvent]:
    for number in range(1, 401):
        call = f"c{number}"
        yield from _turn(
            number,
            TextWritten(text=f"This is what I think in turn {number}. " * 5),
            CallStarted(id=call, tool="run", summary=f"$ make step-{number}", arguments="{}"),
            OutputPrinted(id=call, text=f"step {number} is done\n" * 120),
            CallFinished(id=call, text="ok", seconds=0.2),
        )


def _endless() -> Iterator[AgentEvent | Until]:
    yield TurnStarted(number=1)
    yield CallStarted(id="c1", tool="run", summary="$ make watch", arguments="{}")
    yield OutputPrinted(id="c1", text="watching\n")
    yield Until(asyncio.Event().wait)
