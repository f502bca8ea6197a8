from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.times import parse_time

PARIS = ZoneInfo("Europe/Paris")
NOON = datetime(2024, 5, 8, 11, 56, tzinfo=UTC)  # 13:56 in Paris


@pytest.mark.parametrize(
    "value",
    [
        "2024-05-08T13:56:00+02:00",
        "2024-05-08T11:56:00Z",
        "2024-05-08T13:56",
        "2024-05-08 13:56:00",
        "20240508T135600",
        "2024-05-08 11:56:00 UTC",
        "2024-05-08 11:56:00.000 +0000 UTC",
        "1:56 pm on 8 May, 2024",
        "1:56 PM on 8 May 2024",
        "May 8, 2024, 1:56\u202fPM",
        "Wednesday, 8th of May 2024 at 13:56",
        "Wed, 08 May 2024 11:56:00 GMT",
        "Wed May  8 13:56:00 2024",
        "Wed May 08 11:56:00 +0000 2024",
        "Wed May 08 2024 13:56:00 GMT+0200 (Central European Summer Time)",
        "08/May/2024:13:56:00 +0200",
        "2024/05/08 13:56:00",
        "2024年5月8日 13:56",
        "２０２４-05-08 １３：５６",
        "08/May/2024:07:56:00 -0400",
        "20240508135600",
        20240508135600,
        datetime(2024, 5, 8, 13, 56),
        datetime(2024, 5, 8, 7, 56, tzinfo=timezone(timedelta(hours=-4))),
        1715169360,
        1715169360000,
        1715169360000000,
        1715169360000000000,
        1715169360.0,
        Decimal("1715169360"),
        "1715169360",
        " 1715169360.000 ",
    ],
)
def test_one_moment_in_the_forms_of_many_logs(value):
    assert parse_time(value, PARIS, "auto") == NOON


@pytest.mark.parametrize("value", [date(2024, 5, 8), "2024-05-08", "8 May 2024", "20240508", "2024.05.08"])
def test_a_date_is_its_midnight_in_the_zone_of_the_log(value):
    assert parse_time(value, PARIS, "auto") == datetime(2024, 5, 7, 22, tzinfo=UTC)


def test_twelve_o_clock_is_noon_or_midnight():
    assert parse_time("12:30 pm on 8 May, 2024", ZoneInfo("UTC")) == datetime(2024, 5, 8, 12, 30, tzinfo=UTC)
    assert parse_time("12:30 am on 8 May, 2024", ZoneInfo("UTC")) == datetime(2024, 5, 8, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_no_time_is_none(value):
    assert parse_time(value, PARIS, "auto") is None


@pytest.mark.parametrize("value", ["13/05/2024", "05/13/2024", "13.05.2024", "13-05-2024"])
def test_a_day_above_twelve_tells_day_from_month(value):
    assert parse_time(value, ZoneInfo("UTC"), "auto") == datetime(2024, 5, 13, tzinfo=UTC)


@pytest.mark.parametrize("value", ["03/04/2024", "3.4.2024 10:00", "03-04-2024"])
def test_a_day_and_month_that_cannot_be_told_apart_are_refused(value):
    with pytest.raises(ValueError, match="day and month cannot be told apart"):
        parse_time(value, PARIS, "auto")


@pytest.mark.parametrize(
    "value",
    [
        *(
            "tomorrow",
            "last Friday",
            "13:56",
            "8 May 2024 13:56 EST",
            "5/8/24",
            "May 2024",
            "maybe 8 2024",
            "2024-02-30",
        ),
        *(
            "13:56 pm on 8 May 2024",
            "25:00 8 May 2024",
            "nan",
            "inf",
            "None",
            "2024",
            "9" * 5_000,
            "x" * 10_000,
            "1e99",
        ),
        *(float("nan"), float("inf"), Decimal("NaN"), True, b"2024-05-08", ["2024-05-08"], 10**400),
    ],
)
def test_what_is_no_time_is_refused_with_a_message(value):
    with pytest.raises(ValueError, match=r"time") as refusal:
        parse_time(value, PARIS, "auto")
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "value",
    [
        *("0001-01-01", "9999-12-31T23:59:59-05:00", datetime(1, 1, 1), -62_135_596_800),
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-02T23:59:59Z", "9999-12-30T00:00:00Z"),
    ],
)
def test_times_outside_of_the_calendar_are_refused(value):
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        parse_time(value, PARIS, "auto")


def test_every_time_has_a_date_in_every_zone():
    for value in ("0001-01-03T00:00:00Z", "9999-12-29T23:59:59.999999Z"):
        for name in ("America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Etc/GMT+12"):
            assert parse_time(value, PARIS, "auto").astimezone(ZoneInfo(name)).year in (1, 9999)


def test_a_number_outside_of_the_calendar_is_refused():
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        parse_time(10**15, PARIS, "s")
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        parse_time(253_402_300_799, PARIS, "s")


def test_a_stated_unit_is_obeyed_whatever_the_size():
    assert parse_time(20240508, PARIS, "s") == datetime(1970, 8, 23, 6, 21, 48, tzinfo=UTC)
    assert parse_time("1000", PARIS, "ms") == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert parse_time(1_500, PARIS, "ns") == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)


def test_a_clock_time_shown_twice_is_the_first_one():
    assert parse_time("2024-10-27 02:30", PARIS, "auto") == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)


def test_a_clock_time_that_was_skipped_has_the_offset_from_before_the_jump():
    assert parse_time("2024-03-31 02:30", PARIS, "auto") == datetime(2024, 3, 31, 1, 30, tzinfo=UTC)


@given(st.datetimes(datetime(1, 1, 5), datetime(9999, 12, 27), timezones=st.timezones()))
def test_iso_texts_are_read_back_to_the_microsecond(moment):
    parsed = parse_time(moment.isoformat(), PARIS, "auto")
    assert parsed == moment.astimezone(UTC)
    assert parsed.tzinfo is UTC


@given(st.integers(-(10**10), 10**11 - 1), st.sampled_from([("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]))
def test_numbers_in_a_stated_unit_are_exact(seconds, unit):
    assert parse_time(seconds * unit[1], PARIS, unit[0]) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=seconds
    )


@given(st.text(max_size=40) | st.from_regex(r"\A[0-9:/ .,TZ+-]{0,30}\Z"))
def test_any_text_is_a_time_or_a_value_error(text):
    try:
        parsed = parse_time(text, PARIS, "auto")
    except ValueError:
        return
    assert parsed is None or parsed.tzinfo is UTC
