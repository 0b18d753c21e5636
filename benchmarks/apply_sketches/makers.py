"""All makers by style."""

import random
from dataclasses import replace

from benchmarks.apply_sketches.blocks import search_drift, search_replace, unified_diff
from benchmarks.apply_sketches.elided import (
    deletion,
    elided_context,
    import_and_change,
    looks_elided,
    partial_function,
    reordered,
    several_hunks,
    sloppy_words,
)
from benchmarks.apply_sketches.indentation import wrong_indentation
from benchmarks.apply_sketches.regions import Subject, drops_silently
from benchmarks.apply_sketches.styles import Maker, Sketch, Style, dressed

_OUTRO_COMMANDS = "You can check it with:\n\n```bash\npytest {path}\n```\n"


def whole_file(subject: Subject, rng: random.Random) -> Sketch | None:
    if len(subject.after) > 150:
        return None
    unique = not drops_silently(subject) and not looks_elided(subject.after)
    sketch = Sketch(style=Style.WHOLE_FILE, text="\n".join(subject.after) + "\n", unique_anchor=unique)
    return dressed(rng, sketch, fence=0.7)


def chat(subject: Subject, rng: random.Random) -> Sketch | None:
    maker = rng.choice([elided_context, elided_context, partial_function, several_hunks, search_replace, unified_diff])
    sketch = maker(subject, rng)
    if sketch is None:
        return None
    path, text = subject.edit.path, sketch.text
    if "```" not in text:
        info = rng.choice(["python", "python", "py", "", f"python:{path}", f"python title={path}"])
        text = f"```{info}\n{text}```\n"
    name = _changed_name(subject)
    before = rng.choice(
        [
            f"Here's the updated code for `{path}`:",
            f"Sure! I changed `{name}` as you asked. The important part is below.",
            f"**{path}**",
            f"I looked at `{name}` and the fix is small:\n\n1. Keep the signature.\n2. Change what happens inside.",
            f"You need to edit `{path}`:",
        ]
    )
    after = rng.choice(
        [
            "This keeps everything else as it is. Let me know if you want tests, too.",
            "Everything else in the file stays the same.",
            _OUTRO_COMMANDS.format(path=path),
            f"Key changes:\n- `{name}` now does what you described\n- nothing else is touched",
            "",
        ]
    )
    how = f"{sketch.style}; {sketch.how}"
    return replace(sketch, style=Style.CHAT, text=f"{before}\n\n{text}\n{after}".rstrip() + "\n", how=how)


POSITIVE: dict[Style, Maker] = {
    Style.ELIDED_CONTEXT: elided_context,
    Style.PARTIAL_FUNCTION: partial_function,
    Style.WRONG_INDENTATION: wrong_indentation,
    Style.UNIFIED_DIFF: unified_diff,
    Style.SEARCH_REPLACE: search_replace,
    Style.SEARCH_DRIFT: search_drift,
    Style.REORDERED: reordered,
    Style.SEVERAL_HUNKS: several_hunks,
    Style.SLOPPY_WORDS: sloppy_words,
    Style.WHOLE_FILE: whole_file,
    Style.CHAT: chat,
    Style.DELETION: deletion,
    Style.IMPORT_AND_CHANGE: import_and_change,
}


def _changed_name(subject: Subject) -> str:
    at = subject.regions[0].new_start
    names = [function.name for function in subject.new_functions if function.start <= at < function.end]
    return names[0] if names else subject.edit.path.rsplit("/", 1)[-1].removesuffix(".py")
