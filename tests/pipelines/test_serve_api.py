import asyncio
import json
from datetime import UTC, datetime

import httpx2
import pytest
from pydantic import BaseModel

from hgmem_core.chat import ModelError
from hgmem_core.encoding import EncodingError
from pipelines import serve_models
from pipelines.feedback_files import read_feedback
from pipelines.retriever import Retriever
from pipelines.versions import VersionError
from tests.pipelines.endpoint import client_of, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_input, write_runs

QUESTION = {"query": "the red bicycle", "namespace": "acme/ana"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    log, agents = (
        write_jsonl(folder / "log.jsonl", [*rows(), *twice()]),
        write_runs(folder / "runs.jsonl", runs(("ana",))),
    )
    config = config_of(folder / "store", log)
    run(config.model_copy(update={"inputs": [*config.inputs, *config_of_inputs(agents)]}))
    return folder / "store"


def twice():
    """Rows of a namespace in which something is said in two sessions, alike."""
    about = {"user": "dora", "speaker": "Dora", "text": "I moved to Lisbon with my violin in 2019."}
    return [
        {**about, "id": f"d{day}", "session": f"d{day}", "time": f"2024-03-0{day}T18:00:00+00:00"} for day in (1, 2)
    ]


def config_of_inputs(agents):
    return config_of("x").model_validate({"inputs": [runs_input(agents)]}).inputs


@pytest.fixture(scope="module")
def ask(root):
    with client_of(serve_config(root)) as client:
        yield client


def post(client, path, **body):
    return client.post(f"/v1/{path}", json=body)


def answer_of(response, model):
    """The body of an answer, checked against the model that the OpenAPI file shows."""
    assert response.status_code == 200, response.text

    class Exact(model, extra="forbid"):
        pass

    return Exact.model_validate(response.json())


def problem_of(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    return problem


def test_a_search_answers_what_the_retriever_finds(ask):
    found = answer_of(post(ask, "search", **QUESTION, k=3, explain=True), serve_models.SearchAnswer)
    retriever: Retriever = ask.service.versions.current.retriever
    direct = retriever.search("acme/ana", "the red bicycle", k=3, explain=True)
    assert [(hit.turn_id, hit.score, hit.text) for hit in found.hits] == [
        (hit.turn_id, hit.score, hit.text) for hit in direct.hits
    ]
    assert found.version == direct.version
    assert {name: leg.rank for name, leg in found.hits[0].legs.items()} == {
        name: rank for name, (rank, _) in direct.hits[0].legs.items()
    }


def test_several_namespaces_are_fused_by_rank(ask):
    names = ["acme/bo", "acme/ana", "acme/nobody"]
    found = answer_of(post(ask, "search", query="the red bicycle", namespaces=names, k=4), serve_models.SearchAnswer)
    assert [hit.namespace for hit in found.hits] == ["acme/bo", "acme/ana", "acme/bo", "acme/ana"]
    assert [hit.rank for hit in found.hits] == [1, 2, 3, 4]
    alone = answer_of(post(ask, "search", **QUESTION, k=2), serve_models.SearchAnswer)
    assert [hit.turn_id for hit in found.hits if hit.namespace == "acme/ana"] == [hit.turn_id for hit in alone.hits]


def test_levels_say_what_is_found(ask):
    found = answer_of(post(ask, "search", **QUESTION, k=2, levels=["fact", "episode"]), serve_models.SearchAnswer)
    assert found.hits == []
    assert [node.level for node in found.nodes] == ["fact", "fact", "episode", "episode"]
    assert "red bicycle" in found.nodes[0].text


def test_filters_hold_before_the_cut_at_k(ask):
    filters = {"session_id": "s2", "speaker": "Bo", "said_from": "2024-03-01T00:00:00Z"}
    body = {**QUESTION, "k": 1, "filters": filters, "levels": ["turn", "fact", "episode"]}
    found = answer_of(post(ask, "search", **body), serve_models.SearchAnswer)
    assert [(hit.session_id, hit.speaker) for hit in found.hits] == [("s2", "Bo")]
    [fact] = found.nodes  # an episode's text may be of what Ana said
    assert fact.level == "fact" and found.hits[0].session_id == "s2"
    sources = answer_of(post(ask, "memories/get", namespace="acme/ana", id=fact.id), serve_models.MemoryAnswer).sources
    assert {source.speaker for source in sources} == {"Bo"}


def test_a_fact_cites_those_of_its_sources_that_pass(ask):
    body = {"query": "violin in Lisbon", "namespace": "acme/dora", "levels": ["fact"], "k": 1}
    every, one = (
        answer_of(post(ask, "search", **body, filters=filters), serve_models.SearchAnswer).nodes[0]
        for filters in ({}, {"session_id": "d2"})
    )
    assert (one.id, len(every.turn_ids), len(one.turn_ids)) == (every.id, 2, 1)
    source = answer_of(post(ask, "memories/get", namespace="acme/dora", id=one.turn_ids[0]), serve_models.MemoryAnswer)
    assert source.sources[0].session_id == "d2"


def test_as_of_shows_nothing_later(ask):
    body = {"query": "number", "namespace": "acme/ana", "k": 50, "as_of": "2024-03-01T23:00:00Z"}
    found = answer_of(post(ask, "search", **body), serve_models.SearchAnswer)
    assert found.hits and {hit.session_id for hit in found.hits} == {"s0"}


@pytest.mark.parametrize("names", [["acme/ana"], ["acme/ana", "acme/bo"]])
def test_a_context_fits_its_budget_and_cites_turns(ask, names):
    found = answer_of(
        post(ask, "context", query="the red bicycle", namespaces=names, tokens=120), serve_models.ContextAnswer
    )
    assert 0 < found.tokens <= 120
    assert [citation.number for citation in found.citations] == list(range(1, len(found.citations) + 1))
    for citation in found.citations:
        assert f"[{citation.number}] {citation.text}" in found.text
    cited = {turn for citation in found.citations for turn in citation.turn_ids}
    known = {
        name: {
            hit["turn_id"] for hit in post(ask, "search", query="number told me", namespace=name, k=50).json()["hits"]
        }
        for name in names
    }
    assert all(cited & turns for turns in known.values())
    assert cited <= set().union(*known.values())


def test_a_memory_comes_with_its_sources_and_hyperedges(ask):
    [fact] = post(ask, "search", **QUESTION, k=1, levels=["fact"]).json()["nodes"]
    found = answer_of(post(ask, "memories/get", namespace="acme/ana", id=fact["id"]), serve_models.MemoryAnswer)
    assert found.text == fact["text"]
    assert [source.turn_id for source in found.sources] == fact["turn_ids"]
    episode = next(edge for edge in found.hyperedges if edge.kind == "episode")
    assert fact["id"] in episode.members
    above = answer_of(post(ask, "memories/get", namespace="acme/ana", id=episode.id), serve_models.MemoryAnswer)
    assert fact["turn_ids"][0] in {source.turn_id for source in above.sources}
    assert episode.id in next(edge for edge in above.hyperedges if edge.kind == "topic").members
    turn = answer_of(post(ask, "memories/get", namespace="acme/ana", id=fact["turn_ids"][0]), serve_models.MemoryAnswer)
    assert {edge.id for edge in turn.hyperedges} == {fact["id"], episode.id}


def test_stats_count_a_namespace(ask):
    found = answer_of(post(ask, "namespaces/stats", namespace="acme/ana"), serve_models.StatsAnswer)
    assert (found.turns, found.sessions, found.runs > 0) == (12, 3, True)
    assert found.first_said_at == datetime(2024, 3, 1, 18, tzinfo=UTC)
    nothing = answer_of(post(ask, "namespaces/stats", namespace="acme/nobody"), serve_models.StatsAnswer)
    assert (nothing.turns, nothing.facts, nothing.runs, nothing.last_said_at) == (0, 0, 0, None)


def test_an_outcome_is_kept_once_as_feedback(ask, root):
    task = {"namespace": "acme/ana", "task": "put a clean mug on the table"}
    found = answer_of(post(ask, "skills/search", **task), serve_models.SkillsAnswer)
    shown = [{"kind": "skill", "id": skill.skill_id} for skill in found.skills]
    assert shown
    told = {"namespace": "acme/ana", "query_id": found.query_id, "shown": shown, "outcome": "success", "n_steps": 4}
    assert post(ask, "skills/outcome", **told).json() == {"is_new": True}
    assert post(ask, "skills/outcome", **told | {"outcome": "failure"}).json() == {"is_new": False}
    kept = read_feedback(root / "feedback", 0.0).rows.to_pylist()
    assert {row["node_id"] for row in kept} == {skill["id"] for skill in shown}
    assert {(row["namespace"], row["query_id"], row["outcome"], row["n_steps"]) for row in kept} == {
        ("acme/ana", found.query_id, "success", 4)
    }
    foreign = told | {"namespace": "acme/bo", "query_id": "q"}
    assert problem_of(post(ask, "skills/outcome", **foreign), 404) == problem_of(
        post(ask, "skills/outcome", **foreign | {"shown": [{"id": "f" * 24}]}), 404
    )


def test_an_unknown_namespace_is_an_answer(ask):
    found = answer_of(post(ask, "search", query="the red bicycle", namespace="acme/nobody"), serve_models.SearchAnswer)
    assert (found.hits, found.reason) == ([], "unknown_namespace")


@pytest.mark.parametrize("query", ["", " ", "the of and", "?!", "\u200b"])
def test_a_question_without_a_word_says_so(ask, query):
    found = answer_of(post(ask, "search", query=query, namespace="acme/ana"), serve_models.SearchAnswer)
    assert (found.hits, found.reason) == ([], "no_query_terms")


@pytest.mark.parametrize(
    "query", ["👩‍👩‍👧 bicycle", "bicycle\0", "b" * 8_192, "自転車", "\u202ebicycle", "a\U000e0041"]
)
def test_strange_text_is_text(ask, query):
    assert post(ask, "search", query=query, namespace="acme/ana").status_code == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"k": 0}, "k"),
        ({"k": 10**9}, "k"),
        ({"k": 201}, "k"),
        ({"k": "5"}, "k"),
        ({"k": True}, "k"),
        ({"k": 1.5}, "k"),
        ({"query": 5}, "query"),
        ({"query": None}, "query"),
        ({"query": "x" * 8_193}, "query"),
        ({"recipe": "nothing"}, "recipe"),
        ({"recipe": "hage"}, "recipe"),
        ({"tenant": "globex"}, "tenant"),
        ({"filters": {"color": "red"}}, "filters.color"),
        ({"filters": {"namespace": "globex"}}, "filters.namespace"),
        ({"filters": {"said_from": "yesterday"}}, "filters.said_from"),
        ({"filters": {"said_from": "2024-03-01T00:00:00"}}, "filters.said_from"),
        ({"filters": []}, "filters"),
        ({"as_of": "2024-03-01"}, "as_of"),
        ({"levels": []}, "levels"),
        ({"levels": ["galaxy"]}, "levels.0"),
        ({"namespace": ""}, "namespace"),
        ({"namespace": "acme/../ana"}, "namespace"),
        ({"namespace": "acme//ana"}, "namespace"),
        ({"namespace": "acme\\ana"}, "namespace"),
        ({"namespace": "acme/an\0a"}, "namespace"),
        ({"namespace": "a" * 513}, "namespace"),
        ({"namespaces": ["acme/bo"]}, ""),
        ({"namespace": None}, ""),
        ({"namespace": None, "namespaces": ["acme/bo", "acme/bo"]}, ""),
        ({"namespace": None, "namespaces": [f"acme/{n}" for n in range(9)]}, "namespaces"),
        ({"namespace": None, "namespaces": []}, "namespaces"),
    ],
)
def test_what_cannot_be_used_is_named(ask, change, field):
    response = post(ask, "search", **QUESTION | change)
    assert field in [fault["field"] for fault in problem_of(response, 422)["errors"]]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"query": "x', "application/json", 400),
        (b"", "application/json", 422),
        (b"null", "application/json", 422),
        (b"[]", "application/json", 422),
        (b'"x"', "application/json", 422),
        (b'{"query": "\xff", "namespace": "acme/ana"}', "application/json", 400),
        (b'{"query": "\\ud800", "namespace": "acme/ana"}', "application/json", 422),
        (b'{"query": "x", "namespace": "acme/\\udc00"}', "application/json", 422),
        (b'{"query": "x", "namespace": "acme/ana", "recipe": "\\udc00"}', "application/json", 422),
        (b'{"query": "x", "namespace": "acme/ana", "filters": {"speaker": "\\udc00"}}', "application/json", 422),
        (b'{"\\ud800": 1, "query": "x", "namespace": "acme/ana"}', "application/json", 422),
        (b'{"query": "x", "namespace": "acme/ana", "k": NaN}', "application/json", 422),
        (b'{"query": "x", "namespace": "acme/ana", "k": ' + b"9" * 5_000 + b"}", "application/json", 400),
        (b"[" * 30_000, "application/json", 400),
        (b'{"query": "' + b"x" * (1 << 20) + b'"}', "application/json", 413),
        (b'{"query": "x", "namespace": "acme/ana"}', "text/plain", 415),
        (b"query=x", "application/x-www-form-urlencoded", 415),
        (b'{"query": "x", "namespace": "acme/ana"}', None, 415),
    ],
)
def test_a_broken_body_is_a_problem_and_the_service_lives(ask, content, kind, status):
    response = ask.post("/v1/search", content=content, headers={"content-type": kind} if kind else {})
    problem_of(response, status)
    assert post(ask, "search", **QUESTION).status_code == 200


def test_a_body_that_does_not_say_its_length_is_cut_off_too(ask):
    pieces = (b"x" * 50_000 for _ in range(10))
    response = ask.post("/v1/search", content=pieces, headers={"content-type": "application/json"})
    problem_of(response, 413)


def test_a_body_that_does_not_come_is_not_waited_for(root):
    async def drop_by_drop():
        yield b'{"query": '
        await asyncio.Event().wait()

    async def send(app):
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/search", content=drop_by_drop(), headers={"content-type": "application/json"})

    with client_of(serve_config(root, timeout_seconds=0.2)) as client:
        response = asyncio.run(send(client.app))
    problem_of(response, 408)
    assert response.headers["connection"] == "close"


def test_problems_do_not_repeat_what_was_sent(ask):
    canary = "sky-42"
    for body in ({"query": canary, "namespace": "acme/ana", "k": 0}, {"query": canary, "namespace": f"{canary}//"}):
        assert canary not in post(ask, "search", **body).text


@pytest.mark.parametrize("error", [ModelError, EncodingError, VersionError, OSError, ZeroDivisionError])
def test_what_fails_within_is_told_neither_with_paths_nor_with_the_question(root, caplog, error):
    async def fail(encoder, text):
        raise error(f"/srv/secret: {text}" if error is ModelError else "/srv/secret")

    with client_of(serve_config(root), encode=fail) as client:
        response = post(client, "search", query="in confidence", namespace="acme/ana")
    assert "secret" not in json.dumps(problem_of(response, 500 if error is ZeroDivisionError else 503))
    assert "confidence" not in caplog.text


def test_an_address_that_there_is_not_is_a_problem(ask):
    problem_of(ask.get("/v2/search"), 404)
    problem_of(ask.get("/v1/search"), 405)


def test_metrics_are_by_route_and_stage_and_never_by_namespace(ask):
    post(ask, "search", **QUESTION)
    ask.get("/v1/acme/ana")
    text = ask.get("/metrics").text
    assert 'hgmem_request_seconds_count{route="/v1/search",status="200"}' in text
    assert 'hgmem_stage_seconds_count{stage="search"}' in text
    assert "acme" not in text


def test_health_needs_no_key_and_readiness_asks_a_question(ask):
    assert ask.get("/v1/healthz").json() == {"status": "alive"}
    assert ask.get("/v1/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize("error", [VersionError, OSError])
def test_an_endpoint_that_cannot_answer_a_question_lives_and_is_not_ready(root, monkeypatch, error):
    def fail(*_, **__):
        raise error("the index is gone")

    with client_of(serve_config(root)) as client:
        monkeypatch.setattr(Retriever, "search", fail)
        problem_of(client.get("/v1/readyz"), 503)
        assert client.get("/v1/healthz").status_code == 200
        monkeypatch.undo()
        assert client.get("/v1/readyz").status_code == 200


def test_every_route_of_the_openapi_file_has_an_example_that_its_model_takes(ask):
    paths = ask.get("/openapi.json").json()
    schemas = paths["components"]["schemas"]
    for path, methods in paths["paths"].items():
        if "requestBody" in methods.get("post", {}):
            reference = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            name = reference.rpartition("/")[2]
            model: type[BaseModel] = getattr(serve_models, name)
            assert schemas[name]["examples"], path
            for example in schemas[name]["examples"]:
                model.model_validate_json(json.dumps(example))
