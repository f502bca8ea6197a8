"""Forgetting for good of what a language model answered, and of skills and what they became."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from hgmem_core.model_config import PriceConfig
from pipelines.ledger import ledger
from pipelines.progress import Silent
from pipelines.rebuild import erase, rebuild
from pipelines.skill_evolve import evolve_skills
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.told_outcomes import Row, add_outcome, told_rows
from pipelines.tombstone_files import Tombstone, add_tombstones
from pipelines.versions import current_version, open_version
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import NOW, config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs
from tests.pipelines.scripted_model import ScriptedChat
from tests.pipelines.test_erase import found

LATER = datetime(2026, 2, 1, tzinfo=UTC)
MODEL = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE)}


def forget(store, namespace, scope, name=""):
    add_tombstones(store, [Tombstone(namespace=namespace, scope=scope, id=name, deleted_at=LATER)])


@pytest.mark.parametrize("at_once", [True, False])
def test_calls_of_a_namespace_are_gone_and_others_are_not_asked_again(tmp_path, at_once):
    config = config_of(
        tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows(("ana", "bo"))), buckets=1, llm=MODEL
    )
    rebuild(config, StaticEncoder(), NOW, Silent(), ScriptedChat())
    store = Store.open(config.store.root)

    def calls():
        counted = ledger(store, PriceConfig(), ("namespace",)).to_dicts()
        return {row["namespace"]: row["calls"] for row in counted}

    before = calls()
    [session] = {row["session_id"] for row in turns_of(store, "acme/bo")[:1]}
    forget(store, "acme/bo", "session", session)
    chat = ScriptedChat()
    if at_once:
        erase(config, StaticEncoder(), LATER, Silent(), chat)
    else:
        rebuild(config, StaticEncoder(), LATER, Silent(), chat)
    assert chat.asked
    assert {request.namespace for request in chat.asked} == {"acme/bo"}
    assert calls()["acme/ana"] == before["acme/ana"]
    assert "acme/bo" not in calls()
    assert not found(store, "bo told me about the red bicycle, number 0.")
    assert found(store, "bo told me about the red bicycle, number 5.")
    again = ScriptedChat()
    assert not rebuild(config, StaticEncoder(), NOW, Silent(), again).built.is_new
    assert not again.asked


def turns_of(store, namespace):
    version = open_version(store)
    return version.open_bucket(version.bucket_of(namespace)).open(namespace).nodes.to_pylist()


def test_told_outcomes_of_what_is_erased_are_gone_and_others_stay(tmp_path):
    config = runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs()))
    run(config)
    store = Store.open(config.store.root)
    version = open_version(store)
    graph = version.open_skills(version.bucket_of("acme/bo")).open("acme/bo")
    gone, stays = graph.tables.trajectories.column("trajectory_id").to_pylist()[:2]

    def told(namespace, query, *nodes, shown_at=NOW):
        about = {"namespace": namespace, "query_id": query, "shown_at": shown_at, "outcome": "success", "n_steps": 3}
        add_outcome(store, [Row(node_kind="trajectory", node_id=node, **about) for node in nodes])

    told("acme/bo", "both", gone, stays)
    told("acme/bo", "gone", gone)
    told("acme/ana", "before", "any")
    told("acme/ana", "after", "any", shown_at=LATER + timedelta(days=1))
    forget(store, "acme/bo", "trajectory", gone)
    forget(store, "acme/ana", "namespace")
    done = erase(config, StaticEncoder(), LATER, Silent())
    kept = [row.value for row in told_rows(store.root / "feedback")]
    left = [(row["namespace"], row["query_id"], row["node_id"]) for row in kept]
    assert sorted(left) == [("acme/ana", "after", "any"), ("acme/bo", "both", stays)]
    certified = json.loads(done.certificate.read_text())["removed"]
    assert sum(path.startswith("feedback/") for path in certified) == 3


def test_an_evolved_version_keeps_nothing_of_a_run_either(tmp_path):
    config = runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs()))
    run(config)
    store = Store.open(config.store.root)
    learnt = current_version(store)[1]
    evolved = evolve_skills(config, StaticEncoder(), None, 1, NOW, Silent()).version
    version = open_version(store)
    graph = version.open_skills(version.bucket_of("acme/bo")).open("acme/bo")
    gone = next(row for row in graph.tables.trajectories.to_pylist() if "hot mug" in row["task"])
    assert found(store, gone["task"])
    forget(store, "acme/bo", "trajectory", gone["trajectory_id"])
    done = erase(config, StaticEncoder(), LATER, Silent())
    assert done.turns == 1
    assert not found(store, gone["task"])
    assert {path.partition("/")[0] for path in found(store, gone["trajectory_id"])} == {"erasures", "tombstones"}
    for one in (learnt, evolved, done.version):
        opened = open_version(store, one)
        assert list(opened.verify())
        left = opened.open_skills(opened.bucket_of("acme/bo")).open("acme/bo").tables.trajectories
        assert left.num_rows == graph.tables.trajectories.num_rows - 1
    told = json.loads(done.certificate.read_text())
    assert any(path.startswith("outputs/evolve/") for path in told["removed"])
