"""Asking the model: the answer streamed to whoever watches, bounded in length and time, and asked for again after a
failure of its server that may pass."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

from etude.agent.events import Notice, Observer, TextWritten
from etude.agent.limits import Limits, OutOfTime
from etude.errors import ServerError, ServerRefused
from etude.messages import Completion, FinishReason, Prompt, Sampling
from etude.models.model import Model

# No vocabulary has more to say in a token, on average over thousands of them.
MAX_CHARACTERS_PER_TOKEN = 8
# A server that is that slow with every retry is not coming back.
MAX_RETRY_SECONDS = 60.0

# Busy, restarting, or a gateway in front of one that is; whatever else a server refuses, it will refuse again.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


async def ask(
    model: Model,
    prompt: Prompt,
    limits: Limits,
    *,
    observer: Observer,
    seconds_left: float,
) -> Completion:
    """The whole answer. Raises ModelError, OutOfTime."""
    sampling = Sampling(max_tokens=limits.longest_answer, temperature=limits.temperature)
    try:
        async with asyncio.timeout(max(0.0, seconds_left)) as timer:
            return await _answer_in_the_end(model, prompt, sampling, limits, observer)
    except TimeoutError:
        if timer.expired():
            raise OutOfTime from None
        raise


async def _answer_in_the_end(
    model: Model, prompt: Prompt, sampling: Sampling, limits: Limits, observer: Observer
) -> Completion:
    for number in range(limits.retries):
        try:
            return await _answer(model, prompt, sampling, observer)
        except ServerError as error:
            if not may_pass(error):
                raise
            pause = min(limits.retry_seconds * 2**number, MAX_RETRY_SECONDS)
            observer(Notice(text=f"{error} Asking again in {pause:g} s ({number + 1} of {limits.retries})."))
            await asyncio.sleep(pause)
    return await _answer(model, prompt, sampling, observer)


def may_pass(error: ServerError) -> bool:
    return not isinstance(error, ServerRefused) or error.status is None or error.status in _PASSING


async def _answer(model: Model, prompt: Prompt, sampling: Sampling, observer: Observer) -> Completion:
    most = sampling.max_tokens * MAX_CHARACTERS_PER_TOKEN
    pieces: list[str] = []
    num_characters = 0
    async with aclosing(model.complete(prompt, sampling)) as stream:  # ty: ignore[invalid-argument-type]
        async for item in stream:
            if isinstance(item, Completion):
                return _bounded(item, sampling.max_tokens)
            if item.text:
                observer(TextWritten(text=item.text))
            pieces.append(item.text)
            num_characters += len(item.text)
            if num_characters > most:
                text = "".join(pieces)[:most]
                return Completion(text=text, finish_reason=FinishReason.LENGTH, model=model.name)
    raise AssertionError("a completion stream ended without a Completion")


def _bounded(answer: Completion, max_tokens: int) -> Completion:
    """Cut, where a server did not keep to the limit; ids that no longer fit the text are not told."""
    most = max_tokens * MAX_CHARACTERS_PER_TOKEN
    in_calls = sum(len(call.arguments) + len(call.name) for call in answer.tool_calls)
    if len(answer.text) <= most and in_calls <= most:
        return answer
    calls = () if in_calls > most else answer.tool_calls
    return replace(
        answer, text=answer.text[:most], token_ids=(), logprobs=(), tool_calls=calls, finish_reason=FinishReason.LENGTH
    )
