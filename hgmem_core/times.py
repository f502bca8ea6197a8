"""Times of logs, in whatever form a log writes them, as UTC datetimes; nothing here looks at a clock."""

import math
import re
import unicodedata
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

from hgmem_core.config import TimeUnit
from hgmem_core.text import beginning

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Two days within the calendar's ends, so that every time has a date in every zone.
_FIRST = datetime(1, 1, 3, tzinfo=UTC)
_END = datetime(9999, 12, 30, tzinfo=UTC)
_MICROSECONDS: dict[TimeUnit, Decimal] = {
    "s": Decimal(10**6),
    "ms": Decimal(10**3),
    "us": Decimal(1),
    "ns": Decimal("0.001"),
}
# As seconds, 1e11 is the year 5138; as milliseconds it is 1973: no log of chats is on the wrong side.
_SIZES: tuple[tuple[int, TimeUnit], ...] = ((10**11, "s"), (10**14, "ms"), (10**17, "us"))
_LARGEST_NUMBER = 10**21

_MONTH_NAMES = "january february march april may june july august september october november december".split()

_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{0,30})?(?:e[+-]?\d{1,2})?", re.ASCII | re.IGNORECASE)
_COMPACT = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[0-2]\d[0-5]\d[0-5]\d)?", re.ASCII)
_YEAR = re.compile(r"(?:19|20)\d\d", re.ASCII)

_CLOCK = re.compile(
    r"(?<!\d)(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?(?!\d)"
    r"(?:\s*(?P<half>[ap])\.?m\b\.?)?"
    r"(?:\s*(?P<zone>(?:gmt|utc)?[+-]\d\d:?\d\d(?:\s*utc)?|gmt|utc|z)(?![a-z\d:]))?",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?|\b(?:on|at)\b|\([^()]*\)\s*$|[,\s]+|:\s*$",
    re.IGNORECASE,
)
_ORDINAL = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<year>\d{4})[/.-](?P<month>\d{1,2})[/.-](?P<day>\d{1,2})",
        r"(?P<year>\d{4})年 ?(?P<month>\d{1,2})月 ?(?P<day>\d{1,2})日",
        rf"{_ORDINAL}[ /-](?:of )?(?P<name>[a-z]{{3,9}})\.?[ /-](?P<year>\d{{4}})",
        rf"(?P<name>[a-z]{{3,9}})\.? {_ORDINAL} (?P<year>\d{{4}})",
        r"(?P<first>\d{1,2})[/.-](?P<second>\d{1,2})[/.-](?P<year>\d{4})",
    )
)
_ADVICE = "write ISO 8601, such as 2024-05-08T13:56:00+02:00, or a number of seconds since 1970"


def parse_time(value: object, zone: ZoneInfo, unit: TimeUnit = "auto") -> datetime | None:
    """Return `value` as a timezone-aware datetime in UTC, or None where there is none: None and blank text.

    Understood are datetimes and dates, ISO 8601, numbers since 1970 as numbers or text, and the usual written forms
    that can be read in one way only, such as `1:56 pm on 8 May, 2023` or `08/May/2023:13:56:00 +0200`. A date alone
    is its midnight. Eight or fourteen digits that spell a date of 1900 to 2099 are that date where `unit` is `auto`.

    Args:
        value: What the log holds.
        zone: The zone of times that name none. A time that the zone's clocks showed twice is the first of the two,
            and one that they skipped is read with the offset from before the jump (`fold=0` of PEP 495).
        unit: The unit of numbers; `auto` goes by their size: seconds below 1e11, milliseconds below 1e14,
            microseconds below 1e17, nanoseconds above.

    Raises:
        ValueError: The value is not a time, can be read in two ways, or lies outside the years 1 to 9999 or within two
            days of their ends, where it would have no date in some zones.

    >>> parse_time("2024-05-08 13:56", ZoneInfo("Europe/Paris")).isoformat()
    '2024-05-08T11:56:00+00:00'
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _from_text(value, zone, unit)
    if isinstance(value, datetime):
        return _to_utc(value, zone, value)
    if isinstance(value, date):
        return _to_utc(datetime(value.year, value.month, value.day), zone, value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _from_number(value, zone, unit)
    raise ValueError(f"a {type(value).__name__} is not a time; {_ADVICE}")


def _from_number(value: float | Decimal, zone: ZoneInfo, unit: TimeUnit) -> datetime:
    if not isinstance(value, int) and not math.isfinite(value):
        raise ValueError(f"the number {value} is not a time")
    if not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
        raise ValueError("the number is too large for a time in any unit")
    if unit == "auto":
        if isinstance(value, int) and _COMPACT.fullmatch(str(value)):
            return _from_digits(str(value), zone)
        unit = next((name for limit, name in _SIZES if -limit < value < limit), "ns")
    # A float of seconds has fewer exact digits than a datetime: its shortest text is what the log meant.
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    try:
        moment = _EPOCH + timedelta(microseconds=int((exact * _MICROSECONDS[unit]).to_integral_value("ROUND_FLOOR")))
    except OverflowError as error:
        raise ValueError(f"the number {value} in {unit} is a time outside the years 1 to 9999") from error
    return _inside(moment, f"the number {value} in {unit}")


def _from_text(text: str, zone: ZoneInfo, unit: TimeUnit) -> datetime | None:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)  # full-width digits, and the narrow blank before "PM"
    text = text.strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        if unit == "auto" and _COMPACT.fullmatch(text):
            return _from_digits(text, zone)
        if unit == "auto" and _YEAR.fullmatch(text):
            raise ValueError(f"{text!r} may be a year or seconds since 1970; {_ADVICE}, and set time_unit")
        return _from_number(Decimal(text) if "." in text or "e" in text.lower() else int(text), zone, unit)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = _from_words(text)
    return _to_utc(moment, zone, text)


def _from_digits(text: str, zone: ZoneInfo) -> datetime:
    try:
        return _to_utc(datetime.strptime(text, "%Y%m%d" if len(text) == 8 else "%Y%m%d%H%M%S"), zone, text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {error}") from error


def _from_words(text: str) -> datetime:
    """Read a date in words or digits with a clock time somewhere in it; naive unless it names an offset."""
    clock = _CLOCK.search(text) if len(text) <= 100 else None
    rest = f"{text[: clock.start()]} {text[clock.end() :]}" if clock else text
    rest = _FILLER.sub(" ", _FILLER.sub(" ", rest)) if len(rest) <= 100 else rest
    rest = " ".join(rest.split())
    found = next((match for pattern in _DATES if (match := pattern.fullmatch(rest))), None)
    if found is None:
        raise ValueError(f"{_shown(text)} is not a time that is understood; {_ADVICE}")
    try:
        year, month, day = _calendar(found.groupdict())
        moment = datetime(year, month, day)
        return _with_clock(moment, clock.groupdict()) if clock else moment
    except ValueError as error:
        raise ValueError(f"{_shown(text)} is not a time: {error}") from error


def _calendar(parts: dict[str, str | None]) -> tuple[int, int, int]:
    year = int(parts["year"] or 0)
    if "first" in parts:
        first, second = int(parts["first"] or 0), int(parts["second"] or 0)
        if first <= 12 and second <= 12 and first != second:
            raise ValueError(f"its day and month cannot be told apart; {_ADVICE}")
        return (year, first, second) if second > 12 else (year, second, first)
    name = parts.get("name")
    month = int(parts["month"] or 0) if name is None else _month(name.lower())
    return year, month, int(parts["day"] or 0)


def _month(name: str) -> int:
    for number, full in enumerate(_MONTH_NAMES, 1):
        if name in (full, full[:3]) or (name == "sept" and number == 9):
            return number
    raise ValueError(f"{name!r} is not an English month name")


def _with_clock(moment: datetime, parts: dict[str, str | None]) -> datetime:
    hour = int(parts["hour"] or 0)
    if parts["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} is not an hour of a twelve-hour clock")
        hour = hour % 12 + (12 if parts["half"].lower() == "p" else 0)
    fraction = int((parts["fraction"] or "").ljust(6, "0")[:6])
    moment = moment.replace(
        hour=hour, minute=int(parts["minute"] or 0), second=int(parts["second"] or 0), microsecond=fraction
    )
    return moment.replace(tzinfo=_offset(parts["zone"])) if parts["zone"] else moment


def _offset(text: str) -> timezone:
    found = re.search(r"([+-])(\d\d):?(\d\d)", text)
    if found is None:
        return UTC
    span = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(-span if found[1] == "-" else span)


def _to_utc(moment: datetime, zone: ZoneInfo, value: object) -> datetime:
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=zone)
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"the time {value} is outside the years 1 to 9999 in UTC") from error
    return _inside(moment, f"the time {value}")


def _inside(moment: datetime, what: str) -> datetime:
    if not _FIRST <= moment < _END:
        raise ValueError(f"{what} is outside the years 1 to 9999 in some time zone")
    return moment


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else beginning(text, 60) + "…")
