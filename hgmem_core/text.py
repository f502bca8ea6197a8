"""Text as it can be stored: cleaning, blankness, and splitting without breaking a character.

Nothing is normalised here: what was written stays as it was written, and comparison is the tokeniser's business.
"""

import re
from collections.abc import Callable

import regex

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff\U000e0000-\U000e007f]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}"
)
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile("[\U000e0000-\U000e007f]")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")
_BREAK = re.compile("[\x0b\x0c\x85]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")

# `re` knows no Unicode properties. Default_Ignorable holds zero-width, bidi and tag characters and fillers; the rest
# are interlinear marks and the blank Braille cell, which are not in it but show nothing either.
_INVISIBLE = regex.compile(r"[\p{White_Space}\p{Cc}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb\u2800]*+")
_CLUSTER = regex.compile(r"\X")
_EXTENDS = regex.compile(r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]")
_FLAGS = regex.compile(r"\p{GCB=RI}*+")

# Characters before which a cluster begins whatever stands further to the left; searched from the right.
_BEGINS = regex.compile(
    r"(?r)(?<![\p{GCB=Prepend}\p{GCB=Extend}\p{GCB=ZWJ}])\p{GCB=Other}"
    r"|(?<![\p{GCB=Prepend}\p{GCB=RI}])\p{GCB=RI}"
    r"|(?<![\p{GCB=Prepend}\p{GCB=L}])[\p{GCB=L}\p{GCB=LV}\p{GCB=LVT}]"
)

WIDE_STOPS = "。！？｡।॥؟۔։።፧။។།"
"""Marks that end a sentence whatever follows: of Chinese, Japanese, Devanagari, Arabic, Urdu, Armenian, Ethiopic,
Burmese, Khmer and Tibetan."""
ASKING = "?？؟՞፧"
"""Marks of questions."""

# The greedy prefix makes `match` find the last one of a window in one step back from its end.
_LAST_SENTENCE = re.compile(rf"(?s:.*)(?:[.!?…][\"'”’)\]]*\s+|[{WIDE_STOPS}][」』”’）»]*\s*)")
_LAST_SPACE = re.compile(r"(?s:.*)\s")


def clean(text: str) -> tuple[str, str | None]:
    r"""Return `text` made storable and stripped, and a note that names what was changed, or None.

    Lone surrogates become U+FFFD. Control characters go, but for newline and tab; vertical tabs, form feeds and NEL
    become line breaks, so that no words run together. Byte order marks and the invisible tag characters U+E0000 to
    U+E007F go, and variation selectors where several stand together: they spell what nobody sees. Line ends become
    `\n`, without a note. Everything else stays, joiners and bidi marks too.

    >>> clean("one\r\ntwo\x00 ")
    ('one\ntwo', 'control characters removed')
    """
    if _ODD.search(text) is None:
        return text.strip(), None
    repaired, note = repair(text)
    return repaired.strip(), note


def repair(text: str) -> tuple[str, str | None]:
    """Do what `clean` does but keep outer whitespace."""
    if _ODD.search(text) is None:
        return text, None
    notes = []
    text = _SURROGATE_PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    for kind, pattern, replacement in (
        ("lone surrogates replaced", _SURROGATE, "\ufffd"),
        ("invisible tag characters removed", _TAG, ""),
        ("invisible variation selectors removed", _SELECTORS, ""),
        ("byte order marks removed", re.compile("\ufeff"), ""),
        ("control characters removed", _CONTROL, ""),
        ("control characters turned into line breaks", _BREAK, "\n"),
    ):
        text, count = pattern.subn(replacement, text)
        if count:
            notes.append(kind)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, ", ".join(notes) or None


def is_blank(text: str) -> bool:
    r"""Say whether nothing in `text` can be seen: only whitespace, control, zero-width, bidi or filler characters.

    >>> is_blank(" \u200b\u200e\n"), is_blank("\u3002")
    (True, False)
    """
    if "!" <= text[:1] <= "~":
        return False  # the usual case, without a search
    return _INVISIBLE.fullmatch(text) is not None


def beginning(text: str, max_chars: int) -> str:
    """Return the longest beginning of at most `max_chars` code points that ends between two characters as seen.

    >>> beginning("cafe\u0301s", 4)
    'caf'
    """
    return text if len(text) <= max_chars else text[: _cluster_boundary(text, 0, max_chars)]


def split_text(text: str, max_chars: int) -> list[str]:
    """Cut `text` into pieces of at most `max_chars` code points whose concatenation is `text`.

    A cut is made after the last paragraph in the second half of the space left, else after its last line, else its
    last sentence, else its last blank; failing these, likewise in the first half; failing all, between any two
    characters. No cut is inside a grapheme cluster, unless that cluster alone exceeds `max_chars`.

    Raises:
        ValueError: `max_chars` is below 1.

    >>> split_text("One sentence. Another one.", 20)
    ['One sentence. ', 'Another one.']
    """
    if max_chars < 1:
        raise ValueError(f"max_chars must be at least 1, not {max_chars}")
    pieces = []
    start = 0
    while len(text) - start > max_chars:
        cut = _cut(text, start, start + max_chars)
        pieces.append(text[start:cut])
        start = cut
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def _cut(text: str, start: int, end: int) -> int:
    """Return where the piece that begins at `start` ends: above `start`, at most `end`, which is inside the text."""
    middle = start + (end - start) // 2
    for low, high in ((middle, end), (start, middle)):
        for last in (_after_paragraph, _after_line, _after_sentence, _after_space):
            cut = _last_allowed(last, text, low, high)
            if cut > start:
                return cut
    return _cluster_boundary(text, start, end)


def _last_allowed(last: Callable[[str, int, int], int], text: str, low: int, high: int) -> int:
    """Return the last cut that `last` finds above `low` and up to `high` and that breaks no cluster, or -1."""
    cut = last(text, low, high)
    while cut > low and _joins(text, cut):
        cut = last(text, low, cut - 1)
    return cut


def _joins(text: str, cut: int) -> bool:
    """Say whether the character at `cut` belongs to the blank or full stop before it."""
    if text[cut] == "\n":
        return text[cut - 1] == "\r"
    return text[cut - 1] != "\n" and _EXTENDS.match(text, cut) is not None


def _after_paragraph(text: str, low: int, high: int) -> int:
    found = text.rfind("\n\n", low, high)
    return found + 2 if found >= 0 else -1


def _after_line(text: str, low: int, high: int) -> int:
    return text.rfind("\n", low, high) + 1 or -1


def _after_sentence(text: str, low: int, high: int) -> int:
    found = _LAST_SENTENCE.match(text, low, high)
    return found.end() if found else -1


def _after_space(text: str, low: int, high: int) -> int:
    found = _LAST_SPACE.match(text, low, high)
    return found.end() if found else -1


def _cluster_boundary(text: str, start: int, end: int) -> int:
    """Return the last boundary between clusters above `start` and up to `end`, or `end` if there is none."""
    found = _BEGINS.search(text, start, end + 1)
    boundary: int = found.start() if found else start
    # Each flag is two letters, and `regex` recounts a run of them at each step, which is quadratic.
    letters = _FLAGS.match(text, boundary, end + 1).end() - boundary
    boundary += max(letters - 1, 0) // 2 * 2
    # Whether `end` is a boundary depends on what precedes it and on one character more, so that is all to look at.
    window = text[boundary : end + 1]
    ends = [boundary + cluster.end() for cluster in _CLUSTER.finditer(window)]
    boundary = max((cut for cut in ends if cut <= end), default=boundary)
    return boundary if boundary > start else end
