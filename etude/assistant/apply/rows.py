"""One line of a sketch and what it asks for: what everything that reads or places a sketch speaks of."""

from dataclasses import dataclass
from enum import StrEnum

from etude.workspace.syntax import language_of_tag


class Op(StrEnum):
    """What a row asks for."""

    SHOW = "show"
    """A line of the result: kept if the file has it there, new otherwise."""
    KEEP = "keep"
    """Context of a diff or SEARCH block: in the file and in the result."""
    DROP = "drop"
    """In the file, not in the result."""
    ADD = "add"
    """In the result, not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a sketch: Row(text="    return 1", op=Op.SHOW, block=0, line=7)."""

    text: str
    """Without line ending; indentation as written."""
    op: Op
    block: int
    """Rows of one block are in file order; blocks may not be."""
    line: int
    """Line of the sketch, from 0, for messages."""
    gap_before: int | None = None
    """Indentation of an elision just above this row; None when the row above is adjacent."""
    soft_gap: bool = False
    """The gap was not written; the row just does not follow the one above in the file."""
    removed_before: bool = False
    """A remark says that something was removed just above this row."""
    optional: bool = False
    """May be missing from the file without a word: a diff's section heading, a "removed:" remark."""

    @property
    def shown(self) -> bool:
        """Whether the sketch shows the result here, so that what it passes over is gone."""
        return self.op is Op.SHOW or (self.op is Op.DROP and self.optional)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    rows: tuple[Row, ...]
    gap_after: int | None
    """Indentation of an elision after the last row."""
    tag: str | None = None
    """Language named by the fence, if any."""
    says_path: str | None = None
    """The file that the sketch itself names."""
    elided_change: int | None = None
    """Line of an elision among the new or the old lines of a diff or SEARCH block: nobody knows what it keeps."""
    cut_off: bool = False
    """The last fence was opened and never closed, as when an answer ran out of tokens."""


def language_of_rows(rows: Rows) -> str | None:
    """The language that the sketch's fence claims, when we know it."""
    return language_of_tag(rows.tag) if rows.tag else None
