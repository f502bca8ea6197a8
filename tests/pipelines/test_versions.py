import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from hgmem_core.encoding import EncoderIdentity
from hgmem_core.model_config import EncoderConfig
from hgmem_core.recipes import DEFAULT_RECIPE
from pipelines import build, publish
from pipelines.encoders import open_encoder
from pipelines.files import StoreError, seal
from pipelines.lease import LeaseHeld, LeaseLost
from pipelines.local_engine import LocalEngine
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.versions import (
    INDEX_FILES,
    VersionError,
    check_encoder,
    current_version,
    open_version,
    point_to,
    version_id,
)
from tests.pipelines.logs import config_of, rows, run, write_jsonl

ENCODER = open_encoder(EncoderConfig(name="static"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    return run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows()), buckets=1))


@pytest.fixture
def store(built, tmp_path):
    shutil.copytree(built.store.root, tmp_path / "store")
    return Store.open(tmp_path / "store")


def index_file(store, name):
    return next(store.root.glob(f"outputs/index/*/{name}"))


def ask(store):
    return Retriever(open_version(store), ENCODER).search("acme/ana", "the red bicycle")


@pytest.mark.parametrize("name", INDEX_FILES)
@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped", "missing"])
def test_a_damaged_index_file_is_refused_by_name(store, name, damage):
    path = index_file(store, name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes({"truncated": content[:-6], "emptied": b"", "flipped": content}[damage])
    with pytest.raises(VersionError, match=name.replace(".", r"\.")):
        ask(store)
    with pytest.raises(VersionError, match=name.replace(".", r"\.")):
        list(open_version(store).verify())


def test_files_of_two_versions_are_never_served_together(store):
    nodes, postings = index_file(store, "nodes.arrow"), index_file(store, "postings.arrow")
    shutil.copy(nodes, postings)
    with pytest.raises(VersionError, match=r"postings\.arrow"):
        ask(store)


def test_an_undamaged_version_passes_every_check(store):
    names = {path.rpartition("/")[2] for path in open_version(store).verify()}
    assert names == {*INDEX_FILES, "outcomes.parquet", "lineage.parquet"}
    assert ask(store).hits


@pytest.mark.parametrize(
    ("field", "value"), [("dimension", 768), ("weights_sha256", "f" * 64), ("prefix", "query: "), ("name", "minilm")]
)
def test_another_encoder_is_refused_with_both_values(store, field, value):
    other = EncoderIdentity(**{**ENCODER.identity.as_dict(), field: value})
    ours = ENCODER.identity.as_dict()[field]
    with pytest.raises(VersionError, match=f"{field}: version has {ours!r}, encoder has {value!r}"):
        check_encoder(open_version(store), other)


def test_a_version_names_the_features_of_its_relations(store):
    relations = open_version(store).manifest["relations"]
    assert relations["turn"] == ["temporal", "semantic", "causal", "entity"] == relations["fact"][:4]
    assert 16 <= len(relations["fact"]) <= 32
    index = open_version(store).open_bucket(0).open("acme/ana")
    assert {graph: list(index.relations(graph).layout) for graph in ("turn", "fact")} == relations


@pytest.mark.parametrize("field", ["schema_version", "index_revision", "tokens_revision", "relations"])
def test_a_version_of_other_software_is_refused_with_what_to_do(store, field):
    path = next(store.root.glob("versions/*/manifest.json"))
    path.write_text(json.dumps(seal({**json.loads(path.read_text()), field: 99})))
    with pytest.raises(VersionError, match=f"{field}': 99.*rebuild the store"):
        open_version(store)


def test_rollback_names_an_old_version_under_a_new_number(store, tmp_path):
    first = current_version(store)[1]
    log = write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",)))
    second = run(config_of(store.root, log, buckets=1)).built.version
    assert second != first
    assert current_version(store) == (2, second)
    assert point_to(store, first) == 3
    assert open_version(store).id == first
    assert open_version(store, second).id == second
    with pytest.raises(VersionError, match=f"no version 'nonsense'; it has .*{first}"):
        point_to(store, "nonsense")
    with pytest.raises(VersionError, match="no version 'nonsense'"):
        open_version(store, "nonsense")


@pytest.mark.parametrize("at_first", ["built", "rolled back"])
def test_a_rebuild_without_news_leaves_a_rollback(store, tmp_path, at_first):
    first = current_version(store)[1]
    log = write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",)))
    config = config_of(store.root, log, buckets=1)
    second = run(config).built.version
    if at_first == "rolled back":
        point_to(store, first)
        point_to(store, second)
    number = point_to(store, first)
    for _ in range(2):
        built = run(config).built
        assert (built.version, built.is_new, built.number) == (second, False, number)
        assert f"rolled back to version {first}" in built.kept
        assert current_version(store) == (number, first)
    write_jsonl(tmp_path / "new.jsonl", rows(users=("eve",)))
    news = run(config_of(store.root, tmp_path / "new.jsonl", buckets=1)).built
    assert (news.is_new, news.kept) == (True, None)
    assert current_version(store) == (number + 1, news.version)


def test_another_configuration_and_back_moves_the_pointer(store):
    first = current_version(store)[1]
    config = config_of(store.root, buckets=1)
    other = config_of(store.root, buckets=1, index={"k1": 0.9})
    second = run(other).built
    assert (second.is_new, second.version != first) == (True, True)
    assert run(config).built.is_new
    assert current_version(store) == (3, first)
    point_to(store, second.version)
    assert not run(config).built.is_new
    third = run(config_of(store.root, buckets=1, index={"k1": 0.8})).built
    assert current_version(store) == (5, third.version)


def test_a_rebuild_that_began_with_fewer_imports_leaves_a_newer_version(store, tmp_path, monkeypatch):
    newer = config_of(store.root, write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",))), buckets=1)
    stale = config_of(store.root, buckets=1, index={"k1": 0.9})
    original, done = build.publish, []

    def overtaken(*arguments, **named):
        monkeypatch.setattr(build, "publish", original)
        (store.root / "lease.json").unlink()  # taken over in the moment after it was looked at
        done.append(run(newer).built)
        return original(*arguments, **named)

    monkeypatch.setattr(build, "publish", overtaken)
    built = run(stale).built
    (overtaking,) = done
    assert overtaking.is_new
    assert (built.is_new, built.number) == (False, overtaking.number)
    assert "covers 2 imports, this one 1" in built.kept
    assert current_version(store) == (2, overtaking.version)
    assert run(stale).built.is_new  # begun again, it has all imports


def test_a_newer_version_that_comes_between_the_look_and_the_number_counts(store, tmp_path, monkeypatch):
    stale = config_of(store.root, buckets=1, index={"k1": 0.9})
    newest = current_version(store)[1]
    claim = Store.claim

    def overtaken(self, kind, number, content):
        monkeypatch.setattr(Store, "claim", claim)
        assert claim(self, kind, number, {"version": newest, "imports": 7})
        return claim(self, kind, number, content)

    monkeypatch.setattr(Store, "claim", overtaken)
    built = run(stale).built
    assert (built.is_new, built.number) == (False, 2)
    assert current_version(store) == (2, newest)


def test_publishers_at_once_get_one_number_each(store):
    configs = [config_of(store.root, buckets=1, index={"k1": k1}) for k1 in (0.6, 0.7, 0.8, 0.9)]
    [index] = (store.find(path) for path in store.root.glob("outputs/index/*"))
    with ThreadPoolExecutor(4) as pool:
        indexes = {0: {"index": index}}
        done = list(pool.map(lambda config: publish.publish(store, indexes, config, ENCODER.identity, {}, 1), configs))
    assert sorted(published.number for published in done) == [2, 3, 4, 5]
    assert all(published.moved for published in done)


def test_a_second_rebuild_is_refused_while_one_runs(store, monkeypatch):
    other = config_of(store.root, buckets=1, index={"k1": 0.9})
    original = build.publish

    def meanwhile(*arguments, **named):
        with pytest.raises(LeaseHeld, match=r"is in use: rebuild since .*, process"):
            run(config_of(store.root, buckets=1, index={"k1": 0.8}))
        return original(*arguments, **named)

    monkeypatch.setattr(build, "publish", meanwhile)
    assert run(other).built.is_new
    monkeypatch.undo()
    assert run(config_of(store.root, buckets=1, index={"k1": 0.8})).built.is_new


def test_a_rebuild_that_lost_its_lease_publishes_nothing(store, monkeypatch):
    before = current_version(store)

    def taken(self, job, encoder, chat, watch):
        (store.root / "lease.json").unlink()
        return index(self, job, encoder, chat, watch)

    index = LocalEngine.index
    monkeypatch.setattr(LocalEngine, "index", taken)
    with pytest.raises(LeaseLost):
        run(config_of(store.root, buckets=1, index={"k1": 0.9}))
    assert current_version(store) == before


def manifest_of(store):
    return next(store.root.glob("versions/*/manifest.json"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store_buckets", 2), ("version", "0123456789abcdef"), ("default_recipe", "bm25"), ("propagation", 0.25),
        ("turns", 35), ("buckets", {}), ("index", {"language": "german"}), ("checksum", None), ("encoder", {}),
    ],
)  # fmt: skip
def test_an_altered_manifest_is_refused_by_name_and_mended_by_a_rebuild(store, name, value):
    path = manifest_of(store)
    before = path.read_bytes()
    path.write_text(json.dumps({**json.loads(before), name: value}))
    with pytest.raises(VersionError, match=r"manifest\.json is damaged"):
        open_version(store)
    built = run(config_of(store.root, buckets=1)).built
    assert not built.is_new
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["{}", "[]", "{", ""])
def test_a_manifest_of_another_shape_is_refused_by_name(store, content):
    manifest_of(store).write_text(content)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_version(store)
    run(config_of(store.root, buckets=1))
    assert ask(store).hits


@pytest.mark.parametrize(
    ("name", "value"), [("store_buckets", 2), ("default_recipe", "bm25"), ("propagation", 0.25), ("buckets", {})]
)
def test_a_version_is_named_by_what_decides_its_answers(store, name, value):
    path = manifest_of(store)
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(seal({**content, name: value})))
    with pytest.raises(VersionError, match=r"manifest\.json is damaged"):
        open_version(store)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("buckets", {"0": None}), ("buckets", []), ("skills", []), ("skills", {"buckets": {"0": 7}}), ("encoder", None),
        ("index", None), ("default_recipe", {}), ("published_with", [1]), ("propagation", "much"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_whole_but_of_another_shape_is_refused_by_name(store, name, value):
    content = json.loads(manifest_of(store).read_bytes())
    manifest_of(store).write_text(json.dumps(seal({**content, name: value})))
    with pytest.raises(VersionError, match=r"manifest\.json is damaged.*rebuild"):
        open_version(store)


@pytest.mark.parametrize(
    ("name", "value"), [("index", {"language": "klingon"}), ("index", {}), ("default_recipe", "oracle")]
)
def test_a_version_with_what_this_software_does_not_know_is_refused(store, name, value):
    content = json.loads(manifest_of(store).read_bytes())
    content["index"] = {**content["index"], "unknown": 1} if value == {} else content["index"]
    content = {**content, name: value or content[name]}
    version = version_id(content)
    (store.root / "versions" / version).mkdir()
    path = store.root / "versions" / version / "manifest.json"
    path.write_text(json.dumps(seal({**content, "version": version})))
    with pytest.raises(VersionError, match=f"version {version} .*does not know.*rebuild the store"):
        open_version(store, version)


def test_another_default_recipe_is_another_version(store, monkeypatch):
    monkeypatch.setattr(publish, "DEFAULT_RECIPE", "bm25")
    built = run(config_of(store.root, buckets=1)).built
    assert built.is_new
    assert open_version(store).default_recipe == "bm25"


def test_a_version_is_asked_for_by_its_id_only(store):
    version = current_version(store)[1]
    (store.root / "versions" / "copy").mkdir()
    shutil.copy(manifest_of(store), store.root / "versions" / "copy")
    for name in (f"../versions/{version}", f"./{version}", "copy", "", version.upper() + "0", f"{version}/"):
        with pytest.raises(VersionError, match=f"has no version .*{version}"):
            open_version(store, name)
        with pytest.raises(VersionError, match=f"has no version .*{version}"):
            point_to(store, name)
    (store.root / "versions" / "copy").rename(store.root / "versions" / "0123456789abcdef")
    with pytest.raises(VersionError, match=r"0123456789abcdef/manifest\.json is damaged"):
        point_to(store, "0123456789abcdef")


@pytest.mark.parametrize("content", ["{}", '{"version": 5}', '{"version": "../x"}', "[]", '{"imports": 1}', "", "null"])
def test_a_pointer_of_another_shape_is_refused_by_name(store, content):
    (store.root / "current" / "000002.json").write_text(content)
    with pytest.raises(StoreError, match=r"current/000002\.json is damaged.*remove it"):
        open_version(store)


def test_stray_files_beside_the_pointer_are_ignored(store):
    current = current_version(store)
    shutil.copy(store.root / "current" / "000001.json", store.root / "current" / "000002 (copy).json")
    assert current_version(store) == current


def test_a_version_answers_for_nobody_it_does_not_know(store):
    retriever = Retriever(open_version(store), ENCODER)
    for namespace in ("acme", "acme/an", "acme/ana/x", "other/ana"):
        response = retriever.search(namespace, "the red bicycle")
        assert (response.hits, response.reason) == ([], "unknown_namespace")
    with pytest.raises(ValueError, match=r"'\.\.' is not allowed"):
        retriever.search("../acme/ana", "x")
    with pytest.raises(ValueError, match="at least 1 hit"):
        retriever.search("acme/ana", "x", k=0)


def test_a_response_names_version_and_recipe(store):
    response = ask(store)
    assert (response.version, response.recipe) == (open_version(store).id, DEFAULT_RECIPE)
    assert json.loads(json.dumps(response.as_dict()))["hits"][0]["said_at"].endswith("+00:00")
