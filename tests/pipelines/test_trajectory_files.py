import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.action_templates import run_templates
from hgmem_core.config import InputConfig
from hgmem_core.importers import TRAJECTORY_IMPORTERS
from hgmem_core.subtasks import subtasks
from hgmem_core.trajectories import Run, merge_runs, number_equal_runs, trajectories_table
from pipelines.log_files import LogFileError, check_columns, expand_paths, open_rows

real = pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")


def read(format, path):
    config = InputConfig(format=format, paths=[str(path)], namespace="agents/all")
    return list(TRAJECTORY_IMPORTERS[format](open_rows(str(path), config), config))


def data(pattern):
    folder = Path(os.environ["HGMEM_DATA"]) / "trajectories"
    return expand_paths([str(folder / pattern)])


def trajectories(*files):
    tables = [number_equal_runs(trajectories_table(runs, 0, datetime(2026, 1, 1, tzinfo=UTC))) for runs in files]
    return merge_runs(tables)[0]


@pytest.mark.parametrize(
    ("format", "name", "document"),
    [
        ("tau-bench", "runs.json", [{"reward": 1, "traj": [{"role": "user", "content": "Hi"}]}] * 2),
        ("intercode", "runs.json", {"0": {"query": "Sum"}, "1": {"query": "Sum"}}),
        ("trajectories", "runs.json", [{"task": "Sum"}] * 2),
    ],
)
def test_a_document_gives_a_result_for_each_of_its_runs(tmp_path, format, name, document):
    (tmp_path / name).write_text(json.dumps(document))
    assert len(read(format, tmp_path / name)) == 2


def test_lines_that_are_no_json_leave_the_others(tmp_path):
    good = json.dumps({"task": "Sum", "steps": ["ls"], "outcome": True})
    (tmp_path / "runs.jsonl").write_text(f"{good}\n{{broken\n{good}\n")
    assert [isinstance(result, Run) for result in read("trajectories", tmp_path / "runs.jsonl")] == [True, False, True]


def test_a_malformed_namespace_refuses_the_file(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("{}\n")
    check_columns(str(path), InputConfig(format="alfworld", paths=[str(path)], namespace="agents/{task_id}"))
    with pytest.raises(LogFileError, match=r"runs\.jsonl: .*agents/\{task_id"):
        check_columns(str(path), InputConfig(format="alfworld", paths=[str(path)], namespace="agents/{task_id"))


@real
def test_every_conversation_of_the_benchmark_is_a_run():
    (path,) = data("tau_bench_airline/*.json")
    rows = json.loads(Path(path).read_text())
    runs = read("tau-bench", path)
    assert len(runs) == len(rows) == 200
    assert [run.outcome == "success" for run in runs] == [row["reward"] == 1 for row in rows]
    assert [run.note for run in runs] == [None] * 200
    assert len({run.task_id for run in runs}) == 50
    calls = sum(len(message.get("tool_calls") or []) for row in rows for message in row["traj"])
    assert sum(template is not None for run in runs for template in run_templates(s.action for s in run.steps)) == calls
    for run, row in zip(runs, rows, strict=True):
        assert run.task == row["traj"][1]["content"].strip()
        assert row["info"]["task"]["instruction"] not in repr(run)
    assert trajectories(runs).num_rows == 200


@real
def test_every_record_of_every_shell_and_database_is_a_run():
    files = [read("intercode", path) for path in data("intercode/ic_*.json")]
    runs = [run for file in files for run in file]
    assert Counter(run.outcome for run in runs) == {"success": 859, "failure": 375}
    assert len({run.task_id for run in runs}) == len(runs) == 1_234
    assert trajectories(*files).num_rows == 1_234


@real
def test_every_game_is_a_run():
    (path,) = data("alfworld/*.jsonl")
    runs = read("alfworld", path)
    assert Counter(run.outcome for run in runs) == {"success": 134, "failure": 376}
    assert trajectories(runs).num_rows == len(runs) == 510
    assert not any("think" in step.action.casefold() for run in runs for step in run.steps)
    templates = Counter(template for run in runs for template in run_templates(step.action for step in run.steps))
    assert [template for template, _ in templates.most_common(4)] == [
        "go to <object>",
        "open <object>",
        "take <object> from <object>",
        "put <object> in/on <object>",
    ]
    assert {len(subtasks(run.task)) for run in runs} == {1, 2}
