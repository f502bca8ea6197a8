"""English temporal expressions; the rule table is `docs/time.md`."""

import re
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from hgmem_core import spans
from hgmem_core.english_clauses import (
    goes_on,
    is_ahead,
    is_no_comparison,
    is_not_since,
    is_planned,
    since_then,
    tense_of,
)
from hgmem_core.english_numbers import COUNT, UNIT, UNITS, WHOLE, number_of
from hgmem_core.english_words import MONTH, MONTHS, PART, SEASON, STEPS, WEEKDAY, WEEKDAYS, WHICH, in_day, rule
from hgmem_core.english_written import RULES as WRITTEN
from hgmem_core.spans import Span
from hgmem_core.time_rules import choose

_OF_DAY = MappingProxyType(
    {"yesterday": -1, "tomorrow": 1, "the day before yesterday": -2, "the day after tomorrow": 2}
)


def _near_day(match: re.Match[str], now: datetime) -> Span:
    phrase, part = match[0].lower(), match["part"] or match["own"]
    if phrase in ("tonight", "last night"):
        return in_day(spans.day(now.date(), 0 if phrase == "tonight" else -1), "night", now)
    day = next((offset for name, offset in _OF_DAY.items() if phrase.startswith(name)), 0)
    return in_day(spans.day(now.date(), day), part, now)


def _night(match: re.Match[str], now: datetime) -> Span:
    return spans.part_of_day(spans.day(now.date(), -2).start, "night", now.tzinfo)


def _which(match: re.Match[str], now: datetime) -> Span:
    """Resolve `last`, `this` or `next` with a weekday, a unit, a month or a season."""
    today, step = now.date(), STEPS[match["which"].lower().split()[-1]]
    if match["unit"]:
        return spans.unit(today, match["unit"].lower(), step)
    if match["weekday"]:
        weekday = WEEKDAYS[match["weekday"].lower()]
        day = spans.weekday_away(today, weekday, step) if step else spans.weekday_of_week(today, weekday)
        return in_day(day, match["part"], now)
    years = range(today.year - 2, today.year + 3)
    if match["season"]:
        named = [spans.season(year, match["season"].lower()) for year in years]
        # Until its end in February, a winter is the one of the year before.
        current = next((span for span in named if span.start <= today < span.end), None)
        return current if step == 0 and current else choose(today, named, step)
    return choose(today, [spans.month(year, MONTHS[match["month"].lower()]) for year in years], step)


def _plain_unit(match: re.Match[str], now: datetime) -> Span:
    return spans.unit(now.date(), match["unit"].lower(), STEPS[match["which"].lower()])


def _of_year(match: re.Match[str], now: datetime) -> Span:
    """Resolve `August last year` and `last year in August`."""
    year = now.year + STEPS[(match["which"] or match["which_first"]).lower()]
    season, month = match["season"] or match["season_after"], match["month"] or match["month_after"]
    return spans.season(year, season.lower()) if season else spans.month(year, MONTHS[month.lower()])


def _same_unit(match: re.Match[str], now: datetime) -> Span:
    return spans.unit(now.date(), match["unit"].lower(), 0)


def _before_last(match: re.Match[str], now: datetime) -> Span:
    step = STEPS[match["which"].lower()]
    if match["weekday"]:
        return spans.weekday_away(now.date(), WEEKDAYS[match["weekday"].lower()], step)
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
    day = spans.weekday_away(now.date(), WEEKDAYS[match["weekday"].lower()], tense) if tense else None
    return day and in_day(day, match["part"], now)


def _since_weekday(match: re.Match[str], now: datetime) -> Span:
    return in_day(spans.weekday_away(now.date(), WEEKDAYS[match["weekday"].lower()], -1), match["part"], now)


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
    return spans.weekday_away(now.date(), WEEKDAYS[match["weekday"].lower()], -number[0])


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


def _unknown(match: re.Match[str], now: datetime) -> None:
    return None


RULES = (
    rule(
        "today|tonight|yesterday|tomorrow|last night|this morning|this afternoon|this evening",
        rf"(?:the day before yesterday|the day after tomorrow|yesterday|tomorrow){PART}\b|today\b|tonight\b"
        r"|last night\b|this (?P<own>morning|afternoon|evening)\b",
        _near_day,
        is_no_comparison,
    ),
    rule("the night before last", r"the night before last\b", _night),
    rule(
        "last |this |next |past |coming ",
        rf"{WHICH} (?:(?:{WEEKDAY}{PART}|(?P<unit>weekend|quarter(?! of)))|{SEASON}|{MONTH})\b(?! \d)",
        _which,
    ),
    rule(
        "last year|this year|next year",
        rf"(?:(?:{MONTH}|{SEASON}) (?:of )?(?P<which>last|this|next) year"
        rf"|(?P<which_first>last|this|next) year,? in (?:the )?(?:{MONTH.replace('month', 'month_after')}"
        rf"|{SEASON.replace('season', 'season_after')}))\b",
        _of_year,
    ),
    # `the last week` is the window that ends now, `last week` the calendar's.
    rule(
        "last |this |next ",
        r"(?<!the )(?<!past )(?P<which>last|this|next) (?P<unit>week|month|year|decade)\b(?! of\b)",
        _plain_unit,
    ),
    rule(
        "of the ",
        r"(?P<lead>(?:the )?(?:very )?(?:beginning|start|middle|end) of the )(?P<unit>week|month|year)\b(?! of\b)",
        _same_unit,
    ),
    rule(
        "before last|after next",
        rf"the (?:{WEEKDAY}|(?P<unit>weekend|week|month|year)) (?P<which>before last|after next)\b",
        _before_last,
    ),
    rule("the other ", r"the other (?:day|night|morning|afternoon|evening)\b", _other_day),
    rule("earlier this|later this", r"(?P<side>earlier|later) this (?P<unit>week|month|year)\b", _so_far),
    rule(" ago|from | back", rf"(?:{COUNT}) {UNIT} (?P<ago>ago|back|from (?:now|today))\b(?! in\b)", _distance),
    rule("since", rf"(?:{COUNT}) {UNIT} (?P<ago>since)\b", _distance, since_then),
    rule("days ago", rf"(?:{COUNT}) {WEEKDAY}s ago\b", _weekdays_ago),
    rule("in ", rf"in (?:{COUNT}) {UNIT}\b(?!['’]){WHOLE}", _duration, is_not_since),
    rule("in ", rf"(?P<ago>in) (?:{COUNT}) {UNIT}\b(?!['’]){WHOLE}", _distance, is_ahead),
    rule("within ", rf"within (?:{COUNT}) {UNIT}\b{WHOLE}", _from_now, is_ahead),
    rule("for the ", rf"for the (?:(?P<unit>weekend)|{SEASON})\b(?! of\b)", _coming, is_planned),
    rule(
        "last |past |next |coming ",
        # Alone, `the next day` is the one after what is told, which is not known.
        rf"(?:(?:in|over|for|during|within|throughout) )?(?:the(?:se)? |this )?(?P<side>last|past|next|coming)"
        rf" (?:{COUNT}) {UNIT}\b(?! of\b){WHOLE}"
        r"|(?:in|over|for|during|within|throughout) the(?:se)? (?P<side_of_one>last|past|next|coming)"
        rf" (?P<one>{UNITS})(?P<many>s)?\b(?! of\b){WHOLE}"
        rf"|(?:the|this) (?P<side_of_past>last|past) (?P<past>week|month|year|decade)\b(?! of\b){WHOLE}",
        _window,
    ),
    rule(
        "for ",
        rf"for (?:about |over |almost |nearly |around |roughly )?(?:{COUNT}) {UNIT}\b(?! ago\b){WHOLE}",
        _duration,
        goes_on,
    ),
    *WRITTEN,
    rule("day", rf"on {WEEKDAY}{PART}\b", _weekday_by_tense),
    rule("since ", rf"(?P<lead>since ){WEEKDAY}{PART}\b", _since_weekday),
    rule("day", rf"(?:until|till|by) {WEEKDAY}{PART}\b", _unknown),
)
