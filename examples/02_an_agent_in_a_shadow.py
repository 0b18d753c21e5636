"""An agent mends a file in a shadow; the file itself stays as it is until its change is landed.

    python examples/02_an_agent_in_a_shadow.py

The model is scripted, so it needs no weights and always says the same. It needs bubblewrap.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from etude.agent.landing import land
from etude.agent.loop import run
from etude.agent.tool_choice import tools_for
from etude.assistant.apply.agent_edit import apply_with
from etude.edits import unified_diff
from etude.messages import Completion, ToolCall
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.workspace.shadow import open_shadow

FILE = "def area(width, height):\n    return width + height\n"
SKETCH = "def area(width, height):\n    return width * height\n"
CHECK = "python3 -c 'import shapes; assert shapes.area(2, 3) == 6'"


def call(tool: str, **arguments: str) -> Completion:
    return Completion(text="", tool_calls=(ToolCall(id=tool, name=tool, arguments=json.dumps(arguments)),))


async def main(root: Path) -> None:
    (root / "shapes.py").write_text(FILE)
    model = ScriptedModel(
        [
            call("run", command=CHECK),
            call("edit", path="shapes.py", sketch=SKETCH),
            call("run", command=CHECK),
            call("finish", answer="An area is a product."),
        ]
    )
    async with open_shadow(root) as shadow:
        task = Task(id="area", statement="The area is wrong.", check=CHECK)
        trace = await run(task, model, shadow, tools=tools_for(shadow, apply=apply_with(model)))
        changes = [change for change in await shadow.changes() if not change.ignored]
    for turn in trace.turns:
        result = turn.results[0]
        print(f"{turn.number}. {result.call.name}: {result.text.splitlines()[-1]}")
    print("untouched so far" if (root / "shapes.py").read_text() == FILE else "changed already")
    await land(changes, root)
    print(unified_diff("shapes.py", FILE, (root / "shapes.py").read_text()), end="")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="etude-example-") as folder:
        asyncio.run(main(Path(folder)))
