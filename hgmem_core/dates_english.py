"""English temporal expressions; the rule table is `docs/time.md`."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from hgmem_core import holidays, spans
from hgmem_core.english_clauses import (
    goes_on,
    is_ahead,
    is_no_comparison,
    is_not_since,
    is_planned,
    since_then,
    tense_of,
)
from hgmem_core.english_numbers import COUNT, UNIT, UNITS, WHOLE, is_touched, number_of
from hgmem_core.spans import Span
from hgmem_core.time_rules import Resolver, TimeRule, choose

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
_DECADES = MappingProxyType(
    {
        name: 10 * number
        for number, name in enumerate("thirties forties fifties sixties seventies eighties nineties".split(), 3)
    }
)

FULL_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept(?:ember)?|sep"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_MONTH = rf"(?P<month>{FULL_MONTH})\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_NO_YEAR = (
    r"(?![.,:/-]?\d)(?! (?:second|minute|hour|night|day|weekend|week|month|year|decade|mile|dollar|euro|step|page|word"
    r"|piece|point|calorie|meter|metre|kilometer|other)s\b| people\b)"
)
_YEAR = rf"(?P<year>(?:19|20)\d\d|(?<!\w)['’]\d\d)\b{_NO_YEAR}"
_WEEKDAY = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_SEASON = r"(?P<season>spring|summer|autumn|fall|winter)"
_PART = r"(?: (?P<part>morning|afternoon|evening|night))?"
_THIRD = r"(?:early|mid|late|(?:the )?(?:very )?(?:beginning|start|middle|end) of)"
_LEAD = (
    r"(?P<lead>(?:(?:in|back in|during|since|until|till|by|before|after|around|through|throughout|(?:the )?year"
    rf"|{_THIRD})(?: the)?[ -])+)"
)
_STEPS = MappingProxyType(
    {"last": -1, "past": -1, "this": 0, "next": 1, "coming": 1, "upcoming": 1, "before last": -2, "after next": 2}
)
_WHICH = r"(?P<which>last|next|(?:this )?past|(?:this |the )?(?:up)?coming|this)"
_OF_DAY = MappingProxyType(
    {"yesterday": -1, "tomorrow": 1, "the day before yesterday": -2, "the day after tomorrow": 2}
)
_CENTURY = 1900
"""The 1900s may be ten years or a hundred."""


def _in_day(day: Span, part: str | None, now: datetime) -> Span:
    """Return a day, or a part of it."""
    return spans.part_of_day(day.start, part.lower(), now.tzinfo) if part else day


def _near_day(match: re.Match[str], now: datetime) -> Span:
    phrase, part = match[0].lower(), match["part"] or match["own"]
    if phrase in ("tonight", "last night"):
        return _in_day(spans.day(now.date(), 0 if phrase == "tonight" else -1), "night", now)
    day = next((offset for name, offset in _OF_DAY.items() if phrase.startswith(name)), 0)
    return _in_day(spans.day(now.date(), day), part, now)


def _night(match: re.Match[str], now: datetime) -> Span:
    return spans.part_of_day(spans.day(now.date(), -2).start, "night", now.tzinfo)


def _which(match: re.Match[str], now: datetime) -> Span:
    """Resolve `last`, `this` or `next` with a weekday, a unit, a month or a season."""
    today, step = now.date(), _STEPS[match["which"].lower().split()[-1]]
    if match["unit"]:
        return spans.unit(today, match["unit"].lower(), step)
    if match["weekday"]:
        weekday = _WEEKDAYS[match["weekday"].lower()]
        day = spans.weekday_away(today, weekday, step) if step else spans.weekday_of_week(today, weekday)
        return _in_day(day, match["part"], now)
    years = range(today.year - 2, today.year + 3)
    if match["season"]:
        named = [spans.season(year, match["season"].lower()) for year in years]
        # Until its end in February, a winter is the one of the year before.
        current = next((span for span in named if span.start <= today < span.end), None)
        return current if step == 0 and current else choose(today, named, step)
    return choose(today, [spans.month(year, MONTHS[match["month"].lower()]) for year in years], step)


def _plain_unit(match: re.Match[str], now: datetime) -> Span:
    return spans.unit(now.date(), match["unit"].lower(), _STEPS[match["which"].lower()])


def _of_year(match: re.Match[str], now: datetime) -> Span:
    """Resolve `August last year` and `last year in August`."""
    year = now.year + _STEPS[(match["which"] or match["which_first"]).lower()]
    season, month = match["season"] or match["season_after"], match["month"] or match["month_after"]
    return spans.season(year, season.lower()) if season else spans.month(year, MONTHS[month.lower()])


def _same_unit(match: re.Match[str], now: datetime) -> Span:
    return spans.unit(now.date(), match["unit"].lower(), 0)


def _before_last(match: re.Match[str], now: datetime) -> Span:
    step = _STEPS[match["which"].lower()]
    if match["weekday"]:
        return spans.weekday_away(now.date(), _WEEKDAYS[match["weekday"].lower()], step)
    return spans.unit(now.date(), match["unit"].lower(), step)


def _other_day(match: re.Match[str], now: datetime) -> Span:
    return spans.units(now.date(), "day", (1, 7), -1)


def _distance(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `two weeks ago` and `in two weeks` to the day, week, month or year that lies so far away."""
    sign = -1 if match["ago"].lower() in ("ago", "back", "since") else 1
    number = number_of(match)
    if number is None:
        return None
    low, high = number
    unit = match["unit"].lower()
    if unit in ("minute", "hour"):
        step = timedelta(minutes=1) if unit == "minute" else timedelta(hours=1)
        moments = sorted((now.astimezone(UTC) + sign * count * step).astimezone(now.tzinfo) for count in (low, high))
        first, last = (spans.moment(at, "minute" if unit == "minute" else "hour") for at in moments)
        return Span(first.start, last.end, first.granularity)
    return spans.units(now.date(), "day" if unit == "night" else unit, (low, high), sign)


def _weekday_by_tense(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `on Friday` where the tense says which one."""
    tense = tense_of(match)
    day = spans.weekday_away(now.date(), _WEEKDAYS[match["weekday"].lower()], tense) if tense else None
    return day and _in_day(day, match["part"], now)


def _coming(match: re.Match[str], now: datetime) -> Span:
    """Resolve the weekend or the season for which there are plans: the one that goes on or comes next."""
    today = now.date()
    if match["unit"]:
        return spans.weekend(today)
    named = [spans.season(year, match["season"].lower()) for year in (today.year - 1, today.year, today.year + 1)]
    return next(span for span in named if span.end > today)


def _weekdays_ago(match: re.Match[str], now: datetime) -> Span | None:
    number = number_of(match)
    if number is None or number[0] != number[1]:
        return None
    return spans.weekday_away(now.date(), _WEEKDAYS[match["weekday"].lower()], -number[0])


def _window(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `the last three weeks` and `the past year`, which end with the day of saying, and the next ones."""
    unit = (match["unit"] or match["one"] or match["past"]).lower()
    # `the coming weeks` are a few.
    number = number_of(match) if match["unit"] else spans.FEW if match["many"] else (1, 1)
    side = (match["side"] or match["side_of_one"] or match["side_of_past"]).lower()
    return number and _up_to(now, unit, number, 1 if side in ("next", "coming") else -1)


def _duration(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `for three years` where it goes on until now."""
    number = number_of(match)
    return number and _up_to(now, match["unit"].lower(), number, -1)


def _from_now(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve `within two weeks`."""
    number = number_of(match)
    return number and _up_to(now, match["unit"].lower(), number, 1)


def _up_to(now: datetime, unit: str, number: tuple[int, int], sign: int) -> Span:
    if unit in ("minute", "hour"):
        return spans.day(now.date())
    return spans.window(now.date(), "day" if unit == "night" else unit, number[1], sign)


def _so_far(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve the part of a unit up to now, or from now: `earlier this month`, `later this week`."""
    today = now.date()
    whole = spans.unit(today, match["unit"].lower(), 0)
    if match["side"].lower() == "earlier":
        return Span(whole.start, spans.day(today).end, "part")
    return Span(today, whole.end, "part")


def year_number(match: re.Match[str], now: datetime) -> int | None:
    """Return the year that the group `year` names; two digits stand for the latest such year up to now's."""
    text = match["year"]
    if not text:
        return None
    if text.isdecimal():
        return int(text)
    return now.year - (now.year - int(text[1:])) % 100


def _month_day(match: re.Match[str], now: datetime) -> Span | None:
    if is_touched(match, "day"):
        return None
    return spans.named_day(now.date(), MONTHS[match["month"].lower()], int(match["day"]), year_number(match, now))


def _number_day(match: re.Match[str], now: datetime) -> Span:
    return spans.named_day(now.date(), int(match["month"]), int(match["day"]), int(match["year"]))


def _either_day(match: re.Match[str], now: datetime) -> Span | None:
    """Resolve 13/05/2023, where only one of the numbers can be the month."""
    one, other = int(match["one"]), int(match["other"])
    if one <= 12 and other <= 12 and one != other:
        return None
    return spans.named_day(now.date(), min(one, other), max(one, other), int(match["year"]))


def _day_of_month(match: re.Match[str], now: datetime) -> Span:
    if match["which"]:
        month = spans.unit(now.date(), "month", _STEPS[match["which"].lower()]).start
        return spans.named_day(now.date(), month.month, int(match["day"]), month.year)
    return spans.day_of_month(now.date(), int(match["day"]))


def _month_year(match: re.Match[str], now: datetime) -> Span | None:
    year = year_number(match, now)
    if year is None:
        return None
    if match["season"]:
        return spans.season(year, match["season"].lower())
    return spans.month(year, MONTHS[match["month"].lower()])


def _bare_month(match: re.Match[str], now: datetime) -> Span:
    return spans.nearest_month(now.date(), MONTHS[match["month"].lower()])


def _bare_year(match: re.Match[str], now: datetime) -> Span | None:
    year = year_number(match, now)
    return None if year is None else spans.year(year)


def _decade(match: re.Match[str], now: datetime) -> Span | None:
    name = match["decade"].lower().lstrip("'’")
    number = _DECADES.get(name) or int(name)
    if number == _CENTURY:
        return None
    return spans.decade(number if number >= 100 else 1900 + number)


_QUARTERS = MappingProxyType(
    {name: number for number, name in enumerate("first second third fourth".split(), 1)} | {"last": 4}
)


def _quarter(match: re.Match[str], now: datetime) -> Span | None:
    year = year_number(match, now)
    name = match["quarter"].lower()
    return None if year is None else spans.quarter(year, _QUARTERS.get(name) or int(name))


def _holiday(match: re.Match[str], now: datetime) -> Span | None:
    rule = holidays.ENGLISH[match["holiday"].lower().replace("’", "'")]
    year = year_number(match, now)
    if year is not None:
        return holidays.holiday(year, rule)
    step = _STEPS[match["which"].lower().split()[-1]] if match["which"] else None
    return choose(now.date(), holidays.around(now.date(), rule), step)


def _unknown(match: re.Match[str], now: datetime) -> None:
    return None


def _rule(
    triggers: str, pattern: str, resolve: Resolver, fits: Callable[[re.Match[str]], bool] | None = None
) -> TimeRule:
    # Letters of other scripts may touch an English word, so only ASCII ones make it longer.
    rule = TimeRule(tuple(triggers.split("|")), re.compile(rf"\b(?:{pattern})", re.IGNORECASE | re.ASCII), resolve)
    return rule._replace(fits=fits) if fits else rule


_MONTH_TRIGGERS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_YEAR_TRIGGERS = "19|20|'|’"
_HOLIDAYS = "|".join(re.escape(name).replace("'", "['’]") for name in sorted(holidays.ENGLISH, key=len, reverse=True))
# A Christmas tree is no time, so a holiday ends its phrase, or a small word follows.
_END = (
    r"(?=[?.!,;:)\]—-]|\s*$| (?:and|or|but|with|without|at|in|on|to|from|by|for|we|i|you|my|our|he|she|they|it|his|her"
    r"|their|is|was|were|because|so|since|when|while|as|this|last|next|which|that|morning|night|evening|did|does)\b)"
)
RULES = (
    _rule(
        "today|tonight|yesterday|tomorrow|last night|this morning|this afternoon|this evening",
        rf"(?:the day before yesterday|the day after tomorrow|yesterday|tomorrow){_PART}\b|today\b|tonight\b"
        r"|last night\b|this (?P<own>morning|afternoon|evening)\b",
        _near_day,
        is_no_comparison,
    ),
    _rule("the night before last", r"the night before last\b", _night),
    _rule(
        "last |this |next |past |coming ",
        rf"{_WHICH} (?:(?:{_WEEKDAY}{_PART}|(?P<unit>weekend|quarter(?! of)))|{_SEASON}|{_MONTH})\b(?! \d)",
        _which,
    ),
    _rule(
        "last year|this year|next year",
        rf"(?:(?:{_MONTH}|{_SEASON}) (?:of )?(?P<which>last|this|next) year"
        rf"|(?P<which_first>last|this|next) year,? in (?:the )?(?:{_MONTH.replace('month', 'month_after')}"
        rf"|{_SEASON.replace('season', 'season_after')}))\b",
        _of_year,
    ),
    # `the last week` is the window that ends now, `last week` the calendar's.
    _rule(
        "last |this |next ",
        r"(?<!the )(?<!past )(?P<which>last|this|next) (?P<unit>week|month|year|decade)\b(?! of\b)",
        _plain_unit,
    ),
    _rule(
        "of the ",
        r"(?P<lead>(?:the )?(?:very )?(?:beginning|start|middle|end) of the )(?P<unit>week|month|year)\b(?! of\b)",
        _same_unit,
    ),
    _rule(
        "before last|after next",
        rf"the (?:{_WEEKDAY}|(?P<unit>weekend|week|month|year)) (?P<which>before last|after next)\b",
        _before_last,
    ),
    _rule("the other ", r"the other (?:day|night|morning|afternoon|evening)\b", _other_day),
    _rule("earlier this|later this", r"(?P<side>earlier|later) this (?P<unit>week|month|year)\b", _so_far),
    _rule(" ago|from | back", rf"(?:{COUNT}) {UNIT} (?P<ago>ago|back|from (?:now|today))\b(?! in\b)", _distance),
    _rule("since", rf"(?:{COUNT}) {UNIT} (?P<ago>since)\b", _distance, since_then),
    _rule("days ago", rf"(?:{COUNT}) {_WEEKDAY}s ago\b", _weekdays_ago),
    _rule("in ", rf"in (?:{COUNT}) {UNIT}\b(?!['’]){WHOLE}", _duration, is_not_since),
    _rule("in ", rf"(?P<ago>in) (?:{COUNT}) {UNIT}\b(?!['’]){WHOLE}", _distance, is_ahead),
    _rule("within ", rf"within (?:{COUNT}) {UNIT}\b{WHOLE}", _from_now, is_ahead),
    _rule("for the ", rf"for the (?:(?P<unit>weekend)|{_SEASON})\b(?! of\b)", _coming, is_planned),
    _rule(
        "last |past |next |coming ",
        # Alone, `the next day` is the one after what is told, which is not known.
        rf"(?:(?:in|over|for|during|within|throughout) )?(?:the(?:se)? |this )?(?P<side>last|past|next|coming)"
        rf" (?:{COUNT}) {UNIT}\b(?! of\b){WHOLE}"
        r"|(?:in|over|for|during|within|throughout) the(?:se)? (?P<side_of_one>last|past|next|coming)"
        rf" (?P<one>{UNITS})(?P<many>s)?\b(?! of\b){WHOLE}"
        rf"|(?:the|this) (?P<side_of_past>last|past) (?P<past>week|month|year|decade)\b(?! of\b){WHOLE}",
        _window,
    ),
    _rule(
        "for ",
        rf"for (?:about |over |almost |nearly |around |roughly )?(?:{COUNT}) {UNIT}\b(?! ago\b){WHOLE}",
        _duration,
        goes_on,
    ),
    _rule(_MONTH_TRIGGERS, rf"(?:the )?{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?", _month_day),
    _rule(_MONTH_TRIGGERS, rf"{_MONTH} (?:the )?{_DAY}(?:,? {_YEAR})?", _month_day),
    _rule(
        "19|20",
        r"(?P<year>(?:19|20)\d\d)(?P<sign>[-/.])(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)(?:\b|(?=t\d))",
        _number_day,
    ),
    _rule(
        "19|20",
        r"(?<![\d/.-])(?P<one>\d\d?)(?P<sign>[/.-])(?P<other>\d\d?)(?P=sign)(?P<year>(?:19|20)\d\d)\b",
        _either_day,
    ),
    _rule(
        "on the |by the |until the |since the ",
        r"(?P<lead>(?:on|by|until|till|since) the )(?P<day>\d{1,2})(?:st|nd|rd|th)"
        rf"(?: of (?P<which>last|this|next) month\b|{_END})",
        _day_of_month,
    ),
    _rule(_YEAR_TRIGGERS, rf"(?:{_MONTH}|{_SEASON})(?: of|,)? {_YEAR}", _month_year),
    _rule(_MONTH_TRIGGERS, rf"{_LEAD}{_MONTH}(?!,? (?:of )?\d)", _bare_month),
    _rule(_YEAR_TRIGGERS, rf"{_LEAD}{_YEAR}", _bare_year),
    _rule("0s|0's|0’s", r"(?P<decade>(?:19|20)\d0)['’]?s\b", _decade),
    _rule(
        "0s|0's|0’s|ties",
        rf"(?P<lead>(?:(?:back )?in |during |since |until |till |before |after |by )?the (?:{_THIRD}[ -])?)"
        rf"(?P<decade>['’]?[3-9]0(?=['’]?s\b)|{'|'.join(_DECADES)})(?:['’]?s)?\b",
        _decade,
    ),
    _rule("quarter", rf"(?:the )?(?P<quarter>first|second|third|fourth|last) quarter of {_YEAR}", _quarter),
    _rule("q1|q2|q3|q4", rf"q(?P<quarter>[1-4])(?: of|,)? {_YEAR}", _quarter),
    _rule(
        "|".join(sorted({name.split("'")[0] for name in holidays.ENGLISH})),
        rf"(?:(?P<which>last|this|next|(?:this )?past) |(?P<lead>(?:on|at|over|during|since|until|till|before|after|by"
        rf"|around|for|of)(?: the)? )?)(?P<holiday>{_HOLIDAYS})(?:(?:,? (?:of |in )?){_YEAR}|{_END})",
        _holiday,
        lambda match: bool(match["which"] or match["lead"] or match["year"]),
    ),
    _rule("day", rf"on {_WEEKDAY}{_PART}\b", _weekday_by_tense),
    _rule("day", rf"(?:since|until|till|by) {_WEEKDAY}{_PART}\b", _unknown),
)
