"""HttpModel against a misbehaving server on a real socket."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import (
    InputError,
    ModelError,
    PromptTooLong,
    ServerError,
    ServerNonsense,
    ServerRefused,
    ServerTimeout,
    ServerUnreachable,
    Unsupported,
)
from etude.messages import (
    Chat,
    Chunk,
    Completion,
    FinishReason,
    Message,
    Prompt,
    Role,
    Sampling,
    ToolCall,
    ToolSpec,
    Usage,
)
from etude.models import openai_wire
from etude.models.http import Api, Backoff, HttpModel, Timeouts, read_retry_after
from etude.models.model import finish as finish_stream
from tests.models.misbehaving_server import (
    MisbehavingServer,
    Reply,
    endless,
    events,
    finish,
    head,
    raw,
    silence,
    status,
    text,
    tool_call,
    whole,
)

KEY = "sk-very-secret-0123456789"
HELLO = Chat(messages=(Message(role=Role.USER, text="Say hello"),))
GREEDY = Sampling()
AT_ONCE = Backoff(first_seconds=0.0)
READ = ToolSpec(name="read", description="Read a file", parameters={"type": "object"})
DIFFERENT_NUMBERS = Usage(prompt_tokens=9, reused_tokens=4, generated_tokens=7, drafted_tokens=5, accepted_tokens=3)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@asynccontextmanager
async def asked(*replies: Reply, **options: Any) -> AsyncGenerator[tuple[HttpModel, MisbehavingServer]]:
    """A model at a server that gives these replies."""
    server_options = {name: options.pop(name) for name in ("models", "offers") if name in options}
    async with MisbehavingServer(*replies, **server_options) as server:
        options.setdefault("backoff", AT_ONCE)
        model = HttpModel(server.url, "m", **options)
        try:
            yield model, server
        finally:
            await model.close()


async def answer(model: HttpModel, prompt: Prompt = HELLO, sampling: Sampling = GREEDY, **more: Any) -> Completion:
    return await finish_stream(model.complete(prompt, sampling, **more))


async def completion_of(
    *replies: Reply, prompt: Prompt = HELLO, sampling: Sampling = GREEDY, **more: Any
) -> Completion:
    async with asked(*replies) as (model, _):
        return await answer(model, prompt, sampling, **more)


async def failure_of(*replies: Reply, kind: type[ModelError], prompt: Prompt = HELLO, **options: Any) -> Any:
    async with asked(*replies, **options) as (model, _):
        with pytest.raises(kind) as caught:
            await answer(model, prompt)
        assert type(caught.value) is kind
        return caught.value


# Answers.


def test_an_answer_is_streamed_and_then_whole() -> None:
    async def test() -> None:
        async with asked(events(text("hel"), text("lo"), finish())) as (model, server):
            items = [item async for item in model.complete(HELLO, GREEDY)]
            assert [item.text for item in items] == ["hel", "lo", "hello"]
            assert [type(item) for item in items] == [Chunk, Chunk, Completion]
            assert (server.requests[0].method, server.requests[0].path) == ("POST", "/v1/chat/completions")

    run(test())


def test_the_first_chunk_comes_before_the_last_is_sent() -> None:
    async def test() -> None:
        async with (
            asked(events(text("hel"), done=False, then=silence)) as (model, _),
            aclosing(model.complete(HELLO, GREEDY)) as stream,
        ):
            assert await anext(stream) == Chunk(text="hel")

    run(test())


def test_a_conversation_is_sent_as_it_is() -> None:
    async def test() -> None:
        chat = Chat(
            messages=(
                Message(role=Role.SYSTEM, text="Be brief"),
                Message(role=Role.ASSISTANT, text="", tool_calls=(ToolCall(id="c1", name="read", arguments="{}"),)),
                Message(role=Role.TOOL, text="é\u2028", tool_call_id="c1"),
            ),
            tools=(READ,),
            prefill="Sure",
        )
        sampling = Sampling(max_tokens=7, temperature=0.5, top_p=0.9, seed=3, stop=("END",))
        async with asked(events(finish())) as (model, server):
            await answer(model, chat, sampling)
            body = server.requests[0].body
        function = {"name": "read", "description": "Read a file", "parameters": {"type": "object"}}
        assert body["messages"] == [
            {"role": "system", "content": "Be brief"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "é\u2028", "tool_call_id": "c1"},
            {"role": "assistant", "content": "Sure"},
        ]
        assert body["tools"] == [{"type": "function", "function": function}]
        assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"]) == ("m", 7, 0.5, 0.9)
        assert (body["seed"], body["stop"], body["stream"]) == (3, ["END"], True)
        assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)

    run(test())


@pytest.mark.parametrize("prompt", ["def f", [1, 2, 3]])
def test_raw_prompts_go_to_completions(prompt: Prompt) -> None:
    async def test() -> None:
        reply = events({"choices": [{"text": "()", "finish_reason": None}]}, {"choices": [{"finish_reason": "length"}]})
        async with asked(reply) as (model, server):
            completion = await answer(model, prompt)
            assert (completion.text, completion.finish_reason) == ("()", FinishReason.LENGTH)
            assert (server.requests[0].path, server.requests[0].body["prompt"]) == ("/v1/completions", prompt)

    run(test())


def test_tool_calls_are_put_together_from_their_pieces() -> None:
    completion = asyncio.run(
        completion_of(
            events(
                tool_call(index=0, id="c1", type="function", function={"name": "read", "arguments": ""}),
                tool_call(index=0, function={"arguments": '{"path": '}),
                tool_call(index=1, id="c2", function={"name": "list", "arguments": "{}"}),
                tool_call(index=0, function={"arguments": '"a.py"}'}),
                finish("tool_calls"),
            )
        )
    )
    assert completion.finish_reason is FinishReason.TOOL_CALLS
    assert completion.tool_calls == (
        ToolCall(id="c1", name="read", arguments='{"path": "a.py"}'),
        ToolCall(id="c2", name="list", arguments="{}"),
    )


def test_tool_calls_of_careless_servers_are_understood() -> None:
    completion = asyncio.run(
        completion_of(
            events(
                tool_call(id="c1", function={"name": "read", "arguments": "{"}),
                tool_call(function={"arguments": "}"}),
                tool_call(id="c2", function={"name": "list", "arguments": {"path": "."}}),
                finish("stop"),
            )
        )
    )
    assert completion.finish_reason is FinishReason.TOOL_CALLS
    assert completion.tool_calls == (
        ToolCall(id="c1", name="read", arguments="{}"),
        ToolCall(id="c2", name="list", arguments='{"path":"."}'),
    )


def test_parallel_calls_of_one_id_or_none_get_their_own() -> None:
    calls: list[dict[str, Any]] = [{"index": at, "function": {"name": "read", "arguments": "{}"}} for at in range(4)]
    calls[0]["id"] = calls[2]["id"] = "call_1"
    message = {"delta": {"tool_calls": calls}}
    completion = asyncio.run(completion_of(events({"choices": [message]}, finish("tool_calls"))))
    ids = [call.id for call in completion.tool_calls]
    assert (ids[0], len(set(ids)), "" in ids) == ("call_1", 4, False)


def test_a_conversation_with_broken_calls_is_sent_as_one_without() -> None:
    async def test() -> None:
        broken = (
            ToolCall(id="c", name="read", arguments='{"path": "a'),
            ToolCall(id="c", name="no such tool", arguments="[1]"),
            ToolCall(id="", name="", arguments="{}"),
        )
        results = [Message(role=Role.TOOL, text=call.name, tool_call_id=call.id) for call in broken]
        chat = Chat(messages=(Message(role=Role.ASSISTANT, text="", tool_calls=broken), *results), tools=(READ,))
        async with asked(events(finish())) as (model, server):
            await answer(model, chat)
            said, *answers = server.requests[0].body["messages"]
        assert [
            (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in said["tool_calls"]
        ] == [
            ("read", {"malformed": '{"path": "a'}),
            ("no_such_tool", {"malformed": "[1]"}),
            ("malformed", {}),
        ]
        ids = [call["id"] for call in said["tool_calls"]]
        assert len(set(ids)) == 3
        assert [one["tool_call_id"] for one in answers] == ids

    run(test())


def test_an_answer_that_is_not_streamed_is_taken_whole() -> None:
    message = {"content": "hello", "tool_calls": None}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}, "model": "x"}
    completion = asyncio.run(completion_of(whole(body)))
    assert (completion.text, completion.usage.generated_tokens, completion.model) == ("hello", 2, "x")


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (finish("stop"), FinishReason.END),
        (finish("stop", stop_reason="END"), FinishReason.STOP_TEXT),
        (finish("stop", stop_reason=50256), FinishReason.END),
        (finish("length"), FinishReason.LENGTH),
    ],
)
def test_finish_reasons(reason: Any, found: FinishReason) -> None:
    completion = asyncio.run(completion_of(events(text("a"), reason), sampling=Sampling(stop=("END",))))
    assert completion.finish_reason is found


def test_a_tool_call_that_was_cut_off_is_not_a_finished_one() -> None:
    call = tool_call(index=0, id="c1", function={"name": "read", "arguments": '{"pa'})
    assert asyncio.run(completion_of(events(call, finish("length")))).finish_reason is FinishReason.LENGTH


def test_usage_is_read() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2},
    }
    completion = asyncio.run(completion_of(events(text("a"), finish(), {"choices": [], "usage": usage})))
    found = completion.usage
    assert found.seconds > 0
    assert (
        Usage(
            prompt_tokens=found.prompt_tokens,
            reused_tokens=found.reused_tokens,
            generated_tokens=found.generated_tokens,
            drafted_tokens=found.drafted_tokens,
            accepted_tokens=found.accepted_tokens,
        )
        == DIFFERENT_NUMBERS
    )


def entry(logprob: float, **more: Any) -> dict[str, Any]:
    return {"content": [{"token": "a", "logprob": logprob, "top_logprobs": [], **more}]}


@pytest.mark.parametrize(
    "pieces",
    [
        # llama.cpp
        [text("a", logprobs=entry(-0.5, id=7)), text("b", logprobs=entry(-0.25, id=8))],
        # vLLM
        [text("a", logprobs=entry(-0.5), token_ids=[7]), text("b", logprobs=entry(-0.25), token_ids=[8])],
        # vLLM's completions
        [
            {"choices": [{"text": "a", "logprobs": {"token_logprobs": [-0.5]}, "token_ids": [7]}]},
            {"choices": [{"text": "b", "logprobs": {"token_logprobs": [-0.25]}, "token_ids": [8]}]},
        ],
    ],
)
def test_token_ids_and_logprobs_are_read(pieces: list[Any]) -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 3}}
    completion = asyncio.run(completion_of(events(*pieces, finish(), usage)))
    assert (completion.token_ids, completion.logprobs) == ((7, 8), (-0.5, -0.25))


def test_logprobs_with_gaps_are_not_handed_on() -> None:
    pieces = [text("🦜", logprobs=entry(-0.5, id=7)), finish(), {"choices": [], "usage": {"completion_tokens": 3}}]
    completion = asyncio.run(completion_of(events(*pieces)))
    assert (completion.text, completion.token_ids, completion.logprobs) == ("🦜", (), ())


# What not every server takes.


def refusal(message: str) -> Reply:
    return status(400, json.dumps({"error": {"message": message}}), "application/json")


def test_what_is_refused_by_name_is_left_out_from_then_on() -> None:
    async def test() -> None:
        replies = [
            refusal("Unrecognized request argument supplied: return_token_ids"),
            refusal("'logprobs' is not supported when 'prediction' is used"),
            refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            events(finish()),
        ]
        async with asked(*replies) as (model, server):
            await answer(model, draft="hello")
            await answer(model, draft="hello")
            first, *_, fourth, fifth = [request.body for request in server.requests]
        wishes = {"return_token_ids", "logprobs", "top_logprobs", "max_tokens"}
        assert wishes <= set(first)
        assert fourth == fifth
        assert set(first) - set(fourth) == wishes
        assert set(fourth) - set(first) == {"max_completion_tokens"}
        assert fourth["prediction"] == {"type": "content", "content": "hello"}

    run(test())


def test_a_refused_prediction_is_tried_once() -> None:
    async def test() -> None:
        replies = [refusal("Unknown parameter: 'prediction'."), events(text("hello"), finish())]
        async with asked(*replies) as (model, server):
            assert (await answer(model, draft="hello")).text == "hello"
            assert (await answer(model, draft="hello")).text == "hello"
            assert ["prediction" in request.body for request in server.requests] == [True, False, False]

    run(test())


def test_nothing_is_left_out_for_good_when_the_request_fails_anyway() -> None:
    async def test() -> None:
        replies = [refusal("the seed of all evil"), refusal("no"), events(finish())]
        async with asked(*replies) as (model, server):
            with pytest.raises(ServerRefused, match="400: no"):
                await answer(model, sampling=Sampling(temperature=1))
            await answer(model, sampling=Sampling(temperature=1))
            assert ["seed" in request.body for request in server.requests] == [True, False, True]

    run(test())


def test_a_prefill_that_cannot_be_continued_is_an_error() -> None:
    reply = refusal("Unrecognized request arguments supplied: add_generation_prompt, continue_final_message")
    prompt = Chat(messages=HELLO.messages, prefill="Sure")
    asyncio.run(failure_of(reply, kind=Unsupported, prompt=prompt))


@pytest.mark.parametrize(("api", "prompt"), [(Api.CHAT, "raw"), (Api.CHAT, [1]), (Api.COMPLETIONS, HELLO)])
def test_a_way_of_asking_can_be_ruled_out(api: Api, prompt: Prompt) -> None:
    asyncio.run(failure_of(silence, kind=Unsupported, prompt=prompt, api=api))


def test_without_a_name_the_first_model_of_the_server_answers() -> None:
    async def test() -> None:
        async with MisbehavingServer(events(finish()), models=["a", "b"]) as server:
            model = HttpModel(server.url, "")
            await answer(model)
            assert (model.name, server.requests[0].body["model"]) == ("a", "a")
            await model.close()
        async with MisbehavingServer(models=[]) as server:
            model = HttpModel(server.url, "")
            with pytest.raises(ServerNonsense, match="offers no model"):
                await answer(model)
            await model.close()

    run(test())


# Errors.


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (401, '{"error": {"message": "No such key", "type": "auth"}}', r"answered 401: No such key\. .* give one"),
        (403, "no", r"answered 403: no\. "),
        (400, '{"detail": [{"loc": ["body"], "msg": "bad"}]}', r'answered 400: .*"msg":"bad"'),
        (400, '{"message": "flat"}', r"answered 400: flat\."),
        (400, '{"error": "a string"}', r"answered 400: a string\."),
        (418, "", r"answered 418: So it is\."),
        (404, "<html><style>p {}</style><h1>Not\n\n\tfound</h1></html>", r"answered 404: Not found\. .*/v1"),
    ],
)
def test_a_refusal_names_url_status_reason_and_way_out(code: int, body: str, words: str) -> None:
    error = asyncio.run(failure_of(status(code, body), kind=ServerRefused))
    assert error.status == code
    assert error.url.endswith("/v1/chat/completions")
    assert error.url in str(error)
    assert re.search(words, str(error)), str(error)


def test_an_unknown_model_is_answered_with_those_there_are() -> None:
    error = asyncio.run(failure_of(status(404, "no such model"), kind=ServerRefused, models=["a", "b"]))
    assert "'m'; the server offers: a, b." in str(error)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (400, '{"error": {"type": "exceed_context_size_error", "message": "request (3000 tokens) exceeds"}}'),
        (400, "This model's maximum context length is 2048 tokens. However, you requested 3000."),
        (400, '{"error": {"code": "context_length_exceeded"}}'),
        (413, "Payload too large"),
    ],
)
def test_too_long_a_prompt_has_its_own_error(code: int, body: str) -> None:
    asyncio.run(failure_of(status(code, body), kind=PromptTooLong))


@pytest.mark.parametrize(
    "reply",
    [
        events(text("a"), done=False),
        events(done=True),
        events({"choices": "none"}),
        events({"choices": [{"delta": {"content": 5}}]}),
        events([1, 2]),
        events(finish("because")),
        events(tool_call(index=0, function={"arguments": "{}"}), finish()),
        raw(head(), b"data: {\n\n"),
        raw(head(), b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'),
        raw(head(), b'data: {"more": ' + b"[" * 100_000 + b"\n\n"),
        raw(head(), b"hello, world\n\n"),
        raw(head(), b"\x00\x01\x02\n" * 50),
        raw(head()),
        raw(head(kind="text/html"), b"<html>Log in</html>"),
        raw(head(kind="application/json"), b"nonsense"),
        raw(head(kind="application/json"), b""),
        raw(head(Content_Encoding="gzip"), b"\x1f\x8b"),
        raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        raw(head(Content_Length="1000"), b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'),
        raw(head(Transfer_Encoding="chunked"), b"zzz\r\n"),
    ],
)
def test_nonsense_is_called_nonsense(reply: Reply) -> None:
    error = asyncio.run(failure_of(reply, kind=ServerNonsense, backoff=Backoff(num_retries=0)))
    assert error.url in str(error)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "reply",
    [
        raw(head(), then=endless(b"x" * 65_536)),
        raw(head(), then=endless(b"data: " + b"x" * 65_536 + b"\n")),
        raw(head(), then=endless(b": still here\n" * 5000)),
        raw(head(kind="application/json"), then=endless(b" " * 65_536)),
    ],
)
def test_an_endless_answer_is_cut_off(reply: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_wire, "MAX_EVENT_BYTES", 1_000_000)
    monkeypatch.setattr("etude.models.http.MAX_ANSWER_BYTES", 4_000_000)

    async def test() -> None:
        async with asked(reply) as (model, server):
            with pytest.raises(ServerNonsense, match="MB"):
                await answer(model)
            await server.hung_up.wait()

    run(test())


def test_a_huge_error_page_is_quoted_in_a_line() -> None:
    error = asyncio.run(failure_of(raw(head(400), then=endless(b"wrong \x1b[31m " * 5000)), kind=ServerRefused))
    assert len(str(error)) < 600
    assert str(error).isprintable()


def test_an_answer_without_done_is_whole_when_it_says_why_it_ended() -> None:
    assert asyncio.run(completion_of(events(text("a"), finish(), done=False))).text == "a"


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n\r\n"])
def test_the_last_event_needs_no_empty_line(ending: bytes) -> None:
    event = b'data:{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}'
    assert asyncio.run(completion_of(raw(head(), b": hi\r\n\r\nevent: x\r\n" + event + ending))).text == "a"


def test_what_a_filter_cut_off_is_not_an_answer() -> None:
    asyncio.run(failure_of(events(text("a"), finish("content_filter")), kind=ServerRefused))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "broken", "code": 500}, ServerRefused),
        ({"message": "broken", "code": "oh"}, ServerRefused),
        ("broken", ServerRefused),
        ({"message": "maximum context length is 8"}, PromptTooLong),
    ],
)
def test_an_error_object_in_a_good_answer_is_an_error(error: Any, kind: type[ModelError]) -> None:
    found = asyncio.run(failure_of(events({"error": error}), kind=kind))
    assert ("broken" in str(found)) == (kind is ServerRefused)
    asyncio.run(failure_of(whole({"error": error}), kind=kind))


# Time.


def timeouts(**seconds: float) -> dict[str, Any]:
    return {"timeouts": Timeouts(**seconds)}


@pytest.mark.parametrize(
    "reply",
    [
        silence,
        raw(head(), then=silence),
        raw(head(kind="application/json"), b"{", then=silence),
    ],
)
def test_a_server_that_does_not_begin_runs_out_of_time(reply: Reply) -> None:
    error = asyncio.run(failure_of(reply, kind=ServerTimeout, **timeouts(first_event_seconds=0.05)))
    assert "0.05 s to begin" in str(error)


def test_a_server_that_stops_in_the_middle_runs_out_of_time() -> None:
    reply = events(text("a"), done=False, then=silence)
    asyncio.run(failure_of(reply, kind=ServerTimeout, **timeouts(between_events_seconds=0.05)))


def test_a_slow_reader_is_not_taken_for_a_slow_server() -> None:
    async def test() -> None:
        reply = events(text("a"), text("b"), finish())
        async with (
            asked(reply, **timeouts(between_events_seconds=0.2)) as (model, _),
            aclosing(model.complete(HELLO, GREEDY)) as stream,
        ):
            await anext(stream)
            await asyncio.sleep(0.3)
            assert [item.text async for item in stream] == ["b", "ab"]

    run(test())


def test_keep_alive_comments_do_not_prolong_the_wait() -> None:
    reply = raw(head(), then=endless(b":\n\n"))
    asyncio.run(failure_of(reply, kind=ServerTimeout, **timeouts(first_event_seconds=0.05)))


def test_an_error_page_that_never_ends_is_not_waited_for() -> None:
    reply = raw(head(400), then=silence)
    asyncio.run(failure_of(reply, kind=ServerRefused, **timeouts(connect_seconds=0.05)))


# Trying again.


@pytest.mark.parametrize(
    "bad",
    [
        status(500),
        status(503, "Loading model"),
        status(429),
        status(529),
        raw(b""),
        events({"error": {"code": 503, "message": "overloaded"}}),
    ],
)
def test_what_may_pass_is_tried_again(bad: Reply) -> None:
    async def test() -> None:
        async with asked(bad, bad, events(text("a"), finish())) as (model, server):
            assert (await answer(model)).text == "a"
            assert len(server.requests) == 3
            assert server.requests[0] == server.requests[2]

    run(test())


@pytest.mark.parametrize(
    ("bad", "num_requests"),
    [
        (status(500), 3),
        (status(400), 1),
        (status(401), 1),
        (status(501), 1),
        (status(429, "insufficient_quota"), 1),
        (status(429, retry_after="3600"), 1),
        (events(text("a"), done=False), 1),
        (events(text("a"), {"error": {"code": 503}}), 1),
        (raw(head(), b"x\n"), 1),
    ],
)
def test_what_will_not_pass_or_has_begun_is_not_tried_again(bad: Reply, num_requests: int) -> None:
    async def test() -> None:
        async with asked(bad, backoff=Backoff(num_retries=2, first_seconds=0.0)) as (model, server):
            with pytest.raises(ServerError):
                await answer(model)
            assert len(server.requests) == num_requests

    run(test())


def test_a_refused_connection_is_tried_again_and_then_named() -> None:
    async def test() -> None:
        async with MisbehavingServer() as server:
            url = server.url
        model = HttpModel(url, "m", backoff=AT_ONCE)
        with pytest.raises(ServerUnreachable, match=r"Is the server running") as caught:
            await answer(model)
        assert caught.value.url == url + "/v1/chat/completions"
        await model.close()

    run(test())


def test_a_server_that_comes_up_meanwhile_is_found() -> None:
    async def test() -> None:
        async with MisbehavingServer() as server:
            port = server.port
        model = HttpModel(f"http://127.0.0.1:{port}", "m", backoff=Backoff(first_seconds=0.05, jitter=lambda: 0.0))
        waiting = asyncio.ensure_future(answer(model))
        await asyncio.sleep(0)
        async with MisbehavingServer(events(text("a"), finish()), port=port):
            assert (await waiting).text == "a"
        await model.close()

    run(test())


def test_the_pause_that_a_server_asks_for_is_kept() -> None:
    async def test() -> None:
        async with asked(status(429, retry_after="0.2"), events(finish())) as (model, server):
            await answer(model)
            assert server.times[1] - server.times[0] >= 0.2

    run(test())


def test_pauses_grow_and_are_shortened_at_random() -> None:
    longest = Backoff(num_retries=9, jitter=lambda: 0.0)
    assert [longest.seconds(attempt) for attempt in range(10)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, None]
    assert Backoff(jitter=lambda: 1.0).seconds(1) == 0.5
    assert longest.seconds(0, 7.0) == 7.0
    assert longest.seconds(0, 61.0) is None
    assert longest.seconds(9, 7.0) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0.5 ", 0.5),
        (formatdate(1_000_030, usegmt=True), 30.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("-1", None),
        ("soon", None),
        ("inf", None),
        ("", None),
        (None, None),
        ("Mon, 99 Foo 2020", None),
    ],
)
def test_retry_after_is_read(header: str | None, seconds: float | None) -> None:
    assert read_retry_after(header, 1_000_000.0) == seconds


@given(header=st.text(max_size=30))
def test_no_retry_after_makes_us_fall(header: str) -> None:
    seconds = read_retry_after(header, 0.0)
    assert seconds is None or seconds >= 0


# Cancelling.


def test_closing_the_stream_hangs_up() -> None:
    async def test() -> None:
        async with asked(events(text("a"), done=False, then=silence)) as (model, server):
            stream = model.complete(HELLO, GREEDY)
            await anext(stream)
            assert not server.hung_up.is_set()
            await stream.aclose()
            await server.hung_up.wait()
            assert len(server.requests) == 1

    run(test())


@pytest.mark.parametrize("reply", [silence, events(text("a"), done=False, then=silence)])
def test_cancelling_the_task_hangs_up(reply: Reply) -> None:
    async def test() -> None:
        async with asked(reply) as (model, server):
            task = asyncio.ensure_future(answer(model))
            await server.was_asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.hung_up.wait()
            assert len(server.requests) == 1

    run(test())


# The key.


def test_the_key_is_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bodies = [
        f"bad key {KEY}",
        json.dumps({"error": {"message": KEY}}),
        "x" * 290 + KEY,
        "<b>" + KEY,
        " " * 65_530 + KEY,
    ]

    async def test() -> None:
        for body in bodies:
            for reply in (
                status(401, body),
                events(done=False, then=raw(body.encode() + b"\n")),
                whole({"error": body}),
            ):
                async with asked(reply, api_key=KEY) as (model, server):
                    with pytest.raises(ServerError) as caught:
                        await answer(model)
                    assert KEY[:8] not in str(caught.value) + repr(caught.value) + repr(model)
                    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"

    run(test())
    assert caplog.records
    assert KEY[:8] not in caplog.text


def test_without_a_key_none_is_sent() -> None:
    async def test() -> None:
        async with asked(events(finish()), api_key="") as (model, server):
            await answer(model)
            assert "authorization" not in server.requests[0].headers

    run(test())


@pytest.mark.parametrize("url", ["http://example.com", "http://10.0.0.1:8000/v1", "http://127.0.0.1.example.com"])
def test_the_key_is_not_sent_in_the_clear(url: str) -> None:
    with pytest.raises(InputError, match="anyone on the way could read it") as caught:
        HttpModel(url, "m", KEY)
    assert KEY not in str(caught.value)
    HttpModel(url, "m")
    HttpModel(url.replace("http:", "https:"), "m", KEY)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.3.2.1:1", "http://[::1]:1/v1", "http://a.localhost"])
def test_the_key_may_stay_on_this_machine(url: str) -> None:
    HttpModel(url, "m", KEY)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(code: int) -> None:
    async def test() -> None:
        async with MisbehavingServer(events(finish())) as elsewhere:
            target = f"http://localhost:{elsewhere.port}/v1"
            async with asked(status(code, location=target), api_key=KEY) as (model, _):
                with pytest.raises(ServerRefused, match=f"It points to {target}"):
                    await answer(model)
            assert elsewhere.requests == []

    run(test())


def test_a_proxy_of_the_system_gets_nothing_that_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert asyncio.run(completion_of(events(text("a"), finish()))).text == "a"


# Addresses.


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://localhost:8080", "http://localhost:8080/v1"),
        ("http://localhost:8080/", "http://localhost:8080/v1"),
        ("https://host/api/v1/", "https://host/api/v1"),
        (" https://host/v1/chat/completions ", "https://host/v1"),
        ("https://host/v1/completions", "https://host/v1"),
    ],
)
def test_urls_are_understood(url: str, found: str) -> None:
    assert HttpModel(url, "m").url == found


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://host",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://u:pass@host",
        "https://h/?key=pass",
    ],
)
def test_other_urls_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InputError) as caught:
        HttpModel(url, "m")
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("key", ["a b", "a\nb", "schlüssel"])
def test_impossible_keys_are_refused_without_repeating_them(key: str) -> None:
    with pytest.raises(InputError) as caught:
        HttpModel("https://host", "m", key)
    assert key not in str(caught.value)


def test_text_that_cannot_be_sent_is_refused() -> None:
    async def test() -> None:
        async with asked(events(finish())) as (model, _):
            with pytest.raises(InputError, match="surrogate"):
                await answer(model, "a\ud800")

    run(test())


# Scores and tokens.


def vllm_scores(body: dict[str, Any]) -> Any:
    entries = [{str(token): {"logprob": -token / 8, "rank": 1}} for token in body["prompt"]]
    return {"choices": [{"text": "x", "prompt_logprobs": [None, *entries[1:]] if "prompt_logprobs" in body else None}]}


def echo_scores(body: dict[str, Any]) -> Any:
    told = [None, *(-token / 8 for token in body["prompt"][1:])] if body.get("echo") else []
    return {"choices": [{"text": "x", "logprobs": {"token_logprobs": [*told, -9.0]}}]}


@pytest.mark.parametrize(("scores", "num_requests"), [(vllm_scores, 1), (echo_scores, 2)])
def test_scores_are_read_in_either_way(scores: Any, num_requests: int) -> None:
    async def test() -> None:
        async with asked(offers={"/v1/completions": scores}) as (model, server):
            assert await model.score([4, 2, 1]) == [-0.25, -0.125]
            assert await model.score([4, 2, 1], start=2) == [-0.125]
            assert await model.score([4, 2, 1], start=3) == []
            assert len(server.requests) == num_requests + 1

    run(test())


@pytest.mark.parametrize(
    "reply",
    [
        status(404),
        status(400, "unknown field echo"),
        whole({"choices": []}),
        whole({"choices": [{"text": "x", "logprobs": {"content": [{"logprob": -1.0}]}}]}),
        whole({"choices": [{"text": "x", "logprobs": {"token_logprobs": [-1.0, -1.0, -1.0]}}]}),
        whole({"choices": [{"text": "x", "prompt_logprobs": [None, {"9": {"logprob": -1}}, {"1": {"logprob": -1}}]}]}),
    ],
)
def test_servers_that_do_not_tell_scores_are_not_guessed_at(reply: Reply) -> None:
    async def test() -> None:
        async with asked(reply) as (model, _):
            with pytest.raises(Unsupported, match="does not tell the log-probabilities"):
                await model.score([4, 2, 1])

    run(test())


@pytest.mark.parametrize("reply", [status(500), whole({"error": {"code": 503, "message": "loading"}})])
def test_a_server_that_is_down_is_not_one_that_cannot_score(reply: Reply) -> None:
    async def test() -> None:
        async with asked(reply) as (model, _):
            with pytest.raises(ServerRefused):
                await model.score([4, 2, 1])

    run(test())


def test_conversations_are_tokenized_by_template_or_as_messages() -> None:
    def tokens(body: dict[str, Any]) -> Any:
        return {"tokens": [len(body["content"]), 1] if "content" in body else [len(body["messages"]), 2]}

    async def test() -> None:
        template = {"/apply-template": lambda body: {"prompt": "four"}}
        async with asked(offers={"/tokenize": tokens, **template}) as (model, _):
            assert await model.encode(HELLO) == [4, 1]
            assert await model.encode("abc") == [3, 1]
            assert await model.encode([5, 6]) == [5, 6]
        async with asked(offers={"/tokenize": tokens}) as (model, _):
            assert await model.encode(HELLO) == [1, 2]
        async with asked() as (model, _):
            with pytest.raises(Unsupported, match="/tokenize"):
                await model.encode("abc")

    run(test())


# Events, however they are cut.


@given(st.lists(st.text(alphabet="ab \ré", max_size=5).filter(lambda t: "\r" not in t), max_size=5), st.data())
def test_events_do_not_depend_on_how_they_are_cut(payloads: list[str], data: st.DataObject) -> None:
    stream = "".join(f"data: {payload}\r\n: hm\n\n" for payload in payloads).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = openai_wire.EventSplitter()
    found = [
        event
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for event in splitter.feed(stream[begin:end])
    ]
    assert [event.decode() for event in found] == payloads
    assert splitter.rest() is None


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fall(data: bytes) -> None:
    try:
        for event in [*openai_wire.EventSplitter().feed(data), data]:
            openai_wire.Assembly().add(openai_wire.read(event, openai_wire.Answer))
    except openai_wire.NotTheProtocol:
        return
