"""The words of the OpenAI-compatible protocol: request bodies, server-sent events, answers put together.

Values and pure functions only. Sockets, retries and time-outs are in `http.py`. What a server adds of its
own is skipped; what it leaves out has a default; what has another type than expected is an error.
"""

import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from etude.messages import Chat, Chunk, Completion, FinishReason, Message, Role, Sampling, ToolCall, ToolSpec, Usage
from etude.prompts.chat_format import arguments_object

# The longest event that makes sense is a whole answer sent at once; servers cap answers far below this.
MAX_EVENT_BYTES = 16_000_000
# Enough to quote from; an error page may be of any size.
MAX_EXCERPT_CHARACTERS = 300
MAX_READ_FOR_EXCERPT = 65_536


class Wish(StrEnum):
    """A part of a request that not every server accepts; asked for until the server refuses it by name."""

    TOKEN_IDS = "token_ids"
    """The ids of generated tokens (vLLM)."""
    LOGPROBS = "logprobs"
    """Log-probabilities; llama.cpp tells the token ids with them."""
    USAGE = "usage"
    """Counts of tokens at the end of a stream."""
    SEED = "seed"
    PREDICTION = "prediction"
    """The draft, as OpenAI's predicted outputs."""
    MAX_TOKENS = "max_tokens"
    """The limit under its older name; the newer one is max_completion_tokens."""
    PREFILL = "prefill"
    """The last message is continued, not answered. The one wish whose refusal is an error: without it the
    answer would be another one."""


# How a refusal names each wish. The limit is only renamed where the server says the new name.
_NAMES = {
    Wish.TOKEN_IDS: ("return_token_ids",),
    Wish.LOGPROBS: ("logprobs", "top_logprobs"),
    Wish.USAGE: ("stream_options", "include_usage"),
    Wish.SEED: ("seed",),
    Wish.PREDICTION: ("prediction",),
    Wish.MAX_TOKENS: ("max_completion_tokens",),
    Wish.PREFILL: ("continue_final_message", "add_generation_prompt"),
}

# Words of llama.cpp, vLLM, OpenAI, and of servers that imitate them.
_TOO_LONG = re.compile(
    r"exceed_context_size|context_length_exceeded|context (length|size|window)|prompt is too long|too many tokens", re.I
)

_FINISH_REASONS = {
    "stop": FinishReason.END,
    "eos": FinishReason.END,
    "eos_token": FinishReason.END,
    "end_turn": FinishReason.END,
    "stop_sequence": FinishReason.STOP_TEXT,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
}

CONTENT_FILTER = "content_filter"
"""The finish reason of an answer that the server itself cut off; its text is not an answer."""


T = TypeVar("T")


class NotTheProtocol(Exception):
    """What no OpenAI-compatible server would send."""

    def __init__(self, message: str, data: bytes = b"") -> None:
        super().__init__(message)
        self.data = data
        """The bytes in question, not yet cleaned for people."""


# What a server sends.


class TokenLogprob(msgspec.Struct):
    logprob: float | None = None
    id: int | None = None
    """llama.cpp."""


class Logprobs(msgspec.Struct):
    content: list[TokenLogprob] | None = None
    """Chat everywhere; completions too on llama.cpp."""
    token_logprobs: list[float | None] | None = None
    """Completions elsewhere."""


class FunctionDelta(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    """A piece of JSON text; a few servers send the object."""


class ToolCallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class PromptLogprob(msgspec.Struct):
    logprob: float


class Choice(msgspec.Struct):
    index: int = 0
    delta: Delta | None = None
    """Chat, streamed."""
    message: Delta | None = None
    """Chat, whole."""
    text: str | None = None
    """Completions."""
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    """vLLM."""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """vLLM: the stop text that was met."""
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = None
    """vLLM: for each prompt token, by token id; None for the first."""


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct):
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class WireUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Timings(msgspec.Struct):
    """llama.cpp's own counts."""

    draft_n: int | None = None
    draft_n_accepted: int | None = None


class Answer(msgspec.Struct):
    """One event of a stream, or a whole answer."""

    choices: list[Choice] = []
    usage: WireUsage | None = None
    timings: Timings | None = None
    model: str | None = None
    error: Any = None


class ModelEntry(msgspec.Struct):
    id: str


class ModelList(msgspec.Struct):
    data: list[ModelEntry] = []


class Tokens(msgspec.Struct):
    tokens: list[int]


class Template(msgspec.Struct):
    prompt: str


def read(data: bytes, kind: type[T]) -> T:
    """One of the values above from its JSON; NotTheProtocol if it is something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotTheProtocol(str(error), data) from None


def excerpt(data: bytes, *, hide: str = "") -> str:
    """The error message in a body, or the start of its text, on one line without markup and the hidden word."""
    if hide:
        # Before anything is cut: a part of the word would give it away as well.
        data = data.replace(hide.encode(), b"[key]")
    data = data[:MAX_READ_FOR_EXCERPT]
    text = _message_in(data) or re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", data.decode("utf-8", "replace"))
    text = text.replace(hide, "[key]") if hide else text
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= MAX_EXCERPT_CHARACTERS else line[:MAX_EXCERPT_CHARACTERS] + "…"


def _message_in(data: bytes) -> str:
    try:
        body = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    return error_message(body.get("error", body)) if isinstance(body, dict) else ""


def error_message(error: Any) -> str:
    """The sentence in an error object; servers disagree on where it stands."""
    if isinstance(error, dict):
        error = next((error[key] for key in ("message", "detail", "error") if error.get(key)), error)
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()


def is_too_long(status: int, body: str) -> bool:
    return status == 413 or (status in (400, 422, 500) and bool(_TOO_LONG.search(body)))


def refused_wish(body: str, asked: Collection[Wish]) -> Wish | None:
    """The first wish that a refusal names."""
    for wish in Wish:
        if wish in asked and any(re.search(rf"\b{name}\b", body) for name in _NAMES[wish]):
            return wish
    return None


# What we send.


def chat_body(prompt: Chat, sampling: Sampling, *, draft: str | None, without: Collection[Wish]) -> dict[str, Any]:
    """The body of a chat request, less the wishes in `without`."""
    body = {**_sampling_fields(sampling, without), "messages": wire_messages(prompt), **tool_fields(prompt)}
    if Wish.LOGPROBS not in without:
        # At least one alternative: llama.cpp tells nothing for zero.
        body |= {"logprobs": True, "top_logprobs": 1}
    if prompt.prefill:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    # Where predicted outputs exist they exclude tools.
    if draft and not prompt.tools and Wish.PREDICTION not in without:
        body["prediction"] = {"type": "content", "content": draft}
    return body


def completion_body(prompt: str | Sequence[int], sampling: Sampling, *, without: Collection[Wish]) -> dict[str, Any]:
    """The body of a raw completion request; there is no standard way to pass a draft."""
    body = {**_sampling_fields(sampling, without), "prompt": prompt if isinstance(prompt, str) else list(prompt)}
    if Wish.LOGPROBS not in without:
        body["logprobs"] = 1
    return body


def wishes_in(body: dict[str, Any]) -> set[Wish]:
    """The wishes that a body holds."""
    found = {wish for wish, names in _NAMES.items() if any(name in body for name in names)}
    return found - {Wish.MAX_TOKENS} | ({Wish.MAX_TOKENS} if "max_tokens" in body else set())


def _sampling_fields(sampling: Sampling, without: Collection[Wish]) -> dict[str, Any]:
    limit = "max_completion_tokens" if Wish.MAX_TOKENS in without else "max_tokens"
    fields: dict[str, Any] = {limit: sampling.max_tokens, "temperature": sampling.temperature, "stream": True}
    if sampling.top_p != 1:
        fields["top_p"] = sampling.top_p
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.temperature and Wish.SEED not in without:
        fields["seed"] = sampling.seed
    if Wish.USAGE not in without:
        fields["stream_options"] = {"include_usage": True}
    if Wish.TOKEN_IDS not in without:
        fields["return_token_ids"] = True
    return fields


def wire_messages(prompt: Chat) -> list[dict[str, Any]]:
    messages = [_wire_message(message) for message in with_sound_calls(prompt.messages)]
    return [*messages, {"role": Role.ASSISTANT, "content": prompt.prefill}] if prompt.prefill else messages


def with_sound_calls(messages: Sequence[Message]) -> list[Message]:
    """Messages whose calls every server can read: a name, arguments that are a JSON object, an id of their own.

    One bad call in the history makes llama.cpp's server refuse every later prompt.
    """
    seen: set[str] = set()
    new_ids: dict[str, deque[str]] = {}
    found = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_sound_call(call, seen) for call in message.tool_calls)
            # Results come in the order of the calls, which tells those of one id apart.
            new_ids = {call.id: deque() for call in message.tool_calls}
            for old, new in zip(message.tool_calls, calls, strict=True):
                new_ids[old.id].append(new.id)
            found.append(replace(message, tool_calls=calls))
        elif message.tool_call_id is not None and new_ids.get(message.tool_call_id):
            found.append(replace(message, tool_call_id=new_ids[message.tool_call_id].popleft()))
        else:
            found.append(message)
    return found


def _sound_call(call: ToolCall, seen: set[str]) -> ToolCall:
    call_id, number = call.id, len(seen)
    while not call_id or call_id in seen:
        call_id, number = f"call_{number}", number + 1
    seen.add(call_id)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "malformed"
    sound = arguments_object(call.arguments)
    # What is sound is sent as the model wrote it: another spelling would be another prompt.
    is_quoted = sound == {"malformed": call.arguments}
    return ToolCall(id=call_id, name=name, arguments=_json_text(sound) if is_quoted else call.arguments)


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        wire["content"] = message.text or None
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def tool_fields(prompt: Chat) -> dict[str, Any]:
    return {"tools": [_wire_tool(tool) for tool in prompt.tools]} if prompt.tools else {}


def _wire_tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def tokenize_body(text: str) -> dict[str, Any]:
    """In llama.cpp's words and in vLLM's; each skips the other's."""
    return {"content": text, "prompt": text, "add_special": True, "parse_special": True, "add_special_tokens": True}


def tokenize_chat_body(prompt: Chat) -> dict[str, Any]:
    continues = bool(prompt.prefill)
    body = {"messages": wire_messages(prompt), "add_generation_prompt": not continues}
    return body | ({"continue_final_message": True} if continues else {}) | tool_fields(prompt)


# Streams.


class EventSplitter:
    """Bytes in, the data of server-sent events out, however the bytes were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._buffer += piece
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(self._buffer[:end]).rstrip(b"\r")
            del self._buffer[: end + 1]
            self._searched = 0
            if (event := self._add(line)) is not None:
                yield event
        self._searched = len(self._buffer)
        self._check_size()

    def rest(self) -> bytes | None:
        """The last event of a stream that ended without an empty line."""
        line, self._buffer = bytes(self._buffer).rstrip(b"\r"), bytearray()
        event = self._add(line)
        return self._add(b"") if event is None else event

    def _add(self, line: bytes) -> bytes | None:
        if not line:
            data, self._data, self._data_bytes = self._data, [], 0
            return b"\n".join(data) if data else None
        field, _, value = line.partition(b":")
        # "error:" is what older llama.cpp servers put before an error object.
        if field in (b"data", b"error"):
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value)
        elif field not in (b"", b"event", b"id", b"retry"):
            raise NotTheProtocol("a line that is no event", line)
        return None

    def _check_size(self) -> None:
        if len(self._buffer) + self._data_bytes > MAX_EVENT_BYTES:
            raise NotTheProtocol(f"an event longer than {MAX_EVENT_BYTES / 1e6:g} MB")


class Assembly:
    """Puts the pieces of one answer together."""

    def __init__(self, *, stop: Sequence[str] = ()) -> None:
        self._stop = stop
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._calls: dict[int, _Call] = {}
        self._choice_seen = False
        self._finish: FinishReason | None = None
        self._usage = WireUsage()
        self._timings = Timings()
        self._model = ""

    @property
    def is_finished(self) -> bool:
        """The server said why the answer ended."""
        return self._finish is not None

    def add(self, answer: Answer) -> Chunk | None:
        """Take one event; the chunk it brings, if any."""
        self._usage = answer.usage or self._usage
        self._timings = answer.timings or self._timings
        self._model = answer.model or self._model
        choice = next((choice for choice in answer.choices if choice.index == 0), None)
        if choice is None:
            return None
        self._choice_seen = True
        delta = choice.delta or choice.message or Delta()
        for position, call in enumerate(delta.tool_calls or ()):
            self._add_call(call, position)
        ids = self._add_tokens(choice)
        self._add_finish(choice)
        text = choice.text or delta.content or ""
        self._texts.append(text)
        return Chunk(text=text, token_ids=ids) if text or ids else None

    def completion(self, *, name: str, seconds: float) -> Completion:
        """The whole answer, after the last event."""
        if not self._choice_seen:
            raise NotTheProtocol("an answer without choices")
        token_ids, logprobs = self._trusted_tokens()
        return Completion(
            text="".join(self._texts),
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=self._finish_reason(),
            tool_calls=self._finished_calls(),
            usage=self._final_usage(seconds),
            model=self._model or name,
        )

    def _finished_calls(self) -> tuple[ToolCall, ...]:
        """Each with an id of its own; what has none, or that of an earlier call, gets one."""
        calls = [call.finished() for _, call in sorted(self._calls.items())]
        told = {call.id for call in calls}
        seen: set[str] = set()
        found = []
        for index, call in enumerate(calls):
            call_id = call.id if call.id not in seen else ""
            if not call_id:
                call_id = next(
                    one for n in range(index, index + 2 * len(calls) + 1) if (one := f"call_{n}") not in told
                )
                told.add(call_id)
            seen.add(call_id)
            found.append(replace(call, id=call_id))
        return tuple(found)

    def _add_tokens(self, choice: Choice) -> tuple[int, ...]:
        logprobs = choice.logprobs or Logprobs()
        entries = logprobs.content or []
        told = [entry.logprob for entry in entries] or logprobs.token_logprobs or []
        self._logprobs += [logprob for logprob in told if logprob is not None]
        ids = choice.token_ids if choice.token_ids is not None else [e.id for e in entries if e.id is not None]
        self._token_ids += ids
        return tuple(ids)

    def _add_finish(self, choice: Choice) -> None:
        if choice.finish_reason is None:
            return
        if choice.finish_reason not in _FINISH_REASONS:
            raise NotTheProtocol(f"the finish reason {choice.finish_reason[:80]!r}")
        self._finish = _FINISH_REASONS[choice.finish_reason]
        if self._finish is FinishReason.END and choice.stop_reason in self._stop:
            self._finish = FinishReason.STOP_TEXT

    def _finish_reason(self) -> FinishReason:
        reason = self._finish or FinishReason.END
        # Some servers say "stop" after a tool call.
        return FinishReason.TOOL_CALLS if self._calls and reason is FinishReason.END else reason

    def _add_call(self, delta: ToolCallDelta, position: int) -> None:
        index = delta.index if delta.index is not None else self._index_of(delta, position)
        self._calls.setdefault(index, _Call()).add(delta)

    def _index_of(self, delta: ToolCallDelta, position: int) -> int:
        """For servers that leave the index out: a new id is a new call, none continues the last."""
        known = [index for index, call in self._calls.items() if delta.id and call.id == delta.id]
        if known:
            return known[0]
        return len(self._calls) if delta.id else max(len(self._calls) - 1, position)

    def _trusted_tokens(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Ids and logprobs, each only if complete: llama.cpp leaves out tokens that end inside a character."""
        generated = self._usage.completion_tokens
        # One less: the token that ended the answer is counted but not always told.
        lengths = {generated, generated - 1} if generated is not None else {len(self._logprobs or self._token_ids)}
        return (
            tuple(self._token_ids) if len(self._token_ids) in lengths else (),
            tuple(self._logprobs) if len(self._logprobs) in lengths else (),
        )

    def _final_usage(self, seconds: float) -> Usage:
        usage, timings = self._usage, self._timings
        details = usage.completion_tokens_details or CompletionDetails()
        accepted = details.accepted_prediction_tokens or timings.draft_n_accepted or 0
        drafted = accepted + (details.rejected_prediction_tokens or 0)
        return Usage(
            prompt_tokens=usage.prompt_tokens or 0,
            reused_tokens=(usage.prompt_tokens_details or PromptDetails()).cached_tokens or 0,
            generated_tokens=usage.completion_tokens or len(self._token_ids),
            drafted_tokens=max(drafted, timings.draft_n or 0),
            accepted_tokens=accepted,
            seconds=seconds,
        )


class _Call:
    """A tool call whose pieces are still coming."""

    def __init__(self) -> None:
        self.id = ""
        self._name = ""
        self._arguments: list[str] = []

    def add(self, delta: ToolCallDelta) -> None:
        function = delta.function or FunctionDelta()
        self.id = delta.id or self.id
        self._name = self._name or function.name or ""
        arguments = function.arguments or ""
        self._arguments.append(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode())

    def finished(self) -> ToolCall:
        if not self._name:
            raise NotTheProtocol("a tool call without a name")
        return ToolCall(id=self.id, name=self._name, arguments="".join(self._arguments))
