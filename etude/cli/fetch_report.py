"""What is shown while a model is brought to this machine."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from etude.cli.terminal import console_for
from etude.models.fetching import FetchProgress, Report, Stage


@contextmanager
def fetch_report(name: str) -> Generator[Report]:
    """A progress bar on a terminal, a line a stage elsewhere; on stderr."""
    if not sys.stderr.isatty():
        yield _line_a_stage(name)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn())
    with Progress(*columns, console=console_for(sys.stderr), transient=True) as progress:
        task = progress.add_task(name, total=None)

        def report(heard: FetchProgress) -> None:
            said = f"{name}: {'waiting for another etude' if heard.stage is Stage.WAITING else heard.stage}"
            progress.update(task, description=said, completed=heard.done_bytes, total=heard.total_bytes or None)

        yield report


def _line_a_stage(name: str) -> Report:
    said: set[Stage] = set()

    def report(heard: FetchProgress) -> None:
        if heard.stage not in said:
            said.add(heard.stage)
            print(f"{name}: {heard.stage} …", file=sys.stderr, flush=True)

    return report
