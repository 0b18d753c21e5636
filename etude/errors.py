"""Every error etude raises, and the boundary that foreign code is called through.

    EtudeError
    ├── InputError                what the person gave cannot be used
    │   ├── FileUnusable          not text we can edit: binary, other encoding, too large, not a file
    │   ├── FileNotWritable       read-only, no space, no such folder; nothing was written
    │   ├── FileChanged           the file on disk is not the one that was read
    │   ├── SketchUnusable        no edit can be read from the sketch
    │   ├── OutsideRoot           a path that leaves the opened folder
    │   ├── Refused               the person did not allow it
    │   ├── CheckpointUnknown     no checkpoint of that name
    │   ├── RunUnknown            no agent run of that name
    │   └── TraceUnusable         a saved trace that cannot be read or resumed
    ├── WorkspaceError
    │   ├── ShadowUnavailable     this machine cannot make a shadow the way that was asked
    │   ├── SandboxUnavailable    commands cannot be isolated here, so none is run
    │   ├── DatabaseUnavailable   a database could not be branched
    │   └── LanguageServerUnavailable  no server for the language, or it does not answer
    ├── ModelError
    │   ├── ModelUnknown          no model of that name in the catalog
    │   ├── ModelMissing          known, but not on this machine
    │   ├── ModelCorrupt          the bytes are not the ones the catalog names
    │   ├── FetchFailed           a model could not be brought here
    │   ├── PromptTooLong         more tokens than the context holds
    │   ├── Unsupported           this model cannot do what was asked (score, tools, …)
    │   └── ServerError           a model server let us down; names the URL
    │       ├── ServerUnreachable nothing answers there
    │       ├── ServerTimeout     it answered too slowly or not at all
    │       ├── ServerRefused     it answered with an error status
    │       └── ServerNonsense    it answered with something that is not the protocol
    └── ForeignError              foreign code failed; says which part

Messages are for people: the value met, then the way out. A caller that can act on the difference
catches the class; everyone else catches EtudeError.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial


class EtudeError(Exception):
    """Something etude expects can go wrong, said in a sentence for a person."""


class InputError(EtudeError):
    """What the person gave cannot be used."""


class FileUnusable(InputError):
    """Not a text file that etude can edit."""


class FileNotWritable(InputError):
    """The file could not be saved; the old content is intact."""


class FileChanged(InputError):
    """The file on disk is no longer the one that was read."""


class SketchUnusable(InputError):
    """No edit can be read from the sketch."""


class OutsideRoot(InputError):
    """A path that leaves the folder that was opened."""


class Refused(InputError):
    """The person did not allow it."""


class CheckpointUnknown(InputError):
    """No checkpoint of that name."""


class RunUnknown(InputError):
    """No agent run of that name."""


class TraceUnusable(InputError):
    """A saved trace that cannot be read or resumed."""


class WorkspaceError(EtudeError):
    """The place where a model works lets us down."""


class ShadowUnavailable(WorkspaceError):
    """This machine cannot make a shadow the way that was asked."""


class SandboxUnavailable(WorkspaceError):
    """Commands cannot be isolated on this machine, so none is run."""


class DatabaseUnavailable(WorkspaceError):
    """A database could not be branched."""


class LanguageServerUnavailable(WorkspaceError):
    """No server for the language, or one that does not answer."""


class ModelError(EtudeError):
    """A model cannot answer."""


class ModelUnknown(ModelError):
    """No model of that name in the catalog."""


class ModelMissing(ModelError):
    """The model is known but its file is not on this machine."""


class ModelCorrupt(ModelError):
    """A model file whose bytes are not the ones expected."""


class FetchFailed(ModelError):
    """A model could not be brought to this machine."""


class PromptTooLong(ModelError):
    """The prompt has more tokens than the model's context holds."""


class Unsupported(ModelError):
    """This model cannot do what was asked of it."""


class ServerError(ModelError):
    """A model server let us down."""

    def __init__(self, message: str, *, url: str, status: int | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from their positional arguments; without this none comes back from a process pool.
        return partial(type(self), url=self.url, status=self.status), self.args


class ServerUnreachable(ServerError):
    """Nothing answers at the URL."""


class ServerTimeout(ServerError):
    """The server answered too slowly or not at all."""


class ServerRefused(ServerError):
    """The server answered with an error status."""


class ServerNonsense(ServerError):
    """The server answered with something that is not the protocol."""


class ForeignError(EtudeError):
    """Foreign code failed."""


@contextmanager
def boundary(part: str, *, raises: type[EtudeError] = ForeignError, way_out: str = "") -> Generator[None]:
    """Name the foreign `part` in whatever error leaves the block; our own errors pass unchanged."""
    try:
        yield
    except EtudeError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise raises(f"{part} failed: {reason}." + (f" {way_out}" if way_out else "")) from error
