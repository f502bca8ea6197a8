"""HAGE's retrieval: walks over the event graph from the turns that dense and sparse search find, ranked by probability.

The policy of a walk is a softmax over the unvisited neighbours of where it is, of S_ij. What S_ij is depends on the
recipe (`hgmem_core.recipes.Hage`): with a router, S_ij = λ cos(q, v_j) + (1 - λ) w_ij, see `hgmem_core.router`. A walk
is greedy, or a beam of several; nothing here needs torch.

Features of relations that were learned belong to the graphs on which they were learned (`HageWeights.learned`). On a
graph not seen in training a recipe reads the relations as they were built, as the released code does too: of the
training of features nothing remains there but what the router learned beside it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats, Ints
from hgmem_core.named_arrays import check_names, check_values
from hgmem_core.namespace_index import NamespaceIndex, TieOrder
from hgmem_core.query_analysis import QueryAnalysis
from hgmem_core.ranking import Mask, Rows, best_rows
from hgmem_core.recipes import DEPTH, RRF_K, Hage, Magma
from hgmem_core.relations import Relations
from hgmem_core.turns import UNKNOWN_TIME, microseconds

Doubles = npt.NDArray[np.float64]

FIXED_WEIGHTS = (0.8, 1.0, 0.9, 0.7)
"""What temporal, semantic, causal and entity relations are worth whatever is asked, as in released code."""

KIND_WEIGHTS = (
    (0.7, 0.1, 0.1, 0.1),
    (0.05, 0.3, 0.05, 0.6),
    (0.2, 0.05, 0.7, 0.05),
    (0.05, 0.3, 0.05, 0.6),
)
"""What they are worth to a question that is mostly temporal, semantic, causal or about an entity; MAGMA knows three
kinds, when, why and who or what."""

Score = Callable[[Ints, Ints], Floats]
"""From the numbers of relations and the nodes that they leave to their S, float32 `[n]`."""


@dataclass(frozen=True, slots=True)
class HageWeights:
    """What training learned, as arrays; the parameters of the router are named as in `hgmem_core.router`.

    Attributes:
        first_weight: float32 `[128, inputs]`; inputs are q, e_ij, T_q, cos(q, v_i), cos(q, v_j), in this order.
        first_bias: float32 `[128]`.
        second_weight: float32 `[64, 128]`.
        second_bias: float32 `[64]`.
        third_weight: float32 `[1, 64]`.
        third_bias: float32 `[1]`.
        features: Of all relations of the graphs of training, float32 `[relations, features]`.
        first_relation: Where the relations of each graph of training begin in `features`, and their number, int64.
        cosine_share: λ, float32 `[]`.
    """

    first_weight: Floats
    first_bias: Floats
    second_weight: Floats
    second_bias: Floats
    third_weight: Floats
    third_bias: Floats
    features: Floats
    first_relation: Ints
    cosine_share: npt.NDArray[np.float32]

    def as_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "HageWeights":
        """Return the weights of `as_dict`.

        Raises:
            ValueError: An array is missing, unknown, of another shape, or not finite.
        """
        check_names("HAGE", [field.name for field in fields(cls)], arrays)
        weights = cls(**arrays)
        relations = weights.features.shape[1] if weights.features.ndim == 2 else 0
        first, second = len(weights.first_bias), len(weights.second_bias)
        shapes = {
            "first_weight": (first, weights.first_weight.shape[-1]),
            "second_weight": (second, first),
            "third_weight": (1, second),
            "third_bias": (1,),
            "features": (int(weights.first_relation[-1]), relations),
            "cosine_share": (),
        }
        check_values(arrays, shapes)
        return weights

    def learned(self, relations: Relations, graph: int) -> Relations:
        """Return the relations of a graph of training with the features that were learned for them.

        Args:
            relations: Of the graph, as they were in training.
            graph: Its number there.

        Raises:
            ValueError: There were other relations in training.
        """
        first, end = self.first_relation[graph : graph + 2]
        size = len(relations.targets)
        if end - first != size:
            raise ValueError(f"graph {graph} had {end - first} relations in training and now has {size}; train anew")
        return replace(relations, features=self.features[first:end])


def find_anchors(
    index: NamespaceIndex,
    vector: Floats,
    cosines: Floats,
    terms: list[int],
    passes: Mask | None,
    period_us: tuple[int, int] | None,
) -> Rows:
    """Rank turns as flat search does: reciprocal rank fusion of cosine, BM25 and the turns of the time asked about.

    Args:
        index: The namespace.
        vector: Of the query, unit or zeros, float32 `[dimension]`.
        cosines: Of all turns with it, float32 `[turns]`.
        terms: The query's terms as the namespace numbers them.
        passes: Which turns may be found, bool `[turns]`, or None for all.
        period_us: The time that the query speaks of, in microseconds since 1970, its end excluded; None without one.
    """
    words = index.bm25("turn", terms)
    listed = [(words, np.flatnonzero(words > 0))]
    if vector.any():
        listed.append((cosines, index.vector_rows))
    if period_us is not None:
        said = index.said_at_us
        listed.append((cosines, np.flatnonzero((said >= period_us[0]) & (said < period_us[1]))))
    fused = np.zeros(len(index))
    for scores, rows in listed:
        best = best_rows(scores, rows if passes is None else rows[passes[rows]], DEPTH, index.id_order)
        fused[best] += 1 / (RRF_K + 1 + np.arange(len(best)))
    found = np.flatnonzero(fused)
    return best_rows(fused.astype(np.float32), found, len(found), index.id_order)


def period_of(analysis: QueryAnalysis) -> tuple[int, int] | None:
    """Return the time that a query speaks of as `find_anchors` takes it."""
    first, until = analysis.time_from, analysis.time_until
    if first is None and until is None:
        return None
    return (
        UNKNOWN_TIME + 1 if first is None else microseconds(first),
        np.iinfo(np.int64).max if until is None else microseconds(until),
    )


def hage_rank(
    ties: TieOrder,
    vector: Floats,
    cosines: Floats,
    relations: Relations,
    weights: HageWeights | None,
    intent: Floats,
    anchors: Rows,
    recipe: Hage,
) -> Rows:
    """Rank turns: those that walks visit by the probability of their most probable path, then the other anchors.

    Walks begin at the best anchors, each with probability 1, so these come first. No anchor is left out.

    Args:
        ties: The order of turns that are equally good.
        vector: Of the query, unit or zeros, float32 `[dimension]`.
        cosines: Of all turns with it, float32 `[turns]`.
        relations: Between the turns.
        weights: Learned; None for a recipe whose scores are fixed or the intent's.
        intent: The query's, over temporal, semantic, causal and entity relations; sum 1, float32 `[4]`.
        anchors: Turns, best first; see `find_anchors`.
        recipe: How to walk.

    Raises:
        ValueError: The recipe needs weights, or those given are of other relations or vectors.
    """
    score = relation_scores(vector, cosines, relations, weights, intent, recipe)
    paths = walk(relations, score, anchors[: recipe.starts], recipe.hops, recipe.width, ties.rank)
    return _visited_first(paths, anchors, ties.rank)


def magma_rank(
    index: NamespaceIndex, cosines: Floats, relations: Relations, intent: Floats, anchors: Rows, recipe: Magma
) -> Rows:
    """Rank turns: the first anchors, those that a breadth-first search from them visits, then the other anchors.

    A visited turn counts with the best step that led to it from the level before: a share for how much its relation is
    of the kind that the question asks for (`KIND_WEIGHTS`), and one for its cosine. Steps are not added up, else a turn
    would rank the higher the farther it is.

    Args:
        index: The namespace.
        cosines: Of all turns with the query, float32 `[turns]`.
        relations: Between the turns.
        intent: The query's; the largest of the four says of which kind it is.
        anchors: Turns, best first; see `find_anchors`.
        recipe: How to search.
    """
    values, _ = breadth_first(index, cosines, relations, intent, anchors, recipe)
    return _visited_first(values, anchors, index.id_order.rank)


def breadth_first(
    index: NamespaceIndex, cosines: Floats, relations: Relations, intent: Floats, anchors: Rows, recipe: Magma
) -> tuple[Doubles, Ints]:
    """Search from the first anchors; for the arguments see `magma_rank`.

    Returns:
        What each turn counts with, infinity for a start and minus infinity for a turn that was not visited; and the
        turn from which it was reached, -1 for a start or none.
    """
    kinds = np.array(KIND_WEIGHTS[int(intent.argmax())], np.float32)
    level = anchors[: recipe.starts]
    values, before = np.full(len(relations), -np.inf), np.full(len(relations), -1, np.int64)
    values[level] = np.inf
    room = recipe.budget - len(level)
    for _ in range(recipe.hops):
        edges, place = _leaving(relations, level)
        targets = relations.targets[edges]
        steps = recipe.kind * (relations.features[edges, : len(kinds)] * kinds).max(axis=1, initial=0)
        steps = steps + recipe.cosine * cosines[targets]
        reached = np.full(len(relations), -np.inf, np.float32)
        np.maximum.at(reached, targets, steps)
        best = np.flatnonzero((steps == reached[targets]) & (values[targets] == -np.inf))[::-1]
        before[targets[best]] = level[place[best]]  # of equally good steps the first one is written last
        new = np.flatnonzero((reached > -np.inf) & (values == -np.inf))
        level = best_rows(reached, new, min(recipe.width, room), index.id_order)
        values[level] = reached[level]
        room -= len(level)
    return values, before


def walk(relations: Relations, score: Score, starts: Rows, hops: int, width: int, ties: Ints) -> Doubles:
    """Walk from every start and return the log probability of the most probable path that led to each node.

    From each start the `width` most probable paths go on at each hop; a path visits no node twice and ends where all
    neighbours are visited. With a width of 1 a walk is greedy.

    Args:
        relations: The graph.
        score: S of relations, see `Score`.
        starts: Nodes, all distinct.
        hops: The most steps.
        width: Of the beam.
        ties: The place of each node among nodes of equal paths, int64 `[nodes]`.

    Returns:
        float64 `[nodes]`, 0 for a start, minus infinity for a node that no walk visited.
    """
    best = np.full(len(relations), -np.inf)
    for paths, total in walks(relations, score, starts, hops, width, ties):
        np.maximum.at(best, paths[:, -1], total)
    return best


def walks(
    relations: Relations, score: Score, starts: Rows, hops: int, width: int, ties: Ints
) -> Iterator[tuple[Ints, Doubles]]:
    """Yield the paths that are kept at each hop, one a row from its start on, and their log probabilities; see `walk`.

    First come the starts themselves.
    """
    paths, total, walker = starts[:, None], np.zeros(len(starts)), np.arange(len(starts))
    yield paths, total
    for _ in range(hops):
        here = paths[:, -1]
        edges, path = _leaving(relations, here)
        targets = relations.targets[edges]
        free = (paths[path] != targets[:, None]).all(axis=1)
        path, edges, targets = path[free], edges[free], targets[free]
        if not len(path):
            return
        reached = total[path] + _log_softmax(score(edges, here[path]), path)
        order = np.lexsort((ties[targets], -reached, walker[path]))
        group = walker[path[order]]
        kept = order[np.arange(len(order)) - np.searchsorted(group, group) < width]
        paths = np.column_stack([paths[path[kept]], targets[kept]])
        total, walker = reached[kept], walker[path[kept]]
        yield paths, total


def _leaving(relations: Relations, nodes: Ints) -> tuple[Ints, Ints]:
    """Return the relations that leave some nodes, one node after the other, and for each the place of its node."""
    sizes = relations.offsets[nodes + 1] - relations.offsets[nodes]
    before = np.cumsum(sizes) - sizes
    place = np.repeat(np.arange(len(nodes)), sizes)
    return np.arange(len(place)) + (relations.offsets[nodes] - before)[place], place


def _log_softmax(scores: Floats, group: Ints) -> Doubles:
    """Return log softmax within each group; groups rise and none is empty between others."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(first, append=len(group))
    shifted = scores.astype(np.float64) - np.repeat(np.maximum.reduceat(scores, first), sizes)
    logs: Doubles = shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), first)), sizes)
    return logs


def _visited_first(values: Doubles, anchors: Rows, ties: Ints) -> Rows:
    """Return the visited nodes by value, equal ones as the anchors have them, and then the other anchors."""
    place = len(anchors) + ties
    place[anchors] = np.arange(len(anchors))
    visited = np.flatnonzero(values > -np.inf)
    visited = visited[np.lexsort((place[visited], -values[visited]))]
    return np.concatenate([visited, anchors[values[anchors] == -np.inf]])


def relation_scores(
    vector: Floats,
    cosines: Floats,
    relations: Relations,
    weights: HageWeights | None,
    intent: Floats,
    recipe: Hage,
) -> Score:
    """Return what S is under a recipe; for the arguments see `hage_rank`."""
    if recipe.scores == "router":
        if weights is None:
            raise ValueError(f"recipe {recipe.name!r} needs weights; train some")
        return _router_score(weights, vector, cosines, relations, intent)
    kinds = np.array(FIXED_WEIGHTS, np.float32) if recipe.scores == "fixed" else intent

    def score(edges: Ints, sources: Ints) -> Floats:
        # Of parallel relations, which are one here, the walker takes the best.
        strengths = (relations.features[edges, : len(kinds)] * kinds).max(axis=1)
        scores: Floats = cosines[relations.targets[edges]] * strengths
        return scores

    return score


def _router_score(weights: HageWeights, vector: Floats, cosines: Floats, relations: Relations, intent: Floats) -> Score:
    """Return S of the router's w; see `hgmem_core.router`."""
    dimension, features = len(vector), relations.features.shape[1]
    inputs, taken = dimension + features + len(intent) + 2, weights.first_weight.shape[1]
    if taken != inputs:
        made = f"a query of {dimension} dimensions and relations of {features} features make {inputs}"
        raise ValueError(f"the router takes {taken} inputs; {made}; train it on such relations and vectors")
    of_query, of_edge, of_intent, of_here, of_there = np.split(
        weights.first_weight, np.cumsum([dimension, features, len(intent), 1]), axis=1
    )
    base = weights.first_bias + of_query @ vector + of_intent @ intent
    columns = np.concatenate([of_edge, of_here, of_there], axis=1).T
    share = np.float32(weights.cosine_share)

    def score(edges: Ints, sources: Ints) -> Floats:
        there = cosines[relations.targets[edges]]
        read = np.column_stack([relations.features[edges], cosines[sources], there])
        hidden = np.maximum(read @ columns + base, 0)
        hidden = np.maximum(hidden @ weights.second_weight.T + weights.second_bias, 0)
        outputs = hidden @ weights.third_weight[0] + weights.third_bias
        scores: Floats = share * there + (1 - share) * np.logaddexp(0, outputs)
        return scores

    return score
