"""Half-open spans of the calendar: parts of days, days, weeks, months, seasons, years and decades around a day."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from types import MappingProxyType
from typing import Literal, NamedTuple

Granularity = Literal[
    "minute", "hour", "part", "day", "weekend", "week", "month", "season", "quarter", "year", "decade"
]
"""How finely a time is named; `part` is a part of a longer unit: a morning, early June, the end of 2021."""


class Span(NamedTuple):
    """A half-open span.

    Attributes:
        start: Its first day, or a moment with a zone.
        end: The day after its last one, or a moment with a zone.
        granularity: How finely it is named.
    """

    start: date
    end: date
    granularity: Granularity


SEASON_STARTS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which a season begins: three whole months each, as on the northern hemisphere."""

FEW = (2, 5)
"""What `a few` and `several` are taken to be: from two to five."""

PARTS_OF_DAY = MappingProxyType({"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 30)})
"""The hours, by the clock, at which the parts of a day begin and end; a night ends at six on the next day."""

# Where the second and the last third of a unit begin, counted from its start.
_THIRDS: MappingProxyType[Granularity, tuple[Literal["day", "month", "year"], int, int]] = MappingProxyType(
    {
        "week": ("day", 2, 4),
        "month": ("day", 10, 20),
        "season": ("month", 1, 2),
        "quarter": ("month", 1, 2),
        "year": ("month", 4, 8),
        "decade": ("year", 4, 7),
    }
)


def day(first: date, offset: int = 0) -> Span:
    """Return the day that is `offset` days after `first`."""
    start = first + timedelta(days=offset)
    return Span(start, start + timedelta(days=1), "day")


def part_of_day(first: date, part: str, zone: tzinfo | None) -> Span:
    """Return the morning, afternoon, evening or night of a day, by the clocks of `zone`."""
    start, end = (
        datetime.combine(first + timedelta(days=hour // 24), time(hour % 24), zone) for hour in PARTS_OF_DAY[part]
    )
    return Span(start, end, "part")


def moment(at: datetime, name: Literal["minute", "hour"]) -> Span:
    """Return the minute or the hour of the clock in which a moment with a zone lies."""
    into = timedelta(minutes=at.minute if name == "hour" else 0, seconds=at.second, microseconds=at.microsecond)
    # Through UTC, since the clocks may show an hour twice.
    start = (at.astimezone(UTC) - into).astimezone(at.tzinfo)
    length = timedelta(hours=1) if name == "hour" else timedelta(minutes=1)
    return Span(start, (start.astimezone(UTC) + length).astimezone(at.tzinfo), name)


def week(today: date, offset: int = 0) -> Span:
    """Return the week, Monday to Sunday, that is `offset` weeks after today's.

    >>> week(date(2023, 5, 24), -1)[:2]
    (datetime.date(2023, 5, 15), datetime.date(2023, 5, 22))
    """
    monday = today + timedelta(days=7 * offset - today.weekday())
    return Span(monday, monday + timedelta(days=7), "week")


def weekday_of_week(today: date, weekday: int, offset: int = 0) -> Span:
    """Return the `weekday` (Monday is 0) of the week that is `offset` weeks after today's."""
    return day(week(today, offset).start, weekday)


def weekday_away(today: date, weekday: int, count: int) -> Span:
    """Return the `count`-th such weekday after today, or before it where `count` is negative.

    >>> weekday_away(date(2024, 3, 15), 4, -1).start  # said on a Friday
    datetime.date(2024, 3, 8)
    """
    if count > 0:
        return day(today, (weekday - today.weekday() - 1) % 7 + 1 + 7 * (count - 1))
    return day(today, (weekday - today.weekday()) % 7 + 7 * count)


def weekend(today: date, offset: int = 0) -> Span:
    """Return Saturday and Sunday of the week that is `offset` weeks after today's."""
    saturday = week(today, offset).start + timedelta(days=5)
    return Span(saturday, saturday + timedelta(days=2), "weekend")


def month(year: int, number: int) -> Span:
    """Return a month; `number` may leave 1 to 12 and then counts on into other years.

    >>> month(2024, 0)[:2]
    (datetime.date(2023, 12, 1), datetime.date(2024, 1, 1))
    """
    start = date(year + (number - 1) // 12, (number - 1) % 12 + 1, 1)
    return Span(start, date(year + number // 12, number % 12 + 1, 1), "month")


def quarter(year: int, number: int) -> Span:
    """Return a quarter of a year, 1 to 4; `number` may count on into other years."""
    return Span(month(year, 3 * number - 2).start, month(year, 3 * number).end, "quarter")


def year(number: int) -> Span:
    """Return a year."""
    return Span(date(number, 1, 1), date(number + 1, 1, 1), "year")


def decade(first_year: int) -> Span:
    """Return ten years."""
    return Span(date(first_year, 1, 1), date(first_year + 10, 1, 1), "decade")


def season(first_year: int, name: str) -> Span:
    """Return the season that begins in `first_year`; winter ends in the next year."""
    start = SEASON_STARTS[name]
    return Span(month(first_year, start).start, month(first_year, start + 2).end, "season")


def unit(today: date, name: str, offset: int) -> Span:
    """Return the day, weekend, week, month, quarter, year or decade that is `offset` of them after today's."""
    if name == "day":
        return day(today, offset)
    if name == "weekend":
        return weekend(today, offset)
    if name == "week":
        return week(today, offset)
    if name == "month":
        return month(today.year, today.month + offset)
    if name == "quarter":
        return quarter(today.year, (today.month + 2) // 3 + offset)
    if name == "decade":
        return decade(today.year // 10 * 10 + 10 * offset)
    return year(today.year + offset)


def units(today: date, name: str, count: tuple[int, int], sign: int) -> Span:
    """Return what lies `count` (lowest, highest) units before (`sign` -1) or after (1) today, from end to end.

    A decade is ten years here: a decade ago is the year ten years ago.
    """
    name, size = ("year", 10) if name == "decade" else (name, 1)
    ends = sorted(unit(today, name, sign * size * number) for number in count)
    return Span(ends[0].start, ends[1].end, ends[0].granularity)


def window(today: date, name: str, count: int, sign: int) -> Span:
    """Return the `count` days, weeks, months or years that end (`sign` -1) or begin (1) with today."""
    edge = _shift(today, name, sign * count)
    granularity = unit(today, name, 0).granularity
    after = timedelta(days=1)
    return Span(edge, today + after, granularity) if sign < 0 else Span(today, edge + after, granularity)


def _shift(today: date, name: str, offset: int) -> date:
    if name in ("day", "week", "weekend"):
        return today + timedelta(days=offset * (1 if name == "day" else 7))
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120}[name]
    whole = month(today.year, today.month + offset * months)
    return min(whole.start + timedelta(days=today.day - 1), whole.end - timedelta(days=1))


def third(whole: Span, number: int) -> Span | None:
    """Return the first (0), second or last (2) third of a span; None of what is not cut so finely.

    >>> third(month(2024, 2), 2)[:2]
    (datetime.date(2024, 2, 21), datetime.date(2024, 3, 1))
    """
    if whole.granularity not in _THIRDS:
        return None
    name, *cuts = _THIRDS[whole.granularity]
    edges = [whole.start, *(_shift(whole.start, name, cut) for cut in cuts), whole.end]
    return Span(edges[number], edges[number + 1], "part")


def named_day(today: date, number: int, day_of_month: int, year_number: int | None) -> Span:
    """Return a day of the month `number`; without a year, the one nearest to today, the earlier of two as near.

    Raises:
        ValueError: There is no such day.
    """
    if year_number is not None:
        return day(date(year_number, number, day_of_month))
    days = [found for offset in (-1, 0, 1) if (found := _day(today.year + offset, number, day_of_month))]
    if not days:
        raise ValueError(f"month {number} has no day {day_of_month}")
    return nearest(today, [day(found) for found in days])


def day_of_month(today: date, number: int) -> Span:
    """Return the day of that number, of whichever month, that is nearest to today, the earlier of two as near.

    Raises:
        ValueError: There is no such day.
    """
    months = (month(today.year, today.month + offset).start for offset in (-2, -1, 0, 1, 2))
    days = [found for first in months if (found := _day(first.year, first.month, number))]
    if not days:
        raise ValueError(f"no month has a day {number}")
    return nearest(today, [day(found) for found in days])


def _day(year_number: int, number: int, day_of_month: int) -> date | None:
    whole = month(year_number, number)
    found = whole.start + timedelta(days=day_of_month - 1)
    return found if whole.start <= found < whole.end else None


def nearest(today: date, spans: list[Span]) -> Span:
    """Return the span that begins nearest to today, the earlier of two as near."""
    return min(spans, key=lambda span: (abs(span.start - today), span.start))


def nearest_month(today: date, number: int) -> Span:
    """Return the month `number` nearest to today's, the earlier of two as near."""
    offset = (number - today.month + 6) % 12 - 6
    return month(today.year, today.month + offset)


def last_of(today: date, spans: list[Span]) -> Span:
    """Return the latest of `spans` that was over before today began."""
    return max(span for span in spans if span.end <= today)


def next_of(today: date, spans: list[Span]) -> Span:
    """Return the earliest of `spans` that begins after today."""
    return min(span for span in spans if span.start > today)


def join(first: Span, last: Span) -> Span:
    """Return all from `first` to `last`, named as finely as the finer of the two.

    Raises:
        ValueError: `last` is over before `first` begins.
    """
    if first.start >= last.end:
        raise ValueError(f"{last.end} is not after {first.start}")
    return Span(first.start, last.end, last.granularity)
