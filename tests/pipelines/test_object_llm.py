"""A store in object storage whose stages asked a language model: what is erased, and what a dry run counts."""

import itertools
from collections import Counter
from datetime import UTC, datetime

import pytest

from hgmem_core.model_config import PriceConfig
from pipelines.audit import Texts, audit
from pipelines.estimate import estimate
from pipelines.forget import Selection, forget
from pipelines.ledger import ledger
from pipelines.object_storage import ObjectStorage, ObjectStorageError
from pipelines.progress import Silent
from pipelines.rebuild import erase, rebuild
from pipelines.retriever import Retriever
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import open_version
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import NOW, config_of, rows, write_jsonl
from tests.pipelines.scripted_model import ScriptedChat

MODEL = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE)}
LATER = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.fixture
def config(bucket, tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows(("ana", "bo")))
    return config_of(f"{bucket}/store", log, buckets=1, llm=MODEL)


def build(config, chat):
    return rebuild(config, StaticEncoder(), NOW, Silent(), chat).built


def on_another_machine(config, tmp_path):
    """The same configuration with a mirror of its own."""
    store = config.store.model_copy(update={"cache": str(tmp_path / "another")})
    return config.model_copy(update={"store": store})


def calls_of(config):
    store = Store.open(config.store.root, config.store.cache)
    return {row["namespace"]: row["calls"] for row in ledger(store, PriceConfig(), ["namespace"]).to_dicts()}


def holding(config, *texts):
    """The objects, by what storage has and no mirror, that hold any of some texts."""
    store = Store.open(config.store.root, config.store.cache)
    return sorted({one.path for one in audit(store.root, store.every_file(), Texts(texts), Silent()).found})


def test_what_a_model_said_of_a_namespace_is_erased_from_every_object(config, tmp_path):
    build(config, ScriptedChat())
    before = calls_of(config)
    assert before.keys() == {"acme/ana", "acme/bo"}
    there = on_another_machine(config, tmp_path)
    assert any(path.startswith("calls/") for path in holding(there, "bo told me about"))
    forget(Store.open(config.store.root, there.store.cache), Selection("acme/bo"), LATER)
    chat = ScriptedChat()
    done = erase(there, StaticEncoder(), LATER, Silent(), chat)
    assert done.turns == 12
    assert {request.namespace for request in chat.asked} <= {"acme/ana"}
    assert calls_of(config)["acme/ana"] >= before["acme/ana"] and "acme/bo" not in calls_of(config)
    for machine in (config, there):
        assert holding(machine, "bo told me about") == []
        assert holding(machine, "ana told me about")
    found = Retriever(open_version(Store.open(config.store.root)), StaticEncoder())
    assert not found.search("acme/bo", "the red bicycle").hits and found.search("acme/ana", "the red bicycle").hits
    again = ScriptedChat()
    assert not build(config, again).is_new
    assert again.asked == []


def test_an_erasure_that_the_server_cuts_off_is_finished_by_the_next(config, object_server):
    build(config, ScriptedChat())
    forget(Store.open(config.store.root), Selection("acme/bo"), LATER)
    for allowed in (0, 2, 7):
        left = itertools.count(allowed, -1)

        def refused(method, key, left=left):
            is_work = method == "PUT" and not key.endswith("lease.json") and "/logs/" not in key and "/tmp/" not in key
            return 403 if is_work and next(left) <= 0 else None

        with object_server.failing(faults=refused), pytest.raises(ObjectStorageError, match="answered 403"):
            erase(config, StaticEncoder(), LATER, Silent(), ScriptedChat())
        list(open_version(Store.open(config.store.root)).verify())
    assert erase(config, StaticEncoder(), LATER, Silent(), ScriptedChat()) is not None
    assert holding(config, "bo told me about") == []
    assert len(list(ObjectStorage(config.store.root).listed("erasures/"))) == 1


def test_a_dry_run_counts_what_a_build_in_object_storage_asks_and_writes_nothing(config, tmp_path, object_server):
    before = estimate(config, StaticEncoder(), NOW, Silent())
    chat = ScriptedChat()
    build(config, chat)
    asked = Counter(request.stage for request in chat.asked)
    assert before.stages["segment"].calls == asked["segment"]
    there = on_another_machine(config, tmp_path)
    object_server.counts()
    assert estimate(there, StaticEncoder(), NOW, Silent()).stages == {}
    other = there.model_copy(update={"llm": there.llm.model_copy(update={"model": "another"})})
    assert estimate(other, StaticEncoder(), NOW, Silent()).stages["segment"].calls == asked["segment"]
    assert {method for method, _ in object_server.counts()} <= {"GET", "HEAD", "LIST"}


def test_a_dry_run_without_a_connection_does_not_take_the_store_for_a_new_one(config, object_server):
    build(config, ScriptedChat())
    with object_server.failing(faults=lambda method, key: 403), pytest.raises(ObjectStorageError, match="answered 403"):
        estimate(config, StaticEncoder(), NOW, Silent())
