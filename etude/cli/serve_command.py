"""`etude serve`: the page on a folder; the default model is fetched first when it is missing."""

import argparse

from etude.cli.fetch_report import fetch_report
from etude.errors import InputError
from etude.models.catalog import entry_named, installed
from etude.models.fetching import fetch
from etude.models.opening import Choice, EmbeddedChoice, choose
from etude.server.app import serve

MAX_PORT = 65_535


def run_serve(options: argparse.Namespace) -> int:
    if not options.folder.is_dir():
        raise InputError(f"{options.folder} is not a folder. Name the folder to work in.")
    if not 0 <= options.port <= MAX_PORT:
        raise InputError(f"{options.port} is not a port; choose one from 1 to {MAX_PORT}, or none for any free one.")
    _bring(choose())
    serve(
        options.folder,
        port=options.port,
        read_only=options.read_only,
        open_browser=not options.no_browser,
        announce=lambda line: print(line, flush=True),
    )
    return 0


def _bring(choice: Choice) -> None:
    """A first run fetches what is needed before it opens a page that could do nothing."""
    if isinstance(choice, EmbeddedChoice) and entry_named(choice.name) and installed(choice.name) is None:
        with fetch_report(choice.name) as report:
            fetch(choice.name, report)
