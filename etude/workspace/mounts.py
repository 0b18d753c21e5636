"""A second view of a folder at the folder's own path, in a private mount namespace.

A holder process makes the namespace and mounts the view there, over the folder itself; nothing of it shows outside.
Commands enter the namespace with `enter`; this process looks into it through `/proc/<holder>/root`. The holder waits
for the end of a pipe from us. So when this process ends, however it ends, the holder ends, and the kernel takes
namespace and mount away: there is nothing to clean up but files.

Paths never stand in mount options: the holder works in the shadow's folder, where `lower-0` and so on are links.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from etude.errors import ShadowUnavailable
from etude.workspace.folder import erase_at

READY = b"ready\n"
HOLDER_SECONDS = 20.0


class Mechanism(StrEnum):
    """How a copy-on-write view is made, the best first."""

    OVERLAY = "overlay"
    """The kernel's overlay file system, mounted as root."""
    OVERLAY_USER = "overlay-user"
    """The same in a user namespace, without privileges."""
    FUSE_OVERLAY = "fuse-overlayfs"
    """An overlay by a program, where the kernel's is forbidden to users."""
    REFLINK = "reflink"
    """A copy whose files share their blocks with the originals (Btrfs, XFS); time grows with the number of files."""
    COPY = "copy"
    """A full copy; time and space grow with the tree, so it is only used when it is asked for."""


OVERLAYS = frozenset({Mechanism.OVERLAY, Mechanism.OVERLAY_USER, Mechanism.FUSE_OVERLAY})

_OPTIONS = {
    # Without these the kernel's defaults decide, and a moved folder would be a note in the upper layer.
    Mechanism.OVERLAY: "index=off,metacopy=off,redirect_dir=nofollow",
    Mechanism.OVERLAY_USER: "userxattr",
    # Else the kernel may go on showing what a folder held before it was removed and made again.
    Mechanism.FUSE_OVERLAY: "timeout=0",
}

# "$1" is the folder, "$2" the options. `cat` ends when the pipe from us does. The mounts of the new namespace are made
# private first, so that nothing travels back.
_KERNEL_OVERLAY = 'mount -t overlay overlay -o "$2" "$1" && echo ready && exec cat >/dev/null'
_FUSE_OVERLAY = """
fuse-overlayfs -f -o "$2" "$1" & server=$!
until grep -q ' fuse.fuse-overlayfs ' /proc/self/mounts; do
  kill -0 "$server" 2>/dev/null || exit 1
  sleep 0.01
done
echo ready
cat >/dev/null
kill "$server"
"""
_BOUND_COPY = 'mount --bind tree "$1" && echo ready && exec cat >/dev/null'


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """A view that is there as long as its holder."""

    mechanism: Mechanism
    view: Path
    """Where this process reads and writes the view."""
    enter: tuple[str, ...]
    """Put before a command, makes it run where the folder shows the view."""
    holder: "subprocess.Popen[bytes]"

    def close(self) -> None:
        """Let the holder end; what still runs in the namespace keeps it until it ends, too."""
        if self.holder.stdin:
            with suppress(OSError):
                self.holder.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.holder.wait(HOLDER_SECONDS)
        if self.holder.poll() is None:
            self.holder.kill()
            self.holder.wait()
        if self.holder.stdout:
            self.holder.stdout.close()


def mechanisms(state: Path) -> list[tuple[Mechanism, str | None]]:
    """Each mechanism and why it does not work here, tried with the folder `state` to keep layers in."""
    return [(mechanism, problem(mechanism, state)) for mechanism in Mechanism]


def problem(mechanism: Mechanism, state: Path) -> str | None:
    """Why a mechanism does not work on this machine, in a sentence; None if it does. It is really tried."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    trial = state / f"trial-{os.getpid()}-{time.monotonic_ns()}"
    try:
        (trial / "root").mkdir(parents=True)
        (trial / "root" / "file").write_text("before")
        with _Closing(mount(mechanism, trial / "root", trial)) as mounted:
            (mounted.view / "file").write_text("after")
        untouched = (trial / "root" / "file").read_text() == "before"
        return None if untouched else "It wrote through to the original, so it is not used."
    except (OSError, ShadowUnavailable) as error:
        return str(error)
    finally:
        erase_tree(trial)


class _Closing:
    def __init__(self, mounted: Mounted) -> None:
        self._mounted = mounted

    def __enter__(self) -> Mounted:
        return self._mounted

    def __exit__(self, *error: object) -> None:
        self._mounted.close()


def no_mechanism(problems: Sequence[str]) -> ShadowUnavailable:
    """The error that says what was tried; the caller raises it."""
    return ShadowUnavailable(
        "This machine cannot make a copy-on-write view of a folder, so no agent is started. "
        + " ".join(problem if problem.endswith(".") else f"{problem}." for problem in problems)
        + ' Run `etude doctor`, or set mechanism = "copy" under [shadow] in etude.toml to copy the tree.'
    )


def mount(mechanism: Mechanism, root: Path, state: Path, lowers: Sequence[Path] = ()) -> Mounted:
    """Show `root` through a new view kept in `state`; `lowers` are frozen layers above it, the newest first.

    Raises ShadowUnavailable with what the system said.
    """
    if mechanism in OVERLAYS:
        options = _overlay_options(mechanism, root, state, lowers)
        script = _FUSE_OVERLAY if mechanism is Mechanism.FUSE_OVERLAY else _KERNEL_OVERLAY
    else:
        options, script = "", _BOUND_COPY
        _copy_once(mechanism, root, state)
    as_user = os.geteuid() != 0 or mechanism is Mechanism.OVERLAY_USER
    if mechanism is Mechanism.OVERLAY and as_user:
        raise ShadowUnavailable("Only root may mount an overlay outside a user namespace.")
    holder = _held(script, (str(root), options), state, as_user=as_user)
    namespaces = [f"--mount=/proc/{holder.pid}/ns/mnt"]
    if as_user:
        namespaces += [f"--user=/proc/{holder.pid}/ns/user"]
    return Mounted(
        mechanism=mechanism,
        view=Path(f"/proc/{holder.pid}/root{root}"),
        enter=("nsenter", *namespaces, "--"),
        holder=holder,
    )


def _overlay_options(mechanism: Mechanism, root: Path, state: Path, lowers: Sequence[Path]) -> str:
    names = []
    for number, lower in enumerate((*lowers, root)):
        link = state / f"lower-{number}"
        link.unlink(missing_ok=True)
        link.symlink_to(lower)
        names.append(link.name)
    for folder in ("upper", "work"):
        (state / folder).mkdir(exist_ok=True)
    upper = (state / "upper").stat()
    like = root.stat()
    if (upper.st_mode, upper.st_uid, upper.st_gid) != (like.st_mode, like.st_uid, like.st_gid):
        # The upper layer's top is what the root of the view looks like.
        with suppress(OSError):
            os.chown(state / "upper", like.st_uid, like.st_gid)
        (state / "upper").chmod(like.st_mode & 0o7777)
    options = f"lowerdir={':'.join(names)},upperdir=upper,workdir=work"
    extra = _OPTIONS.get(mechanism)
    return f"{options},{extra}" if extra else options


def _copy_once(mechanism: Mechanism, root: Path, state: Path) -> None:
    tree = state / "tree"
    if tree.exists():
        return
    reflink = "always" if mechanism is Mechanism.REFLINK else "auto"
    command = ["cp", "-a", f"--reflink={reflink}", "--", str(root), str(tree)]
    try:
        copied = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise ShadowUnavailable(f"cp cannot be run: {error.strerror}. Install coreutils.") from None
    if mechanism is Mechanism.REFLINK and copied.returncode and not _is_partial(copied.stderr):
        erase_tree(tree)
        raise ShadowUnavailable(f"This disk cannot share blocks between files: {_last_line(copied.stderr)}")
    if not tree.is_dir():
        raise ShadowUnavailable(f"The tree could not be copied: {_last_line(copied.stderr)}")


def _is_partial(complaint: bytes) -> bool:
    """Unreadable files are left out of a copy and are no reason against it."""
    return b"clone" not in complaint and b"reflink" not in complaint


def _held(script: str, arguments: Sequence[str], state: Path, *, as_user: bool) -> "subprocess.Popen[bytes]":
    new_user = ["--user", "--map-root-user"] if as_user else []
    command = ["unshare", *new_user, "--mount", "--propagation=private", "sh", "-c", script, "etude-shadow", *arguments]
    try:
        holder = subprocess.Popen(
            command,
            cwd=state,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ShadowUnavailable(f"{command[0]} cannot be run: {error.strerror}. Install util-linux.") from None
    assert holder.stdin and holder.stdout and holder.stderr
    said = holder.stdout.readline()
    if said == READY:
        holder.stderr.close()
        return holder
    holder.stdin.close()
    complaint = holder.stderr.read()
    holder.wait()
    holder.stdout.close()
    holder.stderr.close()
    raise ShadowUnavailable(_explained(complaint))


def _explained(complaint: bytes) -> str:
    said = _last_line(complaint)
    if "unshare" in said and "ermitted" in said:
        return (
            f"{said}. User namespaces are forbidden here; see /proc/sys/kernel/apparmor_restrict_unprivileged_userns."
        )
    if "fuse-overlayfs" in said and "not found" in said:
        return "fuse-overlayfs is not installed."
    return said or "The mount failed without a word."


def _last_line(complaint: bytes) -> str:
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else ""


def erase_tree(folder: Path) -> None:
    """Remove a folder that may hold folders without permissions, as an overlay's work folder does."""
    with suppress(FileNotFoundError, NotADirectoryError):
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            erase_at(parent, folder.name)
        finally:
            os.close(parent)
