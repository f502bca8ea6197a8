"""Forgetting for good: what is gone from the files of a store, what stays as it was, and what a kill leaves."""

from datetime import UTC, datetime

import pytest

from pipelines.audit import Texts, audit, files_below
from pipelines.encoders import open_encoder
from pipelines.progress import Silent
from pipelines.rebuild import erase
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.tombstone_files import Tombstone, add_tombstones
from pipelines.versions import current_version, open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl

LATER = datetime(2026, 2, 1, tzinfo=UTC)


def forget(store, *named):
    """Write tombstones of (namespace, scope, id)."""
    rows = [Tombstone(namespace=name, scope=scope, id=own, deleted_at=LATER) for name, scope, own in named]
    add_tombstones(store, rows)


def erased(config):
    return erase(config, open_encoder(config.encoder), LATER, Silent())


def found(store, *texts):
    """The files of a store that hold any of the texts."""
    return sorted({one.path for one in audit(store.root, files_below(store.root), Texts(texts), Silent()).found})


@pytest.fixture
def config(tmp_path):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=2)
    run(config)
    return config


@pytest.fixture
def store(config):
    return Store.open(config.store.root)


def test_a_namespace_is_gone_from_every_file(config, store):
    assert found(store, "bo told me about")
    first = current_version(store)[1]
    forget(store, ("acme/bo", "namespace", ""))
    done = erased(config)
    assert not found(store, "bo told me about")
    assert found(store, "ana told me about")
    assert done.turns == 12
    assert done.certificate.exists()
    assert done.version == current_version(store)[1] != first
    for version in (None, first):
        retriever = Retriever(open_version(store, version), open_encoder(config.encoder))
        assert list(open_version(store, version).verify())
        assert retriever.search("acme/bo", "the red bicycle").hits == []
        assert retriever.search("acme/ana", "the red bicycle").hits
    assert erased(config) is None
