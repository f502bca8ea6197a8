"""The hypergraph around hits: the facts, episodes and topics that they belong to, and what is on the way to them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.graph import LEVELS, Level
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Mask
from hgmem_core.search import Filters, passing
from hgmem_core.turns import microseconds
from pipelines.retriever import Retriever
from pipelines.serve_memories import lists_with, nodes_that_pass, says_something

MOST_HITS = 20
"""Around so many of the first hits: beyond, a drawing shows nothing any more."""


def find_around(retriever: Retriever, hits: Sequence[Mapping[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return what is around the first hits, by level from topics to turns, as JSON-ready values.

    A fact is there if it stands and one of its sources passes the filters, an episode or a topic if all of its turns
    pass; a turn that is no hit is there if it passes and a path leads through it.

    Args:
        retriever: Has them.
        hits: As `pipelines.serve_memories.fused_hits` returns them.
        filters: That they passed.
    """
    some = hits[:MOST_HITS]
    found = []
    for namespace in dict.fromkeys(hit["namespace"] for hit in some):
        index = retriever.namespace(namespace)
        if index is not None:
            own = [hit for hit in some if hit["namespace"] == namespace]
            found += [{"namespace": namespace, **node} for node in _around(index, own, filters)]
    return found


def _around(index: NamespaceIndex, hits: Sequence[Mapping[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    graph, passes = index.graph, passing(index, filters)
    shown: dict[Level, Mask] = {
        level: says_something(index, level) & nodes_that_pass(index, level, passes) for level in LEVELS
    }
    shown["fact"] &= graph.stands(None if filters.as_of is None else microseconds(filters.as_of))
    steps: dict[str, set[str]] = {}
    for step in (step for hit in hits for step in hit["path"]):
        steps.setdefault(step["level"], set()).add(step["id"])

    def some(level: Level, numbers: Iterable[int]) -> list[int]:
        """Return those of some nodes that are shown, and those of the level that paths lead through, ascending."""
        passed = _numbers(graph.column(level, "node_id"), steps.get(level, set()))
        return sorted(number for number in {*numbers, *passed} if number >= 0 and shown[level][number])

    turn_ids = index.column("turn_id")
    rows = _numbers(turn_ids, {hit["turn_id"] for hit in hits})
    passed = [row for row in _numbers(turn_ids, steps.get("turn", set())) if passes is None or passes[row]]
    turns = sorted({*rows, *passed})
    facts = some("fact", (fact for row in rows for fact in lists_with(graph.turns_of_fact, row)))
    above = (episode for fact in facts for episode in lists_with(graph.facts_of_episode, fact))
    episodes = some("episode", [*above, *index.episode[rows].tolist()])
    topics = some("topic", (topic for episode in episodes for topic in lists_with(graph.episodes_of_topic, episode)))

    def ids(level: Level, numbers: Iterable[int]) -> list[str]:
        column = graph.column(level, "node_id")
        return [column[number].as_py() for number in numbers]

    def without_fact(episode: int) -> list[int]:
        """Return the turns of an episode that none of its facts here stands on."""
        theirs = {turn for fact in graph.facts_of_episode.of(episode) if fact in facts for turn in sources[fact]}
        return [row for row in rows if index.episode[row] == episode and row not in theirs]

    sources = {fact: graph.turns_of_fact.of(fact).tolist() for fact in facts}
    found = []
    for topic in topics:
        held = graph.episodes_of_topic.of(topic).tolist()
        members = ids("episode", [one for one in held if one in episodes])
        found.append(_node(index, "topic", topic, members, len(held)))
    for episode in episodes:
        held = graph.facts_of_episode.of(episode).tolist()
        members = ids("fact", [one for one in held if one in facts])
        members += [turn_ids[row].as_py() for row in without_fact(episode)]
        found.append(_node(index, "episode", episode, members, len(held)))
    for fact in facts:
        members = [turn_ids[row].as_py() for row in sources[fact] if row in turns]
        found.append(_node(index, "fact", fact, members, len(sources[fact])))
    for row in passed:
        if row not in rows:
            about = {"title": None, "text": index.column("text")[row].as_py()}
            found.append({"level": "turn", "id": turn_ids[row].as_py(), **about, "members": [], "size": 0})
    return found


def _node(index: NamespaceIndex, level: Level, number: int, members: list[str], size: int) -> dict[str, Any]:
    node_id, title, text = (index.graph.column(level, name)[number].as_py() for name in ("node_id", "title", "text"))
    return {"level": level, "id": node_id, "title": title, "text": text, "members": members, "size": size}


def _numbers(ids: pa.Array | pa.ChunkedArray, wanted: set[str]) -> list[int]:
    """Return the numbers of the nodes that have some ids, ascending."""
    found: list[int] = np.flatnonzero(pc.is_in(ids, value_set=pa.array(sorted(wanted), ids.type))).tolist()
    return found
