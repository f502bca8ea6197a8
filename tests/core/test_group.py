from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.group import fold, group
from hgmem_core.schemas import EPISODE, conform, embedding_schema
from hgmem_core.stage_config import GroupConfig

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)


def episodes_of(count, namespace="acme/ana", times=True):
    rows = [
        {"namespace": namespace, "episode_id": f"e{number:03d}", "session_id": f"s{number // 3:03d}"}
        | {"first_position": 10 * number, "last_position": 10 * number + 9, "turn_ids": [f"t{number}"]}
        | {"title": f"Title {number}", "summary": f"Summary {number}."}
        | {"started_at": BEGAN + timedelta(days=number) if times else None}
        | {"ended_at": BEGAN + timedelta(days=number, hours=1) if times else None}
        for number in range(count)
    ]
    return conform(pa.Table.from_pylist(rows, EPISODE.arrow), EPISODE)


def vectors_of(directions, namespace="acme/ana"):
    rows = []
    for number, direction in enumerate(directions):
        vector = np.asarray(direction, np.float32)
        row = {"namespace": namespace, "level": "episode", "node_id": f"e{number:03d}", "variant": "base"}
        rows.append({**row, "vector": (vector / np.linalg.norm(vector)).tolist()})
    schema = embedding_schema(len(directions[0]))
    return conform(pa.Table.from_pylist(rows, schema.arrow), schema)


def members(incidences):
    found = {}
    for row in incidences.to_pylist():
        found.setdefault(row["hyperedge_id"], []).append(row["node_id"])
    return sorted(found.values())


def test_episodes_of_one_thread_meet_across_sessions():
    directions = [[1, 0], [0, 1], [1, 0.1], [0.1, 1], [1, 0.05]]
    keywords = {"e000": ["cello", "boat"], "e002": ["cello"], "e001": ["rain"]}
    topics, incidences, outcomes = group(episodes_of(5), vectors_of(directions), {}, keywords, GroupConfig())
    assert members(incidences) == [["e000", "e002", "e004"], ["e001", "e003"]]
    assert outcomes.column("outcome").to_pylist() == ["ok"] * 5
    first = min(topics.to_pylist(), key=lambda row: row["started_at"])
    assert (first["started_at"], first["ended_at"]) == (BEGAN, BEGAN + timedelta(days=4, hours=1))
    assert first["title"] in {"Title 0", "Title 2", "Title 4"}
    assert first["keywords"] == ["cello", "boat"]


def test_shared_names_bring_episodes_together():
    directions = [[1, 0, 0], [0, 1, 0], [0.45, 0.45, 0.77]]
    names = {"e000": {"lisbon"}, "e002": {"lisbon"}}
    apart = group(episodes_of(3), vectors_of(directions), {}, {}, GroupConfig(join=0.5))[1]
    together = group(episodes_of(3), vectors_of(directions), names, {}, GroupConfig(join=0.5))[1]
    assert members(apart) == [["e000"], ["e001"], ["e002"]]
    assert members(together) == [["e000", "e002"], ["e001"]]


def test_an_episode_between_two_topics_belongs_to_both():
    directions = [[1, 0], [0, 1], [1, 1]]
    incidences = group(episodes_of(3), vectors_of(directions), {}, {}, GroupConfig(join=0.6, join_second=0.65))[1]
    assert members(incidences) == [["e000", "e002"], ["e001", "e002"]]


@settings(max_examples=50)
@given(st.integers(1, 25), st.integers(0, 2**32), st.integers(1, 6))
def test_every_episode_has_a_topic_and_later_ones_change_nothing(count, seed, cap):
    directions = np.random.default_rng(seed).standard_normal((count, 4)) + 0.5
    config = GroupConfig(max_episodes=cap, join=0.4, join_second=0.6)
    episodes, vectors = episodes_of(count), vectors_of(directions)
    topics, incidences, _ = group(episodes, vectors, {}, {}, config)
    assert set(incidences.column("node_id").to_pylist()) == set(episodes.column("episode_id").to_pylist())
    assert set(incidences.column("hyperedge_id").to_pylist()) == set(topics.column("topic_id").to_pylist())
    assert max(map(len, members(incidences))) <= cap
    weights = incidences.column("weight").to_numpy()
    assert ((weights >= 0) & (weights <= 1)).all()
    earlier = group(episodes.slice(0, count - 1), vectors.slice(0, count - 1), {}, {}, config)[1]
    kept = {(row["hyperedge_id"], row["node_id"]) for row in earlier.to_pylist()}
    assert kept <= {(row["hyperedge_id"], row["node_id"]) for row in incidences.to_pylist()}


@pytest.mark.parametrize("times", [True, False])
def test_episodes_without_times_or_vectors_still_have_topics(times):
    vectors = vectors_of([[1.0, 0.0]]).slice(0, 0)
    _, incidences, _ = group(episodes_of(4, times=times), vectors, {"e003": {"x"}}, {}, GroupConfig())
    assert incidences.num_rows == 4


def test_namespaces_are_apart_and_an_empty_bucket_is_valid():
    both = pa.concat_tables([episodes_of(1), episodes_of(1, namespace="acme/bo")])
    topics, incidences, _ = group(both, vectors_of([[1, 0]]), {}, {}, GroupConfig(join=-1.0))
    assert topics.column("namespace").to_pylist() == ["acme/ana", "acme/bo"]
    assert incidences.num_rows == 2
    assert group(EPISODE.empty(), vectors_of([[1, 0]]), {}, {}, GroupConfig())[0].num_rows == 0


def test_the_fold_is_near_linear_in_topics():
    vectors = np.random.default_rng(0).standard_normal((5_000, 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    topics = fold(vectors, [set()] * 5_000, GroupConfig(join=0.9))
    assert sum(len(topic.members) for topic in topics) == 5_000
