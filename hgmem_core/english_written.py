"""English dates as they are written, whole or in part, and holidays; the rule table is `docs/time.md`."""

import re
from datetime import datetime
from types import MappingProxyType

from hgmem_core import holidays, spans
from hgmem_core.english_numbers import is_touched
from hgmem_core.english_words import LEAD, MONTH, MONTH_TRIGGERS, MONTHS, SEASON, STEPS, THIRD, YEAR, rule, year_number
from hgmem_core.spans import Span
from hgmem_core.time_rules import choose

_DECADES = MappingProxyType(
    {
        name: 10 * number
        for number, name in enumerate("thirties forties fifties sixties seventies eighties nineties".split(), 3)
    }
)

_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_CENTURY = 1900
"""The 1900s may be ten years or a hundred."""


_QUARTERS = MappingProxyType(
    {name: number for number, name in enumerate("first second third fourth".split(), 1)} | {"last": 4}
)
_YEAR_TRIGGERS = "|".join(["19", "20", *(f"{quote}{digit}" for quote in "'’" for digit in range(10))])
_HOLIDAYS = "|".join(re.escape(name).replace("'", "['’]") for name in sorted(holidays.ENGLISH, key=len, reverse=True))
# A Christmas tree is no time, so a holiday ends its phrase, or a small word follows.
_END = (
    r"(?=[?.!,;:)\]—-]|\s*$| (?:and|or|but|with|without|at|in|on|to|from|by|for|we|i|you|my|our|he|she|they|it|his|her"
    r"|their|is|was|were|because|so|since|when|while|as|this|last|next|which|that|morning|night|evening|did|does)\b)"
)


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
        month = spans.unit(now.date(), "month", STEPS[match["which"].lower()]).start
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


def _quarter(match: re.Match[str], now: datetime) -> Span | None:
    year = year_number(match, now)
    name = match["quarter"].lower()
    return None if year is None else spans.quarter(year, _QUARTERS.get(name) or int(name))


def _holiday(match: re.Match[str], now: datetime) -> Span | None:
    rule = holidays.ENGLISH[match["holiday"].lower().replace("’", "'")]
    year = year_number(match, now)
    if year is not None:
        return holidays.holiday(year, rule)
    step = STEPS[match["which"].lower().split()[-1]] if match["which"] else None
    return choose(now.date(), holidays.around(now.date(), rule), step)


RULES = (
    rule(MONTH_TRIGGERS, rf"(?:the )?{_DAY}(?: of)? {MONTH}(?:,? {YEAR})?", _month_day),
    rule(MONTH_TRIGGERS, rf"{MONTH} (?:the )?{_DAY}(?:,? {YEAR})?", _month_day),
    rule(
        "19|20",
        r"(?P<year>(?:19|20)\d\d)(?P<sign>[-/.])(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)(?:\b|(?=t\d))",
        _number_day,
    ),
    rule(
        "19|20",
        r"(?<![\d/.-])(?P<one>\d\d?)(?P<sign>[/.-])(?P<other>\d\d?)(?P=sign)(?P<year>(?:19|20)\d\d)\b",
        _either_day,
    ),
    rule(
        "on the |by the |until the |since the ",
        r"(?P<lead>(?:on|by|until|till|since) the )(?P<day>\d{1,2})(?:st|nd|rd|th)"
        rf"(?: of (?P<which>last|this|next) month\b|{_END})",
        _day_of_month,
    ),
    rule(_YEAR_TRIGGERS, rf"(?:{MONTH}|{SEASON})(?: of|,)? {YEAR}", _month_year),
    rule(MONTH_TRIGGERS, rf"{LEAD}{MONTH}(?!,? (?:of )?\d)", _bare_month),
    rule(_YEAR_TRIGGERS, rf"{LEAD}{YEAR}", _bare_year),
    rule("0s|0's|0’s", r"(?P<decade>(?:19|20)\d0)['’]?s\b", _decade),
    rule(
        "0s|0's|0’s|ties",
        rf"(?P<lead>(?:(?:back )?in |during |since |until |till |before |after |by )?the (?:{THIRD}[ -])?)"
        rf"(?P<decade>['’]?[3-9]0(?=['’]?s\b)|{'|'.join(_DECADES)})(?:['’]?s)?\b",
        _decade,
    ),
    rule("quarter", rf"(?:the )?(?P<quarter>first|second|third|fourth|last) quarter of {YEAR}", _quarter),
    rule("q1|q2|q3|q4", rf"q(?P<quarter>[1-4])(?: of|,)? {YEAR}", _quarter),
    rule(
        "|".join(sorted({name.split("'")[0] for name in holidays.ENGLISH})),
        rf"(?:(?P<which>last|this|next|(?:this )?past) |(?P<lead>(?:on|at|over|during|since|until|till|before|after|by"
        rf"|around|for|of)(?: the)? )?)(?P<holiday>{_HOLIDAYS})(?:(?:,? (?:of |in )?){YEAR}|{_END})",
        _holiday,
        lambda match: bool(match["which"] or match["lead"] or match["year"]),
    ),
)
