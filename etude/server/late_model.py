"""A model that is still being loaded: the page opens at once, and an answer waits only when it needs the model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum

from etude.errors import EtudeError, boundary
from etude.messages import Chunk, Completion, Prompt, Sampling
from etude.models.model import Model
from etude.server.wire import ModelState

ModelLoader = Callable[[], Awaitable[Model]]


class ModelPhase(StrEnum):
    """How far the loading is."""

    LOADING = "loading"
    """Not here yet; calls wait."""
    READY = "ready"
    """Answers."""
    FAILED = "failed"
    """Could not be loaded; calls raise the reason."""


class LateModel:
    """A Model by delegation. `begin` starts the loading; listeners hear of each change of state."""

    def __init__(self, load: ModelLoader, *, name: str) -> None:
        self._load = load
        self._name = name
        self._task: asyncio.Task[Model] | None = None
        self._listeners: set[Callable[[ModelState], None]] = set()
        self.state = ModelState(name=name, phase=ModelPhase.LOADING)

    @property
    def name(self) -> str:
        return self._name

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._loading())
            # Whoever needs the model hears of a failure; when nobody does, that is no error of its own.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def listen(self, listener: Callable[[ModelState], None]) -> Callable[[], None]:
        """Call `listener` on each change; returns the way to stop."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def model(self) -> Model:
        """The loaded model; raises what loading raised."""
        self.begin()
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        async for item in (await self.model()).complete(prompt, sampling, draft=draft):
            yield item

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        return await (await self.model()).score(token_ids, start=start)

    async def encode(self, prompt: Prompt) -> list[int]:
        return await (await self.model()).encode(prompt)

    async def close(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError, EtudeError):
            await (await self._task).close()

    async def _loading(self) -> Model:
        try:
            with boundary("Loading the model"):
                model = await self._load()
        except EtudeError as error:
            self._now(ModelState(name=self._name, phase=ModelPhase.FAILED, message=str(error)))
            raise
        self._name = model.name
        self._now(ModelState(name=model.name, phase=ModelPhase.READY))
        return model

    def _now(self, state: ModelState) -> None:
        self.state = state
        for listener in tuple(self._listeners):
            listener(state)


def loaded_in_background(load: Callable[[], Model], *, name: str) -> LateModel:
    """For a `load` that computes: it runs in a thread, and the page goes on meanwhile."""

    async def load_in_thread() -> Model:
        return await asyncio.to_thread(load)

    return LateModel(load_in_thread, name=name)


def already_loaded(model: Model) -> LateModel:
    async def load() -> Model:
        return model

    return LateModel(load, name=model.name)
