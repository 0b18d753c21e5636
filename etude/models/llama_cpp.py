"""The embedded model: llama.cpp in this process, one worker thread, the KV cache kept between calls.

Calls queue: the cache belongs to one at a time. Closing a stream, or cancelling its task, stops the
work after the pass that is being computed.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from etude.errors import ModelError, PromptTooLong
from etude.messages import Chat, Chunk, Completion, FinishReason, Prompt, Sampling, Usage
from etude.models import catalog
from etude.models.calibration import Calibration
from etude.models.generation import Assembler, Pass, chooser_for, generate, logprobs_of
from etude.models.llama_session import LOGIT_ROWS, PASS_ROWS, LlamaSession
from etude.models.speculation import Drafter, DraftSource, NoDraft
from etude.prompts.chat_format import TEMPLATE_KEY, ChatFormat, Segment, chat_format_for, prompt_format_for
from etude.prompts.tokenizer import RememberingTokenizer

Item = Chunk | Completion
Emit = Callable[[Item], None]
T = TypeVar("T")


class EmbeddedModel:
    """`EmbeddedModel.load(path, name="smollm2-135m")`; implements the Model protocol."""

    def __init__(self, session: LlamaSession, *, name: str) -> None:
        self._session = session
        self._name = name
        self._tokenizer = RememberingTokenizer(lambda text, control: session.tokenize(text, control=control))
        self._calibration: Calibration | None = None
        self._closing = threading.Event()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="etude-model")

    @classmethod
    def load(cls, path: Path, *, name: str, context_tokens: int = 8192, threads: int | None = None) -> "EmbeddedModel":
        """Raises ModelMissing, ModelCorrupt, and ForeignError when the runtime is not the one etude knows."""
        return cls(LlamaSession(path, context_tokens=context_tokens, threads=threads), name=name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_tokens(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._session.context_tokens

    async def complete(self, prompt: Prompt, sampling: Sampling, *, draft: str | None = None) -> AsyncGenerator[Item]:
        items: asyncio.Queue[Item | BaseException] = asyncio.Queue()
        loop, cancelled = asyncio.get_running_loop(), threading.Event()

        def emit(item: Item | BaseException) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(items.put_nowait, item)

        def work() -> None:
            try:
                self._complete(prompt, sampling, draft, emit, cancelled)
            except BaseException as error:
                emit(error)

        def notice_end(job: Future[None]) -> None:
            if job.cancelled() or self._closing.is_set():
                emit(ModelError(f"{self._name} was closed before it had answered."))

        job = self._worker.submit(work)
        job.add_done_callback(notice_end)
        try:
            while True:
                item = await items.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if isinstance(item, Completion):
                    return
        finally:
            cancelled.set()
            job.cancel()

    async def score(self, token_ids: Sequence[int], *, start: int = 1) -> list[float]:
        return (await self.score_many([token_ids], start=start))[0]

    async def score_many(self, candidates: Sequence[Sequence[int]], *, start: int = 1) -> list[list[float]]:
        """`score` of each candidate; neighbours in dictionary order share what they have in common."""
        if start < 1:
            raise ValueError(f"start must be at least 1, got {start}")
        return await self._in_worker(lambda: self._score_many([list(tokens) for tokens in candidates], start))

    async def encode(self, prompt: Prompt) -> list[int]:
        # Tokenizing touches neither the cache nor the context, so it need not wait for a completion.
        return encode(self._session, prompt)

    def read_chat_format(self) -> ChatFormat:
        """The format that the model's file names. Raises Unsupported."""
        return chat_format_for(_about_format(self._session))

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        return self._tokenizer.encode(segments)

    async def calibrate(self) -> Calibration:
        """What passes cost on this CPU, measured on the first call ever."""
        return await self._in_worker(self._calibrated)

    async def close(self) -> None:
        """Stops what is being answered after its pass; whoever waits for it gets a ModelError."""
        self._closing.set()
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)
        self._session.close()

    async def _in_worker(self, work: Callable[[], T]) -> T:
        future: Future[T] = self._worker.submit(work)
        return await asyncio.wrap_future(future)

    # --- in the worker thread

    def _calibrated(self) -> Calibration:
        if self._calibration is None:
            self._calibration = self._session.calibrate(catalog.cache_folder() / "calibration")
        return self._calibration

    def _score_many(self, candidates: list[list[int]], start: int) -> list[list[float]]:
        self._calibrated()
        scores: list[list[float]] = [[] for _ in candidates]
        for index in sorted(range(len(candidates)), key=candidates.__getitem__):
            scores[index] = self._score(candidates[index], start)
        return scores

    def _score(self, tokens: list[int], start: int) -> list[float]:
        if start >= len(tokens):
            return []
        session, found = self._session, []
        self._check_length(len(tokens) - 1, "The text to score")
        at = session.reuse(tokens, most=start - 1)
        while at < len(tokens) - 1:
            # The last row of a stretch before `start` predicts a given token too: it need no logits.
            end = min(max(at, start - 1) + LOGIT_ROWS, len(tokens) - 1)
            first = max(at, start - 1)
            logits = session.extend(tokens[at:end], num_rows=end - first)
            found += logprobs_of(logits, tokens[first + 1 : end + 1])
            at = end
        return found

    def _complete(
        self, prompt: Prompt, sampling: Sampling, draft: str | None, emit: Emit, cancelled: threading.Event
    ) -> None:
        started = time.perf_counter()

        def is_over() -> bool:
            return cancelled.is_set() or self._closing.is_set()

        calibration, session = self._calibrated(), self._session
        ids = encode(session, prompt) or [session.start_token]
        self._check_length(len(ids) + 1, "The prompt with one token of the answer")
        reused = session.reuse(ids, most=len(ids) - 1)
        drafts = self._drafts(draft, calibration)
        passes = generate(session, ids, chooser_for(sampling), drafts, max_tokens=sampling.max_tokens)
        answer = Answer(session, sampling, usage=Usage(prompt_tokens=len(ids), reused_tokens=reused))
        if sampling.max_tokens > 0:
            if not read_ahead(session, ids, is_over):
                return
            for found in passes:
                if is_over():
                    return
                answer.take(found, emit)
                if answer.finished:
                    break
        emit(answer.completion(model=self._name, seconds=time.perf_counter() - started, emit=emit))

    def _check_length(self, count: int, what: str) -> None:
        if count > self._session.context_tokens:
            raise PromptTooLong(
                f"{what} has {count} tokens; {self._name} holds {self._session.context_tokens}. Give it less text."
            )

    def _drafts(self, draft: str | None, calibration: Calibration) -> DraftSource:
        if not draft or calibration.row_multiple is None:
            return NoDraft()
        return Drafter(self._session.tokenize(draft), calibration.curve)


def read_ahead(session: LlamaSession, prompt: Sequence[int], is_over: Callable[[], bool]) -> bool:
    """Read a long prompt up to its last pass, asking before each whether anyone still waits; False when nobody does."""
    while len(prompt) - session.length > PASS_ROWS:
        if is_over():
            return False
        session.extend(prompt[session.length : session.length + PASS_ROWS], num_rows=0)
    return not is_over()


def encode(session: LlamaSession, prompt: Prompt) -> list[int]:
    """Token ids of a prompt; a conversation in the format that the model's file names."""
    if isinstance(prompt, str):
        return session.tokenize(prompt)
    if not isinstance(prompt, Chat):
        return list(prompt)
    return encode_segments(session, prompt_format_for(_about_format(session)).segments(prompt))


def _about_format(session: LlamaSession) -> dict[str, str]:
    return {key: session.metadata(key) for key in (TEMPLATE_KEY, "general.name")}


def encode_segments(session: LlamaSession, segments: Sequence[Segment]) -> list[int]:
    return [token for segment in segments for token in session.tokenize(segment.text, control=segment.control)]


class Answer:
    """What has been generated so far."""

    def __init__(self, session: LlamaSession, sampling: Sampling, *, usage: Usage) -> None:
        self._session = session
        self._assembler = Assembler(sampling.stop)
        self._usage = usage
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._reason: FinishReason | None = None

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def take(self, found: Pass, emit: Emit) -> None:
        """Add a pass, up to where the answer ends."""
        before = len(self._ids)
        text = ""
        for token, logprob in zip(found.token_ids, found.logprobs, strict=True):
            self._ids.append(token)
            self._logprobs.append(logprob)
            if self._session.ends_answer(token):
                self._reason = FinishReason.END
                break
            text += self._assembler.push(self._session.piece(token))
            if self._assembler.stopped:
                self._reason = FinishReason.STOP_TEXT
                break
        self._count(found)
        self._texts.append(text)
        emit(Chunk(text=text, token_ids=tuple(self._ids[before:])))

    def _count(self, found: Pass) -> None:
        usage, first = self._usage, len(self._ids) == len(found.token_ids) and self._usage.generated_tokens == 0
        self._usage = replace(
            usage,
            generated_tokens=len(self._ids),
            drafted_tokens=usage.drafted_tokens + found.num_drafted,
            accepted_tokens=usage.accepted_tokens + len(found.token_ids) - 1,
            num_passes=usage.num_passes + (0 if first else 1),
        )

    def completion(self, *, model: str, seconds: float, emit: Emit) -> Completion:
        """The whole answer; emits what was held back, so that chunks and completion agree."""
        if rest := self._assembler.flush():
            self._texts.append(rest)
            emit(Chunk(text=rest))
        return Completion(
            text="".join(self._texts),
            token_ids=tuple(self._ids),
            logprobs=tuple(self._logprobs),
            finish_reason=self._reason or FinishReason.LENGTH,
            usage=replace(self._usage, seconds=seconds),
            model=model,
        )
