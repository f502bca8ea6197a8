from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.query_time import MOST_TIMES, query_time

LOG = (datetime(2022, 3, 10, tzinfo=UTC), datetime(2024, 1, 12, 18, tzinfo=UTC))


def asked(text, today=None, log=LOG):
    """The first day of which a question speaks, and the first that is too late, as ISO dates."""
    return tuple(bound and bound.date().isoformat() for bound in query_time(text, today, log).bounds)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("What did Ana cook in June 2023?", "2023-06-01", "2023-07-01"),
        ("What did Ana cook on 8 May?", "2023-05-08", "2023-05-09"),
        ("What did Ana cook on 8 May, 2022?", "2022-05-08", "2022-05-09"),
        ("Where was Ana in 2022?", "2022-01-01", "2023-01-01"),
        ("Where was Ana throughout 2022?", "2022-01-01", "2023-01-01"),
        ("Where did Ana swim last summer?", "2023-06-01", "2023-09-01"),
        ("Where did Ana swim over the summer?", "2023-06-01", "2023-09-01"),
        ("Where did Ana swim two weeks ago?", "2023-12-25", "2024-01-01"),
        ("What did Ana get last Christmas?", "2023-12-25", "2023-12-26"),
        ("Who came on New Year's Eve 2022?", "2022-12-31", "2023-01-01"),
        ("What did Ana paint between May and July 2023?", "2023-05-01", "2023-08-01"),
        ("What did Ana paint from November to February 2023?", "2022-11-01", "2023-03-01"),
        ("What did Ana paint between 2019 and 2021?", "2019-01-01", "2022-01-01"),
        ("What did Ana paint from 5 to 9 May 2023?", "2023-05-05", "2023-05-10"),
        ("What did Ana paint in May and July?", "2023-05-01", "2023-08-01"),
        ("Was she ill in May 2023 and in July 2023?", "2023-05-01", "2023-08-01"),
        ("What did Ana read the week before 3 August 2023?", "2023-07-27", "2023-08-03"),
        ("What did Ana read two weeks before 11 August 2023?", "2023-07-24", "2023-07-31"),
        ("What did Ana read on the Sunday after 11 August 2023?", "2023-08-13", "2023-08-14"),
        ("What did Ana finish last Friday on 23 January 2023?", "2023-01-20", "2023-01-24"),
        ("小明去年夏天去了哪里？", "2023-06-01", "2023-09-01"),
        ("小明2023年6月做了什么？", "2023-06-01", "2023-07-01"),
        ("小明6月做了什么？", "2023-06-01", "2023-07-01"),
        ("小明上个月做了什么？", "2023-12-01", "2024-01-01"),
        ("小明三个星期前做了什么？", "2023-12-18", "2023-12-25"),
        ("小明2023年5月到7月做了什么？", "2023-05-01", "2023-08-01"),
        ("小明2022年5月到7月做了什么？", "2022-05-01", "2022-08-01"),
        ("小明2022年11月到2月做了什么？", "2022-11-01", "2023-03-01"),
        ("圣诞节小明做了什么？", "2023-12-25", "2023-12-26"),
    ],
)
def test_a_time_is_an_interval(text, begin, end):
    assert asked(text) == (begin, end)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("What did Ana own before June 2023?", None, "2023-06-01"),
        ("What did Ana own before 2021?", None, "2021-01-01"),
        ("What did Ana own until June 2023?", None, "2023-07-01"),
        ("What had Ana won by 2023?", None, "2024-01-01"),
        ("What did Ana own after 7 July, 2023?", "2023-07-08", None),
        ("What has Ana bought since Christmas?", "2023-12-25", None),
        ("What has Ana bought since March?", "2023-03-01", None),
        ("What has Ana bought since 2019?", "2019-01-01", None),
        ("What changed after May 2023 and before July 2023?", "2023-06-01", "2023-07-01"),
        ("2023年6月之前小明住在哪里？", None, "2023-06-01"),
        ("2020年前小明住在哪里？", None, "2020-01-01"),
        ("去年圣诞节之后小明做了什么？", "2023-12-26", None),
        ("2021年以来小明去过哪里？", "2021-01-01", None),
    ],
)
def test_words_around_a_time_open_one_side(text, begin, end):
    assert asked(text) == (begin, end)


@pytest.mark.parametrize(
    "text",
    [
        "When did Ana move?",
        "小明什么时候搬家的？",
        "What did Ana buy recently?",
        "How far did Ana run in two hours?",
        "What did Ana lose in two weeks?",
        "May I march to the door?",
        "Which of her 2021 photos are blue?",
        "Which Christmas presents did Ana wrap?",
        "What did Ana do on 30 February?",
        "Which book did she read after 2022 and before 2020?",
        "",
    ],
)
def test_without_a_time_nothing_is_said(text):
    assert asked(text) == (None, None)


def test_relative_times_count_from_today_else_from_the_end_of_the_log():
    today = datetime(2025, 7, 2, tzinfo=UTC)
    assert asked("Where did Ana swim last year?", today) == ("2024-01-01", "2025-01-01")
    assert asked("Where did Ana swim last year?") == ("2023-01-01", "2024-01-01")
    assert asked("Where did Ana swim last year?", log=None) == (None, None)
    assert asked("Where did Ana swim in 2023, and last year?", log=None) == ("2023-01-01", "2024-01-01")


def test_a_month_without_a_year_is_the_latest_in_the_log():
    years = (datetime(2021, 6, 20, tzinfo=UTC), datetime(2023, 6, 5, tzinfo=UTC))
    assert asked("What did Ana do in June?", log=years) == ("2023-06-01", "2023-07-01")
    assert asked("What did Ana do in July?", log=years) == ("2022-07-01", "2022-08-01")
    assert asked("What did Ana do in July?", datetime(2025, 9, 1, tzinfo=UTC), years) == ("2022-07-01", "2022-08-01")
    assert asked("What did Ana do in July?", datetime(2022, 1, 1, tzinfo=UTC), years) == ("2021-07-01", "2021-08-01")


@pytest.mark.parametrize(("text", "begin"), [("on 1 January", "2023-01-01"), ("on 31 December", "2023-12-31")])
def test_a_day_at_the_turn_of_the_year_is_of_the_year_that_ends(text, begin):
    assert asked(f"What did Ana do {text}?", datetime(2023, 12, 31, 20, tzinfo=UTC))[0] == begin


def test_a_month_that_the_log_lacks_is_the_nearest():
    winter = (datetime(2023, 1, 3, tzinfo=UTC), datetime(2023, 3, 4, tzinfo=UTC))
    assert asked("What did Ana do in June?", log=winter) == ("2023-06-01", "2023-07-01")
    assert asked("What did Ana do in November?", log=winter) == ("2022-11-01", "2022-12-01")


def test_a_month_without_a_log_has_begun_unless_the_question_looks_ahead():
    today = datetime(2024, 1, 12, tzinfo=UTC)
    assert asked("What did Ana do in June?", today, None) == ("2023-06-01", "2023-07-01")
    assert asked("What will Ana do in June?", today, None) == ("2024-06-01", "2024-07-01")


@pytest.mark.parametrize(
    ("text", "side", "event"),
    [
        ("What did Ana sew before the move?", "before", "the move"),
        ("What did Ana sew after her wedding?", "after", "her wedding"),
        ("After Ana moved to Lyon, what did she buy?", "after", "Ana moved to Lyon"),
        ("After Ana moved to Lyon what did she buy?", "after", "Ana moved to Lyon"),
        ("What did Ana read while Bo was in Rome?", "during", "Bo was in Rome"),
        ("What did Ana say when she moved?", "during", "she moved"),
        ("When Ana was small, where did she live?", "during", "Ana was small"),
        ("How has Ana slept since starting yoga?", "after", "starting yoga"),
        ("What did Ana want after fixing the car on 7 July, 2023?", "after", "fixing the car on 7 July, 2023"),
        ("小明搬家之前住在哪里？", "before", "小明搬家"),
        ("自从搬家以来，她做了什么？", "after", "搬家"),
        ("小明旅行期间看了什么书？", "during", "小明旅行"),
    ],
)
def test_an_event_has_a_side(text, side, event):
    found = query_time(text, None, LOG)
    assert (found.side, found.event) == (side, event)
    assert event in text[slice(*found.event_place)]


@pytest.mark.parametrize(
    "text",
    [
        "When did Ana move and what did she buy?",
        "When and where did Ana marry?",
        "Do you know when she moved?",
        "Who can tell me when she moved?",
        "Who was Ana named after?",
        "Who is the cat named after the river?",
        "What came after that?",
        "What did Ana own before June 2023?",
        "Where did Ana swim during the summer?",
        "小明什么时候搬家的？",
        "以前她住在哪里？",
    ],
)
def test_what_is_no_event_has_no_side(text):
    found = query_time(text, None, LOG)
    assert (found.side, found.event, found.event_place) == (None, None, None)


def test_a_time_within_an_event_bounds_its_side():
    assert asked("What did Ana do after the trip in June 2023?") == ("2023-06-01", None)
    assert asked("What did Ana do before the trip in June 2023?") == (None, "2023-07-01")
    assert asked("What did Ana do during the trip in June 2023?") == ("2023-06-01", "2023-07-01")


def test_the_places_hold_the_words_that_lead_to_a_time():
    def places(text):
        return [text[start:end] for start, end in query_time(text, None, LOG).times]

    assert places("What did Ana paint between May and July 2023 in Lyon?") == ["between May and July 2023"]
    assert places("Where was she in the last two weeks of August 2023?") == ["in the last two weeks of August 2023"]
    assert places("What did Ana take part in last week?") == ["last week"]
    assert places("On Friday, who came?") == ["On Friday"]
    assert places("Which cats and 2021 dogs did Ana draw?") == []


def test_days_are_those_of_utc():
    late = datetime(2024, 5, 1, 1, tzinfo=timezone(timedelta(hours=9)))
    assert asked("What did Ana eat today?", late) == ("2024-04-30", "2024-05-01")


def test_only_the_first_times_of_a_text_are_read():
    text = ", ".join(f"in {2000 + number}" for number in range(2 * MOST_TIMES))
    assert asked(text) == ("2000-01-01", f"{2000 + MOST_TIMES}-01-01")


@pytest.mark.parametrize("year", [1, 9999])
def test_the_ends_of_the_calendar_are_no_trouble(year):
    edge = datetime(year, 6, 1, tzinfo=UTC)
    for text in ("last year", "next year", "in June", "in December", "since the winter", "two weeks before 1 May"):
        query_time(f"What did Ana do {text}?", edge, (edge, edge))


WORDS = (
    "before after until since by between and from to in on the last two next week weeks month June May 8 2023"
    " summer Christmas Friday move trip while , ? When did Ana 之前 之后 去年 夏天 6月 2023年 到 搬家 期间 三 天 前"
    " recently 29 February"
).split()
TIMES = st.none() | st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))


@given(
    st.lists(st.sampled_from(WORDS), max_size=14),
    st.sampled_from(["", " "]),
    TIMES,
    st.none() | st.tuples(TIMES.filter(bool), TIMES.filter(bool)).map(sorted).map(tuple),
)
def test_any_question_has_an_interval_that_is_not_empty_and_places_inside_of_it(words, blank, today, log):
    text = blank.join(words)
    found = query_time(text, today, log)
    begin, end = found.bounds
    assert begin is None or end is None or begin < end
    assert all(0 <= start < stop <= len(text) for start, stop in found.times)
    assert (found.event is None) == (found.side is None) == (found.event_place is None)
    if found.event_place is not None:
        assert found.event and found.event in text[slice(*found.event_place)]
