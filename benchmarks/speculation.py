"""Speculative edits on real edits: `python benchmarks/speculation.py [--model NAME|PATH] [DATA]`.

A window of a file with an edit of 1–5 lines is written anew, in two modes that are reported apart:

- free: the model's own greedy answer to a request to merge the edit. A small model often does not copy well, and
  then no draft can help.
- forced: the answer is the true edited window, whatever the model thinks; every pass is computed in full, and a
  guess counts as confirmed when it is the true text. This is what a capable model would bring.

In forced mode what is confirmed does not depend on the model. So it is also *counted* on many more windows,
without computing, each pass priced by the cost curve.

Plain decoding computes one token a pass and is the fastest plain way this runtime has. Times are of writing the
answer; the prompt has been read before and is the same for all. DATA is a file of edit histories (else
ETUDE_BENCH_DATA, else a tiny sample); README.md says where to get one.
"""

import argparse
import difflib
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.edit_histories import Split, TrueEdit, data_path, read_edits
from benchmarks.prompt_lookup import PromptLookup
from benchmarks.results import save_results
from etude.assistant.apply.prompt import rewrite_chat
from etude.models import catalog
from etude.models.generation import Chooser, ForcedChooser, GreedyChooser, generate
from etude.models.llama_cpp import encode
from etude.models.llama_session import LOGIT_ROWS, LlamaSession
from etude.models.speculation import CostCurve, Drafter, DraftSource, NoDraft

CONTEXT_TOKENS = 4096
# Lines around the edit: with them a window is about what Apply gives a model to rewrite.
MARGIN_LINES = 40
MOST_CHANGED_LINES = 5
MOST_FREE_TOKENS = 320
# Where the curve is measured: a prompt of such a window and half of its answer.
_DEPTH = 1800


class Mode(StrEnum):
    """Whose answer is written."""

    FREE = "free"
    """The model's own."""
    FORCED = "forced"
    """The true edited window."""
    COUNTED = "counted"
    """The true edited window, passes counted and priced rather than computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One window to rewrite."""

    name: str
    before: str
    after: str
    sketch: str
    num_changed_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case written in one way."""

    case: str
    way: str
    mode: Mode
    tokens: int
    passes: int
    drafted: int
    accepted: int
    seconds: float
    mismatches: int
    """Tokens that differ from plain decoding, or whose log-probability does in any bit."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    path = data_path(options.data)
    edits, skipped = read_edits(path, split=Split(options.split))
    cases = choose_cases(edits, limit=max(options.limit, options.counted), seed=options.seed)
    _say(f"{len(cases)} windows from {path.name}; skipped edits: {dict(skipped)}")
    found: dict[str, tuple[CostCurve, list[Measured]]] = {}
    for name in options.model or [catalog.default_model_name()]:
        session = _open(name)
        try:
            curve, measured = _measure(session, cases[: options.limit], options.repeats)
            found[name] = curve, measured + _count(session, cases, curve)
        finally:
            session.close()
        print(table(name, *found[name]))
    if options.save:
        _save(options, path, found)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speculative edits beside plain and prompt-lookup decoding.")
    parser.add_argument("data", nargs="?", help="edit histories, .jsonl or .jsonl.gz")
    parser.add_argument("--model", action="append", help="name or .gguf file; may be given several times")
    parser.add_argument("--split", choices=[split.value for split in Split], default=Split.ALL.value)
    parser.add_argument("--limit", type=int, default=12, help="number of windows to compute")
    parser.add_argument("--counted", type=int, default=200, help="number of windows to count")
    parser.add_argument("--repeats", type=int, default=1, help="of these the fastest counts, for each way alike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<commit>-speculation.json")
    return parser.parse_args(arguments)


def _open(name: str) -> LlamaSession:
    path = Path(name) if name.endswith(".gguf") else catalog.require(name)
    session = LlamaSession(path, context_tokens=CONTEXT_TOKENS)
    calibration = session.calibrate(catalog.cache_folder() / "calibration")
    _say(f"{name}: passes agree bit for bit in multiples of {calibration.row_multiple} rows")
    return session


# Cases


def choose_cases(edits: Sequence[TrueEdit], *, limit: int, seed: int) -> list[Case]:
    """Windows with an edit of 1–5 lines, at most one a file, in an order that the seed decides."""
    shuffled = list(edits)
    random.Random(seed).shuffle(shuffled)
    chosen: dict[str, Case] = {}
    for edit in shuffled:
        case = _case(edit)
        if case and len(chosen) < limit:
            chosen.setdefault(f"{edit.repo}:{edit.path}", case)
    return list(chosen.values())


def _case(edit: TrueEdit) -> Case | None:
    before, after = edit.before.splitlines(keepends=True), edit.after.splitlines(keepends=True)
    changes = [
        opcode
        for opcode in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if opcode[0] != "equal"
    ]
    size = sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in changes)
    start, end = changes[0][1], changes[-1][2]
    if not 1 <= size <= MOST_CHANGED_LINES or end - start > MARGIN_LINES:
        return None
    new_start, new_end = changes[0][3], changes[-1][4]
    head, tail = before[max(0, start - MARGIN_LINES) : start], before[end : end + MARGIN_LINES]
    shown = [*head[-2:], *after[new_start:new_end], *tail[:2]]
    return Case(
        name=edit.key,
        before="".join([*head, *before[start:end], *tail]),
        after="".join([*head, *after[new_start:new_end], *tail]),
        sketch="".join(["# ... existing code ...\n", *shown, "# ... existing code ...\n"]),
        num_changed_lines=size,
    )


# Measuring

MakeSource = Callable[[Sequence[int], Case], DraftSource]


def _ways(session: LlamaSession, curve: CostCurve, unrelated: str) -> dict[str, MakeSource]:
    return {
        "plain": lambda prompt, case: NoDraft(),
        "prompt lookup n=3 k=10": lambda prompt, case: PromptLookup(prompt, longest=3, size=10),
        "prompt lookup n=8 k=64": lambda prompt, case: PromptLookup(prompt, longest=8, size=64),
        "etude": lambda prompt, case: Drafter(session.tokenize(case.before), curve),
        "etude, unrelated draft": lambda prompt, case: Drafter(session.tokenize(unrelated), curve),
    }


def _measure(session: LlamaSession, cases: Sequence[Case], repeats: int) -> tuple[CostCurve, list[Measured]]:
    curve, share = session.measure_curve(depth=_DEPTH)
    _say(f"cost curve {[(rows, round(cost, 1)) for rows, cost in curve.points]}, {share:.0%} of the CPU was ours")
    found: list[Measured] = []
    for number, case in enumerate(cases):
        ways = _ways(session, curve, unrelated=cases[number - 1].before)
        for mode in (Mode.FREE, Mode.FORCED):
            found += _measure_case(session, case, mode, ways, repeats)
        _say(f"{number + 1}/{len(cases)} {case.name}")
    return curve, found


def _measure_case(
    session: LlamaSession, case: Case, mode: Mode, ways: dict[str, MakeSource], repeats: int
) -> list[Measured]:
    prompt = _prompt(session, case)
    session.reuse(prompt, most=len(prompt) - 1)
    session.extend(prompt[session.length :], num_rows=0)
    truth = session.tokenize(case.after)
    chooser = GreedyChooser() if mode is Mode.FREE else ForcedChooser(tokens=truth)
    size = min(len(truth), MOST_FREE_TOKENS) if mode is Mode.FREE else len(truth)
    plain: list[tuple[int, float]] = []
    found: list[Measured] = []
    for way, make in ways.items():
        tries = [_write(session, prompt, chooser, make(prompt, case), size) for _ in range(repeats)]
        written, numbers = min(tries, key=lambda one: one[1]["seconds"])
        plain = plain or written
        mismatches = sum(ours != theirs for ours, theirs in zip(written, plain, strict=False))
        mismatches += abs(len(written) - len(plain))
        found.append(Measured(case=case.name, way=way, mode=mode, mismatches=mismatches, **numbers))
    return found


def _count(session: LlamaSession, cases: Sequence[Case], curve: CostCurve) -> list[Measured]:
    found = []
    for number, case in enumerate(cases):
        prompt, truth = _prompt(session, case), session.tokenize(case.after)
        for way, make in _ways(session, curve, unrelated=cases[number - 1].before).items():
            found.append(_counted(case, way, truth, make(prompt, case), curve))
    return found


def _counted(case: Case, way: str, truth: list[int], drafts: DraftSource, curve: CostCurve) -> Measured:
    """`generate` with a model that always says `truth`, and with a price instead of a clock."""
    written, passes, drafted, milliseconds = truth[:1], 1, 0, curve.milliseconds(1)
    while len(written) < len(truth):
        guess = drafts.propose(written, min(LOGIT_ROWS, len(truth) - len(written)) - 1)
        rest = truth[len(written) :]
        agreed = next((at for at, token in enumerate(guess) if token != rest[at]), len(guess))
        written = written + rest[: agreed + 1]
        drafts.learn(written, agreed + 1)
        passes, drafted = passes + 1, drafted + len(guess)
        milliseconds += curve.milliseconds(len(guess) + 1)
    return Measured(
        case=case.name,
        way=way,
        mode=Mode.COUNTED,
        tokens=len(truth),
        passes=passes,
        drafted=drafted,
        accepted=len(truth) - passes,
        seconds=milliseconds / 1000,
        mismatches=0,
    )


def _prompt(session: LlamaSession, case: Case) -> list[int]:
    return encode(session, rewrite_chat(case.before, case.sketch, "", "python"))


def _write(
    session: LlamaSession, prompt: Sequence[int], chooser: Chooser, drafts: DraftSource, size: int
) -> tuple[list[tuple[int, float]], dict]:
    """(token, log-probability) pairs of the answer and what they took."""
    session.reuse(prompt, most=len(prompt) - 1)
    written: list[tuple[int, float]] = []
    passes = drafted = accepted = 0
    started = time.perf_counter()
    for found in generate(session, prompt, chooser, drafts, max_tokens=size):
        written += zip(found.token_ids, found.logprobs, strict=True)
        passes, drafted, accepted = passes + 1, drafted + found.num_drafted, accepted + len(found.token_ids) - 1
        if isinstance(chooser, GreedyChooser) and any(map(session.ends_answer, found.token_ids)):
            break
    seconds = time.perf_counter() - started
    ends = (at + 1 for at, (token, _) in enumerate(written) if session.ends_answer(token))
    written = written[: next(ends, len(written))] if isinstance(chooser, GreedyChooser) else written
    numbers = {"tokens": len(written), "passes": passes, "drafted": drafted, "accepted": accepted, "seconds": seconds}
    return written, numbers


# Reporting


def table(name: str, curve: CostCurve, found: Sequence[Measured]) -> str:
    ceiling = curve.ceiling()
    lines = [f"\n### {Path(name).stem if name.endswith('.gguf') else name}\n"]
    lines.append("One pass, ms by rows: " + ", ".join(f"{rows}: {cost:.1f}" for rows, cost in curve.points))
    lines.append(f"Ceiling of this curve: {ceiling:.2f}x plain decoding.\n")
    lines += [
        "| mode | way | tokens/pass | accepted/pass | accepted/drafted | x plain (median of windows) | of ceiling "
        "| mismatches |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for mode in Mode:
        for way in dict.fromkeys(one.way for one in found if one.mode is mode):
            lines.append(_row(mode, way, found, ceiling))
    return "\n".join(lines)


def _row(mode: Mode, way: str, found: Sequence[Measured], ceiling: float) -> str:
    ours = [one for one in found if one.mode is mode and one.way == way]
    plain = [one for one in found if one.mode is mode and one.way == "plain"]
    passes, drafted = sum(one.passes for one in ours), sum(one.drafted for one in ours)
    accepted, tokens = sum(one.accepted for one in ours), sum(one.tokens for one in ours)
    ratio = sum(one.seconds for one in plain) / sum(one.seconds for one in ours)
    median = statistics.median(p.seconds / o.seconds for p, o in zip(plain, ours, strict=True))
    cells = [
        mode.value,
        way,
        f"{tokens / passes:.1f}",
        f"{accepted / passes:.1f}",
        f"{accepted / drafted:.2f}" if drafted else "–",
        f"{ratio:.2f} ({median:.2f})",
        f"{100 * ratio / ceiling:.0f} %",
        str(sum(one.mismatches for one in ours)),
    ]
    return f"| {' | '.join(cells)} |"


def _save(options: argparse.Namespace, data: Path, found: dict[str, tuple[CostCurve, list[Measured]]]) -> None:
    about = {
        "data": data.name,
        "split": options.split,
        "limit": options.limit,
        "counted": options.counted,
        "seed": options.seed,
        "repeats": options.repeats,
    }
    models = {
        Path(name).stem if name.endswith(".gguf") else name: {
            "milliseconds_by_rows": dict(curve.points),
            "ceiling": curve.ceiling(),
            "measured": [asdict(one) for one in measured],
        }
        for name, (curve, measured) in found.items()
    }
    _say(f"saved {save_results('speculation', about | {'models': models}).name}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
