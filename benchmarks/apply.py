"""Apply on real edits: `python benchmarks/apply.py [DATA]`, beside two model-free baselines in the same run.

DATA is a file of edit histories (else ETUDE_BENCH_DATA, else a tiny sample); README.md says where to get one.
"""

import argparse
import asyncio
import statistics
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.apply_baselines import BASELINES, Baseline
from benchmarks.apply_cases import Case, choose_cases
from benchmarks.apply_judge import Judgement, Outcome, judge, judge_refusal
from benchmarks.apply_sketches.styles import Style
from benchmarks.edit_histories import Split, data_path, read_edits
from benchmarks.results import save_results
from etude.assistant.apply.engine import apply
from etude.assistant.apply.request import ApplyRequest, ApplyResult, Engine
from etude.errors import EtudeError, InputError, PromptTooLong
from etude.messages import Chunk, Completion, Prompt, Sampling
from etude.models.model import Model
from etude.models.scripted import ScriptedModel

NO_MODEL = "none"
"""A stand-in that finds every text equally likely: shows what is decided without a model."""

# Files of about the size that the promise of a first hunk within 2 s speaks of.
_MIDDLE_FILE = range(200, 401)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One case merged by one competitor."""

    case: Case
    result: str | None
    judgement: Judgement
    seconds: float
    first_hunk_seconds: float | None = None
    asked_model: bool = False
    """The model read or wrote something."""
    abstained_because: str = ""


Competitor = Callable[[Case], Attempt]


class CountedModel:
    """Passes everything on and counts how often the model had to work."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.num_calls = 0

    @property
    def name(self) -> str:
        return self._model.name

    def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncIterator[Chunk | Completion]:
        self.num_calls += 1
        return self._model.complete(prompt, sampling, draft=draft)

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        self.num_calls += 1
        return await self._model.score(token_ids, start=start)

    async def encode(self, prompt: Prompt) -> list[int]:
        return await self._model.encode(prompt)

    async def close(self) -> None:
        await self._model.close()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # Old files hold string escapes that a new Python warns of.
    warnings.simplefilter("ignore", SyntaxWarning)
    path = data_path(options.data)
    edits, skipped = read_edits(path, split=Split(options.split))
    _say(f"{len(edits)} edits in {path.name}; skipped: {dict(skipped)}")
    cases = choose_cases(edits, limit=options.limit, seed=options.seed)
    _say(f"{len(cases)} sketches over {len({case.name for case in cases})} edits, seed {options.seed}")
    baselines = {name: _run(cases, name, _baseline(merge)) for name, merge in BASELINES.items()}
    rows = {}
    for name in options.model or _default_models():
        rows[name] = _run_model(cases, name, options.engine)
        print(table(_label(name), rows[name], baselines))
    if not rows:
        print(table("search/replace", baselines["search/replace"], baselines))
    if options.failures:
        _write_failures(Path(options.failures), rows or baselines)
    if options.save:
        _save(options, path, rows, baselines)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Apply on real edits, beside two baselines.")
    parser.add_argument("data", nargs="?", help="edit histories, .jsonl or .jsonl.gz")
    parser.add_argument(
        "--model", action="append", help=f"name, .gguf file or '{NO_MODEL}'; may be given several times"
    )
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], help="instead of the model's default")
    parser.add_argument("--split", choices=[split.value for split in Split], default=Split.ALL.value)
    parser.add_argument("--limit", type=int, default=600, help="number of sketches")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<commit>-apply.json")
    parser.add_argument("--failures", metavar="DIR", help="write every case that did not end right as files")
    return parser.parse_args(arguments)


def _default_models() -> list[str]:
    """Without a model, and with the embedded default where it is on this machine."""
    from etude.models import catalog

    name = catalog.default_model_name()
    return [NO_MODEL, name] if catalog.installed(name) else [NO_MODEL]


def _open(name: str) -> Model:
    if name == NO_MODEL:
        return ScriptedModel(name="no model")
    from etude.models.llama_cpp import EmbeddedModel
    from etude.models.opening import open_model

    path = Path(name)
    return EmbeddedModel.load(path, name=path.stem) if path.suffix == ".gguf" else open_model(name)


# Running


def _run_model(cases: Sequence[Case], name: str, engine: str | None) -> list[Attempt]:
    # One loop for all: a model may keep what belongs to its loop.
    with asyncio.Runner() as runner:
        model = CountedModel(_open(name))
        try:
            chosen = Engine(engine) if engine else None
            return _run(cases, name, lambda case: runner.run(_attempt(case, model, chosen)))
        finally:
            runner.run(model.close())


def _run(cases: Sequence[Case], name: str, competitor: Competitor) -> list[Attempt]:
    started, attempts = time.perf_counter(), []
    for number, case in enumerate(cases, 1):
        attempts.append(competitor(case))
        if number % 50 == 0 or number == len(cases):
            _say(f"{name}: {number}/{len(cases)}, {time.perf_counter() - started:.0f} s")
    return attempts


async def _attempt(case: Case, model: CountedModel, engine: Engine | None) -> Attempt:
    request = ApplyRequest(path=case.path, text=case.before, sketch=case.sketch.text)
    started, calls = time.perf_counter(), model.num_calls
    try:
        result = await _result(request, model, engine)
    except (InputError, PromptTooLong) as error:
        return _attempt_of(case, None, time.perf_counter() - started, why=f"{type(error).__name__}: {error}")
    except EtudeError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        crashed = Judgement(outcome=Outcome.CRASHED, reason=reason)
        return Attempt(case=case, result=None, judgement=crashed, seconds=time.perf_counter() - started)
    text = result.patch.apply(case.before) if result.patch else None
    why = f"{result.abstention.reason}: {result.abstention.message}" if result.abstention else ""
    attempt = _attempt_of(case, text, result.seconds, why=why)
    asked = model.num_calls > calls
    return replace(attempt, first_hunk_seconds=result.first_hunk_seconds, asked_model=asked)


async def _result(request: ApplyRequest, model: Model, engine: Engine | None) -> ApplyResult:
    async for event in apply(request, model, engine=engine):
        if isinstance(event, ApplyResult):
            return event
    raise AssertionError("apply ended without a result")


def _baseline(merge: Baseline) -> Competitor:
    def run(case: Case) -> Attempt:
        started = time.perf_counter()
        try:
            result = merge(case.before, case.sketch.text)
        except Exception as error:
            crashed = Judgement(outcome=Outcome.CRASHED, reason=f"{type(error).__name__}: {error}")
            return Attempt(case=case, result=None, judgement=crashed, seconds=time.perf_counter() - started)
        return _attempt_of(case, result, time.perf_counter() - started)

    return run


def _attempt_of(case: Case, result: str | None, seconds: float, *, why: str = "") -> Attempt:
    return Attempt(case=case, result=result, judgement=_judged(case, result), seconds=seconds, abstained_because=why)


def _judged(case: Case, result: str | None) -> Judgement:
    style = case.sketch.style
    if not style.should_abstain:
        return judge(case.before, case.after, result, case.sketch.marks)
    # Keeping what was left out without a word, or removing what the words name, is a good guess.
    guessable = style in (Style.SILENT_GAP, Style.HIDDEN_DELETION)
    return judge_refusal(case.before, result, also_fine=case.after if guessable else None)


# Tables


def table(name: str, attempts: Sequence[Attempt], baselines: dict[str, list[Attempt]]) -> str:
    """Per style and overall, the baselines beside it; ready for a README."""
    lines = [f"\n### {name}\n", *_applied_table(attempts, baselines), "", *_refused_table(attempts, baselines), ""]
    for key, value in numbers(attempts, baselines["search/replace"]).items():
        lines.append(f"- {key}: {value}")
    return "\n".join(lines)


def _applied_table(attempts: Sequence[Attempt], baselines: dict[str, list[Attempt]]) -> list[str]:
    heads = [f"{name} right / wrong" for name in baselines]
    lines = [
        f"| sketches | n | right | exact text | wrong | abstained | {' | '.join(heads)} |",
        "|---|" + "---:|" * (5 + len(heads)),
    ]
    for title, group in _groups(attempts):
        rival = [[other[at].judgement for at in group] for other in baselines.values()]
        own = [attempts[at].judgement for at in group]
        exact = sum(judgement.exact for judgement in own)
        cells = [
            str(len(own)),
            _share(own, Outcome.RIGHT),
            _percent(exact, len(own)),
            _share(own, Outcome.WRONG),
            _share(own, Outcome.ABSTAINED, Outcome.CRASHED),
            *(f"{_share(other, Outcome.RIGHT)} / {_share(other, Outcome.WRONG)}" for other in rival),
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _groups(attempts: Sequence[Attempt]) -> list[tuple[str, list[int]]]:
    applied = [at for at, attempt in enumerate(attempts) if not attempt.case.sketch.style.should_abstain]
    unique = [at for at in applied if attempts[at].case.sketch.unique_anchor]
    groups = [(style.value, [at for at in applied if attempts[at].case.sketch.style is style]) for style in Style]
    groups += [
        ("**unique anchors**", unique),
        ("other anchors", [at for at in applied if at not in set(unique)]),
        ("**all**", applied),
    ]
    return [(title, group) for title, group in groups if group]


def _refused_table(attempts: Sequence[Attempt], baselines: dict[str, list[Attempt]]) -> list[str]:
    heads = [f"{name} wrong" for name in baselines]
    lines = [
        f"| to refuse | n | abstained | harmless | wrong | {' | '.join(heads)} |",
        "|---|" + "---:|" * (4 + len(heads)),
    ]
    refused = [at for at, attempt in enumerate(attempts) if attempt.case.sketch.style.should_abstain]
    groups = [(style.value, [at for at in refused if attempts[at].case.sketch.style is style]) for style in Style]
    for title, group in [*groups, ("**all**", refused)]:
        if not group:
            continue
        own = [attempts[at].judgement for at in group]
        cells = [
            str(len(own)),
            _share(own, Outcome.ABSTAINED, Outcome.CRASHED),
            _share(own, Outcome.RIGHT),
            _share(own, Outcome.WRONG),
            *(_share([other[at].judgement for at in group], Outcome.WRONG) for other in baselines.values()),
        ]
        lines.append(f"| {title.removeprefix('no: ')} | {' | '.join(cells)} |")
    return lines


def numbers(attempts: Sequence[Attempt], matcher: Sequence[Attempt]) -> dict[str, str]:
    """What no table of styles shows."""
    applied = [attempt for attempt in attempts if not attempt.case.sketch.style.should_abstain]
    right = [attempt.judgement for attempt in applied if attempt.judgement.outcome is Outcome.RIGHT]
    wrong = [attempt.judgement for attempt in applied if attempt.judgement.outcome is Outcome.WRONG]
    missed = [
        own.judgement
        for own, other in zip(attempts, matcher, strict=True)
        if not own.case.sketch.style.should_abstain and other.judgement.outcome is not Outcome.RIGHT
    ]
    seconds = sorted(attempt.seconds for attempt in applied)
    first = [
        attempt.first_hunk_seconds
        for attempt in applied
        if attempt.first_hunk_seconds is not None and attempt.case.before.count("\n") + 1 in _MIDDLE_FILE
    ]
    return {
        "matcher's failures fixed": f"{_share(missed, Outcome.RIGHT)} of {len(missed)}",
        "bytes changed in untouched lines": f"{sum(j.untouched_bytes for j in right)} where right, "
        f"{sum(j.untouched_bytes for j in wrong)} where wrong",
        "comments lost where right": str(sum(j.comments_lost for j in right)),
        "crashed": str(sum(attempt.judgement.outcome is Outcome.CRASHED for attempt in attempts)),
        "model asked": f"{sum(attempt.asked_model for attempt in attempts)} of {len(attempts)}",
        "seconds": f"median {_median(seconds)}, p90 {_p90(seconds)}",
        f"seconds to the first hunk, files of {_MIDDLE_FILE.start}–{_MIDDLE_FILE.stop - 1} lines": (
            f"median {_median(first)}, worst {max(first, default=0):.2f} ({len(first)} files)"
        ),
    }


def _share(judgements: Sequence[Judgement], *outcomes: Outcome) -> str:
    return _percent(sum(judgement.outcome in outcomes for judgement in judgements), len(judgements))


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if total else "–"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "–"


def _p90(values: Sequence[float]) -> str:
    return f"{values[int(0.9 * (len(values) - 1))]:.2f}" if values else "–"


# Keeping


def _write_failures(folder: Path, rows: dict[str, list[Attempt]]) -> None:
    """Each as a folder: before, sketch, expected, got and why."""
    for name, attempts in rows.items():
        for number, attempt in enumerate(attempts):
            if _is_fine(attempt):
                continue
            style = attempt.case.sketch.style.value.replace("no: ", "refuse-").replace(" ", "-").replace("/", "-")
            target = folder / _label(name) / f"{attempt.judgement.outcome}-{style}-{number:04}"
            target.mkdir(parents=True, exist_ok=True)
            _write_failure(target, attempt)
        _say(f"failures of {name}: {folder / _label(name)}")


def _is_fine(attempt: Attempt) -> bool:
    outcome = attempt.judgement.outcome
    if attempt.case.sketch.style.should_abstain:
        return outcome in (Outcome.ABSTAINED, Outcome.RIGHT)
    touched = attempt.judgement.untouched_bytes or attempt.judgement.comments_lost
    return outcome is Outcome.RIGHT and not touched


def _write_failure(target: Path, attempt: Attempt) -> None:
    case, judgement = attempt.case, attempt.judgement
    about = [
        case.name,
        f"style: {case.sketch.style}; {case.sketch.how}",
        f"unique anchor: {case.sketch.unique_anchor}; file: {case.variant}",
        f"outcome: {judgement.outcome} {judgement.reason} {attempt.abstained_because}",
        f"bytes changed in untouched lines: {judgement.untouched_bytes}; comments lost: {judgement.comments_lost}",
        f"seconds: {attempt.seconds:.2f}",
    ]
    texts = {
        "before.py": case.before,
        "sketch.txt": case.sketch.text,
        "expected.py": case.after,
        "got.py": attempt.result,
        "reason.txt": "\n".join(about) + "\n",
    }
    for name, text in texts.items():
        if text is not None:
            (target / name).write_text(text, encoding="utf-8", newline="")


def _save(
    options: argparse.Namespace, data: Path, rows: dict[str, list[Attempt]], baselines: dict[str, list[Attempt]]
) -> None:
    about = {"data": data.name, "split": options.split, "limit": options.limit, "seed": options.seed}
    about |= {"engine": options.engine}
    kept = {_label(name): _kept(attempts) for name, attempts in (rows | baselines).items()}
    tables = {_label(name): numbers(attempts, baselines["search/replace"]) for name, attempts in rows.items()}
    _say(f"saved {save_results('apply', about | {'numbers': tables, 'cases': kept}).name}")


def _kept(attempts: Iterable[Attempt]) -> list[dict]:
    return [
        {
            "edit": attempt.case.name,
            "style": attempt.case.sketch.style.value,
            "unique": attempt.case.sketch.unique_anchor,
            "variant": attempt.case.variant.value,
            "seconds": round(attempt.seconds, 3),
            **asdict(attempt.judgement),
        }
        for attempt in attempts
    ]


def _label(name: str) -> str:
    """A model's name, or the name of its file: results never hold a path of this machine."""
    return Path(name).name.removesuffix(".gguf")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
