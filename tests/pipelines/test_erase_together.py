"""Erasing beside what else a store can do: object storage, Ray, other buckets, versions that are removed, privacy."""

import json
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.config import config_from
from hgmem_core.model_config import EncoderConfig
from pipelines.audit import Texts, audit
from pipelines.encoders import open_encoder
from pipelines.forget import Selection, forget, restore
from pipelines.object_storage import ObjectStorage
from pipelines.progress import Silent
from pipelines.rebucket import rebucket
from pipelines.rebuild import erase
from pipelines.retention import prune
from pipelines.retriever import Retriever
from pipelines.skill_evolve import evolve_skills
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.version_history import history
from pipelines.versions import current_version, open_version, point_to
from tests.pipelines.logs import NOW, config_of, files_of, import_only, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs

ENCODER = open_encoder(EncoderConfig(name="static"))
LATER = datetime(2026, 2, 1, tzinfo=UTC)
ANA, BO = Selection("acme/ana"), Selection("acme/bo")
GONE, LEFT = "bo told me about", "ana told me about"


@pytest.fixture
def log(tmp_path):
    return write_jsonl(tmp_path / "log.jsonl", rows())


def erased(config):
    return erase(config, ENCODER, LATER, Silent())


def found(store, *texts):
    """The files of a store that hold any of the texts, as everybody sees it."""
    return sorted({one.path for one in audit(store.root, store.every_file(), Texts(texts), Silent()).found})


def hits(store, namespace, version=None):
    return Retriever(open_version(store, version), ENCODER).search(namespace, "the red bicycle").hits


def all_verified(store):
    versions = store.version_ids()
    return [version for version in versions if list(open_version(store, version).verify())] == versions


def test_in_object_storage_nothing_of_it_is_left_there_or_in_the_mirror(bucket, tmp_path, log):
    url = f"{bucket}/memory/store"
    config = config_of(url, f"{bucket}/logs/log.jsonl", buckets=2)
    ObjectStorage(f"{bucket}/logs").put("log.jsonl", log.read_bytes())
    first = run(config).built.version
    store = Store.open(url)
    assert found(store, GONE)
    assert {path.parts[1] for path in found_in(tmp_path / "cache", GONE)} == {"logs", "stores"}
    forget(store, BO, NOW)
    assert not hits(store, "acme/bo")
    done = erased(config)
    assert done.turns == 12
    assert done.version != first
    store = Store.open(url)
    assert not found(store, GONE)
    assert found(store, LEFT)
    cache = tmp_path / "cache"
    assert found_in(cache, LEFT)
    assert not found_in(cache, GONE)
    objects = [one.key for one in ObjectStorage(url).listed("")]
    assert "erasures/000001.json" in objects
    assert "erasures/unfinished.json" not in objects
    assert not hits(store, "acme/bo", first)
    assert hits(store, "acme/ana", first)
    assert all_verified(store)
    restore(store, BO, LATER)
    assert run(config).imported.outcomes["ok"] == 12
    assert hits(Store.open(url), "acme/bo")


def test_in_object_storage_what_was_left_half_done_is_erased_from_another_machine(bucket, tmp_path, log):
    url = f"{bucket}/memory/store"
    config = config_of(url, log, buckets=2)
    import_only(config)
    storage = ObjectStorage(url)
    half = f"outputs/merge/{'0' * 32}/turns.parquet"
    storage.put(half, GONE.encode())
    forget(Store.open(url), BO, NOW)
    shutil.rmtree(tmp_path / "cache")
    done = erased(config)
    told = json.loads(done.certificate.read_text())
    assert half in told["removed"]
    assert told["replaced"].keys() >= {"imports/000001.json"}
    shutil.rmtree(tmp_path / "cache")
    assert not found(Store.open(url), GONE)
    assert run(config).built.namespaces == 2


def found_in(folder, text):
    made = audit(folder, [path for path in folder.rglob("*") if path.is_file()], Texts([text]), Silent())
    return [Path(one.path) for one in made.found]


def test_an_erasure_in_object_storage_leaves_what_one_on_a_disk_leaves(bucket, tmp_path, log):
    there, here = config_of(f"{bucket}/store", log, buckets=2), config_of(tmp_path / "store", log, buckets=2)
    for config in (there, here):
        run(config)
        forget(Store.open(config.store.root), BO, NOW)
        erased(config)
    storage = ObjectStorage(there.store.root)
    keys = [one.key for one in storage.listed("") if not one.key.startswith("logs/")]
    ours = {key: storage.get(key).content for key in keys if not key.startswith("erasures/")}
    theirs = {path: body for path, body in files_of(tmp_path / "store").items() if not path.startswith("erasures/")}
    assert ours == theirs


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("at_once", [True, False])
def test_on_ray_an_erasure_leaves_what_one_without_it_leaves(tmp_path, log, at_once):
    done = {}
    for engine in ("local", "ray"):
        config = config_of(tmp_path / engine, log, buckets=2, run={"engine": engine})
        run(config)
        store = Store.open(config.store.root)
        forget(store, Selection("acme/bo", session="s1"), NOW)
        done[engine] = erased(config) if at_once else run(config).erased
        assert done[engine].turns == 4
        assert len(hits(store, "acme/bo")) and all(hit.session_id != "s1" for hit in hits(store, "acme/bo"))
    one, other = (
        {path: body for path, body in files_of(tmp_path / engine).items() if not path.startswith("erasures/")}
        for engine in done
    )
    assert one == other


def changed_to(config, buckets):
    return config_from({**config.model_dump(), "store": {**config.store.model_dump(), "buckets": buckets}})


@pytest.mark.parametrize("erase_first", [True, False])
def test_a_store_with_other_buckets_and_an_erasure_is_one_that_never_had_it(tmp_path, log, erase_first):
    config = config_of(tmp_path / "store", log, buckets=2)
    run(config)
    store = Store.open(config.store.root)
    forget(store, BO, NOW)
    first = current_version(store)[1]
    if erase_first:
        erased(config)
    rebucket(store, 5, NOW, Silent())
    config = changed_to(config, 5)
    done = run(config)
    assert (done.erased is None) == erase_first
    store = Store.open(config.store.root)
    assert not found(store, GONE)
    for version in (None, first):
        assert not hits(store, "acme/bo", version)
    assert hits(store, "acme/ana")
    assert all_verified(store)
    without = config_of(tmp_path / "without", write_jsonl(tmp_path / "less.jsonl", rows(("ana", "chen"))), buckets=5)
    assert run(without).built.version == done.built.version
    restore(store, BO, LATER)
    assert run(config).imported.outcomes["ok"] == 12
    rebucket(store, 2, NOW, Silent())
    restored = run(changed_to(config, 2))
    assert restored.imported.number is None
    assert hits(restored.store, "acme/bo")


def test_versions_that_were_redirected_are_pruned_to_whole_ones(tmp_path, log):
    config = config_of(tmp_path / "store", log, buckets=2)
    run(config)
    more = config_of(config.store.root, write_jsonl(tmp_path / "more.jsonl", rows(("ana",), 14)[12:]), buckets=2)
    run(more)
    store = Store.open(config.store.root)
    forget(store, BO, NOW)
    erased(more)
    ids = [one.version for one in history(store)]
    assert len(ids) == 3
    pruned = prune(store, 2, NOW)
    assert pruned.versions == (ids[0],)
    assert all_verified(store)
    point_to(store, ids[1])
    assert hits(store, "acme/ana")
    assert not hits(store, "acme/bo")
    for _ in range(2):
        prune(store, 1, NOW)
        assert all_verified(store)
    assert {path.parent.name for path in store.root.glob("[et]*/*.json")} == {"erasures", "tombstones"}
    assert not found(store, GONE)
    point_to(store, ids[2])
    prune(store, 1, NOW)
    assert store.version_ids() == [ids[2]]
    assert sum(run(more).built.report.made.values()) == 0


def test_one_rebuild_erases_and_keeps_as_many_versions_as_it_is_to(tmp_path, log):
    run(config_of(tmp_path / "store", log, buckets=2))
    store = Store.open(tmp_path / "store")
    forget(store, BO, NOW)
    more = write_jsonl(tmp_path / "more.jsonl", rows(("ana",), 14)[12:])
    done = run(config_of(store.root, log, more, store={"root": str(store.root), "buckets": 2, "keep_versions": 1}))
    assert (done.erased.turns, len(done.pruned.versions)) == (12, 1)
    assert store.version_ids() == [done.built.version]
    assert not found(store, GONE)
    assert all_verified(store)
    run(config_of(tmp_path / "other", write_jsonl(tmp_path / "less.jsonl", rows(("ana", "chen"))), more, buckets=2))
    kept = {path for path in files_of(store.root) if path.startswith("outputs/index/")}
    assert kept == {path for path in files_of(tmp_path / "other") if path.startswith("outputs/index/")}


def test_an_import_that_was_cut_short_before_it_was_listed_is_erased_too(tmp_path, log):
    config = config_of(tmp_path / "store", log, buckets=2)
    run(config)
    store = Store.open(config.store.root)
    import_only(config_of(store.root, write_jsonl(tmp_path / "more.jsonl", rows(("bo",), 14)), buckets=2))
    store.remove_file(store.root / "imports" / "000002.json")
    forget(store, BO, NOW)
    erased(config)
    assert not found(store, GONE)
    assert all_verified(store)


def test_skills_that_evolved_before_can_evolve_again_after_an_erasure(tmp_path):
    config = runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs()))
    run(config)
    store = Store.open(config.store.root)
    evolve_skills(config, StaticEncoder(), None, 1, NOW, Silent())
    opened = open_version(store)
    before = opened.open_skills(opened.bucket_of("acme/bo")).open("acme/bo").tables.trajectories
    gone = next(row["trajectory_id"] for row in before.to_pylist() if "hot mug" in row["task"])
    forget(store, Selection("acme/bo", trajectories=(gone,)), NOW)
    assert erase(config, StaticEncoder(), LATER, Silent()).turns == 1
    run(config)
    evolved = evolve_skills(config, StaticEncoder(), None, 1, LATER, Silent())
    version = open_version(store)
    assert version.id == evolved.version
    assert {path.partition("/")[0] for path in found(store, gone)} == {"erasures", "tombstones"}
    assert all_verified(store)
    prune(store, 1, LATER)
    assert all_verified(store)


def test_a_reader_that_has_it_open_goes_on_with_the_rest_and_then_opens_what_is_left(tmp_path, log):
    config = config_of(tmp_path / "store", log, buckets=1)
    run(config)
    store = Store.open(config.store.root)
    reader, late = (Retriever(open_version(store), ENCODER) for _ in range(2))
    theirs = reader.search("acme/ana", "the red bicycle").hits
    assert reader.search("acme/bo", "the red bicycle").hits
    forget(store, BO, NOW)
    erased(config)
    reader.refresh_tombstones()
    assert reader.search("acme/bo", "the red bicycle").hits == []
    assert reader.search("acme/ana", "the red bicycle").hits == theirs
    with pytest.raises(RuntimeError, match="missing"):
        late.search("acme/ana", "the red bicycle")
    again = Retriever(open_version(store, late.version.id), ENCODER)
    assert again.search("acme/ana", "the red bicycle").hits == theirs


@pytest.mark.parametrize(("mode", "of_files", "of_folders"), [("0600", 0o600, 0o700), ("0640", 0o640, 0o750)])
def test_what_an_erasure_writes_is_as_private_as_the_store(tmp_path, log, mode, of_files, of_folders):
    place = {"root": str(tmp_path / "store"), "buckets": 2, "file_mode": mode}
    config = config_of(tmp_path / "store", log, store=place)
    run(config)
    store = Store.open(config.store.root)
    forget(store, Selection("acme/bo", session="s1"), NOW)
    erased(config)
    every = [path for path in store.root.rglob("*") if path.name != "lease.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in every if path.is_file()} == {of_files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in every if path.is_dir()} == {of_folders}
    assert {path.suffix for path in every if path.is_file()} == {".json", ".jsonl", ".parquet", ".arrow", ".faiss"}
    assert [path.name for path in (store.root / "erasures").iterdir()] == ["000001.json"]
