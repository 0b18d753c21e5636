"""How much a run may take, and what it has taken so far: Limits, Prices, Spent."""

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from etude.messages import Usage
from etude.traces import StopReason, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a million tokens cost, in whatever currency the person thinks in."""

    prompt: float = 0.0
    reused: float = 0.0
    """Prompt tokens that the server still had in its cache."""
    generated: float = 0.0

    def cost(self, usage: Usage) -> float:
        fresh = max(0, usage.prompt_tokens - usage.reused_tokens)
        spent = fresh * self.prompt + usage.reused_tokens * self.reused + usage.generated_tokens * self.generated
        return spent / 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may take: Limits(turns=50, cost=2.0, prices=Prices(prompt=3, generated=15))."""

    turns: int = 300
    tokens: int = 20_000_000
    """Read and generated; those a server still had in its cache are not counted."""
    seconds: float = 4 * 3600.0
    """Of the wall clock, without the time a person takes to answer."""
    cost: float | None = None
    """In the currency of `prices`."""
    prices: Prices = Prices()
    context_tokens: int = 100_000
    """What the model can read and write at once; the conversation is compacted before it is full."""
    answer_tokens: int = 16_000
    """Of one answer; a longer one is cut."""
    result_characters: int = 24_000
    """Of one tool's answer in the conversation; the rest is kept aside, to be read in parts."""
    temperature: float = 0.0
    retries: int = 5
    """How often a server that let us down is asked again."""
    retry_seconds: float = 1.0
    """Before the first repetition; then twice as long each time."""

    @property
    def longest_answer(self) -> int:
        """Tokens of one answer, so that a small context still has room for a question."""
        return max(1, min(self.answer_tokens, self.context_tokens // 4))

    @property
    def prompt_tokens(self) -> int:
        """What the conversation may fill, so that an answer still fits."""
        return max(1, self.context_tokens - self.longest_answer)

    @property
    def longest_result(self) -> int:
        """Characters; one result fills no more than about a fifth of the context."""
        return max(400, min(self.result_characters, int(self.context_tokens * 0.6)))


@runtime_checkable
class KnowsItsContext(Protocol):
    """A model that says how many tokens it reads and writes at once."""

    @property
    def context_tokens(self) -> int: ...


def fitted(limits: Limits, model: object) -> Limits:
    """No more context than the model has, where it says."""
    if not isinstance(model, KnowsItsContext):
        return limits
    return replace(limits, context_tokens=min(limits.context_tokens, model.context_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has taken so far."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, turn: Turn) -> "Spent":
        usage = turn.usage
        tokens = max(0, usage.prompt_tokens - usage.reused_tokens) + usage.generated_tokens
        return replace(self, turns=self.turns + 1, tokens=self.tokens + tokens, cost=self.cost + turn.cost)


def spent_on(turns: Iterable[Turn]) -> Spent:
    spent = Spent()
    for turn in turns:
        spent = spent.plus(turn)
    return spent


def exceeded(limits: Limits, spent: Spent, seconds: float) -> tuple[StopReason, str] | None:
    """The limit that is reached, with a sentence for a person."""
    if spent.turns >= limits.turns:
        return StopReason.MAX_TURNS, f"It took the {limits.turns} turns it was given."
    if spent.tokens >= limits.tokens:
        return StopReason.MAX_TOKENS, f"It used {spent.tokens:,} tokens; {limits.tokens:,} were given."
    if limits.cost is not None and spent.cost >= limits.cost:
        return StopReason.MAX_COST, f"It cost {spent.cost:.2f}; {limits.cost:.2f} was given."
    if seconds >= limits.seconds:
        return out_of_time(limits)
    return None


def out_of_time(limits: Limits) -> tuple[StopReason, str]:
    return StopReason.MAX_SECONDS, f"It took the {limits.seconds:g} seconds it was given."


class OutOfTime(Exception):
    """The seconds of the run are over; raised where something is waited for."""


class Clock:
    """The seconds a run has worked; it stands still while a person is asked."""

    def __init__(self, *, already: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now() - already

    @property
    def seconds(self) -> float:
        return self._now() - self._started

    @contextmanager
    def paused(self) -> Generator[None]:
        since = self._now()
        try:
            yield
        finally:
            self._started += self._now() - since
