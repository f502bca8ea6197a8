import asyncio
import hashlib

import httpx2
import pytest

from pipelines.client import AsyncClient, Client, EndpointError
from pipelines.serve_models import (
    AnswerRequest,
    ContextRequest,
    ForgetRequest,
    MemoryRequest,
    SearchRequest,
    SkillsRequest,
)
from tests.pipelines.endpoint import client_of, key_for, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.scripted_network import ScriptedNetwork

BUSY = httpx2.Response(429, headers={"Retry-After": "3"}, content=b"")
RECIPES = {"default_recipe": "hypergraph", "recipes": ["hypergraph"]}
VERSION = {"version": "0123456789abcdef", "pointer": 1, "refused": None, **RECIPES}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows())))
    return folder / "store"


def version_of(kind, network, waited, **settings):
    """The version that a client of either kind is told, through a network."""
    if kind is Client:
        with Client("http://localhost", transport=network, sleep=waited.append, **settings) as client:
            return client.version()

    async def ask():
        async def wait(seconds):
            waited.append(seconds)

        async with AsyncClient("http://localhost", transport=network, sleep=wait, **settings) as client:
            return await client.version()

    return asyncio.run(ask())


KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


@KINDS
def test_what_may_go_better_is_tried_again_and_waits_as_long_as_it_is_told(kind):
    waited = []
    answers = [BUSY, httpx2.ConnectError("refused"), httpx2.Response(503), httpx2.Response(200, json=VERSION)]
    assert version_of(kind, ScriptedNetwork(*answers), waited).version == VERSION["version"]
    assert waited[0] == 3.0
    assert 0 < waited[1] < waited[2] * 2


@KINDS
@pytest.mark.parametrize("last", [BUSY, httpx2.ReadTimeout("slow"), httpx2.Response(504)])
def test_after_the_last_try_it_says_why(kind, last):
    network, waited = ScriptedNetwork(*[last] * 3), []
    with pytest.raises(EndpointError, match="/v1/version") as raised:
        version_of(kind, network, waited, retries=2)
    assert raised.value.status == (0 if isinstance(last, Exception) else last.status_code)
    assert (len(network.requests), len(waited)) == (3, 2)


@KINDS
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 500])
def test_what_will_not_go_better_is_not_tried_again(kind, status):
    network = ScriptedNetwork(httpx2.Response(status, content=b"<html>"))
    with pytest.raises(EndpointError) as raised:
        version_of(kind, network, [])
    assert (raised.value.status, raised.value.problem, len(network.requests)) == (status, None, 1)


@KINDS
def test_an_answer_of_other_software_is_refused(kind):
    with pytest.raises(EndpointError, match="another version of hgmem"):
        version_of(kind, ScriptedNetwork(httpx2.Response(200, json={"something": "else"})), [])


@KINDS
def test_the_key_goes_along(kind):
    network = ScriptedNetwork(httpx2.Response(200, json=VERSION))
    version_of(kind, network, [], key="hgm_x")
    assert network.requests[0].headers["Authorization"] == "Bearer hgm_x"


def test_requests_of_a_namespace_say_that_they_belong_together_without_its_name():
    network = ScriptedNetwork(*[httpx2.Response(503)] * 6)
    with Client("http://localhost", retries=0, transport=network) as memory:
        for asked in ("acme/ana", "acme/bo", "acme/ana"):
            with pytest.raises(EndpointError):
                memory.stats(asked)
        with pytest.raises(EndpointError):
            memory.search(SearchRequest(query="x", namespaces=["acme/ana", "acme/bo"]))
        with pytest.raises(EndpointError):
            list(memory.stream_answer(AnswerRequest(query="x", namespace="acme/ana")))
        with pytest.raises(EndpointError):
            memory.version()
    told = [request.headers.get("X-Session-ID") for request in network.requests]
    assert told[0] == told[2] == told[3] == told[4] == hashlib.sha256(b"acme/ana").hexdigest()[:16]
    assert told[1] != told[0] and told[5] is None


class Application(httpx2.BaseTransport):
    """The endpoint's application in the place of the network."""

    def __init__(self, client):
        self._client = client

    def handle_request(self, request):
        response = self._client.request(
            request.method, request.url.path, content=request.read(), headers=dict(request.headers)
        )
        return httpx2.Response(response.status_code, headers=response.headers, content=response.content)


def test_the_endpoint_is_asked_and_its_problems_are_said(root, tmp_path):
    key = key_for(tmp_path / "keys", "acme/ana:write", "*:read")
    with (
        client_of(serve_config(root, keys=str(tmp_path / "keys"))) as application,
        Client("http://localhost", key, transport=Application(application)) as memory,
    ):
        found = memory.search(SearchRequest(query="the red bicycle", namespace="acme/ana", k=2, explain=True))
        assert "red bicycle" in found.hits[0].text and found.hits[0].legs
        assert memory.memory(MemoryRequest(id=found.hits[0].turn_id, namespace="acme/ana")).text == found.hits[0].text
        context = ContextRequest(query="the red bicycle", namespaces=["acme/ana", "acme/bo"], tokens=100)
        assert "red bicycle" in memory.context(context).text
        assert memory.skills(SkillsRequest(task="x", namespace="acme/ana")).skills == []
        assert memory.forget(ForgetRequest(namespace="acme/ana", turn=found.hits[0].turn_id)).turns == 1
        assert memory.stats("acme/ana").turns == 11
        assert memory.version().version == found.version
        with pytest.raises(EndpointError, match="no right to write") as raised:
            memory.forget(ForgetRequest(namespace="acme/bo"))
        assert raised.value.problem.errors[0].field == "namespace"
        with pytest.raises(EndpointError, match=r"\*:admin"):
            memory.reload()
