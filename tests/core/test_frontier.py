import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from hgmem_core.frontier import (
    BELOW,
    INPUTS,
    FrontierWeights,
    all_odds,
    grow,
    inputs_of,
    leaving_relations,
    relation_weights,
)
from hgmem_core.relations import RICH
from tests.core.frontier_fields import field_of, weights_of


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
    edges, of_facts = leaving_relations(field, np.array([2, 1]))
    assert (edges.tolist(), of_facts.tolist()) == ([1], [1])


def test_of_many_equally_probable_facts_the_first_is_expanded_next():
    facts = 400
    odds = np.full(facts, -2.0)
    odds[5] = 1.0
    field = field_of([(fact, (fact + 1) % facts) for fact in range(facts)], odds)
    grown = grow(field, weights_of(bias=-50.0), 300)
    assert grown.expanded.tolist() == [5, *(fact for fact in range(300) if fact != 5)]


def test_without_relations_or_facts_flat_search_remains():
    for field in (field_of([], [1.0]), field_of([], [1.0, 0.0], turns=[]), field_of([], [0.0], turns=[-1])):
        grown = grow(field, weights_of(), 10)
        assert not grown.bonus.any()
        assert len(grown.bonus) == len(field.odds)


def test_the_residual_and_the_inputs_have_a_say():
    features = np.zeros((2, len(RICH)), np.float32)
    features[0, RICH.index("causal")] = 1.0
    field = field_of([(0, 1), (0, 2)], [1.0, 0.0, 0.0], features=features)
    facts = np.array([0])
    edges, of_facts = leaving_relations(field, facts)
    causal = replace(weights_of(0.0), first_weight=np.eye(1, len(INPUTS), RICH.index("causal"), dtype=np.float32))
    found = relation_weights(field, edges, facts, of_facts, causal)
    assert found.tolist() == pytest.approx(np.logaddexp(0, [1, 0]).tolist())
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(size=(2, 2, 8)).astype(np.float32)
    both = replace(weights_of(0.0), source_residual=ours, target_residual=theirs)
    vectors = field.vectors(np.arange(3))
    expected = [np.logaddexp(0, (ours @ vectors[0]) @ (theirs @ vectors[target])) for target in (1, 2)]
    assert relation_weights(field, edges, facts, of_facts, both).tolist() == pytest.approx(expected, abs=1e-5)


def test_what_is_worked_into_the_first_layer_is_what_the_network_reads():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(3, len(RICH))).astype(np.float32)
    field = replace(
        field_of([(0, 1), (0, 2), (1, 2)], [1.0, -0.5, 0.2], features=features),
        question=rng.normal(size=8).astype(np.float32),
        intent=np.array([0.4, 0.3, 0.2, 0.1], np.float32),
    )
    inputs, hidden = len(INPUTS), 5
    weights = replace(
        weights_of(0.3),
        mean=rng.normal(size=inputs).astype(np.float32),
        scale=rng.uniform(0.5, 2.0, inputs).astype(np.float32),
        first_weight=rng.normal(size=(hidden, inputs)).astype(np.float32),
        first_bias=rng.normal(size=hidden).astype(np.float32),
        second_weight=rng.normal(size=(1, hidden)).astype(np.float32),
    )
    facts = np.array([1, 0])
    edges, of_facts = leaving_relations(field, facts)
    read = (inputs_of(field, edges, facts[of_facts]) - weights.mean) / weights.scale
    layer = np.maximum(read @ weights.first_weight.T + weights.first_bias, 0)
    output = np.maximum(layer @ weights.second_weight.T + weights.second_bias, 0)[:, 0] * weights.third_weight
    expected = np.logaddexp(0, output + weights.third_bias)
    found = relation_weights(field, edges, facts, of_facts, weights)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-4)
    assert inputs_of(field, edges, facts[of_facts])[:, INPUTS.index("target cosine")].any()


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


def test_growing_needs_no_torch():
    code = "import sys, hgmem_core.frontier; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
