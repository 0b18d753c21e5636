"""Where a sketch comes from: a file, stdin, or the clipboard's text."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from etude.errors import InputError, SketchUnusable

# Beyond this it is not a sketch but a data dump that would keep a model busy for hours.
MAX_SKETCH_BYTES = 2_000_000
CLIPBOARD_TIMEOUT_SECONDS = 10

# In the order of what a desktop of today has; each prints the clipboard's text.
CLIPBOARD_COMMANDS = (
    ("wl-paste", "--no-newline", "--type", "text"),
    ("xclip", "-selection", "clipboard", "-out"),
    ("xsel", "--clipboard", "--output"),
    ("pbpaste",),
    ("powershell.exe", "-NoProfile", "-Command", "Get-Clipboard -Raw"),
)

# The variable without which the program only waits or fails.
_DESKTOP_OF = {"wl-paste": "WAYLAND_DISPLAY", "xclip": "DISPLAY", "xsel": "DISPLAY"}


def stdin_is_sketch(options: argparse.Namespace) -> bool:
    """`--sketch -`, or something is piped in and no other source was named."""
    return options.sketch == "-" or (options.sketch is None and not options.clipboard and not _stdin_is_terminal())


def read_sketch(options: argparse.Namespace) -> str:
    """The sketch's text. Raises InputError or SketchUnusable."""
    if options.clipboard:
        data, source = _clipboard(), "The clipboard"
    elif stdin_is_sketch(options):
        data, source = sys.stdin.buffer.read(MAX_SKETCH_BYTES + 1) if sys.stdin else b"", "stdin"
    elif options.sketch:
        data, source = _file(Path(options.sketch)), options.sketch
    else:
        raise InputError("Where is the sketch? Pipe it in, or use --sketch FILE or --clipboard.")
    return _text(data, source)


def clipboard_command() -> tuple[str, ...] | None:
    """The first program here that prints the clipboard."""
    for command in CLIPBOARD_COMMANDS:
        desktop = _DESKTOP_OF.get(command[0])
        if shutil.which(command[0]) and (desktop is None or os.environ.get(desktop)):
            return command
    return None


def _stdin_is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SKETCH_BYTES + 1)
    except OSError as error:
        raise InputError(f"The sketch {path} cannot be read ({error.strerror}).") from error


def _clipboard() -> bytes:
    command = clipboard_command()
    if command is None:
        raise InputError(
            "No program to read the clipboard is here (wl-paste, xclip or xsel, with a running desktop; pbpaste)."
            " Install one, or pipe the sketch in."
        )
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=CLIPBOARD_TIMEOUT_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{command[0]} did not give the clipboard ({error}). Pipe the sketch in.") from error
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise InputError(f"{command[0]} did not give the clipboard ({reason}). Copy the sketch as text first.")
    return done.stdout


def _text(data: bytes, source: str) -> str:
    if len(data) > MAX_SKETCH_BYTES:
        raise SketchUnusable(f"{source} holds more than {MAX_SKETCH_BYTES // 1_000_000} MB; that is not a sketch.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SketchUnusable(f"{source} is not UTF-8 text. A sketch is text: code, a diff or a chat reply.") from None
    if not text.strip():
        raise SketchUnusable(f"{source} is empty. Put the code block, diff or chat reply there that should be merged.")
    if "\0" in text:
        raise SketchUnusable(f"{source} is binary. A sketch is text: code, a diff or a chat reply.")
    return text
