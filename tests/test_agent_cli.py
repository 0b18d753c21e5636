"""`etude agent` as a person or script meets it, over runs whose work is told (`agent/run_program.py`)."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.agent import runs
from etude.agent.run_folder import RunFolder
from etude.agent.run_values import RunState
from tests.agent.run_program import EDITED_FILES, NEW_PAY, PAY
from tests.command_line import Terminal, etude

PROGRAM = (sys.executable, str(Path(__file__).parent / "agent" / "run_program.py"))
DOWN = {"ETUDE_MODEL_URL": "http://127.0.0.1:9/v1", "ETUDE_CONFIG": os.devnull}

Begin = Callable[[str], str]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    yield tmp_path / "state"
    for folder in map(RunFolder, (tmp_path / "state" / "runs").glob("*")):
        if folder.is_alive():
            os.kill(folder.pid(), signal.SIGKILL)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name, text in EDITED_FILES.items():
        (tree / name).write_text(text, "utf-8")
    return tree


@pytest.fixture
def begin(state: Path, tree: Path) -> Begin:
    return lambda work: runs.start(tree, work, program=PROGRAM)


@pytest.fixture
def edited(begin: Begin, tree: Path) -> str:
    """A run that is over, with changes."""
    run = begin("edit")
    asyncio.run(over(run))
    return run


async def over(run: str) -> None:
    async for _ in runs.events(run):
        pass


def contents(tree: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in tree.iterdir() if path.is_file()}


# --- watching


def test_a_script_reads_plain_lines(begin: Begin, tree: Path) -> None:
    done = etude("agent", "attach", begin("edit"), cwd=tree, env={"FORCE_COLOR": ""})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for line in (
        "The tax rate is too high, as the test says. I will lower it.",
        "[>] Lower the rate",
        "[x] Lower the rate",
        "· edit pay.py",
        "  +    return amount * 0.19",
        "  + pay.py:9:5 error: wrong [ty]",
        "$ pytest -q …",
        "  1 failed",
        "  Exit code 1 · 1.5 s",
        "You changed README.md meanwhile.",
        "finished",
        "The rate is 19 % now.",
        "  pay.py  +2 -2",
        "  new.py  +1  new",
        "  old.py  -1  removed",
    ):
        assert f"\n{line}\n" in done.stdout, line
    assert done.stdout.count("[ ] Test") == 1


def test_a_program_reads_events(edited: str, tree: Path) -> None:
    for action in ("attach", "log"):
        done = etude("agent", action, edited, "--json", cwd=tree)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert (events[0]["event"], events[-1]["event"], events[-1]["reason"]) == ("started", "stopped", "finished")
        assert events[-1]["changed"] == ["new.py", "old.py", "pay.py"]


def test_a_question_is_answered_by_number_at_the_terminal(begin: Begin, tree: Path) -> None:
    run = begin("ask")
    terminal = Terminal(["agent", "attach", run], cwd=tree)
    shown = terminal.until("> ")
    assert "? Which?" in shown
    terminal.type("2\n")
    terminal.until("they said b")
    assert terminal.end() == 0


def test_a_question_can_be_answered_elsewhere(begin: Begin, tree: Path) -> None:
    run = begin("ask")
    terminal = Terminal(["agent", "attach", run], cwd=tree)
    terminal.until("> ")
    status = etude("agent", "status", cwd=tree)
    assert "waiting" in status.stdout
    assert "asks: Which?" in status.stdout
    assert etude("agent", "answer", run, "neither", cwd=tree).returncode == 0
    terminal.until("they said neither")
    assert terminal.end() == 0


def test_the_end_of_input_says_that_nobody_answers(begin: Begin, tree: Path) -> None:
    terminal = Terminal(["agent", "attach", begin("ask")], cwd=tree)
    terminal.until("> ")
    terminal.type("\x04")
    terminal.until("they said None")
    assert terminal.end() == 0


def test_ctrl_c_lets_go_of_a_run_that_was_attached_to(begin: Begin, tree: Path) -> None:
    run = begin("hang")
    terminal = Terminal(["agent", "attach", run], cwd=tree)
    terminal.until("turn 1")
    terminal.type("\x03")
    assert f"{run} goes on" in terminal.until("etude agent stop")
    assert terminal.end() == 130
    assert runs.find(run).state is RunState.RUNNING
    done = etude("agent", "stop", cwd=tree)
    assert (done.returncode, done.stdout) == (0, f"{run} is stopped; 2 files changed.\n")


def test_ctrl_c_leaves_a_question_open(begin: Begin, tree: Path) -> None:
    run = begin("ask")
    terminal = Terminal(["agent", "attach", run], cwd=tree)
    terminal.until("> ")
    terminal.type("\x03")
    terminal.until(f"{run} goes on")
    assert terminal.end() == 130
    assert runs.find(run).state is RunState.WAITING


def test_colours_are_left_out_where_they_are_not_wanted(edited: str, tree: Path) -> None:
    for env, has_colours in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        terminal = Terminal(["agent", "diff", edited], cwd=tree, env=env)
        assert terminal.end() == 0
        assert ("\x1b[31m" in terminal.shown) is has_colours, env
        assert "-    return amount * 0.2" in terminal.shown


def test_lines_fit_80_columns(begin: Begin, tree: Path) -> None:
    terminal = Terminal(["agent", "attach", begin("long")], cwd=tree)
    terminal.end()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", terminal.shown.replace("\r", "\n"))
    assert max(map(len, plain.splitlines())) <= 80
    assert "thirtieth" in plain, "words that do not fit are on the next line, not gone"


def test_a_crash_is_told_with_the_way_on(begin: Begin, tree: Path) -> None:
    run = begin("die")
    done = etude("agent", "attach", run, cwd=tree)
    assert done.returncode == 2
    assert f"etude agent resume {run}" in done.stdout
    assert "its process is gone; resume, apply or discard it" in etude("agent", "status", cwd=tree).stdout
    assert "the last words" in etude("agent", "log", run, cwd=tree).stderr


def test_nothing_of_a_run_is_obeyed_by_the_terminal(begin: Begin, tree: Path) -> None:
    done = etude("agent", "attach", begin("hostile"), cwd=tree)
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


# --- listing


def test_status_is_for_people_and_for_programs(edited: str, tree: Path, tmp_path: Path) -> None:
    done = etude("agent", "status", cwd=tree)
    assert done.stdout.startswith(f"{edited}  finished  edit\n")
    assert "3 files changed · The rate is 19 % now." in done.stdout
    assert etude("agent", "status", cwd=tmp_path).stdout.startswith("No agent has worked in this folder.")
    assert str(tree) in etude("agent", "status", "--all", cwd=tmp_path).stdout
    (listed,) = json.loads(etude("agent", "status", "--json", cwd=tree).stdout)["runs"]
    assert (listed["id"], listed["state"], listed["reason"]) == (edited, "stopped", "finished")
    assert listed["changed"] == ["new.py", "old.py", "pay.py"]


def test_runs_that_there_are_not_are_named(state: Path, tree: Path) -> None:
    for action in ("attach", "diff", "apply", "discard", "stop", "log", "resume"):
        done = etude("agent", action, "nope", cwd=tree)
        assert done.returncode == 2, action
        assert "There is no run nope." in done.stderr
    assert etude("agent", "diff", cwd=tree).returncode == 2


# --- the diff and applying


def test_the_diff_is_what_git_applies(edited: str, tree: Path) -> None:
    done = etude("agent", "diff", cwd=tree)
    assert (done.returncode, contents(tree)) == (0, EDITED_FILES)
    subprocess.run(["git", "apply"], cwd=tree, input=done.stdout.encode(), check=True)
    assert contents(tree) == {"new.py": "x = 1\n", "pay.py": NEW_PAY}
    assert (tree / "new.py").stat().st_mode & 0o111
    files = json.loads(etude("agent", "diff", "--json", cwd=tree).stdout)["files"]
    assert "".join(file["diff"] for file in files) == done.stdout


def test_names_that_are_not_utf_8_are_quoted_as_git_does(begin: Begin, tree: Path) -> None:
    run = begin("finish")
    asyncio.run(over(run))
    assert '"b/name-\\377.txt"' in etude("agent", "diff", run, cwd=tree).stdout


def test_yes_applies_everything_once(edited: str, tree: Path) -> None:
    done = etude("agent", "apply", "--yes", cwd=tree)
    assert (done.returncode, done.stdout) == (0, "applied new.py\napplied old.py\napplied pay.py\n")
    assert contents(tree) == {"new.py": "x = 1\n", "pay.py": NEW_PAY}
    assert "applied" in etude("agent", "status", cwd=tree).stdout
    again = etude("agent", "apply", "--yes", cwd=tree)
    assert (again.returncode, again.stdout) == (0, "already so: new.py\nalready so: old.py\nalready so: pay.py\n")


def test_edits_made_meanwhile_are_kept(edited: str, tree: Path) -> None:
    (tree / "pay.py").write_text(PAY.replace("# Rates.", "# Rates of today."), "utf-8")
    (tree / "old.py").write_text("y = 3\n", "utf-8")
    done = etude("agent", "apply", "--yes", cwd=tree)
    assert done.returncode == 1
    assert "merged with your edits: pay.py" in done.stdout
    assert "old.py" in done.stderr
    assert contents(tree)["pay.py"] == NEW_PAY.replace("# Rates.", "# Rates of today.")
    assert contents(tree)["old.py"] == "y = 3\n"


def test_hunks_are_taken_one_by_one(edited: str, tree: Path) -> None:
    terminal = Terminal(["agent", "apply"], cwd=tree)
    assert "new.py (new file)" in terminal.until("Take this new file? [yes/no/all/quit]")
    terminal.type("n\n")
    terminal.until("Take this removal?")
    terminal.type("n\n")
    assert "sum(items, 0.0)" in terminal.until("Take this hunk?")
    terminal.type("n\n")
    assert "0.19" in terminal.until("0.19")
    terminal.type("y\n")
    terminal.until("applied pay.py")
    assert terminal.end() == 1
    assert contents(tree) == EDITED_FILES | {"pay.py": PAY.replace("0.2", "0.19")}


@pytest.mark.parametrize(
    ("typed", "names"), [("y\nq\n", {"new.py", "old.py", "pay.py"}), ("a\n", {"new.py", "pay.py"})]
)
def test_all_and_quit_hold_for_the_rest(edited: str, tree: Path, typed: str, names: set[str]) -> None:
    terminal = Terminal(["agent", "apply"], cwd=tree)
    for letter in typed.splitlines():
        terminal.until("[yes/no/all/quit]")
        terminal.type(letter + "\n")
        terminal.shown = terminal.shown.replace("[yes/no/all/quit]", "")
    terminal.until("applied new.py")
    terminal.end()
    assert set(contents(tree)) == names
    assert (contents(tree)["pay.py"] == NEW_PAY) is (typed == "a\n")


def test_without_a_terminal_nothing_is_applied_unasked(edited: str, tree: Path) -> None:
    done = etude("agent", "apply", cwd=tree)
    assert (done.returncode, contents(tree)) == (2, EDITED_FILES)
    assert "--yes" in done.stderr
    done = etude("agent", "apply", "--json", cwd=tree)
    assert (done.returncode, contents(tree)) == (0, EDITED_FILES)
    done = etude("agent", "apply", "--json", "--yes", cwd=tree)
    assert json.loads(done.stdout)["files"][0] == {"path": "new.py", "outcome": "clean", "reason": ""}


def test_a_run_at_work_is_not_applied(begin: Begin, tree: Path) -> None:
    run = begin("hang")
    done = etude("agent", "apply", run, "--yes", cwd=tree)
    assert (done.returncode, contents(tree)) == (2, EDITED_FILES)
    assert "still at work" in done.stderr


def test_discarding_asks_and_leaves_nothing(edited: str, tree: Path, state: Path) -> None:
    assert etude("agent", "discard", cwd=tree).returncode == 2
    terminal = Terminal(["agent", "discard"], cwd=tree)
    terminal.until("and 3 changed files? [yes/no]")
    terminal.type("n\n")
    assert terminal.end() == 1
    assert etude("agent", "discard", "--yes", cwd=tree).stdout == f"{edited} is gone.\n"
    assert list((state / "runs").iterdir()) == []
    assert contents(tree) == EDITED_FILES


# --- what is given


def test_a_task_named_like_an_action_must_be_meant(state: Path, tree: Path) -> None:
    done = etude("agent", "--json", "status", cwd=tree, env=DOWN)
    assert done.returncode == 2
    assert "etude agent run status" in done.stderr
    assert runs.runs() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Nothing was asked"),
        (["  "], "Nothing was asked"),
        (["fix", "--best-of", "0"], "from 1 to"),
        (["fix", "--max-turns", "-1"], "--max-turns -1"),
        (["fix", "--model", "no-such-model"], "no-such-model"),
        (["start", "x" * 100_001], "100001 characters"),
    ],
)
def test_what_cannot_be_used_starts_nothing(state: Path, tree: Path, arguments: list[str], said: str) -> None:
    done = etude("agent", *arguments, cwd=tree, env={"ETUDE_CONFIG": os.devnull, "ETUDE_MODEL_URL": ""})
    assert (done.returncode, runs.runs()) == (2, [])
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent]\nmax_truns = 3\n", "max_truns"),
        ("[shadow]\nmechanism = 'magic'\n", "magic"),
        ("[[language_server]]\nname = 'x'\n", "command"),
    ],
)
def test_wrong_settings_are_told_before_anything_is_started(
    state: Path, tree: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "etude.toml").write_text(text, "utf-8")
    done = etude("agent", "start", "fix it", cwd=tree, env=DOWN | {"ETUDE_CONFIG": str(tmp_path / "etude.toml")})
    assert (done.returncode, runs.runs()) == (2, [])
    assert said in done.stderr
