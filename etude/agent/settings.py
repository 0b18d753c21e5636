"""How runs work unless they are told otherwise: the table [agent] of etude.toml.

    [agent]
    max_turns = 100
    max_seconds = 3600          of the wall clock, without the time a person takes to answer
    max_tokens = 5_000_000      read and generated, without those the server still had in its cache
    max_cost = 2.0              in the currency of the prices
    context_tokens = 100_000    what the model can read and write at once
    network = false             whether commands may use it
    attempts_at_once = 4        of best-of-n; by default one after another, which a server with one slot likes best
    price_prompt = 3.0          of a million tokens
    price_reused = 0.3
    price_generated = 15.0

What a run is given comes before the settings.
"""

from typing import Annotated, Any

import msgspec

from etude.agent.limits import Limits, Prices
from etude.agent.run_values import RunOptions
from etude.errors import InputError
from etude.models.opening import settings_file, settings_table

Positive = Annotated[int, msgspec.Meta(gt=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
# A system prompt, a task and an answer have to fit.
Context = Annotated[int, msgspec.Meta(ge=2_000)]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table; None where it says nothing."""

    max_turns: Positive | None = None
    max_seconds: Amount | None = None
    max_tokens: Positive | None = None
    max_cost: Amount | None = None
    context_tokens: Context | None = None
    network: bool = False
    attempts_at_once: Positive = 1
    price_prompt: Amount = 0.0
    price_reused: Amount = 0.0
    price_generated: Amount = 0.0


def agent_settings() -> AgentSettings:
    """Raises InputError with what is wrong in the file."""
    table = settings_table("agent")
    try:
        return msgspec.convert(table, AgentSettings)
    except msgspec.ValidationError as error:
        names = ", ".join(AgentSettings.__struct_fields__)
        raise InputError(f"In {settings_file()}, [agent] cannot be used: {error}. It takes {names}.") from None


def limits_for(settings: AgentSettings, options: RunOptions) -> Limits:
    """What a run may take: what it was given, then the settings, then the defaults of Limits."""
    wanted: dict[str, Any] = {
        "turns": _first(options.max_turns, settings.max_turns),
        "seconds": _first(options.max_seconds, settings.max_seconds),
        "tokens": _first(options.max_tokens, settings.max_tokens),
        "cost": _first(options.max_cost, settings.max_cost),
        "context_tokens": settings.context_tokens,
    }
    prices = Prices(prompt=settings.price_prompt, reused=settings.price_reused, generated=settings.price_generated)
    return Limits(prices=prices, **{name: value for name, value in wanted.items() if value is not None})


def may_use_network(settings: AgentSettings, options: RunOptions) -> bool:
    return settings.network if options.network is None else options.network


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
