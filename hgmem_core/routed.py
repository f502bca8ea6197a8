"""The recipe `routed`: trees order the best turns of flat search, and a frontier of facts brings others forward."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.frontier import INPUTS, Field, Frontier, FrontierWeights, all_odds, grow
from hgmem_core.learned_flat import Candidates, TurnRanker, learned_odds, ranker_of
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.query_analysis import QueryAnalysis
from hgmem_core.ranking import Query, Rows, best_rows, finite_vector

_FLAT, _FRONTIER = "flat.", "frontier."


@dataclass(frozen=True, slots=True)
class RoutedWeights:
    """The trees of flat search and the weights of the frontier that was trained on their odds."""

    flat: TurnRanker
    frontier: FrontierWeights

    @property
    def features(self) -> tuple[str, ...]:
        """The names of what trees and frontier read, in order."""
        return *self.flat.features, *INPUTS

    def as_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays from which `routed_of` makes the weights again."""
        return {_FLAT + name: array for name, array in self.flat.as_dict().items()} | {
            _FRONTIER + name: array for name, array in self.frontier.as_dict().items()
        }


def routed_of(arrays: Mapping[str, npt.NDArray[Any]], features: tuple[str, ...]) -> RoutedWeights:
    """Make weights of named arrays.

    Raises:
        ValueError: They are no weights of `routed`, or read other features of relations than this software has.
    """
    flat, frontier = (
        {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
        for part in (_FLAT, _FRONTIER)
    )
    if features[-len(INPUTS) :] != INPUTS:
        raise ValueError("the frontier was trained on other features of relations")
    return RoutedWeights(ranker_of(flat, features[: -len(INPUTS)]), FrontierWeights.from_dict(frontier))


def field_of(
    index: NamespaceIndex,
    query: Query,
    analysis: QueryAnalysis,
    rows: Rows,
    odds: Floats,
    as_of_us: int | None = None,
) -> Field:
    """Return what a frontier grows from.

    Args:
        index: The namespace.
        query: With a vector.
        analysis: Of the same question.
        rows: The candidates of flat search.
        odds: Theirs, float32 `[len(rows)]`.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
    """
    graph = index.graph
    turns = np.full(graph.counts["fact"], -1, np.int64)
    facts, theirs = graph.best_turn_of_fact(as_of_us)
    turns[facts] = theirs
    return Field(
        index.relations("fact"),
        graph.fact_vectors,
        turns,
        all_odds(len(index), rows, odds),
        finite_vector(query, "routed"),
        np.array(analysis.intent, np.float32),
    )


def routed_order(
    index: NamespaceIndex,
    query: Query,
    analysis: QueryAnalysis,
    found: Candidates,
    weights: RoutedWeights,
    budget: int,
    k: int,
    passes: npt.NDArray[np.bool_] | None = None,
    as_of_us: int | None = None,
) -> tuple[Rows, Floats, Frontier]:
    """Order candidates and what the frontier speaks for, and behind them the rest as flat search does.

    Args:
        index: The namespace.
        query: With a vector.
        analysis: Of the same question.
        found: The candidates of flat search.
        weights: Learned.
        budget: The most facts that are expanded.
        k: The most turns.
        passes: Which turns may be found, bool `[turns]`; None for all. The frontier may lead through others.
        as_of_us: See `field_of`.

    Returns:
        At most `k` rows, the log odds of every turn, float32 `[turns]`, and the frontier.

    Raises:
        ForestError: The trees were trained on other features.
    """
    field = field_of(index, query, analysis, found.rows, learned_odds(found, weights.flat), as_of_us)
    frontier = grow(field, weights.frontier, budget)
    scores = field.odds + frontier.bonus
    is_spoken_for = frontier.bonus > 0
    is_spoken_for[found.rows] = True
    if passes is not None:
        is_spoken_for &= passes
    best = best_rows(scores, np.flatnonzero(is_spoken_for), k, index.id_order)
    if len(best) < k:
        rest = np.flatnonzero((found.fused > 0) & ~is_spoken_for)
        best = np.concatenate([best, best_rows(found.fused, rest, k - len(best), index.id_order)])
    return best, field.odds, frontier
