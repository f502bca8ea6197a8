import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgmem_core.frontier import (
    BELOW,
    INPUTS,
    Field,
    FrontierWeights,
    all_odds,
    grow,
    leaving_relations,
    relation_weights,
)
from hgmem_core.frontier_training import FrontierQuestion, FrontierTraining, train_frontier
from hgmem_core.relations import RICH, Relations

EVEN = np.full(4, 0.25, np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def field_of(edges, odds, turns=None, features=None, seed=0):
    """Facts 0, 1, ... of turns of the same numbers, related as `edges` say."""
    facts = len(odds) if turns is None else len(turns)
    edges = sorted(edges)
    offsets = np.searchsorted([source for source, _ in edges], np.arange(facts + 1)).astype(np.int64)
    targets = np.array([target for _, target in edges], np.int64)
    features = np.zeros((len(edges), len(RICH)), np.float32) if features is None else features
    vectors = np.random.default_rng(seed).normal(size=(facts, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Field(
        Relations(offsets, targets, features, RICH),
        lambda numbers: vectors[numbers],
        np.arange(facts) if turns is None else np.array(turns),
        np.array(odds, np.float32),
        np.zeros(facts, np.float32),
        EVEN,
    )


def weights_of(bias=1.0, stop=-50.0, third=None):
    """Weights that give every relation softplus(bias), or read one input if `third` names it."""
    first = np.zeros((1, len(INPUTS)), np.float32)
    if third is not None:
        first[0, INPUTS.index(third)] = 1.0
    one = np.ones(1, np.float32)
    return FrontierWeights(
        mean=np.zeros(len(INPUTS), np.float32), scale=np.ones(len(INPUTS), np.float32),
        first_weight=first, first_bias=np.zeros(1, np.float32),
        second_weight=np.ones((1, 1), np.float32), second_bias=np.zeros(1, np.float32),
        third_weight=one, third_bias=np.array(bias, np.float32),
        source_residual=np.zeros((2, 8), np.float32), target_residual=np.zeros((2, 8), np.float32),
        stop=np.array(stop, np.float32),
    )  # fmt: skip


def sure(odds):
    return 1 / (1 + np.exp(-odds))


def test_a_relation_gives_what_its_source_is_sure_of():
    field = field_of([(0, 2)], [1.0, 0.5, -3.0])
    grown = grow(field, weights_of(bias=0.3), 1)
    assert grown.expanded.tolist() == [0]
    assert grown.bonus.tolist() == pytest.approx([0, 0, sure(1.0) * np.logaddexp(0, 0.3)], abs=1e-6)
    assert grown.spoken_by.tolist() == [-1, -1, 0]


def test_a_turn_keeps_the_largest_bonus_and_facts_go_on_by_odds_and_bonus():
    field = field_of([(0, 3), (1, 3), (3, 2)], [0.0, 2.0, -4.0, -1.0])
    grown = grow(field, weights_of(bias=3.0), 10)
    w = np.logaddexp(0, 3.0)
    lifted = -1.0 + sure(2.0) * w
    assert grown.expanded.tolist() == [1, 3, 0, 2]
    assert grown.spoken_by.tolist() == [-1, -1, 3, 1]
    assert grown.bonus.tolist() == pytest.approx([0, 0, sure(lifted) * w, sure(2.0) * w], abs=1e-5)


def test_growth_ends_at_the_budget_and_below_the_bound():
    field = field_of([], [3.0, 2.0, 1.0, -9.0])
    assert grow(field, weights_of(), 2).expanded.tolist() == [0, 1]
    assert grow(field, weights_of(stop=0.0), 10).expanded.tolist() == [0, 1, 2]
    assert grow(field, weights_of(stop=9.0), 10).expanded.tolist() == []


def test_facts_that_do_not_stand_neither_speak_nor_are_spoken_for():
    field = field_of([(0, 1), (1, 2)], [2.0, 1.0, -1.0], turns=[0, -1, 2])
    grown = grow(field, weights_of(), 10)
    assert grown.expanded.tolist() == [0, 2]
    assert not grown.bonus.any()


def test_facts_of_one_turn_do_not_speak_for_it():
    field = field_of([(0, 1), (1, 2)], [2.0, -1.0], turns=[0, 0, 1])
    assert grow(field, weights_of(), 10).bonus[0] == 0
    edges, sources = leaving_relations(field, np.array([1, 0]))
    assert (edges.tolist(), sources.tolist()) == ([1], [1])


def test_without_relations_or_facts_flat_search_remains():
    for field in (field_of([], [1.0]), field_of([], [1.0, 0.0], turns=[]), field_of([], [0.0], turns=[-1])):
        grown = grow(field, weights_of(), 10)
        assert not grown.bonus.any()
        assert len(grown.bonus) == len(field.odds)


def test_the_residual_and_the_inputs_have_a_say():
    features = np.zeros((2, len(RICH)), np.float32)
    features[0, RICH.index("causal")] = 1.0
    field = field_of([(0, 1), (0, 2)], [1.0, 0.0, 0.0], features=features)
    edges, sources = leaving_relations(field, np.array([0]))
    causal = replace(weights_of(0.0), first_weight=np.eye(1, len(INPUTS), RICH.index("causal"), dtype=np.float32))
    assert relation_weights(field, edges, sources, causal).tolist() == pytest.approx(np.logaddexp(0, [1, 0]).tolist())
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(size=(2, 2, 8)).astype(np.float32)
    both = replace(weights_of(0.0), source_residual=ours, target_residual=theirs)
    vectors = field.vectors(np.arange(3))
    expected = [np.logaddexp(0, (ours @ vectors[0]) @ (theirs @ vectors[target])) for target in (1, 2)]
    assert relation_weights(field, edges, sources, both).tolist() == pytest.approx(expected, abs=1e-5)


def test_turns_that_were_not_ordered_lie_below_those_that_were():
    odds = all_odds(4, np.array([2, 0]), np.array([1.5, -2.0], np.float32))
    assert odds.tolist() == [-2.0, -2.0 - BELOW, 1.5, -2.0 - BELOW]


def test_weights_travel_as_arrays_and_others_are_refused():
    weights = weights_of(0.7)
    arrays = weights.as_dict()
    again = FrontierWeights.from_dict(arrays)
    assert all((getattr(again, name) == array).all() for name, array in arrays.items())
    with pytest.raises(ValueError, match="mean has shape"):
        FrontierWeights.from_dict({**arrays, "mean": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="stop holds NaN"):
        FrontierWeights.from_dict({**arrays, "stop": np.array(np.nan, np.float32)})
    with pytest.raises(ValueError, match="no weights of a frontier"):
        FrontierWeights.from_dict({"mean": arrays["mean"]})


def teaching(questions=24, seed=0):
    """Questions whose evidence is what the first fact causes; flat search ranks it last of twelve."""
    rng = np.random.default_rng(seed)
    taught = []
    for number in range(questions):
        odds = np.linspace(2, -2, 12) + rng.normal(size=12) / 20
        evidence = int(rng.integers(4, 12))
        odds[evidence] = -2.5
        features = np.zeros((11, len(RICH)), np.float32)
        features[:, RICH.index("temporal")] = rng.random(11)
        features[evidence - 1, RICH.index("causal")] = 1.0
        field = field_of([(0, target) for target in range(1, 12)], odds, features=features, seed=number)
        taught.append(FrontierQuestion(field, np.array([evidence])))
    return taught


QUICK = FrontierTraining(hidden=(8, 4), rank=2, warm_epochs=15, epochs=2, batch=8, rate=2e-2, budget=4)


def ranks(questions, weights):
    places = []
    for question in questions:
        scores = question.field.odds + grow(question.field, weights, 4).bonus
        places.append(int((scores > scores[question.evidence[0]]).sum()))
    return np.array(places)


def test_what_causes_evidence_is_learned_and_holds_for_other_questions():
    weights = train_frontier(teaching(), 8, QUICK, 0, lambda *_: True)
    assert (ranks(teaching(seed=9), weights_of(bias=-30.0)) == 11).all()
    assert np.median(ranks(teaching(seed=9), weights)) <= 2


def test_training_is_the_same_for_a_seed_and_stops_when_told():
    seen = []

    def on_epoch(epoch, means, weights):
        seen.append((epoch, dict(means)))
        return epoch < 3

    first = train_frontier(teaching(), 8, QUICK, 0, on_epoch)
    again = train_frontier(teaching(), 8, QUICK, 0, lambda epoch, *_: epoch < 3)
    other = train_frontier(teaching(), 8, QUICK, 1, lambda epoch, *_: epoch < 3)
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    assert all((getattr(first, name) == array).all() for name, array in again.as_dict().items())
    assert (first.first_weight != other.first_weight).any()
    assert all(np.isfinite(list(means.values())).all() for _, means in seen)


def test_curves_tell_of_the_loss_and_of_what_draws_earn():
    seen = []
    train_frontier(teaching(), 8, QUICK, 0, lambda epoch, means, _: seen.append(means) or True)
    assert seen[14]["listwise loss"] < 0.5 * seen[0]["listwise loss"]
    assert ["earned" in means for means in seen] == [False] * 15 + [True] * 2
    assert 0.5 < seen[-1]["earned"] < 1.5


def test_questions_without_signal_leave_finite_weights():
    odds = np.linspace(2, -2, 12)
    useless = [FrontierQuestion(field_of([(1, 2)], odds), np.array([11])), *teaching(1)]
    weights = train_frontier(useless, 8, QUICK, 0, lambda *_: True)
    assert all(np.isfinite(array).all() for array in weights.as_dict().values())
    with pytest.raises(ValueError, match="no question finds a fact that has a relation"):
        train_frontier([FrontierQuestion(field_of([], odds), np.array([1]))], 8, QUICK, 0, lambda *_: True)
    with pytest.raises(ValueError, match="draws is 1"):
        FrontierTraining(draws=1)


def test_growing_needs_no_torch():
    code = "import sys, hgmem_core.frontier; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
