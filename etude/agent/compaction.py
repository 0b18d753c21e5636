"""Making a conversation fit again without losing it: shorten old outputs, then drop old turns into the records.

    pinned = pinned_from(task.statement, turns)
    if is_due(messages, budget_tokens=budget, count=count):
        messages = await compact(messages, pinned=pinned, records=records, budget_tokens=budget, count=count)

No model is needed. What stays: the messages before the first answer; at their end a page of pinned facts and a table
of contents of what was dropped; and the last turns. What goes, or loses its middle, is kept word for word under
"turn:<number>", where the recall tool finds it. A turn (an answer and its results) stays or goes as a whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from etude.agent.dropped_turns import Piece, contents, keep_turn, shorten_turn, split_turns
from etude.agent.pinned import Pinned, facts
from etude.agent.records import Records
from etude.errors import EtudeError, PromptTooLong
from etude.messages import Message, Role

Count = Callable[[Message], int]
"""Tokens of one message in the context, its framing included."""

Summarise = Callable[[Sequence[Message]], Awaitable[str]]
"""A model's account of messages that are about to be dropped."""

# At this share of the budget it is time, and down to that one it goes: turns enough before the next time.
DUE = 0.8
_GOAL = 0.5
_LEAST_PROGRESS = 0.75

# These turns keep their outputs whole while there is any other way.
_RECENT_TURNS = 6

# What an output is shortened to, the milder way first.
_OLD_OUTPUT_CHARACTERS = 1_200
_TIGHT_CHARACTERS = (4_000, 1_200, 400)

# Entries a section of facts, and the share of the budget that the table of contents may take.
_PAGES = ((30, 0.08), (10, 0.03), (3, 0.01), (1, 0.0))

_MAX_SUMMARY_CHARACTERS = 6_000
_SUMMARY_SECONDS = 120.0

_TITLE = "# Where the work stands (earlier turns were dropped to make room)"
_END = "(The conversation goes on from here.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What every stage of one compaction needs."""

    pinned: Pinned
    records: Records
    budget: int
    count: Count
    head: tuple[Message, ...]
    """What came before the first answer, without an earlier page."""
    earlier_page: str
    summary: str = ""

    def total(self, messages: Sequence[Message]) -> int:
        return sum(map(self.count, messages))


def is_due(messages: Sequence[Message], *, budget_tokens: int, count: Count, share: float = DUE) -> bool:
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
    """Messages of at most the budget, about half of it where possible; the same ones while it is not due.

    Raises PromptTooLong when the messages before the first answer are too long by themselves.
    """
    if not is_due(messages, budget_tokens=budget_tokens, count=count):
        return list(messages)
    count = cache(count)
    head, turns = split_turns(messages, pinned.last_turn)
    head, page = _without_page(head, pinned.task)
    work = _Work(pinned=pinned, records=records, budget=budget_tokens, count=count, head=head, earlier_page=page)
    shortened = _shorten_old(work, turns)
    if fitting := _with_page(work, shortened, goal=_GOAL):
        return fitting
    if summarise:
        work = replace(work, summary=await _summary(work, turns, summarise))
    return _drop_old(work, shortened)


# Stage one: old outputs lose their middles.


def _shorten_old(work: _Work, turns: Sequence[Piece]) -> list[Piece]:
    old = max(0, len(turns) - _RECENT_TURNS)
    return [shorten_turn(turn, _OLD_OUTPUT_CHARACTERS, work.records) for turn in turns[:old]] + list(turns[old:])


# Stage two: old turns go.


def _drop_old(work: _Work, turns: Sequence[Piece]) -> list[Message]:
    num_dropped = _num_to_drop(work, turns)
    _keep(work, turns[:num_dropped])
    if fitting := _with_page(work, turns[num_dropped:], goal=_GOAL):
        return fitting
    _keep(work, turns[num_dropped:-1])
    return _squeezed(work, turns[-1:])


def _keep(work: _Work, turns: Sequence[Piece]) -> None:
    for turn in turns:
        keep_turn(turn, work.records)


def _num_to_drop(work: _Work, turns: Sequence[Piece]) -> int:
    """As few of the oldest as the goal allows, but never the last turn."""
    most, share = _PAGES[0]
    room = (_GOAL - share) * work.budget - work.total(_headed(work, _page(work, most, share)))
    kept = 0
    for turn in reversed(turns):
        room -= work.total(turn.messages)
        if room < 0:
            break
        kept += 1
    return min(len(turns) - kept, max(0, len(turns) - 1))


def _squeezed(work: _Work, last: Sequence[Piece]) -> list[Message]:
    """The goal is out of reach: shorten even the last turn's outputs; if its answer is what is long, drop it too."""
    tighter = [[shorten_turn(turn, characters, work.records) for turn in last] for characters in _TIGHT_CHARACTERS]
    for turns in (last, *tighter):
        if fitting := _with_page(work, turns, goal=_LEAST_PROGRESS):
            return fitting
    _keep(work, last)
    for turns, goal in (((), _LEAST_PROGRESS), (tighter[-1], 1.0), ((), 1.0)):
        if fitting := _with_page(work, turns, goal=goal):
            return fitting
    least = work.total(_headed(work, _page(work, *_PAGES[-1])))
    raise PromptTooLong(
        f"the task and what must stay with it take {least:,} tokens; the conversation may have {work.budget:,}. "
        "Use a model with a longer context, or a shorter task."
    )


def _with_page(work: _Work, turns: Sequence[Piece], *, goal: float) -> list[Message] | None:
    """The new conversation with as full a page as fits under the goal; None if it does not with the emptiest."""
    kept = [message for turn in turns for message in turn.messages]
    room = goal * work.budget - work.total(kept)
    for most, share in _PAGES:
        head = _headed(work, _page(work, most, share))
        if work.total(head) <= room:
            return [*head, *kept]
    return None


# The page.


def _page(work: _Work, most: int, share: float) -> str:
    listed = contents(work.records, lambda text: work.count(_said(text)) <= share * work.budget)
    parts = [
        _TITLE,
        "" if _holds_task(work.head, work.pinned.task) else f"## Task\n{work.pinned.task}",
        facts(work.pinned, most=most),
        f"## Summary of what was dropped\n{work.summary}" if work.summary and most > 1 else "",
        listed,
        _END,
    ]
    return "\n\n".join(part for part in parts if part)


def _headed(work: _Work, page: str) -> list[Message]:
    """The page is the end of the last message, since many chat formats allow no two of a person in a row."""
    *before, last = work.head or (_said(""),)
    if last.role is not Role.USER:
        return [*before, last, _said(page)]
    return [*before, replace(last, text=f"{last.text}\n\n{page}" if last.text else page)]


def _without_page(head: Sequence[Message], task: str) -> tuple[tuple[Message, ...], str]:
    """The head as it was before the last compaction, and the page that was added to it."""
    if not head or not head[-1].text.endswith(_END):
        return tuple(head), ""
    text, title, page = head[-1].text.rpartition(_TITLE)
    if not title or (task in head[-1].text and task not in text and f"## Task\n{task}" not in page):
        return tuple(head), ""
    stays = (replace(head[-1], text=text.removesuffix("\n\n")),) if text else ()
    return (*head[:-1], *stays), title + page


def _holds_task(head: Sequence[Message], task: str) -> bool:
    return any(task.strip() in message.text for message in head)


def _said(text: str) -> Message:
    return Message(role=Role.USER, text=text)


async def _summary(work: _Work, turns: Sequence[Piece], summarise: Summarise) -> str:
    """What a model makes of the turns that go; without one the table of contents has to do."""
    going = [message for turn in turns[: _num_to_drop(work, turns)] for message in turn.messages]
    earlier = [_said(work.earlier_page)] if work.earlier_page else []
    if not going:
        return ""
    try:
        async with asyncio.timeout(_SUMMARY_SECONDS):
            text = await summarise([*earlier, *going])
    except (EtudeError, TimeoutError):
        return ""
    # It must not look like the page it becomes a part of.
    text = text.replace(_TITLE, "").replace(_END, "").strip()
    record = work.records.keep("summary", text, title="summary of dropped turns")
    if len(text) <= _MAX_SUMMARY_CHARACTERS:
        return text
    return f'{text[:_MAX_SUMMARY_CHARACTERS].strip()}… (all of it: recall(id="{record.id}"))'
