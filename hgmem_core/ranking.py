"""A ranking of one namespace's turns, and what every recipe shares on the way to one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hgmem_core.intent_llm import Intent
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex, TieOrder, words

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EmptyReason = Literal["no_query_terms", "no_match", "nothing_passes_the_filters", "unknown_namespace"]

NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, analysed.

    Attributes:
        text: As it was asked.
        terms: Its search terms.
        vector: Of unit length, float32 `[dimension]`, if the recipe needs one.
        tuned: The same by what made the version's tuned vectors.
        told: What a model told of it, if one was asked.
    """

    text: str
    terms: tuple[str, ...]
    vector: Floats | None
    tuned: Floats | None = None
    told: Intent | None = None


@dataclass(frozen=True, slots=True)
class ListScores:
    """One list's view of the turns.

    Attributes:
        scores: Of every turn, float32 `[turns]`.
        ranks: Its place in the list, from 1; 0 for a turn that the list does not hold.
    """

    scores: Floats
    ranks: Rows


NodeLevel: TypeAlias = Literal["turn", "topic", "episode", "fact"]
RelationKind: TypeAlias = Literal["temporal", "semantic", "causal", "entity", "holds"]
"""Of the event graphs the four; a hyperedge `holds` its members."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node on the way to a turn.

    Attributes:
        level: Of the node.
        number: The row of a turn, else the number within the level.
        relation: What leads on from the node, by the strongest of its kinds.
    """

    level: NodeLevel
    number: int
    relation: RelationKind


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows of a namespace, best first, with their scores, and why there are none if so.

    Attributes:
        rows: int64 `[n]`.
        scores: float32 `[n]`, falling.
        legs: What each list says. Under reciprocal rank fusion the ranks decide; a blend is the sum of the scores.
        reason: Why the ranking is empty, else None.
        episodes: Episodes that a coarse-to-fine recipe chose, best first.
        facts: Facts that it chose, best first.
        passes: Which turns passed the filters, bool `[turns]`; None if there were none.
        reranked: Whether a reranker had a say.
        rerank_failure: Why it had none although one was given, else None; the order is the recipe's own then.
        paths: By its row, what a recipe of a graph passed on the way to a turn; kept where legs are.
    """

    rows: Rows
    scores: Floats
    legs: dict[str, ListScores] = field(default_factory=dict)
    reason: EmptyReason | None = None
    episodes: Rows = field(default_factory=lambda: NO_ROWS)
    facts: Rows = field(default_factory=lambda: NO_ROWS)
    passes: Mask | None = None
    reranked: bool = False
    rerank_failure: str | None = None
    paths: Mapping[int, tuple[Step, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reranker:
    """Orders the best candidates of a recipe, or of its stages, anew; the rest stays behind them.

    Attributes:
        scores: Of turns or of graph rows of a level, the higher the better: float32 `[len(rows)]`.
        candidates: How many it is given.
    """

    scores: Callable[[Query, NodeLevel, Rows], Floats]
    candidates: int


def empty_ranking(reason: EmptyReason) -> Ranking:
    """Return a ranking without rows."""
    return Ranking(NO_ROWS, np.zeros(0, np.float32), reason=reason)


def best_rows(scores: Floats, candidates: Rows, depth: int, ties: TieOrder) -> Rows:
    """Return the `depth` best candidates, best first, equal scores in the order of `ties`.

    Score and tie rank become one 64-bit integer, all distinct, so that numpy's vectorised sort and partition of
    integers do the work: sparse scores are mostly zeros, on which a partition of floats is slow.
    """
    found = scores[candidates]
    groups = max(4 * depth, 1024)
    if depth and len(found) >= 2 * groups:  # most of many cannot be among the best: they need no key
        near = np.flatnonzero(found >= _reached(found, depth, groups))
        candidates, found = candidates[near], found[near]
    bits = (0.0 - found).view(np.int32)  # 0.0 - x has no negative zero
    ordered = bits ^ ((bits >> 31) & 0x7FFF_FFFF)  # the order of the floats, as integers
    keys = (ordered.astype(np.int64) << 32) | ties.rank[candidates]
    if depth < len(keys):
        keys = np.partition(keys, depth - 1)[:depth]
    keys.sort()
    ranks: Rows = keys & 0xFFFF_FFFF
    return ties.row[ranks]


def _reached(scores: Floats, depth: int, groups: int) -> np.float32:
    """Return a score that at least `depth` of `scores` reach, and few more: far cheaper than the depth-th best itself.

    It is the depth-th best of the maxima of disjoint groups of scores.
    """
    size = len(scores) // groups
    maxima = scores[: size * groups].reshape(size, groups).max(axis=0)
    bound: np.float32 = np.partition(maxima, groups - depth)[groups - depth]
    return bound


def speaker_factors(index: NamespaceIndex, text: str, factor: float) -> Floats | None:
    """Return `factor` for turns of somebody else than the one speaker whom `text` names, else 1.

    None where the text names no speaker of the namespace, or several. Turns without a speaker keep 1.
    """
    asked = words(text)
    named = [number for number, phrase in enumerate(index.speaker_phrases) if phrase.strip() and phrase in asked]
    if len(named) != 1:
        return None
    codes = index.speakers[1]
    return np.where((codes == named[0]) | (codes < 0), np.float32(1.0), np.float32(factor))


def finite_vector(query: Query, recipe: str) -> Floats:
    """Return the query's vector.

    Raises:
        ValueError: There is none, or it is not finite.
    """
    return _finite(query.vector, recipe, "a finite query vector")


def finite_tuned_vector(query: Query, recipe: str) -> Floats:
    """Return the query's vector by what made the tuned vectors.

    Raises:
        ValueError: There is none, or it is not finite.
    """
    return _finite(query.tuned, recipe, "a finite query vector of the version's tuned encoder")


def _finite(vector: Floats | None, recipe: str, what: str) -> Floats:
    if vector is None or not np.isfinite(vector).all():
        raise ValueError(f"recipe {recipe!r} needs {what}")
    return vector
