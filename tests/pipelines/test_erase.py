"""Forgetting for good: what is gone from the files of a store, what stays as it was, and what a kill leaves."""

import errno
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.model_config import EncoderConfig
from pipelines import erase as erase_module
from pipelines.audit import Texts, audit
from pipelines.encoders import open_encoder
from pipelines.files import files_below
from pipelines.pieces import Pieces
from pipelines.progress import Silent
from pipelines.rebuild import erase
from pipelines.retriever import Retriever
from pipelines.store import Store, StoreError, file_sha256
from pipelines.tombstone_files import Tombstone, add_tombstones
from pipelines.versions import current_version, open_version, point_to
from tests.pipelines.logs import config_of, files_of, import_only, rows, run, write_jsonl

ENCODER = open_encoder(EncoderConfig(name="static"))
LATER = datetime(2026, 2, 1, tzinfo=UTC)


def forget(store, *named):
    """Write tombstones of (namespace, scope, id)."""
    rows = [Tombstone(namespace=name, scope=scope, id=own, deleted_at=LATER) for name, scope, own in named]
    add_tombstones(store, rows)


def erased(config):
    return erase(config, ENCODER, LATER, Silent())


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
        retriever = Retriever(open_version(store, version), ENCODER)
        assert list(open_version(store, version).verify())
        assert retriever.search("acme/bo", "the red bicycle").hits == []
        assert retriever.search("acme/ana", "the red bicycle").hits
    assert erased(config) is None


def test_erasing_keeps_as_many_versions_as_the_settings_say(config, store):
    forget(store, ("acme/bo", "namespace", ""))
    settings = config.store.model_copy(update={"keep_versions": 1})
    done = erased(config.model_copy(update={"store": settings}))
    assert store.version_ids() == [done.version]
    assert list(open_version(store).verify())
    assert Retriever(open_version(store), ENCODER).search("acme/ana", "the red bicycle").hits
    assert done.certificate.exists() and erased(config) is None


class Killed(BaseException):
    """As sudden as a power cut."""


COUNTED = ("turns", "namespaces", "episodes", "facts", "topics", "outcomes")
CHANGES = ("add_file", "write_json", "remove", "remove_file", "clear")


@pytest.fixture
def changes(monkeypatch):
    """Tell what a job does to a store's files; with a number, that change is where the job ends, before it is made."""

    def watch(last=None):
        seen = []
        for name in CHANGES:
            original = getattr(Store, name)

            def changed(self, *arguments, name=name, original=original, **named):
                place = arguments[0].relative_to(self.root) if arguments else Path("tmp")
                seen.append((name, place.parts[0], place.suffix))
                if len(seen) == last:
                    raise Killed
                return original(self, *arguments, **named)

            monkeypatch.setattr(Store, name, changed)
        return seen

    yield watch
    monkeypatch.undo()


def kept_files(root):
    """Every file but the certificate, whose times differ, and the pointers."""
    return {name: body for name, body in files_of(root).items() if not name.startswith("erasures/")}


def test_a_kill_at_any_moment_leaves_what_the_same_job_finishes(tmp_path, changes, monkeypatch):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows(("ana", "bo"), 5)), buckets=1)
    run(config)
    run(config_of(config.store.root, write_jsonl(tmp_path / "more.jsonl", rows(("bo",), 6)), buckets=1))
    store = Store.open(config.store.root)
    forget(store, ("acme/bo", "session", session_of(store, "acme/bo")))
    undisturbed = config_of(tmp_path / "undisturbed", buckets=1)
    shutil.copytree(store.root, undisturbed.store.root)
    seen = changes()
    whole = erased(undisturbed)
    monkeypatch.undo()
    wanted = kept_files(Path(undisturbed.store.root))
    # Changes of one kind are many: the first of each kind and the last.
    numbers = {seen.index(kind) + 1 for kind in seen} | {len(seen) - seen[::-1].index(kind) for kind in seen}
    assert len(numbers) > 10
    for number in sorted(numbers):
        again = config_of(tmp_path / f"killed-{number}", buckets=1)
        shutil.copytree(store.root, again.store.root)
        changes(number)
        with pytest.raises(Killed):
            erased(again)
        monkeypatch.undo()
        list(open_version(Store.open(again.store.root)).verify())
        done = erased(again)
        assert done is None or (done.removed, done.turns) == (whole.removed, whole.turns)
        assert kept_files(Path(again.store.root)) == wanted
        assert [path.name for path in Path(again.store.root).glob("erasures/*")] == ["000001.json"]
        shutil.rmtree(again.store.root)


def session_of(store, namespace):
    """The id of a namespace's first session."""
    version = open_version(store)
    index = version.open_bucket(version.bucket_of(namespace)).open(namespace)
    return index.nodes.column("session_id")[0].as_py()


def test_what_is_left_is_what_logs_without_the_rest_give(config, store, tmp_path):
    turn = turns_of(store, "acme/bo")[3]
    forget(store, ("acme/bo", "turn", turn["turn_id"]), ("acme/chen", "namespace", ""))
    done = erased(config)
    said = [row for row in rows(("ana", "bo")) if (row["user"], row["text"]) != ("bo", turn["text"])]
    other = config_of(tmp_path / "other", write_jsonl(tmp_path / "less.jsonl", said), buckets=2)
    assert run(other).built.version == done.version
    ours, theirs = (open_version(one).manifest for one in (store, Store.open(other.store.root)))
    assert ours["buckets"] == theirs["buckets"]
    assert {name: ours[name] for name in COUNTED} == {name: theirs[name] for name in COUNTED}


def turns_of(store, namespace):
    version = open_version(store)
    return version.open_bucket(version.bucket_of(namespace)).open(namespace).nodes.to_pylist()


def test_a_rebuild_erases_too_and_then_has_nothing_to_do(config, store):
    forget(store, ("acme/bo", "namespace", ""))
    done = run(config)
    assert done.erased.turns == 12
    assert not found(store, "bo told me about")
    before = files_of(store.root)
    again = run(config)
    assert (again.erased, again.built.is_new, again.built.version) == (None, False, done.built.version)
    assert not again.built.report.made
    assert files_of(store.root) == before


def test_another_configuration_is_refused_and_nothing_is_erased(config, store):
    forget(store, ("acme/bo", "namespace", ""))
    for sections, name in (({"index": {"k1": 0.7}}, "index"), ({"segment": {"max_turns": 3}}, "segment")):
        with pytest.raises(StoreError, match=rf"builds otherwise than version .*\({name}.*run a rebuild, which erases"):
            erased(config_of(store.root, buckets=2, **sections))
    assert found(store, "bo told me about")
    assert not list(store.root.glob("erasures/*"))
    assert erased(config).turns == 12


def test_a_version_of_other_settings_loses_the_bucket_and_keeps_its_id(config, store):
    first = current_version(store)[1]
    other = config_of(store.root, buckets=2, index={"k1": 0.7})
    run(other)
    forget(store, ("acme/bo", "namespace", ""))
    done = erased(other)
    assert done.dropped == [first]
    version = open_version(store, first)
    assert version.id == first
    assert version.open_bucket(version.bucket_of("acme/bo")) is None
    assert point_to(store, first)


def test_everything_may_be_erased(config, store):
    forget(store, *((f"acme/{name}", "namespace", "") for name in ("ana", "bo", "chen")))
    done = erased(config)
    assert done.turns == 36
    assert not found(store, "told me about")
    assert open_version(store).manifest["turns"] == 0
    assert Retriever(open_version(store), ENCODER).search("acme/ana", "x").hits == []


def test_what_was_only_imported_is_erased_without_a_build(tmp_path):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=2)
    import_only(config)
    store = Store.open(config.store.root)
    forget(store, ("acme/bo", "namespace", ""))
    assert erased(config).version is None
    assert not found(store, "bo told me about")
    assert run(config).built.namespaces == 2


def test_a_tombstone_of_what_never_was_changes_nothing_and_is_certified(config, store):
    forget(store, ("acme/nobody", "namespace", ""), ("acme/bo", "turn", "0" * 32))
    before = files_of(store.root)
    done = erased(config)
    assert done.turns == 0
    after = files_of(store.root)
    assert [name for name in after if name not in before] == ["erasures/000001.json"]
    assert all(after[name] == body for name, body in before.items())


def test_raw_text_of_rejected_rows_is_blanked(tmp_path):
    bad = [{"id": "x", "session": "s1", "text": "a wren of nobody"}, {"user": "bo", "id": "y", "said": "a finch of bo"}]
    log = write_jsonl(tmp_path / "log.jsonl", [*rows(), *bad])
    config = config_of(tmp_path / "store", log, buckets=2, imports={"max_reject_rate": 0.5})
    run(config)
    store = Store.open(config.store.root)
    texts = [json.dumps(row)[1:-1] for row in bad]
    assert {path.rpartition("/")[2][:7] for path in found(store, *texts)} == {"rejects"}
    forget(store, ("acme/bo", "turn", "0" * 32))
    erased(config)
    assert not found(store, *texts)
    assert found(store, "the row has no text column")


def test_no_room_for_imports_leaves_the_store_as_it_was(config, store, monkeypatch):
    forget(store, ("acme/bo", "namespace", ""))
    before = files_of(store.root)

    def full(self, path, payload):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "add_file", full)
    with pytest.raises(StoreError, match=r"could not be written anew .*No space left.*nothing was erased: make room"):
        erased(config)
    assert files_of(store.root) == before
    monkeypatch.undo()
    assert erased(config).turns == 12


def test_no_room_for_the_build_leaves_the_version_as_it_was(config, store, monkeypatch):
    forget(store, ("acme/bo", "namespace", ""))
    before = current_version(store)

    def full(self, *arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "keep", full)
    with pytest.raises(StoreError, match=r"could not be built .*No space left.*nothing was erased: make room"):
        erased(config)
    assert current_version(store) == before
    assert list(open_version(store).verify())
    monkeypatch.undo()
    assert run(config_of(store.root, buckets=2)).erased.turns == 12
    assert not found(store, "bo told me about")


def test_a_root_that_vanishes_is_named(config, store, monkeypatch):
    forget(store, ("acme/bo", "namespace", ""))
    original = erase_module.finish_erasure

    def vanished(*arguments):
        store.root.rename(store.root.with_name("elsewhere"))
        return original(*arguments)

    monkeypatch.setattr(erase_module, "finish_erasure", vanished)
    with pytest.raises(StoreError, match=r"lease.*is gone"):
        erased(config)
    assert not store.root.exists()


def test_an_erasure_that_leaves_something_is_not_certified(config, store, monkeypatch):
    forget(store, ("acme/bo", "namespace", ""))
    monkeypatch.setattr(Pieces, "clear", lambda self: None)
    (store.root / "pieces").mkdir()
    (store.root / "pieces" / "left.json").write_text(json.dumps("x bo told me about the red bicycle, number 0. x"))
    with pytest.raises(StoreError, match=r"may be left in pieces/left\.json .*nothing was certified"):
        erased(config)
    assert not list(store.root.glob("erasures/0*"))
    monkeypatch.undo()
    assert erased(config).turns == 12


def test_a_certificate_tells_what_where_and_when(config, store):
    forget(store, ("acme/bo", "namespace", ""))
    done = erased(config)
    told = json.loads(done.certificate.read_text())
    assert [(one["namespace"], one["scope"]) for one in told["tombstones"]] == [("acme/bo", "namespace")]
    assert told["version"] == done.version
    assert told["scan"]["ids"] == 12 <= told["scan"]["texts"]
    assert told["removed"].keys().isdisjoint(files_of(store.root))
    for path, sha256 in told["written"].items():
        assert file_sha256(store.root / path) == sha256
    for path, (_, after) in told["replaced"].items():
        assert file_sha256(store.root / path) == after
    assert any(path.startswith("versions/") for path in told["replaced"])
