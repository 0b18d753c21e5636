"""`etude agent` with everything real: a process, a shadow, isolated commands, Apply; only the model plays a script."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from etude.agent import runs
from etude.agent.run_folder import RunFolder
from etude.agent.run_values import RunState
from tests.agent.model_server import ModelServer, call
from tests.command_line import Terminal, etude

PAY = "def total(items):\n    return sum(items)\n\n\ndef tax(amount):\n    return amount * 0.2\n"
FIXED = PAY.replace("0.2", "0.19")
TEST = "python3 -c 'from pay import tax; assert tax(100) == 19, tax(100)'"
SKETCH = "# ... existing code ...\n\ndef tax(amount):\n    return amount * 0.19\n"
FIX = [
    call("run", command=TEST),
    call("edit", path="pay.py", sketch=SKETCH),
    call("run", command=TEST),
    call("finish", answer="The rate is 19 % now."),
]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ETUDE_CONFIG", os.devnull)
    yield tmp_path / "state"
    for folder in map(RunFolder, (tmp_path / "state" / "runs").glob("*")):
        if folder.is_alive():
            os.kill(folder.pid(), signal.SIGKILL)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "pay.py").write_text(PAY, "utf-8")
    return tree


def served(server: ModelServer) -> dict[str, str]:
    return {"ETUDE_MODEL_URL": server.url}


def contents(tree: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in tree.iterdir() if path.is_file()}


def the_run() -> RunFolder:
    (summary,) = runs.runs()
    return RunFolder(runs.folder() / summary.id)


def wait_for(state: RunState) -> None:
    until = time.monotonic() + 30
    while runs.runs()[0].state is not state:
        assert time.monotonic() < until, runs.runs()[0]
        time.sleep(0.02)


def test_a_failing_test_is_fixed_beside_the_tree_and_applied(tree: Path) -> None:
    with ModelServer(FIX) as server:
        done = etude("agent", "fix", "the", "tax", "--check", TEST, "--yes", cwd=tree, env=served(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AssertionError: 20.0" in done.stdout
    assert "its check passes" in done.stdout
    assert "applied pay.py" in done.stdout
    assert contents(tree) == {"pay.py": FIXED}
    assert "fix the tax" in server.requests[0]["messages"][-1]["content"]
    assert not the_run().shadow.exists()


def test_the_tree_stays_as_it_is_until_it_is_applied(tree: Path) -> None:
    with ModelServer(FIX) as server:
        done = etude("agent", "fix it", cwd=tree, env=served(server))
    assert (done.returncode, contents(tree)) == (0, {"pay.py": PAY})
    assert f"etude agent apply {the_run().id}" in done.stdout
    assert "+    return amount * 0.19" in etude("agent", "diff", cwd=tree).stdout


def test_at_a_terminal_the_end_asks(tree: Path) -> None:
    with ModelServer(FIX) as server:
        terminal = Terminal(["agent", "fix it"], cwd=tree, env=served(server))
        shown = terminal.until("Apply 1 file (1 hunk) to your folder? [yes/no]")
        terminal.type("y\n")
        terminal.until("applied pay.py")
        assert terminal.end() == 0
    assert "The rate is 19 % now." in shown
    assert contents(tree) == {"pay.py": FIXED}


def test_a_check_that_fails_in_the_end_is_said_and_nothing_is_applied(tree: Path) -> None:
    with ModelServer([call("finish", answer="All is well.")]) as server:
        done = etude("agent", "fix it", "--check", TEST, "--yes", cwd=tree, env=served(server))
    assert (done.returncode, contents(tree)) == (1, {"pay.py": PAY})
    assert "its check fails" in done.stdout


def test_a_limit_stops_it_and_it_goes_on_when_resumed(tree: Path) -> None:
    with ModelServer(FIX) as server:
        done = etude("agent", "fix it", "--max-turns", "2", cwd=tree, env=served(server))
        assert done.returncode == 1
        assert "max turns" in done.stdout
        run = the_run().id
        assert etude("agent", "resume", run, "--max-turns", "10", cwd=tree, env=served(server)).returncode == 0
        assert etude("agent", "attach", run, cwd=tree).returncode == 0
    assert [change.after for change in (the_run().changes() or [])] == [FIXED.encode()]
    # The second half of the script was asked for with the first half as history.
    assert sum(message["role"] == "assistant" for message in server.requests[-1]["messages"]) == 3


def test_a_killed_run_keeps_its_work_and_goes_on(tree: Path) -> None:
    held = Event()
    with ModelServer(FIX, wait=held) as server:
        etude("agent", "start", "fix it", cwd=tree, env=served(server))
        until = time.monotonic() + 30
        while len(server.requests) < 4 and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(the_run().pid(), signal.SIGKILL)
        wait_for(RunState.CRASHED)
        assert "+    return amount * 0.19" in etude("agent", "diff", cwd=tree).stdout
        held.set()
        etude("agent", "resume", the_run().id, cwd=tree, env=served(server))
        done = etude("agent", "attach", cwd=tree)
    assert done.returncode == 0, done.stdout
    assert etude("agent", "apply", "--yes", cwd=tree).returncode == 0
    assert contents(tree) == {"pay.py": FIXED}


def test_ctrl_c_in_the_foreground_stops_the_run_and_keeps_its_work(tree: Path) -> None:
    with ModelServer(FIX, wait=Event()) as server:
        terminal = Terminal(["agent", "fix it"], cwd=tree, env=served(server))
        terminal.until("turn 4")
        terminal.type("\x03")
        shown = terminal.until("etude agent apply")
        assert terminal.end() == 1
    assert "Stopping; what it did is kept." in shown
    assert [change.path for change in (the_run().changes() or [])] == ["pay.py"]
    with the_run().held():
        pass


def test_a_finished_run_takes_another_task(tree: Path) -> None:
    more = [*FIX, call("write", path="NOTES.md", text="19 %\n"), call("finish", answer="Noted.")]
    with ModelServer(more) as server:
        assert etude("agent", "fix it", cwd=tree, env=served(server)).returncode == 0
        run = the_run().id
        assert "is finished" in etude("agent", "resume", run, cwd=tree, env=served(server)).stderr
        assert etude("agent", "resume", run, "write", "it", "down", cwd=tree, env=served(server)).returncode == 0
        assert "Noted." in etude("agent", "attach", cwd=tree).stdout
    assert [change.path for change in (the_run().changes() or [])] == ["NOTES.md", "pay.py"]


def test_the_best_of_three_is_kept(tree: Path) -> None:
    def script(body: dict[str, Any]) -> list[dict[str, Any]]:
        rate = {0: "0.25", 2: "0.19", 3: "0.21"}[body.get("seed", 0)]
        sketch = SKETCH.replace("0.19", rate)
        return [call("edit", path="pay.py", sketch=sketch), call("finish", answer=f"It is {rate}.")]

    with ModelServer(script) as server:
        done = etude("agent", "fix it", "--best-of", "3", "--check", TEST, "--yes", cwd=tree, env=served(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Attempt 2 was kept: its check passes, where that of 1 and 3 fails." in done.stdout
    assert "It is 0.19." in done.stdout
    assert contents(tree) == {"pay.py": FIXED}


def test_attempts_made_at_once_are_told_apart(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "etude.toml").write_text("[agent]\nattempts_at_once = 2\n", "utf-8")
    meeting = Barrier(2)

    def script(body: dict[str, Any]) -> list[dict[str, Any]]:
        if not any(message["role"] == "assistant" for message in body["messages"]):
            meeting.wait(30)
        return [call("ask", question="Which?"), *FIX[1:]]

    with ModelServer(script) as server:
        env = served(server) | {"ETUDE_CONFIG": str(tmp_path / "etude.toml")}
        assert etude("agent", "start", "fix it", "--best-of", "2", cwd=tree, env=env).returncode == 0
        run = the_run().id
        for name in ("first", "second"):
            wait_for(RunState.WAITING)
            assert etude("agent", "answer", run, name, cwd=tree).returncode == 0
        done = etude("agent", "attach", cwd=tree)
    assert done.returncode == 0, done.stdout
    assert "> first" in done.stdout
    assert "> second" in done.stdout
    assert "· 1: edit pay.py" in done.stdout
    assert "· 2: edit pay.py" in done.stdout


def test_the_best_so_far_is_kept_when_it_is_stopped(tree: Path) -> None:
    over = Event()

    def script(body: dict[str, Any]) -> list[dict[str, Any]]:
        if body.get("seed", 0) == 3:
            over.wait(60)
        return [call("edit", path="pay.py", sketch=SKETCH), call("finish", answer="It is done.")]

    with ModelServer(script) as server:
        terminal = Terminal(["agent", "fix it", "--best-of", "3", "--check", TEST], cwd=tree, env=served(server))
        terminal.until("Attempt 3 of 3.")
        terminal.type("\x03")
        shown = terminal.until("etude agent apply")
        assert terminal.end() == 1
        over.set()
    assert "It was stopped after 2 of 3 attempts." in shown
    assert [change.after for change in (the_run().changes() or [])] == [FIXED.encode()]


def test_a_question_waits_for_the_person(tree: Path) -> None:
    ask = [call("ask", question="Which rate?", choices=["19 %", "7 %"]), call("finish", answer="Good.")]
    with ModelServer(ask) as server:
        etude("agent", "start", "fix it", cwd=tree, env=served(server))
        wait_for(RunState.WAITING)
        terminal = Terminal(["agent", "attach"], cwd=tree)
        terminal.until("> ")
        terminal.type("2\n")
        terminal.until("finished")
        assert terminal.end() == 0
    assert "The person answers: 7 %" in json.dumps(server.requests[-1]["messages"])


def test_nobody_is_asked_where_there_is_no_terminal(tree: Path) -> None:
    with ModelServer([call("ask", question="Which rate?"), call("finish", answer="Good.")]) as server:
        done = etude("agent", "fix it", cwd=tree, env=served(server))
    assert done.returncode == 0
    assert "> (no answer)" in done.stdout


def test_a_server_that_is_gone_is_said(tree: Path) -> None:
    done = etude("agent", "fix it", cwd=tree, env={"ETUDE_MODEL_URL": "http://127.0.0.1:9/v1"})
    assert done.returncode == 2
    assert "model failed" in done.stdout
    assert "127.0.0.1:9" in done.stdout


def test_a_folder_that_was_removed_meanwhile_is_said(tree: Path) -> None:
    with ModelServer(FIX) as server:
        etude("agent", "fix it", cwd=tree, env=served(server))
        run = the_run().id
        (tree / "pay.py").unlink()
        tree.rmdir()
        done = etude("agent", "apply", run, "--yes", cwd=tree.parent)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_errors_that_a_change_brings_are_shown(tree: Path) -> None:
    text = PAY.replace("def tax(amount):", "def tax(amount: int) -> int:").replace("amount * 0.2", "'none'")
    with ModelServer([call("write", path="pay.py", text=text), call("finish", answer="Done.")]) as server:
        done = etude("agent", "break it", cwd=tree, env=served(server))
    assert done.returncode == 0
    assert re.search(r"^  \+ pay\.py:6:\d+ error: .*\[ty .*\]$", done.stdout, re.MULTILINE), done.stdout
