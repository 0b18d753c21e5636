"""Bringing what an agent changed onto the person's tree as it is now: land, undo, recover.

    report = await land(changes, root)                              # everything
    report = await land(changes, root, accepted={"pay.py": [0, 2]}) # of pay.py the first and the third hunk
    await undo(report)

Each file is merged three ways: what the agent's version grew from, the person's, the agent's. Conflicts are not
written; of the rest all is, or nothing (`workspace/exchange.py`).
"""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from etude.agent.landing_moves import WRITTEN, Landed, Outcome
from etude.agent.landing_plan import Hunk, hunks, plan, standing
from etude.errors import FileChanged
from etude.workspace import exchange
from etude.workspace.exchange import Exchanged
from etude.workspace.exchange_journal import Step
from etude.workspace.nodes import NOTHING, Tree, folders_above
from etude.workspace.workspace import FileChange

__all__ = ["Hunk", "Landed", "LandingReport", "Outcome", "hunks", "journals_folder", "land", "plan", "recover", "undo"]

# The person may save while we write; whoever saves more often than that is a program.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingReport:
    """What came of a landing, and what `undo` needs."""

    root: Path
    files: tuple[Landed, ...]
    """Sorted by path."""
    folders: Exchanged = field(default_factory=Exchanged)

    @property
    def written(self) -> tuple[Landed, ...]:
        return tuple(file for file in self.files if file.outcome in WRITTEN)

    @property
    def conflicts(self) -> tuple[Landed, ...]:
        return tuple(file for file in self.files if file.outcome is Outcome.CONFLICT)


async def land(
    changes: Sequence[FileChange],
    root: Path,
    *,
    accepted: Mapping[str, Collection[int]] | None = None,
    overwrite: Collection[str] = (),
    journals: Path | None = None,
) -> LandingReport:
    """Write what is accepted into the tree; raises FileChanged or FileNotWritable, and then nothing was written.

    `accepted` names the hunks of each path that are wanted, all of every file that git does not ignore if it is None;
    InputError for one that does not exist.
    Of paths in `overwrite` the agent's version is taken even if that loses what the person did.
    """
    return await asyncio.to_thread(_land, changes, root, accepted, overwrite, journals or journals_folder())


async def undo(report: LandingReport, *, journals: Path | None = None) -> LandingReport:
    """Make every file what it was before the landing; those that were changed since stay, and are told as conflicts.

    Raises FileChanged or FileNotWritable, and then nothing was written.
    """
    return await asyncio.to_thread(_undo, report, journals or journals_folder())


def recover(journals: Path | None = None) -> list[Path]:
    """Take back landings that a crash cut off; returns the trees they were in."""
    return exchange.recover(journals or journals_folder())


def journals_folder() -> Path:
    """Where landings note what they do while they do it."""
    chosen = os.environ.get("ETUDE_STATE")
    state = Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_state_dir("etude"))
    return state / "landings"


def _land(
    changes: Sequence[FileChange],
    root: Path,
    accepted: Mapping[str, Collection[int]] | None,
    overwrite: Collection[str],
    journals: Path,
) -> LandingReport:
    exchange.recover(journals)
    for attempt in range(_ATTEMPTS):
        files = plan(changes, root, accepted=accepted, overwrite=overwrite)
        steps = _steps(files)
        prunable = {folder for step in steps if not step.wanted.mode for folder in folders_above(step.path)}
        try:
            folders = exchange.exchange(root, steps, journals=journals, prunable=prunable) if steps else Exchanged()
            return LandingReport(root=root, files=tuple(files), folders=folders)
        except FileChanged:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _undo(report: LandingReport, journals: Path) -> LandingReport:
    exchange.recover(journals)
    with closing(Tree(report.root)) as tree:
        files = [_undone(tree, file, ()) for file in report.written if not file.before.mode]
        going = {file.path for file in files if file.outcome is Outcome.CLEAN}
        files += [_undone(tree, file, going) for file in report.written if file.before.mode]
    steps, known = _steps(files), report.folders
    if not steps:
        return LandingReport(root=report.root, files=tuple(files))
    folders = exchange.exchange(report.root, steps, journals=journals, prunable=known.made, folder_modes=known.pruned)
    return LandingReport(root=report.root, files=tuple(sorted(files, key=lambda file: file.path)), folders=folders)


def _undone(tree: Tree, file: Landed, going: Collection[str]) -> Landed:
    now = None
    # Where the way to the file is barred, it is not as we left it.
    with suppress(OSError):
        now = standing(tree, file.path, going, max_bytes=len(file.after.content or b""))
    if now == file.after:
        return Landed(path=file.path, outcome=Outcome.CLEAN, before=file.after, after=file.before)
    reason = f"{file.path} was changed since; it stays as it is."
    return Landed(path=file.path, outcome=Outcome.CONFLICT, reason=reason, before=now or NOTHING, after=file.before)


def _steps(files: Sequence[Landed]) -> list[Step]:
    return [Step(path=file.path, expected=file.before, wanted=file.after) for file in files if file.outcome in WRITTEN]
