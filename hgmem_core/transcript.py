"""Turns as a model sees them: numbered, with day and time, who spoke, and the text as quoted data.

    Wednesday 2023-05-24
    [1] 13:56 "Ana": "I moved to Lisbon."

A day stands before its first turn. Times are those of the turn's own zone; a turn without one has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hgmem_core.conversation import Said
from hgmem_core.prompts import quoted
from hgmem_core.text import beginning, split_text

_NAME_CHARS = 60
_FEWEST_CHARS = 200
"""Of a turn that is cut: less of it says nothing, and whoever has no room for so much has none for a prompt."""
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Line:
    """A turn, or a part of a long one.

    Attributes:
        number: The turn's, from 1; parts of one turn share it.
        said: The turn.
        text: What stands in the quotation.
    """

    number: int
    said: Said
    text: str


def lines_of(turns: Sequence[Said], first: int = 1) -> list[Line]:
    """Return the turns as lines, numbered from `first`."""
    return [Line(number, said, _whole(said)) for number, said in enumerate(turns, first)]


def shortened(lines: Sequence[Line], most_chars: int) -> list[Line]:
    """Return lines whose texts keep their beginning and their end, about `most_chars` in all."""
    return [Line(one.number, one.said, ends(one.text, most_chars)) for one in lines]


def transcript(lines: Sequence[Line]) -> str:
    """Write lines, with days where they change."""
    written = []
    day = None
    for one in lines:
        at = one.said.said_at and one.said.said_at.astimezone(one.said.zone)
        if at and at.date() != day:
            day = at.date()
            written.append(f"{at:%A %Y-%m-%d}")
        clock = f"{at:%H:%M} " if at else ""
        who = f"{_name(one.said.who)}: " if one.said.who else ""
        written.append(f"[{one.number}] {clock}{who}{quoted(one.text)}")
    return "\n".join(written)


def parts_that_fit(lines: Sequence[Line], fits: Callable[[Sequence[Line]], bool]) -> list[list[Line]]:
    """Cut lines into the fewest runs of which each fits, from the front; a line that alone does not fit is cut too.

    Nothing is left out: the parts of a cut line make up its text. A few words are not cut, whether they fit or not.
    """
    parts: list[list[Line]] = []
    left = list(lines)
    while left:
        size = _most(len(left), lambda count: fits(left[:count]))
        if size == 0 and len(left[0].text) > _FEWEST_CHARS:
            left[:1] = _halves(left[0])
            continue
        size = max(1, size)
        parts.append(left[:size])
        del left[:size]
    return parts


def _most(size: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest count up to `size` that fits, by bisection; 0 if none does."""
    if fits(size):
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _halves(one: Line) -> list[Line]:
    return [Line(one.number, one.said, text) for text in split_text(one.text, -(-len(one.text) // 2))]


def _whole(said: Said) -> str:
    return " ".join(part for part in (said.text.strip(), said.captions) if part)


def ends(text: str, most: int) -> str:
    """Return a text, or its beginning and its end, about `most` characters, where it has more."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    left_out = beginning(text, len(text) - (most - head))
    return f"{beginning(text, head)} {_ELLIPSIS} {text[len(left_out) :]}"


def _name(who: str) -> str:
    """Return a name, quoted: it comes from the log as well."""
    return quoted(ends(who, _NAME_CHARS))
