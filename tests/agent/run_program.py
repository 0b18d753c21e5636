"""A run's process whose work is told by the statement, so that the tests of runs need no model and no shadow.

finish      change a file, print and finish          ask     ask, and say what was answered
hang        begin, then wait for ever                stubborn  the same, and take no order
die         begin, then end at once as after kill -9 fail    raise an error of etude's own making
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from etude.agent.events import (
    CallFinished,
    CallStarted,
    DiagnosticsChanged,
    Notice,
    OutputPrinted,
    PlanChanged,
    PlanStep,
    Started,
    StepState,
    Stopped,
    TextWritten,
    TurnFinished,
    TurnStarted,
)
from etude.agent.run_folder import RunFolder
from etude.agent.run_process import RunSession
from etude.errors import ShadowUnavailable
from etude.workspace.workspace import ChangeKind, FileChange

CHANGES = [
    FileChange(path="pay.py", kind=ChangeKind.MODIFIED, before=b"old\n", after=b"new\n"),
    FileChange(path="name-\udcff.txt", kind=ChangeKind.ADDED, before=None, after=b"\xff\0"),
    FileChange(path=".cache/x", kind=ChangeKind.ADDED, before=None, after=b"x", ignored=True),
]

PAY = "def total(items):\n    return sum(items)\n\n\n# Rates.\n\n\ndef tax(amount):\n    return amount * 0.2\n"
NEW_PAY = PAY.replace("0.2", "0.19").replace("sum(items)", "sum(items, 0.0)")
EDITS = [
    FileChange(path="new.py", kind=ChangeKind.ADDED, before=None, after=b"x = 1\n", mode=0o100755),
    FileChange(path="old.py", kind=ChangeKind.REMOVED, before=b"y = 2\n", after=None),
    FileChange(path="pay.py", kind=ChangeKind.MODIFIED, before=PAY.encode(), after=NEW_PAY.encode()),
]
EDITED_FILES = {"old.py": "y = 2\n", "pay.py": PAY}


class Changed:
    """All that a session asks of a workspace."""

    def __init__(self, changes: list[FileChange]) -> None:
        self._changes = changes

    async def changes(self) -> list[FileChange]:
        return self._changes


async def work(session: RunSession) -> None:
    session.work_in(Changed(EDITS if session.record.statement == "edit" else CHANGES))  # ty: ignore[invalid-argument-type]
    record = session.record
    session.observe(Started(run=record.id, statement=record.statement, model="none", root=os.fsdecode(record.root)))
    session.observe(TurnStarted(number=1))
    try:
        answer = await WORKS[record.statement](session)
    finally:
        await session.save()
    session.observe(TurnFinished(number=1, context_tokens=10, generated_tokens=2, seconds=0.1, cost=0.5))
    session.observe(Stopped(reason="finished", message="", answer=answer, changed=[]))


async def finish(session: RunSession) -> str:
    session.observe(CallStarted(id="c1", tool="run", summary="$ make", arguments="{}"))
    session.observe(OutputPrinted(id="c1", text="x" * 300_000))
    session.observe(OutputPrinted(id="c1", text="more"))
    session.observe(CallFinished(id="c1", text="half a pair: \ud800"))
    return "done"


async def edit(session: RunSession) -> str:
    session.observe(TextWritten(text="The tax rate is too high, as the test says. I will lower it.\n"))
    session.observe(PlanChanged(steps=[PlanStep(text="Lower the rate", state=StepState.ACTIVE), PlanStep(text="Test")]))
    session.observe(CallStarted(id="c1", tool="edit", summary="edit pay.py", arguments="{}"))
    diff = "--- a/pay.py\n+++ b/pay.py\n@@ -9 +9 @@\n-    return amount * 0.2\n+    return amount * 0.19\n"
    session.observe(CallFinished(id="c1", text=diff, changed=["pay.py"]))
    session.observe(DiagnosticsChanged(appeared=["pay.py:9:5 error: wrong [ty]"], gone=[]))
    session.observe(CallStarted(id="c2", tool="run", summary="$ pytest -q\nexit", arguments="{}"))
    session.observe(OutputPrinted(id="c2", text="\x1b[31m1 failed\x1b[0m\r\n"))
    session.observe(CallFinished(id="c2", text="1 failed\nExit code 1.", error="command_failed", seconds=1.5))
    session.observe(Notice(text="You changed README.md meanwhile."))
    session.observe(PlanChanged(steps=[PlanStep(text="Lower the rate", state=StepState.DONE), PlanStep(text="Test")]))
    return "The rate is 19 % now."


async def long(session: RunSession) -> str:
    words = " ".join(["word"] * 40) + " thirtieth"
    session.observe(TextWritten(text=words))
    session.observe(CallStarted(id="c", tool="run", summary=f"$ {words}", arguments="{}"))
    session.observe(OutputPrinted(id="c", text=words))
    session.observe(CallFinished(id="c", text="Exit code 0."))
    session.observe(Notice(text=words))
    session.observe(PlanChanged(steps=[PlanStep(text=words)]))
    session.observe(DiagnosticsChanged(appeared=[words], gone=[words]))
    return words


async def hostile(session: RunSession) -> str:
    evil = "\x1b]0;title\x07\x1b[2J\u202e"
    session.observe(TextWritten(text=evil + "\n"))
    session.observe(CallStarted(id=evil, tool="run", summary=f"$ {evil}", arguments="{}"))
    session.observe(OutputPrinted(id=evil, text=evil + "\n"))
    session.observe(CallFinished(id=evil, text=evil))
    session.observe(Notice(text=evil))
    session.observe(PlanChanged(steps=[PlanStep(text=evil)]))
    session.observe(DiagnosticsChanged(appeared=[evil], gone=[evil]))
    return evil


async def ask(session: RunSession) -> str:
    return f"they said {await session.person.answer('Which?', ['a', 'b'])}"


async def consent(session: RunSession) -> str:
    return f"allowed: {await session.person.consents('use the network', 'pip install x')}"


async def hang(session: RunSession) -> str:
    await asyncio.Event().wait()
    return ""


async def stubborn(session: RunSession) -> str:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def die(session: RunSession) -> str:
    sys.stdout.write("the last words\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


async def fail(session: RunSession) -> str:
    raise ShadowUnavailable("No shadow here. Get one.")


async def slip(session: RunSession) -> str:
    raise ZeroDivisionError("a slip")


WORKS = {work.__name__: work for work in (finish, edit, hostile, long, ask, consent, hang, stubborn, die, fail, slip)}

if __name__ == "__main__":
    asyncio.run(RunSession(RunFolder(Path(sys.argv[1]))).perform(work))
