"""What a sandboxed command gets to see, as arguments for bubblewrap.

An allowlist: the system's folders read-only, the tree at its own path, empty temporary folders, an empty home with the
toolchains that live in homes. Keys, tokens, other projects and the user's settings are not there at all.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

SYSTEM_FOLDERS = ("/usr", "/opt", "/nix", "/etc")
# Links into /usr on most systems, folders of their own on others.
SYSTEM_NAMES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# Readable only for root, which a sandboxed root would otherwise still be.
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/machine-id")
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
        *_home(),
        *_bound("--ro-bind-try", (*readable, *_interpreters(root))),
        *_bound("--bind", (root, *writable)),
        *("--chdir", str(folder)),
        "--clearenv",
        *(word for name, value in sorted(environment.items()) for word in ("--setenv", name, value)),
        "--",
    ]


def _namespaces(*, network: bool) -> list[str]:
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    # In a shadow's own user namespace we are called root; inside, a command is who the user is.
    words += ["--uid", str(os.getuid()), "--gid", str(os.getgid())]
    words += ["--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session"]
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
    for name in SECRET_FILES:
        if Path(name).exists():
            yield from ("--ro-bind", "/dev/null", name)
    for name in SECRET_FOLDERS:
        if Path(name).is_dir():
            yield from ("--tmpfs", name)


def _scratch(num_bytes: int) -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev", *_guarded_proc())
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        yield from ("--size", str(num_bytes), "--tmpfs", place)
    yield from ("--tmpfs", "/run")


def _guarded_proc() -> Iterator[str]:
    """What a sandboxed root, who owns these files, could change the whole machine by, or look into it."""
    for name in KERNEL_FOLDERS:
        if Path(name).is_dir():
            yield from ("--ro-bind", name, name)
    for name in KERNEL_FILES:
        if Path(name).exists():
            yield from ("--ro-bind", "/dev/null", name)


def _home() -> Iterator[str]:
    home = Path.home()
    if home == Path("/"):
        return
    yield from ("--tmpfs", str(home))
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
    }
    return {**made, **more}


def _own_path() -> list[str]:
    usual = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    home = str(Path.home())
    ours = os.environ.get("PATH", "").split(os.pathsep)
    shown = [place for place in ours if place.startswith(("/usr", "/opt", "/nix", "/bin", "/sbin"))]
    toolchains = [place for place in ours if any(place.startswith(f"{home}/{name}") for name in TOOLCHAINS)]
    return [*toolchains, *shown, *usual]


@cache
def shell() -> str:
    return shutil.which("bash") or "/bin/sh"
