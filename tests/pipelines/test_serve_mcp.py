"""The endpoint's tools, called by the client of the protocol's own SDK, in this process without Serve."""

import asyncio
import json
import logging
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from hgmem_core.chat import ModelError
from pipelines.serve_api import make_app
from pipelines.serve_service import open_service
from pipelines.versions import VersionError
from tests.pipelines.endpoint import key_for, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, write_runs
from tests.pipelines.test_serve_access import CANARY, canary_rows
from tests.pipelines.test_serve_api import config_of_inputs

ERAS = ("legacy", "auto")
"""The two ways in which clients speak: with a handshake first, and without."""

NAMES = ["search_memory", "get_context", "answer_question", "get_memory", "search_skills"]

QUESTION = {"query": "the red bicycle", "namespace": "acme/bo"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    log = write_jsonl(folder / "log.jsonl", [*canary_rows(), *rows(("bo",))])
    agents = write_runs(folder / "runs.jsonl", runs(("bo",)))
    config = config_of(folder / "store", log)
    run(config.model_copy(update={"inputs": [*config.inputs, *config_of_inputs(agents)]}))
    return folder / "store"


class Replicas(httpx2.AsyncBaseTransport):
    """A network on which each request reaches the next of some applications."""

    def __init__(self, apps, address):
        self.networks = [
            httpx2.ASGITransport(app, raise_app_exceptions=False, client=(address, 50_000)) for app in apps
        ]
        self.requests = []

    async def handle_async_request(self, request):
        self.requests.append(request)
        return await self.networks[len(self.requests) % len(self.networks)].handle_async_request(request)


@asynccontextmanager
async def network_of(config, replicas=1, address="127.0.0.1", encode=None):
    """Run applications of a configuration and give the network on which they are asked."""
    apps = [make_app(open_service(config, encode)) for _ in range(replicas)]
    async with AsyncExitStack() as running:
        for app in apps:
            await running.enter_async_context(app.router.lifespan_context(app))
        yield Replicas(apps, address)


def http_of(network, key=None, **headers):
    authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(transport=network, headers={**authorization, **headers})


@asynccontextmanager
async def client_on(network, era="auto", key=None):
    """Give a client of the SDK that asks over a network."""
    async with (
        http_of(network, key) as http,
        Client(streamable_http_client("http://localhost/mcp", http_client=http), mode=era) as client,
    ):
        yield client


def with_client(config, work, era="auto", key=None, **network):
    """Return what `work` returns for a client of an application of its own."""

    async def asked():
        async with network_of(config, **network) as there, client_on(there, era, key) as client:
            return await work(client)

    return asyncio.run(asked())


def call(config, name, arguments, **settings):
    return with_client(config, lambda client: client.call_tool(name, arguments), **settings)


def text_of(result):
    [content] = result.content
    return content.text


@pytest.mark.parametrize("era", ERAS)
def test_five_tools_are_listed_with_what_they_take_and_return(root, era):
    listed = with_client(serve_config(root), lambda client: client.list_tools(), era).tools
    assert [tool.name for tool in listed] == NAMES
    for tool in listed:
        assert len(tool.description) > 80
        assert tool.annotations.read_only_hint
        assert tool.input_schema["additionalProperties"] is False
        assert "namespace" in tool.input_schema["properties"]
        for name, about in tool.input_schema["properties"].items():
            assert about.get("description"), (tool.name, name)
        assert "version" in tool.output_schema["required"]


@pytest.mark.parametrize("era", ERAS)
def test_a_search_gives_turns_with_their_sources_as_text_and_as_structure(root, era):
    arguments = {**QUESTION, "k": 2, "levels": ["turn", "fact"], "filters": {"speaker": "Bo"}}
    result = call(serve_config(root), "search_memory", arguments, era=era)
    assert not result.is_error
    hits, nodes = result.structured_content["hits"], result.structured_content["nodes"]
    assert [hit["speaker"] for hit in hits] == ["Bo", "Bo"] and len(nodes) == 2
    lines = text_of(result).splitlines()
    assert [line.split()[0] for line in lines] == ["[1]", "[2]", "[3]", "[4]"]
    for hit, line in zip(hits, lines, strict=False):
        assert hit["text"] in line and f"(turn {hit['turn_id']}, session {hit['session_id']})" in line
        assert hit["said_at"][:10] in line
    assert nodes[0]["id"] in lines[2] and nodes[0]["turn_ids"][0] in lines[2]


@pytest.mark.parametrize("era", ERAS)
def test_a_context_cites_turns_that_can_be_got(root, era):
    async def work(client):
        found = await client.call_tool("get_context", {**QUESTION, "tokens": 120})
        turn = found.structured_content["citations"][0]["turn_ids"][0]
        return found, await client.call_tool("get_memory", {"namespace": "acme/bo", "id": turn})

    found, memory = with_client(serve_config(root), work, era)
    assert found.structured_content["tokens"] <= 120
    assert found.structured_content["text"] in text_of(found)
    [source] = memory.structured_content["sources"]
    assert f"[1] turn {source['turn_id']}" in text_of(found).replace("turns", "turn")
    assert source["text"] in text_of(memory)
    for edge in memory.structured_content["hyperedges"]:
        assert f"{edge['kind']} {edge['id']}" in text_of(memory)


def test_an_answer_stands_on_turns_and_says_where_there_is_none(root):
    async def work(client):
        found = await client.call_tool("answer_question", {**QUESTION, "style": "short"})
        return found, await client.call_tool("answer_question", {**QUESTION, "namespace": "acme/nobody"})

    found, nothing = with_client(serve_config(root), work)
    answer = found.structured_content
    [citation] = answer["citations"]
    assert answer["answer"] in text_of(found) and "word for word" in text_of(found)
    assert f"(turn {citation['turn_ids'][0]}" in text_of(found).replace("turns", "turn")
    assert text_of(nothing) == "There is no answer: nothing was found"


def test_a_fact_stands_on_turns(root):
    async def work(client):
        found = await client.call_tool("search_memory", {**QUESTION, "k": 1, "levels": ["fact"]})
        fact = found.structured_content["nodes"][0]["id"]
        return await client.call_tool("get_memory", {"namespace": "acme/bo", "id": fact})

    memory = with_client(serve_config(root), work)
    before, _, after = text_of(memory).partition("Stands on:")
    assert memory.structured_content["text"] in before
    for source in memory.structured_content["sources"]:
        assert source["text"] in after and source["turn_id"] in after


@pytest.mark.parametrize("era", ERAS)
def test_skills_come_with_what_their_outcome_is_told_by(root, era):
    result = call(serve_config(root), "search_skills", {"task": "put a hot egg", "namespace": "acme/bo"}, era=era)
    found = result.structured_content
    assert found["skills"] and found["context"] in text_of(result)
    assert found["query_id"] in text_of(result)
    assert all(skill["skill_id"] in text_of(result) for skill in found["skills"])


def test_a_library_is_shown_to_those_who_may_read_it(root, tmp_path):
    keys = [key_for(tmp_path / "keys", *grants) for grants in (("acme/ana:read",), ("acme/ana:read", "acme/bo:read"))]
    config = serve_config(root, keys=str(tmp_path / "keys"))
    config = config.model_copy(update={"skills": config.skills.model_copy(update={"libraries": ["acme/bo"]})})
    task = {"task": "put a hot egg", "namespace": "acme/ana"}
    without, with_it = (call(config, "search_skills", task, key=key).structured_content for key in keys)
    assert (without["namespaces"], without["skills"]) == ([], [])
    assert with_it["namespaces"] == ["acme/bo"] and with_it["skills"]


def test_a_namespace_that_there_is_not_is_no_error(root):
    result = call(serve_config(root), "search_memory", {**QUESTION, "namespace": "acme/nobody"})
    assert not result.is_error and result.structured_content["hits"] == []
    assert text_of(result) == "Nothing was found: unknown_namespace."


UNUSABLE = [
    ("search_memory", {"k": 0}, "k: "),
    ("search_memory", {"k": 201}, "k: at most 200"),
    ("search_memory", {"tenant": "globex"}, "tenant: there is no such field"),
    ("search_memory", {"filters": {"color": "red"}}, "filters.color: "),
    ("search_memory", {"namespace": None}, "namespaces"),
    ("search_memory", {"namespace": "acme/../bo"}, "namespace: "),
    ("search_memory", {"recipe": "nothing"}, "recipe: "),
    ("get_context", {"tokens": "many"}, "tokens: "),
    ("answer_question", {"stream": True}, "stream: there is no such field"),
    ("get_context", {"query": "x" * 8_193}, "query: "),
]


@pytest.mark.parametrize("era", ERAS)
def test_what_cannot_be_used_is_named_to_the_model(root, era):
    async def work(client):
        return [await client.call_tool(name, QUESTION | change) for name, change, _ in UNUSABLE]

    for result, (name, change, field) in zip(with_client(serve_config(root), work, era), UNUSABLE, strict=True):
        assert result.is_error and result.structured_content is None, (name, change)
        assert field in text_of(result), (name, change)


def test_a_tool_that_there_is_not_is_refused(root):
    async def work(client):
        with pytest.raises(MCPError, match="search_memory"):
            await client.call_tool("forget_everything", {})

    with_client(serve_config(root), work)


def attacks(ids):
    """Calls with a key of acme/bo for what is of acme/ana."""
    for name in ("search_memory", "get_context"):
        yield name, {"query": "red bicycle", "namespace": "acme/ana"}
        yield name, {"query": "red bicycle", "namespaces": ["acme/bo", "acme/ana"]}
        yield name, {"query": CANARY[:3], "namespace": "acme/bo", "filters": {"speaker": CANARY[:3]}}
    yield "search_skills", {"task": "put a hot egg", "namespace": "acme/ana"}
    for one in ids:
        yield "get_memory", {"id": one, "namespace": "acme/ana"}
        yield "get_memory", {"id": one, "namespace": "acme/bo"}


@pytest.mark.parametrize("era", ERAS)
def test_no_tool_shows_a_foreign_key_anything_of_another_tenant(root, tmp_path, caplog, capfd, era):
    caplog.set_level(logging.DEBUG)
    keys = str(tmp_path / "keys")
    own, foreign = (key_for(tmp_path / "keys", grant) for grant in ("acme/ana:read", "acme/bo:read"))
    config = serve_config(root, keys=keys, audit=str(tmp_path / "audit"))

    async def see(client):
        asked = {"query": "red bicycle", "namespace": "acme/ana", "levels": ["turn", "fact", "episode"]}
        return (await client.call_tool("search_memory", asked)).structured_content

    seen = with_client(config, see, era, own)
    assert CANARY in json.dumps(seen)
    ids = [seen["hits"][0]["turn_id"], *(node["id"] for node in seen["nodes"])]

    async def attack(client):
        return [(name, told, await client.call_tool(name, told)) for name, told in attacks(ids)]

    caplog.clear()
    capfd.readouterr()
    results = with_client(config, attack, era, foreign)
    for name, told, result in results:
        if "acme/ana" in (told.get("namespace"), *told.get("namespaces", ())):
            assert result.is_error and "no right to read there" in text_of(result), name
        elif name == "get_memory":
            assert result.is_error and text_of(result) == "the namespace has nothing of that id"
    answers = [result.model_dump_json() for _, _, result in results]
    assert not [text for text in answers if CANARY in text]
    logged = [record.getMessage() for record in caplog.records if record.name.partition(".")[0] != "mcp"]
    audit = (tmp_path / "audit").read_text()
    assert not [text for text in (*logged, *capfd.readouterr(), audit) if CANARY in text or foreign in text]
    assert '"tool": "search_memory", "status": 403' in audit


def test_an_id_of_another_namespace_is_told_of_like_one_that_there_is_not(root):
    async def work(client):
        asked = {"query": "red bicycle", "namespace": "acme/ana", "k": 1}
        turn = (await client.call_tool("search_memory", asked)).structured_content["hits"][0]["turn_id"]
        return [
            await client.call_tool("get_memory", {"namespace": "acme/bo", "id": one}) for one in (turn, "f" * len(turn))
        ]

    foreign, unknown = with_client(serve_config(root), work)
    assert foreign.is_error and text_of(foreign) == text_of(unknown)


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def post_all(config, requests, address="127.0.0.1"):
    """Ask without the SDK, each request a few changes of a good one, and return the responses."""

    async def asked():
        async with network_of(config, address=address) as there, http_of(there) as http:
            return [await http.request(url="http://localhost/mcp", **request) for request in requests]

    return asyncio.run(asked())


def request_of(key=None, method="POST", headers=(), **sent):
    authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
    headers = {"Content-Type": "application/json", **ACCEPT, **authorization, **dict(headers)}
    return {"method": method, "headers": headers, **({"json": INITIALIZE} | sent)}


def test_the_guard_stands_before_the_tools(root, tmp_path):
    key = key_for(tmp_path / "keys", "acme/bo:read")
    requests = [
        request_of(key),
        request_of(),
        request_of(key, headers={"Host": "evil.example"}),
        request_of(key, headers={"Origin": "http://evil.example"}),
        request_of(key, json={**INITIALIZE, "filler": "x" * 70_000}),
        request_of(key, headers={"Content-Type": "text/plain"}),
    ]
    responses = post_all(serve_config(root, keys=str(tmp_path / "keys")), requests)
    assert [response.status_code for response in responses] == [200, 401, 421, 403, 413, 415]
    [elsewhere] = post_all(serve_config(root), [request_of()], address="10.0.0.7")
    assert elsewhere.status_code == 403


def test_there_is_no_stream_to_wait_on_and_no_session_to_end(root):
    for response in post_all(
        serve_config(root), [request_of(method=method, json=None) for method in ("GET", "DELETE")]
    ):
        assert response.status_code == 405
        assert response.headers["content-type"] == "application/problem+json"


BROKEN = [b"", b"{", b"null", b"[]", b"[" * 30_000, b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', b"\xff"]


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2026-07-28"}])
def test_a_broken_message_is_refused_and_the_next_one_answered(root, headers):
    requests = [request_of(headers=headers, json=None, content=content) for content in BROKEN]
    *refused, good = post_all(serve_config(root), [*requests, request_of()])
    for content, response in zip(BROKEN, refused, strict=True):
        assert 400 <= response.status_code < 500, (content[:80], response.text)
    assert good.json()["result"]["serverInfo"]["name"] == "hgmem"


@pytest.mark.parametrize("era", ERAS)
def test_any_replica_answers_any_call(root, era):
    async def asked():
        async with network_of(serve_config(root), replicas=2) as there, client_on(there, era) as client:
            results = [await client.call_tool("search_memory", {**QUESTION, "k": 3}) for _ in range(6)]
            return results, there.requests

    results, requests = asyncio.run(asked())
    found = [[hit["turn_id"] for hit in result.structured_content["hits"]] for result in results]
    assert len(found[0]) == 3 and found == [found[0]] * 6
    assert len(requests) >= 6 and not [one for one in requests if "mcp-session-id" in one.headers]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("error", [ModelError, VersionError, OSError, ZeroDivisionError])
def test_what_fails_within_is_told_to_no_tool(root, caplog, era, error):
    async def fail(encoder, text):
        raise error(f"/srv/secret: {text}" if error is ModelError else "/srv/secret")

    asked = {"query": "in confidence", "namespace": "acme/bo"}
    result = call(serve_config(root), "search_memory", asked, era=era, encode=fail)
    assert result.is_error and "the endpoint" in text_of(result)
    assert "secret" not in result.model_dump_json()
    assert "confidence" not in caplog.text


def test_no_log_has_what_is_asked(root, caplog, capfd):
    caplog.set_level(logging.INFO)
    call(serve_config(root), "search_memory", {"query": "in confidence", "namespace": "acme/bo"})
    call(serve_config(root), "search_memory", {"query": "in confidence", "namespace": "acme/bo", "k": 0})
    assert "confidence" not in caplog.text
    assert not [text for text in capfd.readouterr() if "confidence" in text]
