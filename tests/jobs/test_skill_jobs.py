"""Runs of agents through the jobs, as a person runs them."""

import json

import pytest

from jobs import import_logs, query, rebuild
from tests.pipelines.logs import rows, write_jsonl
from tests.pipelines.runs import runs, write_runs

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
def config(tmp_path):
    path = tmp_path / "memory.toml"
    path.write_text(CONFIG.format(root=tmp_path / "store", log=write_runs(tmp_path / "runs.jsonl", runs())))
    return path


@pytest.fixture
def asked(job, config, tmp_path):
    assert job(rebuild, config)[0] == 0
    return ["--skills", TASK, "--store", tmp_path / "store", "--namespace", "acme/ana"]


def test_a_rebuild_says_what_it_learned(job, config):
    code, out, _ = job(rebuild, config, "--json")
    done = json.loads(out)
    assert code == 0
    assert done["trajectories"] == done["imported"]["trajectories"] == 24
    assert done["stages"]["skills"]["outcomes"] == {"ok": 24}
    assert done["skills"] == done["stages"]["dedup"]["outcomes"]["ok"]
    shown = job(rebuild, config)[1]
    assert f"skills {done['skills']}" in shown
    assert "index_skills" in shown


def test_a_rebuild_of_chat_alone_does_not_speak_of_skills(job, tmp_path):
    chat = tmp_path / "chat.toml"
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    text = CONFIG.format(root=tmp_path / "store", log=log).replace('"trajectories"', '"jsonl"')
    chat.write_text(text)
    assert "skills" not in job(rebuild, chat)[1]
    assert "skills" not in json.loads(job(rebuild, chat, "--json")[1])


def test_what_was_found_is_printed_with_where_it_is_from(job, asked):
    code, out, _ = job(query, *asked)
    assert code == 0
    lines = out.splitlines()
    titles = [lines.index(title) for title in ("skills", "mistakes to avoid", "lessons")]
    assert titles == sorted(titles)
    assert "4 of 4 runs succeeded; from heat-egg, heat-pan" in out
    assert "failure  heat-mug" in out
    assert "recipe skills/covering" in lines[-1]


def test_the_recipe_and_the_number_of_skills_are_arguments(job, asked):
    code, out, _ = job(query, *asked, "--recipe", "skills/bm25", "--k", 1, "--json")
    found = json.loads(out)
    assert (code, found["recipe"]) == (0, "skills/bm25")
    assert len(found["skills"] + found["mistakes"]) == 1
    assert found["skills"][0]["taught_by"]
    code, _, err = job(query, *asked, "--recipe", "hybrid")
    assert code == 2
    assert "no skill recipe 'hybrid'; there are skills/full" in err


def test_a_context_for_a_prompt(job, asked):
    code, out, _ = job(query, *asked, "--context-tokens", 200)
    assert code == 0
    assert "## Past Experience\n- [success] What worked: `go to <object>`" in out
    assert "## Mistakes to Avoid\n- " in out
    found = json.loads(job(query, *asked, "--context-tokens", 200, "--json")[1])
    assert 0 < found["context_tokens"] <= 200


def test_nothing_found_says_why(job, asked):
    arguments = [*asked[:-1], "acme/nobody"]
    assert "nothing found: unknown_namespace" in job(query, *arguments)[1]


def test_several_namespaces_and_libraries_are_asked_at_once(job, config, asked, tmp_path):
    found = json.loads(job(query, *asked, "--namespace", "acme/bo", "--json")[1])
    assert found["namespaces"] == ["acme/ana", "acme/bo"]
    assert {skill["namespace"] for skill in found["skills"]} == {"acme/ana", "acme/bo"}
    assert [step["subtask_id"] for step in found["subtasks"]]
    assert found["plan"] == [TASK]
    assert "acme/bo heat-egg" in job(query, *asked, "--namespace", "acme/bo")[1]
    assert "acme/ana heat-egg" not in job(query, *asked)[1]
    assert "without runs in this version acme/none\n" in job(query, *asked, "--namespace", "acme/none")[1]
    with config.open("a") as text:
        text.write('[skills]\nlibraries = ["acme/bo", "acme/nobody"]\n')
    found = json.loads(job(query, *asked, "--config", config, "--json")[1])
    assert found["namespaces"] == ["acme/ana", "acme/bo"]
    code, _, err = job(query, "Who?", "--store", tmp_path / "store", "--namespace", "a", "--namespace", "b")
    assert (code, "a QUESTION is asked of one namespace" in err) == (2, True)
    code, _, err = job(query, *asked, *(part for number in range(8) for part in ("--namespace", f"a/{number}")))
    assert (code, "--namespace: 9 namespaces are asked for skills; name 1 to 8" in err) == (2, True)


def test_a_library_that_is_no_namespace_is_refused(job, asked):
    code, _, err = job(query, *asked, "--set", 'skills.libraries=["acme//x"]')
    assert (code, "skills.libraries" in err, "segment is empty" in err) == (2, True, True)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["and a question"], "ask either a QUESTION or for --skills TASK"),
        (["--speaker", "Ana"], "--skills takes no filter"),
        (["--explain"], "no --explain"),
    ],
)
def test_what_does_not_go_with_skills_is_refused(job, asked, extra, said):
    code, _, err = job(query, *asked, *extra)
    assert code == 2
    assert said in err


def test_neither_a_question_nor_a_task_is_refused(job, tmp_path):
    code, _, err = job(query, "--store", tmp_path, "--namespace", "acme/ana")
    assert (code, "ask either a QUESTION" in err) == (2, True)


def test_import_without_a_configuration_file(job, tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", runs())
    arguments = ["trajectories", log, "--out", tmp_path / "store", "--namespace", "acme/{user}", "--json"]
    code, out, _ = job(import_logs, *arguments)
    done = json.loads(out)
    assert (code, done["turns"], done["trajectories"], done["imported"]["outcomes"]["ok"]) == (0, 0, 24, 24)
