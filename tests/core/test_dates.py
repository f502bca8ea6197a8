from datetime import UTC, date, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.dates import find_times

FRIDAY = datetime(2024, 3, 15, 12, tzinfo=UTC)
SATURDAY = datetime(2024, 3, 16, 12, tzinfo=UTC)


def days(text, said_at=FRIDAY, zone="UTC"):
    """The first and the last day of the one phrase in `text`, as ISO dates."""
    [mention] = find_times(text, said_at, ZoneInfo(zone))
    assert mention.phrase in text and text[mention.place :].startswith(mention.phrase)
    if mention.start is None:
        return None
    first = mention.start.astimezone(ZoneInfo(zone))
    if mention.end is None:
        return first.date().isoformat(), None
    last = date.fromordinal(mention.end.astimezone(ZoneInfo(zone)).date().toordinal() - 1)
    return first.date().isoformat(), last.isoformat()


def test_last_week_is_the_calendar_week_before():
    said = datetime(2023, 5, 24, 20, tzinfo=UTC)
    assert days("I was in Lyon last week", said) == ("2023-05-15", "2023-05-21")


@pytest.mark.parametrize(
    ("phrase", "on_friday", "on_saturday"),
    [
        ("last Friday", "2024-03-08", "2024-03-15"),
        ("next Monday", "2024-03-18", "2024-03-18"),
        ("next Friday", "2024-03-22", "2024-03-22"),
        ("this Friday", "2024-03-15", "2024-03-15"),
        ("this past Friday", "2024-03-08", "2024-03-15"),
        ("上周五", "2024-03-08", "2024-03-08"),
        ("下周一", "2024-03-18", "2024-03-18"),
        ("先週の金曜日", "2024-03-08", "2024-03-08"),
    ],
)
def test_a_named_weekday_follows_its_rule(phrase, on_friday, on_saturday):
    assert days(f"x {phrase} y", FRIDAY) == (on_friday, on_friday)
    assert days(f"x {phrase} y", SATURDAY) == (on_saturday, on_saturday)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("I ran yesterday.", "2024-03-14", "2024-03-14"),
        ("It rained the day before yesterday", "2024-03-13", "2024-03-13"),
        ("See you next week", "2024-03-18", "2024-03-24"),
        ("I was there last month", "2024-02-01", "2024-02-29"),
        ("I moved last year", "2023-01-01", "2023-12-31"),
        ("We met last summer", "2023-06-01", "2023-08-31"),
        ("We met last winter", "2023-12-01", "2024-02-29"),
        ("We go next May", "2024-05-01", "2024-05-31"),
        ("We went last May", "2023-05-01", "2023-05-31"),
        ("Free this weekend?", "2024-03-16", "2024-03-17"),
        ("Last weekend was cold", "2024-03-09", "2024-03-10"),
        ("It began two weeks ago", "2024-02-26", "2024-03-03"),
        ("It began 3 days ago", "2024-03-12", "2024-03-12"),
        ("It began a couple of months ago", "2024-01-01", "2024-01-31"),
        ("It began a few days ago", "2024-03-10", "2024-03-13"),
        ("It ends in two weeks", "2024-03-25", "2024-03-31"),
        ("I slept badly the past three days", "2024-03-12", "2024-03-15"),
        ("It was on 7 May 2023", "2023-05-07", "2023-05-07"),
        ("It was on May 7th, 2023", "2023-05-07", "2023-05-07"),
        ("It was on 2023-05-07", "2023-05-07", "2023-05-07"),
        ("It was in May 2023", "2023-05-01", "2023-05-31"),
        ("I was born in 2019", "2019-01-01", "2019-12-31"),
        ("We moved in the summer of 2022", "2022-06-01", "2022-08-31"),
        ("It was on December 5", "2023-12-05", "2023-12-05"),
        ("I go home in May", "2024-05-01", "2024-05-31"),
        ("I have lived here since 2019", "2019-01-01", None),
        ("我昨天去了里斯本", "2024-03-14", "2024-03-14"),
        ("去年我搬家了", "2023-01-01", "2023-12-31"),
        ("去年夏天很热", "2023-06-01", "2023-08-31"),
        ("两周前开始的", "2024-02-26", "2024-03-03"),
        ("三天后见", "2024-03-18", "2024-03-18"),
        ("上个月开始的", "2024-02-01", "2024-02-29"),
        ("上周末下雨了", "2024-03-09", "2024-03-10"),
        ("2023年5月7日出生", "2023-05-07", "2023-05-07"),
        ("5月7日出生", "2024-05-07", "2024-05-07"),
        ("我last week去了里昂", "2024-03-04", "2024-03-10"),
        ("It began twenty-five years ago", "1999-01-01", "1999-12-31"),
        ("It began thirty five years ago", "1989-01-01", "1989-12-31"),
        ("It began forty-two days ago", "2024-02-02", "2024-02-02"),
        ("It began sixteen days ago", "2024-02-28", "2024-02-28"),
        ("It ends in ninety-nine days", "2024-06-22", "2024-06-22"),
        ("It began over the last twenty-one days", "2024-02-23", "2024-03-15"),
        ("I was away for a week two months ago", "2024-01-01", "2024-01-31"),
        ("2024 年 5 月 7 日出生", "2024-05-07", "2024-05-07"),
        ("2024 年 5 月出生", "2024-05-01", "2024-05-31"),
        ("5 月 7 日出生", "2024-05-07", "2024-05-07"),
        ("二十三天前", "2024-02-21", "2024-02-21"),
        ("3 天前", "2024-03-12", "2024-03-12"),
        ("十二天前", "2024-03-03", "2024-03-03"),
    ],
)
def test_a_phrase_means_an_interval(text, first, last):
    assert days(text) == (first, last)


@pytest.mark.parametrize(
    "text",
    [
        "I may go",
        "we march on",
        "at last we won",
        "1234 people",
        "page 3-4-5",
        "It costs 2019 euros",
        "",
        "😀",
        "我的天",
    ],
)
def test_what_names_no_time_gives_nothing(text):
    assert find_times(text, FRIDAY, ZoneInfo("UTC")) == []


@pytest.mark.parametrize(
    "text",
    [
        "2.5 years ago",
        ".5 years ago",
        "half a year ago",
        "half of a year ago",
        "1,000 days ago",
        "1 000 days ago",
        "2½ days ago",
        "a hundred and five days ago",
        "two hundred twenty-five days ago",
        "one or two weeks ago",
        "5 to 7 days ago",
        "5-7 days ago",
        "a year and two months ago",
        "2 years 3 months ago",
        "两三天前",
        "三四个月前",
        "十几年前",
        "几十年前",
        "一百二十天前",
        "1.5年前",
        "1,000天前",
        "二三十年前",
        "十五六年前",
        "一月十二三日",
        "三到五天前",
        "3-5天前",
        "两年半前",
        "一年零三个月前",
        "一年三个月前",
        "第三天后",
        "2020年前",
    ],
)
def test_a_part_of_a_number_is_no_number(text):
    for said_at in (FRIDAY, None):
        assert all(mention.start is None for mention in find_times(f"x {text} y", said_at, ZoneInfo("UTC")))


@pytest.mark.parametrize("text", ["in a year and a half", "in a year or two", "the last year and a half"])
def test_what_goes_on_after_its_unit_gives_nothing(text):
    assert find_times(text, FRIDAY, ZoneInfo("UTC")) == []


@pytest.mark.parametrize(
    "text",
    ["2000 minutes ago", "in 2000 days", "in 2000 seconds", "in the past 2000 days", "since 1999 weeks", "2000年前"],
)
def test_a_count_is_no_year(text):
    assert all(mention.start is None for mention in find_times(text, None, ZoneInfo("UTC")))


SIGNS = "一二三四五六七八九十两"
WELL_FORMED = {
    **{sign: number for number, sign in enumerate(SIGNS[:9], 1)},
    **{
        f"{tens}十{ones}": 10 * max(1, SIGNS.find(tens) + 1 if tens else 1) + (SIGNS.find(ones) + 1 if ones else 0)
        for tens in ["", *SIGNS[:9]]
        for ones in ["", *SIGNS[:9]]
    },
    "两": 2,
}


@pytest.mark.parametrize("frame", ["{}年前", "{}天后", "一月{}日", "{}月三日", "2024年一月{}日", "{}个月前"])
def test_chinese_numbers_of_any_signs_are_understood_or_left(frame):
    for size in (1, 2, 3):
        for signs in product(SIGNS, repeat=size):
            number = "".join(signs)
            for mention in find_times(frame.format(number), FRIDAY, ZoneInfo("UTC")):
                if number not in WELL_FORMED and frame[0] != "2":
                    assert mention.start is None, number
                elif frame == "{}天后":
                    assert mention.start.date() == FRIDAY.date() + timedelta(days=WELL_FORMED[number])


@pytest.mark.parametrize("text", ["31 February 2023", "9999 years ago", "We meet on Friday", "done by next week"])
def test_what_cannot_be_placed_keeps_its_phrase_alone(text):
    assert days(text) is None


def test_without_a_time_of_saying_only_absolute_phrases_are_placed():
    assert days("I left yesterday", None) is None
    assert days("I left on 7 May 2023", None) == ("2023-05-07", "2023-05-07")


def test_days_are_those_of_the_speakers_zone():
    [mention] = find_times("It was yesterday", datetime(2024, 3, 15, 1, tzinfo=UTC), ZoneInfo("America/New_York"))
    assert mention.start == datetime(2024, 3, 13, 4, tzinfo=UTC)
    assert mention.end == datetime(2024, 3, 14, 4, tzinfo=UTC)


def test_several_phrases_stand_in_order():
    found = find_times("Yesterday I read it, and last Friday too.", FRIDAY, ZoneInfo("UTC"))
    assert [mention.phrase for mention in found] == ["Yesterday", "last Friday"]


WORDS = (
    "last next this the a few two 31 2024 0 of May summer weekend Friday week ago in since twenty and half"
    " 前 上 周 年 月 三 十 日 到 - から まで の 号 of to from between Christmas early 去年 昨日 今週".split()
)


@given(st.lists(st.sampled_from(WORDS)), st.datetimes(timezones=st.just(UTC)), st.sampled_from(["", " "]))
def test_any_text_at_any_time_gives_ordered_intervals(words, said_at, blank):
    text = blank.join(words)
    for mention in find_times(text, said_at, ZoneInfo("Pacific/Auckland")):
        assert mention.phrase in text
        assert mention.start is None or mention.end is None or mention.start < mention.end


ZONES = st.sampled_from(
    [ZoneInfo(name) for name in ("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu")]
    + [ZoneInfo(name) for name in ("America/Santiago", "Pacific/Auckland", "Africa/Cairo", "America/Havana")]
)
ANCHORS = st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
BEFORE = (
    "yesterday|last night|last Friday|last week|last weekend|last month|last summer|last Christmas|two weeks ago|three"
    " hours ago|a few days ago|the other day|昨天|昨晚|上周五|去年|两周前|先週の金曜日|昨夜|3か月前|last May"
).split("|")
WITHIN = (
    "today|this week|this month|this year|今天|这周|今年|今月|since last year|the past three days|earlier this month"
).split("|")
AFTER = (
    "tomorrow|next Monday|next week|next month|in two weeks|next Halloween|明天|下周一|来週の月曜日|3日後|next winter"
).split("|")
WEEKDAYS = (
    "last Friday|next Monday|this Sunday|two Tuesdays ago|上周五|下周一|先週の金曜日|last week|next weekend|上周末"
).split("|")


def one(phrase, said_at, zone):
    [mention] = find_times(phrase, said_at, zone)
    assert mention.phrase == phrase
    return mention


@given(ANCHORS, ZONES)
def test_what_was_before_begins_before_the_moment_of_saying(said_at, zone):
    for phrase in BEFORE:
        mention = one(phrase, said_at, zone)
        assert mention.start < mention.end and mention.start < said_at
        if phrase not in ("last night", "昨晚", "昨夜"):  # before six in the morning these go on
            assert mention.end <= said_at


@given(ANCHORS, ZONES)
def test_what_goes_on_holds_the_moment_of_saying(said_at, zone):
    for phrase in WITHIN:
        mention = one(phrase, said_at, zone)
        assert mention.start <= said_at and (mention.end is None or said_at < mention.end)


@given(ANCHORS, ZONES)
def test_what_comes_begins_after_the_moment_of_saying(said_at, zone):
    for phrase in AFTER:
        mention = one(phrase, said_at, zone)
        assert said_at < mention.start < mention.end


@given(ANCHORS, ZONES, st.integers(-60, 60))
def test_weekdays_said_some_weeks_later_are_those_weeks_later(said_at, zone, weeks):
    local = said_at.astimezone(zone)
    for phrase in WEEKDAYS:
        later = one(phrase, local + timedelta(days=7 * weeks), zone)
        for own, other in zip(ends(one(phrase, local, zone), zone), ends(later, zone), strict=True):
            assert own + timedelta(days=7 * weeks) == other


@pytest.mark.parametrize(
    ("phrase", "said_on", "first"),
    [
        ("next Halloween", "2023-10-31", "2024-10-31"),
        ("last Halloween", "2023-10-31", "2022-10-31"),
        ("next winter", "2023-12-01", "2024-12-01"),
        ("last winter", "2024-02-29", "2022-12-01"),
        ("last winter", "2024-03-01", "2023-12-01"),
        ("this winter", "2024-02-29", "2023-12-01"),
        ("last May", "2024-05-31", "2023-05-01"),
        ("last May", "2024-06-01", "2024-05-01"),
        ("this week", "2024-03-17", "2024-03-11"),
        ("this week", "2024-03-18", "2024-03-18"),
        ("last weekend", "2024-03-17", "2024-03-09"),
        ("a year ago", "2024-02-29", "2023-01-01"),
        ("the past year", "2024-02-29", "2023-02-28"),
        ("on the 31st", "2024-04-15", "2024-03-31"),
        ("5月", "2024-11-15", "2024-05-01"),
    ],
)
def test_what_is_said_on_an_edge(phrase, said_on, first):
    noon = datetime.fromisoformat(said_on).replace(hour=12, tzinfo=UTC)
    assert one(phrase, noon, ZoneInfo("UTC")).start.date().isoformat() == first


def ends(mention, zone):
    return mention.start.astimezone(zone).date(), mention.end.astimezone(zone).date()


@given(st.sampled_from(["yesterday", "today", "tomorrow", "昨天", "明日"]), ANCHORS, ZONES)
def test_a_day_has_the_hours_of_its_zone(phrase, said_at, zone):
    mention = one(phrase, said_at, zone)
    assert mention.end - mention.start in [timedelta(hours=hours) for hours in (23, 23.5, 24, 24.5, 25)]
    day = mention.start.astimezone(zone).date()
    assert (mention.start - timedelta(microseconds=1)).astimezone(zone).date() == day - timedelta(days=1)
    assert (mention.end - timedelta(microseconds=1)).astimezone(zone).date() == day


@pytest.mark.parametrize(("day", "hours"), [(10, 23), (11, 24)])
def test_the_day_on_which_clocks_jump_is_shorter(day, hours):
    mention = one("today", datetime(2024, 3, day, 20, tzinfo=UTC), ZoneInfo("America/New_York"))
    assert mention.end - mention.start == timedelta(hours=hours)


def test_a_day_that_a_zone_skipped_is_unknown():
    said_at = datetime(2011, 12, 31, 20, tzinfo=UTC)  # Samoa went from 29 to 31 December
    assert not one("30 December 2011", said_at, ZoneInfo("Pacific/Apia")).is_placed


@pytest.mark.parametrize("minutes", [30, 90])
def test_an_hour_that_comes_twice_is_the_one_so_long_ago(minutes):
    said_at = datetime(2024, 11, 3, 6, 50, tzinfo=UTC)  # 1:50 for the second time
    mention = one(f"{minutes} minutes ago", said_at, ZoneInfo("America/New_York"))
    assert mention.start == said_at - timedelta(minutes=minutes)


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)), ANCHORS)
def test_a_written_day_is_that_day_whenever_it_is_said(day, said_at):
    written = [day.isoformat(), f"{day.day} {day:%B} {day.year}", f"{day.year}年{day.month}月{day.day}日"]
    for text in written:
        mention = one(text, said_at, ZoneInfo("UTC"))
        assert (mention.start.date(), mention.end.date()) == (day, day + timedelta(days=1))


@given(ANCHORS)
def test_the_29th_of_february_without_a_year_is_in_a_leap_year(said_at):
    mention = one("29 February", said_at, ZoneInfo("UTC"))
    assert not mention.is_placed or (mention.start.month, mention.start.day) == (2, 29)
