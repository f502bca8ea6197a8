"""Answers of the endpoint: at once and as events, what is refused, what is counted, and what a slow model holds up."""

import asyncio
import json
import logging
import threading

import httpx2
import pytest

from pipelines import serve_models
from pipelines.client import AsyncClient, Client, EndpointError
from pipelines.event_stream import EventReader
from pipelines.serve_models import AnswerDelta, AnswerRequest, CitedAnswer
from tests.pipelines.endpoint import client_of, key_for
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.scripted_model import script_of
from tests.pipelines.scripted_network import ScriptedNetwork
from tests.pipelines.scripted_server import Scripted, ScriptedServer
from tests.pipelines.test_client import Application
from tests.pipelines.test_serve_api import answer_of, post, problem_of

QUESTION = {"query": "What was told about the red bicycle?", "namespace": "acme/ana"}
KEY = "sk-of-the-model"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows(("ana", "bo")))))
    return folder / "store"


@pytest.fixture
def server():
    with ScriptedServer(script_of()) as server:
        yield server


def config_for(root, server=None, serve=None, **answer):
    llm = {"engine": "http", "model": "scripted", "http": {"url": server.url}} if server else {}
    return config_of(root, llm=llm, answer=answer, serve=serve or {})


def chats(server):
    return server.log_of("/v1/chat/completions")


def says(*numbers, answer="It is red."):
    return Scripted(json.dumps({"citations": list(numbers), "answer": answer, "missing": ""}))


def events_of(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return [(event.name, json.loads(event.data)) for event in EventReader().feed(response.content)]


def test_an_answer_cites_turns_of_the_namespace(root, server):
    with client_of(config_for(root, server)) as client:
        found = answer_of(post(client, "answer", **QUESTION, style="short"), CitedAnswer)
        turns = {hit["turn_id"] for hit in post(client, "search", **QUESTION, k=50).json()["hits"]}
        again = post(client, "answer", **QUESTION, style="short").json()
    assert (found.outcome, found.engine, found.style) == ("answered", "llm", "short")
    assert "red bicycle" in found.answer
    assert {turn for one in found.citations for turn in one.turn_ids} <= turns
    assert found.tokens.prompt == chats(server)[0].prompt_tokens
    assert {"search", "answer"} <= found.timings_ms.keys()
    assert {**again, "timings_ms": {}} == {**found.model_dump(mode="json"), "timings_ms": {}}


def test_several_namespaces_are_answered_from_together_and_filters_hold(root, server):
    body = {"query": "What was told about the red bicycle?", "namespaces": ["acme/ana", "acme/bo"]}
    with client_of(config_for(root, server)) as client:
        post(client, "answer", **body, filters={"session_id": "s1"}, as_of="2024-03-02T23:00:00Z")
    user = chats(server)[0].body["messages"][1]["content"]
    assert "ana told me" in user and "bo told me" in user
    assert "1 March" not in user and "2 March, 2024" in user and "Today: 2024-03-02" in user


def test_without_a_model_the_best_statements_answer(root):
    with client_of(config_for(root)) as client:
        found = answer_of(post(client, "answer", **QUESTION), CitedAnswer)
        events = events_of(post(client, "answer", **QUESTION, stream=True))
        nothing = answer_of(post(client, "answer", query="Who?", namespace="acme/nobody"), CitedAnswer)
    assert (found.outcome, found.engine, found.tokens.prompt) == ("answered", "extractive", 0)
    assert "red bicycle" in found.answer and 1 <= len(found.citations) <= 3
    [(name, whole)] = events
    assert name == "answer" and whole["answer"] == found.answer
    assert (nothing.outcome, nothing.reason.code, nothing.citations) == ("abstained", "no_evidence", [])


def test_a_stream_gives_the_text_in_parts_and_at_last_the_whole(root, server):
    with client_of(config_for(root, server)) as client:
        *deltas, (last, whole) = events_of(post(client, "answer", **QUESTION, stream=True))
    assert last == "answer" and len(deltas) > 3
    assert {name for name, _ in deltas} == {"delta"}
    assert "".join(delta["text"] for _, delta in deltas) == whole["answer"]
    assert not any(delta["restarts"] for _, delta in deltas)
    CitedAnswer.model_validate(whole)


def test_nothing_is_streamed_that_cites_nothing_given(root, server):
    server.script = lambda body: says(99, answer="Secret.") if len(chats(server)) == 1 else says(1)
    with client_of(config_for(root, server)) as client:
        response = post(client, "answer", **QUESTION, stream=True)
        assert "Secret" not in response.text
        assert events_of(response)[-1][1]["passes"] == 2
        server.script = lambda body: says(99, answer="Secret.")
        [(name, whole)] = events_of(post(client, "answer", **QUESTION, stream=True))
    assert (name, whole["outcome"], whole["answer"]) == ("answer", "failed", "")
    assert "99" in whole["reason"]["text"]


def test_a_text_that_broke_off_is_begun_anew(root, server):
    cut = Scripted('{"citations": [1], "answer": "Half of', finish_reason="length")
    server.script = lambda body: cut if len(chats(server)) == 1 else says(1)
    with client_of(config_for(root, server)) as client:
        *deltas, (_, whole) = events_of(post(client, "answer", **QUESTION, stream=True))
    restarted = [delta["restarts"] for _, delta in deltas].index(True)
    assert "".join(delta["text"] for _, delta in deltas[:restarted]) == "Half of"
    assert "".join(delta["text"] for _, delta in deltas[restarted:]) == whole["answer"] == "It is red."


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_cannot_be_used_is_a_problem_that_says_what_to_do_and_no_secret(
    root, server, stream, monkeypatch, caplog
):
    monkeypatch.setenv("MODEL_KEY", KEY)
    config = config_for(root, server)
    http = config.llm.http.model_copy(update={"key_variable": "MODEL_KEY"})
    config = config.model_copy(update={"llm": config.llm.model_copy(update={"http": http})})
    server.script = lambda body: Scripted(status=401, message=f"{KEY} may not ask {body['messages'][1]['content']}")
    with client_of(config) as client:
        response = post(client, "answer", **QUESTION, stream=stream)
    problem = problem_of(response, 502)
    assert "llm.http" in problem["detail"] and "/v1/context" in problem["detail"]
    told = response.text + caplog.text
    assert not [secret for secret in (KEY, server.url, "red bicycle") if secret in told]


def test_a_model_that_fails_in_the_middle_is_the_last_event(root, server):
    texts = iter([Scripted('{"citations": [1], "answer": "Half of', finish_reason="length"), Scripted(status=403)])
    server.script = lambda body: next(texts)
    with client_of(config_for(root, server)) as client:
        *deltas, (name, problem) = events_of(post(client, "answer", **QUESTION, stream=True))
    assert deltas and (name, problem["status"]) == ("problem", 502)


def test_a_model_that_is_too_slow_is_a_504_and_its_request_ends(root, server):
    server.script = lambda body: Scripted(hangs=True)
    with client_of(config_for(root, server, timeout_seconds=0.3)) as client:
        problem = problem_of(post(client, "answer", **QUESTION), 504)
        assert "0.3 s" in problem["detail"]
        assert server.is_idle.wait(30)


def test_a_slow_model_holds_up_no_search_and_what_waits_too_long_is_refused(root, server):
    release = threading.Event()
    began = threading.Semaphore(0)

    def slow(body):
        began.release()
        release.wait(60)
        return says(1)

    server.script = slow
    serve = {"threads": 1, "queue": 0, "retry_after_seconds": 7}
    statuses = []
    with client_of(config_for(root, server, serve, concurrency=1)) as client:
        asking = threading.Thread(target=lambda: statuses.append(post(client, "answer", **QUESTION).status_code))
        asking.start()
        assert began.acquire(timeout=30)
        assert post(client, "search", **QUESTION).status_code == 200
        refused = post(client, "answer", **QUESTION)
        release.set()
        asking.join()
    assert problem_of(refused, 429) and refused.headers["retry-after"] == "7"
    assert statuses == [200]


def test_a_model_of_builds_alone_answers_nothing_and_says_so(root):
    config = config_of(root, llm={"engine": "vllm", "model": "Qwen/Qwen3-8B"})
    with client_of(config) as client:
        assert "llm.engine=http" in problem_of(post(client, "answer", **QUESTION), 501)["detail"]
        assert post(client, "context", **QUESTION).status_code == 200


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"style": "loud"}, "style"),
        ({"tokens": 0}, "tokens"),
        ({"answer": "yes"}, "answer"),
        ({"stream": "so"}, "stream"),
    ],
)
def test_fields_are_checked_before_a_model_is_asked(root, server, changed, field):
    with client_of(config_for(root, server)) as client:
        assert problem_of(post(client, "answer", **QUESTION, **changed), 422)["errors"][0]["field"] == field
    assert not server.log


def test_another_tenant_is_refused_and_the_audit_has_a_line_without_the_question(root, server, tmp_path):
    key = key_for(tmp_path / "keys", "acme/bo:read")
    serve = {"keys": str(tmp_path / "keys"), "audit": str(tmp_path / "audit")}
    with client_of(config_for(root, server, serve), key) as client:
        for stream in (False, True):
            problem_of(post(client, "answer", **QUESTION, stream=stream), 403)
        answer_of(post(client, "answer", **QUESTION | {"namespace": "acme/bo"}), CitedAnswer)
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(line["route"], line["status"]) for line in lines] == [("/v1/answer", 403)] * 2 + [("/v1/answer", 200)]
    assert "bicycle" not in (tmp_path / "audit").read_text()
    assert len(chats(server)) == 1


def test_answers_and_tokens_are_counted(root, server):
    with client_of(config_for(root, server)) as client:
        for query in (QUESTION["query"], "Who won the chess tournament?"):
            post(client, "answer", query=query, namespace="acme/ana")
        metrics = client.get("/metrics").text
    assert 'hgmem_answers_total{engine="llm",outcome="answered"} 1.0' in metrics
    assert 'hgmem_answers_total{engine="llm",outcome="abstained"} 1.0' in metrics
    prompt = sum(one.prompt_tokens for one in chats(server))
    assert f'hgmem_answer_tokens_total{{kind="prompt"}} {float(prompt)}' in metrics
    assert 'hgmem_stage_seconds_count{stage="answer"} 2.0' in metrics


def test_no_log_has_a_question_or_an_answer(root, server, caplog):
    caplog.set_level(logging.DEBUG)
    with client_of(config_for(root, server)) as client:
        found = post(client, "answer", **QUESTION).json()
    assert found["answer"] not in caplog.text and QUESTION["query"] not in caplog.text


REQUEST = AnswerRequest(**QUESTION)


def test_the_client_asks_at_once_and_as_it_comes(root, server):
    with (
        client_of(config_for(root, server)) as application,
        Client("http://localhost", transport=Application(application)) as memory,
    ):
        found = memory.answer(REQUEST)
        *deltas, whole = memory.stream_answer(REQUEST)
    assert isinstance(whole, CitedAnswer) and whole.answer == found.answer == "".join(one.text for one in deltas)


def parts_of(kind, network):
    """What a client of either kind yields of a stream."""
    if kind is Client:
        with Client("http://localhost", transport=network, sleep=lambda seconds: None) as client:
            return list(client.stream_answer(REQUEST))

    async def ask():
        async with AsyncClient("http://localhost", transport=network, sleep=asyncio.sleep) as client:
            return [part async for part in client.stream_answer(REQUEST)]

    return asyncio.run(ask())


KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])
PROBLEM = b'{"title": "Bad Gateway", "status": 502, "detail": "no model"}'


@KINDS
def test_the_client_tries_what_was_not_begun_and_reads_parts_wherever_they_are_cut(kind):
    stream = (200, b'event: delta\ndata: {"te', b'xt": "a"}\n', b'\nevent: delta\ndata: {"text": "b"}\n\n')
    network = ScriptedNetwork((429, b""), httpx2.ConnectError("refused"), stream)
    with pytest.raises(EndpointError, match="broke off"):
        parts_of(kind, network)
    assert [json.loads(request.content)["stream"] for request in network.requests] == [True] * 3


@KINDS
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((200, b"event: problem\ndata: " + PROBLEM + b"\n\n"), 502),
        ((422, PROBLEM), 422),
        ((200, b'event: delta\ndata: {"text": "a"}\n\n', httpx2.ReadError("gone")), 0),
        ((200, b"event: answer\ndata: {}\n\n"), 200),
    ],
)
def test_the_client_says_why_there_is_no_answer_and_does_not_begin_again(kind, answer, status):
    network = ScriptedNetwork(answer)
    with pytest.raises(EndpointError, match="/v1/answer") as raised:
        parts_of(kind, network)
    assert (raised.value.status, len(network.requests)) == (status, 1)


def test_the_openapi_file_names_both_ways_to_answer(root):
    with client_of(config_for(root)) as client:
        about = client.get("/openapi.json").json()["paths"]["/v1/answer"]["post"]
    assert set(about["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert {"429", "501", "502", "504"} <= set(about["responses"])
    assert isinstance(AnswerDelta(text="a"), serve_models.BaseModel)


def shown_of(deltas):
    """What a client has on its screen before the last event."""
    shown = ""
    for _, delta in deltas:
        shown = delta["text"] if delta["restarts"] else shown + delta["text"]
    return shown


@pytest.mark.parametrize("number", [10**9, 10**12, int("9" * 4_000)])
def test_a_citation_of_any_size_that_was_not_given_is_refused_and_not_left_in_the_text(root, server, number):
    server.script = lambda body: says(1, answer=f"It is red [{number}][1].")
    with client_of(config_for(root, server)) as client:
        for stream in (False, True):
            response = post(client, "answer", **QUESTION, stream=stream)
            found = events_of(response)[-1][1] if stream else response.json()
            assert (found["answer"], found["citations"][0]["number"]) == ("It is red.", 1)
            assert str(found["refused_citations"][0]) == str(number)[:15]


def test_a_model_that_cites_no_number_shows_nothing(root, server):
    server.script = lambda body: Scripted('{"citations": [true], "answer": "Secret.", "missing": ""}')
    with client_of(config_for(root, server)) as client:
        response = post(client, "answer", **QUESTION, stream=True)
    assert "Secret" not in response.text and events_of(response)[-1][1]["outcome"] == "failed"


def test_a_text_that_the_model_takes_back_is_begun_anew(root, server):
    server.script = lambda body: Scripted('{"citations": [1], "answer": "It is green.", "answer": "It is red."}')
    with client_of(config_for(root, server)) as client:
        *deltas, (_, whole) = events_of(post(client, "answer", **QUESTION, stream=True))
    assert shown_of(deltas) == whole["answer"] == "It is red."


def test_a_very_long_answer_comes_in_time_and_what_is_shown_first_begins_it(root, server):
    server.script = lambda body: says(1, answer="It is red. " * 3_000)
    with client_of(config_for(root, server)) as client:
        *deltas, (name, whole) = events_of(post(client, "answer", **QUESTION, stream=True))
    assert name == "answer" and len(whole["answer"]) <= 8_000
    assert len(shown_of(deltas)) > 1_000 and whole["answer"].startswith(shown_of(deltas))
    assert len(deltas) < 1_000


def test_a_stream_without_an_end_is_given_up_before_it_fills_the_memory(root, server, monkeypatch):
    monkeypatch.setattr("pipelines.http_client._MOST_STREAMED_BYTES", 100)
    monkeypatch.setattr("pipelines.http_client._MOST_BYTES", 100)
    server.script = lambda body: says(1, answer="It is red. " * 30)
    with client_of(config_for(root, server)) as client:
        for stream in (False, True):
            problem_of(post(client, "answer", **QUESTION, stream=stream), 502)
