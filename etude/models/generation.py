"""From logits to text: choose tokens, confirm guesses, cut at stop texts.

session + prompt ids → generate: Pass… → Assembler: text
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from etude.messages import Sampling
from etude.models.llama_session import LOGIT_ROWS, LlamaSession
from etude.models.speculation import DraftSource


class Chooser(Protocol):
    """Picks the next token."""

    def choose(self, logits: np.ndarray, position: int) -> int:
        """The answer's token number `position` (from 0), by the logits over the vocabulary."""
        ...


class GreedyChooser:
    """The most probable token; of equals the one with the smaller id."""

    def choose(self, logits: np.ndarray, position: int) -> int:
        return int(logits.argmax())


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingChooser:
    """Draws by temperature and top_p. The draw depends on seed and position only, so a draft cannot change it."""

    temperature: float
    top_p: float
    seed: int

    def choose(self, logits: np.ndarray, position: int) -> int:
        scaled = (logits.astype(np.float64) - float(logits.max())) / self.temperature
        order = np.argsort(-scaled, kind="stable")
        weights = np.cumsum(np.exp(scaled[order]))
        kept = int(np.searchsorted(weights, self.top_p * weights[-1])) + 1
        draw = np.random.default_rng((self.seed, position)).random() * weights[: min(kept, len(weights))][-1]
        return int(order[int(np.searchsorted(weights, draw, side="right"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedChooser:
    """Writes a given text whatever the model thinks, for measuring: what a better model would have said."""

    tokens: Sequence[int]

    def choose(self, logits: np.ndarray, position: int) -> int:
        # The greedy choice is made too, so that a forced run costs what a free one does.
        greedy = int(logits.argmax())
        return self.tokens[position] if position < len(self.tokens) else greedy


def chooser_for(sampling: Sampling) -> Chooser:
    if sampling.temperature <= 0:
        return GreedyChooser()
    return SamplingChooser(temperature=sampling.temperature, top_p=sampling.top_p, seed=abs(sampling.seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one forward pass brought: the confirmed guesses, then the model's own next token."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    num_drafted: int = 0


def generate(
    session: LlamaSession, prompt: Sequence[int], chooser: Chooser, drafts: DraftSource, *, max_tokens: int
) -> Iterator[Pass]:
    """Passes until `max_tokens` or the context is full; the caller stops earlier where the answer ends.

    The first Pass is the prompt's and brings one token. What `drafts` guesses changes speed only.
    """
    reused = session.length
    logits = session.extend(prompt[reused:], num_rows=1)
    found = _confirm(logits, [], chooser, 0)
    yield found
    written = list(found.token_ids)
    while (room := min(max_tokens - len(written), session.context_tokens - session.length)) > 0:
        guess = drafts.propose(written, min(room, LOGIT_ROWS) - 1)
        start = session.length
        logits = session.extend([written[-1], *guess], num_rows=len(guess) + 1)
        found = _confirm(logits, guess, chooser, len(written))
        session.rewind(start + len(found.token_ids))
        written.extend(found.token_ids)
        drafts.learn(written, len(found.token_ids))
        yield found


def _confirm(logits: np.ndarray, guess: Sequence[int], chooser: Chooser, position: int) -> Pass:
    """Take tokens for as long as the guess is what the model chooses."""
    tokens: list[int] = []
    for row in logits:
        tokens.append(chooser.choose(row, position + len(tokens)))
        if len(tokens) > len(guess) or tokens[-1] != guess[len(tokens) - 1]:
            break
    logprobs = logprobs_of(logits[: len(tokens)], tokens)
    return Pass(token_ids=tuple(tokens), logprobs=tuple(logprobs), num_drafted=len(guess))


def logprobs_of(logits: np.ndarray, tokens: Sequence[int]) -> list[float]:
    """Log-probability of each token by its row."""
    return [_logprob(row, token) for row, token in zip(logits, tokens, strict=True)]


def _logprob(row: np.ndarray, token: int) -> float:
    highest = row.max()
    return float(row[token] - highest - np.log(np.exp(row - highest).sum(dtype=np.float64)))


class Assembler:
    """Bytes of tokens to text: whole characters only, and nothing that may turn out to begin a stop text."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False
        """A stop text was met; what follows is not part of the answer."""

    def push(self, piece: bytes) -> str:
        """The text that is certain now."""
        self._held += self._decoder.decode(piece)
        cut = min((at for stop in self._stops if (at := self._held.find(stop)) >= 0), default=None)
        if cut is not None:
            self.stopped = True
            return self._release(cut)
        return self._release(len(self._held) - self._possible_stop())

    def flush(self) -> str:
        """What was held back when the answer ends without a stop text."""
        if self.stopped:
            return ""
        self._held += self._decoder.decode(b"", final=True)
        return self._release(len(self._held))

    def _release(self, cut: int) -> str:
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _possible_stop(self) -> int:
        """How many characters at the end may be the start of a stop text."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0
