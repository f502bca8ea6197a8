import time
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.embeddings import embed_turns
from hgmem_core.ids import episode_id
from hgmem_core.schemas import EPISODE, OUTCOME, embedding_schema
from hgmem_core.segment import segment
from hgmem_core.stage_config import SegmentConfig
from tests.core.fixtures import HashEncoder, message, turns_of

ENCODER = HashEncoder()
NO_VECTORS = embedding_schema(16).empty()
SAID = [
    "tea",
    "I like tea with lemon",
    "do you play the violin?",
    "yes, since school",
    "what about that?",
    "🙂🙂",
    "雨が降る",
]
SAID += ["The garden needs rain. The roses are dry!", "你喜欢茶吗？", "...", "seven tickets to Lisbon", "haha " * 30]


def episodes_of(*messages, **settings):
    turns = turns_of(*messages)
    vectors = embed_turns(turns, ENCODER, 32)[0] if turns.num_rows else NO_VECTORS
    config = SegmentConfig(**settings)
    episodes, outcomes = segment(turns, vectors, config, "english")
    check(turns, episodes, outcomes, config)
    return sorted(episodes.to_pylist(), key=lambda row: (row["namespace"], row["session_id"], row["first_position"]))


def check(turns, episodes, outcomes, config):
    """What holds for any log."""
    assert (episodes.schema, outcomes.schema) == (EPISODE.arrow, OUTCOME.arrow)
    assert sorted(outcomes.column("row_id").to_pylist()) == sorted(turns.column("turn_id").to_pylist())
    assert set(outcomes.column("outcome").to_pylist()) <= {"ok"}
    by_id = {row["turn_id"]: row for row in turns.to_pylist()}
    rows = episodes.to_pylist()
    told = [turn for row in rows for turn in row["turn_ids"]]
    assert sorted(told) == sorted(by_id)
    for row in rows:
        own = [by_id[turn] for turn in row["turn_ids"]]
        assert {(turn["namespace"], turn["session_id"]) for turn in own} == {(row["namespace"], row["session_id"])}
        assert [turn["position"] for turn in own] == list(range(row["first_position"], row["last_position"] + 1))
        times = [turn["said_at"] for turn in own if turn["said_at"]]
        assert (row["started_at"], row["ended_at"]) == ((min(times), max(times)) if times else (None, None))
        assert row["episode_id"] == episode_id(row["turn_ids"][0])
        assert len(own) <= config.max_turns
        assert len(own) == 1 or sum(len(turn["text"].encode()) // 4 + 1 for turn in own) <= config.max_tokens
        assert all(late - early <= timedelta(hours=config.max_idle_hours) for early, late in pairwise(times))
        assert len(row["title"]) <= 80
        assert len(row["summary"]) <= 400


def lengths(episodes):
    return [len(row["turn_ids"]) for row in episodes]


@st.composite
def logs(draw):
    """Messages of up to three sessions in two namespaces, with or without times; texts of every kind."""
    chosen = draw(st.lists(st.tuples(st.sampled_from(SAID), st.integers(0, 3), st.integers(0, 500)), max_size=40))
    timed = draw(st.booleans())
    return [
        message(
            text,
            at=sum(pause for _, _, pause in chosen[: number + 1]) if timed else None,
            speaker=("Ana", None, "Bo")[number % 3],
            session=f"s{where}",
            namespace=("acme/ana", "acme/bo")[where % 2],
            source_id=str(number),
            sequence=number,
        )
        for number, (text, where, _) in enumerate(chosen)
    ]


@settings(deadline=None, max_examples=60)
@given(logs(), st.integers(1, 8), st.integers(16, 80), st.integers(1, 6))
def test_episodes_cut_every_session_within_the_caps(messages, max_turns, max_tokens, max_idle_hours):
    episodes_of(
        *messages, max_turns=max_turns, max_tokens=max_tokens, max_idle_hours=float(max_idle_hours), threshold=0.9
    )


@settings(deadline=None, max_examples=60)
@given(logs(), st.integers(0, 40), st.integers(2, 8))
def test_later_turns_and_sessions_change_no_earlier_episode(messages, kept, max_turns):
    before = episodes_of(*messages[:kept], max_turns=max_turns)
    after = episodes_of(*messages, max_turns=max_turns)
    assert {row["episode_id"] for row in before} <= {row["episode_id"] for row in after}
    last = {(row["namespace"], row["session_id"]): row["episode_id"] for row in before}
    unchanged = [row for row in before if last[row["namespace"], row["session_id"]] != row["episode_id"]]
    assert all(row in after for row in unchanged)


def test_other_sessions_and_namespaces_change_nothing():
    own = [message(text, number, source_id=str(number)) for number, text in enumerate(SAID * 3)]
    other = [message("lemon tea?", number, session=name, source_id=str(number)) for name in "ab" for number in range(5)]
    elsewhere = [message("rain", number, namespace="a/a", source_id=str(number)) for number in range(9)]
    together = episodes_of(*other, *own, *elsewhere)
    assert [row for row in together if (row["namespace"], row["session_id"]) == ("acme/ana", "s1")] == episodes_of(*own)


def test_a_new_subject_begins_an_episode():
    tea = ["I drink green tea every morning", "green tea with lemon every morning", "my morning tea is green too"]
    violin = ["do you play the violin at school?", "violin at school since March", "the school violin is old"]
    found = episodes_of(*(message(text, None, source_id=str(at), sequence=at) for at, text in enumerate(tea + violin)))
    assert lengths(found) == [3, 3]
    assert "tea" in found[0]["title"]
    assert "violin" in found[1]["title"]


def test_words_alone_serve_where_there_are_no_vectors():
    said = ["green tea", "green tea and lemon", "lemon and green tea", "does your sister play violin?", "violin, yes"]
    turns = turns_of(*(message(text, None, source_id=str(at), sequence=at) for at, text in enumerate(said)))
    episodes, outcomes = segment(turns, NO_VECTORS, SegmentConfig(), "english")
    check(turns, episodes, outcomes, SegmentConfig())
    assert sorted(episodes.column("first_position").to_pylist()) == [0, 3]


def test_silence_begins_an_episode_and_a_pause_speaks_for_one():
    def cut_after(minutes, **settings):
        times = [0, 1, 2, 2 + minutes, 3 + minutes, 4 + minutes]
        messages = (message("green tea with lemon", at, source_id=str(at)) for at in times)
        return lengths(episodes_of(*messages, **settings)) == [3, 3]

    assert cut_after(361)
    assert not cut_after(361, max_idle_hours=7.0, time_weight=0.0)
    assert cut_after(10, max_idle_hours=0.1)
    assert not cut_after(29)
    assert cut_after(29, pause_minutes=2.0)


def test_a_full_episode_ends_at_the_greatest_break_of_its_second_half():
    said = ["green tea"] * 7 + ["old violin"] + ["old violin"] * 7
    messages = [message(text, None, source_id=str(at), sequence=at) for at, text in enumerate(said)]
    assert lengths(episodes_of(*messages, max_turns=10, threshold=0.999)) == [7, 8]


def test_a_turn_above_the_cap_on_tokens_is_an_episode_of_its_own():
    said = ["tea", "so " * 200, "tea"]
    messages = [message(text, None, source_id=str(at), sequence=at) for at, text in enumerate(said)]
    assert lengths(episodes_of(*messages, max_tokens=16)) == [1, 1, 1]


def test_what_a_tool_returns_stays_with_its_call():
    roles = ["user", "assistant", "tool", "assistant"] * 5
    said = ["can you find flights to Oslo?", "looking", "SAS 12:40", "There is one at 12:40"]
    found = episodes_of(
        *(message(said[at % 4], at, speaker=None, role=role, source_id=str(at)) for at, role in enumerate(roles)),
        threshold=0.01,
        min_turns=1,
    )
    assert len(found) > 1
    assert all(row["first_position"] % 4 != 2 for row in found)


@pytest.mark.parametrize("text", ["tea", "🙂", "...", "你好"])
def test_identical_turns_fill_episodes_to_the_cap(text):
    messages = [message(text, None, source_id=str(at), sequence=at) for at in range(100)]
    assert lengths(episodes_of(*messages)) == [40, 40, 20]


def test_one_turn_sessions_and_a_namespace_of_one_episode():
    assert lengths(episodes_of(*(message("tea", at, session=f"s{at}") for at in range(5)))) == [1] * 5
    (only,) = episodes_of(message("I moved to Lisbon.", speaker="Ana"))
    assert (only["title"], only["summary"]) == ("I moved to Lisbon.", "Ana: I moved to Lisbon.")


def test_an_empty_bucket():
    assert episodes_of() == []


def test_an_attachment_alone_is_summed_up_by_its_caption():
    (only,) = episodes_of(message("", attachments=({"type": "image", "caption": "a red kite"},)))
    assert only["summary"] == "Ana: [image: a red kite]"


def test_thirty_speakers_and_two_languages():
    said = [*SAID, "茶が好きです。", "昨日は雨でした。"]
    messages = [message(said[at % len(said)], at, speaker=f"P{at % 30}", source_id=str(at)) for at in range(300)]
    assert sum(lengths(episodes_of(*messages))) == 300


def test_a_session_of_ten_thousand_turns_is_near_linear():
    def seconds(size):
        rng = np.random.default_rng(0)
        said = [
            " ".join(rng.choice("tea rain violin seven garden ticket Lisbon bread you ?".split(), 8))
            for _ in range(size)
        ]
        turns = turns_of(*(message(text, at, source_id=str(at)) for at, text in enumerate(said)))
        vectors = embed_turns(turns.slice(0, 200), ENCODER, 32)[0]  # the others have none
        began = time.process_time()
        episodes, _ = segment(turns, vectors, SegmentConfig(), "english")
        assert sum(map(len, episodes.column("turn_ids").to_pylist())) == size
        return time.process_time() - began

    seconds(100)
    assert seconds(10_000) < 20 * max(seconds(1_000), 0.05)
