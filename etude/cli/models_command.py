"""`etude models`: what the catalog has, what is here; fetch, import, remove."""

import argparse
import sys

from rich.table import Table

from etude.cli.fetch_report import fetch_report
from etude.cli.terminal import console_for, megabytes
from etude.models import catalog
from etude.models.catalog import ModelState, Status
from etude.models.fetching import fetch, import_file, remove


def run_models(options: argparse.Namespace) -> int:
    if options.action == "fetch":
        return fetch_model(options.name or catalog.default_model_name())
    if options.action == "import":
        return _import(options)
    if options.action == "remove":
        print(f"Removed {options.name}; {megabytes(remove(options.name))} are free again.")
        return 0
    return _list()


def fetch_model(name: str) -> int:
    with fetch_report(name) as report:
        path = fetch(name, report)
    print(f"{name} is ready: {path}")
    return 0


def _import(options: argparse.Namespace) -> int:
    with fetch_report(options.file.name) as report:
        imported = import_file(options.file, report)
    print(f"{imported.name} is ready: {imported.path}")
    if not imported.known:
        note = (
            "This file is not in the catalog, so its licence and whether it is what its name says are yours to judge."
        )
        print(f"{note}\nUse it with `--model {imported.name}`.", file=sys.stderr)
    return 0


def _list() -> int:
    console = console_for(sys.stdout)
    table = Table(box=None, pad_edge=False, header_style="bold", width=80)
    for column in ("model", "download", "licence", "state"):
        table.add_column(column, no_wrap=True, justify="right" if column == "download" else "left")
    for state in catalog.models():
        table.add_row(state.name, megabytes(state.download_bytes), state.licence, _standing(state))
    console.print(table, soft_wrap=False)
    console.print(f"\nKept in {catalog.models_folder()}")
    return 0


def _standing(state: ModelState) -> str:
    if state.status is Status.MISSING:
        return "not here"
    if state.status is Status.CORRUPT:
        return "damaged, fetch it again"
    default = ", the default" if state.name == catalog.default_model_name() else ""
    return f"ready, {megabytes(state.disk_bytes)} on disk{default}"
