from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from hgmem_core.dense import FlatVectors, open_faiss, to_faiss
from hgmem_core.embeddings import embedding_rows
from hgmem_core.skill_dedup import dedup_skills
from hgmem_core.skill_graph import SkillTables
from hgmem_core.skill_index import (
    NODE_TABLES,
    SKILL_TABLES,
    BucketSkills,
    SkillIndex,
    build_skill_index,
    splice_skill_indexes,
)
from hgmem_core.skill_utility import MEMBERS, nodes_of, utility_of_members
from hgmem_core.taught import dedup_outcomes, distinct_mentions, plan, teach
from hgmem_core.trajectories import Run, Step, merge_runs, trajectories_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
IDS = {"subtasks": "subtask_id", "skills": "skill_id", "trajectories": "trajectory_id"}


def run(namespace, number, outcome="success", actions=("open door 1", "take cup 1 from shelf 2")):
    steps = tuple(Step(action) for action in actions)
    task = f"Find cup {number} and then wash it."
    return Run(f"r:{number}", namespace, f"{namespace}-{number:03d}", f"t{number}", task, steps, outcome, len(steps))


def trajectories(*runs):
    return merge_runs([trajectories_table(runs, 0, NOW)])[0]


def vectors_of(ids):
    """Vectors that go by the id alone."""
    numbers = [int.from_bytes(str(own).encode()[-6:], "big") for own in ids]
    matrix = np.array([np.random.default_rng(number).normal(size=8) for number in numbers], np.float32).reshape(-1, 8)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def index_of(runs):
    taught, plans = teach(runs, "english"), plan(runs)
    found = dedup_skills(taught.mentions, vectors_of(taught.mentions.column("skill_id").to_pylist()))
    members = pa.concat_tables([plans.incidences, found.incidences])
    nodes = nodes_of(plans.subtasks, found.skills, runs)
    utilities = utility_of_members(nodes, runs, members, MEMBERS)
    tables = SkillTables(runs, taught.lessons, plans.subtasks, found.skills, members, utilities)
    tables = replace(tables, incidences=members.sort_by([(name, "ascending") for name in members.column_names[:4]]))
    embeddings = {}
    for name, key in IDS.items():
        ids = getattr(tables, name).select(["namespace", key])
        embeddings[name] = embedding_rows(key, ids, vectors_of(ids.column(key).to_pylist()))[0]
    return build_skill_index(tables, embeddings)


RUNS = [
    run(namespace, number, outcome, actions)
    for namespace, count in (("a", 6), ("b", 3), ("c", 5))
    for number in range(count)
    for outcome, actions in [
        ("success", ("open door 1", "take cup 1 from shelf 2"))
        if number % 2
        else ("failure", ("open door 1", "look", "close door 1"))
    ]
]


def same(one, other):
    assert isinstance(one, BucketSkills)
    for name in SKILL_TABLES:
        assert getattr(one.tables, name).equals(getattr(other.tables, name)), name
    assert np.array_equal(one.vectors, other.vectors)


@pytest.fixture(scope="module")
def index():
    return index_of(trajectories(*RUNS))


@pytest.fixture
def opened(index, tmp_path):
    (tmp_path / "skill.faiss").write_bytes(to_faiss(index.vectors))
    vectors = open_faiss(str(tmp_path / "skill.faiss"))
    assert isinstance(vectors, FlatVectors)
    return SkillIndex(index.tables, vectors)


@pytest.mark.parametrize("namespace", ["a", "b", "c"])
def test_a_namespace_opens_with_its_own_rows_and_their_vectors(opened, namespace):
    graph = opened.open(namespace)
    assert graph.tables.skills.num_rows > 1
    for name in NODE_TABLES:
        table = getattr(graph.tables, name)
        assert set(table.column("namespace").to_pylist()) == {namespace}
        assert np.allclose(getattr(graph.vectors, name), vectors_of(table.column(IDS[name]).to_pylist()), atol=1e-6)
    alone = index_of(trajectories(*(one for one in RUNS if one.namespace == namespace)))
    for name in SKILL_TABLES:
        assert getattr(graph.tables, name).to_pylist() == getattr(alone.tables, name).to_pylist()


def test_what_is_not_there_does_not_open(opened):
    assert opened.namespaces() == ["a", "b", "c"]
    assert opened.open("aa") is None


def test_what_agents_saw_is_not_in_the_index(index):
    assert "steps" not in index.tables.trajectories.column_names
    assert index.tables.trajectories.column("task")[0].as_py() == "Find cup 0 and then wash it."


@pytest.mark.parametrize("changed", ["a", "b", "c", "d"])
def test_an_index_put_together_is_the_one_built_at_once(changed):
    more = [*RUNS, *(run(changed, number, "success", ("go to shelf 1", "open door 2")) for number in (20, 21))]
    whole = index_of(trajectories(*more))
    fresh = index_of(trajectories(*(one for one in more if one.namespace == changed)))
    same(splice_skill_indexes(index_of(trajectories(*RUNS)), fresh, {"a", "b", "c"} - {changed}), whole)


def test_a_namespace_that_goes_leaves_the_others():
    rest = index_of(trajectories(*(one for one in RUNS if one.namespace != "b")))
    nothing = index_of(trajectories())
    same(splice_skill_indexes(index_of(trajectories(*RUNS)), nothing, {"a", "c"}), rest)


def test_each_run_and_each_mention_is_accounted_for():
    runs = trajectories(*RUNS, run("b", 40, "unknown"), run("b", 41, "success", ("Thank you very much, goodbye!",)))
    taught = teach(runs, "english")
    told = {row["row_id"]: (row["outcome"], row["reason"]) for row in taught.outcomes.to_pylist()}
    assert len(told) == runs.num_rows
    assert told.pop("b-040") == ("empty", "how the run ended is unknown")
    assert told.pop("b-041") == ("empty", "nothing that the run did has a template")
    assert set(told.values()) == {("ok", None)}
    mentions = taught.mentions
    found = dedup_skills(mentions, vectors_of(mentions.column("skill_id").to_pylist()))
    outcomes = dedup_outcomes(mentions, found)
    assert outcomes.num_rows == mentions.num_rows > found.skills.num_rows
    assert outcomes.column("outcome").to_pylist().count("ok") == found.skills.num_rows


def test_a_task_that_names_nothing_to_do_is_accounted_for():
    blank = replace(run("a", 50), task="...")
    planned = plan(trajectories(*RUNS, blank))
    told = {row["row_id"]: (row["outcome"], row["reason"]) for row in planned.outcomes.to_pylist()}
    assert told.pop("a-050") == ("empty", "the task says nothing that is to be done")
    assert set(told.values()) == {("ok", None)}


def test_mentions_are_numbered_by_time_and_encoded_once():
    taught = teach(trajectories(*RUNS), "english")
    rows = [row for row in taught.mentions.to_pylist() if row["namespace"] == "c"]
    assert [row["position"] for row in rows] == list(range(len(rows)))
    assert [row["trajectory_id"] for row in rows] == sorted(row["trajectory_id"] for row in rows)
    distinct = distinct_mentions(taught.mentions).column("skill_id").to_pylist()
    assert len(distinct) == len(set(distinct)) == len(set(taught.mentions.column("skill_id").to_pylist()))
