"""Answers as a person asks for them: streamed from a model, or statements without one; abstentions and failures."""

import json

import pytest

from jobs import query
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.scripted_model import script_of
from tests.pipelines.scripted_server import Scripted, ScriptedServer

QUESTION = "What was told about the harbour in Lisbon?"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows(("ana",)))))
    return folder / "store"


@pytest.fixture
def server():
    with ScriptedServer(script_of()) as server:
        yield server


def asked(store, server=None, *more, question=QUESTION):
    arguments = [question, "--answer", "--store", store, "--namespace", "acme/ana", *more]
    if server is None:
        return arguments
    return [
        *arguments,
        "--set",
        "llm.engine=http",
        "--set",
        "llm.model=scripted",
        "--set",
        f"llm.http.url={server.url}",
    ]


def chats(server):
    return server.log_of("/v1/chat/completions")


def test_a_model_answers_and_its_citations_are_shown_with_their_turns(job, store, server):
    code, out, _ = job(query, *asked(store, server))
    assert code == 0
    [request] = chats(server)
    assert request.body["stream"] is True
    lines = out.splitlines()
    assert "harbour in Lisbon" in lines[0]
    assert lines[1].startswith("[") and "March, 2024" in lines[1]
    assert "by a language model, " in lines[-1] and "tokens" in lines[-1]
    shown = request.body["messages"][1]["content"]
    assert "Today: 2024-03-03" in shown and shown.endswith(f'Question: "{QUESTION}"')


def test_the_same_as_json_names_turns_and_tokens_and_is_the_same_twice(job, store, server):
    first, second = (json.loads(job(query, *asked(store, server, "--json"))[1]) for _ in range(2))
    assert first == second
    assert (first["outcome"], first["engine"], first["style"]) == ("answered", "llm", "full")
    [citation] = first["citations"]
    found = json.loads(job(query, QUESTION, "--store", store, "--namespace", "acme/ana", "--k", 50, "--json")[1])[
        "hits"
    ]
    assert set(citation["turn_ids"]) <= {hit["turn_id"] for hit in found}
    assert first["tokens"] == {
        "prompt": chats(server)[0].prompt_tokens,
        "completion": chats(server)[0].completion_tokens,
    }


def test_a_style_is_asked_for(job, store, server):
    found = json.loads(job(query, *asked(store, server, "--json", "--style", "steps"))[1])
    assert (found["style"], found["reasoning"]) == ("steps", "One after the other.")


def test_without_a_model_the_best_statements_are_shown_and_said_to_be_that(job, store):
    code, out, _ = job(query, *asked(store))
    assert code == 0
    assert "harbour in Lisbon" in out.splitlines()[0]
    assert "by the best statements, word for word" in out.splitlines()[-1]
    assert json.loads(job(query, *asked(store, None, "--json"))[1])["engine"] == "extractive"


def test_what_the_memory_does_not_hold_is_said_with_the_reason(job, store, server):
    code, out, _ = job(query, *asked(store, server, question="Who won the chess tournament?"))
    assert code == 0
    assert "abstains unanswerable: No statement is about that." in out
    empty = ["--until", "2020-01-01T00:00+00:00"]
    assert "abstains no_evidence" in job(query, *asked(store, server, *empty))[1]
    assert len(chats(server)) == 1


def test_a_text_that_turns_out_to_be_cited_badly_is_asked_for_anew(job, store, server):
    bad, good = (json.dumps({"citations": [one], "answer": f"answer {one}", "missing": ""}) for one in (99, 1))
    server.script = lambda body: Scripted(bad if len(chats(server)) == 1 else good)
    code, out, _ = job(query, *asked(store, server))
    assert (code, out.splitlines()[0], len(chats(server))) == (0, "answer 1", 2)
    server.script = lambda body: Scripted(bad)
    code, out, _ = job(query, *asked(store, server))
    assert code == 1
    assert "no answer model_failed" in out and "answer 99" not in out


def test_a_text_that_was_broken_off_is_shown_to_count_no_more(job, store, server):
    cut = '{"citations": [1], "answer": "Half of an ans'
    good = json.dumps({"citations": [1], "answer": "Another one.", "missing": ""})
    server.script = lambda body: Scripted(cut, finish_reason="length") if len(chats(server)) == 1 else Scripted(good)
    out = job(query, *asked(store, server))[1].splitlines()
    assert out[0] == "Half of an ans … the model begins anew" and out[1] == "Another one."


def test_a_server_that_does_not_stream_is_as_good(job, store, server):
    text = json.dumps({"citations": [1], "answer": "At once.", "missing": ""})
    server.script = lambda body: Scripted(text, streams=False)
    assert job(query, *asked(store, server))[1].splitlines()[0] == "At once."


def test_a_server_that_is_away_is_one_line_that_says_what_to_do(job, store, server):
    server.die()
    code, out, error = job(query, *asked(store, server))
    assert (code, out) == (1, "")
    assert "start the server, or correct llm.http.url" in error
    server.revive()


def test_a_model_of_builds_alone_is_refused_before_anything_is_opened(job, tmp_path):
    arguments = ["--set", "llm.engine=vllm", "--set", "llm.model=Qwen/Qwen3-8B"]
    code, _, error = job(query, *asked(tmp_path / "nowhere"), *arguments)
    assert code == 2
    assert "llm.engine=vllm" in error and "set llm.engine=http" in error


def test_nothing_of_a_question_is_kept(job, store, server):
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    job(query, *asked(store, server))
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before
