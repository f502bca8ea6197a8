import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.query_analysis import READ_CHARS, analyse_query
from hgmem_core.relate_llm import RELATIONS
from hgmem_core.sub_queries import MOST_SUB_QUERIES

SPEAKERS = ["Ana Lee", "Bo", "user", "小明"]
LOG = (datetime(2022, 3, 10, tzinfo=UTC), datetime(2024, 1, 12, tzinfo=UTC))


def strongest(text):
    intent = analyse_query(text, SPEAKERS).intent
    return RELATIONS[intent.index(max(intent))]


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("When did Ana move?", "temporal"),
        ("How long did Ana live in Lyon?", "temporal"),
        ("How many weeks did the trip last?", "temporal"),
        ("What year was the boat sold?", "temporal"),
        ("小明什么时候搬家的？", "temporal"),
        ("小明在北京住了多久？", "temporal"),
        ("Why did Ana move?", "causal"),
        ("What led to the quarrel?", "causal"),
        ("What was the reason for the move?", "causal"),
        ("What made Ana sell the boat in May 2023?", "causal"),
        ("小明为什么搬家？", "causal"),
        ("搬家的原因是什么？", "causal"),
        ("Who sold the boat?", "entity"),
        ("Whose boat is it?", "entity"),
        ("谁去了北京？", "entity"),
        ("What does Ana cook?", "semantic"),
        ("How does Ana feel about the boat?", "semantic"),
        ("小明喜欢什么？", "semantic"),
        ("boat", "semantic"),
    ],
)
def test_the_intent_leans_to_what_is_asked(text, relation):
    assert strongest(text) == relation


def test_cues_of_two_relations_share_the_weight():
    temporal, semantic, causal, entity = analyse_query("When and why did Ana move?").intent
    assert temporal == pytest.approx(causal) and causal > max(semantic, entity)


def test_a_second_name_adds_to_the_entity_relation():
    one, two = (analyse_query(text, SPEAKERS).intent for text in ("What did Ana sell?", "What did Ana sell to Bo?"))
    assert two[3] > one[3]


def test_a_time_adds_to_the_temporal_relation():
    plain, timed, event = (
        analyse_query(f"What did Ana sell{when}?").intent for when in ("", " in May 2023", " after the move")
    )
    assert timed[0] > plain[0] and event[0] > plain[0]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("When did Ana move?", True),
        ("Where and when did Ana marry?", True),
        ("Do you know when Ana moved?", True),
        ("On what date did Ana move?", True),
        ("小明哪年搬家的？", True),
        ("When Ana was small, where did she live?", False),
        ("What did Ana say when she moved?", False),
        ("How long was the trip?", False),
        ("What did Ana do in May 2023?", False),
    ],
)
def test_it_asks_for_a_time_or_not(text, asks):
    assert analyse_query(text).asks_when is asks


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What did Ana sell?", "en"),
        ("小明什么时候搬家的？", "zh"),
        ("小明去Lyon做什么？", "zh"),
        ("アナはいつ引っ越しましたか", "other"),
        ("東京旅行の計画日程", "other"),
        ("Wann zog Ana um?", "other"),
        ("Когда переехала Анна?", "other"),
        ("Ana", "other"),
        ("", "other"),
    ],
)
def test_the_language_is_told_where_it_can_be(text, language):
    assert analyse_query(text, SPEAKERS).language == language


def test_names_times_and_events_come_together():
    found = analyse_query("What did Bo's aunt show Ana in Lyon after the fair in May?", SPEAKERS, None, LOG)
    assert found.entities == ("Bo", "Ana Lee", "Lyon")
    assert found.speakers == (0, 1)
    assert (found.time_side, found.time_anchor) == ("after", "the fair in May")
    assert (found.time_from, found.time_until) == (datetime(2023, 5, 1, tzinfo=UTC), None)


def test_a_month_is_no_speaker():
    found = analyse_query("What did Bo sow in May?", ["May", "Bo"])
    assert found.speakers == (1,) and found.entities == ("Bo",)


def test_a_role_is_a_speaker_but_no_name():
    found = analyse_query("What did the user tell Bo?", SPEAKERS)
    assert found.speakers == (1, 2) and found.entities == ("Bo",)


def test_the_question_itself_comes_first():
    text = "  What did Ana sell\n in May 2023? "
    found = analyse_query(text, SPEAKERS)
    assert found.sub_queries == (text, "What did Ana sell", "Ana sell")


@pytest.mark.parametrize("name", ["today", "span"])
def test_a_time_without_a_zone_is_refused(name):
    naive = datetime(2024, 1, 1)
    with pytest.raises(ValueError, match=f"{name}: 2024-01-01T00:00:00 has no time zone"):
        analyse_query("When?", **{name: naive if name == "today" else (naive, naive)})


WORDS = (
    "When why who what did Ana Bo's and or before after while since in on the last two weeks ago June May 8 2023"
    " 30 31 Christmas , ? ' \" between from to 小明 什么 去年 搬家 之前 6月 5日 三天前 和 ， 😀 \x00"
    " \ud800 \u202e อานา ΑΝΑ"
).split(" ")


@given(st.one_of(st.text(max_size=80), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)))
def test_any_text_has_an_analysis(text):
    found = analyse_query(text, SPEAKERS, None, LOG)
    assert sum(found.intent) == pytest.approx(1) and min(found.intent) > 0
    assert found.sub_queries[0] == text
    assert len(found.sub_queries) <= 1 + MOST_SUB_QUERIES and all(map(str.strip, found.sub_queries[1:]))
    assert not found.time_from or not found.time_until or found.time_from < found.time_until
    assert (found.time_side is None) == (found.time_anchor is None)
    assert all(0 <= number < len(SPEAKERS) for number in found.speakers)


@pytest.mark.parametrize("text", ["", " \n\t", "😀", "\x00\x1b", "the of and", "?!", "อานาอยู่ที่ไหน"])
def test_what_asks_nothing_says_nothing(text):
    found = analyse_query(text, SPEAKERS, None, LOG)
    assert found.sub_queries == (text,) and found.entities == found.speakers == ()
    assert found.time_from is found.time_until is found.time_anchor is None and not found.asks_when


def test_a_long_text_is_read_up_to_a_bound():
    filler = "Tell me more. " * (READ_CHARS // 14 + 1)
    assert analyse_query("In May 2023? " + filler).time_from == datetime(2023, 5, 1, tzinfo=UTC)
    found = analyse_query(filler + "When did Ana move in May 2023?", SPEAKERS)
    assert found.time_from is None and found.speakers == () and not found.asks_when


@pytest.mark.parametrize(
    "piece", ["What did Ana do in May and June 2023, and why? ", "小明5月到", "the last two ", "Ab "]
)
def test_time_does_not_grow_with_the_text(piece):
    def seconds(size):
        text = (piece * (size // len(piece) + 1))[:size]
        return min(_measured(text) for _ in range(3))

    assert seconds(200_000) < 4 * seconds(4_000) + 0.05


def _measured(text):
    started = time.perf_counter()
    analyse_query(text, SPEAKERS, None, LOG)
    return time.perf_counter() - started
