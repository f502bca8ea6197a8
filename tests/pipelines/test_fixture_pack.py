"""The shared inputs through the whole way: a server's replies, and two tenants with nearly the same texts."""

import json
from pathlib import Path

import pytest

from hgmem_core.config import config_from
from hgmem_core.replies import read_reply
from pipelines.encoders import open_encoder
from pipelines.retriever import Retriever
from pipelines.versions import open_version
from tests.core.test_replies import Items, outcome
from tests.pipelines.logs import COLUMNS, run
from tests.pipelines.scripted_server import Scripted, ScriptedServer
from tests.pipelines.test_http_chat import chat_of, request

DATA = Path(__file__).parents[1] / "data"


def test_every_reply_comes_through_http_as_it_was_written():
    told = [json.loads(path.read_text("utf-8")) for path in sorted((DATA / "replies").iterdir())]
    replies = {str(number): Scripted(**one["reply"]) for number, one in enumerate(told)}
    with ScriptedServer(lambda body: replies[body["messages"][1]["content"]]) as server, chat_of(server) as chat:
        found = dict(chat.ask([request(user) for user in replies]))
    readings = [outcome(read_reply(found[number], Items)) for number in range(len(told))]
    assert readings == [(one["statements"], one["fault"], one["is_cut"]) for one in told]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory):
    log = {
        "format": "jsonl",
        "paths": [str(DATA / "tenants.jsonl")],
        "namespace": "{tenant}/{user}",
        "columns": COLUMNS,
    }
    store = {"root": str(tmp_path_factory.mktemp("tenants") / "store"), "buckets": 1}
    config = config_from({"store": store, "encoder": {"name": "static"}, "inputs": [log]})
    return Retriever(open_version(run(config).store), open_encoder(config.encoder))


@pytest.mark.parametrize("recipe", ["bm25", "dense", "hybrid", "untrained", "hypergraph", "hypermem", "magma-static"])
@pytest.mark.parametrize(("tenant", "own", "foreign"), [("north", "sky-42", "sea-77"), ("south", "sea-77", "sky-42")])
def test_nobody_finds_what_another_tenant_said_nearly_alike(tenants, recipe, tenant, own, foreign):
    hits = tenants.search(f"{tenant}/crew", f"What is the code of the gate, {foreign}?", recipe, k=50).hits
    texts = " ".join(hit.text for hit in hits)
    assert own in texts
    assert foreign not in texts
