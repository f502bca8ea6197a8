from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.config import ExtractConfig
from hgmem_core.embeddings import embed_turns
from hgmem_core.extract import extract
from hgmem_core.ids import episode_id
from hgmem_core.schemas import EPISODE, FACT, INCIDENCE, OUTCOME, conform, embedding_schema
from tests.core.fixtures import HashEncoder, message, turns_of

SIZES = ExtractConfig()
NO_VECTORS = embedding_schema(16).empty()


def episodes_of(turns):
    """One episode for each session."""
    frame = turns.group_by(["namespace", "session_id"], use_threads=False).aggregate(
        [("turn_id", "list"), ("position", "min"), ("position", "max"), ("said_at", "min"), ("said_at", "max")]
    )
    rows = [
        {
            "namespace": row["namespace"],
            "episode_id": episode_id(row["turn_id_list"][0]),
            "session_id": row["session_id"],
            "first_position": row["position_min"],
            "last_position": row["position_max"],
            "turn_ids": row["turn_id_list"],
            "title": "",
            "summary": "",
            "started_at": row["said_at_min"],
            "ended_at": row["said_at_max"],
        }
        for row in frame.to_pylist()
    ]
    return conform(pa.Table.from_pylist(rows, schema=EPISODE.arrow), EPISODE)


def extracted(*messages, config=SIZES, vectors=None):
    turns = turns_of(*messages)
    vectors = embed_turns(turns, HashEncoder(), 8)[0] if vectors is None else vectors
    tables = extract(turns, episodes_of(turns), vectors, config, "english")
    check(turns, *tables)
    return tables


def check(turns, facts, incidences, outcomes):
    """What holds for every log: sources exist and say it, one incidence a fact, one outcome an episode."""
    assert [facts, incidences, outcomes] == [
        conform(table, schema) for table, schema in ((facts, FACT), (incidences, INCIDENCE), (outcomes, OUTCOME))
    ]
    said = dict(zip(turns.column("turn_id").to_pylist(), turns.column("text").to_pylist(), strict=True))
    for fact in facts.to_pylist():
        assert fact["turn_ids"] and set(fact["turn_ids"]) <= set(said)
        assert len(set(fact["turn_ids"])) == len(fact["turn_ids"])
        first = fact["text"].rpartition("\n")[2].partition(": ")[2].partition(" ")[0]
        assert first in said[fact["turn_ids"][0]] or first.startswith("[")
    assert sorted(incidences.column("node_id").to_pylist()) == sorted(facts.column("fact_id").to_pylist())
    assert all(0 <= weight <= 1 for weight in incidences.column("weight").to_pylist())
    assert set(outcomes.column("outcome").to_pylist()) <= {"ok", "empty"}


def texts(tables):
    return sorted(tables[0].column("text").to_pylist())


def only(tables):
    [fact] = tables[0].to_pylist()
    return fact


def joined(tables):
    """The one fact that a question stands in."""
    [fact] = [row for row in tables[0].to_pylist() if "\n" in row["text"]]
    return fact


def test_a_statement_names_its_speaker():
    assert texts(extracted(message("Hey! I moved to Lisbon last week."))) == ["Ana: I moved to Lisbon last week."]


def test_a_question_stands_before_its_answer():
    tables = extracted(message("How is the new flat?", speaker="Bo"), message("Tiny, but lovely.", at=1))
    assert joined(tables)["text"] == "Bo: How is the new flat?\nAna: Tiny, but lovely."
    assert joined(tables)["queries"] == ["How is the new flat?"]
    assert "Ana: Tiny, but lovely." in texts(tables)


def test_the_answering_turn_is_the_better_evidence():
    turns = turns_of(message("Did you buy the flat?", speaker="Bo"), message("Yes!", at=1))
    facts = extract(turns, episodes_of(turns), NO_VECTORS, ExtractConfig(), "english")[0]
    assert facts.column("turn_ids").to_pylist() == [turns.column("turn_id").to_pylist()[::-1]]
    assert facts.column("text").to_pylist() == ["Bo: Did you buy the flat?\nAna: Yes!"]


def test_thanks_do_not_answer_but_what_follows_does():
    tables = extracted(
        message("Congratulations! Where is the flat?", speaker="Bo"),
        message("Thanks!", at=1),
        message("Near the river.", at=2),
    )
    assert texts(tables) == ["Ana: Near the river.", "Bo: Where is the flat?\nAna: Near the river."]


def test_nobody_answers_themselves_and_an_unanswered_question_stays():
    tables = extracted(message("Where is my passport?"), message("The kettle broke.", at=1))
    assert texts(tables) == ["Ana: The kettle broke.", "Ana: Where is my passport?"]
    roles = dict(zip(tables[1].column("node_id").to_pylist(), tables[1].column("role").to_pylist(), strict=True))
    [asked] = [row for row in tables[0].to_pylist() if row["text"].endswith("?")]
    assert roles[asked["fact_id"]] == "context" and asked["confidence"] == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "Wow!",
        "Thanks!",
        "😀🎉",
        "Hey Ana, how are you?",
        "Haha ok",
        "谢谢！",
        "好的，再见",
        "That's great, Ana!",
        "...",
    ],
)
def test_courtesies_state_nothing(text):
    facts, incidences, outcomes = extracted(message(text, speaker="Bo"), message("😀", at=1))
    assert facts.num_rows == incidences.num_rows == 0
    assert outcomes.column("outcome").to_pylist() == ["empty"]


def test_captions_are_part_of_the_statement():
    image = ({"type": "image", "caption": "a painting of a lake"},)
    tables = extracted(message("I painted this.", attachments=image), message("Wow!", at=1, attachments=image))
    assert texts(tables) == [
        "Ana: I painted this. [image: a painting of a lake]",
        "Ana: [image: a painting of a lake]",
    ]


def test_pronouns_are_left_alone():
    assert texts(extracted(message("She gave it to him."), message("He sold the boat.", at=1)))[0] == (
        "Ana: He sold the boat."
    )


def test_a_phrase_is_kept_beside_its_interval():
    fact = only(extracted(message("I was in Lyon last week.", at=0, time_zone="Europe/Paris")))
    assert fact["time_phrase"] == "last week"
    assert fact["valid_from"] == datetime(2024, 2, 18, 23, tzinfo=UTC)
    assert fact["valid_to"] == datetime(2024, 2, 25, 23, tzinfo=UTC)
    assert fact["place"] == "Lyon" and fact["entities"] == ["Lyon"]


def test_the_time_of_a_question_is_the_answers():
    fact = joined(extracted(message("What did you do yesterday?", speaker="Bo"), message("I went hiking.", at=1)))
    assert fact["time_phrase"] == "yesterday" and fact["valid_from"] == datetime(2024, 2, 29, tzinfo=UTC)


def test_without_a_time_a_phrase_stays_and_the_interval_is_unknown():
    fact = only(extracted(message("I was in Lyon last week.", at=None)))
    assert (fact["time_phrase"], fact["valid_from"], fact["valid_to"]) == ("last week", None, None)


@pytest.mark.parametrize(
    ("text", "phrase", "first", "last"),
    [
        ("I saw an owl last night.", "last night", "2024-02-29T18", "2024-03-01T06"),
        ("I have lived in Lyon for two years.", "for two years", "2022-03-01T00", "2024-03-02T00"),
        ("I lived in Lyon until May 2019.", "until May 2019", None, "2019-06-01T00"),
        ("I have lived in Lyon since May 2019.", "since May 2019", "2019-05-01T00", None),
        ("I was in Lyon from 3 to 5 May 2019.", "from 3 to 5 May 2019", "2019-05-03T00", "2019-05-06T00"),
    ],
)
def test_a_fact_holds_as_long_as_its_phrase_says(text, phrase, first, last):
    fact = only(extracted(message(text, at=0)))
    assert fact["time_phrase"] == phrase
    ends = [at and at.strftime("%Y-%m-%dT%H") for at in (fact["valid_from"], fact["valid_to"])]
    assert ends == [first, last]


def test_parts_of_days_are_by_the_speakers_clock():
    fact = only(extracted(message("I saw an owl this morning.", at=0, time_zone="Asia/Tokyo")))
    assert fact["valid_from"] == datetime(2024, 3, 1, 21, tzinfo=UTC)  # six o'clock of 2 March in Tokyo


def test_a_statement_without_a_phrase_holds_from_when_it_was_said():
    fact = only(extracted(message("I like tea.", at=5)))
    assert fact["valid_from"] == datetime(2024, 3, 1, 18, 5, tzinfo=UTC) and fact["valid_to"] is None


def test_entities_are_names_and_not_speakers_days_or_first_words():
    fact = only(
        extracted(
            message('Painting with Mel on Friday: Amy Ellis Nutt wrote "Becoming Nicole" in May, says Google.'),
            message("Nice!", at=1, speaker="Melanie"),
        )
    )
    assert fact["entities"] == ["Becoming Nicole", "Amy Ellis Nutt", "Google"]


def test_keywords_are_words_of_the_text():
    fact = only(extracted(message("My sister Nadia plays the cello in an orchestra.")))
    assert fact["keywords"] == ["Nadia", "sister", "plays", "cello", "orchestra"]


def test_a_long_turn_becomes_several_facts_without_losing_a_sentence():
    sentences = [f"Sentence number {number} tells about thing{number}." for number in range(24)]
    tables = extracted(message(" ".join(sentences)), config=ExtractConfig(max_fact_chars=100, max_turn_facts=64))
    assert len(texts(tables)) > 8 and all(len(text) <= 105 for text in texts(tables))
    assert all(any(sentence in text for text in texts(tables)) for sentence in sentences)
    fewer = extracted(message(" ".join(sentences)), config=ExtractConfig(max_fact_chars=100, max_turn_facts=3))
    assert len(texts(fewer)) <= 3
    assert all(any(sentence in text for text in texts(fewer)) for sentence in sentences)


def test_a_word_longer_than_a_fact_is_cut():
    word = "".join(f"{number:03d}" for number in range(300))
    tables = extracted(message(word), config=ExtractConfig(max_sentence_chars=100))
    assert len(texts(tables)) > 8 and all(len(text) <= 105 for text in texts(tables))


def test_identical_turns_are_one_fact_said_several_times():
    tables = extracted(*[message("The sink is leaking.", at=at) for at in range(3)])
    assert only(tables)["support"] == 3 and len(only(tables)["turn_ids"]) == 3


def test_two_languages_and_thirty_speakers():
    tables = extracted(
        *[message(f"I brought plate {n}.", at=n, speaker=f"Guest{n}") for n in range(30)],
        message("我昨天在里斯本买了一只猫。", at=31, speaker="小明"),
        message("Die Katze heißt Mia.", at=32, speaker="Guest3"),
    )
    assert len(texts(tables)) == 32
    [chinese] = [fact for fact in tables[0].to_pylist() if "里斯本" in fact["text"]]
    assert chinese["time_phrase"] == "昨天"


@pytest.mark.parametrize(
    ("speaker", "text"),
    [
        ("Tom Baker", "I am a baker."),
        ("Art", "I love art."),
        ("Art", "Art, I love art."),
        ("Art", "Art loves the arts."),
    ],
)
def test_a_word_that_is_also_a_name_is_no_name_in_lower_case(speaker, text):
    assert texts(extracted(message(text, speaker=speaker))) == [f"{speaker}: {text}"]


@pytest.mark.parametrize("text", ["Thanks, Tom!", "Hey Baker!", "THANKS TOM"])
def test_a_name_that_is_called_states_nothing(text):
    tables = extracted(message(text), message("Hi", at=1, speaker="Tom Baker"))
    assert texts(tables) == []


def test_roles_of_agents_are_not_names():
    fact = only(extracted(message("The user table has two rows.", speaker=None, role="assistant")))
    assert fact["text"] == "assistant: The user table has two rows." and "user" in fact["keywords"]


def test_weights_follow_the_mean_of_the_episode():
    lines = ["the cat likes warm milk", "the cat likes cold milk", "quarterly invoices remain unpaid"]
    facts, incidences, _ = extracted(*[message(line, at=at) for at, line in enumerate(lines)])
    weights = dict(zip(incidences.column("node_id").to_pylist(), incidences.column("weight").to_pylist(), strict=True))
    by_text = {fact["text"]: weights[fact["fact_id"]] for fact in facts.to_pylist()}
    assert min(by_text, key=by_text.get) == "Ana: quarterly invoices remain unpaid"


def test_missing_vectors_leave_words_to_weigh():
    tables = extracted(message("I like tea."), message("Tea is warm.", at=1), vectors=NO_VECTORS)
    assert tables[1].num_rows == 2


def test_later_sessions_change_no_fact():
    first = [message("Where do you live?", speaker="Bo"), message("In Lisbon, since 2019.", at=1)]
    later = [message("I sold the flat.", at=9_999, session="s2"), message("Lisbon was fun.", at=10_000, session="s2")]
    before, after = extracted(*first)[0].to_pylist(), extracted(*first, *later)[0].to_pylist()
    assert [fact for fact in after if fact in before] == before and len(after) == len(before) + 2


def test_empty_tables_give_empty_tables():
    turns = turns_of(message("x")).slice(0, 0)
    tables = extract(turns, EPISODE.empty(), NO_VECTORS, ExtractConfig(), "english")
    assert [table.num_rows for table in tables] == [0, 0, 0]


PHRASES = [
    "Hi!",
    "I went to Rome yesterday.",
    "Did you see Bo?",
    "Yes.",
    "猫在哪里？",
    "在家。",
    "😀",
    "wow",
    "\n\n",
    "No? Yes!",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(st.sampled_from(PHRASES)), st.sampled_from(["Ana", "Bo", "", None])), min_size=1))
def test_any_talk_gives_facts_with_sources(talk):
    extracted(*[message(" ".join(said), at=at, speaker=who) for at, (said, who) in enumerate(talk)])
