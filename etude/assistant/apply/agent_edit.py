"""Apply as the agent's edit tool needs it, which lives in a room below: apply_with(model)."""

from etude.agent.tools.edit import Applied, Apply
from etude.assistant.apply.engine import apply
from etude.assistant.apply.request import AbstainReason, ApplyRequest, ApplyResult
from etude.errors import SketchUnusable
from etude.models.model import Model


def apply_with(model: Model) -> Apply:
    """Merges sketches; the model is asked where several places would fit."""

    async def merged(path: str, text: str, sketch: str, instruction: str) -> Applied:
        request = ApplyRequest(path=path, text=text, sketch=sketch, instruction=instruction)
        try:
            async for event in apply(request, model):
                if isinstance(event, ApplyResult):
                    return _applied(text, event)
        except SketchUnusable as error:
            return Applied(text=None, reason=str(error))
        raise AssertionError("apply ended without an ApplyResult")

    return merged


def _applied(text: str, result: ApplyResult) -> Applied:
    if result.patch is not None:
        return Applied(text=result.patch.apply(text))
    assert result.abstention
    if result.abstention.reason is AbstainReason.NO_CHANGE:
        return Applied(text=text)
    return Applied(text=None, reason=result.abstention.message)
