"""A question with a checkable answer: Task. How it is attempted is `agent/loop.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What an agent is asked to do: Task(id="a1", statement="Fix the failing test in tests/test_pay.py.")."""

    id: str
    statement: str
    """In the words of a person."""
    check: str = ""
    """A shell command that succeeds when the task is done, e.g. "pytest -q tests/test_pay.py"; may be empty."""
