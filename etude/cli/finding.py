"""A line of `etude doctor`'s report: how one thing stands, and the way out."""

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """How one thing stands."""

    OK = "ok"
    NOTE = "note"
    """Not needed to use etude, but good to know."""
    NO_AGENT = "no agent"
    """The agent cannot work without and refuses to start; the rest of etude can."""
    MISSING = "missing"
    """etude cannot work without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A line of the report."""

    name: str
    standing: Standing
    detail: str
    way_out: str = ""


def ok(name: str, detail: str) -> Finding:
    return Finding(name=name, standing=Standing.OK, detail=detail)


def note(name: str, detail: str, way_out: str) -> Finding:
    return Finding(name=name, standing=Standing.NOTE, detail=detail, way_out=way_out)


def no_agent(name: str, detail: str, way_out: str) -> Finding:
    return Finding(name=name, standing=Standing.NO_AGENT, detail=detail, way_out=way_out)


def missing(name: str, detail: str, way_out: str) -> Finding:
    return Finding(name=name, standing=Standing.MISSING, detail=detail, way_out=way_out)
