import tracemalloc
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.consolidate import consolidate, overlaps
from hgmem_core.contradictions import state_of
from hgmem_core.extract import extract
from hgmem_core.schemas import FACT, INCIDENCE, conform, embedding_schema
from hgmem_core.stage_config import ConsolidateConfig, ExtractConfig
from tests.core.fixtures import BEGAN, message, turns_of
from tests.core.test_extract import NO_VECTORS, episodes_of

DAY = 24 * 60


def said(*lines, speaker="Ana", namespace="acme/ana"):
    """Messages of one day each, every one in a session of its own; a tuple names day and text."""
    pairs = [line if isinstance(line, tuple) else (day, line) for day, line in enumerate(lines)]
    return [
        message(text, at=None if day is None else day * DAY, session=f"s{place}", speaker=speaker, namespace=namespace)
        for place, (day, text) in enumerate(pairs)
    ]


def prepared(*messages):
    turns = turns_of(*messages)
    facts, incidences, _ = extract(turns, episodes_of(turns), NO_VECTORS, ExtractConfig(), "english")
    return turns, facts, incidences


def same_vectors(facts):
    """Vectors that call every two facts the same."""
    vectors = np.full((facts.num_rows, 16), 0.25, np.float32)
    return conform(
        pa.table(
            {
                "namespace": facts.column("namespace"),
                "level": pa.array(["fact"] * facts.num_rows, pa.large_string()),
                "node_id": facts.column("fact_id"),
                "variant": pa.array(["base"] * facts.num_rows, pa.large_string()),
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 16),
            }
        ),
        embedding_schema(16),
    )


def consolidated(*messages, vectors=same_vectors):
    turns, facts, incidences = prepared(*messages)
    result = consolidate(facts, vectors(facts), incidences, turns, ConsolidateConfig())
    check(facts, vectors(facts), turns, *result)
    return result


def check(before, vectors, turns, facts, incidences, outcomes):
    """What always holds: one outcome a fact, all support and sources kept, and a second pass that changes nothing."""
    assert outcomes.column("row_id").to_pylist() == before.column("fact_id").to_pylist()
    kinds = outcomes.column("outcome").to_pylist()
    assert kinds.count("empty") == before.num_rows - facts.num_rows
    assert kinds.count("partial") == facts.num_rows - facts.column("superseded_by").null_count
    assert sum(facts.column("support").to_pylist()) == sum(before.column("support").to_pylist())
    assert sources(facts) == sources(before)
    assert set(incidences.column("node_id").to_pylist()) == set(facts.column("fact_id").to_pylist())
    closers = set(facts.column("superseded_by").to_pylist()) - {None}
    assert closers <= set(facts.column("fact_id").to_pylist())
    again = consolidate(facts, vectors, incidences, turns, ConsolidateConfig())
    assert again[0] == facts and again[1] == incidences


def sources(facts):
    return {
        (row["namespace"], turn)
        for row in facts.select(["namespace", "turn_ids"]).to_pylist()
        for turn in row["turn_ids"]
    }


def by_text(tables):
    return {fact["text"].partition(": ")[2]: fact for fact in tables[0].to_pylist()}


def test_an_equal_fact_adds_support_and_lists_both_episodes():
    turns, before, _ = prepared(*said("I like green tea."))
    facts, incidences, outcomes = consolidated(*said("I like green tea.", "i like  green tea."))
    [fact] = facts.to_pylist()
    assert fact["support"] == 2 and len(fact["turn_ids"]) == 2
    assert fact["fact_id"] == before.column("fact_id")[0].as_py()
    assert fact["turn_ids"][0] == turns.column("turn_id")[0].as_py()
    assert len(set(incidences.column("hyperedge_id").to_pylist())) == 2
    assert incidences.column("node_id").to_pylist() == [fact["fact_id"]] * 2
    [merged] = [row for row in outcomes.to_pylist() if row["outcome"] == "empty"]
    assert fact["fact_id"] in merged["reason"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I'm a fan of green tea.", "I am really a fan of the green tea!"),
        ("We do not own a car.", "We don't own a car"),
        ("The shop on our street closed.", "So the shop on our street closed."),
        ("The shop closed, and I'm sad.", "the shop closed and I am really sad"),
    ],
)
def test_near_duplicates_are_one_where_the_vectors_agree(one, other):
    assert len(by_text(consolidated(*said(one, other)))) == 1
    assert len(by_text(consolidated(*said(one, other), vectors=lambda facts: NO_VECTORS))) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ana drinks a cortado.", "Ana drinks a flat white."),
        ("My flat is on floor 3.", "My flat is on floor 4."),
        ("The rent is $50.", "The rent is €50."),
        ("It was 3.5 miles.", "It was 35 miles."),
        ("Nadia called Boris.", "Boris called Nadia."),
        ("The shop opens on 7 May 2023.", "The shop opens on 8 May 2023."),
        ("I own a car.", "I do not own a car."),
        ("I learn C.", "I learn C++."),
        ("I learn C.", "I learn C#."),
        ("I lived in Rome.", "I live in Rome."),
        ("The tests pass.", "The tests pass?"),
        ("我喜欢猫。", "我喜欢狗。"),
        ("I take vitamin A pills.", "I take vitamin pills."),
        ("Sandra Oh won.", "Sandra won."),
        ("Hey Jude is long.", "Jude is long."),
        ("I saw the movie Love Actually.", "I saw the movie Love."),
        ("I speak Polish.", "I speak polish."),
        ("They told US.", "They told us."),
    ],
)
def test_what_differs_in_a_word_is_never_one(one, other):
    assert consolidated(*said(one, other))[0].num_rows == 2


def test_the_same_words_about_two_days_are_two_facts():
    assert consolidated(*said("I ran ten miles yesterday.", "I ran ten miles yesterday."))[0].num_rows == 2
    assert consolidated(*said((None, "I ran yesterday."), (None, "I ran yesterday.")))[0].num_rows == 2


def test_namespaces_do_not_meet():
    tables = consolidated(*said("I like tea."), *said("I like tea.", "I hate tea.", namespace="acme/bo"))
    assert sorted(tables[0].column("support").to_pylist()) == [1, 1, 1]
    mine = [fact for fact in tables[0].to_pylist() if fact["namespace"] == "acme/ana"]
    assert mine[0]["superseded_by"] is None


def test_a_contradiction_closes_the_older():
    facts = by_text(consolidated(*said("I like tea.", "I dislike tea.")))
    old, new = facts["I like tea."], facts["I dislike tea."]
    assert (old["superseded_by"], old["valid_to"]) == (new["fact_id"], new["valid_from"])
    assert new["superseded_by"] is None and new["valid_to"] is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I really love oat milk.", "I don't like oat milk anymore."),
        ("I live in Porto.", "I moved from Porto to Lisbon last week."),
        ("I live in Porto.", "I've just moved from Porto to Lisbon."),
        ("I live in Porto.", "I live in New York now."),
        ("I live in Porto.", "I no longer live in Porto."),
        ("I live in Porto.", "I don't live in Porto anymore."),
        ("Mom lives in Porto.", "Mom now lives in Lisbon."),
        ("I'm based in New York.", "I now live in Lisbon."),
        ("我喜欢咖啡。", "我不喜欢咖啡了。"),
        ("我住在北京。", "我从北京搬到了上海。"),
        ("我住在北京市。", "我现在住在上海。"),
        ("我住在北京。", "我不再住在北京了。"),
    ],
)
def test_states_that_end(one, other):
    facts = consolidated(*said((0, one), (60, other)))[0].to_pylist()
    assert [fact["text"] for fact in facts if fact["superseded_by"]] == [f"Ana: {one}"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I like tea.", "I dislike coffee."),
        ("I like tea.", "I would hate tea."),
        ("I like tea when it rains.", "I hate tea."),
        ("I live in Porto.", "I used to live in Lisbon."),
        ("I live in Porto.", "We moved to Lisbon."),
        ("I live in Porto.", "I live in fear."),
        ("I live in Porto.", "I moved to Lisbon in 2010."),
        ("True love is rare.", "I hate love."),
        ("I live in Lisbon.", "I moved to Google."),
        ("I live in Lisbon.", "I live in Portugal."),
        ("I live in Lisbon.", "I moved to Porto in my twenties."),
        ("I live in Lisbon.", "I moved to Porto in the nineties."),
        ("I live in Lisbon.", "I moved to Porto two decades ago."),
        ("I live in Lisbon.", "I moved to Porto a long time ago."),
        ("I live in Lisbon.", "I moved from Lisbon to Porto in my twenties."),
        ("I live in Lisbon.", "I moved from Lisbon to Porto in 2010."),
        ("I live in Lisbon.", "I moved from Rome to Porto."),
        ("I live in Lisbon.", "I moved from Lisbon to North Lisbon."),
        ("I live in Lisbon.", "I'm living in Porto this week."),
        ("I live in Lisbon.", "I am living in Porto on weekends."),
        ("I live in Lisbon.", "I live in fear now."),
        ("I live in Lisbon.", "I still live in Porto now."),
        ("I live in Lisbon.", "I don't live in Rome anymore."),
        ("I moved to Google.", "I now live in Lisbon."),
        ("我住在北京。", "我搬到了三楼。"),
        ("我住在北京。", "我搬到新办公室了。"),
        ("我住在北京。", "我现在住在三楼。"),
        ("我住在北京。", "我现在住在朝阳区。"),
        ("我住在北京。", "我从上海搬到了广州。"),
        ("I like the first one.", "I don't like the first one."),
        ("I love that place.", "I hate this place."),
        ("I like that one over the river.", "I don't like that one over the river."),
        ("我喜欢这个。", "我不喜欢这个。"),
        ("我喜欢那个。", "我讨厌那个。"),
        ("我喜欢第一个。", "我不喜欢第一个。"),
    ],
)
def test_what_does_not_contradict_closes_nothing(one, other):
    assert consolidated(*said((0, one), (60, other)))[0].column("superseded_by").null_count == 2


def test_other_speakers_do_not_contradict():
    for one, other in [
        ("I like tea.", "I hate tea."),
        ("Mom lives in Lisbon.", "Mom now lives in Porto."),
        ("Mom likes tea.", "Mom hates tea."),
    ]:
        tables = consolidated(*said(one), message(other, at=DAY, session="t", speaker="Bo"))
        assert tables[0].column("superseded_by").null_count == 2


def test_where_nobody_is_named_who_speaks_nothing_is_closed():
    facts = consolidated(*said("Mom likes tea.", "Mom hates tea.", speaker=None))[0]
    assert facts.column("superseded_by").null_count == 2


def test_an_undated_session_takes_no_id_and_closes_nothing():
    dated = said("I like tea.", "Mia plays chess.")
    before = consolidated(*dated)[0].column("fact_id").to_pylist()
    undated = [message(text, at=None, session="a") for text in ("Mia plays chess.", "I hate tea.")]
    facts = consolidated(*dated, *undated)[0]
    assert set(before) < set(facts.column("fact_id").to_pylist()) and facts.num_rows == 3
    assert facts.column("superseded_by").null_count == 3


def test_a_phrase_that_cannot_be_placed_closes_nothing():
    facts = consolidated(*said((0, "I like tea."), (60, "I hate tea half a year ago.")))[0]
    assert facts.column("superseded_by").null_count == 2
    within = [message("I live in Porto.", at=None), message("I moved from Porto to Rome last year.", at=None)]
    assert consolidated(*within)[0].column("superseded_by").null_count == 2


def test_what_comes_back_is_a_new_fact_and_one_is_always_open():
    facts = consolidated(*said("I like tea.", "I hate tea.", "I like tea."))[0].to_pylist()
    ends = sorted((fact["valid_from"], fact["valid_to"]) for fact in facts if fact["valid_to"])
    assert ends == [(BEGAN + timedelta(days=day), BEGAN + timedelta(days=day + 1)) for day in (0, 1)]
    assert [fact["text"] for fact in facts if fact["superseded_by"] is None] == ["Ana: I like tea."]


def test_without_times_nothing_is_closed_across_sessions_but_within_one():
    apart = said((None, "I like tea."), (None, "I hate tea."))
    assert consolidated(*apart)[0].column("superseded_by").null_count == 2
    within = [message("I like tea.", at=None), message("I hate tea.", at=None)]
    facts = by_text(consolidated(*within))
    assert facts["I like tea."]["superseded_by"] == facts["I hate tea."]["fact_id"]
    assert facts["I like tea."]["valid_to"] is None


A, B, C = (datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((A, B), (B, C), False),
        ((A, C), (B, None), True),
        ((A, B), (B, None), False),
        ((None, B), (A, C), True),
        ((None, A), (A, None), False),
        ((None, None), (A, B), True),
        ((None, None), (None, None), True),
        ((A, None), (None, B), True),
        ((B, None), (None, B), False),
        ((A, None), (C, None), True),
    ],
)
def test_null_is_an_open_end(one, other, expected):
    assert overlaps(one, other) is overlaps(other, one) is expected


def test_the_answer_to_a_question_is_whose_state_it_is():
    assert state_of("Bo: Do you like tea?\nAna: I love coffee.").subject == "ana"


LINES = [
    "I like tea.",
    "I hate tea.",
    "I really like tea!",
    "I like the tea.",
    "I live in Porto.",
    "I live in Rome.",
    "I now live in Rome.",
    "I no longer live in Porto.",
    "Bo paid.",
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_does_not_matter_and_later_facts_move_no_id(lines, random):
    messages = said(*lines)
    turns, facts, incidences = prepared(*messages)
    expected = consolidated(*messages)
    shuffled = facts.take(pa.array(random.sample(range(facts.num_rows), facts.num_rows)))
    vectors = same_vectors(facts)
    assert list(consolidate(shuffled, vectors, incidences, turns, ConsolidateConfig())[:2]) == list(expected[:2])
    earlier = consolidated(*messages[:-1])[0] if len(messages) > 1 else FACT.empty()
    assert set(earlier.column("fact_id").to_pylist()) <= set(expected[0].column("fact_id").to_pylist())
    states = [fact for fact in expected[0].to_pylist() if state_of(fact["text"])]
    assert not states or any(fact["superseded_by"] is None for fact in states)


@pytest.mark.parametrize("text", ["I like green tea.", "I like green tea, and the number {}."])
def test_what_is_said_a_thousand_times_takes_no_square_of_memory(text):
    turns, facts, incidences = prepared(*said(*(text.format(number) for number in range(1_200))))
    vectors = same_vectors(facts)
    tracemalloc.start()
    try:
        found, _, _ = consolidate(facts, vectors, incidences, turns, ConsolidateConfig())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.num_rows == (1 if "{}" not in text else 1_200)
    # One number for each pair of facts would take as much in the smallest type of vectors.
    assert peak < 4 * 1_200**2


def test_empty_tables_give_empty_tables():
    turns = turns_of(message("x")).slice(0, 0)
    tables = consolidate(FACT.empty(), NO_VECTORS, INCIDENCE.empty(), turns, ConsolidateConfig())
    assert [table.num_rows for table in tables] == [0, 0, 0]
