"""English temporal expressions; the rule table is in `hgmem_core.dates`."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from types import MappingProxyType

from hgmem_core import spans
from hgmem_core.spans import Span

Resolver = Callable[[re.Match[str], datetime], Span | None]
"""From a match and the local time at which it was said to the days it means; None where that is not known."""

_ONES = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = MappingProxyType(
    {word: number for number, word in enumerate([*_ONES, *_TEENS], 1)}
    | {word: 10 * number for number, word in enumerate(_TENS, 2)}
    | {"a": 1, "an": 1, "couple": 2}
)
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
_WEEKDAYS = MappingProxyType(
    {name: number for number, name in enumerate("monday tuesday wednesday thursday friday saturday sunday".split())}
)

_FULL_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept(?:ember)?|sep"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_MONTH = rf"(?P<month>{_FULL_MONTH})\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_YEAR = (
    r"(?P<year>(?:19|20)\d\d)\b(?![.,:/-]?\d)"
    r"(?! (?:second|minute|hour|night|day|weekend|week|month|year|decade)s\b)"
)
_WEEKDAY = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_SEASON = r"(?P<season>spring|summer|autumn|fall|winter)"
_WORDS = rf"(?:{'|'.join(_TENS)})[- ](?:{'|'.join(_ONES)})|{'|'.join(_NUMBERS)}"
_COUNT = rf"(?P<few>(?:a )?few|several)|(?:a )?(?P<count>\d{{1,4}}|{_WORDS})(?: of)?"
_UNITS = "minute|hour|night|day|weekend|week|month|year"
_UNIT = rf"(?P<unit>{_UNITS})s?"
_NUMBER_WORD = (
    rf"(?:{'|'.join([*_ONES, *_TEENS, *_TENS])}|couple|few|several|dozens?|hundreds?|thousands?|millions?|billions?"
    r"|half|quarters?|thirds?)"
)
# What follows `in a year` in `in a year and a half` and `in a year or two`.
_WHOLE = rf"(?!,? (?:and|or) (?:an? )?(?:{_NUMBER_WORD}\b|\d))"
# Before a number that is the end of another, as in 2.5, 1,000 or 7-9.
_TOUCHED = re.compile(r"(?:[\d./'’–−-]|\d,)$")
# Before the last number of several: `hundred and five`, `one or two`, `half a`, `1 000`, `two years and three months`.
_COUNTED = re.compile(
    rf"(?:\d\s|[½¼¾]\s?|\b\d+ (?:and|or|to) |\b{_NUMBER_WORD}(?: of)?(?:,? (?:and|or|to))?[\s,-]+(?:a )?"
    rf"|\b(?:{_NUMBER_WORD}|\d+) (?:{_UNITS})s?(?:,? and| or| to|,)? "
    rf"|\ban? (?:{_UNITS})(?:,? and| or|,) )$",
    re.IGNORECASE,
)
_MOST_BEFORE = 48
_PART = r"(?: (?:morning|afternoon|evening|night))?"

_OF_DAY = MappingProxyType(
    {"today": 0, "tonight": 0, "yesterday": -1, "tomorrow": 1, "last": -1, "this": 0}
    | {"the day before yesterday": -2, "the day after tomorrow": 2}
)


def _number(match: re.Match[str]) -> tuple[int, int] | None:
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


def _near_day(match: re.Match[str], now: datetime) -> Span:
    phrase = match[0].lower()
    return spans.day(now.date(), _OF_DAY.get(phrase, _OF_DAY.get(phrase.split()[0], 0)))


def _which(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `last`, `this` or `next` with a weekday, a unit, a month or a season."""
    today = now.date()
    step = {"last": -1, "past": -1, "this": 0, "next": 1, "coming": 1}[match["which"].lower().split()[-1]]
    if match["unit"]:
        return spans.unit(today, match["unit"].lower(), step)
    if match["weekday"]:
        weekday = _WEEKDAYS[match["weekday"].lower()]
        if step == 0:
            return spans.weekday_of_week(today, weekday)
        ahead = (weekday - today.weekday() - (step > 0)) % 7 + (step > 0)
        return spans.day(today, ahead if step > 0 else ahead - 7)
    years = range(today.year - 2, today.year + 3)
    if match["season"]:
        name = match["season"].lower()
        named = [spans.season(year, name) for year in years]
        # Until its end in February, a winter is the one of the year before.
        current = next((span for span in named if span[0] <= today < span[1]), spans.season(today.year, name))
    else:
        number = MONTHS[match["month"].lower()]
        named = [spans.month(year, number) for year in years]
        current = spans.month(today.year, number)
    return current if step == 0 else spans.next_of(today, named) if step > 0 else spans.last_of(today, named)


def _distance(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `two weeks ago` and `in two weeks` to the day, week, month or year that lies so far away."""
    sign = -1 if match["ago"].lower() in ("ago", "back") else 1
    number = _number(match)
    if number is None:
        return None
    low, high = number
    unit = match["unit"].lower()
    if unit in ("minute", "hour"):
        step = timedelta(minutes=1) if unit == "minute" else timedelta(hours=1)
        ends = sorted([now + sign * low * step, now + sign * high * step])
        return ends[0].date(), ends[1].date() + timedelta(days=1)
    return spans.units(now.date(), "day" if unit == "night" else unit, (low, high), sign)


def _window(match: re.Match[str], now: datetime) -> Span | None:
    unit = match["unit"].lower()
    if unit in ("minute", "hour"):
        return spans.day(now.date())
    number = _number(match) if match["few"] or match["count"] else (1, 1)
    if number is None:
        return None
    sign = 1 if match["side"].lower() in ("next", "coming") else -1
    return spans.window(now.date(), "day" if unit == "night" else unit, number[1], sign)


def _month_day(match: re.Match[str], now: datetime) -> Span | None:
    if _TOUCHED.search(match.string, max(0, match.start("day") - 2), match.start("day")):
        return None
    year = int(match["year"]) if match["year"] else None
    return spans.named_day(now.date(), MONTHS[match["month"].lower()], int(match["day"]), year)


def _number_day(match: re.Match[str], now: datetime) -> Span:
    return spans.named_day(now.date(), int(match["month"]), int(match["day"]), int(match["year"]))


def _month_year(match: re.Match[str], now: datetime) -> Span:
    if match["season"]:
        return spans.season(int(match["year"]), match["season"].lower())
    return spans.month(int(match["year"]), MONTHS[match["month"].lower()])


def _bare_month(match: re.Match[str], now: datetime) -> Span:
    return spans.nearest_month(now.date(), MONTHS[match["month"].lower()])


def _bare_year(match: re.Match[str], now: datetime) -> Span:
    return spans.year(int(match["year"]))


def _unknown(match: re.Match[str], now: datetime) -> None:
    return None


def _rule(triggers: str, pattern: str, resolve: Resolver) -> tuple[tuple[str, ...], re.Pattern[str], Resolver]:
    # Letters of other scripts may touch an English word, so only ASCII ones make it longer.
    return tuple(triggers.split("|")), re.compile(rf"\b(?:{pattern})", re.IGNORECASE | re.ASCII), resolve


_MONTH_TRIGGERS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
# A rule's pattern is tried only where one of its triggers, in lower case, occurs: most turns name no time at all.
RULES = (
    _rule(
        "today|tonight|yesterday|tomorrow|last night|this morning|this afternoon|this evening",
        rf"the day before yesterday|the day after tomorrow|(?:yesterday|tomorrow){_PART}\b|today\b|tonight\b"
        r"|last night\b|this (?:morning|afternoon|evening)\b",
        _near_day,
    ),
    _rule(
        "last |this |next |past |coming ",
        r"(?P<which>last|next|(?:this )?(?:past|coming)|this)"
        rf" (?:(?:{_WEEKDAY}|(?P<unit>weekend)){_PART}|{_SEASON}|{_MONTH})\b(?! \d)"
        # `the last week` is the window that ends now, `last week` the calendar's.
        r"|(?<!the )(?<!past )(?P<which_unit>last|this|next) (?P<plain_unit>week|month|year)\b(?! of\b)",
        lambda match, now: (
            _which(match, now)
            if match["which"]
            else spans.unit(
                now.date(), match["plain_unit"].lower(), ("last", "this", "next").index(match["which_unit"].lower()) - 1
            )
        ),
    ),
    _rule(" ago|from now| back", rf"(?:{_COUNT}) {_UNIT} (?P<ago>ago|back|from now)\b(?! in\b)", _distance),
    _rule("in |within ", rf"(?P<ago>in|within) (?:{_COUNT}) {_UNIT}\b(?!'){_WHOLE}", _distance),
    _rule(
        "the last|the past|the next|the coming|these last|these past",
        r"(?:(?:in|over|for|during|within) )?the(?:se)? (?P<side>last|past|next|coming)"
        rf" (?:(?:{_COUNT}) )?{_UNIT}\b(?! of\b){_WHOLE}",
        _window,
    ),
    _rule(_MONTH_TRIGGERS, rf"(?:the )?{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?", _month_day),
    _rule(_MONTH_TRIGGERS, rf"{_MONTH} (?:the )?{_DAY}(?:,? {_YEAR})?", _month_day),
    _rule("19|20", r"(?P<year>(?:19|20)\d\d)(?P<sign>[-/.])(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)\b", _number_day),
    _rule("19|20", rf"(?:{_MONTH}|{_SEASON})(?: of|,)? {_YEAR}", _month_year),
    _rule(
        _MONTH_TRIGGERS,
        rf"(?:in|during|since|early|late|mid)[ -](?:early |late |mid-?)?{_MONTH}(?!,? (?:of )?\d)",
        _bare_month,
    ),
    _rule("19|20", rf"(?:in|since|during|year|around) {_YEAR}", _bare_year),
    _rule("day", rf"(?:on|since|until|till|by) {_WEEKDAY}{_PART}\b", _unknown),
)
