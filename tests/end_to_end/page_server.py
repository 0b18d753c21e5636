"""A server for the browser tests, as its own process: `python page_server.py ROOT PORT TOKEN [OPTION …]`.

Options are `--read-only`, `--slow` and `--real-agent`; without the last the agent is scripted (`agent_script.py`).

It prints the port once it listens. `--slow` swaps in an engine that takes the sketch as the whole new file
and sends its hunks one by one, each when the test touches the next numbered file `step-N` in the folder
beside ROOT; so a test sees every stage without waiting for a clock.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from agent_script import CHANGES, script

from etude.assistant.apply.engine import apply
from etude.assistant.apply.request import ApplyEvent, ApplyRequest, ApplyResult, Engine, HunkReady, Progress
from etude.edits import patch_from_texts, split_lines
from etude.messages import Usage
from etude.models.model import Model
from etude.models.scripted import ScriptedModel
from etude.server.app import build_app, listen, server_for
from etude.server.local_runs import LocalRuns
from etude.server.scripted_runs import ScriptedRuns


def stepwise(steps: Path):
    """The engine of `--slow`."""

    async def step(number: int) -> None:
        while not (steps / f"step-{number}").exists():  # noqa: ASYNC110 (another process makes it)
            await asyncio.sleep(0.01)

    async def apply_stepwise(request: ApplyRequest, model: Model) -> AsyncIterator[ApplyEvent]:
        yield Progress(stage="finding the places", total=3)
        changed = "".join(line for line in split_lines(request.sketch) if not line.startswith("```")).rstrip() + "\n"
        patch = patch_from_texts(request.path, request.text, changed)
        for number, edit in enumerate(patch.edits, start=1):
            await step(number)
            yield Progress(stage="choosing between 2 places", done=number, total=len(patch.edits) + 1)
            yield HunkReady(edit=edit)
        await step(len(patch.edits) + 1)
        usage = Usage(prompt_tokens=412, reused_tokens=96)
        yield ApplyResult(patch=patch, engine=Engine.MERGE, model=model.name, usage=usage, seconds=1.4)

    return apply_stepwise


def main() -> None:
    root, port, token, *options = sys.argv[1:]
    app = build_app(
        Path(root),
        model=ScriptedModel(name="smollm2-135m"),
        token=token,
        read_only="--read-only" in options,
        runs=LocalRuns() if "--real-agent" in options else ScriptedRuns(script, changes=CHANGES, name="scripted-1"),
        apply=stepwise(Path(root).parent) if "--slow" in options else apply,
    )
    with listen(int(port)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        server_for(app).run(sockets=[listener])


if __name__ == "__main__":
    main()
