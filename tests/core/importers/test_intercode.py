import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import TRAJECTORY_IMPORTERS
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.trajectories import Step


def read(*rows, namespace="lab/{environment}"):
    config = InputConfig(format="intercode", paths=["runs.json"], namespace=namespace)
    numbered = [LogRow(f"runs.json:{number}", row) for number, row in enumerate(rows, 1)]
    return list(TRAJECTORY_IMPORTERS["intercode"](numbered, config))


def record(actions=("ls", "wc -l a.txt"), observations=("a.txt", "3 a.txt"), **fields):
    history = {"actions": list(actions), "observations": list(observations), "rewards": [0.125, 1.0]}
    return {
        "environment": "ic_bash",
        "dataset": "./data/sheds/sheds_2.json",
        "task_id": 0,
        "query": "Count the lines",
        "turn_history": history,
        "summary": {"max_reward": 1.0},
        **fields,
    }


def test_a_document_of_records_becomes_runs():
    runs = read({"0": record(), "7": record(task_id=7, summary={"max_reward": 0.67})})
    assert [run.row_id for run in runs] == ["runs.json:1[0]", "runs.json:1[7]"]
    assert [run.task_id for run in runs] == ["ic_bash/sheds_2/0", "ic_bash/sheds_2/7"]
    assert [run.outcome for run in runs] == ["success", "failure"]
    assert runs[0].namespace == "lab/ic_bash"
    assert runs[0].task == "Count the lines"
    assert runs[0].steps == (Step("ls", "a.txt"), Step("wc -l a.txt", "3 a.txt"))
    assert (runs[0].n_steps, runs[0].note) == (2, None)


def test_a_record_may_stand_alone():
    assert [run.row_id for run in read(record())] == ["runs.json:1"]


def test_what_rates_a_step_or_a_task_is_not_read():
    (run,) = read(record(hardness="extra hard", info={"eval_obs": "the gold output"}))
    (refusal,) = read(record(query=None, hardness="extra hard", info={"eval_obs": "the gold output"}))
    assert isinstance(refusal, Dropped)
    for result in (run, refusal):
        assert not {"0.125", "hard", "gold"} & set(repr(result).replace("'", " ").replace(",", " ").split())


@pytest.mark.parametrize(
    ("fields", "steps", "note"),
    [
        ({"observations": ["a.txt"]}, (Step("ls", "a.txt"), Step("wc -l a.txt")), None),
        ({"observations": ["a", "b", "c"]}, (Step("ls", "a"), Step("wc -l a.txt", "b")), "1 observations without an"),
        ({"actions": [None, "pwd"], "observations": ["a", "b"]}, (Step("pwd", "b"),), "null is not text"),
        ({"actions": ["ls"], "observations": [{"rows": [1, None]}]}, (Step("ls", '{"rows": [1, null]}'),), None),
        ({"actions": ["ls"], "observations": ["a\x00b"]}, (Step("ls", "ab"),), "control characters removed"),
    ],
)
def test_actions_and_observations_that_do_not_match_are_accounted_for(fields, steps, note):
    (run,) = read(record(**fields))
    assert run.steps == steps
    assert run.note == note or note in run.note


@pytest.mark.parametrize("summary", [None, {}, {"max_reward": float("nan")}, {"max_reward": 7}, "good"])
def test_without_a_reward_the_outcome_is_unknown(summary):
    (run,) = read(record(summary=summary))
    assert run.outcome == "unknown"
    assert "unknown" in run.note


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        (record(actions=[], observations=[]), "empty", "no steps"),
        (record(actions=[" ", "\u200b"]), "empty", "no steps"),
        (record(turn_history=None), "rejected", "turn_history"),
        (record(query=" "), "rejected", "what the task was"),
        ({"0": 5}, "rejected", "must be an object"),
        ({}, "rejected", "environment"),
    ],
)
def test_a_record_without_a_run_is_accounted_for(row, outcome, reason):
    (dropped,) = read(row)
    assert dropped.outcome == outcome
    assert reason in dropped.reason


def test_a_bad_record_leaves_the_others_of_its_document():
    results = read({"0": record(), "1": None, "2": record(task_id=2)})
    assert [isinstance(result, Dropped) for result in results] == [False, True, False]
