"""The agent's loop: run(task, model, workspace, limits) → Trace."""

from collections.abc import Sequence

from etude.agent.events import Nobody, Observer, Person, ignore
from etude.agent.limits import Limits
from etude.agent.store import TraceStore
from etude.agent.toolbox import Tool
from etude.models.model import Model
from etude.tasks import Task
from etude.traces import Trace
from etude.workspace.workspace import Workspace

DEFAULT_LIMITS = Limits()
NOBODY = Nobody()


async def run(
    task: Task,
    model: Model,
    workspace: Workspace,
    limits: Limits = DEFAULT_LIMITS,
    *,
    observer: Observer = ignore,
    person: Person = NOBODY,
    tools: Sequence[Tool] | None = None,
    store: TraceStore | None = None,
    resume: Trace | None = None,
) -> Trace:
    """Work on the task until it is done or a limit is met; whatever goes wrong is in the Trace's stop reason."""
    raise NotImplementedError
