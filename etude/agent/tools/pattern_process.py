"""Run as a script by search.py: reads lines of JSON, answers each with a length and JSON. Only the standard library.

{"pattern": "a+", "ignore_case": false}  →  [], or a string that says what is wrong with it
{"text": "…"}                            →  numbers of the lines that match, from 1
"""

import json
import re
import sys

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Longer ones are minified or data, and patterns are slow on them.
MAX_LINE_CHARACTERS = 5_000


def main() -> None:
    pattern: re.Pattern[str] | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer: object = []
        if pattern is None:
            pattern, answer = _compiled(request)
        else:
            found = enumerate(_LINE.finditer(request["text"]), 1)
            answer = [
                number for number, match in found if pattern.search(match[0].rstrip("\r\n")[:MAX_LINE_CHARACTERS])
            ]
        encoded = json.dumps(answer).encode("ascii")
        sys.stdout.buffer.write(b"%d\n" % len(encoded) + encoded)
        sys.stdout.buffer.flush()


def _compiled(request: dict[str, object]) -> tuple[re.Pattern[str] | None, object]:
    try:
        return re.compile(str(request["pattern"]), re.IGNORECASE if request["ignore_case"] else 0), []
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)


if __name__ == "__main__":
    main()
