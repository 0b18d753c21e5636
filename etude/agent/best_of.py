"""The same task attempted in several copies of a workspace, of which the best is kept, with the reason in words.

    best = await best_of(task, workspace, 4, attempt)
    best.reason     "Attempt 2 was kept: its check passes, where that of 1, 3 and 4 fails."
    best.changes    what attempt 2 changed

Attempts are told apart by measurements only, in this order: the task's check, how many of its tests fail, whether the
agent finished, whether it changed anything, errors that language servers newly report, and the size of the change.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from etude.agent.change_size import size_of_all
from etude.errors import EtudeError
from etude.messages import Chunk, Completion, Prompt, Sampling
from etude.models.model import Model
from etude.tasks import Task
from etude.traces import StopReason, Trace
from etude.workspace.workspace import (
    Command,
    CommandLimits,
    Ending,
    FileChange,
    ForkableWorkspace,
    Severity,
    Workspace,
)

CHECK_LIMITS = CommandLimits(seconds=900.0)
# At temperature 0 every attempt would be the first one again.
TEMPERATURE = 0.7

Attempting = Callable[[int, ForkableWorkspace], Awaitable[Trace]]
"""(number from 1, its copy) → what came of it. An EtudeError is an attempt that failed."""

# How the runners of tests say it: pytest, jest, cargo; unittest.
_FAILING = (re.compile(r"(\d+) (?:failed|failing|errors?)\b"), re.compile(r"\b(?:failures|errors)=(\d+)"))
_FAILED_IN_GO = re.compile(r"^\s*--- FAIL:", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What the task's check said in an attempt."""

    passed: bool
    num_failing: int | None = None
    """Tests, where the output tells."""
    message: str = ""
    """Why it could not be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt and what was measured."""

    number: int
    stop_reason: StopReason
    message: str = ""
    answer: str = ""
    num_turns: int = 0
    cost: float = 0.0
    check: Check | None = None
    """None for a task without one."""
    num_errors: int | None = None
    """Errors that were not there before; None where no language server could say."""
    num_lines: int = 0
    """Added and removed."""
    changes: tuple[FileChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The attempt that is kept, and all for comparison."""

    kept: Attempt
    reason: str
    attempts: tuple[Attempt, ...]

    @property
    def changes(self) -> list[FileChange]:
        return list(self.kept.changes)


async def best_of(
    task: Task,
    workspace: ForkableWorkspace,
    count: int,
    attempt: Attempting,
    *,
    at_once: int = 1,
    network: bool = False,
    report: Callable[[Attempt], Awaitable[None]] | None = None,
) -> Best:
    """Make `count` attempts in copies of the workspace, which are gone when this returns.

    `network` is the check's; `report` hears of each attempt as soon as it is measured.
    """
    turns = asyncio.Semaphore(at_once)

    async def make(number: int, fork: ForkableWorkspace) -> Attempt:
        async with turns:
            made = await _measured(number, task, fork, attempt, network=network)
            if report:
                await report(made)
            return made

    async with workspace.fork(count) as forks:
        async with asyncio.TaskGroup() as group:
            makings = [group.create_task(make(number, fork)) for number, fork in enumerate(forks, 1)]
        attempts = tuple(making.result() for making in makings)
    kept, reason = choose(attempts)
    return Best(kept=kept, reason=reason, attempts=attempts)


# Measuring.


async def _measured(number: int, task: Task, fork: ForkableWorkspace, attempt: Attempting, *, network: bool) -> Attempt:
    try:
        trace = await attempt(number, fork)
    except EtudeError as error:
        made = Attempt(number=number, stop_reason=StopReason.CRASHED, message=str(error))
    else:
        made = _of_trace(number, trace)
    # Before the check, which leaves caches and reports behind.
    changes = tuple(change for change in await fork.changes() if not change.ignored)
    return replace(
        made,
        changes=changes,
        num_lines=size_of_all(changes).lines,
        num_errors=await _num_errors(fork),
        check=await check(task, fork, network=network) if task.check else None,
    )


def _of_trace(number: int, trace: Trace) -> Attempt:
    return Attempt(
        number=number,
        stop_reason=trace.stop_reason or StopReason.CRASHED,
        message=trace.stop_message,
        answer=trace.answer,
        num_turns=len(trace.turns),
        cost=sum(turn.cost for turn in trace.turns),
    )


async def _num_errors(fork: ForkableWorkspace) -> int | None:
    try:
        report = await fork.diagnostics()
    except EtudeError:
        return None
    if not report.servers:
        return None
    return sum(diagnostic.severity is Severity.ERROR for diagnostic in report.appeared)


async def check(task: Task, workspace: Workspace, *, network: bool = False) -> Check:
    """Run the task's check."""
    try:
        result = await workspace.run(Command(line=task.check, network=network, limits=CHECK_LIMITS))
    except EtudeError as error:
        return Check(passed=False, message=str(error))
    if result.ending is not Ending.EXITED:
        return Check(passed=False, message=f"It was ended: {result.ending}.")
    passed = result.exit_code == 0
    return Check(passed=passed, num_failing=0 if passed else num_failing(result.output))


def num_failing(output: str) -> int | None:
    """How many tests failed, by the last line that says so; None if none does."""
    for line in reversed(output.splitlines()):
        for pattern in _FAILING:
            if numbers := pattern.findall(line):
                return sum(int(number[:9]) for number in numbers)
    return len(_FAILED_IN_GO.findall(output)) or None


# Choosing.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Criterion:
    """One measurement: less is better."""

    measure: Callable[[Attempt], int]
    words: Callable[[Attempt, Sequence[Attempt]], str]
    """(kept, those it leaves behind by this) → why."""


def choose(attempts: Sequence[Attempt]) -> tuple[Attempt, str]:
    """The best attempt and why, as a sentence."""
    criteria = _criteria(attempts)
    kept = min(attempts, key=lambda one: [*(criterion.measure(one) for criterion in criteria), one.number])
    if len(attempts) == 1:
        return kept, "It was the only attempt."
    reasons, rest = [], [one for one in attempts if one is not kept]
    for criterion in criteria:
        least = criterion.measure(kept)
        behind = [one for one in rest if criterion.measure(one) > least]
        rest = [one for one in rest if one not in behind]
        if behind:
            reasons.append(criterion.words(kept, behind))
    if rest:
        reasons.append(f"by every measure it is as good as {_numbers(rest)}, and was made first")
    return kept, f"Attempt {kept.number} was kept: {'; '.join(reasons)}."


def _criteria(attempts: Sequence[Attempt]) -> list[_Criterion]:
    criteria = [_CHECK, _FINISHED, _CHANGED, _ERRORS, _SIZE]
    # What is not known of all tells none apart.
    if all(one.check and one.check.num_failing is not None for one in attempts):
        criteria.insert(1, _TESTS)
    if any(one.num_errors is None for one in attempts):
        criteria.remove(_ERRORS)
    return criteria


_CHECK = _Criterion(
    measure=lambda one: int(one.check is not None and not one.check.passed),
    words=lambda kept, behind: f"its check passes, where that of {_numbers(behind)} fails",
)
_TESTS = _Criterion(
    measure=lambda one: (one.check.num_failing or 0) if one.check else 0,
    words=lambda kept, behind: (
        f"{_failing(kept)} of its tests fail, where {_each(behind, lambda one: str(_failing(one)))} fail"
    ),
)
_FINISHED = _Criterion(
    measure=lambda one: int(one.stop_reason is not StopReason.FINISHED),
    words=lambda kept, behind: f"it finished, where {_each(behind, lambda one: f'it was {one.stop_reason}')}",
)
_CHANGED = _Criterion(
    measure=lambda one: int(not one.changes),
    words=lambda kept, behind: f"it changed something, and {_numbers(behind)} did not",
)
_ERRORS = _Criterion(
    measure=lambda one: one.num_errors or 0,
    words=lambda kept, behind: (
        f"it brings {_count(kept.num_errors or 0, 'new error')}, where {_each(behind, lambda one: str(one.num_errors))}"
    ),
)
_SIZE = _Criterion(
    measure=lambda one: one.num_lines,
    words=lambda kept, behind: (
        f"its change is smaller: {_count(kept.num_lines, 'line')}, "
        f"where it is {_each(behind, lambda one: str(one.num_lines))}"
    ),
)


def _failing(one: Attempt) -> int:
    return (one.check.num_failing or 0) if one.check else 0


def _numbers(attempts: Sequence[Attempt]) -> str:
    """1, 3 and 4"""
    *most, last = [str(one.number) for one in attempts]
    return f"{', '.join(most)} and {last}" if most else last


def _each(attempts: Sequence[Attempt], say: Callable[[Attempt], str]) -> str:
    return ", ".join(f"{say(one)} in {one.number}" for one in attempts)


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def rows(best: Best) -> list[tuple[str, ...]]:
    """The attempts as a table, its header first; the one that is kept is marked."""
    header = ("", "attempt", "check", "failing", "ended", "new errors", "lines", "turns")
    return [header, *(_row(one, kept=one is best.kept) for one in best.attempts)]


def _row(one: Attempt, *, kept: bool) -> tuple[str, ...]:
    check = "-" if one.check is None else "passes" if one.check.passed else "fails"
    failing = one.check.num_failing if one.check else None
    numbers = (failing, one.num_errors, one.num_lines, one.num_turns)
    failing_text, errors, lines, turns = ("-" if number is None else str(number) for number in numbers)
    return ("*" if kept else "", str(one.number), check, failing_text, one.stop_reason, errors, lines, turns)


# Attempts that differ.


class Varied:
    """A Model by delegation that samples with some temperature and a seed of its own; closing it closes nothing."""

    def __init__(self, model: Model, *, seed: int) -> None:
        self._model = model
        self._seed = seed

    @property
    def name(self) -> str:
        return self._model.name

    def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        warm = replace(sampling, temperature=max(sampling.temperature, TEMPERATURE), seed=sampling.seed + self._seed)
        return self._model.complete(prompt, warm, draft=draft)

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        return await self._model.score(token_ids, start=start)

    async def encode(self, prompt: Prompt) -> list[int]:
        return await self._model.encode(prompt)

    async def close(self) -> None:
        pass


def model_for(model: Model, number: int) -> Model:
    """The first attempt is what the model would do anyway; the others vary."""
    return model if number == 1 else Varied(model, seed=number)
