"""Ranges between two dates that are written in part, in English, Chinese and Japanese; see `docs/time.md`."""

import re
from dataclasses import dataclass, replace
from datetime import datetime

from hgmem_core import spans
from hgmem_core.dates_chinese import SIGNED_DAY, SIGNED_MONTH, chinese_number
from hgmem_core.english_words import FULL_MONTH, MONTHS
from hgmem_core.spans import Span
from hgmem_core.time_rules import TimeRule

_YEAR = r"(?:19|20)\d\d"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_TO = r"(?: (?:to|until|till|through|thru) (?:the )?| ?[-–—] ?)"
_AND = r"(?: and (?:the )?)"
_WITH_YEAR = rf"(?:,? {_YEAR}\b)?"
_DAY_MONTH = rf"{_DAY}(?: of)? {FULL_MONTH}\b\.?"
_MONTH_DAY = rf"{FULL_MONTH}\b\.? (?:the )?{_DAY}\b"
_DATE = rf"(?:(?:the )?{_DAY_MONTH}|{_MONTH_DAY}|{FULL_MONTH}\b\.?){_WITH_YEAR}"
# A day alone, before or after a month with a day; two dates; two years.
_ENGLISH = re.compile(
    rf"\b(?:between |from )?(?:the )?"
    rf"(?:(?P<first_day>{_DAY})(?:{_TO}|{_AND})(?P<last_date>{_DAY_MONTH}{_WITH_YEAR})"
    rf"|(?P<first_date>{_MONTH_DAY})(?:{_TO}|{_AND})(?P<last_day>{_DAY}\b{_WITH_YEAR})(?! ?(?:[-–/:.]|am|pm)\d?)"
    rf"|(?P<from_date>{_DATE})(?:{_TO}|{_AND})(?P<to_date>{_DATE}))(?![\w-])"
    rf"|\b(?:from (?:the year )?(?P<from_year>{_YEAR}){_TO}|between (?P<years>{_YEAR}){_AND}"
    rf"|(?<!\d-)(?P<span>{_YEAR}) ?[-–—] ?)(?P<to_year>{_YEAR})\b(?![-/.]\d)",
    re.IGNORECASE | re.ASCII,
)
_SIGNED_DATE = rf"(?:(?:19|20)\d\d\s?年)?の?(?:{SIGNED_MONTH})?(?:{SIGNED_DAY}|\d{{1,2}}(?=\s?[-~～〜–—]))?"
_SIGNED = re.compile(
    rf"[从從自]?(?P<from_date>{_SIGNED_DATE})(?:到|至|から|[-~～〜–—])(?P<to_date>{_SIGNED_DATE})(?:まで|为止|為止|[间間])?"
)
_SIGNED_PARTS = re.compile(
    r"(?:(?P<year>\d{4})\s?年)?の?(?:(?P<month>[^年月日号號\s]+)\s?月)?(?:(?P<day>[^年月日号號]+?)\s?[日号號]?)?"
)
_FIRST = ("first_day", "first_date", "from_date", "from_year", "years", "span")
_LAST = ("last_date", "last_day", "to_date", "to_year")
_WORD = re.compile(r"[a-z]+|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Date:
    """A date of which a part may be missing."""

    year: int | None
    month: int | None
    day: int | None

    def span(self, today: datetime) -> Span:
        """Return what it means; without a year, what is nearest to today."""
        if self.month is None:
            return spans.year(self.year or 0)
        if self.day is not None:
            return spans.named_day(today.date(), self.month, self.day, self.year)
        return spans.month(self.year, self.month) if self.year else spans.nearest_month(today.date(), self.month)


def _date(text: str) -> _Date:
    """Read a date in English, or of Chinese and Japanese signs.

    Raises:
        ValueError: A number in it is none.
    """
    if "月" in text or "年" in text or "日" in text or "号" in text or "號" in text:
        parts = _SIGNED_PARTS.fullmatch(text)
        if parts is None:
            raise ValueError(f"{text} is not a date")
        return _Date(*(chinese_number(part) if part else None for part in parts.group("year", "month", "day")))
    year = month = day = None
    for word in _WORD.findall(text.lower()):
        if word in MONTHS:
            month = MONTHS[word]
        elif word.isdecimal():
            year, day = (int(word), day) if len(word) == 4 else (year, int(word))
    return _Date(year, month, day)


def _ends(match: re.Match[str]) -> tuple[_Date, _Date]:
    """Return both dates; of a month that one of them lacks, the other knows."""
    groups = match.groupdict()
    first, last = (_date(next((groups[name] for name in names if groups.get(name)), "")) for names in (_FIRST, _LAST))
    if first.day and not first.month and last.day:
        first = replace(first, month=last.month)
    if last.day and not last.month and first.day:
        last = replace(last, month=first.month)
    return first, last


def _names_dates(match: re.Match[str]) -> bool:
    if " and " in match[0] and not match[0].lower().startswith("between "):
        return False  # 3 and 5 May are two days
    try:
        first, last = _ends(match)
    except ValueError:
        return False
    return (first.month is None) == (last.month is None) and bool(first.month or (first.year and last.year))


def _range(match: re.Match[str], now: datetime) -> Span:
    first, last = _ends(match)
    if first.year and not last.year:
        last = replace(last, year=first.year)
        if last.span(now).end <= first.span(now).start:
            last = replace(last, year=first.year + 1)
    end = last.span(now)
    if not first.year:
        first = replace(first, year=end.start.year)
        if first.span(now).start >= end.end:
            first = replace(first, year=end.start.year - 1)
    return spans.join(first.span(now), end)


RULES = (
    TimeRule((*(name for name in MONTHS if len(name) == 3), "19", "20"), _ENGLISH, _range, _names_dates),
    TimeRule(("年", "月"), _SIGNED, _range, _names_dates),
)
