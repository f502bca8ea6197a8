"""Models on disk: what is read is what was written, and what does not go with a version is refused by name."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hgmem_core.recipes import RECIPES
from hgmem_core.trained import TrainedModelError
from pipelines.files import file_sha256, seal
from pipelines.model_store import check_place, model_folder, models_for, open_models, save_model
from pipelines.store import Store
from pipelines.versions import Version
from tests.core.fixtures import HashEncoder
from tests.core.toy_models import model_of, random_weights

ENCODER = HashEncoder().identity.as_dict()
ABOUT = {"encoder": ENCODER, "data": {"data_sha256": "d" * 64}, "seed": 3, "metrics": {"after": {"recall@10": 81.5}}}
NAMES = ("hage", "hage:trainable-router", "learned-flat", "learned-flat:hypergraph")


@pytest.fixture
def models(tmp_path):
    for name in NAMES:
        save_model(tmp_path / "models", name, model_of(RECIPES[name]), ABOUT)
    return tmp_path / "models"


def rewrite(path, **changes):
    """Change a manifest as other software would have written it."""
    path.write_text(json.dumps(seal({**json.loads(path.read_text()), **changes})))


def version_of(encoder, tuned=None):
    return Version(Store(Path("store"), 1), {"encoder": encoder, "tuned_encoder": tuned})


def listed(arrays):
    return {"file": arrays.name, "bytes": arrays.stat().st_size, "sha256": file_sha256(arrays)}


def test_models_come_back_by_the_names_of_their_recipes(models):
    found = open_models(models, ENCODER)
    assert tuple(sorted(found)) == NAMES
    for name, stored in found.items():
        expected = model_of(RECIPES[name])
        assert type(stored.trained) is type(expected)
        arrays, wanted = stored.trained.as_dict(), expected.as_dict()
        assert arrays.keys() == wanted.keys()
        for key, array in wanted.items():
            assert arrays[key].dtype == array.dtype
            assert np.array_equal(arrays[key], array)
        assert stored.manifest["metrics"] == ABOUT["metrics"]
        assert stored.manifest["seed"] == 3
        assert stored.manifest["recipe"] == name
    assert found["learned-flat"].trained.features == model_of(RECIPES["learned-flat"]).features


def test_a_model_takes_the_place_of_the_one_before(models):
    before = random_weights(16)
    after = replace(before, first_bias=before.first_bias + 1)
    assert save_model(models, "hage", after, {**ABOUT, "seed": 4}) == models / "hage"
    assert len(list((models / "hage").glob("*.safetensors"))) == 1
    found = open_models(models, ENCODER)["hage"]
    assert np.array_equal(found.trained.first_bias, after.first_bias)
    assert found.manifest["seed"] == 4


def test_no_folder_means_no_models_and_an_empty_one_is_a_mistake(tmp_path):
    assert models_for("", None) == {}
    with pytest.raises(TrainedModelError, match=r"holds no model; train one into it, with python -m jobs.train"):
        open_models(tmp_path / "absent", ENCODER)
    (tmp_path / "hage").mkdir()
    (tmp_path / "hage" / "weights.safetensors").write_bytes(b"of a training that was cut off")
    with pytest.raises(TrainedModelError, match="holds no model"):
        open_models(tmp_path, ENCODER)


def test_the_folder_of_one_model_is_told_from_that_of_models(models):
    with pytest.raises(TrainedModelError, match=rf"hage holds no model: it is itself a model, name {models}$"):
        open_models(models / "hage", ENCODER)


@pytest.mark.parametrize("name", ["encoder", "recipe", "features", "arrays"])
def test_a_manifest_that_leaves_something_out_is_refused(models, name):
    path = models / "hage" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[name]
    path.write_text(json.dumps(seal(manifest)))
    with pytest.raises(TrainedModelError, match=f"does not say {name}; train the model again"):
        open_models(models, ENCODER)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("harm", [flip, cut, lambda path: path.unlink()])
def test_a_damaged_model_is_refused_by_name(models, harm):
    [arrays] = (models / "hage").glob("*.safetensors")
    harm(arrays)
    with pytest.raises(TrainedModelError, match=rf"{arrays.name} (has|is missing).*train the model again"):
        open_models(models, ENCODER)


@pytest.mark.parametrize("harm", [flip, cut])
def test_a_damaged_manifest_is_refused_by_name(models, harm):
    harm(models / "learned-flat" / "manifest.json")
    with pytest.raises(TrainedModelError, match=r"learned-flat/manifest.json is damaged; train the model again"):
        open_models(models, ENCODER)


def test_a_model_of_another_encoder_is_refused_with_what_differs(models):
    message = r"hage/manifest.json was trained on another encoder \(dimension: model has 16, encoder has 32\)"
    with pytest.raises(TrainedModelError, match=message):
        open_models(models, {**ENCODER, "dimension": 32})
    # A server that runs the same model need not know these.
    assert len(open_models(models, {**ENCODER, "weights_sha256": "", "quantisation": ""})) == 4


@pytest.mark.parametrize("field", ["schema_version", "turn_features_revision"])
def test_a_model_of_other_software_is_refused(models, field):
    manifest = models / "hage" / "manifest.json"
    rewrite(manifest, **{field: 99})
    with pytest.raises(TrainedModelError, match=rf"manifest.json has {{'{field}': 99}}, this software reads"):
        open_models(models, ENCODER)


def test_a_model_under_another_name_is_refused(models):
    (models / "hage").rename(models / "mine")
    with pytest.raises(TrainedModelError, match=r"mine/manifest.json is of 'hage', whose folder is .*models/hage"):
        open_models(models, ENCODER)
    rewrite(models / "mine" / "manifest.json", recipe="hybrid")
    with pytest.raises(TrainedModelError, match="is of 'hybrid', which is no recipe that is trained"):
        open_models(models, ENCODER)


def test_arrays_that_are_no_model_of_the_recipe_are_refused(models):
    [arrays] = (models / "hage").glob("*.safetensors")
    for content, message in (
        ({**load_file(arrays), "third_bias": np.full(1, np.nan, np.float32)}, "hage: third_bias holds NaN"),
        ({"features": np.zeros(3)}, "hage: these are no weights of HAGE"),
    ):
        save_file(content, arrays)
        rewrite(models / "hage" / "manifest.json", arrays=listed(arrays))
        with pytest.raises(TrainedModelError, match=message):
            open_models(models, ENCODER)
    rewrite(models / "hage" / "manifest.json", features=["temporal", "warmth"])
    with pytest.raises(TrainedModelError, match=r"hage: the model reads relations of .*warmth"):
        open_models(models, ENCODER)
    arrays.write_bytes(b"nothing of the kind")
    rewrite(models / "hage" / "manifest.json", arrays=listed(arrays))
    with pytest.raises(TrainedModelError, match="is not readable"):
        open_models(models, ENCODER)


def test_a_folder_takes_no_model_that_it_could_not_be_opened_with(models):
    here, other = version_of(ENCODER), version_of({**ENCODER, "name": "minilm"})
    for name in NAMES:
        check_place(models, name, here)
        with pytest.raises(TrainedModelError, match=r"another encoder .*or name another folder than .*models"):
            check_place(models, name, other)
    check_place(models.parent / "new", "hage", other)
    for name in NAMES[1:]:
        shutil.rmtree(model_folder(models, name))
    check_place(models, "hage", other)  # nothing else is there, and it is replaced


def test_models_that_read_tuned_vectors_go_with_these_alone(models):
    tuned, others = ({"kind": "heads", "weights_sha256": 64 * digit} for digit in "ab")
    name = "learned-flat:tuned"
    save_model(models, name, model_of(RECIPES["learned-flat"]), {**ABOUT, "tuned_encoder": tuned})
    assert {*NAMES, name} == models_for(str(models), version_of(ENCODER, tuned)).keys()
    for version in (version_of(ENCODER, others), version_of(ENCODER)):
        with pytest.raises(TrainedModelError, match=r"models/learned-flat-tuned was trained on other tuned"):
            models_for(str(models), version)
        with pytest.raises(TrainedModelError, match=r"train it on these; or remove it, or name another folder"):
            check_place(models, "hage", version)
