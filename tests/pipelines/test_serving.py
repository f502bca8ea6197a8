"""The endpoint on Ray Serve: a few tests of what only Serve can show."""

import asyncio
import hashlib
import http.client
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hgmem_core.config import Config
from hgmem_core.section import ConfigError
from pipelines.store import Store
from pipelines.versions import current_version, point_to
from tests.pipelines.endpoint import serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl

ROOT = Path(__file__).parents[2]
QUESTION = {"query": "the red bicycle", "namespace": "acme/ana", "k": 3}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    logs = [write_jsonl(folder / "log.jsonl", rows()), write_jsonl(folder / "more.jsonl", rows(("ana",), 16))]
    for count in (1, 2):
        run(config_of(folder / "store", *logs[:count]))
    return folder / "store"


@pytest.fixture(scope="module")
def port(local_ray, root):
    """The port of an endpoint on Serve that answers from the store."""
    from ray import serve

    from pipelines.serving import Arguments, app

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    logged = yaml.safe_load((ROOT / "jobs" / "serve.yaml").read_text())["logging_config"]
    serve.start(http_options={"host": "127.0.0.1", "port": free}, logging_config=logged)
    told = [f"store.root={root}", "encoder.name=static", "serve.refresh_seconds=0.1", "serve.timeout_seconds=60"]
    serve.run(app(Arguments(set=told)), name="hgmem", route_prefix="/")
    yield free
    serve.shutdown()


def ask(port, path, body=None, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = {"Content-Type": "application/json", **dict(headers)}
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.ray
def test_serve_answers_many_at_once_and_a_bad_one_among_them_hurts_no_other(port):
    status, alone = ask(port, "/v1/search", QUESTION)
    assert status == 200
    bodies = [QUESTION if place % 4 else {**QUESTION, "k": 0} for place in range(64)]
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda body: ask(port, "/v1/search", body), bodies))
    for body, (status, answer) in zip(bodies, answers, strict=True):
        assert status == (200 if body["k"] else 422)
        if status == 200:
            assert [hit["turn_id"] for hit in answer["hits"]] == [hit["turn_id"] for hit in alone["hits"]]


@pytest.mark.ray
def test_requests_that_are_given_up_hold_nobody_up(port):
    for _ in range(200):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/search", json.dumps(QUESTION), {"Content-Type": "application/json"})
        connection.close()
    began = time.perf_counter()
    assert ask(port, "/v1/search", QUESTION)[0] == 200
    # A second on a machine that is free; a request waits for none of those, of which each would take some time.
    assert time.perf_counter() - began < 10


@pytest.mark.ray
def test_a_moved_pointer_reaches_the_replica_and_no_answer_in_between_is_wrong(port, root):
    store = Store.open(root)
    _, now = current_version(store)
    [other] = set(store.version_ids()) - {now}
    turns = {version: ask_stats(port, store, version) for version in (other, now)}
    assert turns == {other: 12, now: 16}


def ask_stats(port, store, version):
    """Point to a version, ask until it answers, and return how many turns it says; each answer is whole."""
    point_to(store, version)
    for _ in range(100_000):
        status, answer = ask(port, "/v1/namespaces/stats", {"namespace": "acme/ana"})
        assert status == 200
        if answer["version"] == version:
            return answer["turns"]
    raise AssertionError("the version is never served")


@pytest.mark.ray
def test_a_foreign_host_is_refused_on_serve_too(port):
    assert ask(port, "/v1/version", headers=[("Host", "evil.example")])[0] == 421
    assert ask(port, "/v1/healthz") == (200, {"status": "alive"})


@pytest.mark.ray
def test_the_tools_of_agents_are_called_on_serve(port):
    from mcp import Client

    async def call():
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            return await client.call_tool("search_memory", QUESTION)

    result = asyncio.run(call())
    _, answer = ask(port, "/v1/search", QUESTION)
    assert [hit["turn_id"] for hit in result.structured_content["hits"]] == [hit["turn_id"] for hit in answer["hits"]]
    assert len(answer["hits"]) == 3


NAMED = [f"acme/user{number}" for number in range(16)]


@pytest.fixture
def sticky_port(port, tmp_path):
    """The port of an endpoint with two replicas that are asked as the documentation says."""
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    log = write_jsonl(tmp_path / "log.jsonl", rows([name.partition("/")[2] for name in NAMED], 4))
    run(config_of(tmp_path / "store", log))
    [shown] = re.findall(r"```yaml\n(deployments:.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.DOTALL)
    [deployment] = yaml.safe_load(shown)["deployments"]
    told = [f"store.root={tmp_path / 'store'}", "encoder.name=static", "serve.timeout_seconds=60"]
    application = {
        "name": "sticky",
        "route_prefix": "/",
        "import_path": "pipelines.serving:app",
        "args": {"set": told},
        "deployments": [{**deployment, "num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}}],
    }
    serve.delete("hgmem")
    _get_global_client().deploy_apps(ServeDeploySchema(applications=[application]), _blocking=True)
    yield port
    serve.delete("sticky")


@pytest.mark.ray
def test_requests_of_a_namespace_reach_one_replica_and_are_answered_as_by_any(sticky_port):
    def headers(name):
        return [("X-Session-ID", hashlib.sha256(name.encode()).hexdigest()[:16])]

    def searches(name):
        """How many the replica of a namespace was asked."""
        connection = http.client.HTTPConnection("127.0.0.1", sticky_port, timeout=60)
        connection.request("GET", "/metrics", headers=dict(headers(name)))
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.findall(r'hgmem_request_seconds_count\{.*"/v1/search".*\} ([0-9.e+]+)', text)
        return sum(map(float, found))

    def search(name):
        status, answer = ask(sticky_port, "/v1/search", {**QUESTION, "namespace": name}, headers(name))
        assert status == 200 and answer["hits"]
        return answer["hits"]

    first, *others = NAMED
    for _ in range(20):
        search(first)
    assert searches(first) == 20
    elsewhere = []
    for name in others:
        before = searches(first)
        search(name)
        elsewhere.append(searches(first) == before)
    assert any(elsewhere)
    for name in NAMED:
        status, anywhere = ask(sticky_port, "/v1/search", {**QUESTION, "namespace": name})
        assert status == 200 and anywhere["hits"] == search(name)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "memory.example.com"])
def test_other_machines_are_not_listened_to_without_keys(host):
    from pipelines.serving import check_host

    with pytest.raises(ConfigError, match=re.escape(host)):
        check_host(host, has_keys=False)
    check_host(host, has_keys=True)
    check_host("127.0.0.1", has_keys=False)


def test_a_replica_that_other_machines_reach_does_not_start_without_keys(root, monkeypatch):
    from pipelines.serving import Endpoint

    told = SimpleNamespace(http_config=SimpleNamespace(host="0.0.0.0"))
    monkeypatch.setattr("pipelines.serving._get_global_client", lambda: told)
    with pytest.raises(ConfigError, match=r"Serve listens on 0\.0\.0\.0, .* make some with python -m jobs\.keys"):
        Endpoint(serve_config(root).model_dump(mode="json"))


def test_the_endpoint_that_is_handed_out_listens_to_this_machine_alone():
    told = yaml.safe_load((ROOT / "jobs" / "serve.yaml").read_text())
    assert told["http_options"]["host"] == "127.0.0.1"


def test_the_application_takes_a_configuration_whose_paths_any_folder_understands(tmp_path, monkeypatch):
    from pipelines.serving import with_whole_paths

    monkeypatch.chdir(tmp_path)
    config = Config.model_validate({"store": {"root": "store"}, "serve": {"keys": "keys"}})
    found = with_whole_paths(config)
    assert (found.store.root, found.serve.keys) == (str(tmp_path / "store"), str(tmp_path / "keys"))
    assert found.serve.audit == ""
    remote = Config.model_validate({"store": {"root": "s3://bucket/store"}})
    assert with_whole_paths(remote).store.root == "s3://bucket/store"
