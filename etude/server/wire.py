"""What travels between page and server: msgspec structs, the same names in web/src/wire.ts.

Offsets on the wire count UTF-16 units of the page's text, in which every line ends with "\\n".
"""

import msgspec

# A sketch is what a person pastes; a longer one is a mistake.
MAX_SKETCH_CHARACTERS = 2_000_000
MAX_ID_CHARACTERS = 64


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A value on the wire."""


class Failure(Wire, frozen=True):
    """Why a request was not done, in a sentence for a person."""

    error: str
    message: str


class ModelState(Wire, frozen=True, tag="model"):
    """Where the model is: "loading", "ready" or "failed"; `message` says why it failed."""

    name: str
    phase: str
    message: str = ""


class Hello(Wire, frozen=True):
    root: str
    """Name of the opened folder."""
    read_only: bool
    version: str
    model: ModelState


class Listing(Wire, frozen=True):
    """All files of the folder as slash paths, or, when there are too many, none: then ask by folder."""

    files: list[str]
    too_many: bool
    git: bool


class FolderEntry(Wire, frozen=True):
    name: str
    is_folder: bool


class FolderListing(Wire, frozen=True):
    path: str
    entries: list[FolderEntry]
    truncated: bool


class OpenedFile(Wire, frozen=True):
    path: str
    text: str
    sha256: str
    """Hash of the bytes on disk; `Save` sends it back."""
    can_undo: bool = False


class Save(Wire, frozen=True):
    path: str
    text: str
    base_sha256: str | None
    """Hash the file had when it was read; None creates a new file."""


class Undo(Wire, frozen=True):
    path: str


class Undone(Wire, frozen=True):
    """`file` None: the save had created the file, and it is gone again."""

    file: OpenedFile | None


class Split(Wire, frozen=True):
    """A whole chat reply, to be taken apart by file; `path` is the file that is open."""

    reply: str
    path: str | None = None


class SplitFile(Wire, frozen=True):
    """One file's part of a reply."""

    path: str
    text: str
    exists: bool


class SplitReply(Wire, frozen=True):
    files: list[SplitFile]


class Apply(Wire, frozen=True, tag="apply"):
    """Merge a sketch into a text; the answers carry the same id."""

    id: str
    path: str
    text: str
    sketch: str
    instruction: str = ""


class Cancel(Wire, frozen=True, tag="cancel"):
    id: str


FromPage = Apply | Cancel


class WireEdit(Wire, frozen=True):
    """`etude.edits.Edit` in the page's offsets."""

    start: int
    end: int
    text: str


class ProgressSent(Wire, frozen=True, tag="progress"):
    id: str
    stage: str
    done: int
    total: int


class HunkSent(Wire, frozen=True, tag="hunk"):
    id: str
    edit: WireEdit


class Ran(Wire, frozen=True):
    """How an Apply went."""

    engine: str
    model: str
    seconds: float
    tokens: int
    """Read (and not reused) plus written."""
    first_hunk_seconds: float | None


class Merged(Wire, frozen=True, tag="merged"):
    id: str
    edits: list[WireEdit]
    ran: Ran


class Abstained(Wire, frozen=True, tag="abstained"):
    id: str
    reason: str
    message: str
    sketch_line: int | None
    candidates: list[int]
    ran: Ran


class Failed(Wire, frozen=True, tag="failed"):
    id: str
    error: str
    message: str


class Cancelled(Wire, frozen=True, tag="cancelled"):
    id: str


ToPage = ModelState | ProgressSent | HunkSent | Merged | Abstained | Failed | Cancelled
