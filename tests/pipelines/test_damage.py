"""What becomes of a store whose files were truncated, altered or lost: mended from what is left, or refused by name."""

import os
import shutil
import subprocess
import sys
from datetime import timedelta

import pytest

from pipelines.encoders import open_encoder
from pipelines.retriever import Retriever
from pipelines.store import Store, StoreError, open_arrow
from pipelines.versions import INDEX_FILES, open_version
from tests.pipelines.logs import NOW, config_of, files_of, import_only, rows, run, write_jsonl

LATER = NOW + timedelta(days=3)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows()), buckets=1))
    return folder


@pytest.fixture
def config(original, tmp_path):
    """The configuration of a store of one bucket and one import; its log is there as well."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return config_of(tmp_path / "store", tmp_path / "log.jsonl", buckets=1)


def found(store, pattern):
    (path,) = store.root.glob(pattern)
    return path


def damage(path, how):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if how != "missing":
        path.write_bytes({"truncated": content[:100], "emptied": b"", "flipped": content}[how])


def ask(store, config):
    return Retriever(open_version(store), open_encoder(config.encoder)).search("acme/ana", "the red bicycle").hits


@pytest.mark.parametrize("name", [*INDEX_FILES, "manifest.json"])
@pytest.mark.parametrize("how", ["truncated", "emptied", "flipped", "missing"])
def test_a_rebuild_mends_a_damaged_index(config, name, how):
    store = Store.open(config.store.root)
    before, hits = files_of(store.root), ask(store, config)
    damage(found(store, f"outputs/index/*/{name}"), how)
    done = run(config, LATER)
    assert dict(done.built.report.made) == {"index": 1}
    assert done.built.report.reused["index"] == 0
    assert done.built.report.outcomes["index"] == {"ok": 36}
    assert not done.built.is_new
    assert files_of(store.root) == before
    assert ask(store, config) == hits


def test_an_intact_output_is_left_as_it_is(config):
    store = Store.open(config.store.root)
    folder = found(store, "outputs/index/*")
    before = folder.stat().st_ino
    (folder / "manifest.json").read_bytes()
    run(config, LATER)
    assert folder.stat().st_ino == before


def test_a_reader_keeps_what_it_has_mapped_while_its_version_is_mended(config):
    store = Store.open(config.store.root)
    mapped = open_arrow(found(store, "outputs/index/*/nodes.arrow"))
    damage(found(store, "outputs/index/*/postings.arrow"), "truncated")
    run(config, LATER)
    assert mapped.num_rows == 36
    assert mapped == open_arrow(found(store, "outputs/index/*/nodes.arrow"))


@pytest.mark.parametrize(
    ("damaged", "reader"),
    [
        ("merge/*/turns", "encode_turns"), ("encode_turns/*/embeddings", "segment"), ("segment/*/episodes", "extract"),
        ("extract/*/facts", "group"), ("extract/*/incidences", "consolidate"), ("consolidate/*/facts", "index"),
        ("encode_facts/*/embeddings", "consolidate"), ("group/*/topics", "encode_topics"),
        ("propagate/*/embeddings", "index"), ("merge/*/turns", "index"), ("encode_turns/*/embeddings", "relate"),
        ("relate/*/turn_relations", "index"), ("relate/*/fact_relations", "index"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_damaged_input_of_a_stage_is_made_again_before_it_is_read(config, damaged, reader, how):
    store = Store.open(config.store.root)
    before = files_of(store.root)
    damage(found(store, f"outputs/{damaged}.*"), how)
    shutil.rmtree(found(store, f"outputs/{reader}/*"))
    done = run(config, LATER)
    assert +done.built.report.made == {damaged.partition("/")[0]: 1, reader: 1}
    assert files_of(store.root) == before


def test_damage_all_the_way_up_is_mended_from_the_imports(config):
    store = Store.open(config.store.root)
    before = files_of(store.root)
    for path in store.root.glob("outputs/*/*/*.[pa]*"):
        if path.parts[-3] != "import":
            damage(path, "flipped")
    damage(found(store, "outputs/index/*/turn.faiss"), "flipped")
    run(config, LATER)
    after = files_of(store.root)
    stages = {path for path in before if path.startswith(("outputs/merge", "outputs/index", "versions", "current"))}
    assert {path: after[path] for path in stages} == {path: before[path] for path in stages}


def test_a_table_is_read_only_as_it_was_written(config):
    store = Store.open(config.store.root)
    path = found(store, "outputs/merge/*/turns.parquet")
    output = store.find(path.parent)
    for how in ("flipped", "truncated", "missing"):
        damage(path, how)
        with pytest.raises(StoreError, match=r"turns\.parquet .*run the rebuild again"):
            output.table("turns.parquet")
        path.touch()
    with pytest.raises(StoreError, match=r"nothing\.parquet"):
        output.table("nothing.parquet")


@pytest.mark.parametrize("name", ["bucket-00000.parquet", "manifest.json"])
@pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
def test_a_damaged_import_is_refused_with_the_log_to_import_again(config, name, how):
    store = Store.open(config.store.root)
    before = files_of(store.root)
    damage(found(store, f"outputs/import/*/{name}"), how)
    shutil.rmtree(store.root / "outputs" / "merge")
    with pytest.raises(StoreError, match=rf"{name}.* import again .*log\.jsonl"):
        run(config.model_copy(update={"inputs": []}))
    done = run(config, LATER)
    assert (done.imported.number, done.imported.files, done.imported.mended) == (None, 0, 1)
    assert files_of(store.root) == before


def test_an_import_is_mended_whole_or_not_at_all(config, tmp_path):
    one, two = (write_jsonl(tmp_path / f"{user}.jsonl", rows(users=(user,))) for user in ("dee", "eve"))
    both = config_of(config.store.root, two, one, buckets=1)
    store = run(both).store
    before = files_of(store.root)
    entry = max(path for path in store.root.glob("imports/*.json")).read_text()
    folder = next(path for path in store.root.glob("outputs/import/*") if path.name in entry)
    damage(folder / "bucket-00000.parquet", "flipped")
    shutil.rmtree(store.root / "outputs" / "merge")
    with pytest.raises(StoreError, match=r"import again .*eve\.jsonl.* and .*dee\.jsonl"):
        run(config_of(config.store.root, one, buckets=1))
    done = run(config_of(config.store.root, tmp_path / "log.jsonl", one, two, buckets=1), LATER)
    assert (done.imported.number, done.imported.mended) == (None, 1)
    after = files_of(store.root)
    assert {path for path in before if after.get(path) != before[path]} == {
        path for path in before if path.startswith("outputs/merge/") and path not in after
    }
    assert run(both).built.version == done.built.version


def test_imports_of_one_log_at_once_count_once(config):
    store = Store.open(config.store.root)
    first = found(store, "imports/*.json")
    shutil.copy(first, first.with_name("000002.json"))
    assert run(config).built.report.made.total() == 0


@pytest.mark.parametrize("content", ["{}", '{"import": 5}', "[]", "{", '{"files": {}, "parts": []}'])
def test_an_import_entry_of_another_shape_is_refused_by_name(config, content):
    found(Store.open(config.store.root), "imports/000001.json").write_text(content)
    with pytest.raises(StoreError, match=r"imports/000001\.json is damaged"):
        run(config)


def test_an_entry_at_odds_with_its_output_is_refused_by_name(config):
    path = found(Store.open(config.store.root), "imports/000001.json")
    path.write_text(path.read_text().replace('"rows": 36', '"rows": 35'))
    with pytest.raises(StoreError, match=r"imports/000001\.json"):
        run(config)


def test_what_killed_runs_left_is_removed_by_the_next_import_or_build(config):
    store = Store.open(config.store.root)
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        names = [f"{dead.stdout.decode().strip()}-0f", f"{alive.pid}-0f", f"{os.getpid()}-0f", "notes"]
        for work in (lambda: import_only(config), lambda: run(config.model_copy(update={"inputs": []}))):
            for name in names:
                (store.root / "tmp" / name).mkdir(parents=True, exist_ok=True)
            with store.workspace() as ours:
                work()
                assert ours.exists()
            assert sorted(path.name for path in store.root.glob("tmp/*")) == sorted([names[1], "notes"])
    finally:
        alive.communicate(b"\n")
