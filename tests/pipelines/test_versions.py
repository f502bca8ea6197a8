import json
import shutil

import pytest

from hgmem_core.config import EncoderConfig
from hgmem_core.encoding import EncoderIdentity
from pipelines.encoders import open_encoder
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.versions import INDEX_FILES, VersionError, check_encoder, current_version, open_version, point_to
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
    assert {path.rpartition("/")[2] for path in open_version(store).verify()} == {*INDEX_FILES, "outcomes.parquet"}
    assert ask(store).hits


@pytest.mark.parametrize(
    ("field", "value"), [("dimension", 768), ("weights_sha256", "f" * 64), ("prefix", "query: "), ("name", "minilm")]
)
def test_another_encoder_is_refused_with_both_values(store, field, value):
    other = EncoderIdentity(**{**ENCODER.identity.as_dict(), field: value})
    ours = ENCODER.identity.as_dict()[field]
    with pytest.raises(VersionError, match=f"{field}: version has {ours!r}, encoder has {value!r}"):
        check_encoder(open_version(store), other)


@pytest.mark.parametrize("field", ["schema_version", "index_revision", "tokens_revision"])
def test_a_version_of_other_software_is_refused_with_what_to_do(store, field):
    path = next(store.root.glob("versions/*/manifest.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), field: 99}))
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
    assert (response.version, response.recipe) == (open_version(store).id, "untrained")
    assert json.loads(json.dumps(response.as_dict()))["hits"][0]["said_at"].endswith("+00:00")
