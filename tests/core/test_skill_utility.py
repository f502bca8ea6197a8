from dataclasses import replace
from datetime import UTC, datetime

import pytest

from hgmem_core.schemas import FEEDBACK
from hgmem_core.skill_utility import MEMBERS, RETRIEVED, UtilityRule, nodes_of, utility_of_members, utility_of_shown
from tests.core.skill_graphs import graph, table


def feedback(*shown):
    """FEEDBACK of (query, kind, node, outcome, steps)."""
    columns = ("query_id", "node_kind", "node_id", "outcome", "n_steps")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return table([{**dict(zip(columns, row, strict=True)), "shown_at": now} for row in shown], FEEDBACK)


GRAPH = graph({"r1": {"skills": ["a"], "subtasks": ["u"]}, "r2": {"skills": ["a", "b"]}})


def known(utilities):
    return {
        (row["node_kind"], row["node_id"]): (row["shown"], row["succeeded"], row["mean_steps"], row["utility"])
        for row in utilities.to_pylist()
    }


def of_shown(rows, rule=RETRIEVED, own=GRAPH):
    nodes = nodes_of(own.tables.subtasks, own.tables.skills, own.tables.trajectories)
    return known(utility_of_shown(nodes, rows, rule))


def test_what_was_shown_has_the_papers_utility_and_the_rest_the_prior():
    found = of_shown(
        feedback(
            ("q1", "skill", "a", "success", 2),
            ("q2", "skill", "a", "failure", 10),
            ("q2", "trajectory", "r1", "failure", 10),
            ("q1", "subtask", "u", "success", 2),
        )
    )
    assert found["skill", "a"] == (2, 1, 6.0, pytest.approx(0.7 * 0.5 + 0.3 * 0.5))
    assert found["trajectory", "r1"] == (1, 0, 10.0, 0.0)
    assert found["subtask", "u"] == (1, 1, 2.0, 1.0)
    assert found["skill", "b"] == found["trajectory", "r2"] == (0, 0, None, 0.5)


def test_runs_of_equal_length_are_all_efficient():
    found = of_shown(feedback(("q1", "skill", "a", "failure", 4), ("q2", "skill", "b", "success", 4)))
    assert found["skill", "a"][3] == pytest.approx(0.3)
    assert found["skill", "b"][3] == 1.0


def test_a_run_of_unknown_outcome_counts_in_neither_way():
    rows = [("q1", "skill", "a", "success", 2), ("q2", "skill", "a", "failure", 10)]
    with_unknown = [*rows, ("q3", "skill", "a", "unknown", 90), ("q4", "skill", "b", "unknown", 1)]
    assert of_shown(feedback(*with_unknown)) == of_shown(feedback(*rows))


def test_to_fail_fast_is_no_merit_if_only_successes_count():
    rows = feedback(
        ("q1", "skill", "a", "failure", 1), ("q2", "skill", "b", "success", 10), ("q3", "skill", "b", "success", 20)
    )
    assert of_shown(rows)["skill", "a"] == (1, 0, 1.0, pytest.approx(0.3))
    found = of_shown(rows, replace(RETRIEVED, successes_only=True))
    assert found["skill", "a"] == (1, 0, None, 0.0)
    assert found["skill", "b"] == (2, 2, 15.0, pytest.approx(0.7 + 0.3 * 0.5))


def test_members_of_runs_are_credited_with_them_and_smoothed():
    own = graph(
        {
            "r1": {"skills": ["a"], "subtasks": ["u"], "n_steps": 2},
            "r2": {"skills": ["a", "b"], "n_steps": 6, "outcome": "failure"},
            "r3": {"skills": ["b", "c"], "outcome": "unknown", "n_steps": 100},
        }
    )
    tables = own.tables
    nodes = nodes_of(tables.subtasks, tables.skills, tables.trajectories)
    found = known(utility_of_members(nodes, tables.trajectories, tables.incidences, MEMBERS))
    assert found["skill", "a"] == (2, 1, 4.0, pytest.approx(0.7 * 2 / 4 + 0.3 * 0.5))
    assert found["skill", "b"] == (1, 0, 6.0, pytest.approx(0.7 * 1 / 3))
    assert found["subtask", "u"] == found["trajectory", "r1"] == (1, 1, 2.0, pytest.approx(0.7 * 2 / 3 + 0.3))
    assert found["trajectory", "r2"] == (1, 0, 6.0, pytest.approx(0.7 / 3))
    assert found["skill", "c"] == found["trajectory", "r3"] == (0, 0, None, 0.5)
    plain = known(utility_of_members(nodes, tables.trajectories, tables.incidences, UtilityRule()))
    assert plain["skill", "a"][3] == pytest.approx(0.7 / 2 + 0.15)
