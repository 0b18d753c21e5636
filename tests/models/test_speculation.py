"""Drafting never changes an answer, finds its way after edits, and falls silent when it does not help."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.messages import Completion, Sampling
from etude.models import catalog
from etude.models.llama_cpp import EmbeddedModel
from etude.models.model import finish
from etude.models.speculation import CostCurve, Drafter
from etude.models.tiny_network import write_tiny_network

# Measured with SmolLM2 on two cores: the second row costs almost as much as the first, the following a third.
CURVE = CostCurve(points=((1, 7.8), (2, 13.5), (4, 18.5), (8, 27.0), (16, 46.0), (32, 86.0), (64, 165.0)))


class Run:
    """What writing `truth` with a drafter costs by the curve, when the model's choice is always `truth`."""

    def __init__(self, original: Sequence[int], truth: Sequence[int]) -> None:
        drafter = Drafter(original, CURVE)
        written, self.milliseconds, self.num_passes = list(truth[:1]), CURVE.milliseconds(1), 1
        while len(written) < len(truth):
            guess = drafter.propose(written, 63)
            agreed = 0
            while agreed < len(guess) and guess[agreed : agreed + 1] == list(truth[len(written) + agreed :][:1]):
                agreed += 1
            new = truth[len(written) : len(written) + agreed + 1]
            written += new
            drafter.learn(written, len(new))
            self.num_passes += 1
            self.milliseconds += CURVE.milliseconds(len(guess) + 1)
        self.tokens_per_pass = len(truth) / self.num_passes
        self.speed_up = len(truth) * CURVE.milliseconds(1) / self.milliseconds


def some_tokens(seed: int, count: int) -> list[int]:
    """Like code: frequent tokens, some rare ones, stretches that repeat."""
    dice = random.Random(seed)
    words = [[dice.randrange(2000) for _ in range(dice.randrange(1, 6))] for _ in range(150)]
    tokens: list[int] = []
    while len(tokens) < count:
        tokens += words[min(int(dice.expovariate(0.03)), 149)]
    return tokens[:count]


def test_the_curve_is_linear_between_its_points_and_knows_its_ceiling():
    curve = CostCurve(points=((1, 10.0), (2, 14.0), (4, 20.0)))
    assert [curve.milliseconds(rows) for rows in (1, 2, 3, 4, 6)] == [10, 14, 17, 20, 26]
    assert curve.ceiling() == pytest.approx(2.0)
    assert CostCurve(points=((2, 10.0),)).milliseconds(4) == 20


def test_an_unchanged_text_is_confirmed_at_almost_the_ceiling():
    tokens = some_tokens(1, 1500)
    run = Run(tokens, tokens)
    assert run.tokens_per_pass > 30
    assert run.speed_up > 0.88 * CURVE.ceiling()


@pytest.mark.parametrize("kind", ["replace", "insert", "delete"])
def test_one_small_edit_leaves_most_of_the_speed(kind: str):
    before = some_tokens(2, 900)
    new = {"replace": [5001, 5002, 5003], "insert": [5001, 5002, 5003, 5004], "delete": []}[kind]
    after = before[:400] + new + before[400 + (0 if kind == "insert" else 9) :]
    run = Run(before, after)
    assert run.tokens_per_pass > 15
    assert run.speed_up > 2


def test_the_place_nearest_to_where_we_were_wins_among_equal_ones():
    block = list(range(100, 130))
    original = [*block, 1, *block, 2, *block, 3]
    drafter = Drafter(original, CURVE)
    written = original[:45]  # into the second block
    drafter.propose(written[:1], 63)
    drafter.learn(written, 44)
    written = [*written, 999, *original[46:56]]  # one token replaced
    drafter.propose(written[:45], 63)
    drafter.learn(written, 11)
    guess = drafter.propose(written, 63)
    assert guess[:6] == original[56:62]
    assert guess[5] == 2, "it read on in another block than the second"


def test_without_a_match_in_the_original_the_output_is_its_own_draft():
    phrase = some_tokens(3, 120)
    run = Run([7000, 7001, 7002], phrase * 6)
    assert run.tokens_per_pass > 3


@pytest.mark.parametrize("seed", range(5))
def test_a_draft_that_never_fits_costs_at_most_a_tenth(seed: int):
    run = Run(some_tokens(10 + seed, 800), [token + 5000 for token in random.Random(seed).sample(range(3000), 600)])
    assert run.speed_up > 0.9


def test_a_draft_that_looks_right_and_is_always_wrong_costs_at_most_a_tenth():
    # Every fifth token differs: the match before it is long enough to believe in, at first.
    before = some_tokens(4, 2000)
    after = [token if at % 5 else token + 9000 for at, token in enumerate(before)]
    assert Run(before, after).speed_up > 0.9


def test_an_enormous_draft_is_indexed_quickly():
    tokens = some_tokens(5, 50_000)
    started = time.process_time()
    run = Run(tokens, tokens[20_000:20_400])
    assert time.process_time() - started < 5
    assert run.num_passes < 400


@settings(max_examples=150, deadline=None)
@given(
    original=st.lists(st.integers(0, 6), max_size=60),
    truth=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    most=st.integers(0, 70),
)
def test_guesses_are_never_longer_than_asked_and_come_from_known_text(original: list[int], truth: list[int], most: int):
    drafter = Drafter(original, CURVE)
    for length in range(1, len(truth) + 1):
        guess = drafter.propose(truth[:length], most)
        assert len(guess) <= most
        assert set(guess) <= {*original, *truth}
        drafter.learn(truth[:length], 1)


# --- equality with greedy, on real computation


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedModel]:
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETUDE_CACHE", str(folder))
        model = EmbeddedModel.load(write_tiny_network(folder / "tiny.gguf"), name="tiny", context_tokens=512)
        asyncio.run(model.calibrate())
    yield model
    asyncio.run(model.close())


def drafts_like(text: str, dice: random.Random) -> list[str]:
    """The exact answer, and answers that are wrong in ways that drafts are wrong."""
    at = dice.randrange(len(text) + 1)
    other = "".join(chr(dice.randrange(32, 127)) for _ in range(200))
    return [
        text,
        text[at:],
        text[:at],
        text[:at] + "self.é\n" + text[at:],
        text[:at] + text[at + 3 :],
        text * 3,
        other,
        (other + text) * 2,
        "x",
    ]


async def answer(model: EmbeddedModel, prompt: Sequence[int] | str, draft: str | None, size: int) -> Completion:
    return await finish(model.complete(prompt, Sampling(max_tokens=size), draft=draft))


def assert_same(fast: Completion, plain: Completion) -> None:
    assert fast.token_ids == plain.token_ids
    assert fast.logprobs == plain.logprobs
    assert fast.text == plain.text
    assert fast.finish_reason == plain.finish_reason


@pytest.mark.parametrize("seed", range(40))
def test_greedy_with_a_draft_is_greedy_without_on_a_random_network(tiny: EmbeddedModel, seed: int):
    async def compare() -> None:
        dice = random.Random(seed)
        prompt = [dice.randrange(0x20, 0x7F) for _ in range(dice.randrange(1, 120))]
        plain = await answer(tiny, prompt, None, 90)
        for draft in drafts_like(plain.text, dice):
            assert_same(await answer(tiny, prompt, draft, 90), plain)

    asyncio.run(compare())


def test_sampling_with_a_draft_is_sampling_without(tiny: EmbeddedModel):
    async def compare() -> None:
        sampling = Sampling(max_tokens=60, temperature=0.9, top_p=0.9, seed=7)
        plain = await finish(tiny.complete("def ", sampling))
        fast = await finish(tiny.complete("def ", sampling, draft=plain.text))
        assert_same(fast, plain)
        assert fast.usage.num_passes < plain.usage.num_passes

    asyncio.run(compare())


def test_an_exact_draft_saves_passes_and_is_counted(tiny: EmbeddedModel):
    async def compare() -> None:
        plain = await answer(tiny, "class A:", None, 100)
        fast = await answer(tiny, "class A:", plain.text, 100)
        assert_same(fast, plain)
        assert plain.usage.drafted_tokens == plain.usage.accepted_tokens == 0
        assert plain.usage.num_passes == plain.usage.generated_tokens - 1
        assert fast.usage.num_passes + fast.usage.accepted_tokens == fast.usage.generated_tokens - 1
        assert 0 < fast.usage.accepted_tokens <= fast.usage.drafted_tokens

    asyncio.run(compare())


def test_an_empty_and_an_enormous_draft_change_nothing(tiny: EmbeddedModel):
    async def compare() -> None:
        plain = await answer(tiny, "import os", None, 40)
        for draft in ("", "self." * 25_000 + plain.text):
            assert_same(await answer(tiny, "import os", draft, 40), plain)

    asyncio.run(compare())


@pytest.mark.embedded
def test_greedy_with_a_draft_is_greedy_without_on_the_embedded_model():
    code = Path(catalog.__file__).read_text("utf-8")

    async def compare() -> None:
        name = catalog.default_model_name()
        model = EmbeddedModel.load(catalog.require(name), name=name, context_tokens=1024)
        dice = random.Random(0)
        for number in range(8):
            start = dice.randrange(len(code) - 600)
            prompt = code[start : start + 500]
            plain = await answer(model, prompt, None, 40)
            for draft in (code, code[start + 500 :], plain.text, drafts_like(plain.text, dice)[number]):
                assert_same(await answer(model, prompt, draft, 40), plain)
        await model.close()

    asyncio.run(compare())
