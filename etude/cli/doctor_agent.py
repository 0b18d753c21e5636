"""What `etude doctor` says of the agent: whether this machine can make shadows and isolate commands, and with what.

Everything is really tried. Where nothing safe works the agent does not start; there is no silent weaker mode.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from etude.agent.run_folder import all_folders, runs_folder
from etude.agent.run_values import RunOptions
from etude.agent.settings import agent_settings, limits_for
from etude.agent.shadow_settings import language_servers
from etude.cli.finding import Finding, no_agent, note, ok
from etude.cli.terminal import counted, megabytes
from etude.errors import EtudeError
from etude.models.opening import settings_file, settings_table
from etude.workspace.mounts import Mechanism, mechanisms

# A tree of fifty thousand files has some ten thousand folders, and each shadow watches all of them.
ENOUGH_WATCHES = 65_536
ENOUGH_WATCHERS = 128
MAX_PROBLEM_CHARACTERS = 130


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
    try:
        specs = language_servers()
    except EtudeError as error:
        return note("language servers", "the settings cannot be used", str(error))
    absent = [spec.name for spec in specs if not shutil.which(spec.argv[0])]
    found = [f"{spec.name} {_version(spec.argv[0])}".strip() for spec in specs if spec.name not in absent]
    if absent:
        way_out = f"Not on the PATH: {', '.join(absent)}. Install what [[language_server]] of etude.toml names."
        return note("language servers", ", ".join(found) or "none", way_out)
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


def _version(program: str) -> str:
    """What it says of itself, without its name; "" if it cannot be run so."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    first = done.stdout.strip().partition("\n")[0].partition(" (")[0]
    return first.removeprefix(f"{Path(program).name} ")[:40]


AGENT_CHECKS: tuple[Callable[[], Finding], ...] = (_shadow, _isolation, _language_servers, _watching, _runs)
