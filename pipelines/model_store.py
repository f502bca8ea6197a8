"""Trained models on disk: safetensors beside a sealed manifest that says what they were trained on.

A folder of models holds one folder a model, named after its recipe with `-` for `:`, all of one encoder. The arrays are
written first and the manifest last, so that a folder without one holds no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from hgmem_core import __version__
from hgmem_core.abstention import ABSTENTION
from hgmem_core.recipes import RECIPES, model_name, needs_tuned
from hgmem_core.trained import Trained, TrainedModelError, features_of, trained_of
from hgmem_core.turn_features import TURN_FEATURES_REVISION
from pipelines.files import create_json, damage_of, read_sealed, seal, write_file
from pipelines.versions import Version, differing_properties

MODEL_SCHEMA_VERSION = 1
"""Raised when a manifest of a model changes; models of another version are trained again."""

_SOFTWARE: Mapping[str, Any] = MappingProxyType(
    {"schema_version": MODEL_SCHEMA_VERSION, "turn_features_revision": TURN_FEATURES_REVISION}
)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of a folder.

    Attributes:
        name: Of its recipe.
        trained: Ready for a search.
        manifest: What it was trained on and with: `encoder`, `features`, `data`, `split`, `seed`, `metrics` among it.
    """

    name: str
    trained: Trained
    manifest: Mapping[str, Any]


def model_folder(folder: Path, name: str) -> Path:
    """Return where a folder of models has the model of a recipe, or would."""
    return folder / name.replace(":", "-")


def check_place(folder: Path, name: str, version: Version) -> None:
    """Look whether a model would be one of a folder's others, before it is trained.

    Args:
        folder: Of models; need not exist.
        name: Of its recipe; a model of that name would be replaced, whatever it is.
        version: On which it would be trained.

    Raises:
        TrainedModelError: The folder has a model that is damaged, of other software or other vectors: all models of a
            folder are opened together.
    """
    for path in _manifests(folder):
        if path.parent != model_folder(folder, name):
            try:
                _open_model(path, version.manifest["encoder"], version.tuned_encoder)
            except TrainedModelError as error:
                raise TrainedModelError(f"{error}; or remove it, or name another folder than {folder}") from error


def save_model(folder: Path, name: str, trained: Trained, about: Mapping[str, Any]) -> Path:
    """Write a model into a folder of models, in the place of one of that name, and return its own folder.

    Args:
        folder: Of models.
        name: Of the recipe.
        trained: What training gave.
        about: `encoder` (its identity), `data`, `split`, `seed`, `metrics`, and what else should be known of it.
    """
    own = model_folder(folder, name)
    own.mkdir(parents=True, exist_ok=True)
    content = save({key: array.copy() for key, array in sorted(trained.as_dict().items())})
    draft = own / ".unfinished"
    try:
        listed = write_file(draft, content)
        arrays = f"{listed['sha256'][:16]}.safetensors"
        draft.replace(own / arrays)
    finally:
        draft.unlink(missing_ok=True)  # a full disk is not left fuller
    manifest = {
        **_SOFTWARE,
        **about,
        "recipe": name,
        "features": list(features_of(trained)),
        "arrays": {"file": arrays, **listed},
        "software_version": __version__,
    }
    create_json(own / "manifest.json", seal(manifest), replace=True)
    for old in own.glob("*.safetensors"):
        if old.name != arrays:
            old.unlink()
    return own


def models_for(folder: str, version: Version) -> dict[str, Trained]:
    """Return the models of a folder for the recipes of a version; none if no folder is named.

    Raises:
        TrainedModelError: See `open_models`.
    """
    return {name: model.trained for name, model in stored_for(folder, version).items()}


def stored_for(folder: str, version: Version) -> dict[str, StoredModel]:
    """Return the same with what their manifests say of them.

    Raises:
        TrainedModelError: See `open_models`.
    """
    return open_models(Path(folder), version.manifest["encoder"], version.tuned_encoder) if folder else {}


def open_models(
    folder: Path, encoder: Mapping[str, Any], tuned: Mapping[str, Any] | None = None
) -> dict[str, StoredModel]:
    """Open every model of a folder, by the name of its recipe.

    Args:
        folder: Of models.
        encoder: Identity of the encoder whose vectors will be searched.
        tuned: Identity of what made the tuned vectors that will be searched, if there are any.

    Raises:
        TrainedModelError: The folder holds none, or one that is damaged, of other software or other vectors.
    """
    manifests = _manifests(folder)
    if not manifests:
        inside = f": it is itself a model, name {folder.parent}" if (folder / "manifest.json").is_file() else ""
        raise TrainedModelError(f"{folder} holds no model{inside or '; train one into it, with python -m jobs.train'}")
    models = (_open_model(path, encoder, tuned) for path in manifests)
    return {model.name: model for model in models}


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/manifest.json"))


def _open_model(path: Path, encoder: Mapping[str, Any], tuned: Mapping[str, Any] | None) -> StoredModel:
    manifest = read_sealed(path)
    if manifest is None:
        raise TrainedModelError(f"{path} is damaged; train the model again")
    other = {name: manifest.get(name) for name, ours in _SOFTWARE.items() if manifest.get(name) != ours}
    if other:
        raise TrainedModelError(f"{path} has {other}, this software reads {dict(_SOFTWARE)}; train the model again")
    missing = [name for name in ("encoder", "recipe", "features", "arrays") if name not in manifest]
    if missing or not isinstance(manifest["recipe"], str):
        raise TrainedModelError(f"{path} does not say {', '.join(missing) or 'which recipe'}; train the model again")
    known = manifest["encoder"]
    differing = [
        f"{name}: model has {known.get(name)!r}, encoder has {encoder.get(name)!r}"
        for name in differing_properties(known, encoder)
    ]
    if differing:
        raise TrainedModelError(f"{path} was trained on another encoder ({'; '.join(differing)}); train it on this one")
    name = manifest["recipe"]
    recipe = RECIPES.get(name)
    if name != ABSTENTION and (recipe is None or model_name(recipe) != name):
        raise TrainedModelError(f"{path} is of {name!r}, which is no recipe that is trained")
    if recipe is not None and needs_tuned(recipe) and manifest.get("tuned_encoder") != tuned:
        raise TrainedModelError(
            f"the model of {name!r} in {path.parent} was trained on other tuned vectors "
            f"({manifest.get('tuned_encoder')}) than there are ({tuned}); train it on these"
        )
    own = model_folder(path.parents[1], name)
    if path.parent != own:
        raise TrainedModelError(f"{path} is of {name!r}, whose folder is {own}: rename it, or remove it")
    arrays = path.with_name(manifest["arrays"]["file"])
    damage = damage_of(arrays, manifest["arrays"])
    if damage:
        raise TrainedModelError(f"{damage}; train the model again")
    try:
        content = load(arrays.read_bytes())
    except SafetensorError as error:
        raise TrainedModelError(f"{arrays} is not readable ({error}); train the model again") from error
    return StoredModel(name, trained_of(recipe, content, tuple(manifest["features"])), manifest)
