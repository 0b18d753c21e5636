"""Runs as `etude agent status` lists them."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec
from rich.console import Console
from rich.text import Text

from etude.agent.run_values import ALIVE, RunState, RunSummary, encoded
from etude.cli.terminal import console_for, counted, visible

_STYLES = {
    RunState.RUNNING: "green",
    RunState.STARTING: "green",
    RunState.WAITING: "bold cyan",
    RunState.CRASHED: "red",
}


def encoded_runs(found: Sequence[RunSummary]) -> str:
    return msgspec.json.encode({"runs": [_as_json(one) for one in found]}).decode()


def _as_json(one: RunSummary) -> dict[str, object]:
    return {
        **msgspec.json.decode(encoded(one.status)),
        "id": one.id,
        # As it is seen from here; the process may have died without a word.
        "state": one.state,
        "statement": clean(one.statement),
        "root": clean(os.fsencode(one.root).decode("utf-8", "replace")),
        "started_at": one.started_at,
    }


def clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def print_runs(found: Sequence[RunSummary], *, with_folder: bool) -> None:
    """A line a run; what it asks, or how it ended, is under it."""
    console = console_for(sys.stdout)
    id_width = max(len(one.id) for one in found)
    state_width = max(len(state_words(one)) for one in found)
    for one in found:
        state = Text(f"{state_words(one):<{state_width}}", style=_STYLES.get(one.state, ""))
        line = Text(f"{one.id:<{id_width}}  ").append_text(state)
        _print_line(console, line.append(f"  {visible(_first_line(one.statement))}"))
        if with_folder:
            _print_line(console, Text(f"  {visible(str(one.root))}", style="dim"))
        if note := _note(one):
            _print_line(console, Text(f"  {visible(note)}", style="bold cyan" if one.status.question else "dim"))


def _print_line(console: Console, line: Text) -> None:
    """Cut to the terminal's width; whole where it is read by a program."""
    if console.is_terminal:
        line.truncate(console.width, overflow="ellipsis")
    console.print(line)


def state_words(one: RunSummary) -> str:
    if one.state is RunState.STOPPED:
        return one.status.reason.replace("_", " ") or "stopped"
    return one.state


def _note(one: RunSummary) -> str:
    if one.status.question:
        return f"asks: {_first_line(one.status.question.text)}"
    if one.state in ALIVE:
        return f"turn {one.status.num_turns}, {_ago(one.started_at)}"
    if one.state is RunState.CRASHED:
        return "its process is gone; resume, apply or discard it"
    said = one.status.answer or one.status.message
    changed = len(one.status.changed)
    parts = [counted(changed, "file") + " changed" if changed else "", _first_line(said)]
    return " · ".join(filter(None, parts))


def _ago(started_at: str) -> str:
    try:
        began = datetime.fromisoformat(started_at)
        seconds = int((datetime.now(began.tzinfo) - began).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return ""
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
