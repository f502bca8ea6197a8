"""Who may ask what: every route of the OpenAPI file, by keys of another tenant, other hosts and other origins."""

import json
import logging

import pytest

from tests.pipelines.endpoint import client_of, key_for, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, write_runs
from tests.pipelines.test_serve_api import config_of_inputs, post, problem_of

CANARY = "sky-42"
"""In the other tenant's texts, ids, speakers, sessions and runs."""


def canary_rows():
    return [
        {**row, "text": f"{CANARY} {row['text']}", "speaker": CANARY, "session": f"{CANARY}-{row['session']}"}
        for row in rows(("ana",))
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    log = write_jsonl(folder / "log.jsonl", [*canary_rows(), *rows(("bo",))])
    agents = [{**one, "task": f"{CANARY} {one['task']}"} for one in runs(("ana",))]
    config = config_of(folder / "store", log)
    inputs = config_of_inputs(write_runs(folder / "runs.jsonl", agents))
    run(config.model_copy(update={"inputs": [*config.inputs, *inputs]}))
    return folder / "store"


@pytest.fixture
def config(root, tmp_path):
    key_for(tmp_path / "keys", "acme/ana:read")
    return serve_config(root, keys=str(tmp_path / "keys"), audit=str(tmp_path / "audit"))


@pytest.fixture(scope="module")
def listed(root):
    """A client of an endpoint with lists of hosts and origins, and no keys."""
    hosts = ["localhost", "127.0.0.1", "[::1]", "memory.example.com"]
    with client_of(serve_config(root, hosts=hosts, origins=["https://desk.example.com"])) as client:
        yield client


@pytest.fixture(scope="module")
def locked(root, tmp_path_factory):
    """A client without a key of an endpoint that has some."""
    keys = tmp_path_factory.mktemp("keys")
    key_for(keys, "acme:admin")
    with client_of(serve_config(root, keys=str(keys))) as client:
        yield client


def routes(client):
    """Every route of the OpenAPI file that needs a key, with its example."""
    found = client.get("/openapi.json").json()
    for path, methods in found["paths"].items():
        for method, about in methods.items():
            if not about.get("security"):
                continue
            body, fields = None, {}
            if "requestBody" in about:
                name = about["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                fields = found["components"]["schemas"][name]["properties"]
                [body] = found["components"]["schemas"][name]["examples"]
            yield method, path, body, fields


def test_no_route_shows_a_foreign_key_anything_of_another_tenant(config, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    own, foreign = (key_for(tmp_path / "keys", grant) for grant in ("acme/ana:admin", "acme/bo:admin"))
    with client_of(config, own) as client:
        seen = post(client, "search", query="red bicycle", namespace="acme/ana", levels=["turn", "fact", "episode"])
        assert CANARY in seen.text
        ids = [seen.json()["hits"][0]["turn_id"], *(node["id"] for node in seen.json()["nodes"])]
        found = post(client, "skills/search", task="put a hot egg", namespace="acme/ana").json()
        ids += [skill["skill_id"] for skill in found["skills"]] + [found["lessons"][0]["trajectory_id"]]
        asked = list(routes(client))
    assert len(asked) >= 9
    told = []
    with client_of(config, foreign) as client:
        for method, path, body, fields in asked:
            for changed in attacks(body, fields, ids):
                response = client.request(method, path, json=changed)
                assert response.status_code in (200, 403, 404, 422), (path, response.text)
                if "namespace" in fields and "acme/ana" in (changed.get("namespace"), *changed.get("namespaces", ())):
                    assert response.status_code == 403, (path, response.text)
                told += [path, response.text, json.dumps(dict(response.headers))]
        told += [client.get(address).text for address in ("/metrics", "/v1/readyz", "/v1/version", "/openapi.json")]
    told += [caplog.text, *capfd.readouterr(), (tmp_path / "audit").read_text()]
    assert not [text for text in told if CANARY in text]
    assert not [text for text in told if own in text or foreign in text]


def attacks(body, fields, ids):
    """The example as it is, for the other's namespace, and for the own one with the other's ids."""
    yield body
    if body is None:
        return
    yield {**body, "namespace": "acme/ana"}
    yield {**body, "namespace": "acme/bo", "tenant": "acme/ana"}
    if "query" in body:
        rest = {name: value for name, value in body.items() if name != "namespace"}
        yield {**rest, "namespaces": ["acme/bo", "acme/ana"]}
        yield {**body, "namespace": "acme/bo", "filters": {"speaker": CANARY[:3]}}
    for one in ids:
        for field in {"id", "turn", "trajectory"} & set(fields):
            yield {"namespace": "acme/bo", field: one}
        if "shown" in fields:
            yield {**body, "namespace": "acme/bo", "shown": [{"id": one}]}


def test_outside_is_403_whether_there_is_such_a_namespace_or_not(config, tmp_path):
    key = key_for(tmp_path / "keys", "acme/bo:read")
    with client_of(config, key) as client:
        there = post(client, "search", query="red bicycle", namespace="acme/ana")
        not_there = post(client, "search", query="red bicycle", namespace="acme/nobody")
    assert problem_of(there, 403) == problem_of(not_there, 403)


def test_a_foreign_id_is_answered_like_one_that_there_is_not(config, tmp_path):
    own = key_for(tmp_path / "keys", "acme:read")
    with client_of(config, own) as client:
        turn = post(client, "search", query="red bicycle", namespace="acme/ana").json()["hits"][0]["turn_id"]
        foreign = post(client, "memories/get", namespace="acme/bo", id=turn)
        unknown = post(client, "memories/get", namespace="acme/bo", id="f" * 24)
    assert problem_of(foreign, 404) == problem_of(unknown, 404)


@pytest.mark.parametrize(
    ("grant", "statuses"),
    [
        ("acme/bo:read", {"search": 200, "forget": 403, "skills/outcome": 403, "version/reload": 403}),
        ("acme/bo:write", {"search": 200, "forget": 200, "skills/outcome": 404, "version/reload": 403}),
        ("acme/bo:admin", {"search": 200, "version/reload": 403}),
        ("*:admin", {"search": 200, "version/reload": 200}),
        ("acme/b:admin", {"search": 403}),
    ],
)
def test_rights_are_asked_for_by_route(config, tmp_path, grant, statuses):
    outcome = {"query_id": "q", "shown": [{"id": "f" * 24}], "outcome": "success", "n_steps": 1}
    bodies = {
        "search": {"query": "bicycle", "namespace": "acme/bo"},
        "forget": {"turn": "f" * 24, "namespace": "acme/bo"},
        "skills/outcome": {**outcome, "namespace": "acme/bo"},
        "version/reload": {},
    }
    with client_of(config, key_for(tmp_path / "keys", grant)) as client:
        assert {path: post(client, path, **bodies[path]).status_code for path in statuses} == statuses


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer x", "Basic eDp5", "Bearer hgm_0123456789ab_" + "a" * 43]
)
def test_without_a_good_key_nothing_is_answered(locked, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    for method, path, body, _ in list(routes(locked)):
        response = locked.request(method, path, json=body, headers=headers)
        problem_of(response, 401)
        assert response.headers["www-authenticate"] == "Bearer"
    assert locked.get("/metrics", headers=headers).status_code == 401
    assert locked.get("/v1/readyz").status_code == 200


def test_a_revoked_key_is_refused_after_the_next_look(config, tmp_path):
    from pipelines.serve_keys import read_keys, revoke_key
    from tests.pipelines.endpoint import NOW

    key = key_for(tmp_path / "keys", "acme/bo:read")
    with client_of(config, key) as client:
        assert post(client, "namespaces/stats", namespace="acme/bo").status_code == 200
        for each in read_keys(tmp_path / "keys"):
            revoke_key(tmp_path / "keys", each.id, NOW)
        client.service.refresh()
        problem_of(post(client, "namespaces/stats", namespace="acme/bo"), 401)


def test_without_keys_only_this_machine_may_ask(root):
    body = {"query": "bicycle", "namespace": "acme/bo"}
    with client_of(serve_config(root), client=("10.0.0.7", 5_000)) as client:
        problem_of(post(client, "search", **body), 403)
    with client_of(serve_config(root), client=("::1", 5_000)) as client:
        assert post(client, "search", **body).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", ""])
def test_a_foreign_host_is_refused(listed, host):
    problem_of(listed.get("/v1/version", headers={"Host": host}), 421)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "memory.example.com:443"]
)
def test_a_host_of_the_list_is_let_in(listed, host):
    assert listed.get("/v1/version", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost", 200),
        ("https://desk.example.com", 200),
        ("http://evil.example", 403),
        ("http://localhost:9999", 403),
        ("null", 403),
    ],
)
def test_pages_of_other_origins_may_not_ask(listed, origin, status):
    response = listed.get("/v1/version", headers={"Origin": origin})
    assert response.status_code == status
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_deletions_and_uses_of_keys_are_in_the_audit_log(config, tmp_path):
    key = key_for(tmp_path / "keys", "acme/bo:write")
    with client_of(config, key) as client:
        post(client, "search", query="what Ana said in confidence", namespace="acme/bo")
        post(client, "forget", namespace="acme/bo", turn="0" * 24)
        post(client, "search", query="x", namespace="acme/ana")
    text = (tmp_path / "audit").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    key_id = key.split("_")[1]
    assert [(line["event"], line["key"], line.get("route"), line.get("status")) for line in lines] == [
        ("request", key_id, "/v1/search", 200),
        ("forget", key_id, None, None),
        ("request", key_id, "/v1/forget", 200),
        ("request", key_id, "/v1/search", 403),
    ]
    assert lines[1]["namespace"] == "acme/bo" and lines[1]["id"] == "0" * 24
    assert "confidence" not in text and key not in text
