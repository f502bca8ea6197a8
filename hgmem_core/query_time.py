"""The time that a question speaks of: an interval of days, or an event before, during or after which something was.

Phrases mean what they mean in statements, see `hgmem_core.dates`, with these rules of questions. Days are those of UTC.

| asked | means |
|---|---|
| last summer, two weeks ago, 上个月 | counted from today, else from the end of the log |
| in June, on 8 May, at Christmas, over the summer, 6月 | the latest within the log; if it holds none, the nearest |
| the same without a log; in a question that looks ahead (will, 打算) | the latest that has begun; the nearest |
| before, until, by June 2023; after, since; 2023年6月之前 | open on one side; `before` and `after` leave June out |
| between May and July 2023, from 5 to 9 May, 2023年5月到7月 | from first to last; the year of one is the other's |
| two weeks before, the Sunday after 8 May 2023 | counted from that day |
| last Friday on 8 May 2023 | a relative phrase beside a full date counts from it; both belong to the interval |
| in May 2023 and in July 2023 | from the first to the last |
| before the move, since starting school, while in Rome, 搬家之前 | an event and a side of it, but no interval |
| after the trip in June 2023 | the event, and all from the beginning of June |
| recently; in two weeks (how long it took) | nothing |

Seasons are whole months of the northern hemisphere, as in statements. Where a southern one was meant the interval is
half a year off: it may raise what lies in it, but should hide nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import Literal
from zoneinfo import ZoneInfo

from hgmem_core.dates import find_times
from hgmem_core.english_words import MONTHS
from hgmem_core.holidays import CHINESE, ENGLISH, JAPANESE

Side = Literal["before", "after", "during"]
Bounds = tuple[datetime | None, datetime | None]
"""A half-open interval; None is open."""
Place = tuple[int, int]
"""Where something begins in a text, and where it is over."""
Log = tuple[datetime, datetime]
"""When a log begins, and when it ends."""

_Span = tuple[datetime, datetime]

MOST_TIMES = 16
"""Temporal phrases of a question that are read, the first ones."""

_ZONE = ZoneInfo("UTC")
_NEAR = 64
"""How many characters beside a phrase can say how it is meant."""
_MOST_YEARS = 8
"""As far apart as two days of the same name can be: 29 February around 1900."""

_MONTH = "|".join(rf"{name}\b" for name in sorted(MONTHS, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d\b"
_SEASONS = ("spring", "summer", "autumn", "fall", "winter")
_HOLIDAY = "|".join(
    re.escape(name) for names in (ENGLISH, CHINESE, JAPANESE) for name in sorted(names, key=len, reverse=True)
)
_CHINESE_NUMBER = r"1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九]"

# What may be a time in a question though `dates` takes it for none in a statement, and how `dates` would write it.
_BARE: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(
            r"\b(?:before|after|since|until|till|by|from|throughout|between|and|to) "
            rf"(?P<asked>(?:{_MONTH})(?!,? \d)|{_YEAR})",
            re.IGNORECASE,
        ),
        lambda match: f"in {match['asked']}",
    ),
    (
        re.compile(
            r"\b(?:in|over|during|for|since|until|before|after) the "
            rf"(?P<asked>{'|'.join(_SEASONS)})\b(?! (?:of )?{_YEAR})",
            re.IGNORECASE,
        ),
        lambda match: match["asked"].lower(),
    ),
    (
        re.compile(
            rf"(?<![\d个個年零〇一二三四五六七八九十])(?P<asked>(?:{_CHINESE_NUMBER})月)(?![\d份一二三四五六七八九十 ])"
        ),
        lambda match: match["asked"] + "份",
    ),
)
_LOOSE = frozenset({"between", "and", "to"})
"""Words before a month or a year that make it no time unless another one is joined with it."""
_ALONE = re.compile(rf"(?:{_MONTH}|{_YEAR})\.?", re.IGNORECASE)
_HOLIDAY_ALONE = re.compile(_HOLIDAY, re.IGNORECASE)
_SIDE_SIGN = re.compile(r"(?:以前|之前|前|以[后後]|之[后後]|[后後])$")
_NAMES_NO_YEAR = re.compile(rf"\b(?:{_MONTH})|(?:{_CHINESE_NUMBER})\s?月|{_HOLIDAY}", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(?:last|this|next|past|coming)\b|[去今明来來上这這本先下]|[前后後]年", re.IGNORECASE)
_AHEAD = re.compile(
    r"\b(?:will|shall|going to|upcoming)\b|打算|计划|計劃|将要|会在|准备",
    re.IGNORECASE,
)
# `in two weeks` is in questions how long something took, far more often than when it will be.
_TOOK = re.compile(
    r"(?:in|within) (?!the )(?:\S+ ){1,4}(?:minute|hour|night|day|weekend|week|month|year)s?", re.IGNORECASE
)

_ABOUT = r"(?:the |about |around |early |late |mid-?)*"
_JOIN = re.compile(rf"\s*(?:and|to|until|till|through|[-–到至~和])\s*{_ABOUT}", re.IGNORECASE)
_FIRST_DAY = re.compile(
    r"\b(?:between|from) (?:the )?(?P<day>\d{1,2})(?:st|nd|rd|th)? (?:and|to|until|till|through) (?:the )?$",
    re.IGNORECASE,
)
_LED = re.compile(
    r"(?:\b(?:(?:on|in|at|over|during) )?"
    r"(?P<count>(?:(?:the|a|last|next|one|two|three|four|five|six|seven|ten|few|couple of|several|\d{1,3}) ){1,3}"
    r"(?:day|week|weekend|month|year|(?:mon|tues|wednes|thurs|fri|satur|sun)day)s?) )?"
    rf"\b(?P<word>before|prior to|until|till|by|up to|after|since) {_ABOUT}$",
    re.IGNORECASE,
)
_FOLLOWED = re.compile(
    r"\s?(?:(?P<before>以前|之前|前(?![天年面往]))|(?P<after>以[后後]|之[后後]|[后後](?![来來天年面]))|以[来來]|起)"
)
_LEADING = re.compile(
    r"(?:\b(?:"
    r"(?:the |in |at |on )*(?:first|last|beginning|start|middle|end|half|days?|weeks?|weekend|morning|evening|night)"
    r"(?: \w+){0,2} of "
    rf"|(?:in|on|at|of|by|for|from|over|during|since|until|till|before|after|between|throughout|around|as of) )"
    rf"{_ABOUT}|[在从從自]|自[从從])$",
    re.IGNORECASE,
)
# In `what did she take part in last week` the preposition belongs to the verb.
_NO_LEAD = re.compile(
    r"^(?:last|this|next|past|today|tonight|yesterday|tomorrow|the day)\b|\b(?:ago|back|from now)$", re.IGNORECASE
)
_ARTICLE = re.compile(r"^(?:(?:the|a|last|next) )+", re.IGNORECASE)
_DAY = timedelta(days=1)

_EVENT = re.compile(r"\b(?P<word>before|prior to|until|till|after|since|during|while|when)\s+(?=\w)", re.IGNORECASE)
_EVENT_ENDS = re.compile(
    r"[,;:?!.]|\s(?:and |but )?(?:(?:what|which|how|why) (?:\w+ ){0,3}?(?:is|was|were|are|has|had|will|would|can|could)"
    r"|(?:what|which|how|why|who|whom|where|when) (?:\w+ ){0,3}?(?:did|do|does))\b",
    re.IGNORECASE,
)
_NO_EVENT = re.compile(r"(?:that|this|it|then|all|long|now|date|you|me|him|her|them)\b", re.IGNORECASE)
_NAMED_AFTER = re.compile(
    r"\b(?:named|called|look(?:s|ed|ing)?|tak(?:es?|en|ing)|took|ask(?:s|ed|ing)?) $", re.IGNORECASE
)
_ASKED_BEFORE = re.compile(r"\b(?:what|where|who|whom|whose|which|how|why)\b.*[^\W\d_] $", re.IGNORECASE)
_ASKED_AFTER = re.compile(
    r"(?!(?:and|or|did|do|does|is|are|was|were|will|would|has|have|had|can|could|should)\b)[^,?]{3,120}?,? "
    r"(?:what|where|who|whom|whose|which|how|why|did|does|do)\b",
    re.IGNORECASE,
)
_KNOWS = re.compile(r"\b(?:and|or|know|knows|remember|remembers|tell \w+) $", re.IGNORECASE)
_CHINESE_EVENT = re.compile(
    r"(?:自[从從]|[在从從自])?(?P<event>[^，,。？?！!；;\s]{2,20}?)"
    r"(?:(?P<before>之前|以前)|(?P<after>之[后後]|以[后後]|以[来來])|期间|期間|(?<!什么)(?<!什麼)(?:的时候|的時候|时候))"
)
_SIDES: MappingProxyType[str, Side] = MappingProxyType(
    {"before": "before", "prior to": "before", "until": "before", "till": "before", "after": "after", "since": "after"}
)


@dataclass(frozen=True, slots=True)
class QueryTime:
    """What a question says of time.

    Attributes:
        bounds: The interval of which it speaks, in UTC.
        event: What it puts its matter before, after or within, as written; None if it names no such event.
        side: On which side of the event; None without one.
        times: The places of its temporal phrases, with the words that lead to them.
        event_place: The place of the event, with the word that leads to it; None without one.
    """

    bounds: Bounds
    event: str | None
    side: Side | None
    times: tuple[Place, ...]
    event_place: Place | None


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A phrase that may be a time: its place, and what `dates` is asked for it."""

    start: int
    end: int
    asked: str
    is_loose: bool


@dataclass(frozen=True, slots=True)
class _Calendar:
    """From where phrases count."""

    now: datetime | None
    log: Log | None
    looks_ahead: bool

    def span(self, asked: str) -> _Span | None:
        """Return what a phrase means, None where that is not known."""
        dated = _span_of(asked, None)
        if dated or self.now is None:
            return dated
        if _is_yearless(asked) and not self.looks_ahead:
            latest = _latest(asked, min(self.now, self.log[1]) if self.log else self.now)
            if latest and (self.log is None or latest[1] > self.log[0]):
                return latest
        return _span_of(asked, self.now)

    def joined(self, first: str, last: str) -> _Span | None:
        """Return all from `first` to `last`; the year that one of them lacks is the other's."""
        begin, end = _span_of(first, None), self.span(last)
        if begin and _is_yearless(last) and not _span_of(last, None):
            end = _earliest(last, begin[0])
        if end and not begin:
            begin = _latest(first, end[0]) if _is_yearless(first) else self.span(first)
        return (begin[0], end[1]) if begin and end and begin[0] < end[1] else None


def query_time(text: str, today: datetime | None, log: Log | None) -> QueryTime:
    """Return what a question says of time.

    Args:
        text: The question, in English or Chinese.
        today: From when relative phrases count; None stands for the end of the log.
        log: When the log begins and ends; None where that is unknown.

    >>> found = query_time("What did Ana sew before the move in June 2023?", None, None)
    >>> found.event, found.side, found.bounds[0], found.bounds[1].date().isoformat()
    ('the move in June 2023', 'before', None, '2023-07-01')
    """
    now = today or (log[1] if log else None)
    phrases = list(islice(_phrases(text, now), MOST_TIMES))
    calendar = _Calendar(_full_date(phrases) or now, log, _AHEAD.search(text) is not None)
    times: list[Place] = []
    bounds: list[tuple[int, Bounds]] = []
    for group in _groups(text, phrases):
        place = _led_place(text, group)
        found = _bounds(text, group, calendar)
        if found is None and group[0].is_loose:
            continue
        times.append(place)
        if found:
            bounds.append((place[0], found))
    event, side, event_place = _event(text, times)
    if event_place:
        bounds = [
            (start, _outside(found, side) if event_place[0] < start < event_place[1] else found)
            for start, found in bounds
        ]
    return QueryTime(_together([found for _, found in bounds]), event, side, tuple(times), event_place)


def _phrases(text: str, now: datetime | None) -> Iterator[_Phrase]:
    """Return the phrases that may be times in order, without overlaps: the earlier and longer one wins."""
    found = []
    for mention in find_times(text, now, _ZONE):
        start, asked = mention.core_place, mention.core
        if _TOOK.fullmatch(asked):
            continue
        if not mention.is_placed and (sign := _SIDE_SIGN.search(asked)) and _span_of(asked[: sign.start()], None):
            asked = asked[: sign.start()]
        lead = "in " if _ALONE.fullmatch(asked) else "on " if _HOLIDAY_ALONE.fullmatch(asked) else ""
        found.append(_Phrase(start, start + len(asked), lead + asked, False))
    for pattern, written in _BARE:
        for match in pattern.finditer(text):
            is_loose = match[0].partition(" ")[0].lower() in _LOOSE
            found.append(_Phrase(match.start("asked"), match.end("asked"), written(match), is_loose))
    reached = 0
    for phrase in sorted(found, key=lambda phrase: (phrase.start, -phrase.end)):
        if phrase.start >= reached:
            reached = phrase.end
            yield phrase


def _groups(text: str, phrases: Sequence[_Phrase]) -> Iterator[tuple[_Phrase, ...]]:
    """Return the phrases, joined ones as pairs."""
    at = 0
    while at < len(phrases):
        first, following = phrases[at], phrases[at + 1 : at + 2]
        if following and _JOIN.fullmatch(text, first.end, following[0].start):
            yield first, following[0]
            at += 2
        else:
            day = _FIRST_DAY.search(text, max(0, first.start - _NEAR), first.start)
            if day and first.asked[0].isdecimal():  # from 5 to 9 May
                asked = re.sub(r"\d+", day["day"], first.asked, count=1)
                yield _Phrase(day.start("day"), day.end("day"), asked, False), first
            else:
                yield (first,)
            at += 1


def _bounds(text: str, group: tuple[_Phrase, ...], calendar: _Calendar) -> Bounds | None:
    """Return what a phrase or a pair bounds; None where that is not known."""
    first, last = group[0], group[-1]
    if first is not last:
        return calendar.joined(first.asked, last.asked)
    span = None if first.is_loose else calendar.span(first.asked)
    if span is None:
        return None
    led = _LED.search(text, max(0, first.start - _NEAR), first.start)
    followed = _FOLLOWED.match(text, first.end)
    if led is None and followed is None:
        return span
    if led:
        word = led["word"].lower()
    else:
        word = "before" if followed and followed["before"] else "after" if followed and followed["after"] else "since"
    if led and led["count"] and word in ("before", "after"):
        return _counted(led["count"], word, span)
    if word in ("before", "prior to"):
        return None, span[0]
    if word in ("after", "since"):
        return span[1] if word == "after" else span[0], None
    return None, span[1]


def _counted(count: str, word: str, span: _Span) -> Bounds:
    """Return `two weeks before` or `the Sunday after` a span; all of that side if the count says nothing."""
    core = _ARTICLE.sub("", count)
    is_before = word == "before"
    if " " in core:
        asked = [f"{core} ago" if is_before else f"in {core}"]
    else:
        asked = [f"{kind} {core}" for kind in (("the last", "last") if is_before else ("the next", "next"))]
    origin = span[0] if is_before else span[1] - _DAY
    begin, end = next((found for phrase in asked if (found := _span_of(phrase, origin))), (None, None))
    is_whole = begin is None or (" " in core and core != count)  # the two weeks before
    if is_before:
        return begin, span[0] if is_whole or not end else min(end, span[0])
    return span[1] if is_whole or not begin else max(begin, span[1]), end


def _event(text: str, times: Sequence[Place]) -> tuple[str | None, Side | None, Place | None]:
    """Return the first event with a side, and its place with the word that leads to it."""
    for match in _EVENT.finditer(text):
        start, word = match.end(), match["word"].lower()
        end = _end_outside(_EVENT_ENDS, text, start, times)
        lead = text[max(0, match.start() - _NEAR) : match.start()]
        is_time = any(match.start() <= place[0] < start + 4 or place[0] <= match.start() < place[1] for place in times)
        if is_time or end - start < 3 or _NO_EVENT.fullmatch(text, start, end):
            continue
        if (word == "after" and _NAMED_AFTER.search(lead)) or (word == "when" and not _tells(lead, text[start:])):
            continue
        return text[start:end].strip(), _SIDES.get(word, "during"), (match.start(), end)
    for match in _CHINESE_EVENT.finditer(text):
        if not any(place[0] < match.end() and match.start() < place[1] for place in times):
            side: Side = "before" if match["before"] else "after" if match["after"] else "during"
            return match["event"], side, match.span()
    return None, None, None


def _end_outside(ends: re.Pattern[str], text: str, start: int, times: Sequence[Place]) -> int:
    """Return where the first of `ends` begins that is no part of a time, such as the comma of 8 May, 2023."""
    found = (stop.start() for stop in ends.finditer(text, start))
    return next((end for end in found if not any(place[0] < end < place[1] for place in times)), len(text))


def _tells(lead: str, rest: str) -> bool:
    """Say whether the `when` after `lead` and before `rest` tells a time instead of asking for one."""
    if lead:
        return _ASKED_BEFORE.search(lead) is not None and _KNOWS.search(lead) is None
    return _ASKED_AFTER.match(rest) is not None


def _outside(bounds: Bounds, side: Side | None) -> Bounds:
    """Return the times before or after an event of which no more is known than its bounds."""
    return (None, bounds[1]) if side == "before" else (bounds[0], None) if side == "after" else bounds


def _together(every: Sequence[Bounds]) -> Bounds:
    """Return all from the first to the last interval, within the open ones unless nothing would be left."""
    lower = max((begin for begin, end in every if begin and not end), default=None)
    upper = min((end for begin, end in every if end and not begin), default=None)
    closed = [(begin, end) for begin, end in every if begin and end]
    if not closed:
        return (None, None) if lower and upper and lower >= upper else (lower, upper)
    first, last = min(begin for begin, _ in closed), max(end for _, end in closed)
    inner = max(first, lower or first), min(last, upper or last)
    return inner if inner[0] < inner[1] else (first, last)


def _led_place(text: str, group: tuple[_Phrase, ...]) -> Place:
    """Return the place of a phrase or a pair with the words around it that belong to it."""
    start, end = group[0].start, group[-1].end
    near = max(0, start - _NEAR)
    led = _LED.search(text, near, start)
    if led is None and not _NO_LEAD.search(group[0].asked):
        led = _LEADING.search(text, near, start)
    followed = _FOLLOWED.match(text, end)
    return led.start() if led else start, followed.end() if followed else end


def _full_date(phrases: Sequence[_Phrase]) -> datetime | None:
    """Return the first day that is named with its year."""
    spans = (_span_of(phrase.asked, None) for phrase in phrases)
    return next((span[0] for span in spans if span and span[1] - span[0] == _DAY), None)


def _is_yearless(asked: str) -> bool:
    return asked in _SEASONS or (_NAMES_NO_YEAR.search(asked) is not None and _RELATIVE.search(asked) is None)


def _span_of(asked: str, now: datetime | None) -> _Span | None:
    """Return what `dates` says of a phrase."""
    mentions = find_times(f"this {asked}" if asked in _SEASONS else asked, now, _ZONE)
    return next(((found.start, found.end) for found in mentions if found.start and found.end), None)


def _in_year(asked: str, year: int) -> _Span | None:
    """Return the day, month or season of that name in a year."""
    return _span_of(asked, datetime(year, 7, 2, 12, tzinfo=UTC))  # the middle, so that none is nearer in another one


def _latest(asked: str, reach: datetime) -> _Span | None:
    """Return the latest day, month or season of that name that had begun at `reach`."""
    years = range(reach.year, max(reach.year - _MOST_YEARS, 1) - 1, -1)
    return next((found for year in years if (found := _in_year(asked, year)) and found[0] <= reach), None)


def _earliest(asked: str, begin: datetime) -> _Span | None:
    """Return the earliest day, month or season of that name that does not begin before `begin`."""
    years = range(begin.year, begin.year + _MOST_YEARS + 1)
    return next((found for year in years if (found := _in_year(asked, year)) and found[0] >= begin), None)
