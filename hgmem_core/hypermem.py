"""HyperMem's coarse-to-fine retrieval (section on retrieval): topics, then episodes, then facts.

At each stage BM25 and cosine each rank the candidates, the best of both are joined by reciprocal rank fusion, a
reranker may order the best of these anew, and the best stay. A list of words ends where its score is 0. Candidates are
those that the stage before leads to, and both lists see nothing else.
"""

from dataclasses import dataclass, field

import numpy as np

from hgmem_core.graph import Level
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists, NamespaceGraph
from hgmem_core.namespace_index import NamespaceIndex, TieOrder
from hgmem_core.ranking import NO_ROWS, Mask, Query, Reranker, Rows, best_rows, finite_vector
from hgmem_core.recipes import RRF_K, CoarseToFine
from hgmem_core.rerank import order_anew


@dataclass(frozen=True, slots=True)
class Chosen:
    """What each stage kept, best first, as numbers within their levels.

    Attributes:
        topics: Of the first stage.
        episodes: Of the second.
        facts: Of the third.
        scores: A reranker's, by level and number; empty without one.
    """

    topics: Rows
    episodes: Rows
    facts: Rows
    scores: dict[Level, dict[int, float]] = field(default_factory=dict)


def coarse_to_fine(
    index: NamespaceIndex,
    query: Query,
    numbers: Ints,
    recipe: CoarseToFine,
    turn_passes: Mask | None,
    as_of_us: int | None,
    reranker: Reranker | None,
) -> Chosen:
    """Choose topics, episodes and facts for a query.

    Args:
        index: The namespace.
        query: With a vector.
        numbers: The query's terms as the namespace numbers them.
        recipe: How many each stage keeps, and λ.
        turn_passes: Which turns may be found, bool `[turns]`, or None for all: an episode or fact none of whose turns
            may is no candidate.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
        reranker: Orders the best candidates of each stage anew, or None.
    """
    graph = index.graph
    vector = finite_vector(query, recipe.name)
    lexical = index.bm25("graph", numbers.tolist())
    read: dict[Level, dict[int, float]] = {}

    def stage(level: Level, candidates: Rows, keep: int) -> Rows:
        if graph.is_large(level):
            candidates = _best_of_both(graph, level, candidates, vector, graph.level(level, lexical), recipe)
        words = graph.level(level, lexical)[candidates]
        cosines = graph.cosines(level, vector, recipe.propagation, candidates)
        ties = TieOrder.of(np.arange(len(candidates)))  # candidates rise, and a level's numbers are in the order of ids
        fused = _fuse(words, cosines, graph.has_vector(level)[candidates], recipe.candidates, ties)
        found = np.flatnonzero(fused > 0)
        if reranker is None or not len(found):
            return candidates[best_rows(fused, found, keep, ties)]
        best = best_rows(fused, found, max(keep, reranker.candidates), ties)
        head = candidates[best[: reranker.candidates]]
        scores = reranker.scores(query, level, head)
        read[level] = dict(zip(head.tolist(), scores.tolist(), strict=True))
        return candidates[order_anew(best, scores, ties)[:keep]]

    topics, episodes = NO_ROWS, np.arange(graph.counts["episode"])
    if recipe.topics:
        topics = stage("topic", _passing_topics(index, turn_passes), recipe.topics)
        episodes = np.unique(graph.episodes_of_topic.of_all(topics))
    facts = np.arange(graph.counts["fact"])
    if recipe.episodes:
        episodes = stage("episode", _passing(episodes, graph.turns_of_episode, turn_passes), recipe.episodes)
        facts = np.unique(graph.facts_of_episode.of_all(episodes))
    else:
        episodes = NO_ROWS
    facts = _passing(facts[graph.stands(as_of_us)[facts]], graph.turns_of_fact, turn_passes)
    return Chosen(topics, episodes, stage("fact", facts, recipe.facts), read)


def _best_of_both(
    graph: NamespaceGraph, level: Level, candidates: Rows, vector: Floats, words: Floats, recipe: CoarseToFine
) -> Rows:
    """Return the candidates of a large level that either list of a stage may hold, ascending."""
    some: Mask | None = None
    if len(candidates) < len(words):
        some = np.zeros(len(words), bool)
        some[candidates] = True
    near = graph.nearest(level, vector, recipe.propagation, recipe.candidates, some)
    matching = np.flatnonzero(words > 0 if some is None else (words > 0) & some)
    order = best_rows(
        words[matching], np.arange(len(matching)), recipe.candidates, TieOrder.of(np.arange(len(matching)))
    )
    return np.unique(np.concatenate([near, matching[order]]))


def _passing_topics(index: NamespaceIndex, passes: Mask | None) -> Rows:
    """Return the topics of which some episode has a turn that passes."""
    graph = index.graph
    if passes is None:
        return np.arange(graph.counts["topic"])
    episodes_pass = np.bincount(index.episode[passes], minlength=graph.counts["episode"]) > 0
    topics, episodes = graph.topic_pairs
    return np.unique(topics[episodes_pass[episodes]])


def _passing(nodes: Rows, turns: Lists, passes: Mask | None) -> Rows:
    """Return the nodes of which some turn passes."""
    if passes is None:
        return nodes
    place = np.repeat(np.arange(len(nodes)), turns.sizes(nodes))
    some = np.zeros(len(nodes), bool)
    some[place[passes[turns.of_all(nodes)]]] = True
    return nodes[some]


def _fuse(words: Floats, cosines: Floats, has_vector: Mask, depth: int, ties: TieOrder) -> Floats:
    """Join the two lists of a stage; return the score of each candidate, 0 for one that neither list holds."""
    fused = np.zeros(len(words), np.float32)
    for scores, listed in ((words, words > 0), (cosines, has_vector)):
        order = best_rows(scores, np.flatnonzero(listed), depth, ties)
        fused[order] += (1 / (RRF_K + 1 + np.arange(len(order)))).astype(np.float32)
    return fused


def turns_of(index: NamespaceIndex, chosen: Chosen) -> Rows:
    """Return the choice as a ranking of turns, each once: the facts' turns in rank order, then the episodes'."""
    graph = index.graph
    rows = [graph.turns_of_fact.of_all(chosen.facts), graph.turns_of_episode.of_all(chosen.episodes)]
    every = np.concatenate(rows)
    _, first = np.unique(every, return_index=True)
    return every[np.sort(first)]


def scores_of_turns(index: NamespaceIndex, chosen: Chosen) -> dict[int, float]:
    """Return for each turn, by its row, the reranker's score of the first fact or episode that leads to it."""
    graph = index.graph
    levels: list[tuple[Level, Rows, Lists]] = [
        ("fact", chosen.facts, graph.turns_of_fact),
        ("episode", chosen.episodes, graph.turns_of_episode),
    ]
    found: dict[int, float] = {}
    for level, nodes, turns in levels:
        scores = chosen.scores.get(level, {})
        for node in nodes.tolist():
            if node in scores:
                found = dict.fromkeys(turns.of(node).tolist(), scores[node]) | found
    return found
