"""What Apply is asked and what it answers.

ApplyRequest (file, sketch, instruction) → Progress… HunkReady… → ApplyResult (Patch or Abstention)
"""

from dataclasses import dataclass, field
from enum import StrEnum

from etude.edits import Edit, Patch
from etude.messages import Usage


class Engine(StrEnum):
    """How a sketch is merged."""

    MERGE = "merge"
    """The model only chooses among the possible merges of file and sketch; it cannot invent code."""
    REWRITE = "rewrite"
    """The model writes the changed windows anew, fast through speculative edits; for capable models."""


class AbstainReason(StrEnum):
    """Why nothing was changed."""

    AMBIGUOUS = "ambiguous"
    """A part of the sketch fits two places equally."""
    NO_ANCHOR = "no_anchor"
    """A part of the sketch fits nowhere."""
    OTHER_FILE = "other_file"
    """The sketch is for another file or language."""
    LOST_CODE = "lost_code"
    """An elision or a gap would drop code that the sketch does not speak of."""
    NO_LONGER_PARSES = "no_longer_parses"
    """The file parsed and the merged result would not."""
    INVENTED_CODE = "invented_code"
    """The model wrote lines that are neither in the file nor in the sketch."""
    NO_CHANGE = "no_change"
    """The file already says what the sketch says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    path: str
    """Tells the language, and is matched against file names in the sketch."""
    text: str
    """The file as decoded, line endings untouched."""
    sketch: str
    """Whatever a model or person wrote for this file: chat text with fences, a diff, a block with elisions."""
    instruction: str = ""
    """What the change is for, in words; helps the model choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A stage has begun, e.g. Progress(stage="choosing between 2 places", done=1, total=3)."""

    stage: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HunkReady:
    """An edit to show while the rest is still being decided. The patch at the end is what counts: it may cut
    the same change into other edits, and there is none when Apply abstains."""

    edit: Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    reason: AbstainReason
    message: str
    """A sentence for a person: what was met, what to do."""
    sketch_line: int | None = None
    """Line of the sketch, from 0, where it got stuck."""
    candidates: tuple[int, ...] = ()
    """Lines of the file, from 0, that would fit equally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """Exactly one of patch and abstention."""

    patch: Patch | None = None
    abstention: Abstention | None = None
    engine: Engine
    model: str
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    first_hunk_seconds: float | None = None


ApplyEvent = Progress | HunkReady | ApplyResult
