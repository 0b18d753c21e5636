"""What a run changed, as a unified diff; and taking it into the live tree, hunk by hunk."""

import asyncio
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from etude.agent import runs
from etude.agent.change_size import Size, size_of, text_of
from etude.agent.landing import Landed, LandingReport, Outcome
from etude.agent.landing_plan import Hunk, hunks
from etude.cli.terminal import Questions, counted, draw_hunk, draw_lines, visible
from etude.edits import split_lines, unified_diff
from etude.workspace.workspace import ChangeKind, FileChange

# Of a new or removed file that is shown before a question; `etude agent diff` has all.
MAX_SHOWN_LINES = 200

_KINDS = {ChangeKind.ADDED: "new", ChangeKind.REMOVED: "removed", ChangeKind.MODIFIED: ""}
# What git writes in quotes, with escapes.
_UNSAFE = re.compile(rb'[\x00-\x1f"\\\x7f]')


def reviewed(changes: Sequence[FileChange]) -> list[FileChange]:
    """Caches and environments are nobody's to review."""
    return [change for change in changes if not change.ignored]


# The diff.


def diff_of(change: FileChange) -> str:
    """One file as `git apply` reads it."""
    before, after = text_of(change.before), text_of(change.after)
    a, b = _named("a/", change.path), _named("b/", change.path)
    lines = [f"diff --git {a} {b}\n"]
    if change.kind is ChangeKind.ADDED:
        lines.append(f"new file mode {_git_mode(change.mode)}\n")
    elif change.kind is ChangeKind.REMOVED:
        lines.append(f"deleted file mode {_git_mode(change.mode)}\n")
    if before is None or after is None:
        return "".join([*lines, f"Binary files {a} and {b} differ\n"])
    _, _, hunk_lines = unified_diff("x", before, after).partition("+++ b/x\n")
    if hunk_lines:
        old = "/dev/null" if change.before is None else a
        new = "/dev/null" if change.after is None else b
        lines += [f"--- {old}\n", f"+++ {new}\n", hunk_lines]
    return "".join(lines)


def _git_mode(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "120000"
    return "100755" if mode & stat.S_IXUSR else "100644"


def _named(prefix: str, path: str) -> str:
    raw = (prefix + path).encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is not None and not _UNSAFE.search(raw):
        return text
    return (
        '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw) + '"'
    )


def print_diff(console: Console, changes: Sequence[FileChange]) -> None:
    """In colours on a terminal; elsewhere byte for byte."""
    for change in reviewed(changes):
        diff = diff_of(change)
        if console.is_terminal:
            draw_lines(console, (line.rstrip("\r\n") for line in split_lines(diff)))
            continue
        sys.stdout.flush()
        sys.stdout.buffer.write(diff.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


# The summary.


def print_files(console: Console, changes: Sequence[FileChange]) -> None:
    """pay.py             +3 -1"""
    files = reviewed(changes)
    width = min(max((len(visible(change.path)) for change in files), default=0), 60)
    for change in files:
        size, kind = size_of(change), _KINDS[change.kind]
        name = visible(change.path)
        shown = name if len(name) <= width else "…" + name[1 - width :]
        console.print(f"  {shown:<{width}}  {_signed(size, change)}{f'  {kind}' if kind else ''}")


def _signed(size: Size, change: FileChange) -> str:
    if text_of(change.before) is None or text_of(change.after) is None:
        return "binary"
    parts = [f"+{size.added}" if size.added else "", f"-{size.removed}" if size.removed else ""]
    return " ".join(filter(None, parts)) or "mode"


# Choosing.


@dataclass(slots=True)
class Choice:
    """Which hunks of which paths a person takes; `everything` stands for all of all."""

    everything: bool = False
    accepted: dict[str, list[int]] = field(default_factory=dict)
    num_declined: int = 0

    @property
    def is_nothing(self) -> bool:
        return not self.everything and not any(self.accepted.values())

    def for_landing(self) -> Mapping[str, Sequence[int]] | None:
        return None if self.everything else self.accepted


def ask_at_once(changes: Sequence[FileChange], asker: Questions, console: Console) -> Choice:
    """All, none, or each hunk by itself."""
    files = reviewed(changes)
    count = sum(len(hunks(change)) for change in files)
    each = "/each" if count > 1 else ""
    question = f"Apply {counted(len(files), 'file')} ({counted(count, 'hunk')}) to your folder? [yes/no{each}]"
    answer = asker.ask(question, "yen" if each else "yn")
    if answer == "e":
        return ask_each(files, asker, console)
    return Choice(everything=answer == "y", num_declined=0 if answer == "y" else count)


def ask_each(changes: Sequence[FileChange], asker: Questions, console: Console) -> Choice:
    """y takes a hunk, n does not, a takes it and all that follow, q takes no more."""
    choice, answer = Choice(), ""
    for change in reviewed(changes):
        found = hunks(change)
        if answer not in ("a", "q"):
            _draw_head(change, console)
        for hunk in found:
            if answer not in ("a", "q"):
                _draw(change, hunk, console)
                answer = asker.ask(f"Take {_what(change, hunk)}? [yes/no/all/quit]", "ynaq")
            if answer in ("y", "a"):
                choice.accepted.setdefault(change.path, []).append(hunk.index)
            else:
                choice.num_declined += 1
    return choice


def _what(change: FileChange, hunk: Hunk) -> str:
    if hunk.edit is not None:
        return "this hunk"
    return {ChangeKind.ADDED: "this new file", ChangeKind.REMOVED: "this removal"}.get(change.kind, "this change")


def _draw_head(change: FileChange, console: Console) -> None:
    kind = _KINDS[change.kind]
    console.print(visible(change.path) + (f" ({kind} file)" if kind else ""), style="bold")


def _draw(change: FileChange, hunk: Hunk, console: Console) -> None:
    before, after = text_of(change.before), text_of(change.after)
    if before is None or after is None:
        console.print(f"binary, {len(change.after or b''):,} bytes", style="dim")
    elif hunk.edit is not None:
        draw_hunk(console, before, hunk.edit)
    elif change.kind is ChangeKind.MODIFIED and before == after:
        console.print(f"permissions: {stat.filemode(change.mode)}", style="dim")
    else:
        sign, text = ("-", before) if change.after is None else ("+", after)
        lines = [sign + line.rstrip("\r\n") for line in split_lines(text)]
        draw_lines(console, lines[:MAX_SHOWN_LINES])
        if len(lines) > MAX_SHOWN_LINES:
            console.print(f"… {len(lines) - MAX_SHOWN_LINES} more lines", style="dim")


# Landing.


def land(run: str, choice: Choice) -> LandingReport:
    return asyncio.run(runs.land(run, choice.for_landing()))


_SAID = {
    Outcome.CLEAN: "applied",
    Outcome.MERGED: "merged with your edits:",
    Outcome.SAME: "already so:",
}


def print_report(report: LandingReport, console: Console) -> None:
    for file in report.files:
        if file.outcome in _SAID:
            console.print(f"{_SAID[file.outcome]} {visible(file.path)}")
        elif file.outcome is not Outcome.LEFT_OUT:
            print(f"etude: {visible(file.reason)}", file=sys.stderr)


def is_whole(report: LandingReport) -> bool:
    """Whether everything that was accepted is in the tree."""
    return not any(file.outcome in (Outcome.CONFLICT, Outcome.REFUSED) for file in report.files)


def landed_as_json(file: Landed) -> dict[str, str]:
    return {"path": file.path, "outcome": str(file.outcome), "reason": file.reason}
