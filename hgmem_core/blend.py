"""The recipe `hypergraph`: words and the levels of the hypergraph, blended; see `hgmem_core.recipes.Blend`."""

from collections.abc import Mapping
from functools import reduce

import numpy as np

from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Mask, Query, finite_vector, speaker_factors
from hgmem_core.recipes import DEPTH, Blend
from hgmem_core.units import Unit

_WORD_UNITS: tuple[Unit, ...] = ("dated", "window", "prior")


def blend(
    index: NamespaceIndex,
    query: Query,
    numbers: Ints,
    recipe: Blend,
    as_of_us: int | None,
    passes: Mask | None = None,
) -> tuple[Floats, dict[str, Floats]]:
    """Score every turn of a namespace.

    Args:
        index: The namespace.
        query: With a vector.
        numbers: The query's terms as the namespace numbers them.
        recipe: The weights.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
        passes: Which turns may be found, bool `[turns]`; None for all. Only where there are many facts does it matter
            here: the nearest that are looked at are those of turns that pass.

    Returns:
        The scores, float32 `[turns]`, and the weighted parts whose sum they are, the speaker's factor included.
    """
    weights = _weights(recipe)
    made = components(index, query, numbers, recipe, as_of_us, passes)
    parts = {name: part * weights[name] for name, part in made.items()}
    factors = speaker_factors(index, query.text, recipe.other_speaker)
    if factors is not None:
        parts = {name: part * factors for name, part in parts.items()}
    scores: Floats = reduce(np.add, parts.values())
    return scores, parts


def components(
    index: NamespaceIndex,
    query: Query,
    numbers: Ints,
    recipe: Blend,
    as_of_us: int | None = None,
    passes: Mask | None = None,
) -> dict[str, Floats]:
    """Return what a blend is made of, each scaled to [0, 1] within the query: float32 `[turns]` by name."""
    terms = numbers.tolist()
    parts = {f"bm25/{unit}": index.bm25(unit, terms) for unit in _WORD_UNITS}
    parts["bm25/episode"] = index.bm25("episode", terms).take(index.episode)
    facts = fact_scores(index, finite_vector(query, recipe.name), recipe.propagation, as_of_us, passes)
    parts["dense/fact"] = facts
    parts["dense/topic"] = topic_scores(index, facts)
    return {name: scaled(part) for name, part in parts.items()}


def combined(parts: Mapping[str, Floats], recipe: Blend) -> Floats:
    """Return the weighted sum of components, without the speaker's factor."""
    weights = _weights(recipe)
    total: Floats = np.sum([weights[name] * part for name, part in parts.items()], axis=0, dtype=np.float32)
    return total


def _weights(recipe: Blend) -> dict[str, np.float32]:
    words = {f"bm25/{unit}": np.float32(recipe.words / len(_WORD_UNITS)) for unit in _WORD_UNITS}
    levels = {"bm25/episode": recipe.episode, "dense/fact": recipe.fact, "dense/topic": recipe.topic}
    return words | {name: np.float32(weight) for name, weight in levels.items()}


def scaled(scores: Floats) -> Floats:
    """Return scores moved and scaled to [0, 1]; zeros where all are equal."""
    low, high = scores.min(), scores.max()
    if high == low:
        return np.zeros(len(scores), np.float32)
    result: Floats = (scores - low) / (high - low)
    return result


def fact_scores(
    index: NamespaceIndex, vector: Floats, propagation: float, as_of_us: int | None, passes: Mask | None = None
) -> Floats:
    """Return the best cosine of each turn's facts; a turn that is no fact's best source gets the lowest of all.

    Where there are many facts, the nearest of turns that pass are looked at and no others.
    """
    facts, rows = index.graph.best_turn_of_fact(as_of_us)
    if not len(facts) or not vector.any():
        return np.zeros(len(index), np.float32)
    if index.graph.is_large("fact"):
        facts, rows = _near_facts(index, vector, propagation, facts, rows, passes)
        cosines = index.graph.cosines("fact", vector, propagation, facts)
    else:
        cosines = index.graph.cosines("fact", vector, propagation)[facts]
    if not len(facts):
        return np.zeros(len(index), np.float32)
    best = np.full(len(index), cosines.min(), np.float32)
    np.maximum.at(best, rows, cosines)
    return best


def _near_facts(
    index: NamespaceIndex, vector: Floats, propagation: float, facts: Ints, rows: Ints, passes: Mask | None
) -> tuple[Ints, Ints]:
    """Return those of `facts` near a query, and their turns' rows."""
    if passes is not None:
        facts, rows = (part[passes[rows]] for part in (facts, rows))
    some = np.zeros(index.graph.counts["fact"], bool)
    some[facts] = True
    near = index.graph.nearest("fact", vector, propagation, DEPTH, None if some.all() else some)
    place = np.searchsorted(facts, near)
    return near, rows[place]


def topic_scores(index: NamespaceIndex, facts: Floats) -> Floats:
    """Return for each turn the best of `facts` within the topics of its episode, float32 `[turns]`."""
    graph = index.graph
    lowest = facts.min()
    by_episode = np.full(graph.counts["episode"], lowest, np.float32)
    np.maximum.at(by_episode, index.episode, facts)
    topics, episodes = graph.topic_pairs
    by_topic = np.full(graph.counts["topic"], lowest, np.float32)
    np.maximum.at(by_topic, topics, by_episode[episodes])
    of_episode = np.full(graph.counts["episode"], lowest, np.float32)
    np.maximum.at(of_episode, episodes, by_topic[topics])
    return of_episode.take(index.episode)
