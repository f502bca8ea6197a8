"""English words of time and the patterns for them: months, weekdays, years, parts of days, what leads to a time."""

import re
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType

from hgmem_core import spans
from hgmem_core.spans import Span
from hgmem_core.time_rules import Resolver, TimeRule

MONTHS = MappingProxyType(
    {
        name: number
        for number, full in enumerate(
            "january february march april may june july august september october november december".split(), 1
        )
        for name in (full, full[:3])
    }
    | {"sept": 9}
)
WEEKDAYS = MappingProxyType(
    {name: number for number, name in enumerate("monday tuesday wednesday thursday friday saturday sunday".split())}
)

FULL_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept(?:ember)?|sep"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
MONTH = rf"(?P<month>{FULL_MONTH})\b\.?"
_NO_YEAR = (
    r"(?![.,:/-]?\d)(?! (?:second|minute|hour|night|day|weekend|week|month|year|decade|mile|dollar|euro|step|page|word"
    r"|piece|point|calorie|meter|metre|kilometer|other)s\b| people\b)"
)
YEAR = rf"(?P<year>(?:19|20)\d\d|(?<!\w)['’]\d\d)\b{_NO_YEAR}"
WEEKDAY = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
SEASON = r"(?P<season>spring|summer|autumn|fall|winter)"
PART = r"(?: (?P<part>morning|afternoon|evening|night))?"
THIRD = r"(?:early|mid|late|(?:the )?(?:very )?(?:beginning|start|middle|end) of)"
LEAD = (
    r"(?P<lead>(?:(?:in|back in|during|since|until|till|by|before|after|around|through|throughout|(?:the )?year"
    rf"|{THIRD})(?: the)?[ -])+)"
)
STEPS = MappingProxyType(
    {"last": -1, "past": -1, "this": 0, "next": 1, "coming": 1, "upcoming": 1, "before last": -2, "after next": 2}
)
WHICH = r"(?P<which>last|next|(?:this )?past|(?:this |the )?(?:up)?coming|this)"
MONTH_TRIGGERS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"


def in_day(day: Span, part: str | None, now: datetime) -> Span:
    """Return a day, or the part of it that is named."""
    return spans.part_of_day(day.start, part.lower(), now.tzinfo) if part else day


def year_number(match: re.Match[str], now: datetime) -> int | None:
    """Return the year that the group `year` names; two digits stand for the latest such year up to now's."""
    text = match["year"]
    if not text:
        return None
    if text.isdecimal():
        return int(text)
    return now.year - (now.year - int(text[1:])) % 100


def rule(
    triggers: str, pattern: str, resolve: Resolver, fits: Callable[[re.Match[str]], bool] | None = None
) -> TimeRule:
    """Return the rule of a pattern; see `TimeRule`. Triggers are joined by bars."""
    # Letters of other scripts may touch an English word, so only ASCII ones make it longer.
    made = TimeRule(tuple(triggers.split("|")), re.compile(rf"\b(?:{pattern})", re.IGNORECASE | re.ASCII), resolve)
    return made._replace(fits=fits) if fits else made
