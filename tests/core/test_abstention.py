"""Abstention: the model, its training, its calibration and its reasons."""

from dataclasses import replace

import numpy as np
import pytest

from hgmem_core.abstention import Abstainer, AbstainerError, abstainer_of, nothing_found, probabilities
from hgmem_core.abstention_training import AbstentionTrainingError, train_abstainer
from hgmem_core.evidence import Evidence

NAMES = ("speaker/words", "telling/of speaker", "terms/known", "time/best", "match/words", "question/when")
PLAIN = Evidence(dict.fromkeys(NAMES, 0.0), "Ana", None, True, None, False, False)


def evidence(known=PLAIN, **values):
    """Evidence with some features given by their aspects."""
    given = {name: value for name in NAMES for aspect, value in values.items() if name.startswith(f"{aspect}/")}
    return replace(known, features={**known.features, **given})


def abstainer(**changes):
    ones = np.ones(len(NAMES))
    return replace(Abstainer(NAMES, 0 * ones, ones, ones, 0.0), **changes)


def questions(size=600, seed=0):
    """Two features of six that tell labels apart by known odds, in six conversations."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(size, len(NAMES))) * [1, 1, 5, 1, 0.1, 1] + [0, 3, 0, 0, 0, -2]
    odds = 1.0 + 1.5 * rows[:, 0] - 0.3 * rows[:, 2]
    labels = generator.random(size) < probabilities(odds)
    return rows, labels, [f"c{place % 6}" for place in range(size)], odds


def test_training_finds_the_odds_that_made_the_labels():
    rows, labels, names, odds = questions(6_000)
    found = train_abstainer(NAMES, rows, labels, names).abstainer.log_odds(rows)
    assert np.abs(found - odds).mean() < 0.15


def test_features_that_tell_nothing_give_everybody_the_share_that_has_an_answer():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(300, 80))
    labels = np.arange(300) % 4 > 0
    generator.shuffle(labels)
    model = train_abstainer(
        tuple(map(str, range(80))), rows, labels, [f"c{place % 6}" for place in range(300)]
    ).abstainer
    others = probabilities(model.log_odds(generator.normal(size=(300, 80))))
    assert np.abs(others - 0.75).max() < 0.2


@pytest.mark.parametrize("conversations", [1, 2, 3])
def test_few_conversations_are_enough(conversations):
    rows, labels, _, odds = questions()
    names = [f"c{place % conversations}" for place in range(len(rows))]
    found = train_abstainer(NAMES, rows, labels, names).abstainer.log_odds(rows)
    assert np.corrcoef(found, odds)[0, 1] > 0.95


def test_constant_and_perfectly_telling_features_leave_finite_odds():
    rows, labels, names, _ = questions()
    rows[:, 1] = 7.0
    rows[:, 0] = labels
    model = train_abstainer(NAMES, rows, labels, names).abstainer
    found = probabilities(model.log_odds(rows))
    assert found[labels].min() > 0.9
    assert found[~labels].max() < 0.1
    assert model.weights[1] == 0


def test_questions_of_one_kind_are_refused():
    rows, _, names, _ = questions(60)
    with pytest.raises(AbstentionTrainingError, match="of 60 questions 60 have an answer"):
        train_abstainer(NAMES, rows, np.ones(60, bool), names)
    lone = np.array([name != "c3" for name in names])
    with pytest.raises(AbstentionTrainingError, match="of both kinds from several conversations"):
        train_abstainer(NAMES, rows, lone, names)


def test_it_abstains_below_the_threshold_alone():
    sure = evidence(match=2.0)
    probability = abstainer().judge(sure, 0.0).probability
    assert probability == pytest.approx(1 / (1 + np.exp(-2)))
    assert [abstainer().judge(sure, threshold).abstains for threshold in (0.0, probability, probability + 1e-6)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("aspect", "known", "code", "text"),
    [
        ("speaker", {"other": "Bo"}, "other_speaker", "the best match is Bo's, the question asks about Ana"),
        ("telling", {"is_told": False}, "not_told", "Ana's best matches speak of the listener and not of the speaker"),
        ("terms", {"missing": "violin"}, "missing_term", "Ana's best matches do not mention 'violin'"),
        ("terms", {"missing": "violin", "is_unknown": True}, "missing_term", "nothing mentions 'violin'"),
        ("terms", {"missing": "violin", "asked": None}, "missing_term", "the best matches do not mention 'violin'"),
        (
            "time",
            {"is_outside": True},
            "outside_time",
            "most of the best matches are of another time than the question",
        ),
        ("match", {}, "weak_match", "no turn fits the question well and clearly better than others"),
    ],
)
def test_the_reason_is_the_aspect_that_lowers_the_odds_most(aspect, known, code, text):
    lowered = {"speaker": -1.0, "telling": -1.0, "terms": -1.0, "time": -1.0, "match": -1.0, aspect: -2.0}
    everything = replace(PLAIN, other="Bo", is_told=False, missing="boat", is_outside=True)
    reason = abstainer().judge(evidence(replace(everything, **known), **lowered), 0.5).reason
    assert (reason.code, reason.text) == (code, text)


def test_what_is_not_true_is_no_reason():
    assert abstainer().judge(evidence(speaker=-9.0, terms=-9.0, time=-9.0, match=-1.0), 0.5).reason.code == "weak_match"
    assert abstainer().judge(evidence(speaker=-9.0, match=2.0), 0.5).reason.code == "weak_match"
    assert abstainer().judge(evidence(speaker=1.0, match=3.0), 0.5).reason is None
    assert abstainer().judge(evidence(question=-9.0, speaker=1.0), 0.5).reason.code == "weak_match"


def test_what_was_never_seen_in_training_counts_no_more_than_what_hardly_was():
    seen, unseen = (abstainer().judge(evidence(match=value), 0.5).probability for value in (3.0, 1e9))
    assert seen == unseen < 1


def test_nothing_found_is_certain():
    judged = nothing_found("no_query_terms", 0.3)
    assert (judged.probability, judged.abstains, judged.reason.text) == (0.0, True, "nothing was found: no query terms")
    assert not nothing_found("no_match", 0.0).abstains


def test_a_model_comes_back_from_its_arrays():
    rows, labels, names, _ = questions()
    model = train_abstainer(NAMES, rows, labels, names).abstainer
    again = abstainer_of(model.as_dict(), NAMES)
    assert again.log_odds(rows).tolist() == model.log_odds(rows).tolist()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"weights": np.ones(3)}, r"weights has the shape \(3,\)"),
        ({"means": None}, "means has the shape None"),
        ({"scales": np.zeros(len(NAMES))}, "a scale that is not above 0"),
        ({"intercept": np.array([np.nan])}, "hold NaN"),
        ({"revision": np.array([0])}, "revision 0 of the evidence"),
    ],
)
def test_arrays_that_are_no_abstainer_are_refused(changes, fault):
    arrays = {name: array for name, array in {**abstainer().as_dict(), **changes}.items() if array is not None}
    with pytest.raises(AbstainerError, match=fault):
        abstainer_of(arrays, NAMES)


def test_evidence_of_another_layout_is_refused():
    other = replace(PLAIN, features={**PLAIN.features, "match/new": 0.0})
    with pytest.raises(AbstainerError, match=r"differ in \['match/new'\]"):
        abstainer().judge(other, 0.5)
