"""Temporal expressions in English and Chinese to intervals, from when and where they were said; no clock is read.

An interval is half-open, in UTC, and made of whole days of the speaker's zone. Weeks begin on Monday. What no rule
knows gives nothing; what a rule knows but cannot place keeps its phrase without an interval: a relative phrase of an
unknown time, an ambiguous weekday (`on Friday`), a phrase after `until`, `by`, `before` or `after`, and one whose
number is part of another (`2.5 years ago`, `half a year ago`, `one or two weeks ago`, 两三天前, 十几年前).

Whoever changes what a phrase means raises `hgmem_core.extract.EXTRACT_REVISION`.

| said | means |
|---|---|
| today, this morning, tonight; yesterday, last night; tomorrow; the day before yesterday | that day |
| last Friday | the latest Friday before the day of saying: on a Friday seven days ago, on a Saturday yesterday |
| next Monday | the first Monday after the day of saying |
| this Friday | the Friday of this week |
| last, this, next week; month; year | the whole week, month or year before, of, or after the day of saying |
| last, this, next weekend | Saturday and Sunday of the week before, this week, the week after |
| last May, last summer | the latest that was over; winter is December to February, and so on in threes |
| this May, this summer | that of this year; in January and February this winter is the one that goes on |
| next May, next summer | the first that has not begun |
| two weeks ago, in two weeks | the whole day, week, month or year so far away; hours and minutes give their day |
| a few days ago, in several weeks | from two to five of them away |
| the past week, the last three months, the next two weeks | so many units up to, or from, the day of saying |
| 7 May 2023, May 7th, 2023, 2023-05-07; May 2023, summer of 2022; in 2019 | as written |
| 7 May, in May | the nearest, the earlier of two as near |
| since … | from the beginning of the interval, without an end |
| 昨天 今晚 前天 大后天 | that day |
| 上周 这周 下星期 上周五 下周一 上周末 | by calendar weeks: 上周五 is the Friday of last week, also on a Saturday |
| 上个月 下个月 去年 明年 前年 去年夏天 去年五月 | the whole month, year or season |
| 两周前 三天后 几年前 | as two weeks ago, in three days, a few years ago |
| 2023年5月7日 2023年5月 2023年 5月7日 5月份 | as written; without a year, the nearest; blanks may stand between |
| 先週の金曜日 昨日 来月 | Japanese of the same signs, as Chinese |
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from hgmem_core.dates_chinese import RULES as CHINESE_RULES
from hgmem_core.dates_english import RULES as ENGLISH_RULES
from hgmem_core.dates_english import Resolver

_LIMIT_BEFORE = re.compile(r"\b(?:until|till|til|by|before|after)\s+(?:the )?$", re.IGNORECASE)
_LIMIT_WITHIN = re.compile(r"(?:until|till|by)\b", re.IGNORECASE)
_SINCE = re.compile(r"\bsince\s+(?:the )?$", re.IGNORECASE)
# `may` and `march` are verbs, `sun` and `mar` too: a month is written with a capital.
_LOWER_MONTH = re.compile(r"\b(?:may|march|mar|dec|sep)\b")


@dataclass(frozen=True, slots=True)
class TimeMention:
    """A phrase that names a time.

    Attributes:
        phrase: The phrase as written.
        place: Where it begins in the text.
        start: When the interval begins, in UTC; None where it cannot be said.
        end: When it is over; None beside a `start` means that it goes on.
    """

    phrase: str
    place: int
    start: datetime | None
    end: datetime | None


def find_times(text: str, said_at: datetime | None, zone: ZoneInfo) -> list[TimeMention]:
    """Return the temporal expressions of `text` in order, without overlaps: the earlier and longer one wins.

    Args:
        text: What was said, in English or Chinese or both.
        said_at: When, with a zone; None where unknown.
        zone: Where: its days are the days that are meant.

    >>> [mention] = find_times("I was in Lyon last week", datetime(2023, 5, 24, 12, tzinfo=UTC), ZoneInfo("UTC"))
    >>> mention.phrase, str(mention.start.date()), str(mention.end.date())
    ('last week', '2023-05-15', '2023-05-22')
    """
    found: list[tuple[int, int, re.Match[str], Resolver]] = []
    lowered = text.lower()
    for triggers, pattern, resolve in ENGLISH_RULES if text.isascii() else (*ENGLISH_RULES, *CHINESE_RULES):
        for trigger in triggers:
            if trigger in lowered:
                found += [(match.start(), -match.end(), match, resolve) for match in pattern.finditer(text)]
                break
    if not found:
        return []
    found.sort(key=lambda item: item[:2])
    mentions = []
    reached = 0
    for start, _, match, resolve in found:
        if start >= reached and not _LOWER_MONTH.search(match[0]):
            reached = match.end()
            mentions.append(_mention(text, match, resolve, said_at, zone))
    return mentions


def _mention(
    text: str, match: re.Match[str], resolve: Resolver, said_at: datetime | None, zone: ZoneInfo
) -> TimeMention:
    start, end = match.start(), match.end()
    unknown = TimeMention(match[0], start, None, None)
    before = text[max(0, start - 12) : start]
    if _LIMIT_BEFORE.search(before) or _LIMIT_WITHIN.match(match[0]):
        return unknown
    if said_at is None and not _names_a_year(match):
        return unknown
    now = (said_at or datetime(2000, 1, 1, tzinfo=UTC)).astimezone(zone)
    try:
        span = resolve(match, now)
        interval = span and (_midnight(span[0], zone), _midnight(span[1], zone))
    except (ValueError, OverflowError):  # no such day, or a year outside 1 to 9999
        return unknown
    if not interval:
        return unknown
    since = _SINCE.search(before)
    if since is not None:
        start -= len(before) - since.start()
    is_open = since is not None or match[0].lower().startswith("since ")
    return TimeMention(text[start:end], start, interval[0], None if is_open else interval[1])


def _names_a_year(match: re.Match[str]) -> bool:
    groups = match.groupdict()
    return any((groups.get(name) or "").isdecimal() for name in ("year", "digits"))


def _midnight(first: date, zone: ZoneInfo) -> datetime:
    return datetime(first.year, first.month, first.day, tzinfo=zone).astimezone(UTC)
