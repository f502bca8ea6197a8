"""The recipe `learned-flat`: boosted trees order the best turns of flat search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.boosted import Forest, ForestError, forest_of
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.query_analysis import QueryAnalysis
from hgmem_core.ranking import Mask, Query, Rows, best_rows
from hgmem_core.recipes import LearnedFlat
from hgmem_core.turn_features import LAYOUTS, choose_candidates, list_scores, turn_features


@dataclass(frozen=True, slots=True)
class TurnRanker:
    """Trees, and the names of the features that they were trained on, in order."""

    forest: Forest
    features: tuple[str, ...]

    def as_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays from which `ranker_of` makes the ranker again."""
        return self.forest.arrays()


def ranker_of(arrays: Mapping[str, npt.NDArray[Any]], features: tuple[str, ...]) -> TurnRanker:
    """Make a ranker of named arrays.

    Raises:
        ForestError: The arrays are no forest, or one of another number of features.
    """
    forest = forest_of(arrays)
    if forest.n_features != len(features):
        raise ForestError(f"the forest reads {forest.n_features} features, and {len(features)} are named")
    return TurnRanker(forest, features)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Turns that a ranker is to order.

    Attributes:
        rows: Best first by flat search, int64 `[n]`.
        features: float32 `[n, features]`.
        names: Of the features.
        fused: What flat search says of every turn, float32 `[turns]`.
        lists: The scores that the features are made of, float32 `[turns]` by name.
    """

    rows: Rows
    features: Floats
    names: tuple[str, ...]
    fused: Floats
    lists: Mapping[str, Floats]


def find_candidates(
    index: NamespaceIndex,
    query: Query,
    analysis: QueryAnalysis,
    numbers: Ints,
    recipe: LearnedFlat,
    passes: Mask | None = None,
    as_of_us: int | None = None,
) -> Candidates:
    """Return the best turns of flat search with their features.

    Args:
        index: The namespace.
        query: With a vector.
        analysis: Of the same question.
        numbers: The query's terms as the namespace numbers them.
        recipe: Which lists, and how many candidates.
        passes: Which turns may be found, bool `[turns]`, at least one; None for all.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
    """
    layout = LAYOUTS[recipe.layout]
    lists = list_scores(index, query, numbers, layout, as_of_us)
    rows, fused = choose_candidates(index, lists, layout, recipe.candidates, passes)
    columns = turn_features(index, query, analysis, {**lists, "rrf": fused}, rows, layout)
    return Candidates(rows, np.stack(list(columns.values()), axis=1), tuple(columns), fused, lists)


def learned_odds(found: Candidates, ranker: TurnRanker) -> Floats:
    """Return the log odds that each candidate is evidence, float32 `[len(found.rows)]`.

    Raises:
        ForestError: The ranker was trained on other features.
    """
    if ranker.features != found.names:
        unknown = sorted(set(ranker.features) ^ set(found.names))
        raise ForestError(f"the ranker was trained on other features (they differ in {unknown[:5]}); train it again")
    return ranker.forest.scores(found.features)


def learned_order(index: NamespaceIndex, found: Candidates, ranker: TurnRanker, k: int) -> tuple[Rows, Floats]:
    """Order candidates by a ranker, and what lies behind them as flat search does.

    Returns:
        At most `k` rows, and the log odds of the candidates in the order of `found.rows`.

    Raises:
        ForestError: The ranker was trained on other features.
    """
    odds = learned_odds(found, ranker)
    scores = np.full(len(index), -np.inf, np.float32)
    scores[found.rows] = odds
    best = best_rows(scores, found.rows, k, index.id_order)
    if len(best) < k:
        behind = found.fused.copy()
        behind[found.rows] = 0.0
        rest = np.flatnonzero(behind > 0)
        best = np.concatenate([best, best_rows(behind, rest, k - len(best), index.id_order)])
    return best, odds
