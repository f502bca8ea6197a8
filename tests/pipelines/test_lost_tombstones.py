"""Tombstone files that are lost: by what that is known, who refuses, and what is then left to do."""

import json

import pytest

from pipelines.files import StoreError
from pipelines.forget import Selection, forget
from pipelines.object_storage import ObjectStorage
from pipelines.progress import Silent
from pipelines.rebuild import erase
from pipelines.retention import prune
from pipelines.retriever import Retriever
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.tombstone_files import give_up_lost, read_tombstones
from pipelines.versions import current_version, open_version, point_to
from tests.pipelines.logs import NOW, config_of, rows, run, write_jsonl

ANA = "acme/ana"
LOST = r"tombstones/000001\.json is missing or damaged.*--give-up-lost"


@pytest.fixture
def config(tmp_path):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=2)
    run(config)
    return config


@pytest.fixture
def store(config):
    return Store.open(config.store.root)


def turns(store):
    index = Retriever(open_version(store), StaticEncoder()).namespace(ANA)
    return sum(bool(text) for text in index.column("text").to_pylist())


def test_a_file_that_the_pointer_knows_of_is_refused_by_all_until_it_is_given_up(config, store, tmp_path):
    forget(store, Selection(ANA, session="s1"), NOW)
    point_to(store, current_version(store)[1])
    path = store.root / "tombstones" / "000001.json"
    path.unlink()
    more = write_jsonl(tmp_path / "more.jsonl", rows(count=14))
    for work in (
        lambda: turns(store),
        lambda: forget(store, Selection(ANA), NOW),
        lambda: run(config_of(store.root, more, buckets=2)),
        lambda: erase(config, StaticEncoder(), NOW, Silent()),
    ):
        with pytest.raises(StoreError, match=LOST):
            work()
    assert give_up_lost(store) == [path]
    assert turns(store) == 12  # as it was before anything was forgotten
    assert forget(store, Selection(ANA, session="s1"), NOW).number == 2
    assert turns(store) == 8
    assert give_up_lost(store) == []


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_damaged_one_before_others_is_given_up_and_the_others_stay(store, damage):
    for session in ("s0", "s1"):
        forget(store, Selection(ANA, session=session), NOW)
    path = store.root / "tombstones" / "000001.json"
    if damage == "missing":
        path.unlink()
    else:
        path.write_text(path.read_text().replace("s0", "s2"))
    with pytest.raises(StoreError, match=LOST):
        read_tombstones(store)
    assert give_up_lost(store) == [path]
    assert read_tombstones(store).ids(ANA, "session") == {"s1"}


def told(store):
    """What the pointers say of tombstones, the current one's last."""
    return [json.loads(path.read_text()).get("tombstones", 0) for _, path in store.numbered("current")]


def test_whoever_writes_a_pointer_says_what_tombstones_there_are(config, store, tmp_path):
    first = current_version(store)[1]
    forget(store, Selection(ANA, session="s0"), NOW)
    log = config.inputs[0].paths[0]
    run(config_of(store.root, log, write_jsonl(tmp_path / "more.jsonl", rows(count=14)[12:]), buckets=2))
    forget(store, Selection(ANA, session="s1"), NOW)
    point_to(store, first)
    forget(store, Selection(ANA, session="s2"), NOW)
    erase(config, StaticEncoder(), NOW, Silent())
    forget(store, Selection("acme/bo", session="s2"), NOW)
    prune(store, 1, NOW)
    assert told(store) == [0, 1, 2, 3, 4]


def test_a_pointer_that_follows_a_loss_does_not_hide_it(store):
    forget(store, Selection(ANA, session="s1"), NOW)
    version = current_version(store)[1]
    point_to(store, version)
    (store.root / "tombstones" / "000001.json").unlink()
    with pytest.raises(StoreError, match=LOST):
        read_tombstones(store)
    point_to(store, version)
    assert told(store) == [0, 1, 1]


def test_one_lost_from_object_storage_is_missed_on_every_machine(bucket, tmp_path):
    config = config_of(f"{bucket}/store", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=2)
    run(config)
    here = Store.open(config.store.root)
    forget(here, Selection(ANA, session="s1"), NOW)
    point_to(here, current_version(here)[1])
    ObjectStorage(config.store.root).delete(["tombstones/000001.json"])
    there = Store.open(config.store.root, str(tmp_path / "there"))
    for store in (here, there):
        with pytest.raises(StoreError, match=LOST):
            turns(store)
    assert len(give_up_lost(there)) == 1
    assert turns(here) == turns(there) == 12
