"""Reading, saving and creating one text file so that every byte nobody changed stays as it was.

    file = read_text_file(Path("pay.py"))
    file = save(file, patch.apply(file.text))

A save writes a temporary file in the same folder and renames it over the old one, so a reader, a crash
or a full disk meets the whole old file or the whole new one. A rename gives the name a new inode: of a
file with several hard links only this name gets the new content, the others keep the old. Writing in
place would keep the link, but could be cut off half-way and would alter copies made by linking (backups,
package stores); `TextFile.num_links` lets the caller say so. Listing folders and git are not here.
"""

import codecs
import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from etude.errors import FileChanged, FileNotWritable, FileUnusable, OutsideRoot

# Source files end far below this; what is larger is data, and every request would carry it to a model.
MAX_BYTES = 10_000_000

# Far beyond any real one; the parts of a path are walked one by one.
MAX_PATH_CHARACTERS = 1_000

# A FIFO or a terminal must not hold us up between the look at its type and the reading.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_WAYS_OUT = {
    errno.ENOSPC: "Free some space on the disk",
    errno.EDQUOT: "Free some of your disk quota",
    errno.EFBIG: "The system limits the size of files here",
    errno.EROFS: "The disk is mounted read-only",
    errno.EACCES: "Ask for permission to write into the folder",
    errno.EPERM: "Ask for permission to write into the folder",
    errno.ENOENT: "Create its folder first",
    errno.ENOTDIR: "A part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "Choose a shorter name",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A file as it was read; what `save` needs to write it back and to notice that someone else did."""

    path: Path
    """As the person named it."""
    real_path: Path
    """Where the bytes are: `path` with symlinks followed."""
    text: str
    """Decoded from UTF-8, without byte order mark, line endings untouched."""
    bom: bool
    """The file starts with a UTF-8 byte order mark, and will again when saved."""
    sha256: str
    """Of the bytes on disk, mark included."""
    mode: int
    """Permission bits, e.g. 0o755."""
    num_links: int
    """Names of this file; after a save the others keep the old content."""


def read_text_file(path: Path, *, max_bytes: int = MAX_BYTES) -> TextFile:
    """The file at `path`, following symlinks. Raises FileUnusable with the reason."""
    with _reading(path):
        real_path = Path(os.path.realpath(path, strict=True))
        data, status = _read_bytes(path, real_path, max_bytes)
    bom = data.startswith(codecs.BOM_UTF8)
    return TextFile(
        path=path,
        real_path=real_path,
        text=decoded(path, data, bom=bom),
        bom=bom,
        sha256=hashlib.sha256(data).hexdigest(),
        mode=stat.S_IMODE(status.st_mode),
        num_links=status.st_nlink,
    )


def save(file: TextFile, text: str) -> TextFile:
    """Replace the file's text on disk, or raise FileChanged or FileNotWritable and leave it as it is.

    The bytes on disk are compared right before the rename; a write by someone else in the microseconds
    between the two is not seen.
    """
    data = (codecs.BOM_UTF8 if file.bom else b"") + encoded(file.path, text)
    _check_unchanged(file)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 == file.sha256:
        return file
    _check_writable(file.path, file.real_path)
    with _writing(file.path), _temporary(file.real_path.parent, 0o600) as temporary:
        _fill(temporary, data)
        mode = _dress(temporary, file.real_path)
        _check_unchanged(file)
        temporary.replace(file.real_path)
    _sync_folder(file.real_path.parent)
    return replace(file, text=text, sha256=sha256, mode=mode, num_links=1)


def create(path: Path, text: str, *, make_folders: bool = False) -> TextFile:
    """Write a new file; raises FileNotWritable rather than overwrite one, or when its folder is missing."""
    data = encoded(path, text)
    with (
        _writing(path),
        _made_folders(path.parent) if make_folders else nullcontext(),
        _temporary(path.parent, 0o666) as temporary,
    ):
        _fill(temporary, data)
        _rename_to_new(temporary, path)
    _sync_folder(path.parent)
    return read_text_file(path, max_bytes=max(MAX_BYTES, len(data)))


def remove(file: TextFile) -> None:
    """Delete the file under the name it was read by; raises FileChanged or FileNotWritable and leaves it as it is."""
    _check_unchanged(file)
    with _writing(file.path):
        file.path.unlink()


def within(root: Path, relative: str) -> Path:
    """`root`/`relative`, for a path that came over a wire; raises OutsideRoot for any that leaves the root.

    Symlinks may point anywhere inside the root. The path need not exist; "." and "" name no file in it.
    Git's own folder counts as outside: what is written there, git runs.
    """
    shown = repr(relative) if len(relative) <= MAX_PATH_CHARACTERS else f"{relative[:40]!r}…"
    if not relative or "\0" in relative or len(relative) > MAX_PATH_CHARACTERS:
        raise OutsideRoot(f"{shown} is not a path. Name a file relative to the opened folder.")
    named = Path(relative)
    if named.is_absolute() or named.drive or not named.parts or ".." in named.parts:
        raise OutsideRoot(f"{shown} is not inside the opened folder. Name a file in it, without '..'.")
    real_root = Path(os.path.realpath(root))
    try:
        real_path = _real_path(real_root / named)
    except (ValueError, OSError) as error:
        raise OutsideRoot(f"{shown} is not a path on this system: {_reason(error)}.") from None
    if not real_path.is_relative_to(real_root):
        raise OutsideRoot(f"{shown} is a link that leaves the opened folder. Open the folder it points to instead.")
    if any(map(is_of_git, (*relative.replace("\\", "/").split("/"), *real_path.relative_to(real_root).parts))):
        raise OutsideRoot(f"{shown} is git's own; etude does not touch it.")
    return real_root / named


def _real_path(path: Path) -> Path:
    """With symlinks followed as far as the path exists; raises OSError for one that cannot, such as a loop."""
    real_path = Path(os.path.realpath(path))
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        real_path.lstat()
    return real_path


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def is_of_git(part: str) -> bool:
    """Also as Windows and macOS would read the name: any case, dots and blanks at its end, a short name."""
    return part.split(":")[0].rstrip(". ").lower() in (".git", "git~1")


# Reading.


@contextmanager
def _reading(path: Path) -> Generator[None]:
    """What the system says against reading, as FileUnusable."""
    try:
        yield
    except FileNotFoundError:
        gone = f"is a link to {Path(path).readlink()}, which" if Path(path).is_symlink() else "is a path that"
        raise FileUnusable(f"{path} {gone} does not exist. Check the name.") from None
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise FileUnusable(f"{str(path)!r} is not a path: {error}.") from None


def _read_bytes(path: Path, real_path: Path, max_bytes: int) -> tuple[bytes, os.stat_result]:
    # Looking before opening: to open a device can already do something.
    _check_kind(path, real_path.stat(), max_bytes)
    with os.fdopen(os.open(real_path, _OPEN_FLAGS), "rb", buffering=0) as opened:
        status = os.fstat(opened.fileno())
        _check_kind(path, status, max_bytes)
        data = _read_at_most(opened.fileno(), status.st_size + 1)
    if len(data) != status.st_size:
        raise FileUnusable(
            f"{path} says it has {status.st_size} bytes but gives {_at_least(len(data), status.st_size)}: either it is "
            "being written right now, or the system makes it up. Choose a stored file that is at rest."
        )
    return data, status


def _at_least(num_bytes: int, size: int) -> str:
    return "more" if num_bytes > size else str(num_bytes)


def _check_kind(path: Path, status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise FileUnusable(f"{path} is {kind}, not a file. Name a text file.")
    if status.st_size > max_bytes:
        raise FileUnusable(
            f"{path} has {status.st_size / 1e6:.1f} MB; files up to {max_bytes / 1e6:g} MB can be edited. Split it."
        )


def _read_at_most(descriptor: int, num_bytes: int) -> bytes:
    pieces: list[bytes] = []
    while num_bytes > 0 and (piece := os.read(descriptor, num_bytes)):
        pieces.append(piece)
        num_bytes -= len(piece)
    return b"".join(pieces)


def decoded(path: Path, data: bytes, *, bom: bool) -> str:
    """A file's text, `bom` left out if there is one. Raises FileUnusable for what is no text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise FileUnusable(f"{path} is UTF-16. Convert it to UTF-8 to edit it here.")
    if (at := data.find(b"\0")) >= 0:
        raise FileUnusable(f"{path} is binary: byte {at} is NUL. Name a text file.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is 0x{data[error.start]:02x}"
        raise FileUnusable(f"{path} is not UTF-8: {found}. Convert it to UTF-8 to edit it here.") from None
    return text[1:] if bom else text


# Writing.


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """What the system says against writing, as FileNotWritable."""
    try:
        yield
    except OSError as error:
        way_out = _WAYS_OUT.get(error.errno or 0, "Check the disk and the folder")
        raise FileNotWritable(f"{path} was not written: {error.strerror}. {way_out}; nothing was changed.") from error
    except ValueError as error:
        raise FileNotWritable(f"{str(path)!r} is not a path: {error}. Nothing was changed.") from None


def encoded(path: Path, text: str) -> bytes:
    """A text as it is saved. Raises FileNotWritable for what no text file can hold."""
    if (at := text.find("\0")) >= 0:
        raise FileNotWritable(f"{path} was not written: character {at} of the new text is NUL. Nothing was changed.")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise FileNotWritable(
            f"{path} was not written: character {error.start} of the new text is half a surrogate pair (U+{code:04X}), "
            "which UTF-8 cannot hold. Remove it; nothing was changed."
        ) from None


def _check_writable(path: Path, real_path: Path) -> None:
    """Read-only means read-only also to the owner of the machine, whom the system would let pass."""
    with _writing(path):
        for place, kind, needed in ((real_path, "file", os.W_OK), (real_path.parent, "folder", os.W_OK | os.X_OK)):
            if not place.stat().st_mode & stat.S_IWUSR or not os.access(place, needed):
                raise FileNotWritable(
                    f"{path} was not written: the {kind} {place} is read-only. "
                    f"Make it writable (chmod u+w) and save again; nothing was changed."
                )


def _check_unchanged(file: TextFile) -> None:
    again = "Nothing was written; read it again."
    try:
        now = Path(os.path.realpath(file.path, strict=True))
        data, _ = _read_bytes(file.path, now, MAX_BYTES + len(file.text) * 4)
    except FileNotFoundError:
        raise FileChanged(f"{file.path} was deleted since it was read. {again}") from None
    except (OSError, FileUnusable) as error:
        raise FileChanged(f"{file.path} became unreadable since it was read: {error} {again}") from error
    if now != file.real_path:
        raise FileChanged(f"{file.path} now points to {now}, not to {file.real_path}. {again}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise FileChanged(f"{file.path} was changed by someone else since it was read. {again}")


@contextmanager
def _made_folders(folder: Path) -> Generator[None]:
    """The folder and those above it, made where they are missing, and gone again when the block fails."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        for place in reversed(missing):
            place.mkdir(exist_ok=True)
        yield
    except BaseException:
        for place in missing:
            with suppress(OSError):
                place.rmdir()
        raise


@contextmanager
def _temporary(folder: Path, mode: int) -> Generator[Path]:
    """A new empty file in the folder, of which nothing remains; a killed process leaves it behind."""
    temporary = folder / f".etude-{secrets.token_hex(6)}.tmp"
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _fill(temporary: Path, data: bytes) -> None:
    with temporary.open("r+b") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def _dress(temporary: Path, original: Path) -> int:
    """Give the new file the owner, extended attributes and mode of the old one; returns the mode."""
    status = original.stat()
    kept_owner = _give_owner(temporary, status)
    shutil.copystat(original, temporary)
    os.utime(temporary)
    mode = stat.S_IMODE(status.st_mode)
    if not kept_owner:
        # A program that ran as its old owner must not run as the new one.
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
        temporary.chmod(mode)
    return mode


def _give_owner(temporary: Path, status: os.stat_result) -> bool:
    if not hasattr(os, "chown"):
        return True
    with suppress(OSError):
        os.chown(temporary, -1, status.st_gid)
    with suppress(OSError):
        os.chown(temporary, status.st_uid, -1)
    now = temporary.stat()
    return (now.st_uid, now.st_gid) == (status.st_uid, status.st_gid)


def _rename_to_new(temporary: Path, path: Path) -> None:
    """A rename that never overwrites: a link fails where the name is taken."""
    try:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:
            # A disk without hard links (FAT): take the name first, then fill it by renaming.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            temporary.replace(path)
    except FileExistsError:
        raise FileNotWritable(f"{path} exists already; it was not overwritten. Choose another name.") from None


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power cut, where the system can; the file is already whole."""
    if os.name == "nt":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
