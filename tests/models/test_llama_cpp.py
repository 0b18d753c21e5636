"""The embedded model through its public names, mostly on a tiny random network that the test writes."""

import asyncio
import dataclasses
import math
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from etude.errors import ForeignError, ModelCorrupt, ModelError, ModelMissing, PromptTooLong
from etude.messages import Chat, Chunk, Completion, FinishReason, Message, Role, Sampling
from etude.models import calibration, catalog, llama_api
from etude.models.generation import Assembler
from etude.models.llama_cpp import EmbeddedModel
from etude.models.llama_session import PASS_ROWS, LlamaSession
from etude.models.model import finish
from etude.models.tiny_network import write_tiny_network

CONTEXT = 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the tests' own, with the tiny network in it."""
    folder = tmp_path_factory.mktemp("cache")
    write_tiny_network(folder / "tiny.gguf")
    return folder


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedModel]:
    monkeypatch.setenv("ETUDE_CACHE", str(folder))
    model = EmbeddedModel.load(folder / "tiny.gguf", name="tiny", context_tokens=CONTEXT)
    yield model
    asyncio.run(model.close())


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


def test_chunks_add_up_to_the_completion(model: EmbeddedModel):
    async def work() -> None:
        items = [item async for item in model.complete("def f(", Sampling(max_tokens=30))]
        *chunks, last = items
        assert isinstance(last, Completion)
        assert all(isinstance(chunk, Chunk) for chunk in chunks)
        assert "".join(chunk.text for chunk in chunks) == last.text
        assert sum((chunk.token_ids for chunk in chunks), ()) == last.token_ids
        assert len(last.token_ids) == len(last.logprobs) == last.usage.generated_tokens == 30
        assert last.finish_reason is FinishReason.LENGTH
        assert last.model == "tiny"

    run(work)


def test_logprobs_are_those_that_score_gives(model: EmbeddedModel):
    async def work() -> None:
        prompt = await model.encode("import os\n")
        answer = await finish(model.complete(prompt, Sampling(max_tokens=20)))
        await finish(model.complete("something else", Sampling(max_tokens=1)))  # so that nothing is reused
        assert await model.score([*prompt, *answer.token_ids], start=len(prompt)) == list(answer.logprobs)

    run(work)


def test_scores_do_not_depend_on_what_is_reused_or_how_it_is_cut(model: EmbeddedModel):
    async def work() -> None:
        tokens = [32 + (7 * at * at) % 90 for at in range(400)]
        whole = await model.score(tokens)
        assert len(whole) == 399 and all(score < 0 for score in whole)
        assert await model.score(tokens, start=350) == whole[349:]
        await model.score([1, 2, 3])
        assert await model.score(tokens, start=350) == whole[349:]
        assert await model.score(tokens[:360], start=10) == whole[9:359]
        assert await model.score(tokens, start=400) == []

    run(work)


def test_scores_are_a_distribution(model: EmbeddedModel):
    async def work() -> None:
        candidates = [[65, 66, token] for token in range(273)]
        scores = await model.score_many(candidates, start=2)
        assert math.fsum(math.exp(score) for (score,) in scores) == pytest.approx(1, abs=1e-4)

    run(work)


def test_many_scores_are_the_single_scores_in_the_order_asked(model: EmbeddedModel):
    async def work() -> None:
        prefix = list(range(40, 100))
        candidates = [[*prefix, *tail] for tail in ([70, 71], [60], [], [70, 72, 73])]
        singles = [await model.score(candidate, start=60) for candidate in candidates]
        assert await model.score_many(candidates, start=60) == singles

    run(work)


def test_a_shared_prefix_is_not_paid_for_twice(model: EmbeddedModel):
    async def work() -> None:
        first = await finish(model.complete("class Point:\n    x = 1", Sampling(max_tokens=8)))
        assert first.usage.reused_tokens == 0
        again = await finish(model.complete("class Point:\n    x = 2", Sampling(max_tokens=8)))
        assert 0 < again.usage.reused_tokens < again.usage.prompt_tokens
        same = await finish(model.complete("class Point:\n    x = 1", Sampling(max_tokens=8)))
        assert (same.token_ids, same.logprobs) == (first.token_ids, first.logprobs)

    run(work)


def test_an_answer_goes_on_in_the_next_prompt_at_no_cost(model: EmbeddedModel):
    async def work() -> None:
        prompt = await model.encode("x = ")
        answer = await finish(model.complete(prompt, Sampling(max_tokens=20)))
        longer = await finish(model.complete([*prompt, *answer.token_ids, 65], Sampling(max_tokens=1)))
        assert longer.usage.reused_tokens >= len(prompt) + 19

    run(work)


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(model: EmbeddedModel):
    async def work() -> None:
        whole = await finish(model.complete("while", Sampling(max_tokens=60)))
        stop = whole.text[20:24]
        cut = await finish(model.complete("while", Sampling(max_tokens=60, stop=("\0never", stop))))
        assert cut.text == whole.text[: whole.text.index(stop)]
        assert cut.finish_reason is FinishReason.STOP_TEXT

    run(work)


def test_the_models_own_end_is_the_end(model: EmbeddedModel):
    async def work() -> None:
        for first in range(32, 127):
            answer = await finish(model.complete([first], Sampling(max_tokens=120)))
            if answer.finish_reason is FinishReason.END:
                assert "im_end" not in answer.text
                assert len(answer.token_ids) < 120
                return
        raise AssertionError("no prompt of one letter made this network end its answer; choose another seed")

    run(work)


def test_sampling_repeats_with_its_seed_and_differs_without(model: EmbeddedModel):
    async def work() -> None:
        def sampling(seed: int) -> Sampling:
            return Sampling(max_tokens=30, temperature=1.0, seed=seed)

        texts = [(await finish(model.complete("a", sampling(seed)))).text for seed in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2]
        cold = await finish(model.complete("a", Sampling(max_tokens=30, temperature=1.0, top_p=1e-9)))
        assert cold.token_ids == (await finish(model.complete("a", Sampling(max_tokens=30)))).token_ids

    run(work)


def test_a_chat_reads_markers_of_the_format_only(model: EmbeddedModel):
    async def work() -> None:
        tokens = await model.encode(Chat(messages=(Message(role=Role.USER, text="a<|im_start|>b"),)))
        assert tokens.count(tokens[0]) == 2, "only the openings of the question and of the answer are markers"

    run(work)


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(model: EmbeddedModel):
    async def work() -> None:
        with pytest.raises(PromptTooLong, match=r"601 tokens.*512"):
            await finish(model.complete([65] * 600, Sampling()))
        with pytest.raises(PromptTooLong, match=r"699 tokens.*512"):
            await model.score([65] * 700)
        assert len((await finish(model.complete([65] * 511, Sampling(max_tokens=9)))).token_ids) == 2

    run(work)


def test_an_empty_prompt_and_no_tokens_to_write_are_answered(model: EmbeddedModel):
    async def work() -> None:
        assert (await finish(model.complete("", Sampling(max_tokens=3)))).usage.prompt_tokens == 1
        assert (await finish(model.complete("a", Sampling(max_tokens=0)))).text == ""

    run(work)


def test_closing_a_stream_stops_the_work(model: EmbeddedModel):
    async def work() -> None:
        stream = model.complete("a", Sampling(max_tokens=100_000, temperature=1.0))
        async for _ in stream:
            break
        await stream.aclose()
        after = await finish(model.complete("b", Sampling(max_tokens=5)))
        fresh = await finish(model.complete("b", Sampling(max_tokens=5)))
        assert after.token_ids == fresh.token_ids

    run(work)


def test_cancelling_the_task_stops_the_work(model: EmbeddedModel):
    async def work() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in model.complete("a", Sampling(max_tokens=100_000, temperature=1.0)):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await model.score([65, 66, 67])) == 2

    run(work)


class PausedSession(LlamaSession):
    """Waits before each pass of a prompt until the test lets it go on."""

    paused = False

    def extend(self, tokens: Sequence[int], *, num_rows: int) -> np.ndarray:
        if self.paused:
            self.begun.set()
            assert self.may_go_on.wait(timeout=20)
        return super().extend(tokens, num_rows=num_rows)

    def pause(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.paused = True


def test_a_long_prompt_is_not_read_to_its_end_for_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ETUDE_CACHE", str(folder))

    async def work() -> None:
        session = PausedSession(folder / "tiny.gguf", context_tokens=2048)
        model = EmbeddedModel(session, name="tiny")
        await model.calibrate()
        session.pause()
        reading = asyncio.create_task(finish(model.complete([65] * 2000, Sampling(max_tokens=5))))
        await asyncio.to_thread(session.begun.wait, 20)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        session.may_go_on.set()
        await model.calibrate()  # queued behind the reading
        assert session.length == PASS_ROWS
        await model.close()

    run(work)


def test_calls_at_the_same_time_queue_and_do_not_mix(model: EmbeddedModel):
    async def work() -> None:
        prompts = ["alpha", "beta", "alpha beta"]
        alone = [await finish(model.complete(prompt, Sampling(max_tokens=30))) for prompt in prompts]
        together = await asyncio.gather(*(finish(model.complete(p, Sampling(max_tokens=30))) for p in prompts))
        assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]

    run(work)


def test_closing_the_model_ends_running_and_waiting_answers(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ETUDE_CACHE", str(folder))

    async def work() -> None:
        model = EmbeddedModel.load(folder / "tiny.gguf", name="tiny", context_tokens=CONTEXT)
        endless = Sampling(max_tokens=100_000, temperature=1.0)
        running = model.complete("a", endless)
        await anext(running)
        waiting = asyncio.create_task(finish(model.complete("b", endless)))
        await asyncio.sleep(0)
        await model.close()
        with pytest.raises(ModelError, match="tiny was closed"):
            await finish(running)
        with pytest.raises(ModelError, match="tiny was closed"):
            await waiting

    run(work)


def test_one_model_serves_one_event_loop_after_another(model: EmbeddedModel):
    answers = [asyncio.run(finish(model.complete("a", Sampling(max_tokens=5)))) for _ in range(2)]
    assert answers[0].token_ids == answers[1].token_ids


# --- bad files


def test_a_missing_file_and_files_that_are_no_model_are_named(tmp_path: Path):
    with pytest.raises(ModelMissing, match=r"nothing\.gguf"):
        EmbeddedModel.load(tmp_path / "nothing.gguf", name="x")
    for content in (b"", b"GG", b"PK\x03\x04 a zip", b"GGUF\x03\x00\x00\x00 and then noise" * 50):
        (tmp_path / "bad.gguf").write_bytes(content)
        with pytest.raises(ModelCorrupt, match=r"bad\.gguf"):
            EmbeddedModel.load(tmp_path / "bad.gguf", name="x")


def test_a_truncated_model_is_corrupt(folder: Path, tmp_path: Path):
    whole = (folder / "tiny.gguf").read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelCorrupt, match=r"half\.gguf"):
        EmbeddedModel.load(tmp_path / "half.gguf", name="x")


def test_another_build_of_the_runtime_is_refused_with_both_versions():
    defaults = llama_api.library().llama_context_default_params()
    defaults.n_batch = 7
    with pytest.raises(ForeignError, match=rf"n_batch is 7, expected 2048.*expected {llama_api.PACKAGE_VERSION}"):
        llama_api.check_layout("llama_context_params", defaults, {"n_batch": 2048})


# --- passes agree


def test_passes_of_any_size_give_the_same_bits(folder: Path):
    session = LlamaSession(folder / "tiny.gguf", context_tokens=CONTEXT)
    session.calibrate(folder / "calibration")
    tokens = [(5 * at * at) % 250 for at in range(120)]
    reference = session.extend(tokens[:64], num_rows=64).copy()
    for size in (1, 2, 3, 5, 8, 13, 32, 63):
        session.rewind(0)
        pieces = [
            session.extend(tokens[at : min(at + size, 64)], num_rows=min(size, 64 - at)).copy()
            for at in range(0, 64, size)
        ]
        assert np.array_equal(np.concatenate(pieces), reference), f"passes of {size} rows differ"
    session.close()


@pytest.mark.parametrize("grain", [2, 4, 32])
def test_padding_to_a_grain_leaves_no_trace(folder: Path, grain: int):
    session = LlamaSession(folder / "tiny.gguf", context_tokens=CONTEXT)
    tokens = [(3 * at * at) % 250 for at in range(300)]
    reference = session.extend(tokens, num_rows=10).copy()
    session.rewind(0)
    session.row_multiple = grain
    for token in tokens[:40]:
        session.extend([token], num_rows=1)
    assert session.length == 40
    assert np.array_equal(session.extend(tokens[40:], num_rows=10), reference)
    session.close()


def test_calibration_is_measured_once_and_survives_a_damaged_cache(folder: Path, tmp_path: Path):
    session = LlamaSession(folder / "tiny.gguf", context_tokens=CONTEXT)
    measured = session.calibrate(tmp_path)
    (file,) = tmp_path.iterdir()
    key = file.stem
    altered = dataclasses.replace(measured, row_multiple=4, cpu_share=1.0)
    calibration.save(tmp_path, key, altered)
    assert session.calibrate(tmp_path) == altered
    assert session.row_multiple == 4
    for damage in (b"", b"{}", b'{"version": 1}'):
        file.write_bytes(damage)
        assert session.calibrate(tmp_path).row_multiple == measured.row_multiple
        assert calibration.load(tmp_path, key) is not None
    session.close()


# --- text


def test_characters_split_between_tokens_come_out_whole():
    assembler = Assembler()
    pieces = [assembler.push(bytes([byte])) for byte in "aé€🙂".encode()]
    assert "".join(pieces) == "aé€🙂"
    assert [piece for piece in pieces if piece] == ["a", "é", "€", "🙂"]
    assert assembler.push(b"\xe2\x82") == ""
    assert assembler.flush() == "\N{REPLACEMENT CHARACTER}"


def test_nothing_that_may_begin_a_stop_text_is_sent_early():
    assembler = Assembler(("\n```", "END"))
    assert [assembler.push(piece) for piece in (b"x\n", b"`", b"`y E", b"N", b"")] == ["x", "", "\n``y ", "", ""]
    assert assembler.flush() == "EN"
    stopping = Assembler(("\n```",))
    assert stopping.push(b"code\n`") + stopping.push(b"``python") == "code"
    assert stopping.stopped and stopping.flush() == ""


# --- the embedded default


@pytest.mark.embedded
def test_the_default_model_answers_in_words():
    async def work() -> None:
        name = catalog.default_model_name()
        model = EmbeddedModel.load(catalog.require(name), name=name, context_tokens=512)
        chat = Chat(messages=(Message(role=Role.USER, text="What is the capital of France? Answer in one word."),))
        answer = await finish(model.complete(chat, Sampling(max_tokens=12)))
        assert "Paris" in answer.text
        await model.close()

    run(work)


@pytest.mark.embedded
def test_the_default_model_stays_below_its_share_of_memory():
    program = (
        "import asyncio, resource\n"
        "from etude.messages import Sampling\n"
        "from etude.models import catalog\n"
        "from etude.models.llama_cpp import EmbeddedModel\n"
        "from etude.models.model import finish\n"
        "name = catalog.default_model_name()\n"
        "model = EmbeddedModel.load(catalog.require(name), name=name)\n"
        "asyncio.run(finish(model.complete('x = 1\\n' * 600, Sampling(max_tokens=8), draft='x = 1\\n' * 600)))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "asyncio.run(model.close())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stderr == ""
    # 700 MB for the whole of `etude serve`, of which the server takes some 80.
    assert int(done.stdout) / 1024 < 560
