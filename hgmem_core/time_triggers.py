"""Words that speak of time in English, far more than the rules place: what these are measured against.

Nothing here is shared with `hgmem_core.dates`. A trigger is of one kind: `point` (some time), `duration` (how long),
`repeated` (how often) or `vague` (some time or other).
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

Kind = Literal["point", "duration", "repeated", "vague"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Trigger(NamedTuple):
    """Words that speak of time.

    Attributes:
        kind: How they do.
        start: Where they begin in the text.
        end: Where they are over.
        shape: They, in lower case, with `N` for every number, weekday, month and name of a holiday: what is alike.
    """

    kind: Kind
    start: int
    end: int
    shape: str


_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH = (
    "(?:january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|aug|sept|oct|nov|dec)"
)
_HOLIDAY = (
    "(?:christmas(?: eve| day)?|xmas|thanksgiving|easter|halloween|new year(?:['’]?s)?(?: eve| day)?"
    "|valentine(?:['’]?s)?(?: day)?|hanukkah|mother['’]?s day|father['’]?s day|independence day|labor day|memorial day)"
)
_UNIT = "(?:second|minute|hour|day|night|week|weekend|month|season|quarter|semester|year|decade|century)"
_SEASON = "(?:spring|summer|autumn|winter|fall)"
_PART = "(?:morning|afternoon|evening|night|midnight|noon|midday)"
_NUMBER = (
    r"(?:\d[\d,.]*|a|an|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty"
    r"|fifty|few|several|couple(?: of)?|many|some|half|dozen)"
)
_ABOUT = "(?:(?:a|the|about|around|over|almost|nearly|just|only|another) )*"
_COUNTED = rf"{_ABOUT}{_NUMBER}(?:[ -](?:more|or|to|and|{_NUMBER}))*[ -]{_UNIT}s?"
_NAMED = rf"(?:{_UNIT}|{_WEEKDAY}|{_MONTH}|{_SEASON}|{_PART}|{_HOLIDAY})"
# Months with a capital, but not `May I`.
_WRITTEN_MONTH = rf"(?-i:(?!May (?:I|we|you|the|your|this|it)\b)(?=[A-Z])(?i:{_MONTH}))\b"
_ORDINAL = r"(?:st|nd|rd|th)"
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("repeated", rf"\b(?:every|each)(?: (?:other|single|few|\w+))? {_NAMED}s?\b"),
    ("repeated", r"\b(?:daily|weekly|monthly|yearly|annually)\b"),
    ("repeated", rf"\b(?:on )?(?:{_WEEKDAY}s|weekends|weekdays|mornings|evenings|nights)\b(?! ago)"),
    ("repeated", rf"\b(?:once|twice|\w+ times) (?:a|per|every) (?:{_UNIT})\b"),
    ("point", rf"\b{_COUNTED} (?:ago|back|later|earlier|before|after|from now|since|prior)\b"),
    ("point", rf"\b(?:in|within|over|during|for) (?:the )?(?:last|past|next|coming) (?:{_NUMBER} ){{0,2}}{_UNIT}s?\b"),
    ("point", rf"\b(?:in|within) {_COUNTED}\b(?! time)"),
    ("duration", rf"\bfor (?:{_COUNTED}|{_UNIT}s|ages)\b|\b(?:all|whole|entire) {_UNIT}\b|\b{_COUNTED} long\b"),
    ("point", r"\b(?:today|tonight|tonite|yesterday|tomorrow)\b"),
    (
        "point",
        r"\b(?:last|next|this|past|previous|coming|upcoming|following|other|same|that) "
        rf"(?:{_NUMBER} ){{0,2}}{_NAMED}\b",
    ),
    ("point", rf"\b(?:early|mid|late|beginning of|middle of|end of)[ -](?:the )?(?:{_NAMED}|(?:19|20)\d\d)\b"),
    ("point", rf"\b{_WEEKDAY}\b"),
    ("point", rf"\b(?:\d{{1,2}}{_ORDINAL}? (?:of )?)?{_WRITTEN_MONTH}(?:,? \d{{1,4}}{_ORDINAL}?\b)*"),
    ("point", rf"\b(?:19|20)\d\d\b(?!,\d)|(?<!\w)['’]\d\d\b|\bthe \d{{1,2}}{_ORDINAL}\b|\b(?:\d\d)?\d0['’]?s\b"),
    ("point", rf"\b(?:in|over|during|since|until|by|of|the|for|at) (?:the )?{_SEASON}\b"),
    ("point", rf"\b(?:spring|summer|autumn|winter)\b|\b{_HOLIDAY}\b|\bweekend\b"),
    ("point", rf"\b(?:in the|at|one|that) {_PART}\b|\b\d{{1,2}}(?::\d\d)? ?[ap]\.?m\b|\bo['’]clock\b"),
    ("vague", r"\b(?:recently|lately|soon|these days|nowadays|the other time|once)\b"),
    ("vague", rf"\b(?:a )?(?:long )?(?:while|time|ages) ago\b|\b{_UNIT}s (?:ago|back)\b"),
    ("vague", r"\b(?:some ?day|one day|back then|back in the day|in the future|eventually)\b"),
)
_TRIGGERS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)
_VARIES = re.compile(rf"\b(?:{_WEEKDAY}|{_MONTH}|{_HOLIDAY}|{_NUMBER})\b|\d+", re.IGNORECASE)


def time_triggers(text: str) -> Iterator[Trigger]:
    """Yield the words that speak of time, in order and without overlaps: the earlier and longer ones win.

    >>> [trigger.kind for trigger in time_triggers("We ran two weeks ago, and swim every Friday.")]
    ['point', 'repeated']
    """
    found = [(match.start(), -match.end(), kind) for kind, pattern in _TRIGGERS for match in pattern.finditer(text)]
    reached = 0
    for start, end, kind in sorted(found, key=lambda item: item[:2]):
        if start >= reached:
            reached = -end
            yield Trigger(kind, start, reached, _VARIES.sub("N", text[start:reached].lower()))
