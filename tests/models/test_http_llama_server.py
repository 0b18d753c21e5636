"""HttpModel against llama.cpp's own server, in a process of its own, with the embedded model."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest

from etude.errors import PromptTooLong, ServerRefused, Unsupported
from etude.messages import Chat, Completion, FinishReason, Message, Prompt, Role, Sampling, ToolCall
from etude.models import catalog
from etude.models.http import HttpModel
from etude.models.model import finish

pytestmark = pytest.mark.embedded

HELLO = Chat(messages=(Message(role=Role.USER, text="Say hello"),))
Test = Callable[[HttpModel], Awaitable[None]]

SERVES_UNTIL_STDIN_CLOSES = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel = 256, 1
params.cpuparams.n_threads = 2
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama_server() -> Iterator[str]:
    """The URL of a llama.cpp server in a process of its own."""
    command = [sys.executable, "-c", SERVES_UNTIL_STDIN_CLOSES, str(catalog.require("smollm2-135m"))]
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin
        assert process.stdout
        yield process.stdout.readline().strip()
        process.stdin.close()
        assert process.wait() == 0


async def answer(model: HttpModel, prompt: Prompt, sampling: Sampling, draft: str | None = None) -> Completion:
    return await finish(model.complete(prompt, sampling, draft=draft))


def at_llama(url: str, test: Test) -> None:
    async def scope() -> None:
        model = HttpModel(url, "m")
        try:
            await test(model)
        finally:
            await model.close()

    asyncio.run(scope())


def test_llama_answers_with_ids_and_logprobs(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        completion = await answer(model, HELLO, Sampling(max_tokens=6), draft="Hello")
        assert completion.text
        assert len(completion.token_ids) == len(completion.logprobs) == 6
        assert max(completion.logprobs) <= 0
        assert completion.finish_reason is FinishReason.LENGTH
        again = await answer(model, await model.encode(HELLO), Sampling(max_tokens=6))
        assert (again.text, again.token_ids) == (completion.text, completion.token_ids)

    at_llama(llama_server, test)


@pytest.mark.parametrize("prefill", ["", "The answer"])
def test_llama_encodes_what_it_reads_and_reuses_what_it_read(llama_server: str, prefill: str) -> None:
    async def test(model: HttpModel) -> None:
        prompt = Chat(messages=HELLO.messages, prefill=prefill)
        usage = (await answer(model, prompt, Sampling(max_tokens=1))).usage
        assert len(await model.encode(prompt)) == usage.prompt_tokens
        again = (await answer(model, prompt, Sampling(max_tokens=1))).usage
        assert again.reused_tokens == usage.prompt_tokens - 1

    at_llama(llama_server, test)


def test_llama_continues_a_begun_answer(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        begun = Chat(messages=HELLO.messages, prefill="Of course: h")
        rest = await answer(model, begun, Sampling(max_tokens=4))
        raw = await answer(model, await model.encode(begun), Sampling(max_tokens=4))
        assert rest.text == raw.text
        assert (await model.encode(begun))[: len(await model.encode(HELLO))] == await model.encode(HELLO)

    at_llama(llama_server, test)


def test_llama_stops_at_a_text(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        stopped = await answer(model, "1, 2, 3, 4,", Sampling(max_tokens=20, stop=("7",)))
        assert stopped.text == " 5, 6, "

    at_llama(llama_server, test)


def test_llama_splits_characters_into_tokens_and_we_say_nothing_wrong(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        completion = await answer(model, "日本語" * 12, Sampling(max_tokens=6))
        assert not completion.text.isascii()
        assert (completion.token_ids, completion.logprobs) == ((), ())
        assert completion.usage.generated_tokens == 6

    at_llama(llama_server, test)


def test_llama_goes_on_after_a_call_that_was_no_json(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        broken = ToolCall(id="", name="read", arguments='{"path": "a')
        history = (
            HELLO.messages[0],
            Message(role=Role.ASSISTANT, text="", tool_calls=(broken, broken)),
            Message(role=Role.TOOL, text="no JSON", tool_call_id=""),
            Message(role=Role.TOOL, text="no JSON", tool_call_id=""),
        )
        assert (await answer(model, Chat(messages=history), Sampling(max_tokens=2))).usage.generated_tokens == 2

    at_llama(llama_server, test)


def test_llama_refuses_in_our_words(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        with pytest.raises(PromptTooLong, match="300 tokens"):
            await answer(model, [5] * 300, Sampling())
        with pytest.raises(ServerRefused, match=r"400: .*invalid tokens"):
            await answer(model, [10_000_000], Sampling())
        with pytest.raises(Unsupported):
            await model.score([1, 2, 3])
        assert len(await model.list_models()) == 1

    at_llama(llama_server, test)


def test_llama_is_free_again_after_a_cancelled_answer(llama_server: str) -> None:
    async def test(model: HttpModel) -> None:
        stream = model.complete("def f", Sampling(max_tokens=200))
        await anext(stream)
        await stream.aclose()
        assert (await answer(model, "def g", Sampling(max_tokens=1))).usage.generated_tokens == 1

    at_llama(llama_server, test)
