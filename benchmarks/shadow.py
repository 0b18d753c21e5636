"""What a shadow costs: `python benchmarks/shadow.py [--save] [--files 50000] [--rounds 15]`. Linux only.

Opens a shadow of a tree of small Python files beside what others do (`git worktree add`, `cp -a`), forks it, follows
saves, waits for a cross-file error after an edit, runs the agent's loop with a model that takes no time, and opens and
closes many shadows in a row to see what is left over.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.results import save_results
from etude.agent.limits import Limits
from etude.agent.loop import run
from etude.messages import Completion, ToolCall
from etude.models.scripted import ScriptedModel
from etude.tasks import Task
from etude.workspace import control_groups
from etude.workspace.memory import MemoryWorkspace
from etude.workspace.shadow import ShadowWorkspace, open_shadow
from etude.workspace.workspace import Command

NUM_FORKS = 8
FILES_A_FOLDER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds over several rounds."""

    median: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    num_files: int
    mechanism: str
    open: Times
    """Entering `open_shadow`."""
    open_bytes: int
    """Growth of this process's resident memory and the proportional memory of what it started, of the largest round."""
    git_worktree: Times
    """`git worktree add` of the same tree: committed files only."""
    copy: Times
    """`cp -a` of the same tree."""
    fork: Times
    """NUM_FORKS forks of a shadow with changes."""
    follow: Times
    """From the user's atomic save to the shadow showing it."""
    cross_file: Times
    """From the agent's write to the error that the edit causes in another file."""
    command: Times
    """`true` in the sandbox, with what it opened recorded."""
    turn: float
    """Seconds of the loop a turn, without the model's and the tools' time."""
    leftovers: tuple[str, ...]
    """Mounts, processes and files that opening and closing many shadows left behind."""
    num_soaked: int


async def measure(*, num_files: int, rounds: int, num_soaked: int) -> Measured:
    with _scratch() as place:
        tree = place / "tree"
        write_tree(tree, num_files)
        async with open_shadow(tree) as shadow:
            mechanism = shadow.mechanism
        opened, num_bytes = await _opened(tree, rounds)
        worktree, copied = _git_worktree(tree, place, 3), _copied(tree, place, 3)
        async with open_shadow(tree) as shadow:
            await shadow.write("changed.py", "x = 1\n")
            forked = await _forked(shadow, min(rounds, 5))
            followed = await _followed(shadow, tree, rounds)
            commands = await _times(rounds, lambda: shadow.run(Command(line="true")))
        return Measured(
            num_files=num_files,
            mechanism=mechanism,
            open=opened,
            open_bytes=num_bytes,
            git_worktree=worktree,
            copy=copied,
            fork=forked,
            follow=followed,
            cross_file=await _cross_file(place / "package", rounds),
            command=commands,
            turn=await _turn(),
            leftovers=await soak(place / "small", num_soaked),
            num_soaked=num_soaked,
        )


@contextmanager
def _scratch() -> Generator[Path]:
    """A folder for the trees, and for etude's own files, so that what is left over can be told."""
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        before = os.environ.get("ETUDE_STATE")
        os.environ["ETUDE_STATE"] = f"{folder}/state"
        try:
            yield Path(folder)
        finally:
            os.environ.pop("ETUDE_STATE")
            if before is not None:
                os.environ["ETUDE_STATE"] = before


def write_tree(tree: Path, num_files: int) -> None:
    for number in range(num_files):
        folder = tree / f"part{number // FILES_A_FOLDER // 20}" / f"pkg{number // FILES_A_FOLDER}"
        if number % FILES_A_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"m{number % FILES_A_FOLDER}.py").write_text(f"value = {number}\n" * 20)


async def _times(rounds: int, action: Callable[[], Awaitable[object]]) -> Times:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        await action()
        seconds.append(time.perf_counter() - started)
    return times(seconds)


def times(seconds: list[float]) -> Times:
    return Times(median=statistics.median(seconds), worst=max(seconds))


async def _opened(tree: Path, rounds: int) -> tuple[Times, int]:
    seconds, sizes = [], []
    for _ in range(rounds):
        before = _own_bytes()
        started = time.perf_counter()
        async with open_shadow(tree):
            seconds.append(time.perf_counter() - started)
            # Watching the tree goes on being set up in the background; its memory counts.
            await asyncio.sleep(1.0)
            sizes.append(_own_bytes() - before + sum(map(_proportional_bytes, _descendants())))
    return times(seconds), max(sizes)


def _own_bytes() -> int:
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _descendants() -> list[int]:
    found, todo = [], [os.getpid()]
    while todo:
        for task in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            children = [int(child) for child in task.read_text().split()]
            found += children
            todo += children
    return found


def _proportional_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _git_worktree(tree: Path, place: Path, rounds: int) -> Times:
    git = ["git", "-C", str(tree), "-c", "user.name=e", "-c", "user.email=e@example.org", "-c", "gc.auto=0"]
    for line in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *line], check=True)
    seconds = []
    for number in range(rounds):
        started = time.perf_counter()
        subprocess.run([*git, "worktree", "add", "-q", "--detach", str(place / f"w{number}")], check=True)
        seconds.append(time.perf_counter() - started)
        shutil.rmtree(place / f"w{number}")
    shutil.rmtree(tree / ".git")
    return times(seconds)


def _copied(tree: Path, place: Path, rounds: int) -> Times:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(["cp", "-a", str(tree), str(place / "copy")], check=True)
        seconds.append(time.perf_counter() - started)
        shutil.rmtree(place / "copy")
    return times(seconds)


async def _forked(shadow: ShadowWorkspace, rounds: int) -> Times:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        async with shadow.fork(NUM_FORKS):
            seconds.append(time.perf_counter() - started)
    return times(seconds)


async def _followed(shadow: ShadowWorkspace, tree: Path, rounds: int) -> Times:
    saved = tree / "part0" / "pkg0" / "m0.py"
    path = str(saved.relative_to(tree))
    await shadow.follow()
    seconds = []
    for number in range(rounds):
        await asyncio.sleep(0.05)
        await shadow.read(path)
        text = f"saved = {number}\n"
        saved.with_suffix(".new").write_text(text)
        started = time.perf_counter()
        saved.with_suffix(".new").rename(saved)
        while await shadow.read(path) != text:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        seconds.append(time.perf_counter() - started)
    return times(seconds)


async def _cross_file(place: Path, rounds: int) -> Times:
    write_package(place / "shop")
    seconds = []
    async with open_shadow(place) as shadow:
        await shadow.diagnostics(["shop/price.py", "shop/use.py"])
        for _ in range(rounds):
            started = time.perf_counter()
            await shadow.write("shop/price.py", "def price(number: int) -> str:\n    return str(number)\n")
            report = await shadow.diagnostics()
            seconds.append(time.perf_counter() - started)
            if not any(one.place.path == "shop/use.py" for one in report.appeared):
                raise SystemExit(f"the error in the other file was not seen: {report}")
            await shadow.write("shop/price.py", "def price(number: int) -> int:\n    return number * 2\n")
            if (await shadow.diagnostics()).appeared:
                raise SystemExit("the error stayed after it was mended")
    return times(seconds)


def write_package(package: Path) -> None:
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for number in range(50):
        (package / f"m{number}.py").write_text(f"def f{number}(value: int) -> int:\n    return value + {number}\n" * 20)
    (package / "price.py").write_text("def price(number: int) -> int:\n    return number * 2\n")
    (package / "use.py").write_text("from shop.price import price\n\ntotal: int = price(3)\n")


async def _turn(num_turns: int = 300) -> float:
    calls = [
        Completion(text="", tool_calls=(ToolCall(id=f"c{number}", name="read", arguments=f'{{"path": "f{number}"}}'),))
        for number in range(num_turns)
    ]
    finish = Completion(text="", tool_calls=(ToolCall(id="end", name="finish", arguments='{"answer": "done"}'),))
    workspace = MemoryWorkspace({f"f{number}": f"text {number}\n" * 50 for number in range(num_turns)})
    started = time.perf_counter()
    trace = await run(
        Task(id="bench", statement="read"), ScriptedModel([*calls, finish]), workspace, Limits(turns=num_turns + 1)
    )
    assert len(trace.turns) == num_turns + 1, trace.stop_message
    return (time.perf_counter() - started) / len(trace.turns)


async def soak(place: Path, rounds: int) -> tuple[str, ...]:
    """Open and close shadows in which something runs; returns what is left of them."""
    write_tree(place, 1)
    # What the first one loads stays loaded.
    await _worked_in(place, 0)
    before = belongings(place)
    for number in range(rounds):
        await _worked_in(place, number)
    return tuple(sorted(belongings(place) - before))


async def _worked_in(place: Path, number: int) -> None:
    async with open_shadow(place) as shadow:
        await shadow.write("part0/pkg0/m0.py", f"x = {number}\n")
        await shadow.run(Command(line="(sleep 300 &) ; echo started"))


def belongings(tree: Path) -> set[str]:
    """Mounts, processes, open files and kept files of this process, and what the tree says."""
    mounts = {f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines()}
    processes = {f"process {process}" for process in _descendants()}
    opened = {f"open file {number}" for number in os.listdir("/proc/self/fd")}  # noqa: PTH208
    kept = {str(path) for path in Path(os.environ["ETUDE_STATE"]).rglob("*")}
    kept |= {str(path) for path in control_groups.MOUNT.glob(f"**/etude-{os.getpid()}-*")}
    return mounts | processes | opened | kept | {path.read_text() for path in tree.rglob("*.py")}


def table(measured: Measured) -> str:
    rows = [
        (f"open a shadow of {measured.num_files:,} files", _shown(measured.open), "≤ 150 ms"),
        ("… memory of it", f"{measured.open_bytes / 1e6:.1f} MB", "≤ 20 MB"),
        ("git worktree add (committed files only)", _shown(measured.git_worktree), ""),
        ("cp -a", _shown(measured.copy), ""),
        (f"fork {NUM_FORKS} ways", _shown(measured.fork), "≤ 500 ms"),
        ("follow a save of the user", _shown(measured.follow), "≤ 100 ms"),
        ("cross-file error after an edit (ty)", _shown(measured.cross_file), "≤ 100 ms"),
        ("a command in the sandbox (true)", _shown(measured.command), ""),
        ("the agent's loop, a turn without the model", f"{measured.turn * 1000:.2f} ms", "≤ 5 ms"),
        (f"left over by {measured.num_soaked} shadows", ", ".join(measured.leftovers) or "nothing", "nothing"),
    ]
    lines = [f"| {name} | {value} | {target} |" for name, value, target in rows]
    return "\n".join(["| | measured | must reach |", "|---|---|---|", *lines])


def _shown(one: Times) -> str:
    return f"{one.median * 1000:.0f} ms (worst {one.worst * 1000:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--soak", type=int, default=200)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    measured = asyncio.run(measure(num_files=options.files, rounds=options.rounds, num_soaked=options.soak))
    print(table(measured))
    if options.save:
        print(f"saved {save_results('shadow', asdict(measured))}")


if __name__ == "__main__":
    main()
