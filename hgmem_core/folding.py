"""One spelling for texts that are the same to a reader: case, compatibility forms and what shows nothing."""

import re
import unicodedata

# Default_Ignorable_Code_Point of Unicode 15.1, for Python's own engine, which is faster and knows no properties:
# soft hyphens, joiners, bidi marks, fillers, variation selectors and tags.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Inside of a character class: what is not shown."""
_IGNORED = re.compile(f"[{IGNORABLE}]+")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'"})


def composed(text: str) -> str:
    """Return `text` without what is not shown, its compatibility forms composed (NFKC), its apostrophes alike.

    >>> composed("ﬁne co\u00adoperation, don’t")
    "fine cooperation, don't"
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _IGNORED.sub("", text)).translate(_APOSTROPHES)


def fold(text: str) -> str:
    """Return `composed` text without case; equal words become equal strings.

    >>> fold("ＡＢＣ１２３ CAFE\u0301") == fold("abc123 café")
    True
    """
    if text.isascii():
        return text.casefold()
    # Folding can decompose (the dotted capital I), so compose once more; dotless i is written i, as in plain capitals.
    folded = unicodedata.normalize("NFKC", composed(text).casefold())
    return folded.replace("i\u0307", "i").replace("ı", "i")
