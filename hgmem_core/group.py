"""Topics without a model: a left fold over a namespace's episodes in time order.

Each episode joins the topic that is nearest to it so far, by the cosine of its vector with the mean of the topic's and
by shared names, if it is near enough and the topic is not full; else it begins one. A second topic may take it too.
Nothing later changes what was decided, so topics keep their ids and their members when a log grows at its end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.ids import topic_id
from hgmem_core.schemas import INCIDENCE, TOPIC, conform, namespace_ranges, ok_outcomes
from hgmem_core.stage_config import GroupConfig
from hgmem_core.summarise import shorten
from hgmem_core.vector_rows import aligned_vectors

GROUP_REVISION = 3
"""Raised when equal episodes give other topics."""

TITLE_CHARS = 80
SUMMARY_CHARS = 600
KEYWORDS = 15


@dataclass(slots=True)
class Topic:
    """A topic while it grows: its members in order, the sum of their vectors, how often each name occurs."""

    members: list[int]
    total: npt.NDArray[np.float64]
    names: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The topics of one namespace.

    Attributes:
        namespace: Whose they are.
        rows: EPISODE rows in time order.
        vectors: Theirs, unit length or zero, float64 `[n, d]`.
        topics: In the order of their oldest episodes; members are places in `rows`.
    """

    namespace: str
    rows: Sequence[Mapping[str, Any]]
    vectors: npt.NDArray[np.float64]
    topics: Sequence[Topic]


def group(
    episodes: pa.Table,
    vectors: pa.Table,
    names: Mapping[str, Set[str]],
    keywords: Mapping[str, Sequence[str]],
    config: GroupConfig,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Group the episodes of one bucket into topics.

    Args:
        episodes: EPISODE.
        vectors: EMBEDDING of level `episode`, variant `base`; an episode without one joins a topic by its names alone.
        names: For each episode id the names that occur in it (entities, not the speakers).
        keywords: For each episode id the keywords of its facts, repeats kept.
        config: Thresholds and the size cap.

    Returns:
        TOPIC; INCIDENCE of kind `topic`, each episode in at least one; OUTCOME of stage `group`, one row an episode.
    """
    topics: list[dict[str, Any]] = []
    incidences: list[dict[str, Any]] = []
    for grouping in groupings(episodes, vectors, names, config):
        for topic in grouping.topics:
            described, members = describe(grouping, topic, keywords)
            topics.append(described)
            incidences += members
    return (
        conform(pa.Table.from_pylist(topics, TOPIC.arrow), TOPIC),
        conform(pa.Table.from_pylist(incidences, INCIDENCE.arrow), INCIDENCE),
        ok_outcomes("group", episodes.column("namespace"), episodes.column("episode_id")),
    )


def groupings(
    episodes: pa.Table, vectors: pa.Table, names: Mapping[str, Set[str]], config: GroupConfig
) -> Iterator[Grouping]:
    """Yield the topics of each namespace; see `group`."""
    every, _ = aligned_vectors(episodes.column("episode_id"), vectors)
    for namespace, start, stop in namespace_ranges(episodes):
        order = _in_time(episodes.slice(start, stop - start).to_pylist())
        rows = [row for _, row in order]
        own = every[[start + at for at, _ in order]].astype(np.float64)
        topics = fold(own, [names.get(row["episode_id"], frozenset()) for row in rows], config)
        yield Grouping(namespace, rows, own, topics)


def _in_time(rows: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Sort numbered rows by start; episodes without a time come last, in the order of their sessions."""

    def key(numbered: tuple[int, dict[str, Any]]) -> tuple[Any, ...]:
        row = numbered[1]
        started = row["started_at"]
        return (started is None, started or 0, row["session_id"], row["first_position"])

    return sorted(enumerate(rows), key=key)


def fold(vectors: npt.NDArray[np.float64], names: Sequence[Set[str]], config: GroupConfig) -> list[Topic]:
    """Assign each episode, in order, to one or two topics; see the module's docstring.

    Args:
        vectors: Of the episodes in time order, unit length or zero, `[n, d]`.
        names: For each episode the names in it.
        config: Thresholds and the size cap.
    """
    topics: list[Topic] = []
    means = np.zeros((64, vectors.shape[1]))
    full = np.zeros(64, bool)
    topics_of: defaultdict[str, list[int]] = defaultdict(list)
    for at, vector in enumerate(vectors):
        if len(topics) == len(means):
            means, full = np.concatenate([means, np.zeros_like(means)]), np.concatenate([full, np.zeros_like(full)])
        near = means[: len(topics)] @ vector
        for name in names[at]:
            near[topics_of[name]] += config.name_weight / len(names[at])
        near[full[: len(topics)]] = -np.inf
        chosen = _joined(near, config) or [len(topics)]
        if chosen[0] == len(topics):
            topics.append(Topic([], np.zeros(vectors.shape[1])))
        for number in chosen:
            topic = topics[number]
            topic.members.append(at)
            topic.total += vector
            length = np.linalg.norm(topic.total)
            means[number] = topic.total / length if length else topic.total
            full[number] = len(topic.members) == config.max_episodes
            for name in names[at]:
                if name not in topic.names:
                    topics_of[name].append(number)
                topic.names[name] += 1
    return topics


def _joined(near: npt.NDArray[np.float64], config: GroupConfig) -> list[int]:
    """Return the topic to join and perhaps a second one; equally near ones by age."""
    best: list[int] = np.argsort(-near, kind="stable")[:2].tolist()
    if not best or near[best[0]] < config.join:
        return []
    return best if len(best) == 2 and near[best[1]] >= config.join_second else best[:1]


def describe(
    grouping: Grouping, topic: Topic, keywords: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Name a topic after its most central episode and weigh its members by their nearness to the middle.

    Returns:
        A row of TOPIC, and one of INCIDENCE for each member in their order.
    """
    members = [grouping.rows[at] for at in topic.members]
    length = float(np.linalg.norm(topic.total)) or 1.0
    weights = np.clip(grouping.vectors[topic.members] @ topic.total / length, 0.0, 1.0)
    central = sorted(range(len(members)), key=lambda at: (-weights[at], at))
    name = topic_id(str(members[0]["episode_id"]))
    summary = " ".join(str(members[at]["summary"]) for at in sorted(central[:3]))
    times = [row for row in members if row["started_at"] is not None]
    words = Counter(word for row in members for word in keywords.get(row["episode_id"], ()))
    described = {
        "namespace": grouping.namespace,
        "topic_id": name,
        "title": shorten(str(members[central[0]]["title"]), TITLE_CHARS),
        "summary": shorten(summary, SUMMARY_CHARS),
        "keywords": [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))[:KEYWORDS]],
        "started_at": min((row["started_at"] for row in times), default=None),
        "ended_at": max((row["ended_at"] for row in times), default=None),
    }
    roles = ["initiating", *(["developing"] * (len(members) - 1))]
    if central[0]:
        roles[central[0]] = "key_moment"
    return described, [
        {
            "namespace": grouping.namespace,
            "kind": "topic",
            "hyperedge_id": name,
            "node_id": row["episode_id"],
            "node_kind": "episode",
            "role": role,
            "weight": float(weight),
        }
        for row, role, weight in zip(members, roles, weights, strict=True)
    ]


def words_of_episodes(facts: pa.Table, incidences: pa.Table, column: str) -> dict[str, list[str]]:
    """Return for each episode the `entities` or `keywords` of its facts, FACT and INCIDENCE of kind `episode`."""
    words_of = dict(zip(facts.column("fact_id").to_pylist(), facts.column(column).to_pylist(), strict=True))
    words: defaultdict[str, list[str]] = defaultdict(list)
    edges, nodes = (incidences.column(name).to_pylist() for name in ("hyperedge_id", "node_id"))
    for edge, node in zip(edges, nodes, strict=True):
        words[edge] += words_of.get(node, ())
    return dict(words)
