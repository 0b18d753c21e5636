"""`etude agent`: start runs, watch them, look at what they changed, take it or not. What a run is: `agent/runs.py`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from etude.agent import runs
from etude.agent.events import Stopped
from etude.agent.run_values import ALIVE, RunOptions, RunState, RunSummary
from etude.agent.settings import agent_settings
from etude.cli import BAD_INPUT, DONE, INTERRUPTED, LEFT_UNDONE
from etude.cli.agent_arguments import ACTIONS
from etude.cli.agent_listing import clean, encoded_runs, print_runs, state_words
from etude.cli.agent_review import (
    Choice,
    ask_at_once,
    ask_each,
    diff_of,
    is_whole,
    land,
    landed_as_json,
    print_diff,
    print_report,
    reviewed,
)
from etude.cli.agent_watch import log_as_json, replay, watch
from etude.cli.terminal import console_for, counted, questions
from etude.errors import InputError, RunUnknown
from etude.models.opening import EmbeddedChoice, choose
from etude.traces import StopReason
from etude.workspace.workspace import FileChange

# A task from stdin is a text that a person wrote.
MAX_STDIN_BYTES = 1_000_000


def run_agent(options: argparse.Namespace) -> int:
    if options.action is None:
        raise InputError('Say what to do: etude agent "fix the failing test". `etude agent --help` has the rest.')
    return _ACTIONS[options.action](options)


# Working.


def _run(options: argparse.Namespace) -> int:
    statement = _statement(options)
    asks = sys.stdin is not None and sys.stdin.isatty() and not options.json
    run = runs.start(Path(), statement, options=_run_options(options, unattended=not asks))
    watched = asyncio.run(watch(run, as_json=options.json, asks=asks, owns=True))
    if watched.stopped is None:
        return INTERRUPTED
    code = exit_code(watched.stopped)
    if options.json and not options.yes:
        return code
    return max(code, _offer(run, watched.changes, code, options))


def _offer(run: str, changes: Sequence[FileChange], code: int, options: argparse.Namespace) -> int:
    """The end of a run in the foreground: what it changed, and whether to take it. Unasked only what is done."""
    console = console_for(sys.stderr if options.json else sys.stdout)
    found = reviewed(changes)
    if not found:
        return DONE
    if options.yes and code == DONE:
        return _land(run, Choice(everything=True), console)
    if code == DONE and not options.yes and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        with questions(stdin_is_taken=False) as asker:
            choice = ask_at_once(found, asker, console)
        if not choice.is_nothing:
            return _land(run, choice, console)
    _hint(run, console)
    return DONE


def _hint(run: str, console: Console) -> None:
    console.print(f"Look: etude agent diff {run}\nTake: etude agent apply {run}")


def _start(options: argparse.Namespace) -> int:
    run = runs.start(Path(), _statement(options), options=_run_options(options, unattended=False))
    _say_started(run, options)
    return DONE


def _say_started(run: str, options: argparse.Namespace) -> None:
    if options.json:
        print(msgspec.json.encode({"id": run}).decode())
        return
    print(f"{run} is at work.\nWatch: etude agent attach {run}")


def _resume(options: argparse.Namespace) -> int:
    summary = _chosen(options)
    runs.resume(summary.id, " ".join(options.follow_up), options=_with_limits(summary.options, options))
    _say_started(summary.id, options)
    return DONE


def _statement(options: argparse.Namespace) -> str:
    """The words of the task. A single word that names an action must be meant."""
    words = options.statement
    if getattr(options, "implied", False) and len(words) == 1 and words[0] in ACTIONS:
        raise InputError(
            f"{words[0]} is an action, which comes first: etude agent {words[0]} … "
            f"For a task of that name: etude agent run {words[0]}."
        )
    if words == ["-"]:
        return sys.stdin.buffer.read(MAX_STDIN_BYTES).decode("utf-8", "replace")
    return " ".join(words)


def _run_options(options: argparse.Namespace, *, unattended: bool) -> RunOptions:
    """Raises what the process would fail with, before there is one."""
    from etude.agent.shadow_settings import shadow_settings

    agent_settings()
    shadow_settings(Path())
    _check_model(options.model)
    wanted = RunOptions(model=options.model, check=options.check, best_of=options.best_of, unattended=unattended)
    return _with_limits(wanted, options)


def _with_limits(wanted: RunOptions, options: argparse.Namespace) -> RunOptions:
    limits = {name: getattr(options, name) for name in ("max_turns", "max_seconds", "max_cost", "network")}
    for name, value in limits.items():
        if value is not None and value <= 0:
            raise InputError(f"--{name.replace('_', '-')} {value:g} leaves nothing to do. Give more than 0.")
    return msgspec.structs.replace(wanted, **{name: value for name, value in limits.items() if value is not None})


def _check_model(name: str | None) -> None:
    from etude.models import catalog

    choice = choose(name)
    if isinstance(choice, EmbeddedChoice):
        catalog.require(choice.name)


def exit_code(stopped: Stopped) -> int:
    if stopped.reason == StopReason.FINISHED:
        return LEFT_UNDONE if stopped.check == "fails" else DONE
    return BAD_INPUT if stopped.reason in (StopReason.CRASHED, StopReason.MODEL_FAILED) else LEFT_UNDONE


# Watching.


def _attach(options: argparse.Namespace) -> int:
    summary = _chosen(options)
    asks = sys.stdin is not None and sys.stdin.isatty() and not options.json
    watched = asyncio.run(watch(summary.id, as_json=options.json, asks=asks, owns=False))
    if watched.stopped is None:
        return INTERRUPTED
    if not options.json and reviewed(watched.changes):
        _hint(summary.id, console_for(sys.stdout))
    return exit_code(watched.stopped)


def _log(options: argparse.Namespace) -> int:
    summary = _chosen(options)
    if options.json:
        log_as_json(summary.id)
    else:
        replay(summary.id)
    return DONE


def _answer(options: argparse.Namespace) -> int:
    asyncio.run(runs.answer(options.id, "", options.text))
    return DONE


def _stop(options: argparse.Namespace) -> int:
    summary = _chosen(options, among=lambda one: one.state in ALIVE, only_one=True)
    stopped = asyncio.run(runs.stop(summary.id))
    count = len(stopped.status.changed)
    print(f"{stopped.id} is {state_words(stopped)}; {counted(count, 'file') if count else 'nothing'} changed.")
    return DONE


# Status.


def _status(options: argparse.Namespace) -> int:
    found = [runs.find(options.id)] if options.id else runs.runs(None if options.all else Path())
    if options.json:
        print(encoded_runs(found))
        return DONE
    if not found:
        print('No agent has worked in this folder. Start one: etude agent start "…"')
        return DONE
    print_runs(found, with_folder=options.all)
    return DONE


# Deciding.


def _diff(options: argparse.Namespace) -> int:
    changes = asyncio.run(runs.changes(_chosen(options).id))
    if options.json:
        print(msgspec.json.encode({"files": [_file_as_json(change) for change in reviewed(changes)]}).decode())
    else:
        print_diff(console_for(sys.stdout), changes)
    return DONE


def _file_as_json(change: FileChange) -> dict[str, object]:
    path = os.fsencode(change.path).decode("utf-8", "replace")
    return {"path": path, "kind": change.kind, "diff": clean(diff_of(change))}


def _apply(options: argparse.Namespace) -> int:
    console = console_for(sys.stdout)
    run = _chosen(options, among=lambda one: one.state not in ALIVE).id
    changes = reviewed(asyncio.run(runs.changes(run)))
    if options.json:
        return _apply_as_json(run, changes, yes=options.yes)
    if not changes:
        print(f"{run} changed nothing.")
        return DONE
    if options.yes:
        return _land(run, Choice(everything=True), console)
    with questions(stdin_is_taken=False) as asker:
        choice = ask_each(changes, asker, console)
    return _land(run, choice, console)


def _land(run: str, choice: Choice, console: Console) -> int:
    if choice.is_nothing:
        console.print("Nothing was applied.")
        return LEFT_UNDONE
    report = land(run, choice)
    print_report(report, console)
    return DONE if is_whole(report) and not choice.num_declined else LEFT_UNDONE


def _apply_as_json(run: str, changes: Sequence[FileChange], *, yes: bool) -> int:
    if not yes:
        print(msgspec.json.encode({"exit_code": DONE, "files": [_file_as_json(one) for one in changes]}).decode())
        return DONE
    report = land(run, Choice(everything=True))
    code = DONE if is_whole(report) else LEFT_UNDONE
    files = [landed_as_json(file) for file in report.files]
    print(clean(msgspec.json.encode({"exit_code": code, "files": files}).decode()))
    return code


def _discard(options: argparse.Namespace) -> int:
    summary = _chosen(options, only_one=True)
    if not options.yes and (summary.state in ALIVE or summary.status.changed) and summary.state != RunState.APPLIED:
        loses = f"{counted(len(summary.status.changed), 'changed file')}" if summary.status.changed else "what it does"
        with questions(stdin_is_taken=False) as asker:
            if asker.ask(f"Discard {summary.id} and {loses}? [yes/no]", "yn") != "y":
                return LEFT_UNDONE
    asyncio.run(runs.discard(summary.id))
    print(f"{summary.id} is gone.")
    return DONE


# Which run.


def _chosen(
    options: argparse.Namespace,
    *,
    among: Callable[[RunSummary], bool] = lambda one: True,
    only_one: bool = False,
) -> RunSummary:
    """The one that was named, or the newest of this folder; what cannot be taken back wants no guessing."""
    if options.id:
        return runs.find(options.id)
    found = [one for one in runs.runs(Path()) if among(one)]
    if not found:
        raise RunUnknown("There is no such run of this folder. `etude agent status --all` lists those of others.")
    if only_one and len(found) > 1:
        raise InputError(f"Which one? {', '.join(one.id for one in found[:8])}")
    return found[0]


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "start": _start,
    "status": _status,
    "attach": _attach,
    "answer": _answer,
    "diff": _diff,
    "apply": _apply,
    "discard": _discard,
    "stop": _stop,
    "resume": _resume,
    "log": _log,
}
