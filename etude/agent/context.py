"""The conversation of a run as it stands: what the model has read, what it reads next, and whether that still fits."""

from collections.abc import Sequence

import msgspec

from etude.agent.compaction import compact
from etude.agent.history import conversation, reply_to, spoken
from etude.agent.limits import Limits
from etude.agent.pinned import Pinned, pinned_from
from etude.agent.records import Records
from etude.errors import PromptTooLong
from etude.messages import Message, ToolSpec, Usage
from etude.traces import Turn

# From this share of the room on, the conversation is compacted.
FULL = 0.85
# Of code and prose in most vocabularies; corrected by what the model's server counts.
CHARACTERS_PER_TOKEN = 3.2
FRAMING_TOKENS = 8
# A server that counts otherwise by more than this counts something else.
MAX_CORRECTION = 3.0
# After a prompt that was too long, though we thought it fits.
SHRINK = 0.7
MAX_SHRINKS = 4


class Context:
    """`messages` were read by the model, `pending` are next. All counting is of what is new, none of the whole."""

    def __init__(self, limits: Limits, tools: Sequence[ToolSpec], records: Records) -> None:
        self.messages: list[Message] = []
        self.pending: list[Message] = []
        self.is_fresh = True
        """The model reads `pending` as the beginning of a conversation."""
        self._records = records
        self._room = float(limits.prompt_tokens)
        self._shrinks = 0
        self._correction = 1.0
        self._tools_tokens = _estimate(sum(len(msgspec.json.encode(spec)) for spec in tools))
        self._read_tokens = 0.0
        """Of `messages`, with the tools."""

    def begin(self, messages: Sequence[Message]) -> None:
        self.messages, self.pending, self.is_fresh = [], list(messages), True
        self._read_tokens = float(self._tools_tokens)

    def resume(self, turns: Sequence[Turn], added: Sequence[Message] = ()) -> None:
        """As it was after the last of these turns."""
        self.messages = conversation(turns)
        self.pending = [*reply_to(turns[-1]), *added]
        self.is_fresh = False
        self._read_tokens = self._tools_tokens + sum(map(self.count, self.messages))

    def start_over(self) -> None:
        """Send all of it again, as the beginning of a conversation."""
        self.begin([*self.messages, *self.pending])

    def count(self, message: Message) -> int:
        """Tokens of one message, by and large."""
        in_calls = sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
        return round(self._correction * (_estimate(len(message.text) + in_calls) + FRAMING_TOKENS))

    @property
    def num_tokens(self) -> int:
        """Of what the model reads next, by and large."""
        return round(self._read_tokens + sum(map(self.count, self.pending)))

    def is_full(self) -> bool:
        return self.num_tokens > FULL * self._room

    async def compact(self, statement: str, turns: Sequence[Turn]) -> bool:
        """Make room; whether that changed anything. Raises PromptTooLong when the rest alone is too much."""
        whole = [*self.messages, *self.pending]
        pinned: Pinned = pinned_from(statement, turns)
        # By our count it is time, so it has to be by that of the messages alone.
        budget = max(1, min(int(self._room - self._tools_tokens), sum(map(self.count, whole))))
        smaller = await compact(whole, pinned=pinned, records=self._records, budget_tokens=budget, count=self.count)
        if smaller == whole:
            return False
        self.begin(smaller)
        return True

    def shrink(self) -> None:
        """The model said that it was too much, so less fits than we thought. Raises PromptTooLong in the end."""
        self._shrinks += 1
        if self._shrinks > MAX_SHRINKS:
            raise PromptTooLong("The task, the tools and one answer alone are more than the model's context holds.")
        self._room = SHRINK * min(self._room, float(self.num_tokens))

    def said(self, turn: Turn) -> None:
        """The model has read `pending` and answered."""
        answer = spoken(turn)
        self._read_tokens = self._measured(turn.usage) or float(self.num_tokens + self.count(answer))
        self.messages += [*self.pending, answer]
        self.pending = reply_to(turn)
        self.is_fresh = False

    def _measured(self, usage: Usage) -> float | None:
        """What the server counted, from which we learn to count."""
        if not usage.prompt_tokens:
            return None
        ratio = self._correction * usage.prompt_tokens / max(1, self.num_tokens)
        self._correction = min(MAX_CORRECTION, max(1 / MAX_CORRECTION, ratio))
        return float(usage.prompt_tokens + usage.generated_tokens)


def _estimate(num_characters: int) -> int:
    return round(num_characters / CHARACTERS_PER_TOKEN)
