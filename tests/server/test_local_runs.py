"""The panel with the real runs: processes of their own, their folders on disk, and the real landing."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.agent import runs
from etude.agent.run_folder import RunFolder
from etude.server.local_runs import LocalRuns
from tests.agent.run_program import EDITED_FILES, NEW_PAY
from tests.server.test_agent_socket import Panel

PROGRAM = (sys.executable, str(Path(__file__).parents[1] / "agent" / "run_program.py"))


@pytest.fixture
def panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_server) -> Iterator[Panel]:
    state = tmp_path / "state"
    monkeypatch.setenv("ETUDE_STATE", str(state))
    for name, text in EDITED_FILES.items():
        (tmp_path / "project").joinpath(name).write_text(text)
    with start_server(runs=LocalRuns(PROGRAM)).socket(path="/agent") as socket:
        yield Panel(socket)
    for summary in runs.runs():
        folder = RunFolder(state / "runs" / summary.id)
        if folder.is_alive():
            os.kill(folder.pid(), signal.SIGKILL)


def test_a_process_is_watched_to_its_end_and_its_hunks_land(panel: Panel, tmp_path: Path):
    run = panel.start("edit")
    panel.ask("attach", run=run)
    events = panel.until("stopped")
    assert [event["event"] for event in events][:3] == ["started", "turn", "text"]
    changes = panel.ask("changes", run=run)
    assert [(file["path"], file["kind"], len(file["hunks"])) for file in changes["files"]] == [
        ("new.py", "added", 1),
        ("old.py", "removed", 1),
        ("pay.py", "modified", 2),
    ]
    accepted = [{"number": 1}, {"number": 2, "hunks": [1]}]
    landed = panel.ask("land", run=run, version=changes["version"], accepted=accepted)
    assert {file["path"]: file["state"] for file in landed["files"]} == {"old.py": "clean", "pay.py": "clean"}
    project = tmp_path / "project"
    assert not (project / "old.py").exists()
    assert (project / "pay.py").read_text() == NEW_PAY.replace("sum(items, 0.0)", "sum(items)")
    assert panel.ask("list")["runs"][0]["state"] == "applied"
    panel.ask("undo", run=run)
    assert {name: (project / name).read_text() for name in EDITED_FILES} == EDITED_FILES


def test_a_process_asks_waits_and_is_answered(panel: Panel):
    run = panel.start("ask")
    panel.ask("attach", run=run)
    asked = panel.until("question")[-1]
    panel.socket.send({"type": "answer", "id": "a", "run": run, "question": asked["id"], "text": "the b"})
    assert panel.until("stopped")[-1]["answer"] == "they said the b"


def test_a_process_is_stopped_and_its_run_discarded(panel: Panel):
    run = panel.start("hang")
    panel.ask("attach", run=run)
    panel.until("turn")
    panel.socket.send({"type": "stop", "id": "s", "run": run})
    assert panel.until("stopped")[-1]["reason"] == "stopped"
    assert panel.ask("discard", run=run)["type"] == "done"
    assert panel.ask("list")["runs"] == []


def test_a_process_that_dies_is_told_as_crashed(panel: Panel):
    run = panel.start("die")
    panel.ask("attach", run=run)
    assert "the last words" in panel.until("stopped")[-1]["message"]
    assert panel.ask("list")["runs"][0]["state"] == "crashed"
