"""What a memory has on a question, on a small talk of two."""

from datetime import timedelta

import numpy as np
import pytest

from hgmem_core.evidence import find_evidence
from tests.core.fixtures import BEGAN, HashEncoder, message, query_of, reader_of, turns_of

ENCODER = HashEncoder()
TEXTS = (
    "I moved to Lisbon and I bought a violin.", "Wow, you bought a violin! Do you play your violin?",
    "I sold my boat.", "Your boat was old, you told me.",
    "We grow lemons.", "My sister bakes bread.",
)  # fmt: skip


@pytest.fixture(scope="module")
def talk():
    return index_of(TEXTS, ("Ana", "Bo"))


def index_of(texts, speakers):
    messages = [
        message(text, at=60 * 24 * 40 * (place // 4) + place, speaker=speakers[place % len(speakers)])
        for place, text in enumerate(texts)
    ]
    return reader_of(turns_of(*messages), ENCODER).open("acme/ana")


def found(index, text, passes=None, as_of=None):
    return find_evidence(index, query_of(text, ENCODER), passes, as_of)


def features(index, text):
    return found(index, text).features


def test_the_side_of_the_speaker_named_is_compared_with_the_others(talk):
    of_ana, of_bo = (features(talk, f"Did {name} move to Lisbon?") for name in ("Ana", "Bo"))
    for name in ("words", "one turn", "turns", "together"):
        assert of_ana[f"speaker/{name}"] > 0
        assert of_ana[f"speaker/{name}"] == -of_bo[f"speaker/{name}"]
    assert of_ana["speaker/named"] == of_bo["speaker/named"] == 1
    assert (of_ana["terms/one turn"], of_bo["terms/one turn"]) == (1, 0)


def test_the_name_of_a_speaker_is_no_word_to_be_found(talk):
    by_name, without = (features(talk, text) for text in ("Did Ana move to Lisbon?", "Did she move to Lisbon?"))
    for name in ("match/words", "match/window", "terms/known"):
        assert by_name[name] == without[name] > 0


@pytest.mark.parametrize("text", ["Who has a violin?", "Do Ana and Bo have a violin?", "Did Zoe buy a violin?"])
def test_a_question_about_no_one_speaker_compares_nothing(talk, text):
    evidence = found(talk, text)
    assert (evidence.asked, evidence.other) == (None, None)
    compared = {name: value for name, value in evidence.features.items() if name.startswith("speaker/")}
    assert compared.pop("speaker/best") == 1
    assert set(compared.values()) == {0}


def test_somebody_elses_better_match_is_named(talk):
    assert found(talk, "When did Bo move to Lisbon?").other == "Ana"
    assert found(talk, "When did Ana move to Lisbon?").other is None
    assert found(talk, "When did Bo move to Lisbon?").asked == "Bo"


def test_turns_that_speak_of_the_listener_tell_nothing_of_the_speaker(talk):
    assert found(talk, "Does Ana play the violin?").is_told
    of_ana, of_bo = (features(talk, f"What did {name} say of the violin?") for name in ("Ana", "Bo"))
    assert of_ana["telling/of speaker"] == of_bo["telling/of speaker by others"]
    assert of_ana["telling/of listener by others"] == of_bo["telling/of listener"]
    only_replies = index_of((TEXTS[0], TEXTS[1], TEXTS[2], TEXTS[3]), ("Ana", "Bo"))
    assert not found(only_replies, "Does Bo play the violin?").is_told


def test_the_rarest_term_that_is_missing_is_told_as_the_question_writes_it(talk):
    evidence = found(talk, "Did Ana buy the Violins in Kathmandu?")
    assert (evidence.missing, evidence.is_unknown) == ("Kathmandu", True)
    assert evidence.features["terms/known"] < 1
    evidence = found(talk, "Does Ana bake?")
    assert (evidence.missing, evidence.is_unknown) == ("bake", False)
    assert found(talk, "Has Ana a violin?").missing is None


def test_best_turns_of_another_time_are_outside(talk):
    inside, outside, untimed = (
        found(talk, f"Who bought a violin{when}?") for when in (" in March 2024", " in 2019", "")
    )
    assert not inside.is_outside
    assert outside.is_outside
    assert not untimed.is_outside
    assert inside.features["time/best"] > outside.features["time/best"] == 0
    assert (inside.features["time/asked"], untimed.features["time/asked"]) == (1, 0)


def test_only_turns_that_pass_are_looked_at(talk):
    of_bo = np.array([speaker == "Bo" for speaker in talk.column("speaker").to_pylist()])
    assert found(talk, "a boat sold to Lisbon").features["terms/known"] == 1
    assert found(talk, "a boat sold to Lisbon", of_bo).features["terms/known"] < 1
    assert found(talk, "When did Bo move to Lisbon?", of_bo).asked is None


def test_relative_times_count_from_as_of(talk):
    early, late = (
        found(talk, "Who bought a violin yesterday?", None, BEGAN + timedelta(days=days)) for days in (1, 90)
    )
    assert not early.is_outside
    assert late.is_outside


@pytest.mark.parametrize(
    ("texts", "speakers"),
    [
        (("Tea.",), ("Ana",)),
        (("Tea.", "Tea."), ("Ana", "Bo")),
        (("Tea.", "Rain."), (None,)),
        (("?", "!"), ("Ana", None)),
        (("我喜欢茶。", "你喜欢茶吗?"), ("小明", "李华")),
    ],
)
@pytest.mark.parametrize("text", ["Does Ana drink tea?", "tea", "小明喜欢什么茶?", "Qüzzü", "?"])
def test_evidence_is_finite_and_of_one_layout_whatever_the_memory(talk, texts, speakers, text):
    evidence = features(index_of(texts, speakers), text)
    assert np.isfinite(list(evidence.values())).all()
    assert tuple(evidence) == tuple(features(talk, "tea"))
