"""A Model behind a wire: any server that speaks the OpenAI-compatible protocol.

    model = HttpModel("http://127.0.0.1:8080", "qwen2.5-coder-7b")

What differs between servers is asked for until it is refused by name, then left out for good (`Wish`).
A failed request is tried again only while no chunk was handed out. The key goes to the named host only:
redirects are not followed, and it never appears in a message. The protocol itself is `openai_wire.py`.
"""

import asyncio
import email.utils
import ipaddress
import itertools
import random
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from etude.errors import (
    InputError,
    PromptTooLong,
    ServerError,
    ServerNonsense,
    ServerRefused,
    ServerTimeout,
    ServerUnreachable,
    Unsupported,
)
from etude.messages import Chat, Chunk, Completion, Prompt, Sampling
from etude.models import openai_wire as wire
from etude.models.openai_wire import Wish

# A server that closes in the middle of a request is worth another try; these say so themselves.
# 408 and 425 ask for it, 529 is "overloaded" at some providers. 501 will never change.
_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})

# An answer of 128k tokens, with a log-probability and two hundred bytes of wrapping each, has some 50 MB.
MAX_ANSWER_BYTES = 256_000_000
# An error body is only quoted from.
MAX_ERROR_BYTES = 65_536
# After the last event nothing but the end of the body is due; reading it lets the connection be used again.
_DRAIN_SECONDS = 0.25

T = TypeVar("T")


class Api(StrEnum):
    """Which of a server's two ways of asking may be used."""

    AUTO = "auto"
    """Chat for conversations, completions for raw text and token ids."""
    CHAT = "chat"
    """The server answers conversations only."""
    COMPLETIONS = "completions"
    """The server answers raw prompts only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long each kind of silence is borne."""

    connect_seconds: float = 10.0
    """A far host answers within one; the rest is for lost packets, which are sent again after 1, 3 and 7 s."""
    first_event_seconds: float = 300.0
    """Waiting in the server's queue and reading the prompt: a CPU reads some 8k tokens a minute."""
    between_events_seconds: float = 120.0
    """A token takes a second at most, but a busy server may set an answer aside for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before trying again: 0.5 s, 1 s, 2 s, 4 s, each shortened at random by up to half."""

    num_retries: int = 4
    first_seconds: float = 0.5
    max_seconds: float = 30.0
    max_retry_after_seconds: float = 60.0
    """A server that asks for a longer pause is not waited for; a person decides."""
    jitter: Callable[[], float] = random.random

    def seconds(self, attempt: int, retry_after: float | None = None) -> float | None:
        """The pause after failed attempt number `attempt`, from 0; None to give up."""
        if attempt >= self.num_retries or (retry_after or 0) > self.max_retry_after_seconds:
            return None
        if retry_after is not None:
            return max(retry_after, 0.0)
        return min(self.first_seconds * 2**attempt, self.max_seconds) * (1 - self.jitter() / 2)


class HttpModel:
    """`url` is the server, with or without /v1; `model` is the name the server knows it by, or empty: its first."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None = None,
        *,
        api: Api = Api.AUTO,
        timeouts: Timeouts | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._url = _api_url(url)
        self._model = model
        self._key = _checked_key(api_key, self._url)
        self._api = api
        self._timeouts = timeouts or Timeouts()
        self._backoff = backoff or Backoff()
        self._refused: set[Wish] = set()
        self._scoring: _Scoring | None = None
        self._client = httpx.AsyncClient(
            headers=_headers(self._key),
            timeout=httpx.Timeout(None, connect=self._timeouts.connect_seconds),
            follow_redirects=False,
            # A proxy is for other hosts; one that is set for the whole system must not get what stays here.
            trust_env=not _is_loopback(self._url),
        )

    @property
    def name(self) -> str:
        """Empty until the first answer when none was given."""
        return self._model

    @property
    def url(self) -> str:
        """Where requests go, e.g. "http://127.0.0.1:8080/v1"."""
        return self._url

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None
    ) -> AsyncGenerator[Chunk | Completion]:
        await self._find_name()
        for attempt in itertools.count():
            handed_out = False
            try:
                async with aclosing(self._answer(prompt, sampling, draft)) as items:
                    async for item in items:
                        handed_out = True
                        yield item
                return
            except _Passing as passing:
                if handed_out:
                    raise passing.error from passing.__cause__
                await self._pause(passing, attempt)

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        if start < 1:
            raise ValueError(f"the first token has no log-probability; start must be at least 1, got {start}")
        if start >= len(token_ids):
            return []
        await self._find_name()
        for scoring in [self._scoring] if self._scoring else list(_SCORINGS):
            if (logprobs := await self._score_by(scoring, token_ids)) is not None:
                self._scoring = scoring
                return logprobs[start:]
        raise Unsupported(
            f"{self._url} does not tell the log-probabilities of a prompt. vLLM does; so does the embedded model."
        )

    async def encode(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, Chat | str):
            return list(prompt)
        await self._find_name()
        body = {"model": self._model, **await self._tokenize_body(prompt)}
        try:
            return (await self._ask(self._server_url + "/tokenize", body, wire.Tokens)).tokens
        except ServerRefused as error:
            if error.status not in _NOT_OFFERED:
                raise
            raise Unsupported(f"{self._url} does not offer /tokenize. llama.cpp and vLLM servers do.") from error

    async def list_models(self) -> list[str]:
        """Names of the models that the server offers."""
        listed = await self._ask(self._url + "/models", None, wire.ModelList)
        return [entry.id for entry in listed.data]

    async def close(self) -> None:
        await self._client.aclose()

    async def _find_name(self) -> None:
        if self._model:
            return
        names = await self.list_models()
        if not names:
            raise ServerNonsense(f"{self._url} offers no model. Load one there.", url=self._url)
        self._model = names[0]

    # One answer.

    async def _answer(
        self, prompt: Prompt, sampling: Sampling, draft: str | None
    ) -> AsyncGenerator[Chunk | Completion]:
        begun = time.monotonic()
        assembly = wire.Assembly(stop=sampling.stop)
        deadline = asyncio.get_running_loop().time() + self._timeouts.first_event_seconds
        async with self._accepted(prompt, sampling, draft, deadline) as response:
            url = str(response.url)
            with self._named(url):
                events = _Events(response, deadline, self._timeouts, url)
                while (event := await events.next()) is not None:
                    answer = wire.read(event, wire.Answer)
                    self._check_error(answer, url)
                    chunk = assembly.add(answer)
                    if chunk:
                        yield chunk
                if not assembly.is_finished and not events.is_done:
                    raise ServerNonsense(f"{url} stopped in the middle of its answer. {_SEE_LOG}", url=url)
                completion = assembly.completion(name=self._model, seconds=time.monotonic() - begun)
        # Outside: whoever takes the completion and goes leaves no open connection behind.
        yield completion

    @asynccontextmanager
    async def _accepted(
        self, prompt: Prompt, sampling: Sampling, draft: str | None, deadline: float
    ) -> AsyncGenerator[httpx.Response]:
        """The response to a request that leaves out what the server refuses; learns what that is."""
        without = set(self._refused)
        while True:
            path, body = self._request(prompt, sampling, draft, without)
            async with self._post(self._url + path, body, deadline) as response:
                if response.status_code == 200:
                    self._refused |= without
                    yield response
                    return
                refused = await self._refused_wish(response, body)
            without.add(refused)

    def _request(
        self, prompt: Prompt, sampling: Sampling, draft: str | None, without: set[Wish]
    ) -> tuple[str, dict[str, Any]]:
        if isinstance(prompt, Chat):
            if self._api is Api.COMPLETIONS:
                raise Unsupported(f"{self._url} is used for raw prompts only. Use api=Api.AUTO for conversations.")
            body = wire.chat_body(prompt, sampling, draft=draft, without=without)
            return "/chat/completions", {"model": self._model, **body}
        if self._api is Api.CHAT:
            raise Unsupported(f"{self._url} is used for conversations only. Use api=Api.AUTO for raw prompts.")
        return "/completions", {"model": self._model, **wire.completion_body(prompt, sampling, without=without)}

    async def _refused_wish(self, response: httpx.Response, body: dict[str, Any]) -> Wish:
        """What to leave out next time, or the error that the response is."""
        data = await self._error_body(response)
        text = data.decode("utf-8", "replace")
        if response.status_code in (400, 422) and not wire.is_too_long(response.status_code, text):
            wish = wire.refused_wish(text, wire.wishes_in(body))
            if wish is Wish.PREFILL:
                raise Unsupported(f"{response.url} cannot continue a begun answer. llama.cpp and vLLM servers can.")
            if wish:
                return wish
        raise await self._refusal(response, data)

    def _check_error(self, answer: wire.Answer, url: str) -> None:
        """Raise the error that an answer is in disguise."""
        if answer.error is not None:
            raise self._error_in_answer(answer.error, url)
        if any(choice.finish_reason == wire.CONTENT_FILTER for choice in answer.choices):
            raise ServerRefused(f"{url} cut the answer off by its own content filter.", url=url, status=200)

    # Log-probabilities and tokens of a prompt.

    async def _score_by(self, scoring: "_Scoring", token_ids: Sequence[int]) -> list[float] | None:
        body = {"model": self._model, "prompt": list(token_ids), "temperature": 0.0} | scoring.fields
        try:
            answer = await self._ask(self._url + "/completions", body, wire.Answer)
        except ServerRefused as error:
            if error.status not in (400, 422, *_NOT_OFFERED):
                raise
            return None
        return scoring.read(answer, token_ids)

    async def _tokenize_body(self, prompt: Chat | str) -> dict[str, Any]:
        text = prompt if isinstance(prompt, str) else await self._templated(prompt)
        if isinstance(prompt, Chat) and text is None:
            return wire.tokenize_chat_body(prompt)
        return wire.tokenize_body(text or "")

    async def _templated(self, prompt: Chat) -> str | None:
        """The text a conversation becomes, where the server tells it (llama.cpp)."""
        body: dict[str, Any] = {"messages": wire.wire_messages(prompt)} | wire.tool_fields(prompt)
        try:
            return (await self._ask(self._server_url + "/apply-template", body, wire.Template)).prompt
        except ServerRefused as error:
            if error.status not in _NOT_OFFERED:
                raise
            return None

    # Requests.

    @property
    def _server_url(self) -> str:
        """Where the things are that are not part of the OpenAI protocol."""
        return self._url.removesuffix("/v1")

    async def _ask(self, url: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        """One question with one small answer; a GET without a body."""
        for attempt in itertools.count():
            try:
                return await self._ask_once(url, body, kind)
            except _Passing as passing:
                await self._pause(passing, attempt)
        raise AssertionError("counting never ends")

    async def _ask_once(self, url: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        deadline = asyncio.get_running_loop().time() + self._timeouts.first_event_seconds
        async with self._post(url, body, deadline) as response:
            if response.status_code != 200:
                raise await self._refusal(response, await self._error_body(response))
            with self._named(url):
                data = await _read_bounded(response, MAX_ANSWER_BYTES, deadline, self._timeouts)
                answer = wire.read(data, kind)
        if isinstance(answer, wire.Answer):
            self._check_error(answer, url)
        return answer

    @asynccontextmanager
    async def _post(self, url: str, body: dict[str, Any] | None, deadline: float) -> AsyncGenerator[httpx.Response]:
        """A response whose headers are there; leaving the block closes the connection unless all was read."""
        request = self._client.build_request(
            "GET" if body is None else "POST", url, content=None if body is None else _encoded(body)
        )
        with self._named(url):
            response = await _before(deadline, self._client.send(request, stream=True), self._timeouts, url)
        try:
            self._check_encoding(response, url)
            yield response
        finally:
            await response.aclose()

    def _check_encoding(self, response: httpx.Response, url: str) -> None:
        """A small compressed body can become a huge one; we said that we take none."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise self._nonsense(url, wire.NotTheProtocol(f"its answer is compressed ({encoding[:20]!r})"))

    async def _pause(self, passing: "_Passing", attempt: int) -> None:
        seconds = self._backoff.seconds(attempt, passing.retry_after)
        if seconds is None:
            raise passing.error from passing.__cause__
        await asyncio.sleep(seconds)

    # What goes wrong.

    @contextmanager
    def _named(self, url: str) -> Generator[None]:
        """What the HTTP library and the protocol's reader say against a server, as our errors."""
        try:
            yield
        except wire.NotTheProtocol as error:
            raise self._nonsense(url, error) from None
        except httpx.TransportError as error:
            raise self._transport_error(error, url) from error

    def _nonsense(self, url: str, error: wire.NotTheProtocol) -> ServerNonsense:
        found = f"{error}: {self._excerpt(error.data)!r}" if error.data else str(error)
        return ServerNonsense(f"{url} does not speak the protocol: {found}. {_IS_IT_A_SERVER}", url=url)

    def _transport_error(self, error: httpx.TransportError, url: str) -> Exception:
        reason = (self._clean(str(error)) or type(error).__name__).rstrip(".")
        if isinstance(error, httpx.ConnectTimeout):
            limit = self._timeouts.connect_seconds
            return ServerTimeout(f"{url} did not answer the call within {limit:g} s. {_IS_IT_ON}", url=url)
        if _is_certificate_error(error):
            return ServerUnreachable(f"{url} has a certificate that is not trusted: {reason}.", url=url)
        if isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in reason:
            return ServerNonsense(f"{url} does not speak HTTP as it should: {reason}. {_IS_IT_A_SERVER}", url=url)
        what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "broke off the connection"
        return _Passing(ServerUnreachable(f"{url} {what}: {reason}. {_IS_IT_ON}", url=url))

    async def _error_body(self, response: httpx.Response) -> bytes:
        deadline = asyncio.get_running_loop().time() + self._timeouts.connect_seconds
        try:
            return await _read_bounded(response, MAX_ERROR_BYTES, deadline, self._timeouts, cut=True)
        except (httpx.TransportError, ServerTimeout):
            return b""

    async def _refusal(self, response: httpx.Response, data: bytes) -> Exception:
        """The error that an error status is."""
        url, status = str(response.url), response.status_code
        said = self._excerpt(data) or response.reason_phrase
        if wire.is_too_long(status, data.decode("utf-8", "replace")):
            return PromptTooLong(f"{url} refuses the prompt as too long: {_sentence(said)} Shorten it.")
        way_out = await self._way_out(response)
        error = ServerRefused(f"{url} answered {status}: {_sentence(said)} {way_out}", url=url, status=status)
        if status in _PASSING_STATUSES and b"insufficient_quota" not in data:
            return _Passing(error, retry_after=read_retry_after(response.headers.get("retry-after"), time.time()))
        return error

    def _error_in_answer(self, error: Any, url: str) -> Exception:
        """An error object where an answer was due, after status 200."""
        said = self._excerpt(msgspec.json.encode({"error": error}))
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) else 200
        if wire.is_too_long(400, msgspec.json.encode(error).decode()):
            return PromptTooLong(f"{url} refuses the prompt as too long: {_sentence(said)} Shorten it.")
        refused = ServerRefused(f"{url} sent an error: {_sentence(said)} {_SEE_LOG}", url=url, status=status)
        return _Passing(refused) if status in _PASSING_STATUSES else refused

    async def _way_out(self, response: httpx.Response) -> str:
        status = response.status_code
        if status in (401, 403):
            return "Check the API key." if self._key else "The server wants an API key; give one."
        if status == 404 and response.request.method == "POST":
            return await self._what_there_is()
        if status == 429:
            return _after(response) or "Wait a little, or ask for a higher limit."
        if 300 <= status < 400:
            target = self._clean(response.headers.get("location", "nowhere"))
            return f"It points to {target}; give that URL if it is right."
        return _SEE_LOG

    async def _what_there_is(self) -> str:
        try:
            listed = await asyncio.wait_for(
                self._ask_once(self._url + "/models", None, wire.ModelList), self._timeouts.connect_seconds
            )
        except (ServerError, _Passing, PromptTooLong, TimeoutError):
            return "Check the URL; it usually ends in /v1."
        names = ", ".join(self._clean(entry.id)[:80] for entry in listed.data[:10])
        return f"Check the model's name {self._model!r}; the server offers: {names or 'none'}."

    def _excerpt(self, data: bytes) -> str:
        return wire.excerpt(data, hide=self._key)

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


_SEE_LOG = "The server's log may say more."
_IS_IT_ON = "Is the server running, and the URL right?"
_IS_IT_A_SERVER = "Is this the URL of an OpenAI-compatible server?"

# Statuses that say "no such question here".
_NOT_OFFERED = frozenset({404, 405, 501})


class _Passing(Exception):
    """An error that may pass: the attempt can be made again."""

    def __init__(self, error: ServerError, *, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


# Reading.


class _Events:
    """The events of a response, each within its time."""

    def __init__(self, response: httpx.Response, deadline: float, timeouts: Timeouts, url: str) -> None:
        self._pieces = response.aiter_raw()
        self._is_json = "json" in response.headers.get("content-type", "")
        self._is_html = "html" in response.headers.get("content-type", "")
        self._response = response
        self._deadline = deadline
        self._timeouts = timeouts
        self._url = url
        self._splitter = wire.EventSplitter()
        self._ready: deque[bytes] = deque()
        self._num_bytes = 0
        self.is_done = False
        """The server said that nothing more follows."""

    async def next(self) -> bytes | None:
        if self.is_done:
            return None
        if self._is_json:
            return await self._whole()
        while not self._ready:
            piece = await _before(self._deadline, anext(self._pieces, None), self._timeouts, self._url)
            if piece is None:
                return self._splitter.rest()
            self._take(piece)
        event = self._ready.popleft()
        if event.strip() != b"[DONE]":
            return event
        self.is_done = True
        await self._drain()
        return None

    def _take(self, piece: bytes) -> None:
        self._num_bytes += len(piece)
        if self._num_bytes > MAX_ANSWER_BYTES:
            raise wire.NotTheProtocol(f"it sent more than {MAX_ANSWER_BYTES / 1e6:g} MB")
        if self._is_html:
            raise wire.NotTheProtocol("it sent a web page", piece)
        before = len(self._ready)
        self._ready.extend(self._splitter.feed(piece))
        if len(self._ready) > before:
            self._deadline = asyncio.get_running_loop().time() + self._timeouts.between_events_seconds

    async def _whole(self) -> bytes | None:
        """The one event of a server that does not stream."""
        self.is_done = True
        return await _read_bounded(self._response, MAX_ANSWER_BYTES, self._deadline, self._timeouts)

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await anext(self._pieces, None) is not None:
                    pass
        except (TimeoutError, httpx.TransportError):
            return


async def _read_bounded(
    response: httpx.Response, max_bytes: int, deadline: float, timeouts: Timeouts, *, cut: bool = False
) -> bytes:
    """The body; of one that is too long the beginning if `cut`, else it is not the protocol."""
    pieces, data = response.aiter_raw(), bytearray()
    while (piece := await _before(deadline, anext(pieces, None), timeouts, str(response.url))) is not None:
        data += piece
        if len(data) > max_bytes and cut:
            return bytes(data[:max_bytes])
        if len(data) > max_bytes:
            raise wire.NotTheProtocol(f"it sent more than {max_bytes / 1e6:g} MB")
    return bytes(data)


async def _before(deadline: float, waiting: Awaitable[T], timeouts: Timeouts, url: str) -> T:
    try:
        async with asyncio.timeout_at(deadline):
            return await waiting
    except TimeoutError:
        raise ServerTimeout(
            f"{url} was silent for too long (it has {timeouts.first_event_seconds:g} s to begin an answer and "
            f"{timeouts.between_events_seconds:g} s between its parts). Is the server overloaded?",
            url=url,
        ) from None


def read_retry_after(header: str | None, now: float) -> float | None:
    """The seconds a Retry-After header asks for, given as a number or as a date; None if it is neither."""
    if not header:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", header.strip()):
        return float(header)
    try:
        return max(email.utils.parsedate_to_datetime(header).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


def _after(response: httpx.Response) -> str:
    seconds = read_retry_after(response.headers.get("retry-after"), time.time())
    return f"It asks to wait {seconds:.0f} s." if seconds else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else text + "."


# Addresses and keys.


def _api_url(url: str) -> str:
    """Where the API's paths begin: "localhost:80/" becomes an error, "http://h:80/" "http://h:80/v1"."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    # The URL is not repeated: a mistyped one may hold a password.
    if parts.scheme not in ("http", "https") or not host:
        raise InputError("the URL of the model server must look like http://127.0.0.1:8080 or https://host/v1.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InputError(f"the URL of the model server at {host} holds more than a path. Give a key as the API key.")
    path = re.sub(r"(/chat)?/completions$", "", parts.path.rstrip("/")) or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _checked_key(key: str | None, url: str) -> str:
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise InputError("the API key holds spaces or characters that no key has. Copy it again.")
    if key and url.startswith("http:") and not _is_loopback(url):
        raise InputError(f"the API key is not sent to {url}: anyone on the way could read it. Use https://.")
    return key


def _is_loopback(url: str) -> bool:
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _headers(key: str) -> dict[str, str]:
    # No compression: a stream gains little, and a small body could become a huge one.
    headers = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "etude"}
    return headers | ({"authorization": f"Bearer {key}"} if key else {})


def _is_certificate_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise InputError(f"the prompt holds half a surrogate pair, which cannot be sent: {error}.") from None


# Questions beside the protocol.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scoring:
    """One way in which a server tells the log-probabilities of a prompt."""

    fields: dict[str, Any]
    read: Callable[[wire.Answer, Sequence[int]], list[float] | None]
    """One number a token, the first without meaning; None where the answer does not hold them."""


def _read_prompt_logprobs(answer: wire.Answer, token_ids: Sequence[int]) -> list[float] | None:
    told = answer.choices[0].prompt_logprobs if answer.choices else None
    if not told or len(told) != len(token_ids):
        return None
    found = [(entry or {}).get(str(token)) for token, entry in zip(token_ids, told, strict=True)]
    if any(entry is None for entry in found[1:]):
        return None
    return [entry.logprob if entry else 0.0 for entry in found]


def _read_echo(answer: wire.Answer, token_ids: Sequence[int]) -> list[float] | None:
    logprobs = (answer.choices[0].logprobs if answer.choices else None) or wire.Logprobs()
    told = logprobs.token_logprobs or []
    # The first is null: that is how an echo differs from the generated tokens alone.
    if len(told) < len(token_ids) or told[0] is not None:
        return None
    known = [logprob for logprob in told[1 : len(token_ids)] if logprob is not None]
    return [0.0, *known] if len(known) == len(token_ids) - 1 else None


_SCORINGS = (
    _Scoring(fields={"max_tokens": 1, "prompt_logprobs": 0}, read=_read_prompt_logprobs),
    _Scoring(fields={"max_tokens": 0, "echo": True, "logprobs": 1}, read=_read_echo),
)
