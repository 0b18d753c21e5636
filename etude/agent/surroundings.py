"""What goes on around the calls: edits of the person, checkpoints, and what language servers say afterwards."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from etude.agent.events import DiagnosticsChanged, Notice, Observer
from etude.agent.tools.diagnostics import diagnostic_line, titled
from etude.errors import EtudeError
from etude.workspace.workspace import Checkpointed, Diagnostic, DiagnosticsReport, Followed, Following, Workspace

MAX_FOLLOWED = 15
MAX_DIAGNOSTIC_LINES = 20
# Servers have their own limits; this holds if they fail.
DIAGNOSTICS_SECONDS = 60.0
# A checkpoint of tens of thousands of changed files takes seconds; then it is taken for a tenth of the time at most.
DEAR_SECONDS = 0.5
PAUSE_SHARE = 10


class Surroundings:
    """Asked between the model's answer and the next one; what it returns are notes for the model."""

    def __init__(self, workspace: Workspace, observer: Observer) -> None:
        self._workspace = workspace
        self._following = workspace if isinstance(workspace, Following) else None
        self._checkpointed = workspace if isinstance(workspace, Checkpointed) else None
        self._observer = observer
        self._checkpoint: str | None = None
        self._is_dirty = True
        self._not_before = 0.0
        self._appeared: tuple[Diagnostic, ...] = ()
        self._complaints: set[str] = set()

    async def follow(self) -> list[str]:
        """Take in what the person edited."""
        if self._following is None:
            return []
        try:
            followed = await self._following.follow()
        except EtudeError as error:
            return self._complain(f"The person's edits could not be followed: {error}")
        if not followed:
            return []
        self._is_dirty = True
        note = "\n".join(_some([_followed_line(one) for one in followed], MAX_FOLLOWED))
        self._observer(Notice(text=note))
        return [note]

    async def checkpoint(self, *, before_changes: bool) -> str | None:
        """The state the files are in, kept anew where something may have changed since the last one.

        None where none can be kept, or where the last one was dear: a run is not to spend its time on them.
        """
        if self._checkpointed is None:
            return None
        if self._is_dirty:
            started = time.monotonic()
            if started < self._not_before:
                return None
            try:
                self._checkpoint = await self._checkpointed.snapshot()
            except EtudeError as error:
                self._checkpoint = None
                self._complain(f"No checkpoint was taken: {error}")
            ended = time.monotonic()
            self._not_before = ended + PAUSE_SHARE * (ended - started) if ended - started > DEAR_SECONDS else 0.0
        self._is_dirty = before_changes or self._checkpoint is None
        return self._checkpoint

    def unchanged(self) -> None:
        """The calls that might have changed something did not, so the checkpoint still holds."""
        self._is_dirty = self._checkpoint is None

    async def diagnose(self, changed: Iterable[str]) -> list[str]:
        """What is new in the diagnostics and what is gone, since this was last told."""
        if not any(True for _ in changed):
            return []
        try:
            async with asyncio.timeout(DIAGNOSTICS_SECONDS):
                report = await self._workspace.diagnostics()
        except TimeoutError:
            return self._complain(f"The language servers did not answer within {DIAGNOSTICS_SECONDS:g} s.")
        except EtudeError as error:
            return self._complain(f"No diagnostics: {error}")
        return self._news(report)

    def _news(self, report: DiagnosticsReport) -> list[str]:
        before, now = self._appeared, report.appeared
        new, gone = _without(now, before), _without(before, now)
        self._appeared = now
        if not new and not gone:
            return []
        everything = list(map(diagnostic_line, now)), list(map(diagnostic_line, report.gone))
        self._observer(DiagnosticsChanged(appeared=everything[0], gone=everything[1]))
        room = MAX_DIAGNOSTIC_LINES - 1
        lines = titled("New", new, room - min(len(gone) + 1, 5) if gone else room)
        lines += titled("Gone", gone, room - len(lines))
        return ["\n".join(["Diagnostics after your changes:", *lines])]

    def _complain(self, text: str) -> list[str]:
        """Once; a server that is missing is missing after every turn."""
        if text in self._complaints:
            return []
        self._complaints.add(text)
        self._observer(Notice(text=text))
        return [text]


def _without(diagnostics: Sequence[Diagnostic], others: Iterable[Diagnostic]) -> list[str]:
    """Lines for those that the others do not hold. One that only moved up or down is the same."""
    known = Counter(map(_identity, others))
    left = []
    for diagnostic in diagnostics:
        if known[_identity(diagnostic)] > 0:
            known[_identity(diagnostic)] -= 1
        else:
            left.append(diagnostic_line(diagnostic))
    return left


def _identity(diagnostic: Diagnostic) -> tuple[str, str, str, str]:
    return diagnostic.place.path, diagnostic.severity, diagnostic.message, diagnostic.server


def _followed_line(followed: Followed) -> str:
    if followed.conflict:
        return (
            f"The person changed {followed.path} where you changed it too. The file has your version; "
            "they will be shown both."
        )
    if followed.merged:
        return f"The person changed {followed.path} too; both changes are in it now."
    return f"The person changed {followed.path}; it is here as they have it now."


def _some(lines: Sequence[str], most: int) -> list[str]:
    return [*lines[:most], *([f"… and {len(lines) - most} more files."] if len(lines) > most else [])]
