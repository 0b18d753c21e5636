"""The arguments of `etude agent`. Light: it is imported whenever anything is run."""

import argparse
from collections.abc import Sequence
from typing import TypeAlias

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

AGENT_HELP = """\
Let an agent work on a task, in a hidden copy of this folder: your files stay as
they are until you apply what it did.

  etude agent "fix the failing test"   work on it, then ask what to take
  etude agent start "fix …"            the same in the background
  etude agent status                   what is at work, what is done
  etude agent attach ID                watch a run, answer its questions
  etude agent diff ID                  what it changed, as one unified diff
  etude agent apply ID                 look at each hunk, take it or not
  etude agent discard ID               end it and forget what it did

  answer, stop, resume, log            see `etude agent ACTION --help`

What a task can be given (--model, --check CMD, --best-of N, --max-turns N, …)
is told by `etude agent run --help`.

Runs are processes of their own: they survive the terminal. In the foreground,
Ctrl-C stops the run and keeps what it did; of a run that you attached to,
Ctrl-C only lets go. ID may be shortened; without it the newest run of this
folder is meant. A task that is named like an action: `etude agent run status`.

exit codes: 0    the agent finished; applied, if that was asked for
            1    it stopped before that, or something was not applied
            2    something given cannot be used, or the run failed
            130  interrupted
"""

RUN = "run"
ACTIONS = (RUN, "start", "status", "attach", "answer", "diff", "apply", "discard", "stop", "resume", "log")


def with_action(argv: Sequence[str]) -> list[str]:
    """`agent "fix …"` is `agent run "fix …"`; everything else stays as it is."""
    if not argv or argv[0] != "agent":
        return list(argv)
    rest = list(argv[1:])
    if rest and (rest[0] in ACTIONS or rest[0] in ("-h", "--help")):
        return list(argv)
    return ["agent", RUN, "--implied", *rest]


def add_agent(verbs: Actions) -> None:
    agent = verbs.add_parser(
        "agent",
        help="let an agent work on a task, beside your files",
        description=AGENT_HELP,
        usage='etude agent "TASK" [options]\n       etude agent ACTION [ID] [options]',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = agent.add_subparsers(prog="etude agent", dest="action", metavar="ACTION", help=argparse.SUPPRESS)
    _add_run(actions)
    _add_start(actions)
    _add_looking(actions)
    _add_deciding(actions)
    resume = actions.add_parser("resume", help="let a run that ended go on from its last turn")
    resume.add_argument("id", metavar="ID", help="of the run")
    resume.add_argument("follow_up", nargs="*", metavar="TASK", help="what to do now; a finished run needs it")
    _add_limits(resume)
    resume.add_argument("--json", action="store_true", help="print its id as a JSON object")


def _add_run(actions: Actions) -> None:
    run = actions.add_parser(RUN, help="work on a task in the foreground (the default)")
    _add_task(run)
    run.add_argument("--implied", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("--yes", action="store_true", help="apply what it did without asking, if it is done")
    run.add_argument("--json", action="store_true", help="print its events, one JSON object a line")


def _add_start(actions: Actions) -> None:
    start = actions.add_parser("start", help="work on a task in the background")
    _add_task(start)
    start.add_argument("--json", action="store_true", help="print its id as a JSON object")


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statement", nargs="*", metavar="TASK", help="what to do; '-' reads it from stdin")
    parser.add_argument("--model", metavar="NAME", help="a model of `etude models`, or of your server")
    parser.add_argument("--check", metavar="CMD", default="", help="a command that succeeds when the task is done")
    parser.add_argument("--best-of", type=int, default=1, metavar="N", help="make N attempts and keep the best")
    _add_limits(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-turns", type=int, metavar="N", help="stop after N turns")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="stop after S seconds")
    parser.add_argument("--max-cost", type=float, metavar="C", help="stop at this cost, by the prices of etude.toml")
    parser.add_argument(
        "--network", action="store_true", default=None, help="let its commands use the network (default: off)"
    )


def _add_looking(actions: Actions) -> None:
    status = actions.add_parser("status", help="list the runs")
    _add_id(status)
    status.add_argument("--all", action="store_true", help="of all folders")
    for name, help_text in (
        ("attach", "watch a run from its beginning, and answer its questions"),
        ("diff", "print what a run changed"),
        ("log", "print what happened in a run, and what its process said"),
    ):
        _add_id(actions.add_parser(name, help=help_text))
    for name in ("status", "attach", "diff", "log"):
        actions.choices[name].add_argument("--json", action="store_true", help="print JSON")


def _add_deciding(actions: Actions) -> None:
    answer = actions.add_parser("answer", help="answer the open question of a run")
    answer.add_argument("id", metavar="ID")
    answer.add_argument("text", metavar="TEXT")
    for name, help_text in (
        ("apply", "put what a run changed into your files, hunk by hunk"),
        ("discard", "end a run and forget what it did"),
        ("stop", "end a run and keep what it did"),
    ):
        _add_id(actions.add_parser(name, help=help_text))
    for name in ("apply", "discard"):
        actions.choices[name].add_argument("--yes", action="store_true", help="without asking")
    actions.choices["apply"].add_argument("--json", action="store_true", help="print one JSON object")


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="of the run; default: the newest of this folder")
