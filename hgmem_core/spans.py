"""Half-open spans of calendar days: weeks, weekends, months, seasons and years around a day."""

from datetime import date, timedelta

Span = tuple[date, date]
"""The first day, and the day after the last one."""

SEASON_STARTS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which a season begins: three whole months each, as on the northern hemisphere."""

FEW = (2, 5)
"""What `a few` and `several` are taken to be: from two to five."""


def day(first: date, offset: int = 0) -> Span:
    """Return the day that is `offset` days after `first`."""
    start = first + timedelta(days=offset)
    return start, start + timedelta(days=1)


def week(today: date, offset: int = 0) -> Span:
    """Return the week, Monday to Sunday, that is `offset` weeks after today's.

    >>> week(date(2023, 5, 24), -1)
    (datetime.date(2023, 5, 15), datetime.date(2023, 5, 22))
    """
    monday = today + timedelta(days=7 * offset - today.weekday())
    return monday, monday + timedelta(days=7)


def weekday_of_week(today: date, weekday: int, offset: int = 0) -> Span:
    """Return the `weekday` (Monday is 0) of the week that is `offset` weeks after today's."""
    return day(week(today, offset)[0], weekday)


def weekend(today: date, offset: int = 0) -> Span:
    """Return Saturday and Sunday of the week that is `offset` weeks after today's."""
    saturday = week(today, offset)[0] + timedelta(days=5)
    return saturday, saturday + timedelta(days=2)


def month(year: int, number: int) -> Span:
    """Return a month; `number` may leave 1 to 12 and then counts on into other years.

    >>> month(2024, 0)
    (datetime.date(2023, 12, 1), datetime.date(2024, 1, 1))
    """
    return date(year + (number - 1) // 12, (number - 1) % 12 + 1, 1), date(year + number // 12, number % 12 + 1, 1)


def year(number: int) -> Span:
    """Return a year."""
    return date(number, 1, 1), date(number + 1, 1, 1)


def season(first_year: int, name: str) -> Span:
    """Return the season that begins in `first_year`; winter ends in the next year."""
    start = SEASON_STARTS[name]
    return month(first_year, start)[0], month(first_year, start + 2)[1]


def unit(today: date, name: str, offset: int) -> Span:
    """Return the day, weekend, week, month or year that is `offset` of them after today's."""
    if name == "day":
        return day(today, offset)
    if name == "weekend":
        return weekend(today, offset)
    if name == "week":
        return week(today, offset)
    if name == "month":
        return month(today.year, today.month + offset)
    return year(today.year + offset)


def units(today: date, name: str, count: Span | tuple[int, int], sign: int) -> Span:
    """Return what lies `count` (lowest, highest) units before (`sign` -1) or after (1) today, from end to end."""
    low, high = int(count[0]), int(count[1])  # type: ignore[arg-type]
    ends = unit(today, name, sign * low), unit(today, name, sign * high)
    return min(ends)[0], max(ends)[1]


def window(today: date, name: str, count: int, sign: int) -> Span:
    """Return the `count` days, weeks, months or years that end (`sign` -1) or begin (1) with today."""
    edge = _shift(today, name, sign * count)
    return (edge, today + timedelta(days=1)) if sign < 0 else (today, edge + timedelta(days=1))


def _shift(today: date, name: str, offset: int) -> date:
    if name in ("day", "week", "weekend"):
        return today + timedelta(days=offset * (1 if name == "day" else 7))
    first, after = month(today.year, today.month + offset * (1 if name == "month" else 12))
    return min(first + timedelta(days=today.day - 1), after - timedelta(days=1))


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
    return day(min(days, key=lambda found: abs(found - today)))


def _day(year_number: int, number: int, day_of_month: int) -> date | None:
    first, after = month(year_number, number)
    found = first + timedelta(days=day_of_month - 1)
    return found if first <= found < after else None


def nearest_month(today: date, number: int) -> Span:
    """Return the month `number` nearest to today's, the earlier of two as near."""
    offset = (number - today.month + 6) % 12 - 6
    return month(today.year, today.month + offset)


def last_of(today: date, spans: list[Span]) -> Span:
    """Return the latest of `spans` that was over before today began."""
    return max(span for span in spans if span[1] <= today)


def next_of(today: date, spans: list[Span]) -> Span:
    """Return the earliest of `spans` that begins after today."""
    return min(span for span in spans if span[0] > today)
