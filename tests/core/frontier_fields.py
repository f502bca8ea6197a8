"""Fields to grow frontiers in, weights whose growth can be told beforehand, and questions that teach."""

import numpy as np

from hgmem_core.frontier import INPUTS, Field, FrontierWeights
from hgmem_core.frontier_policy import FrontierGraph, FrontierQuestion, FrontierTraining
from hgmem_core.frontier_training import HeldOutField
from hgmem_core.namespace_index import TieOrder
from hgmem_core.relations import RICH, Relations

EVEN = np.full(4, 0.25, np.float32)

QUICK = FrontierTraining(hidden=(8, 4), rank=2, warm_epochs=15, epochs=17, batch=8, rate=2e-2, budget=4)


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
        np.arange(facts) if turns is None else np.array(turns, np.int64),
        np.array(odds, np.float32),
        np.zeros(8, np.float32),
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


def question_of(field, *evidence):
    return FrontierQuestion(FrontierGraph.of(field), field.odds, field.question, field.intent, np.array(evidence))


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
        taught.append(question_of(field, evidence))
    return taught


def held_out(questions):
    """Questions of which flat search ordered the first three turns."""
    return [HeldOutField(one, np.arange(3), TieOrder.of(np.arange(len(one.odds)))) for one in questions]
