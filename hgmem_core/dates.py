"""Temporal expressions in English, Chinese and Japanese to intervals, from when and where they were said.

An interval is half-open, in UTC, and begins and ends with whole days of the speaker's zone, or with hours of its clocks
where a part of a day or a clock's hour is named. Weeks begin on Monday. `docs/time.md` is the table of all rules, and
the tests read it. What no rule knows gives nothing; what a rule knows but cannot place keeps its phrase without an
interval: a relative phrase of an unknown time, an ambiguous weekday (`on Friday`), a phrase after `by`, `before` or
`after`, a holiday of the moon, and a phrase whose number is part of another (`2.5 years ago`, `half a year ago`, `one
or two weeks ago`, 两三天前, 十几年前).

Whoever changes what a phrase means raises `hgmem_core.extract.EXTRACT_REVISION`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal
from zoneinfo import ZoneInfo

from hgmem_core import spans
from hgmem_core.dates_chinese import RULES as CHINESE_RULES
from hgmem_core.dates_english import RULES as ENGLISH_RULES
from hgmem_core.dates_japanese import RULES as JAPANESE_RULES
from hgmem_core.spans import Granularity, Span
from hgmem_core.time_ranges import RULES as RANGE_RULES
from hgmem_core.time_rules import TimeRule

_ENGLISH = (*ENGLISH_RULES, *(rule for rule in RANGE_RULES if rule.pattern.flags & re.ASCII))
_ALL = (*ENGLISH_RULES, *CHINESE_RULES, *JAPANESE_RULES, *RANGE_RULES)

# Full-width letters, digits and signs, and the blank of ideographs, one for one.
_HALF_WIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(0x5E)} | {0x3000: 0x20}
# `may` and `march` are verbs, `sun` and `mar` too: a month is written with a capital.
_LOWER_MONTH = re.compile(r"\b(?:may|march|mar|dec|sep)\b")

_NEAR = 40
_THIRD = re.compile(
    r"\b(?:(?P<early>early)|(?P<mid>mid)|(?P<late>late)|(?:the )?(?:very )?"
    r"(?:(?P<beginning>beginning|start)|(?P<middle>middle)|(?P<end>end)) of)(?: in)?[ -](?:the )?$",
    re.IGNORECASE,
)
_THIRD_AFTER = re.compile(
    r"(?:の?年|の)?(?:(?P<early>上旬|初旬|初め(?![てた])|初(?!め))|(?P<mid>中旬|半ば)|(?P<late>下旬|末|底|終わり))"
)
_PART_OF = re.compile(
    r"\b(?:(?:in|on|during) )?the (?P<part>morning|afternoon|evening|night) of (?:the )?$", re.IGNORECASE
)

Side = Literal["bound", "since", "until"]
# How a time is an end of what is meant: the words before it, and those after it.
_SIDES: tuple[tuple[Side, re.Pattern[str], re.Pattern[str]], ...] = (
    (
        "bound",
        re.compile(r"\b(?:by|before|after)\s+(?=(?:the )?$)", re.IGNORECASE),
        re.compile(
            r"以前|之前|以[后後]|之[后後]|までに|の[前後]に?"
            r"|(?<=[年月日号號周週节節])(?:前(?![天年面往半に])|[后後](?![来來天年面半悔に]))"
        ),
    ),
    (
        "since",
        re.compile(r"\b(?:ever )?since\s+(?=(?:the )?$)|(?:自[从從]|(?<!来)[从從自])$", re.IGNORECASE),
        re.compile(r" (?:until|till|to|through) (?:now|today|the present)\b|以[来來]|以降|起(?![床来來飞飛])|から"),
    ),
    (
        "until",
        re.compile(r"\b(?:until|till|til)\s+(?=(?:the )?$)|(?:直到|截至|截止)$", re.IGNORECASE),
        re.compile(r"[为為]止|まで"),
    ),
)
# A phrase means the same at both only if it means so at any time.
_ANY_TIMES = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2157, 8, 20, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class TimeMention:
    """A phrase that names a time.

    Attributes:
        phrase: The phrase as written.
        place: Where it begins in the text.
        start: When the interval begins, in UTC; None beside an `end` means that it was always so until then, None
            beside none that the time cannot be said.
        end: When it is over; None beside a `start` means that it goes on.
        granularity: How finely the phrase names it; None where it cannot be placed.
        core_place: Where the phrase begins without the words that make it one end, such as `since`.
        core: The phrase without them.
    """

    phrase: str
    place: int
    start: datetime | None
    end: datetime | None
    granularity: Granularity | None
    core_place: int
    core: str

    @property
    def is_placed(self) -> bool:
        """Whether at least one end is known."""
        return self.granularity is not None


def find_times(text: str, said_at: datetime | None, zone: ZoneInfo) -> list[TimeMention]:
    """Return the temporal expressions of `text` in order, without overlaps: the earlier and longer one wins.

    Args:
        text: What was said, in English, Chinese, Japanese or a mixture.
        said_at: When, with a zone; None where unknown.
        zone: Where: its days are the days that are meant.

    >>> [mention] = find_times("I was in Lyon last week", datetime(2023, 5, 24, 12, tzinfo=UTC), ZoneInfo("UTC"))
    >>> mention.phrase, str(mention.start.date()), str(mention.end.date()), mention.granularity
    ('last week', '2023-05-15', '2023-05-22', 'week')
    """
    is_ascii = text.isascii()
    plain = text if is_ascii else text.translate(_HALF_WIDTH)
    found: list[tuple[int, int, re.Match[str], TimeRule]] = []
    lowered = plain.lower()
    for rule in _ENGLISH if is_ascii else _ALL:
        if any(trigger in lowered for trigger in rule.triggers):
            found += [(match.start(), -match.end(), match, rule) for match in rule.pattern.finditer(plain)]
    if not found:
        return []
    found.sort(key=lambda item: item[:2])
    mentions = []
    reached = 0
    for start, _, match, rule in found:
        if start >= reached and not _LOWER_MONTH.search(match[0]) and rule.fits(match):
            phrase = _Phrase.of(plain, match, reached)
            reached = phrase.end
            mentions.append(_mention(text, phrase, match, rule, said_at, zone))
    return mentions


def granularity(phrase: str) -> Granularity | None:
    """Return how finely the phrase of a fact names its time; None for a phrase that is not understood.

    >>> granularity("early June"), granularity("last Friday"), granularity("some day")
    ('part', 'day', None)
    """
    found = find_times(phrase, datetime(2024, 3, 15, 12, tzinfo=UTC), ZoneInfo("UTC"))
    return next((mention.granularity for mention in found if mention.is_placed), None)


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A match with the words around it that say which side or which part of its time is meant.

    Attributes:
        start: Where it begins.
        end: Where it is over.
        core_start: Where it begins without a side.
        core_end: Where it is over without a side.
        third: Which third is meant; None for the whole.
        part: Which part of the day is meant; None for the whole.
        side: How its time is an end of what is meant; None for the time itself.
    """

    start: int
    end: int
    core_start: int
    core_end: int
    third: int | None
    part: str | None
    side: Side | None

    @classmethod
    def of(cls, plain: str, match: re.Match[str], reached: int) -> "_Phrase":
        """Read the words around a match, after `reached`."""
        start = match.end("lead") if match.groupdict().get("lead") else match.start()
        end = match.end()
        third = part = None
        if led := _THIRD.search(plain, max(reached, start - _NEAR), start):
            third, start = _which_third(led), led.start()
        elif led := _PART_OF.search(plain, max(reached, start - _NEAR), start):
            part, start = led["part"].lower(), led.start()
        if followed := _THIRD_AFTER.match(plain, end):
            third, end = _which_third(followed), followed.end()
        for side, before, after in _SIDES:
            led, followed = before.search(plain, max(reached, start - _NEAR), start), after.match(plain, end)
            if led or followed:
                core = led.end() if led else min(start, match.start()), end
                if side == "bound":
                    return cls(*core, *core, third, part, side)
                return cls(
                    led.start() if led else core[0], followed.end() if followed else end, *core, third, part, side
                )
        start = min(start, match.start())
        return cls(start, end, start, end, third, part, None)


def _which_third(led: re.Match[str]) -> int:
    named = next(name for name, text in led.groupdict().items() if text is not None)
    return {"early": 0, "beginning": 0, "mid": 1, "middle": 1}.get(named, 2)


def _mention(
    text: str, phrase: _Phrase, match: re.Match[str], rule: TimeRule, said_at: datetime | None, zone: ZoneInfo
) -> TimeMention:
    shown = text[phrase.start : phrase.end]
    core = (phrase.core_start, text[phrase.core_start : phrase.core_end])
    span = None if phrase.side == "bound" else _span(phrase, match, rule, said_at, zone)
    if span is None:
        return TimeMention(shown, phrase.start, None, None, None, *core)
    start = None if phrase.side == "until" else _utc(span.start, zone)
    end = None if phrase.side == "since" else _utc(span.end, zone)
    return TimeMention(shown, phrase.start, start, end, span.granularity, *core)


def _span(
    phrase: _Phrase, match: re.Match[str], rule: TimeRule, said_at: datetime | None, zone: ZoneInfo
) -> Span | None:
    """Return what a match means; where nobody knows when it was said, only what is the same at any time."""
    try:
        found = [_resolved(phrase, match, rule, now.astimezone(zone)) for now in ([said_at] if said_at else _ANY_TIMES)]
        first = found[0]
        # Not where no time of that zone lies within: its clocks may skip a day.
        is_known = first is not None and found.count(first) == len(found)
        return first if is_known and first and _utc(first.start, zone) < _utc(first.end, zone) else None
    except (ValueError, OverflowError):  # no such day, or a year outside 1 to 9999
        return None


def _resolved(phrase: _Phrase, match: re.Match[str], rule: TimeRule, now: datetime) -> Span | None:
    whole = rule.resolve(match, now)
    if whole is None:
        return None
    if phrase.third is not None:
        return spans.third(whole, phrase.third) or whole
    return (
        spans.part_of_day(whole.start, phrase.part, now.tzinfo) if phrase.part and whole.granularity == "day" else whole
    )


def _utc(at: date, zone: ZoneInfo) -> datetime:
    return (at if isinstance(at, datetime) else datetime(at.year, at.month, at.day, tzinfo=zone)).astimezone(UTC)
