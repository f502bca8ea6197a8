from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hgmem_core.replay as replay_module
from hgmem_core.replay import replay
from hgmem_core.skill_graph import SkillGraph, SkillTables, SkillVectors
from hgmem_core.skill_recipes import DualPath, find_skill_recipe
from hgmem_core.skill_search import SkillQueries, search_many
from tests.core.skill_graphs import IMPORTED, graph, names, units

RECIPE = DualPath("x", 2, 2, 2)


def shown(feedback):
    return sorted(
        tuple(row[name] for name in ("query_id", "node_kind", "node_id", "outcome", "n_steps"))
        for row in feedback.to_pylist()
    )


def test_a_run_is_credited_to_what_earlier_ones_would_have_shown():
    began = datetime(2025, 1, 1, tzinfo=UTC)
    own = graph(
        {
            "last": {"skills": ["c"], "subtasks": ["w"], "outcome": "failure", "n_steps": 9},
            "first": {"skills": ["a"], "subtasks": ["u"], "said_at": began},
            "second": {"skills": ["a", "b"], "subtasks": ["v"], "said_at": began + timedelta(1), "n_steps": 3},
        },
        {name: {"vector": (1, 0, 0)} for name in "abc"},
        {name: {"vector": (1, 0, 0)} for name in "uvw"},
    )
    same = units([(1, 0, 0)] * 3)
    feedback = replay(own, same, same, DualPath("x", 1, 5, 1))
    assert shown(feedback) == [
        ("replay/last", "skill", "a", "failure", 9),
        ("replay/last", "subtask", "u", "failure", 9),
        ("replay/last", "trajectory", "first", "failure", 9),
        ("replay/last", "trajectory", "second", "failure", 9),
        ("replay/second", "skill", "a", "success", 3),
        ("replay/second", "subtask", "u", "success", 3),
        ("replay/second", "trajectory", "first", "success", 3),
    ]
    times = dict(zip(*(feedback.column(name).to_pylist() for name in ("query_id", "shown_at")), strict=True))
    assert times == {"replay/second": began + timedelta(1), "replay/last": IMPORTED}


def test_what_is_known_at_the_end_alone_cannot_be_replayed():
    own, nothing = graph({}), np.zeros((0, 3), np.float32)
    for name in ("skills/full:utility", "skills/full:degree", "skills/pairwise"):
        with pytest.raises(ValueError, match=f"{name}' cannot be replayed"):
            replay(own, nothing, nothing, find_skill_recipe(name))
    assert replay(own, nothing, nothing, RECIPE).num_rows == 0


vectors = st.tuples(*[st.integers(-2, 2)] * 3)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_replay_is_a_search_of_the_graph_of_the_runs_before(data):
    count = data.draw(st.integers(1, 9))
    order = data.draw(st.permutations(range(count)))
    runs = {
        f"r{place}": {
            "skills": data.draw(st.sets(st.sampled_from("abcdef"), max_size=3)),
            "subtasks": data.draw(st.sets(st.sampled_from(["u", "v", "w", f"x{place}"]), max_size=2)),
            "vector": data.draw(vectors),
            "outcome": data.draw(st.sampled_from(["success", "failure", "unknown"])),
            "sequence": order[place],
        }
        for place in range(count)
    }
    skills = {name: {"vector": data.draw(vectors)} for name in "abcdef"}
    subtasks = {name: {"vector": data.draw(vectors)} for name in ("u", "v", "w")}
    own = graph(runs, skills, subtasks)
    tasks, plans = (units([data.draw(vectors) for _ in range(count)]) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "_BLOCK", 4)
        found = shown(replay(own, tasks, plans, RECIPE))
    expected = []
    for place in range(count):
        before = earlier(own, [run for run in range(count) if order[run] < order[place]])
        asked = SkillQueries(tasks[place : place + 1], plans[place : place + 1], np.zeros((1, 0), np.float32))
        (result,) = search_many(before, asked, RECIPE)
        nodes = {"skill": result.skills, "subtask": result.subtasks, "trajectory": result.trajectories}
        for kind, rows in nodes.items():
            expected += [
                (f"replay/r{place}", kind, node, runs[f"r{place}"]["outcome"], 5) for node in names(before, kind, rows)
            ]
    assert found == sorted(expected)


def earlier(own, runs):
    """The graph of some of the runs, and of the nodes that they hold."""
    hypergraph, tables = own.hypergraph, own.tables
    skills = np.unique(hypergraph.skills.of_all(np.array(runs, np.int64)))
    subtasks = np.unique(hypergraph.subtasks.of_all(np.array(runs, np.int64)))
    kept = tables.trajectories.take(pa.array(runs, pa.int64()))
    held = tables.incidences.filter(
        pa.compute.is_in(tables.incidences.column("hyperedge_id"), kept.column("trajectory_id"))
    )
    some = SkillTables(
        kept, tables.lessons, tables.subtasks.take(subtasks), tables.skills.take(skills), held, tables.utilities
    )
    vectors = own.vectors
    return SkillGraph.of(
        some, SkillVectors(vectors.subtasks[subtasks], vectors.skills[skills], vectors.trajectories[runs])
    )
