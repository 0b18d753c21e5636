"""What coding assistants commonly do with a sketch, without a model: the baselines of the Apply benchmark.

- `search_replace_merge`: SEARCH text is looked for exactly, then with other white space, then by likeness;
  other sketches are cut at their elisions and each part replaces what lies between its first and last lines.
- `difflib_merge`: sketch and file are aligned line by line; an elision keeps the file's lines, elsewhere
  lines that the sketch does not show go.

Both return the new text, or None where they find no place. They work on lines and put the file's line ending back.
"""

import difflib
import re
from collections.abc import Callable, Sequence

from rapidfuzz import fuzz

from etude.edits import split_lines

Baseline = Callable[[str, str], str | None]
"""(file, sketch) → new text"""

Part = tuple[list[str], list[str] | None]
"""(new lines, lines to look for): None when only the new lines are known."""

_ELISION_WORDS = r"existing|unchanged|same as before|remain|rest of|snip|as before|stay|omitted"
_ELISION = re.compile(rf"^\s*(#|//|--|/\*|<!--|;|%)?\s*[\[(<]?\s*(\.\.\.|…|.*\b({_ELISION_WORDS})\b).*$", re.IGNORECASE)
_SEARCH = re.compile(r"^(<{5,}|-{5,}) SEARCH\s*$")
_MIDDLE = re.compile(r"^={5,}\s*$")
_REPLACE = re.compile(r"^(>{5,}|\+{5,}) REPLACE\s*$")

# The usual threshold of assistants that fall back to likeness.
_ENOUGH = 80.0


def search_replace_merge(text: str, sketch: str) -> str | None:
    """All parts or nothing."""
    lines, ending = _file_lines(text)
    parts = _parts(sketch)
    if _is_whole_file(parts, lines):
        return _joined(parts[0][0], ending, text)
    for new, old in parts:
        found = _find(lines, old) if old is not None else _between(lines, new)
        if found is None:
            return None
        start, end = found
        lines[start:end] = _reindented(new, old if old is not None else new, lines[start:end])
    return _joined(lines, ending, text)


def difflib_merge(text: str, sketch: str) -> str | None:
    lines, ending = _file_lines(text)
    wanted: list[str] = []
    for new, _ in _parts(sketch):
        wanted += ["...", *new] if wanted else new
    if not any(line.strip() for line in wanted):
        return None
    matcher = difflib.SequenceMatcher(None, [line.strip() for line in lines], [_key(line) for line in wanted])
    opcodes = matcher.get_opcodes()
    if not any(tag == "equal" for tag, *_ in opcodes):
        return None
    merged: list[str] = []
    for at, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        old, new = lines[i1:i2], wanted[j1:j2]
        at_end = at in (0, len(opcodes) - 1)
        if tag == "equal" or (at_end and tag == "delete"):
            merged += old
        else:
            merged += _gap_filled(old, new)
    return _joined(merged, ending, text)


BASELINES: dict[str, Baseline] = {"search/replace": search_replace_merge, "difflib": difflib_merge}


def _gap_filled(old: list[str], new: list[str]) -> list[str]:
    """New lines around an elision, which stands for all the old ones."""
    elided = [at for at, line in enumerate(new) if _is_elision(line)]
    if not elided:
        return new
    first, last = elided[0], elided[-1]
    return new[:first] + old + [line for line in new[last + 1 :] if not _is_elision(line)]


def _key(line: str) -> str | None:
    """What is compared; an elision equals nothing."""
    return None if _is_elision(line) else line.strip()


def _is_elision(line: str) -> bool:
    comment = line.strip()
    return comment in ("...", "…") or (comment[:1] in "#/<[(-;%" and _ELISION.match(line) is not None)


def _is_whole_file(parts: Sequence[Part], lines: Sequence[str]) -> bool:
    """One part without elisions that starts like the file and is about as long."""
    if len(parts) != 1 or parts[0][1] is not None:
        return False
    new = parts[0][0]
    return len(new) > len(lines) / 2 and any(line.strip() == new[0].strip() for line in lines[:3])


# Reading a sketch


def _parts(sketch: str) -> list[Part]:
    lines = sketch.replace("\r\n", "\n").split("\n")
    if any(_SEARCH.match(line) for line in lines):
        return _blocks(lines)
    lines = _fenced(lines)
    if any(line.startswith("@@") for line in lines):
        return _hunks(lines)
    return [(part, None) for part in _split_at_elisions(lines)]


def _fenced(lines: list[str]) -> list[str]:
    """What stands in code fences, shell commands left out; all lines when there is no fence."""
    inside: list[str] = []
    language: str | None = None
    for line in lines:
        if line.startswith("```"):
            language = line[3:].strip() if language is None else None
            inside += ["..."] if inside and language is not None else []
        elif language is not None and language not in ("bash", "sh", "console"):
            inside.append(line)
    return inside or lines


def _blocks(lines: list[str]) -> list[Part]:
    parts: list[Part] = []
    side: list[str] | None = None
    for line in lines:
        if _SEARCH.match(line):
            side = old = []
            new: list[str] = []
        elif _MIDDLE.match(line) and side is not None:
            side = new
        elif _REPLACE.match(line) and side is not None:
            parts.append((new, old))
            side = None
        elif side is not None:
            side.append(line)
    return parts


def _hunks(lines: list[str]) -> list[Part]:
    parts: list[Part] = []
    for line in lines:
        if line.startswith("@@"):
            parts.append(([], []))
        elif parts and line != "...":
            new, old = parts[-1]
            assert old is not None
            if not line.startswith("-"):
                new.append(line[1:])
            if not line.startswith("+"):
                old.append(line[1:])
    return [(_trimmed(new), _trimmed(old or [])) if _padded(new, old or []) else (new, old) for new, old in parts]


def _padded(new: list[str], old: list[str]) -> bool:
    return bool(new and old) and new[-1] == old[-1] == ""


def _split_at_elisions(lines: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if _is_elision(line):
            parts.append([])
        else:
            parts[-1].append(line)
    return [trimmed for part in parts if (trimmed := _trimmed(part))]


def _trimmed(lines: list[str]) -> list[str]:
    full = [at for at, line in enumerate(lines) if line.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


# Finding the place

Place = tuple[int, int]
"""First and one past the last line of the file."""


def _find(lines: list[str], old: list[str]) -> Place | None:
    if not any(line.strip() for line in old):
        return None
    return _find_equal(lines, old, str) or _find_equal(lines, old, str.strip) or _find_alike(lines, old)


def _find_equal(lines: list[str], old: list[str], key: Callable[[str], str]) -> Place | None:
    wanted, have = [key(line) for line in old], [key(line) for line in lines]
    for at in range(len(have) - len(wanted) + 1):
        if have[at] == wanted[0] and have[at : at + len(wanted)] == wanted:
            return at, at + len(wanted)
    return None


def _find_alike(lines: list[str], old: list[str]) -> Place | None:
    """The window most like the wanted lines, of their number or one or two more or fewer."""
    wanted = "\n".join(old)
    best, place = _ENOUGH, None
    for size in range(max(1, len(old) - 2), len(old) + 3):
        for at in range(len(lines) - size + 1):
            ratio = fuzz.ratio(wanted, "\n".join(lines[at : at + size]), score_cutoff=best)
            if ratio > best or (place is None and ratio >= best > 0):
                best, place = ratio, (at, at + size)
    return place


def _between(lines: list[str], new: list[str]) -> Place | None:
    """From where the part's first lines stand to where its last lines stand, the nearest after."""
    for size in (3, 2, 1):
        head = _find_equal(lines, new[:size], str.strip)
        if head is None or len(new) < size:
            continue
        tail = _find_equal(lines[head[0] :], new[-size:], str.strip)
        if tail is not None:
            return head[0], max(head[1], head[0] + tail[1])
    return _find_alike(lines, new)


def _reindented(new: list[str], old: Sequence[str], found: Sequence[str]) -> list[str]:
    """The new lines moved as far as the wanted lines were from the found ones."""
    wanted, have = _first_indent(old), _first_indent(found)
    if wanted == have:
        return new
    if have.startswith(wanted):
        more = have[len(wanted) :]
        return [more + line if line.strip() else line for line in new]
    less = len(wanted) - len(have)
    return [line[less:] if line[:less].isspace() else line for line in new]


def _first_indent(lines: Sequence[str]) -> str:
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


# The file


def _file_lines(text: str) -> tuple[list[str], str]:
    ending = "\r\n" if "\r\n" in text else "\n"
    return [line.rstrip("\r\n") for line in split_lines(text)], ending


def _joined(lines: Sequence[str], ending: str, original: str) -> str:
    text = ending.join(lines)
    return text + ending if original.endswith(("\n", "\r")) else text
