"""What an answer tells beside its hits: the hypergraph around them, when things were said, which recipes there are."""

import pytest

from pipelines import serve_models
from tests.pipelines.endpoint import client_of, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.test_serve_api import answer_of, post, twice

QUESTION = {"query": "the red bicycle", "namespace": "acme/ana"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", [*rows(("ana", "bo"), 36), *twice()])))
    return folder / "store"


@pytest.fixture(scope="module")
def ask(root):
    with client_of(serve_config(root)) as client:
        yield client


def explained(ask, **body):
    return answer_of(post(ask, "search", **{**QUESTION, **body}, explain=True), serve_models.SearchAnswer)


def test_hits_come_with_the_facts_episodes_and_topics_that_hold_them(ask):
    found = explained(ask, k=3)
    nodes = {node.id: node for node in found.hypergraph}
    assert {node.level for node in nodes.values()} == {"fact", "episode", "topic"}
    for node in nodes.values():
        told = answer_of(post(ask, "memories/get", namespace="acme/ana", id=node.id), serve_models.MemoryAnswer)
        [own] = [edge for edge in told.hyperedges if edge.id == node.id]
        assert (node.level, node.text, node.size) == (own.kind, told.text, len(own.members))
        assert set(node.members) <= {*own.members, *(source.turn_id for source in told.sources)}
    for hit in found.hits:
        facts = {node.id for node in nodes.values() if hit.turn_id in node.members}
        episodes = {node.id for node in nodes.values() if facts & set(node.members)}
        assert episodes and any(node.level == "topic" and episodes & set(node.members) for node in nodes.values())


def test_nothing_is_around_hits_unless_it_is_asked_for(ask):
    assert answer_of(post(ask, "search", **QUESTION), serve_models.SearchAnswer).hypergraph == []


def test_what_does_not_pass_the_filters_is_not_around_hits_either(ask):
    found = explained(ask, filters={"session_id": "d2"}, query="violin in Lisbon", namespace="acme/dora")
    assert [node.level for node in found.hypergraph] == ["episode", "fact"]  # its topic holds the other session, too
    [_, fact] = found.hypergraph
    assert (fact.members, fact.size) == ([found.hits[0].turn_id], 2)
    assert explained(ask, as_of="2024-03-01T18:00:00Z", query="violin", namespace="acme/dora").hypergraph != []


def test_a_path_leads_through_what_is_around_the_hits(ask):
    found = explained(ask, k=10, recipe="magma-static")
    known = {node.id for node in found.hypergraph} | {hit.turn_id for hit in found.hits}
    paths = [hit.path for hit in found.hits if hit.path]
    assert paths and all(step.id in known for path in paths for step in path)
    passed = {step.id for path in paths for step in path} - {hit.turn_id for hit in found.hits}
    assert passed and passed == {node.id for node in found.hypergraph if node.level == "turn"}
    assert {node.text for node in found.hypergraph if node.level == "turn"} <= {
        row["text"] for row in rows(("ana",), 36)
    }


def test_a_path_under_filters_shows_nothing_of_what_does_not_pass(ask):
    found = explained(ask, k=10, recipe="magma-static", filters={"speaker": "Bo"})
    passed = {step.id for hit in found.hits for step in hit.path} - {hit.turn_id for hit in found.hits}
    shown = {node.id: node.text for node in found.hypergraph if node.level == "turn"}
    assert passed - shown.keys()
    bo = {row["text"] for row in rows(("ana",), 36) if row["speaker"] == "Bo"}
    assert set(shown.values()) <= bo


def test_several_namespaces_have_each_their_own_around_them(ask):
    body = {"query": "the red bicycle", "namespaces": ["acme/bo", "acme/ana"], "k": 4}
    found = answer_of(post(ask, "search", **body, explain=True), serve_models.SearchAnswer)
    assert {node.namespace for node in found.hypergraph} == {"acme/ana", "acme/bo"}
    for node in found.hypergraph:
        assert node.namespace.removeprefix("acme/") in node.text.lower()


def test_what_is_forgotten_is_not_around_hits(tmp_path):
    run(config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows(("ana",)))))
    with client_of(serve_config(tmp_path / "store")) as client:
        first = explained(client, k=1).hits[0]
        before = {node.id for node in explained(client, k=12).hypergraph}
        post(client, "forget", namespace="acme/ana", turn=first.turn_id)
        after = explained(client, k=12).hypergraph
        assert len(after) < len(before)
        assert not [node for node in after if first.text in node.text or first.turn_id in node.members]
        counts = answer_of(post(client, "namespaces/stats", namespace="acme/ana"), serve_models.StatsAnswer)
        assert sum(counts.timeline) == counts.turns == 11


def test_the_time_line_counts_every_turn_once_in_order(ask):
    found = answer_of(post(ask, "namespaces/stats", namespace="acme/ana"), serve_models.StatsAnswer)
    assert sum(found.timeline) == found.turns == 36
    assert (found.timeline[0], found.timeline[-1]) == (4, 4)
    nothing = answer_of(post(ask, "namespaces/stats", namespace="acme/nobody"), serve_models.StatsAnswer)
    assert nothing.timeline == []


def test_every_recipe_that_the_version_names_is_answered(ask):
    told = answer_of(ask.get("/v1/version"), serve_models.VersionAnswer)
    assert told.default_recipe == "hypergraph" and {"bm25", "hypermem", "magma-static"} <= set(told.recipes)
    for recipe in told.recipes:
        assert explained(ask, recipe=recipe).recipe == recipe
    assert post(ask, "search", **QUESTION, recipe="hage").status_code == 422
    assert "hage" not in told.recipes and "learned-flat:tuned" not in told.recipes
