"""What the endpoint finds in one opened version: over several namespaces, of several levels, by id, and how much."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.abstention import Abstention
from hgmem_core.context import MOST_STATEMENTS, Context, Statement, assemble
from hgmem_core.graph import LEVELS, Level
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Mask
from hgmem_core.recipes import RRF_K
from hgmem_core.search import Filters, Hit, passing
from hgmem_core.turns import UNKNOWN_TIME, microseconds
from pipelines.retriever import Response, Retriever

TIMELINE_PARTS = 120

_HIT = tuple(one.name for one in fields(Hit))
_SOURCE = ("turn_id", "session_id", "position", "source_id", "speaker", "said_at", "text")


def answer(responses: Sequence[Response]) -> dict[str, Any]:
    """Return what the answers of several namespaces have in common, as JSON-ready values.

    There is a reason only where nothing was found at all; one of a namespace that there is counts more than that of one
    that there is not. Whether to abstain goes by the namespace that knows most.
    """
    found = any(response.hits for response in responses)
    reasons = [response.reason for response in responses if response.reason is not None]
    told = [reason for reason in reasons if reason != "unknown_namespace"] or reasons
    judged = [response.abstention for response in responses if response.abstention is not None]
    likeliest: Abstention | None = max(judged, key=lambda one: one.probability, default=None)
    timings: dict[str, float] = {}
    for response in responses:
        for stage, spent in response.timings_ms.items():
            timings[stage] = timings.get(stage, 0.0) + spent
    return {
        "version": responses[0].version,
        "recipe": responses[0].recipe,
        "reason": None if found or not told else told[0],
        "abstention": None if likeliest is None else asdict(likeliest),
        "timings_ms": timings,
    }


def fused_hits(responses: Mapping[str, Response], k: int) -> list[dict[str, Any]]:
    """Return the hits of each namespace; of several, fused by reciprocal rank, ties in the order of the namespaces.

    Scores of different namespaces say nothing of each other, ranks do; within one namespace the recipe's own score
    stays.
    """
    several = len(responses) > 1
    hits = [(name, hit) for name, response in responses.items() for hit in response.hits]
    if several:
        hits.sort(key=lambda pair: pair[1].rank)  # stable
    fused = []
    for place, (name, hit) in enumerate(hits[:k], 1):
        # `asdict` would copy each value deeply, which takes longer than all of the rest.
        content: dict[str, Any] = {name: getattr(hit, name) for name in _HIT}
        content["said_at"] = None if hit.said_at is None else hit.said_at.isoformat()
        content["legs"] = {leg: {"rank": rank, "score": score} for leg, (rank, score) in hit.legs.items()}
        content["path"] = [asdict(step) for step in hit.path]
        content |= {"rank": place, "namespace": name}
        if several:
            content["score"] = 1.0 / (RRF_K + hit.rank)
        fused.append(content)
    return fused


def fused_context(responses: Mapping[str, Response], tokens: int, retriever: Retriever) -> Context:
    """Return the context of one namespace, or of several under one budget, statements by the ranks of their turns.

    Args:
        responses: By namespace; each with a context, and the hits that it was made of.
        tokens: The budget.
        retriever: Counts them.
    """
    contexts = [response.context for response in responses.values() if response.context is not None]
    if len(responses) == 1 and contexts:
        return contexts[0]
    ranked: list[tuple[int, Statement]] = []
    for response in responses.values():
        ranks = {hit.turn_id: hit.rank for hit in response.hits}
        for statement in () if response.context is None else response.context.statements:
            rank = min((ranks.get(turn, MOST_STATEMENTS) for turn in statement.turn_ids), default=MOST_STATEMENTS)
            ranked.append((rank, statement))
    ranked.sort(key=lambda pair: pair[0])  # stable: equal ranks in the order of the namespaces
    context = assemble([statement for _, statement in ranked], tokens, retriever.count_tokens)
    return replace(context, left_out=context.left_out + sum(one.left_out for one in contexts))


def find_nodes(
    retriever: Retriever, namespaces: Sequence[str], vector: Floats, level: Level, filters: Filters, k: int
) -> list[dict[str, Any]]:
    """Return the nodes of a level nearest to a question, of all namespaces together: their cosines are comparable.

    A fact is there if it stands and one of its sources passes the filters, and cites those; an episode or a topic is
    there if all of its turns pass, because its text may be made of any.
    """
    found: list[tuple[float, int, dict[str, Any]]] = []
    for place, name in enumerate(namespaces):
        index = retriever.namespace(name)
        if index is None:
            continue
        passes = passing(index, filters)
        near = index.graph.cosines(level, vector, 0.0)
        shown = index.graph.has_vector(level) & says_something(index, level) & nodes_that_pass(index, level, passes)
        if level == "fact":
            shown &= index.graph.stands(None if filters.as_of is None else microseconds(filters.as_of))
        nodes = np.flatnonzero(shown)
        for node in nodes[np.argsort(-near[nodes], kind="stable")][:k].tolist():
            content = {"namespace": name, **_node(index, level, node, passes)}
            found.append((float(near[node]), place, content))
    found.sort(key=lambda one: (-one[0], one[1]))
    return [{"rank": rank, "score": score, **content} for rank, (score, _, content) in enumerate(found[:k], 1)]


def says_something(index: NamespaceIndex, level: Level) -> Mask:
    """Tell which nodes of a level have a text; of what is forgotten, and of what may tell of it, it is blank."""
    lengths = pc.binary_length(index.graph.column(level, "text"))
    return np.asarray(lengths.to_numpy() > 0, bool)


def nodes_that_pass(index: NamespaceIndex, level: Level, passes: Mask | None) -> Mask:
    """Tell which nodes of a level pass if some turns do: a fact by one of its sources, others by all of their turns."""
    count = index.graph.counts[level]
    if passes is None:
        return np.ones(count, bool)
    if level == "fact":
        return _any(index.graph.turns_of_fact, passes)
    episodes = _all(index.graph.turns_of_episode, passes)
    return episodes if level == "episode" else _all(index.graph.episodes_of_topic, episodes)


def _any(lists: Lists, passes: Mask) -> Mask:
    """Tell of which lists a row passes."""
    return np.asarray(_counts(lists, passes) > 0, bool)


def _all(lists: Lists, passes: Mask) -> Mask:
    """Tell of which lists all rows pass."""
    return np.asarray(_counts(lists, passes) == np.diff(lists.offsets), bool)


def _counts(lists: Lists, passes: Mask) -> Ints:
    """Return how many of each list's rows pass."""
    before = np.concatenate([[0], np.cumsum(passes[lists.values])])
    counts: Ints = before[lists.offsets[1:]] - before[lists.offsets[:-1]]
    return counts


def _node(index: NamespaceIndex, level: Level, node: int, passes: Mask | None) -> dict[str, Any]:
    row = {name: index.graph.column(level, name)[node].as_py() for name in ("title", "text", "started_at", "ended_at")}
    rows = [turn for turn in _turns(index, level, node) if passes is None or passes[turn]]
    ids = index.column("turn_id")
    return {
        "level": level,
        "id": index.graph.column(level, "node_id")[node].as_py(),
        **row,
        "started_at": _iso(row["started_at"]),
        "ended_at": _iso(row["ended_at"]),
        "turn_ids": [ids[turn].as_py() for turn in rows],
    }


def _turns(index: NamespaceIndex, level: Level, node: int) -> list[int]:
    """Return the rows of the turns that a node stands on."""
    graph = index.graph
    if level == "fact":
        rows: list[int] = graph.turns_of_fact.of(node).tolist()
        return rows
    episodes = np.array([node]) if level == "episode" else graph.episodes_of_topic.of(node)
    rows = graph.turns_of_episode.of_all(np.asarray(episodes, np.int64)).tolist()
    return rows


def find_memory(index: NamespaceIndex, memory_id: str) -> dict[str, Any] | None:
    """Return a turn, fact, episode or topic of a namespace with its sources and hyperedges, or None."""
    row = _row_of(index.column("turn_id"), memory_id)
    if row is not None:
        said_at = _iso(index.column("said_at")[row].as_py())
        return {
            "level": "turn",
            "id": memory_id,
            "title": None,
            "text": index.column("text")[row].as_py(),
            "started_at": said_at,
            "ended_at": said_at,
            "superseded_by": None,
            "sources": _sources(index, [row]),
            "hyperedges": _edges_of_turn(index, row),
        }
    for level in LEVELS:
        node = _row_of(index.graph.column(level, "node_id"), memory_id)
        if node is not None and index.graph.column(level, "text")[node].as_py():
            about = _node(index, level, node, None)
            del about["turn_ids"]
            return {
                **about,
                "superseded_by": index.graph.column(level, "superseded_by")[node].as_py(),
                "sources": _sources(index, _turns(index, level, node)),
                "hyperedges": _edges_of_node(index, level, node),
            }
    return None


def _row_of(ids: pa.Array | pa.ChunkedArray, wanted: str) -> int | None:
    row = pc.index(ids, pa.scalar(wanted, ids.type)).as_py()
    return None if row < 0 else int(row)


def _sources(index: NamespaceIndex, rows: Sequence[int]) -> list[dict[str, Any]]:
    found = index.nodes.select(_SOURCE).take(pa.array(rows, pa.int64())).to_pylist()
    return [{**row, "said_at": _iso(row["said_at"])} for row in found]


def _edges_of_turn(index: NamespaceIndex, row: int) -> list[dict[str, Any]]:
    episode = int(index.episode[row])
    facts = lists_with(index.graph.turns_of_fact, row)
    edges = [_edge(index, "fact", fact) for fact in facts]
    return edges if episode < 0 else [_edge(index, "episode", episode), *edges]


def _edges_of_node(index: NamespaceIndex, level: Level, node: int) -> list[dict[str, Any]]:
    above: list[tuple[Level, int]] = []
    if level == "fact":
        above = [("episode", one) for one in lists_with(index.graph.facts_of_episode, node)]
    elif level == "episode":
        above = [("topic", one) for one in lists_with(index.graph.episodes_of_topic, node)]
    return [_edge(index, level, node), *(_edge(index, kind, one) for kind, one in above)]


def lists_with(lists: Lists, value: int) -> list[int]:
    """Return which lists hold a value."""
    places = np.flatnonzero(lists.values == value)
    found: list[int] = np.unique(np.searchsorted(lists.offsets, places, side="right") - 1).tolist()
    return found


def _edge(index: NamespaceIndex, kind: Level, node: int) -> dict[str, Any]:
    graph = index.graph
    if kind == "fact":
        members = [index.column("turn_id")[row].as_py() for row in graph.turns_of_fact.of(node).tolist()]
    else:
        lists = graph.facts_of_episode if kind == "episode" else graph.episodes_of_topic
        below: Level = "fact" if kind == "episode" else "episode"
        shown = says_something(index, below)
        members = [graph.column(below, "node_id")[one].as_py() for one in lists.of(node).tolist() if shown[one]]
    return {
        "kind": kind,
        "id": graph.column(kind, "node_id")[node].as_py(),
        "title": graph.column(kind, "title")[node].as_py(),
        "members": members,
    }


def stats(retriever: Retriever, namespace: str) -> dict[str, Any]:
    """Return how much a version has of a namespace: zeros if nothing."""
    index, skills = retriever.namespace(namespace), retriever.skill_graph(namespace)
    span = None if index is None else index.log_span
    sessions = np.zeros(0) if index is None else index.session if index.hidden is None else index.session[~index.hidden]
    return {
        "turns": len(sessions),
        "sessions": len(np.unique(sessions)),
        **{f"{level}s": 0 if index is None else int(says_something(index, level).sum()) for level in LEVELS},
        "skills": 0 if skills is None else skills.tables.skills.num_rows,
        "runs": 0 if skills is None else skills.tables.trajectories.num_rows,
        "first_said_at": None if span is None else span[0].isoformat(),
        "last_said_at": None if span is None else span[1].isoformat(),
    }


def timeline(retriever: Retriever, namespace: str) -> list[int]:
    """Return how many turns were said in each of `TIMELINE_PARTS` equal parts of a log's time, if it has times."""
    index = retriever.namespace(namespace)
    if index is None or index.log_span is None:
        return []
    said = index.said_at_us[index.said_at_us != UNKNOWN_TIME]
    first, last = int(said.min()), int(said.max())
    parts = TIMELINE_PARTS if first < last else 1
    counts: list[int] = np.histogram(said - first, parts, (0, last - first))[0].tolist()
    return counts


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
