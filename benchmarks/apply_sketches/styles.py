"""How sketches are written, and what a sketch carries."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from benchmarks.apply_sketches.regions import Subject


class Style(StrEnum):
    """How a sketch is written; the last ones should be refused."""

    ELIDED_CONTEXT = "elided context"
    """The changed region with a few lines around and elision comments."""
    PARTIAL_FUNCTION = "partial function"
    """Whole changed functions, with or without the class line, long unchanged stretches elided."""
    WRONG_INDENTATION = "wrong indentation"
    """Dedented, shifted, tabs for spaces, or a first line that lost its indentation."""
    UNIFIED_DIFF = "unified diff"
    """With shifted, wrong or missing line numbers."""
    SEARCH_REPLACE = "search/replace"
    SEARCH_DRIFT = "search/replace, drifted"
    """The SEARCH side is not quite the file: white space, a reworded comment, other quotes, dedented."""
    REORDERED = "reordered parts"
    SEVERAL_HUNKS = "several hunks"
    SLOPPY_WORDS = "sloppy elision words"
    WHOLE_FILE = "whole file"
    CHAT = "chat text"
    """One of the others with explanations, commands and other fences around."""
    DELETION = "deletion"
    IMPORT_AND_CHANGE = "import and change"

    OTHER_FILE = "no: other file"
    """A sketch for another file of the same repository."""
    AMBIGUOUS = "no: two places"
    """What is shown of the old text stands letter by letter at several places."""
    HIDDEN_DELETION = "no: deletion under an elision"
    """Words say that something was removed, the code shows an elision there and no change at all."""
    SILENT_GAP = "no: gap without elision"
    """Two ends of a function shown as neighbours, 15 or more lines of code between them left out without a word."""
    WRONG_LANGUAGE = "no: wrong language"
    CUT_OFF = "no: cut off"
    """The answer ends in the middle of a changed line, its fence still open."""
    ALREADY_APPLIED = "no: already applied"
    NO_ANCHOR = "no: nothing to hold on to"
    """New lines between two elisions."""

    @property
    def should_abstain(self) -> bool:
        return self.value.startswith("no: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    style: Style
    text: str
    unique_anchor: bool
    """See the package; False for everything that should be refused."""
    marks: tuple[str, ...] = ()
    """Lines of the sketch that are no code and must not be in a result, stripped."""
    how: str = ""
    """In a few words how it was made, for reading failures."""


Maker = Callable[[Subject, random.Random], Sketch | None]
"""None where the style does not suit the edit."""


def dressed(rng: random.Random, sketch: Sketch, *, fence: float = 0.5) -> Sketch:
    """The sketch in a fence or not."""
    if rng.random() >= fence or "```" in sketch.text:
        return sketch
    return replace(sketch, text=f"```{rng.choice(['python', 'python', 'py', ''])}\n{sketch.text}```\n")


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
