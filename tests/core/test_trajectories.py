from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.schemas import TRAJECTORY
from hgmem_core.trajectories import (
    Run,
    Step,
    anonymous_trajectory_id,
    cut_long_texts,
    merge_runs,
    number_equal_runs,
    trajectories_table,
    trajectory_id,
)

IMPORTED = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def run(action="ls", source_id=None, outcome="success", namespace="acme/ops", task="Count", said_at=None):
    steps = (Step(action, "seen"), Step("stop"))
    known = None if source_id is None else trajectory_id(namespace, source_id)
    return Run(
        row_id="log:1",
        namespace=namespace,
        trajectory_id=known or anonymous_trajectory_id(namespace, "t1", task, steps, said_at),
        task_id="t1",
        task=task,
        steps=steps,
        outcome=outcome,
        n_steps=2,
        source_id=source_id,
        said_at=said_at,
    )


def imported(*runs, ingested_at=IMPORTED, first_row=0):
    return number_equal_runs(trajectories_table(runs, first_row, ingested_at))


def merged(*imports):
    table, outcomes = merge_runs(imports)
    return table.to_pylist(), [(row["row_id"], row["outcome"]) for row in outcomes.to_pylist()]


def test_a_run_becomes_a_trajectory():
    (row,), outcomes = merged(imported(run(said_at=IMPORTED - DAY)))
    assert row == {
        "namespace": "acme/ops",
        "trajectory_id": run(said_at=IMPORTED - DAY).trajectory_id,
        "source_id": None,
        "sequence": 0,
        "task_id": "t1",
        "task": "Count",
        "steps": [{"action": "ls", "observation": "seen"}, {"action": "stop", "observation": None}],
        "outcome": "success",
        "n_steps": 2,
        "said_at": IMPORTED - DAY,
        "ingested_at": IMPORTED,
    }
    assert outcomes == [("0:0", "ok")]


def test_no_imports_make_an_empty_table():
    table, outcomes = merge_runs([])
    assert table.schema.equals(TRAJECTORY.arrow, check_metadata=True)
    assert (table.num_rows, outcomes.num_rows) == (0, 0)


def test_the_same_file_imported_again_adds_nothing():
    once, _ = merged(imported(run("ls"), run("ls"), run("pwd")))
    twice, outcomes = merged(
        imported(run("ls"), run("ls"), run("pwd")),
        imported(run("ls"), run("ls"), run("pwd"), ingested_at=IMPORTED + DAY),
    )
    assert twice == once
    assert Counter(outcome for _, outcome in outcomes) == {"ok": 3, "empty": 3}


def test_equal_runs_without_an_id_stay_apart_and_a_repeated_id_is_one_run():
    apart, _ = merged(imported(run(), run(), run()))
    assert len(apart) == 3
    one, outcomes = merged(imported(run(source_id="a"), run("pwd", source_id="a")))
    assert [row["steps"][0]["action"] for row in one] == ["pwd"]
    assert outcomes == [("0:0", "partial"), ("0:1", "ok")]


def test_the_latest_import_of_a_run_wins_and_keeps_its_place_in_the_log():
    rows, outcomes = merged(
        imported(run("ls", "a", outcome="unknown"), run("ls", "b")),
        imported(run("pwd", "c"), run("ls", "a", outcome="failure"), ingested_at=IMPORTED + DAY),
    )
    by_sequence = sorted(rows, key=lambda row: row["sequence"])
    assert [(row["source_id"], row["outcome"]) for row in by_sequence] == [
        ("a", "failure"),
        ("b", "success"),
        ("c", "success"),
    ]
    assert [row["ingested_at"] - IMPORTED for row in by_sequence] == [DAY, 0 * DAY, DAY]
    assert outcomes == [("0:0", "partial"), ("0:1", "ok"), ("1:0", "ok"), ("1:1", "ok")]


def test_what_was_said_again_after_a_change_was_first_seen_then():
    rows, outcomes = merged(
        imported(run(source_id="a")),
        imported(run("pwd", source_id="a"), ingested_at=IMPORTED + DAY),
        imported(run(source_id="a"), ingested_at=IMPORTED + 2 * DAY),
    )
    assert [row["ingested_at"] for row in rows] == [IMPORTED]
    assert [outcome for _, outcome in outcomes] == ["empty", "partial", "ok"]


def test_an_outcome_that_becomes_known_later_changes_a_run_without_an_id():
    rows, _ = merged(imported(run(outcome="unknown")), imported(run(outcome="failure")))
    assert [row["outcome"] for row in rows] == ["failure"]


def test_namespaces_have_runs_and_places_of_their_own():
    rows, _ = merged(imported(run("a", "1", namespace="x"), run("b", "1", namespace="y"), run("c", "2", namespace="x")))
    assert [(row["namespace"], row["sequence"]) for row in sorted(rows, key=lambda row: row["steps"][0]["action"])] == [
        ("x", 0),
        ("y", 0),
        ("x", 1),
    ]
    assert len({row["trajectory_id"] for row in rows}) == 3


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, "1", "2"])), max_size=5), max_size=4))
def test_every_row_has_one_outcome_and_every_trajectory_one_row(logs):
    imports = [imported(*(run(action, source_id) for action, source_id in log)) for log in logs]
    rows, outcomes = merged(*imports)
    assert len(outcomes) == sum(map(len, logs)) == len(set(outcomes))
    assert len(rows) == sum(outcome == "ok" for _, outcome in outcomes)
    assert sorted(row["sequence"] for row in rows) == list(range(len(rows)))
    ids = {row["trajectory_id"] for row in rows}
    # Without ids, the most of a run in one file is how often it was run.
    anonymous = [Counter(action for action, source_id in log if source_id is None) for log in logs]
    named = {source_id for log in logs for _, source_id in log if source_id}
    assert len(ids) == len(named) + sum(max(log[action] for log in anonymous) for action in "ab" if anonymous)


def test_long_texts_keep_their_two_ends_and_the_id_of_the_whole():
    whole = Run(
        "log:1", "acme", "id", "t", "Read it", (Step("cat", "a" * 10_000_000 + "z"), Step("ls", "b")), "success", 2
    )
    cut = cut_long_texts(whole, 1_000)
    seen = cut.steps[0].observation
    assert len(seen) < 1_010
    assert seen.startswith("a" * 600) and seen.endswith("z")
    assert (cut.trajectory_id, cut.steps[1], cut.task) == ("id", Step("ls", "b"), "Read it")
    assert "1 texts of more than 1,000 characters" in cut.note


def test_short_texts_stay_as_they_are():
    assert cut_long_texts(run(), 256) == run()


def test_a_cut_is_noted_beside_what_was_noted_before():
    noted = Run("log:1", "acme", "id", "t", "x" * 300, (Step("y" * 300),), "success", 1, note="before")
    cut = cut_long_texts(noted, 256)
    assert cut.note == "before; 2 texts of more than 256 characters cut to their ends"
    assert max(len(cut.task), len(cut.steps[0].action)) < 270


@pytest.mark.parametrize("other", [{"action": "pwd"}, {"task": "Sum"}, {"namespace": "b"}, {"said_at": IMPORTED}])
def test_runs_that_differ_have_different_ids(other):
    assert run().trajectory_id != run(**other).trajectory_id
