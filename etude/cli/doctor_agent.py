"""What `etude doctor` says of the agent: whether this machine can make shadows and isolate commands, and with what.

Everything is really tried. Where nothing safe works the agent does not start; there is no silent weaker mode.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from etude.agent.run_folder import all_folders, runs_folder
from etude.agent.run_values import RunOptions
from etude.agent.settings import agent_settings, limits_for
from etude.cli.finding import Finding, no_agent, note, ok
from etude.cli.terminal import counted, megabytes
from etude.errors import EtudeError
from etude.models.opening import settings_file, settings_table
from etude.workspace.mounts import Mechanism, mechanisms

# A tree of fifty thousand files has some ten thousand folders, and each shadow watches all of them.
ENOUGH_WATCHES = 65_536
ENOUGH_WATCHERS = 128
MAX_PROBLEM_CHARACTERS = 130
SERVERS = ("ty", "ruff")
OTHER_SERVERS = ("basedpyright-langserver", "typescript-language-server", "gopls", "rust-analyzer", "clangd")


def _shadow() -> Finding:
    try:
        wanted = settings_table("shadow").get("mechanism")
        tried = mechanisms(runs_folder().parent)
    except (EtudeError, OSError) as error:
        return no_agent("shadow", "cannot be tried", str(error))
    working = [mechanism for mechanism, problem in tried if problem is None]
    if wanted is not None:
        return _wanted_shadow(str(wanted), working)
    # A copy of everything is never made without being asked for.
    quick = [mechanism for mechanism in working if mechanism is not Mechanism.COPY]
    if not quick:
        problems = [_short(f"{mechanism}: {problem}") for mechanism, problem in tried if problem]
        ask = 'Copying works: mechanism = "copy" under [shadow] in etude.toml.' if working else ""
        return no_agent("shadow", "no copy-on-write mechanism works here", "\n".join(filter(None, [*problems, ask])))
    others = f", also {', '.join(quick[1:])}" if quick[1:] else ""
    return ok("shadow", f"by {quick[0]}{others}")


def _wanted_shadow(wanted: str, working: list[Mechanism]) -> Finding:
    if wanted in working:
        return ok("shadow", f"by {wanted}, as the settings say")
    way_out = (
        f"Take mechanism = {wanted!r} out of [shadow] in {settings_file()}; what works: {', '.join(working) or '-'}"
    )
    return no_agent("shadow", f"{wanted} does not work here", way_out)


def _short(text: str) -> str:
    """The end says what the system had against it."""
    return text if len(text) <= MAX_PROBLEM_CHARACTERS else f"{text[:40]}… {text[-80:]}"


def _isolation() -> Finding:
    from etude.workspace.isolation import isolation_problem

    problem = isolation_problem()
    if problem:
        return no_agent("isolation", "commands cannot be isolated here", problem)
    return ok("isolation", f"{_version('bwrap')}; commands have no network unless allowed")


def _language_servers() -> Finding:
    found = [f"{name} {version}" for name in SERVERS if (version := _version_beside_us(name))]
    found += [name for name in OTHER_SERVERS if shutil.which(name)]
    if not found:
        return note("language servers", "none", "The agent sees no diagnostics. pip install ty ruff")
    return ok("language servers", ", ".join(found))


def _watching() -> Finding:
    folder = Path("/proc/sys/fs/inotify")
    try:
        watches = int((folder / "max_user_watches").read_text("ascii"))
        watchers = int((folder / "max_user_instances").read_text("ascii"))
    except (OSError, ValueError):
        return note("file watching", "by looking again and again", "Your edits reach a shadow more slowly.")
    said = f"{watches:,} folders, {watchers} watchers"
    if watches < ENOUGH_WATCHES:
        return note("file watching", said, f"For large trees: sysctl fs.inotify.max_user_watches={ENOUGH_WATCHES * 8}")
    if watchers < ENOUGH_WATCHERS:
        return note("file watching", said, f"For many runs: sysctl fs.inotify.max_user_instances={ENOUGH_WATCHERS * 4}")
    return ok("file watching", said)


def _runs() -> Finding:
    try:
        folder, count = runs_folder(), len(all_folders())
        limits = limits_for(agent_settings(), RunOptions())
    except (EtudeError, OSError) as error:
        return no_agent("agent runs", "cannot be kept or configured", str(error))
    free = megabytes(shutil.disk_usage(folder).free)
    return ok("agent runs", f"{counted(count, 'run')} in {folder}, {free} free; up to {limits.turns} turns each")


def _version_beside_us(name: str) -> str:
    """Of a program that came with etude, or is on the PATH."""
    beside = Path(sys.executable).parent / name
    return _version(str(beside) if beside.exists() else name).removeprefix(f"{name} ").partition(" ")[0]


def _version(program: str) -> str:
    """The first line that it says of itself; "" if it cannot be run."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().partition("\n")[0][:60]


AGENT_CHECKS: tuple[Callable[[], Finding], ...] = (_shadow, _isolation, _language_servers, _watching, _runs)
