"""Tuned vectors beside the others: made on either engine, asked with what made them, and with nothing else."""

import numpy as np
import pytest

from hgmem_core.embeddings import context_texts
from hgmem_core.encoding import encode_queries, encode_texts
from hgmem_core.heads import Heads, first_heads
from hgmem_core.recipes import RECIPES
from hgmem_core.trained import TrainedModelError
from pipelines.encoders import EncoderError, open_encoder, tuned_vectors
from pipelines.files import open_arrow
from pipelines.minilm import minilm_folder
from pipelines.model_store import models_for, save_model
from pipelines.retriever import Retriever
from pipelines.static import StaticEncoder
from pipelines.tuned_encoder import open_tuned, save_tuned
from pipelines.tuned_heads import save_heads
from pipelines.versions import TUNED_FILE, VersionError, open_version
from tests.core.toy_models import model_of
from tests.pipelines.logs import config_of, files_of, rows, run, write_jsonl

ABOUT = {"data": "d" * 64, "licence": "none", "seed": 3, "settings": {}}
RECIPE = "learned-flat:tuned"
STATIC = StaticEncoder()
USERS = ("ana", "bo", "chen")


def random_heads(seed):
    one, rng = first_heads(256, 0.5), np.random.default_rng(seed)
    drawn = (array + 0.1 * rng.standard_normal(array.shape, np.float32) for array in one.as_dict().values())
    return Heads(*drawn)


@pytest.fixture
def heads(tmp_path):
    return save_heads(tmp_path / "heads", random_heads(1), ABOUT, STATIC.identity.as_dict())


@pytest.fixture
def log(tmp_path):
    return write_jsonl(tmp_path / "a.jsonl", rows(USERS))


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    """MiniLM, the last layer of which was moved a little."""
    base = minilm_folder()
    weights = base.weights()
    name = "encoder.layer.5.output.dense.weight"
    weights[name] = weights[name] * np.float32(1.3)
    return save_tuned(tmp_path_factory.mktemp("tuned") / "encoder", weights, ABOUT, base)


def config_with(root, tuned, *logs, **sections):
    encoder = {"name": "static", "tuned": str(tuned), "cache_dir": str(root.parent / "cache")}
    return config_of(root, *logs, encoder=encoder, **sections)


def asked(config, done=None, **models):
    """A retriever of what was built, of the current version of its store if nothing was."""
    version = open_version(done.store, done.built.version)
    encoder = open_encoder(config.encoder)
    trained = models or {RECIPE: model_of(RECIPES[RECIPE])}
    return Retriever(version, encoder, models=trained, tuned=tuned_vectors(config.encoder, encoder.identity))


def indexes_of(retriever):
    return {name: retriever.namespace(name) for name in retriever.namespaces()}


def test_heads_make_vectors_of_those_that_there_are(tmp_path, heads, log):
    config = config_with(tmp_path / "store", heads, log, buckets=1)
    done = run(config)
    retriever = asked(config, done)
    query = retriever.analyse("Who has a red bicycle?", RECIPES[RECIPE])
    own = random_heads(1)
    for index in indexes_of(retriever).values():
        vectors = np.stack([index.turn_vector(row) for row in range(len(index))])
        expected = own.documents(vectors, index.session) @ own.query(query.vector)
        np.testing.assert_allclose(index.tuned_cosines(query.tuned), expected, atol=1e-5)
    assert done.built.report.outcomes["encode_tuned"] == {"ok": 36}
    found = retriever.search("acme/ana", "Who has a red bicycle?", RECIPE, k=3, explain=True)
    assert all("dense/tuned" in hit.legs for hit in found.hits)
    manifest = retriever.version.manifest["tuned_encoder"]
    assert (manifest["kind"], manifest["dimension"], manifest["base"]) == ("heads", 256, STATIC.identity.as_dict())


def test_a_tuned_encoder_reads_turns_with_their_context(tmp_path, encoder_folder, log):
    config = config_with(tmp_path / "store", encoder_folder, log)
    retriever = asked(config, run(config))
    tuned = open_tuned(encoder_folder, tmp_path / "cache")
    query = retriever.analyse("Who has a red bicycle?", RECIPES[RECIPE])
    assert np.array_equal(query.tuned, encode_queries(tuned, [query.text])[0])
    for index in indexes_of(retriever).values():
        expected = encode_texts(tuned, context_texts(index.nodes)) @ query.tuned
        np.testing.assert_allclose(index.tuned_cosines(query.tuned), expected, atol=1e-5)
    assert retriever.version.manifest["tuned_encoder"]["weights_sha256"] == tuned.identity.weights_sha256


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_both_engines_give_equal_files(tmp_path, encoder_folder, heads, log):
    for kind, folder in (("encoder", encoder_folder), ("heads", heads)):
        for engine in ("local", "ray"):
            done = run(config_with(tmp_path / f"{kind}-{engine}", folder, log, run={"engine": engine}))
            assert done.engine.name == engine
        assert files_of(tmp_path / f"{kind}-local") == files_of(tmp_path / f"{kind}-ray")


def test_a_changed_log_gives_what_a_full_build_gives(tmp_path, heads, log):
    more = write_jsonl(tmp_path / "b.jsonl", rows(("bo",), 13)[12:] + rows(("zoe",), 4))
    run(config_with(tmp_path / "grown", heads, log, buckets=1))
    grown = run(config_with(tmp_path / "grown", heads, log, more, buckets=1))
    whole = run(config_with(tmp_path / "whole", heads, log, more, buckets=1))
    assert grown.built.version == whole.built.version
    vectors = [{path.name: path.read_bytes() for path in files_of_vectors(done)} for done in (grown, whole)]
    assert vectors[0] == vectors[1]


def files_of_vectors(done):
    """The files of vectors of every bucket."""
    for about in open_version(done.store, done.built.version).manifest["buckets"].values():
        yield from (done.store.root / about["folder"]).glob("*.faiss")


def test_other_heads_make_a_new_version_and_nothing_else(tmp_path, heads, log):
    before = run(config_with(tmp_path / "store", heads, log))
    save_heads(heads, random_heads(2), ABOUT, STATIC.identity.as_dict())
    config = config_with(tmp_path / "store", heads, log)
    after = run(config)
    assert after.built.version != before.built.version
    made = {stage for stage, told in after.built.report.as_dict().items() if told["made"]}
    assert made == {"encode_tuned", "index"}
    with pytest.raises(
        VersionError, match=r"tuned vectors of version \w+ were made by others \(weights_sha256: version has "
    ):
        asked(config, before)
    asked(config, after)


def test_without_tuned_vectors_all_else_is_as_with_them(tmp_path, heads, log):
    with_them = run(config_with(tmp_path / "store", heads, log))
    config = config_of(tmp_path / "store", log)
    without = run(config)
    assert {stage for stage, told in without.built.report.as_dict().items() if told["made"]} == {"index"}
    names = {path.name for path in files_of_vectors(with_them)}
    assert TUNED_FILE in names
    assert {path.name for path in files_of_vectors(without)} == names - {TUNED_FILE}
    nodes = [
        [open_arrow(path.with_name("nodes.arrow")) for path in files_of_vectors(done)] for done in (with_them, without)
    ]
    assert nodes[0][0].equals(nodes[1][0])
    with pytest.raises(VersionError, match="has no tuned vectors, which recipe 'learned-flat:tuned' reads"):
        asked(config_with(tmp_path / "store", heads), without).search("acme/ana", "bicycle", RECIPE)
    asking_without = asked(config, with_them)
    with pytest.raises(VersionError, match=r"name the folder that version \w+ was built with as encoder\.tuned"):
        asking_without.search("acme/ana", "bicycle", RECIPE)
    assert asking_without.search("acme/ana", "the red bicycle").hits


def test_a_damaged_file_of_tuned_vectors_is_found(tmp_path, heads, log):
    config = config_with(tmp_path / "store", heads, log, buckets=1)
    done = run(config)
    [path] = [path for path in files_of_vectors(done) if path.name == TUNED_FILE]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(VersionError, match=rf"{TUNED_FILE} has sha256"):
        asked(config, done).namespace("acme/ana")


def test_a_model_that_was_trained_on_other_tuned_vectors_is_refused(tmp_path, heads, log):
    done = run(config_with(tmp_path / "store", heads, log))
    version = open_version(done.store, done.built.version)
    about = {"encoder": STATIC.identity.as_dict(), "tuned_encoder": version.tuned_encoder}
    save_model(tmp_path / "models", RECIPE, model_of(RECIPES[RECIPE]), about)
    assert models_for(str(tmp_path / "models"), version).keys() == {RECIPE}
    other = run(config_of(tmp_path / "store", log))
    with pytest.raises(TrainedModelError, match=r"'learned-flat:tuned' .* was trained on other tuned vectors"):
        models_for(str(tmp_path / "models"), open_version(other.store, other.built.version))


def test_what_is_no_folder_of_anything_tuned_ends_a_build_before_it_begins(tmp_path, heads, log):
    with pytest.raises(EncoderError, match="holds nothing that was tuned"):
        run(config_with(tmp_path / "store", tmp_path, log))
    other = {**STATIC.identity.as_dict(), "weights_sha256": "0" * 64}
    save_heads(heads, random_heads(1), ABOUT, other)
    with pytest.raises(EncoderError, match="was tuned on another encoder"):
        run(config_with(tmp_path / "store", heads, log))
    assert not (tmp_path / "store").exists()
