"""Lines of a sketch that stand for code it does not show: "# ... existing code ...", "// rest unchanged".

A line that the file holds verbatim is code, whatever it looks like; callers check that first.
"""

import re

# What opens or closes a comment in some language; a dozen languages share these.
_OPENERS = r"(?:\#+|//+|--+|;+|%+|/\*+|<!--+|\{/\*+|\(\*+|\"\"\"|'''|REM\b|<%--)"
_CLOSERS = r"(?:\*+/\}?|--+>|\*\)|\"\"\"|'''|--%>)"
_COMMENT = re.compile(rf"^\s*{_OPENERS}\s*(?P<words>.*?)\s*{_CLOSERS}?\s*$")
_BRACKETED = re.compile(r"^\s*[\[(<{]\s*(?P<words>.*?)\s*[\])>}]\s*$")

_DOTS = re.compile(r"\.{3,}|…")
_ONLY_DOTS = re.compile(r"^[\s\[(<{]*(?:\.{3,}|…)[\s\])>}]*$")

_HIDDEN = (
    r"(?:code|lines?|methods?|functions?|class(?:es)?|imports?|tests?|fields?|props|properties|attributes?|body|file|"
)
_HIDDEN += (
    r"module|content|contents|logic|implementation|definitions?|entries|items|cases|routes|handlers|setup|stuff|parts?|"
)
_HIDDEN += r"section|block|loop|function|method|docstring|args|arguments|parameters|params|options|helpers?|constants?)"
_SAME = r"(?:unchanged|unmodified|untouched|the\s+same|same|identical|intact|"
_SAME += r"as\s+(?:before|is|above|it\s+was|they\s+(?:are|were)))"
# What may follow the telling words; more than this is a sentence of its own.
_TAIL = r"(?:[\s,]+\S+){0,4}"

# Without dots the words alone must be about code that is not shown; anything more is a comment of the code's own.
_SAYS_ELIDED = re.compile(
    rf"""^(?:
      (?:the\s+)?(?:rest|remainder)\b
      (?:\s+of\b(?:\s+\S+){{0,9}}|\s+(?:is|are|stays?|remains?|unchanged|as)\b{_TAIL}|\s+{_HIDDEN}\b{_TAIL})?
    | (?:(?:all|any|the|your|my|keep|leave|and|other|more|some)\s+)*
      (?:existing|other|remaining|previous|prior|original|unchanged|omitted|earlier|current|old|surrounding)\s+
      (?:\w+\s+){{0,3}}?{_HIDDEN}\b(?:\s+(?:here|below|above|unchanged|omitted|follows?|(?:are|is|stays?|remains?)\s+{_SAME}))?
    | (?:(?:all|the|other|of|your|my|and|existing|remaining|every\w*|anything)\s+)*
      (?:{_HIDDEN}|everything(?:\s+else)?)\s+
      (?:(?:is|are|stays?|remains?|kept|left)\s+(?:exactly\s+|here\s+)?)?{_SAME}(?:\s+(?:as\s+before|here|below|above))?
    | (?:this|it|that)\s+(?:stays?|remains?)\s+{_SAME}
    | unchanged|unmodified|untouched|(?:the\s+)?same\s+as\s+(?:before|original)|as\s+before
    | (?:nothing|no)\s+(?:else\s+|other\s+)?changes?d?(?:\s+(?:here|below|above|needed|in\s+\w+))?
    | (?:(?:the|other|rest|some|remaining)\s+)*(?:{_HIDDEN}\s+)?(?:omitted|elided|snipped)(?:\s+for\s+\w+|\s+here)?
    | snip(?:ped)?
    | (?:keep|leave)\s+(?:(?:the|all|your|existing|other|as)\s+)*
      (?:{_HIDDEN}|everything(?:\s+else)?)(?:\s+{_SAME}|\s+here|\s+alone)?
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
_NOTES = re.compile(r"^\W*(?:TODO|FIXME|XXX|NOTE|HACK|WARNING)\b", re.IGNORECASE)
_SOME_HINT = re.compile(
    rf"\b(?:rest|existing|other|remain\w*|previous|keep|more|{_SAME[3:-1]}|omitted|{_HIDDEN[3:-1]})\b", re.IGNORECASE
)

_REMOVED = re.compile(
    r"""^[(\[]?(?:
      (?:removed?|deleted?|dropped?)\s*[:\-–—]\s*(?P<what>.*?)
    | (?:(?:the|this|these|old|previous|unused|dead|original)\s+)*
      (?:code|lines?|block|function|method|class|imports?|part|here)?\s*
      (?:(?:was|were|is|are|has\s+been|have\s+been)\s+)?(?:removed|deleted|dropped)
      (?:\s+(?:\d+|the|some|old|these)?\s*(?:lines?|code|blocks?|imports?|functions?|methods?))?
      (?:\s+(?:here|above|below|from\s+here))?
    )[)\]]?\.?$""",
    re.IGNORECASE | re.VERBOSE,
)

# `class A: ...`, `function f() { /* ... */ }`, `if (x) { // existing code`; not `Field(...)`, which is code.
_HEADER_WITH_ELISION = re.compile(
    r"^(?P<head>.*?[:{]|.*?\bdo|.*?\bthen)\s*(?P<elision>(?:\.{3}|…|\#|//|/\*).*?)\s*(?P<tail>[}\])]*[;,]?)\s*$"
)
_LIST_WITH_ELISION = re.compile(r"^(?P<head>.*?[(\[])\s*(?P<elision>(?:\#|//|/\*).*?)\s*(?P<tail>[}\])]*[;,]?)\s*$")

_MOST_WORDS = 12


def is_elision(line: str, *, prose: bool = False) -> bool:
    """Whether the whole line says "code that I do not repeat is here".

    In `prose` (Markdown and the like) "#" and "--" begin headings and lists, not comments.
    """
    if _ONLY_DOTS.match(line):
        return True
    comment = _COMMENT.match(line)
    words = comment["words"] if comment else line.strip()
    if prose and comment and not line.lstrip().startswith("<!--"):
        return bool(_ONLY_DOTS.match(words) or _fully_dotted(words))
    bracketed = _BRACKETED.match(words)
    if bracketed:
        words = bracketed["words"]
    if _ONLY_DOTS.match(words):
        return bool(comment or bracketed)
    return _words_elide(words, marked=bool(comment or bracketed))


def _words_elide(words: str, *, marked: bool) -> bool:
    bare = _DOTS.sub(" ", words).strip(" .,:;-–—*_()[]<>=~\t")
    if not bare or len(bare.split()) > _MOST_WORDS or _NOTES.match(bare):
        return False
    dotted_edge = re.match(r"^[\s\[(<*=-]*(?:\.{3}|…)(?:\s|$|\(|\[)", words) or re.search(
        r"(?:\.{3}|…)[\s\])>*=-]*$", words
    )
    if marked and dotted_edge:
        return bool(_SOME_HINT.search(bare) or _SAYS_ELIDED.match(bare) or _fully_dotted(words))
    if marked or dotted_edge:
        return bool(_SAYS_ELIDED.match(bare))
    return False


def _fully_dotted(words: str) -> bool:
    return bool(re.match(r"^\W*(?:\.{3}|…)", words) and re.search(r"(?:\.{3}|…)\W*$", words))


def removed_text(line: str) -> str | None:
    """For "# removed: x = 1" the text "x = 1" ("" when it names none); None for any other line."""
    comment = _COMMENT.match(line)
    removed = _REMOVED.match(comment["words"]) if comment else None
    return (removed["what"] or "").strip().strip("`") if removed else None


def split_header(line: str) -> tuple[str, str] | None:
    """("class A:", "") for "class A:  # ... existing code ..."; ("f() {", "}") for "f() { ... }"; else None."""
    found = _HEADER_WITH_ELISION.match(line) or _LIST_WITH_ELISION.match(line)
    if not found or not found["head"].strip():
        return None
    elision = found["elision"]
    if not (is_elision(elision) or (found["tail"] and is_elision(elision + found["tail"]))):
        return None
    return found["head"].rstrip(), found["tail"]
