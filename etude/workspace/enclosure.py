"""What a sandboxed command gets to see, as arguments for bubblewrap.

An allowlist: the system's folders read-only, the tree at its own path, empty temporary folders, an empty home with the
toolchains that live in homes. Keys, tokens, other projects and the user's settings are not there at all.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from etude.errors import InputError

SYSTEM_FOLDERS = ("/usr", "/opt", "/nix", "/etc")
# Links into /usr on most systems, folders of their own on others.
SYSTEM_NAMES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# Hidden beside everything in /etc that not everybody may read.
SECRET_FILES = ("/etc/machine-id",)
SECRET_FOLDERS = ("/etc/ssh", "/etc/ssl/private", "/etc/sudoers.d", "/etc/NetworkManager", "/etc/wireguard")

KERNEL_FOLDERS = ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/driver", "/proc/acpi", "/proc/scsi")
KERNEL_FILES = (
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/mtrr",
    "/proc/keys",
    "/proc/key-users",
    "/proc/timer_list",
    "/proc/kallsyms",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
)

TOOLCHAINS = (
    ".pyenv",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".local/share/mise",
    ".asdf",
    ".cargo/bin",
    ".cargo/registry",
    ".rustup",
    ".nvm",
    ".volta",
    ".bun",
    ".deno",
    ".sdkman",
    "go",
)

# Temporary folders are memory.
MAX_TEMPORARY_BYTES = 1_000_000_000
_EMPTY_BYTES = 4096

_ENTERED_BY_ALL = stat.S_IROTH | stat.S_IXOTH


def arguments(
    *,
    root: Path,
    folder: Path,
    readable: Sequence[Path],
    writable: Sequence[Path],
    environment: Mapping[str, str],
    network: bool,
    temporary_bytes: int,
) -> list[str]:
    """Everything between `bwrap` and the command."""
    return [
        *_namespaces(network=network),
        *_system(),
        *_scratch(min(temporary_bytes, MAX_TEMPORARY_BYTES)),
        *_home(min(temporary_bytes, MAX_TEMPORARY_BYTES)),
        *(_names_of_hosts() if network else ()),
        *_bound("--ro-bind-try", (*readable, *_interpreters(root))),
        *_bound("--bind", (root, *writable)),
        # What holds the mount points is memory as well, of any size. Last, since bubblewrap makes folders there.
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", str(folder)),
        "--clearenv",
        *(word for name, value in sorted(environment.items()) for word in ("--setenv", name, value)),
        "--",
    ]


def _namespaces(*, network: bool) -> list[str]:
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    # In a shadow's own user namespace we are called root; inside, a command is who the user is.
    words += ["--uid", str(os.getuid()), "--gid", str(os.getgid())]
    words += ["--disable-userns"] if _can_disable_namespaces() else []
    words += ["--cap-drop", "ALL", "--die-with-parent", "--new-session"]
    return words if network else [*words, "--unshare-net"]


def _system() -> Iterator[str]:
    for folder in SYSTEM_FOLDERS:
        yield from ("--ro-bind-try", folder, folder)
    for name in SYSTEM_NAMES:
        place = Path(name)
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), name)
        elif place.is_dir():
            yield from ("--ro-bind", name, name)
    files, folders = _secrets()
    for name in files:
        yield from ("--ro-bind", "/dev/null", name)
    for name in folders:
        yield from ("--size", str(_EMPTY_BYTES), "--tmpfs", name)


@cache
def _secrets() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Files and folders of /etc that are only for some; a sandboxed root, or a member of a group, still is one."""
    files = {name for name in SECRET_FILES if Path(name).exists()}
    folders = {name for name in SECRET_FOLDERS if Path(name).is_dir()}
    todo = ["/etc"]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                if entry.path in folders or stat.S_ISLNK(mode):
                    continue
                if stat.S_ISDIR(mode) and mode & _ENTERED_BY_ALL == _ENTERED_BY_ALL:
                    todo.append(entry.path)
                elif stat.S_ISDIR(mode):
                    folders.add(entry.path)
                elif not mode & stat.S_IROTH:
                    files.add(entry.path)
    return tuple(sorted(files)), tuple(sorted(folders))


def _scratch(num_bytes: int) -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev", *_guarded_proc())
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        yield from ("--size", str(num_bytes), "--tmpfs", place)
    yield from ("--size", str(num_bytes), "--tmpfs", "/run")


def _guarded_proc() -> Iterator[str]:
    """What a sandboxed root, who owns these files, could change the whole machine by, or look into it."""
    for name in KERNEL_FOLDERS:
        if Path(name).is_dir():
            yield from ("--ro-bind", name, name)
    for name in KERNEL_FILES:
        if Path(name).exists():
            yield from ("--ro-bind", "/dev/null", name)


def _names_of_hosts() -> Iterator[str]:
    """Where systems keep a file that /etc only links to, without which no name is found."""
    place = os.path.realpath("/etc/resolv.conf")
    if place.startswith("/run/"):
        yield from ("--ro-bind-try", place, place)


def _home(num_bytes: int) -> Iterator[str]:
    home = Path.home()
    if home == Path("/"):
        return
    yield from ("--size", str(num_bytes), "--tmpfs", str(home))
    yield from _bound("--ro-bind-try", [home / name for name in TOOLCHAINS if (home / name).exists()])


def _bound(option: str, places: Sequence[Path]) -> Iterator[str]:
    for place in places:
        yield from (option, str(place), str(place))


def _interpreters(root: Path) -> tuple[Path, ...]:
    """The installations that virtual environments of the tree are made from."""
    found = []
    for name in (".venv", "venv", "env"):
        python = root / name / "bin" / "python"
        if not python.is_symlink():
            continue
        found += python_installation(Path(os.path.realpath(python)))
    return tuple(found)


def python_installation(python: Path) -> tuple[Path, ...]:
    """The folder an interpreter is installed in, unless that is shown anyway.

    A link in an untrusted tree may point anywhere; only what is an installation of Python is shown for it.
    """
    prefix = python.parents[1]
    if Path.home().is_relative_to(prefix) or prefix == Path.home() / ".local":
        return ()
    is_python = any(prefix.glob("bin/python3*")) and any(prefix.glob("lib/python3*")) and len(prefix.parts) > 2
    return (prefix,) if is_python and not prefix.is_relative_to("/usr") else ()


def environment(root: Path, more: Mapping[str, str]) -> dict[str, str]:
    """A small clean one: nothing of this process's own, where keys may be."""
    home = Path.home()
    folders = [str(root / name / "bin") for name in (".venv", "venv") if (root / name / "bin").is_dir()]
    folders += [str(root / "node_modules" / ".bin")] if (root / "node_modules" / ".bin").is_dir() else []
    folders += [place for place in _own_path() if not place.startswith(str(root))]
    made = {
        "PATH": os.pathsep.join(dict.fromkeys(folders)),
        "HOME": str(home),
        "USER": os.environ.get("USER", "user"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",
        # A command cannot answer.
        "GIT_TERMINAL_PROMPT": "0",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "PIP_NO_INPUT": "1",
        # Python takes its cache for fresh when second and size are the same: an edit right after a run would not count.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**made, **more}


def _own_path() -> list[str]:
    usual = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    home = str(Path.home())
    ours = os.environ.get("PATH", "").split(os.pathsep)
    shown = [place for place in ours if place.startswith(("/usr", "/opt", "/nix", "/bin", "/sbin"))]
    toolchains = [place for place in ours if any(place.startswith(f"{home}/{name}") for name in TOOLCHAINS)]
    return [*toolchains, *shown, *usual]


def check_root(root: Path) -> None:
    """A tree that holds the home would bring every key in it. Raises InputError."""
    home = Path(os.path.realpath(Path.home()))
    if home != Path("/") and home.is_relative_to(os.path.realpath(root)):
        raise InputError(f"{root} holds your home with its keys, so no command is run there. Open a folder inside it.")


@cache
def _can_disable_namespaces() -> bool:
    """Since bubblewrap 0.8."""
    said = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=20, check=False).stdout
    return "--disable-userns" in said


@cache
def shell() -> str:
    return shutil.which("bash") or "/bin/sh"
