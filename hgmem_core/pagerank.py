"""The recipe `ppr`: personalised PageRank over words, facts and turns, after HippoRAG 2 (Gutiérrez et al., ICML 2025).

HippoRAG has phrases and passages for nodes, found by a language model; here words stand for phrases, and turns are the
passages. Between them are the facts, which are also what a question is compared with, as HippoRAG 2 compares it with
triples. The graph is undirected:

| edge | weight |
|---|---|
| a word and a turn that has it | its BM25 score there, over the highest of the namespace |
| a fact and a turn that it stands on | 1 |
| two facts that are alike | their cosine, from `PageRank.alike` on, where one is among the nearest of the other |

A walk starts anew with probability 1 - damping, at the question's words, each by how rare it is (node specificity), at
the facts that are nearest to the question, and, with a small share, at every turn by its cosine. Turns are ranked by
how often the walk is there. Turns that must not be found are no part of the graph, nor are facts that do not stand.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Mask, Query, finite_vector
from hgmem_core.recipes import PageRank

Doubles = npt.NDArray[np.float64]

_CLOSE = 1e-7
"""Two steps that differ by less in all, as sums of probabilities, end the iteration."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Undirected edges between two groups of nodes: `one[i]` and `other[i]` with `weight[i]`."""

    one: Ints
    other: Ints
    weight: Doubles


def pagerank(edges: list[Edges], start: Doubles, damping: float) -> Doubles:
    """Return the stationary probabilities of a walk that starts anew at `start` with probability 1 - damping.

    p = (1 - damping) start + damping (Wᵀ D⁻¹) p. A node without an edge sends its walkers back to the start.

    Args:
        edges: Of the graph; an edge that comes twice counts twice.
        start: A distribution over the nodes, float64 `[nodes]`.
        damping: The probability that a walk goes on, in [0, 1).

    Returns:
        float64 `[nodes]`, of sum 1.

    Raises:
        ValueError: `start` or a weight is not finite.
    """
    size = len(start)
    degree = np.zeros(size)
    for some in edges:
        degree += np.bincount(some.one, some.weight, size) + np.bincount(some.other, some.weight, size)
    if not (np.isfinite(start).all() and np.isfinite(degree).all()):
        raise ValueError("a walk needs finite weights and probabilities: it would not come to an end")
    leaves = degree == 0
    per_degree = np.divide(1.0, degree, out=np.zeros(size), where=~leaves)
    here = start
    while True:
        sent = here * per_degree
        arrived = np.zeros(size)
        for some in edges:
            arrived += np.bincount(some.other, some.weight * sent[some.one], size)
            arrived += np.bincount(some.one, some.weight * sent[some.other], size)
        arrived += start * here[leaves].sum()
        after = (1 - damping) * start + damping * arrived
        if np.abs(after - here).sum() < _CLOSE:
            return after
        here = after


def pagerank_scores(
    index: NamespaceIndex,
    query: Query,
    numbers: Ints,
    recipe: PageRank,
    as_of_us: int | None,
    passes: Mask | None,
) -> tuple[Floats, dict[str, Floats]]:
    """Score every turn of a namespace.

    Args:
        index: The namespace.
        query: With a vector.
        numbers: The query's terms as the namespace numbers them.
        recipe: The constants.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
        passes: Which turns may be found, bool `[turns]`; None for all.

    Returns:
        How often a walk is at each turn, float32 `[turns]`, 0 where it never is; and the turns' cosines by name.
    """
    vector = finite_vector(query, recipe.name)
    turns, terms = len(index), index.terms
    first_fact, first_term = turns, turns + index.graph.counts["fact"]
    stands = index.graph.stands(as_of_us)
    cosines = index.cosines(vector)
    allowed = np.ones(turns, bool) if passes is None else passes
    edges = _edges(index, allowed, stands, recipe.alike, first_fact, first_term)
    start = np.zeros(first_term + terms)
    start[:turns] = recipe.passages * np.where(allowed, np.maximum(cosines, 0), 0)
    facts = np.flatnonzero(stands)
    near = index.graph.cosines("fact", vector, 0.0)
    best = facts[np.argsort(-near[facts], kind="stable")[: recipe.facts]]
    start[first_fact + best] = np.maximum(near[best], 0)
    asked = np.unique(numbers)
    start[first_term + asked] = 1 / np.maximum(index.term_frequencies("turn")[asked], 1)
    total = start.sum()
    if not total:
        return np.zeros(turns, np.float32), {}
    visits = pagerank(edges, start / total, recipe.damping)[:turns]
    return np.where(allowed, visits, 0).astype(np.float32), {"dense/turn": cosines}


def _edges(
    index: NamespaceIndex, allowed: Mask, stands: Mask, alike: float, first_fact: int, first_term: int
) -> list[Edges]:
    """Return the edges of words, of sources and of facts that are alike; nodes are turns, then facts, then words."""
    offsets, rows, scores = index.postings("turn")
    kept = allowed[rows]
    words = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    weights = scores.astype(np.float64) / scores.max(initial=1e-9)
    words_of_turns = Edges(first_term + words[kept], rows[kept].astype(np.int64), weights[kept])
    sources = index.graph.turns_of_fact
    facts = np.repeat(np.arange(len(stands)), np.diff(sources.offsets))
    kept = stands[facts] & allowed[sources.values]
    turns_of_facts = Edges(first_fact + facts[kept], sources.values[kept], np.ones(int(kept.sum())))
    relations = index.relations("fact")
    one, other = relations.sources, relations.targets
    meaning = relations.features[:, relations.layout.index("semantic")]
    # Each pair is related both ways, so half of them are all.
    kept = (meaning >= alike) & (one < other) & stands[one] & stands[other]
    alike_facts = Edges(first_fact + one[kept], first_fact + other[kept], meaning[kept].astype(np.float64))
    return [words_of_turns, turns_of_facts, alike_facts]
