"""What the verbs print: diffs in colour, questions. Only the 16 colours that every terminal has."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from etude.edits import Edit, line_starts, split_lines
from etude.errors import InputError

CONTEXT_LINES = 3
# Control characters in a file or sketch could move the cursor or recolour the terminal; show their pictures.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code != ord("\t")}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
# Marks of direction, which can make code read as what it is not, and halves of surrogate pairs.
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_PICTURES |= dict.fromkeys((*_DIRECTIONS, *range(0xD800, 0xE000)), 0xFFFD)

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def console_for(stream: TextIO) -> Console:
    """Colours on a terminal unless NO_COLOR is set; plain text, never wrapped, elsewhere."""
    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def visible(text: str) -> str:
    """The text without what a terminal would obey."""
    return text.translate(_PICTURES)


def draw_lines(console: Console, lines: Iterable[str]) -> None:
    """Lines of a diff, coloured by their first character."""
    for line in lines:
        style = "bold" if line.startswith(("+++ ", "--- ")) else _STYLES.get(line[:1], "")
        console.print(Text(visible(line), style=style))


def draw_hunk(console: Console, text: str, edit: Edit) -> None:
    """One edit with the lines around it, as soon as it is decided."""
    draw_lines(console, hunk_lines(text, edit))


def hunk_lines(text: str, edit: Edit) -> list[str]:
    """["@@ line 12 @@", " before", "-old", "+new", " after"], without line endings.

    An edit that starts or ends within a line is shown as a change of whole lines.
    """
    lines = split_lines(text)
    starts = line_starts(lines)
    first = next((number for number, start in enumerate(starts[1:]) if start > edit.span.start), len(lines))
    after = next((number for number, start in enumerate(starts) if start >= edit.span.end), len(lines))
    after = max(after, first + (first < len(lines) and starts[first] < edit.span.start))
    head, tail = text[starts[first] : edit.span.start], text[edit.span.end : starts[after]]
    shown = [f"@@ line {first + 1} @@"]
    shown += [f" {_bare(line)}" for line in lines[max(0, first - CONTEXT_LINES) : first]]
    shown += [f"-{_bare(line)}" for line in lines[first:after]]
    shown += [f"+{_bare(line)}" for line in split_lines(head + edit.text + tail)]
    shown += [f" {_bare(line)}" for line in lines[after : after + CONTEXT_LINES]]
    return shown


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def counted(count: int, thing: str) -> str:
    """counted(1, "hunk") is "1 hunk"; counted(2, "hunk") is "2 hunks"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


class Questions:
    """Asks the person at the terminal, also when stdin brings the sketch."""

    def __init__(self, source: TextIO) -> None:
        self._source = source

    def ask(self, question: str, answers: str) -> str:
        """One of the letters in `answers`; the end of input counts as the last of them."""
        while True:
            sys.stdout.write(f"{question} ")
            sys.stdout.flush()
            line = self._source.readline()
            if not line:
                sys.stdout.write("\n")
                return answers[-1]
            letter = line.strip()[:1].lower()
            if letter and letter in answers:
                return letter
            sys.stdout.write(f"Please answer with one of: {', '.join(answers)}.\n")


@contextmanager
def questions(*, stdin_is_taken: bool) -> Generator[Questions]:
    """Raises InputError where nobody can answer."""
    if not stdin_is_taken and sys.stdin is not None and sys.stdin.isatty():
        yield Questions(sys.stdin)
        return
    try:
        terminal = open("/dev/tty", encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115
    except OSError:
        raise InputError(
            "There is no terminal to ask on. Add --yes to save without asking, or --diff to only look."
        ) from None
    with terminal:
        yield Questions(terminal)
