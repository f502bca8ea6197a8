"""Evolution of skills as a person runs it."""

import json

import pytest

from jobs import evolve_skills, forget, query, rebuild
from pipelines.store import Store
from pipelines.told_outcomes import FOLDER, Row, add_outcome, erase_outcomes
from tests.pipelines.logs import NOW
from tests.pipelines.runs import runs, write_runs
from tests.pipelines.scripted_model import script_of
from tests.pipelines.scripted_server import ScriptedServer

CONFIG = """
[store]
root = "{root}"
buckets = 2
[encoder]
name = "static"
[[inputs]]
format = "trajectories"
paths = ["{log}"]
namespace = "acme/{{user}}"
"""
TASK = "Put a hot fork on the table"


@pytest.fixture
def config(job, tmp_path):
    path = tmp_path / "memory.toml"
    path.write_text(CONFIG.format(root=tmp_path / "store", log=write_runs(tmp_path / "runs.jsonl", runs())))
    assert job(rebuild, path)[0] == 0
    return path


def answer(job, config):
    """Return the ids of the skills and mistakes for the task, best first."""
    asked = ["--skills", TASK, "--config", config, "--namespace", "acme/ana", "--json"]
    found = json.loads(job(query, *asked)[1])
    return [skill["skill_id"] for skill in found["skills"] + found["mistakes"]]


def write(path, skill, more=()):
    row = {"namespace": "acme/ana", "node_kind": "skill", "node_id": skill, "shown_at": "2024-04-01", "outcome": False}
    shown = [{**row, "query_id": f"q{number}", "n_steps": 5 + number} for number in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in (*shown, *more)))
    return path


def test_what_an_endpoint_was_told_of_a_store_in_object_storage_is_judged_by(job, bucket, tmp_path):
    root, path = f"{bucket}/store", tmp_path / "memory.toml"
    path.write_text(CONFIG.format(root=root, log=write_runs(tmp_path / "runs.jsonl", runs())))
    assert job(rebuild, path)[0] == 0
    skill = answer(job, path)[0]
    about = {"namespace": "acme/ana", "node_kind": "skill", "node_id": skill, "outcome": "failure", "n_steps": 9}
    told = [Row(**about, query_id=f"q{number}", shown_at=NOW) for number in range(5)]
    there = Store.open(root, str(tmp_path / "another machine"))
    for row in told:
        assert add_outcome(there, [row])
    here = Store.open(root)
    here.files(here.root / FOLDER)
    assert erase_outcomes(there, lambda row: row.query_id == "q0")
    code, out, _ = job(evolve_skills, path, "--feedback", f"{root}/feedback")
    assert code == 0
    assert "feedback 4 ok, 0 empty, 0 rejected" in out
    assert "published True" in out
    code, _, err = job(evolve_skills, path, "--feedback", f"{bucket}/elsewhere.jsonl")
    assert (code, f"only {root}/feedback is read" in err) == (2, True)


def test_what_feedback_speaks_against_is_gone_from_answers(job, config, tmp_path):
    skill = answer(job, config)[0]
    feedback = write(tmp_path / "feedback.jsonl", skill, [{"outcome": True}])
    arguments = [config, "--feedback", feedback, "--set", "imports.max_reject_rate=0.2"]
    code, out, _ = job(evolve_skills, *arguments)
    assert code == 0
    assert "pruned 1\n" in out
    assert "published True" in out
    assert "feedback 4 ok, 0 empty, 1 rejected" in out
    assert "1 x namespace: it is missing" in out
    assert "decisions.parquet" in out
    left = answer(job, config)
    assert left
    assert skill not in left


def test_a_replay_says_as_json_what_it_did(job, config):
    code, out, _ = job(evolve_skills, config, "--replay", "--cycles", 2, "--json")
    done = json.loads(out)
    assert code == 0
    assert done["merged"] > 0
    assert done["skills_after"] == done["skills_before"] - done["pruned"] - done["merged"]
    assert done["feedback"]["ok"] > 0
    assert len(done["decisions"]) == done["stages"]["evolve"]["made"]


def test_a_namespace_with_forgotten_runs_is_left_as_it_was_and_named(job, config, tmp_path):
    feedback = write(tmp_path / "feedback.jsonl", answer(job, config)[0])
    assert job(forget, config, "--namespace", "acme/ana", "--trajectory", "heat-egg")[0] == 0
    code, out, _ = job(evolve_skills, config, "--replay")
    assert (code, "1 namespaces left as they were acme/ana: runs of theirs are forgotten" in out) == (0, True)
    code, _, err = job(evolve_skills, config, "--feedback", feedback)
    assert (code, "runs of 1 namespaces" in err, "rebuild the store" in err) == (1, True, True)


def test_a_language_model_writes_what_merged_skills_say(job, config):
    with ScriptedServer(script_of()) as server:
        model = {"engine": "http", "model": "scripted", "stages": ["evolve"], "http.url": server.url}
        overrides = [part for name, value in model.items() for part in ("--set", f"llm.{name}={value}")]
        code, out, _ = job(evolve_skills, config, "--replay", *overrides)
        asked = [body for body in server.log_of("/v1/chat/completions")][1:]
    assert code == 0
    assert len(asked) > 0
    assert "local: " in out
    assert "prompt tokens" in out
    found = job(query, "--skills", TASK, "--config", config, "--namespace", "acme/ana", "--k", 100, "--json")[1]
    found = json.loads(found)
    assert any(skill["name"].startswith("Both: ") for skill in found["skills"] + found["mistakes"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "either --feedback FILE or --replay"),
        (["--replay", "--feedback", "f.jsonl"], 2, "either --feedback FILE or --replay"),
        (["--replay", "--cycles", 0], 2, "--cycles: 0 is not between 1 and 1000"),
        (["--feedback", "nowhere.jsonl"], 1, "nowhere.jsonl: cannot be read"),
        (["--replay", "--set", "encoder.name='minilm'"], 1, "was built with another encoder"),
        (["--replay", "--set", "skills.evolution.depth=-1"], 2, "skills.evolution.depth"),
    ],
)
def test_what_cannot_be_done_is_refused(job, config, arguments, code, said):
    found, _, err = job(evolve_skills, config, *arguments)
    assert found == code
    assert said in err
