"""Forgetting as a person asks for it."""

import json

import pytest

from jobs import audit, forget, query, rebuild
from tests.pipelines.logs import rows, write_jsonl
from tests.pipelines.runs import runs, write_runs

CONFIG = """
[store]
root = "{root}"
buckets = 2
[encoder]
name = "static"
[[inputs]]
format = "jsonl"
paths = ["{log}"]
namespace = "acme/{{user}}"
columns = {{id = "id", session = "session", time = "time", speaker = "speaker"}}
[[inputs]]
format = "trajectories"
paths = ["{runs}"]
namespace = "acme/{{user}}"
"""
QUESTION = "the red bicycle"


@pytest.fixture
def config(job, tmp_path):
    path = tmp_path / "memory.toml"
    logs = {"log": write_jsonl(tmp_path / "log.jsonl", rows()), "runs": write_runs(tmp_path / "runs.jsonl", runs())}
    path.write_text(CONFIG.format(root=tmp_path / "store", **logs))
    assert job(rebuild, path)[0] == 0
    return path


def found(job, config, namespace="acme/ana", *more):
    arguments = [QUESTION, "--config", config, "--namespace", namespace, "--json", *more]
    return json.loads(job(query, *arguments)[1])


def test_a_turn_is_hidden_and_restored(job, config):
    first = found(job, config)["hits"][0]
    asked = [config, "--namespace", "acme/ana", "--turn", first["turn_id"]]
    code, out, _ = job(forget, *asked, "--dry-run")
    assert code == 0
    assert "would be hidden" in out and "1 turn of 1 session" in out
    assert found(job, config)["hits"][0] == first
    code, out, _ = job(forget, *asked, "--json")
    told = json.loads(out)
    assert code == 0
    assert {name: told[name] for name in ("number", "tombstones", "turns", "sessions", "restored", "dry_run")} == {
        "number": 1, "tombstones": 1, "turns": 1, "sessions": 1, "restored": False, "dry_run": False,
    }  # fmt: skip
    for recipe in ("bm25", "hypermem", "default"):
        assert first["turn_id"] not in json.dumps(found(job, config, "acme/ana", "--recipe", recipe))
    assert "nothing that was not before" in job(forget, *asked)[1]
    code, out, _ = job(forget, *asked, "--restore")
    assert (code, "restored" in out) == (0, True)
    assert found(job, config)["hits"][0] == first


def test_a_namespace_is_forgotten_with_its_runs_through_the_next_rebuild(job, config):
    theirs = found(job, config, "acme/bo")["hits"]
    assert job(forget, config, "--namespace", "acme/ana")[0] == 0
    skills = ["--skills", "Put a hot fork on the table", "--config", config, "--namespace", "acme/ana", "--json"]
    assert found(job, config)["reason"] == json.loads(job(query, *skills)[1])["reason"] == "unknown_namespace"
    code, out, _ = job(rebuild, config, "--json")
    told = json.loads(out)
    assert (code, told["turns"], told["namespaces"], told["trajectories"]) == (0, 24, 2, 12)
    assert (told["erased"], told["certificate"].endswith("erasures/000001.json")) == (24, True)
    assert found(job, config)["reason"] == "unknown_namespace"
    assert found(job, config, "acme/bo")["hits"] == theirs


def test_filters_and_a_run_by_its_own_id(job, config):
    told = json.loads(job(forget, config, "--namespace", "acme/ana", "--speaker", "Bo", "--session", "s1", "--json")[1])
    assert (told["turns"], told["tombstones"], told["trajectories"]) == (2, 2, 0)
    told = json.loads(job(forget, config, "--namespace", "acme/ana", "--trajectory", "heat-egg", "--json")[1])
    assert (told["turns"], told["trajectories"]) == (0, 1)
    told = json.loads(job(forget, config, "--namespace", "acme/ana", "--before", "2024-03-02T00:00Z", "--json")[1])
    assert (told["turns"], told["trajectories"]) == (4, 2)


def test_what_never_was_ends_with_an_error_and_hides_nothing(job, config, tmp_path):
    for arguments in (["--namespace", "acme/nobody"], ["--namespace", "acme/ana", "--turn", "t1"]):
        code, _, err = job(forget, config, *arguments)
        assert code == 1
        assert "nothing was forgotten" in err and "--allow-unknown" in err
    assert not (tmp_path / "store" / "tombstones").exists()
    code, out, _ = job(forget, config, "--namespace", "acme/nobody", "--allow-unknown")
    assert code == 0
    assert "file 1" in out
    code, _, err = job(forget, config, "--namespace", "acme/ana", "--restore")
    assert (code, "nothing was restored" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--namespace", "acme//ana"], "--namespace: "),
        (["--namespace", "acme/ana", "--turn", "t", "--session", "s"], "--turn names turns by themselves"),
        (["--namespace", "acme/ana", "--trajectory", "t", "--before", "2024-03-02T00:00Z"], "--trajectory names runs"),
        (["--namespace", "acme/ana", "--source-id", "m1", "--speaker", "Bo"], "leave out --speaker"),
        (["--namespace", "acme/ana", "--contains", ""], "--contains is empty"),
        (["--namespace", "acme/ana", "--before", "2024-03-02"], "has no time zone"),
        (["--namespace", "acme/ana", "--restore", "--allow-unknown"], "is of no use to --restore"),
        ([], "--namespace"),
    ],
)
def test_what_does_not_go_together_is_refused(job, config, arguments, said):
    code, _, err = job(forget, config, *arguments)
    assert code == 2
    assert said in err


def test_now_erases_from_every_file_and_a_restored_log_brings_it_back(job, config, tmp_path):
    store = tmp_path / "store"
    texts = ["--text", "ana told me about", "--text", "on the table for ana.", "--json"]
    assert job(audit, store, *texts)[0] == 1
    code, out, _ = job(forget, config, "--namespace", "acme/ana", "--now", "--json")
    told = json.loads(out)
    assert (code, told["turns"], told["trajectories"]) == (0, 12, 12)
    assert told["erased"]["turns"] == 24
    assert job(audit, store, *texts)[0] == 0
    assert found(job, config)["reason"] == "unknown_namespace"
    assert found(job, config, "acme/bo")["hits"]
    code, out, _ = job(rebuild, config, "--json")
    assert (code, json.loads(out)["published"]) == (0, False)
    assert job(audit, store, *texts)[0] == 0
    assert "all that is forgotten was erased before" in job(forget, config, "--now")[1]
    code, out, _ = job(forget, config, "--namespace", "acme/ana", "--restore")
    assert (code, "comes back when its log is imported again" in out) == (0, True)
    assert found(job, config)["reason"] == "unknown_namespace"
    assert job(rebuild, config)[0] == 0
    assert found(job, config)["hits"]


def test_one_is_told_as_one_and_several_as_several(job, config):
    code, out, _ = job(forget, config, "--namespace", "acme/ana", "--trajectory", "heat-egg")
    assert code == 0
    assert "  1 run of an agent\n" in out and "turn" not in out
    code, out, _ = job(forget, config, "--namespace", "acme/ana", "--now")
    assert code == 0
    assert "  12 turns of 3 sessions\n  11 runs of agents\n" in out
    assert "24 turns and runs of 1 namespace, " in out


def test_now_goes_with_what_it_can_do(job, config):
    code, _, error = job(forget, config)
    assert (code, "say whose memory" in error) == (2, True)
    code, _, error = job(forget, config, "--namespace", "acme/ana", "--now", "--restore")
    assert (code, "leave out --restore" in error) == (2, True)


def test_a_tombstone_file_that_is_lost_can_be_given_up(job, config, tmp_path):
    assert "no tombstone file is missing or damaged" in job(forget, config, "--give-up-lost")[1]
    for session in ("s0", "s1"):
        assert job(forget, config, "--namespace", "acme/ana", "--session", session)[0] == 0
    (tmp_path / "store" / "tombstones" / "000001.json").write_text("{}")
    code, _, error = job(forget, config, "--namespace", "acme/ana")
    assert code == 1 and "000001.json is missing or damaged" in error and "--give-up-lost" in error
    code, _, error = job(forget, config, "--give-up-lost", "--now")
    assert (code, "goes by itself" in error) == (2, True)
    code, out, _ = job(forget, config, "--give-up-lost")
    assert code == 0 and "tombstones/000001.json: nothing is hidden by it any more\nforget again" in out
    assert json.loads(job(forget, config, "--give-up-lost", "--json")[1])["given_up"] == []
    assert {hit["session_id"] for hit in found(job, config)["hits"]} == {"s0", "s2"}
