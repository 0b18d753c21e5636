"""The diagnostics tool, and how reports of language servers are written."""

from typing import Annotated

import msgspec

from etude.agent.toolbox import Answer, StructTool, ToolContext, failed
from etude.workspace.workspace import Diagnostic, DiagnosticsReport, Severity

MAX_LINES = 100
MAX_MESSAGE_CHARACTERS = 300

_ORDER = {severity: number for number, severity in enumerate(Severity)}


class DiagnosticsArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paths: Annotated[list[str], msgspec.Meta(description="Files; without any, all that were changed.")] = []


async def diagnostics(arguments: DiagnosticsArguments, context: ToolContext) -> Answer:
    report = await context.workspace.diagnostics([context.path(path) for path in arguments.paths])
    if report.unavailable and not report.servers:
        return failed("\n".join(report.unavailable))
    lines = report_lines(report, MAX_LINES) or ["Nothing has changed since the run began."]
    if report.num_unchanged:
        lines.append(f"{report.num_unchanged} were there before and still are.")
    return Answer(text="\n".join([*lines, *report.unavailable]), record="diagnostics")


def report_lines(report: DiagnosticsReport, most: int) -> list[str]:
    """What appeared, worst first, and what is gone, in at most so many lines."""
    appeared = [diagnostic_line(one) for one in sorted(report.appeared, key=_worst_first)]
    gone = [diagnostic_line(one) for one in report.gone]
    lines = [*titled("New", appeared, max(most * 3 // 4, most - len(gone) - 2))]
    return lines + titled("Gone", gone, most - len(lines))


def titled(title: str, lines: list[str], most: int) -> list[str]:
    if not lines:
        return []
    room = max(1, most - 2)
    more = [f"  … and {len(lines) - room} more"] if len(lines) > room else []
    return [f"{title} ({len(lines)}):", *(f"  {line}" for line in lines[:room]), *more]


def _worst_first(diagnostic: Diagnostic) -> tuple[int, str, int]:
    return _ORDER[diagnostic.severity], diagnostic.place.path, diagnostic.place.line


def diagnostic_line(diagnostic: Diagnostic) -> str:
    """pay.py:3:5 error: "total" is not defined [ty unresolved-reference]"""
    place = diagnostic.place
    message = " ".join(diagnostic.message.split())
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = message[:MAX_MESSAGE_CHARACTERS] + "…"
    source = f"{diagnostic.server} {diagnostic.code}".strip()
    return f"{place.path}:{place.line}:{place.column} {diagnostic.severity}: {message} [{source}]"


DIAGNOSTICS = StructTool(
    name="diagnostics",
    description="What language servers and linters say against the files, as the change since the run began.",
    arguments=DiagnosticsArguments,
    action=diagnostics,
    line=lambda arguments: " ".join(["diagnostics", *arguments.paths]),
)
