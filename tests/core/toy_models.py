"""Models that were not trained but rank, for tests that hold whatever a model has learned."""

from functools import cache

import numpy as np

from hgmem_core.boosted import Forest
from hgmem_core.frontier import INPUTS, FrontierWeights
from hgmem_core.hage import HageWeights
from hgmem_core.learned_flat import TurnRanker, find_candidates
from hgmem_core.query_analysis import analyse_query
from hgmem_core.ranking import Query
from hgmem_core.recipes import Hage, LearnedFlat, Routed
from hgmem_core.relations import PAPER
from hgmem_core.routed import RoutedWeights
from tests.core.fixtures import HashEncoder, message, reader_of, turns_of


def model_of(recipe):
    """Return a model of a recipe for `HashEncoder`'s vectors; None for a recipe that has none."""
    if isinstance(recipe, LearnedFlat):
        return ranker_of(recipe)
    if isinstance(recipe, Routed):
        return RoutedWeights(ranker_of(recipe.flat), random_frontier(HashEncoder().identity.dimension))
    if isinstance(recipe, Hage) and recipe.trained:
        return random_weights(HashEncoder().identity.dimension)
    return None


@cache
def ranker_of(recipe):
    """Prefer turns whose words and vector are near to the question."""
    encoder = HashEncoder()
    index = reader_of(turns_of(message("tea"), message("rain", 1)), encoder).open("acme/ana")
    vector = np.eye(1, encoder.identity.dimension, dtype=np.float32)[0]
    query = Query("tea", ("tea",), vector, vector)
    names = find_candidates(index, query, analyse_query("tea"), np.array([0]), recipe).names
    tested = [names.index("bm25/turn scaled"), names.index("dense/turn scaled")]
    return TurnRanker(
        Forest(
            features=np.array([[feature] for feature in tested], np.int32),
            thresholds=np.full((2, 1), 0.5, np.float32),
            masks=np.ones((2, 1), np.uint32),
            values=np.array([[-1, 1], [-2, 2]], np.float32),
            baseline=0.5,
            n_features=len(names),
        ),
        names,
    )


@cache
def random_weights(dimension):
    generator = np.random.default_rng(0)
    inputs = dimension + 2 * len(PAPER) + 2

    def some(*shape):
        return generator.normal(size=shape).astype(np.float32) / 10

    return HageWeights(
        some(128, inputs), some(128), some(64, 128), some(64), some(1, 64), some(1),
        features=some(0, len(PAPER)), first_relation=np.zeros(1, np.int64), cosine_share=np.array(0.5, np.float32),
    )  # fmt: skip


@cache
def random_frontier(dimension):
    """Speak for others a little, whatever the relation."""
    generator = np.random.default_rng(0)

    def some(*shape):
        return generator.normal(size=shape).astype(np.float32) / 10

    return FrontierWeights(
        some(len(INPUTS)), np.ones(len(INPUTS), np.float32), some(4, len(INPUTS)), some(4), some(2, 4), some(2),
        some(2), some(), some(2, dimension), some(2, dimension), np.array(-20, np.float32),
    )  # fmt: skip
