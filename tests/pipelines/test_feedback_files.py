"""Feedback from files: what is read, what is left out and why, and what is refused as a whole."""

import json
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from pipelines.feedback_files import read_feedback
from pipelines.import_stage import ImportFailed
from pipelines.log_rows import LogFileError

ROW = {
    "namespace": "acme/ana",
    "query_id": "q1",
    "node_kind": "skill",
    "node_id": "s1",
    "shown_at": "2024-03-01T10:00:00Z",
    "outcome": "success",
    "n_steps": 4,
}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_rows_are_read_with_outcomes_and_times_as_logs_have_them(tmp_path):
    rows = [
        {**ROW, "query_id": "q2", "outcome": 0.5, "shown_at": 1709287200, "n_steps": "7"},
        {**ROW, "query_id": 3, "outcome": "unknown"},
        {**ROW, "outcome": True},
    ]
    feedback = read_feedback(write(tmp_path / "feedback.jsonl", *rows), 0.0)
    read = feedback.rows.to_pylist()
    assert [(row["query_id"], row["outcome"], row["n_steps"]) for row in read] == [
        ("3", "unknown", 4), ("q1", "success", 4), ("q2", "failure", 7),
    ]  # fmt: skip
    assert {row["shown_at"] for row in read} == {datetime(2024, 3, 1, 10, tzinfo=UTC)}
    assert feedback.rejected == {}


def test_parquet_says_the_same_as_json_lines(tmp_path):
    lines = read_feedback(write(tmp_path / "feedback.jsonl", ROW), 0.0)
    pq.write_table(lines.rows, tmp_path / "feedback.parquet")
    assert read_feedback(tmp_path / "feedback.parquet", 0.0).rows.equals(lines.rows)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", "the row cannot be read"),
        ([1], "the row is no object"),
        ({"namespace": ""}, "namespace: it is missing or none"),
        ({"namespace": "acme//ana"}, "namespace: it is missing or none"),
        ({"query_id": None}, "query_id: it is missing or no name"),
        ({"node_id": {"a": 1}}, "node_id: it is missing or no name"),
        ({"node_kind": "lesson"}, "node_kind: none of subtask, skill, trajectory"),
        ({"node_kind": ["skill"]}, "node_kind: none of subtask, skill, trajectory"),
        ({"shown_at": "soon"}, "shown_at: not a time"),
        ({"shown_at": None}, "shown_at: it is missing"),
        ({"outcome": "perhaps"}, "outcome: no success, failure or unknown, no truth value and no number from 0 to 1"),
        ({"outcome": None}, "outcome: no success, failure or unknown, no truth value and no number from 0 to 1"),
        ({"n_steps": -1}, "n_steps: no whole number from 0 to 2147483647"),
        ({"n_steps": 2**31}, "n_steps: no whole number from 0 to 2147483647"),
        ({"n_steps": 1.5}, "n_steps: no whole number from 0 to 2147483647"),
        ({}, "the node was shown for the query in an earlier row"),
    ],
)
def test_a_bad_row_is_left_out_for_a_reason_and_the_others_are_kept(tmp_path, bad, why):
    row = {**ROW, **bad} if isinstance(bad, dict) else bad
    feedback = read_feedback(write(tmp_path / "feedback.jsonl", ROW, row), 0.5)
    assert feedback.rejected == {why: 1}
    assert feedback.first == {why: "feedback.jsonl:2"}
    assert feedback.rows.num_rows == 1


def test_too_many_bad_rows_are_refused_with_the_first_of_them(tmp_path):
    path = write(tmp_path / "feedback.jsonl", ROW, {**ROW, "outcome": "perhaps"})
    with pytest.raises(ImportFailed, match=r"1 of 2 rows .* 1 x outcome: .*\(first feedback.jsonl:2\)"):
        read_feedback(path, 0.4)


def test_no_usable_row_is_refused_whatever_the_rate(tmp_path):
    with pytest.raises(ImportFailed, match="1 of 1 rows"):
        read_feedback(write(tmp_path / "feedback.jsonl", {}), 1.0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("feedback.csv", "a,b", "convert the file"),
        ("feedback.jsonl", "", "there is no row"),
        ("feedback.parquet", "no parquet", "cannot be read as Parquet"),
    ],
)
def test_a_file_that_is_no_feedback_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(LogFileError, match=said):
        read_feedback(tmp_path / name, 1.0)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(LogFileError, match="cannot be read"):
        read_feedback(tmp_path / "feedback.jsonl", 1.0)
