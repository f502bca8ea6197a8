from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.config import InputConfig
from hgmem_core.importers import TRAJECTORY_IMPORTERS
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.trajectories import Run, Step, trajectory_id


def read(*rows, namespace="acme/ops"):
    config = InputConfig(format="trajectories", paths=["runs.jsonl"], namespace=namespace)
    numbered = [LogRow(f"runs.jsonl:{number}", row) for number, row in enumerate(rows, 1)]
    return list(TRAJECTORY_IMPORTERS["trajectories"](numbered, config))


def run_of(**fields):
    step = {"action": "restart cups", "observation": "done"}
    return {"task": "Restart the printer", "steps": [step], "outcome": "success", **fields}


def test_a_row_becomes_a_run():
    call = {"name": "status", "arguments": {"unit": "cups"}}
    steps = [{"action": call, "observation": {"active": True}}, {"action": "leave"}, "say goodbye"]
    row = run_of(steps=steps, id="r1", task_id=12, time="2024-05-01T09:30:00Z", n_steps=9, team="west")
    assert read(row, namespace="acme/{team}") == [
        Run(
            row_id="runs.jsonl:1",
            namespace="acme/west",
            trajectory_id=trajectory_id("acme/west", "r1"),
            task_id="12",
            task="Restart the printer",
            steps=(Step('status({"unit":"cups"})', '{"active": true}'), Step("leave"), Step("say goodbye")),
            outcome="success",
            n_steps=9,
            source_id="r1",
            said_at=datetime(2024, 5, 1, 9, 30, tzinfo=UTC),
        )
    ]


def test_equal_tasks_are_one_task_where_none_is_named():
    first, second, third = read(run_of(), run_of(task="restart  the PRINTER"), run_of(task="Feed the printer"))
    assert first.task_id == second.task_id != third.task_id


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("success", "success"),
        ("Passed", "success"),
        (" TRUE ", "success"),
        ("0.8", "failure"),
        ("1", "success"),
        (0.1 + 0.2 + 0.7, "success"),
        ("failed", "failure"),
        (0, "failure"),
        (False, "failure"),
        ("unknown", "unknown"),
    ],
)
def test_an_outcome_may_be_a_word_a_number_or_a_truth_value(outcome, expected):
    (run,) = read(run_of(outcome=outcome))
    assert (run.outcome, run.note) == (expected, None)


@pytest.mark.parametrize("outcome", [None, "", "maybe", float("nan"), 2, -0.5, {"reward": 1}, "80%", "1e999"])
def test_an_outcome_that_says_nothing_is_unknown_with_a_note(outcome):
    (run,) = read(run_of(outcome=outcome))
    assert run.outcome == "unknown"
    assert "unknown" in run.note


@pytest.mark.parametrize(
    ("fields", "kept", "n_steps", "note"),
    [
        ({"steps": [{"observation": "x"}, "b"]}, (Step("b"),), 2, "no action"),
        ({"steps": [None, 5, "b"]}, (Step("b"),), 3, "no action"),
        ({"steps": [{"action": {"arguments": "{}"}}, "b"]}, (Step("b"),), 2, "named tool"),
        (
            {"steps": [{"action": "a\x00b", "observation": "c\ud800"}]},
            (Step("ab", "c\ufffd"),),
            1,
            "control characters",
        ),
        ({"steps": ["b"], "n_steps": -3}, (Step("b"),), 1, "n_steps"),
        ({"steps": ["b"], "n_steps": "many"}, (Step("b"),), 1, "n_steps"),
        ({"steps": ["b"], "n_steps": 2**40}, (Step("b"),), 1, "n_steps"),
        ({"steps": ["b"], "time": "yesterday-ish"}, (Step("b"),), 1, "time"),
        ({"steps": ["b"], "id": [1]}, (Step("b"),), 1, "id"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_a_note(fields, kept, n_steps, note):
    (run,) = read(run_of(**fields))
    assert (run.steps, run.n_steps) == (kept, n_steps)
    assert note in run.note


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        (run_of(steps=[]), "empty", "no steps"),
        ({"task": "Feed it"}, "empty", "no steps"),
        (run_of(steps=["", " \u200b"]), "empty", "no steps"),
        (run_of(steps="ls"), "rejected", "'steps'"),
        (run_of(task=None), "rejected", "'task'"),
        (run_of(task=" \n"), "rejected", "what the task was"),
        ("text", "rejected", "must be an object"),
    ],
)
def test_a_row_without_a_run_is_accounted_for(row, outcome, reason):
    (dropped,) = read(row)
    assert dropped.outcome == outcome
    assert reason in dropped.reason


def test_a_line_that_is_no_json_is_one_refusal():
    config = InputConfig(format="trajectories", paths=["runs.jsonl"], namespace="acme")
    broken = LogRow("runs.jsonl:1", None, "not JSON: it ends", "{")
    assert list(TRAJECTORY_IMPORTERS["trajectories"]([broken], config)) == [
        Dropped("runs.jsonl:1", "rejected", "not JSON: it ends", "{")
    ]


KEYS = (
    "task steps action observation outcome name arguments traj messages role content tool_calls function reward result"
    " turn_history actions observations query summary max_reward task_id id time n_steps dataset environment"
).split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8), st.sampled_from(sorted(TRAJECTORY_IMPORTERS)))
def test_any_row_of_any_format_gives_results_and_never_an_error(row, name):
    config = InputConfig(format=name, paths=["log"], namespace="acme")
    results = list(TRAJECTORY_IMPORTERS[name]([LogRow("log:1", row)], config))
    assert results
    for result in results:
        assert result.reason if isinstance(result, Dropped) else result.steps and result.task and result.trajectory_id
        repr(result).encode()
