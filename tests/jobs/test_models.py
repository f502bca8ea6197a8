"""Encoders and rerankers by name, as the jobs take them."""

import json

import pytest

from jobs import query, rebuild, retrieval_evaluation
from tests.jobs.test_evaluate import evaluated, small_locomo
from tests.jobs.test_jobs import CONFIG
from tests.pipelines.logs import rows, write_jsonl
from tests.pipelines.scripted_server import Scripted, ScriptedServer


@pytest.fixture
def config(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    path = tmp_path / "memory.toml"
    path.write_text(CONFIG.format(root=tmp_path / "store", log=log))
    return path


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server


def sets(**values):
    return [part for name, value in values.items() for part in ("--set", f"{name.replace('__', '.')}={value}")]


def test_a_query_is_reranked_or_says_why_not(job, config, server, tmp_path):
    assert job(rebuild, config)[0] == 0
    reranker = sets(rerank__engine="http", rerank__model="scripted", rerank__http__url=server.url)
    asked = ["what about number 7", "--store", tmp_path / "store", "--namespace", "acme/ana", *reranker]
    code, out, _ = job(query, *asked, "--json")
    response = json.loads(out)
    assert (code, response["reranked"]) == (0, True)
    assert response["hits"][0]["text"].endswith("number 7.")
    assert "rerank #1 (0.750)" in job(query, *asked, "--explain")[1]
    server.die()
    code, out, _ = job(query, *asked)
    server.revive()
    assert code == 0
    assert "not reranked" in out
    assert "number" in out


def test_a_question_is_analysed_by_a_model_or_says_why_not(job, config, server, tmp_path):
    assert job(rebuild, config)[0] == 0
    told = {"temporal": 1, "sub_queries": ["What was number 7?"], "time_from": "2024-03-02", "time_to": "2024-03-02"}
    server.script = lambda body: Scripted(json.dumps(told))
    asked = ["what about number", "--store", tmp_path / "store", "--namespace", "acme/ana", "--recipe", "hage:static"]
    model = sets(retrieve__analysis="llm", llm__engine="http", llm__model="scripted", llm__http__url=server.url)
    code, out, _ = job(query, *asked, *model, "--json")
    response = json.loads(out)
    assert (code, response["intent_failure"]) == (0, None)
    assert response["hits"][0]["said_at"].startswith("2024-03-02")
    server.script = lambda body: Scripted("No.")
    code, out, _ = job(query, *asked, *model)
    assert (code, "analysed by rules" in out, "number" in out) == (0, True, True)
    code, _, error = job(query, *asked, *sets(retrieve__analysis="llm"))
    assert code == 2 and "set llm.engine=http" in error


def test_an_evaluation_is_reranked_and_tells_of_failures(server, tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval_evaluation, "cache_folder", lambda name: tmp_path / name)
    data = tmp_path / "small.json"
    data.write_text(json.dumps(small_locomo()))
    arguments = ["--recipes", "bm25,default", "--set", "encoder.name=static"]
    reranker = sets(rerank__engine="http", rerank__model="scripted", rerank__http__url=server.url)
    evaluated(tmp_path, data, *arguments)
    assert not server.log
    result = evaluated(tmp_path, data, *arguments, *reranker)
    assert len(server.log_of("/v1/rerank")) == 4  # two questions that have an answer, two recipes
    assert result["config"]["rerank"]["engine"] == "http"
    assert not any("own order" in warning for warning in result["warnings"])
    server.models = {}
    warnings = evaluated(tmp_path, data, *arguments, *reranker)["warnings"]
    assert [warning.partition(",")[0] for warning in warnings if "own order" in warning] == [
        "bm25: 2 of 2 questions kept the recipe's own order",
        "default: 2 of 2 questions kept the recipe's own order",
    ]


def test_a_server_without_the_model_ends_a_rebuild_before_anything_is_written(job, config, server, tmp_path):
    encoder = sets(encoder__name="http", encoder__model="other", encoder__http__url=server.url)
    code, _, err = job(rebuild, config, *encoder)
    assert code == 1
    assert "The model `other` does not exist" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "store").exists()


def test_a_store_that_a_server_encoded_is_asked_with_the_same_model(job, config, server, tmp_path):
    encoder = sets(encoder__name="http", encoder__model="scripted", encoder__http__url=server.url)
    assert job(rebuild, config, *encoder)[0] == 0
    asked = ["the harbour in Lisbon", "--store", tmp_path / "store", "--namespace", "acme/ana", "--json"]
    code, out, _ = job(query, *asked, *encoder)
    assert (code, len(json.loads(out)["hits"])) == (0, 10)
    code, _, err = job(query, *asked)
    assert code == 1
    assert "query it with encoder.model='scripted'" in err


def test_a_packaged_encoders_store_is_asked_with_it_whatever_is_configured(job, config, server, tmp_path):
    assert job(rebuild, config)[0] == 0
    encoder = sets(encoder__name="http", encoder__model="scripted", encoder__http__url=server.url)
    asked = ["the harbour in Lisbon", "--store", tmp_path / "store", "--namespace", "acme/ana", "--json"]
    assert job(query, *asked, *encoder)[0] == 0
    assert not server.log
