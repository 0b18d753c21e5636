"""Making a conversation fit again without losing it: shrink old outputs, then drop old turns into the records.

    pinned = pinned_from(task, trace.turns)
    messages = await compact(messages, pinned=pinned, records=records, budget_tokens=budget, count=count)

No model is needed. What stays: the messages before the first answer, a page of pinned facts with a table of contents
of what was dropped, and the last turns as they were. What goes is kept word for word as records "turn:<number>",
which the agent reads with the recall tool.
"""

from collections.abc import Awaitable, Callable, Sequence

from etude.agent.pinned import Pinned
from etude.agent.records import Records
from etude.messages import Message

Count = Callable[[Message], int]
"""Tokens of one message in the context, its framing included."""

Summarise = Callable[[Sequence[Message]], Awaitable[str]]
"""A model's account of messages that are about to be dropped."""


def is_due(messages: Sequence[Message], *, budget_tokens: int, count: Count, share: float = 0.8) -> bool:
    """Whether it is time to compact."""
    return sum(map(count, messages)) >= share * budget_tokens


async def compact(
    messages: Sequence[Message],
    *,
    pinned: Pinned,
    records: Records,
    budget_tokens: int,
    count: Count,
    summarise: Summarise | None = None,
) -> list[Message]:
    """Messages of at most `budget_tokens`, ideally half of them so that there is room to work; the same list when
    they are below the share already. Raises PromptTooLong when task and last turn alone are more than the budget."""
    raise NotImplementedError
