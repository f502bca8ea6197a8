"""Numbers of units of time in English, in words and digits, and what makes them a part of another number."""

import re
from types import MappingProxyType

from hgmem_core import spans

_ONES = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = MappingProxyType(
    {word: number for number, word in enumerate([*_ONES, *_TEENS], 1)}
    | {word: 10 * number for number, word in enumerate(_TENS, 2)}
    | {"a": 1, "an": 1, "couple": 2}
)

_WORDS = rf"(?:{'|'.join(_TENS)})[- ](?:{'|'.join(_ONES)})|{'|'.join(_NUMBERS)}"
COUNT = rf"(?P<few>(?:a )?few|several)|(?:a )?(?P<count>\d{{1,4}}|{_WORDS})(?: of)?"
UNITS = "minute|hour|night|day|weekend|week|month|year|decade"
UNIT = rf"(?P<unit>{UNITS})s?"
_NUMBER_WORD = (
    rf"(?:{'|'.join([*_ONES, *_TEENS, *_TENS])}|couple|few|several|dozens?|hundreds?|thousands?|millions?|billions?"
    r"|half|quarters?|thirds?)"
)
# What follows `in a year` in `in a year and a half` and `in a year or two`.
WHOLE = rf"(?!,? (?:and|or) (?:an? )?(?:{_NUMBER_WORD}\b|\d))"
# Before a number that is the end of another, as in 2.5, 1,000 or 7-9.
_TOUCHED = re.compile(r"(?:[\d./'’–−-]|\d,)$")
# Before the last number of several: `hundred and five`, `one or two`, `half a`, `1 000`, `two years and three months`.
_COUNTED = re.compile(
    rf"(?:\d\s|[½¼¾]\s?|\b\d+ (?:and|or|to) |\b{_NUMBER_WORD}(?: of)?(?:,? (?:and|or|to))?[\s,-]+(?:a )?"
    rf"|\b(?:{_NUMBER_WORD}|\d+) (?:{UNITS})s?(?:,? and| or| to|,)? "
    rf"|\ban? (?:{UNITS})(?:,? and| or|,) )$",
    re.IGNORECASE,
)
_MOST_BEFORE = 48


def is_touched(match: re.Match[str], name: str) -> bool:
    """Say whether the number in the group `name` is the end of another, as in 2.5 or 7-9."""
    start = match.start(name)
    return _TOUCHED.search(match.string, max(0, start - 2), start) is not None


def number_of(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the lowest and the highest number that is meant; None for a part of another number."""
    start = match.start("few" if match["few"] else "count")
    before = match.string[max(0, start - _MOST_BEFORE) : start]
    if _TOUCHED.search(before) or _COUNTED.search(before):
        return None
    if match["few"]:
        return spans.FEW
    parts = match["count"].lower().replace("-", " ").split()
    count = sum(_NUMBERS.get(part) or int(part) for part in parts)
    return count, count
