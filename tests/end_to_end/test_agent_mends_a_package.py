"""The whole way: an agent in a shadow of a real package tests, reads, edits, tests again; the patch is landed."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dev import mended_package
from etude.agent.landing import land
from etude.agent.limits import Limits
from etude.agent.loop import run
from etude.agent.tool_choice import tools_for
from etude.assistant.apply.agent_edit import apply_with
from etude.messages import Completion, ToolCall
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.traces import StopReason, TurnError
from etude.workspace.isolation import isolation_problem
from etude.workspace.shadow import ShadowSettings, open_shadow

pytestmark = [
    pytest.mark.skipif(not mended_package.is_here(), reason="the package is not here; see dev/prepare_tests.py"),
    pytest.mark.skipif(isolation_problem() is not None, reason=f"no sandbox: {isolation_problem()}"),
]

SKETCH = """\
        except StopIteration:
            predicate = partial(operator.is_not, itr)
            iters = itertools.cycle(itertools.takewhile(predicate, iters))


def unique(seq, key=None):
"""


def call(tool: str, **arguments: object) -> Completion:
    return Completion(text="", tool_calls=(ToolCall(id=f"{tool}-1", name=tool, arguments=json.dumps(arguments)),))


def test_a_failing_test_is_mended_in_the_shadow_and_lands_on_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETUDE_STATE", str(tmp_path / "state"))
    root = tmp_path / "toolz"
    mended_package.unpack_broken(root)
    broken = (root / mended_package.BROKEN_FILE).read_text("utf-8")
    check = f"{sys.executable} -m pytest -q -p no:cacheprovider {mended_package.TEST_FILE}"
    model = ScriptedModel(
        [
            call("run", command=check),
            call("search", query="def interleave"),
            call("read", path=mended_package.BROKEN_FILE, first_line=218, last_line=245),
            call("edit", path=mended_package.BROKEN_FILE, sketch=SKETCH),
            call("run", command=check),
            call("finish", answer="interleave goes on with the sequences that are left."),
        ]
    )

    async def work() -> None:
        readable = (Path(sys.prefix), Path(sys.base_prefix))
        async with open_shadow(root, settings=ShadowSettings(readable=readable)) as shadow:
            task = Task(id="mend", statement="A test of toolz fails. Mend the code.", check=check)
            tools = tools_for(shadow, apply=apply_with(model))
            trace = await run(task, model, shadow, Limits(turns=10), tools=tools)
            assert (trace.stop_reason, trace.stop_message) == (StopReason.FINISHED, "")
            failed, _, read, edited, passed, _ = (turn.results[0] for turn in trace.turns)
            assert failed.error is TurnError.COMMAND_FAILED and "test_interleave" in failed.text
            assert "iters = itertools.cycle" in read.text
            assert edited.changed == (mended_package.BROKEN_FILE,)
            assert passed.exit_code == 0 and "51 passed" in passed.text
            assert str(root / mended_package.BROKEN_FILE) in failed.opened
            changes = [change for change in await shadow.changes() if not change.ignored]
        assert [change.path for change in changes] == [mended_package.BROKEN_FILE]
        assert (root / mended_package.BROKEN_FILE).read_text("utf-8") == broken
        await land(changes, root)

    asyncio.run(work())
    assert (root / mended_package.BROKEN_FILE).read_text("utf-8") == mended_package.right_text()
    subprocess.run([sys.executable, "-m", "pytest", "-q", mended_package.TEST_FILE], cwd=root, check=True)
