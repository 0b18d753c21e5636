"""Which tools a run offers: those that its workspace can serve."""

from etude.agent.toolbox import Tool
from etude.agent.tools.ask import ASK
from etude.agent.tools.checkpoint import CHECKPOINT, RESTORE
from etude.agent.tools.diagnostics import DIAGNOSTICS
from etude.agent.tools.edit import REPLACE, Apply, edit_with
from etude.agent.tools.finish import FINISH
from etude.agent.tools.list import LIST
from etude.agent.tools.navigate import DEFINITION, REFERENCES
from etude.agent.tools.plan import PLAN
from etude.agent.tools.read import READ
from etude.agent.tools.recall import RECALL
from etude.agent.tools.run import run_tool
from etude.agent.tools.search import SEARCH
from etude.agent.tools.write import WRITE
from etude.workspace.workspace import Checkpointed, Navigable, Workspace


def tools_for(workspace: Workspace, *, apply: Apply | None = None, network: bool = False) -> list[Tool]:
    """With `apply` the edit tool takes sketches, without it exact replacements; `network` is for commands."""
    edit = edit_with(apply) if apply else REPLACE
    tools: list[Tool] = [READ, LIST, SEARCH, edit, WRITE, run_tool(network=network), DIAGNOSTICS]
    if isinstance(workspace, Navigable):
        tools += [DEFINITION, REFERENCES]
    if isinstance(workspace, Checkpointed):
        tools += [CHECKPOINT, RESTORE]
    return [*tools, RECALL, PLAN, ASK, FINISH]
