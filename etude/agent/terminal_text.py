"""What a terminal would show of a program's output, as plain text: no colours, no cursor, no overwritten progress."""

import re

# Bounded, so that output made to be slow is not: every match starts at an escape character and none is scanned twice.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor, erasing
    r"|(?:\x1b[\]PX^_]|\x9d)[^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[ -/]{0,8}[0-~]"  # character sets, resets
)
_OVERSTRUCK = re.compile(r"[^\n\b]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text without escapes and control characters; of a line that was overwritten, its last state."""
    if not _CONTROLS.search(text):
        return text
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return _CONTROLS.sub("", text)


def _last_state(line: str) -> str:
    """A progress bar goes back to the line's start; what was written last stays."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")
