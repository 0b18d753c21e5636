"""Merge a sketch into a file: `apply(request, model)` streams events and ends with the result."""

from collections.abc import AsyncIterator

from etude.assistant.apply.request import ApplyEvent, ApplyRequest, Engine
from etude.models.model import Model


def apply(request: ApplyRequest, model: Model, *, engine: Engine | None = None) -> AsyncIterator[ApplyEvent]:
    """Stream Progress and HunkReady, then exactly one ApplyResult; never changes anything on disk.

    `engine` None takes the default for the model. Raises SketchUnusable when the sketch holds no edit,
    and what the model raises.
    """
    raise AssertionError("being built")
