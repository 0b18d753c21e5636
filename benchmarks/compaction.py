"""What making room costs: `python benchmarks/compaction.py [--save] [--turns 2000] [--rounds 7]`.

A conversation of that many turns, about 200 tokens each, is compacted with its records on disk; then they are opened
again as a resumed run does, searched for a line that is nowhere, and one turn is read back.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.results import save_results
from etude.agent.compaction import compact
from etude.agent.pinned import Pinned
from etude.agent.records import Records
from etude.messages import Message, Role, ToolCall

LINES_AN_OUTPUT = 45
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    num_turns: int
    num_tokens_before: int
    num_tokens_after: int
    num_dropped: int
    """Turns that are only in the records now."""
    compact_seconds: float
    """Medians, as all of these."""
    open_seconds: float
    search_seconds: float
    read_seconds: float


def count(message: Message) -> int:
    return 4 + len(message.text) // CHARACTERS_PER_TOKEN + sum(len(call.arguments) // 4 for call in message.tool_calls)


def conversation(num_turns: int) -> list[Message]:
    messages = [Message(role=Role.SYSTEM, text="You are an agent."), Message(role=Role.USER, text="Fix the tests.")]
    for number in range(1, num_turns + 1):
        call = ToolCall(id=f"c{number}", name="run", arguments=f'{{"command": "pytest -q tests/test_{number}.py"}}')
        output = "\n".join(f"turn {number}, line {line}" for line in range(LINES_AN_OUTPUT))
        messages += [
            Message(role=Role.ASSISTANT, text=f"Turn {number}.", tool_calls=(call,)),
            Message(role=Role.TOOL, text=output, tool_call_id=call.id),
        ]
    return messages


def measure(num_turns: int, rounds: int) -> Measured:
    messages = conversation(num_turns)
    before = sum(map(count, messages))
    times: list[Sequence[float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            records = Records(Path(folder))
            task = Pinned(task="Fix the tests.", last_turn=num_turns)
            work = compact(messages, pinned=task, records=records, budget_tokens=before, count=count)
            started = time.perf_counter()
            smaller = asyncio.run(work)
            compacting = time.perf_counter() - started
            opening = seconds(lambda folder=folder: Records(Path(folder)))
            searching = seconds(lambda records=records: records.search("a line that is nowhere"))
            reading = seconds(lambda records=records: records.read("turn:1"))
            times.append((compacting, opening, searching, reading))
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return Measured(
        num_turns=num_turns,
        num_tokens_before=before,
        num_tokens_after=sum(map(count, smaller)),
        num_dropped=len(records.contents("turn")),
        compact_seconds=medians[0],
        open_seconds=medians[1],
        search_seconds=medians[2],
        read_seconds=medians[3],
    )


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    measured = measure(options.turns, options.rounds)
    for name, value in asdict(measured).items():
        print(f"{name:20} {value * 1000:,.1f} ms" if name.endswith("seconds") else f"{name:20} {value:,}")
    if options.save:
        save_results("compaction", asdict(measured))


if __name__ == "__main__":
    main()
