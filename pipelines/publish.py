"""Publishing: write a version's manifest, then move the pointer to it unless another version has a better claim."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgmem_core import __version__
from hgmem_core.config import Config
from hgmem_core.encoding import EncoderIdentity
from hgmem_core.index import INDEX_REVISION
from hgmem_core.recipes import DEFAULT_RECIPE, RECIPES
from hgmem_core.schemas import SCHEMA_VERSION
from hgmem_core.skill_index import SKILL_INDEX_REVISION
from hgmem_core.skill_recipes import SKILL_RECIPES
from hgmem_core.tokens import TOKENS_REVISION
from pipelines.engine import Indexes
from pipelines.files import read_sealed, seal
from pipelines.store import Output, Store
from pipelines.versions import RELATION_LAYOUTS, Pointer, Version, manifest_path, pointers, version_id


@dataclass(frozen=True, slots=True)
class Published:
    """A version that exists, and what became of the pointer.

    Attributes:
        version: The version's id.
        number: The number of the current pointer.
        moved: Whether that number was made for this version.
        kept: Why another version stays the current one; None if this one is it.
    """

    version: str
    number: int
    moved: bool
    kept: str | None = None


def publish(
    store: Store,
    indexes: Indexes,
    config: Config,
    encoder: EncoderIdentity,
    outcomes: Mapping[str, Mapping[str, int]],
    imports: int,
    tuned: Mapping[str, Any] | None = None,
) -> Published:
    """Make a version of the buckets' indexes, and the current one unless a newer or a chosen one is in place.

    Args:
        store: Where.
        indexes: Of each bucket.
        config: How it was built.
        encoder: What made its vectors.
        outcomes: What became of the rows of each stage.
        imports: The number of the last import that went into the outputs.
        tuned: What made its tuned vectors, if it has any; see `pipelines.tuned_vectors.Tuned`.
    """
    turns, skills = (
        {bucket: own[stage] for bucket, own in sorted(indexes.items()) if stage in own}
        for stage in ("index", "index_skills")
    )
    manifest: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "software_version": __version__,
        "index_revision": INDEX_REVISION,
        "tokens_revision": TOKENS_REVISION,
        "encoder": encoder.as_dict(),
        "tuned_encoder": tuned,
        "index": config.index.model_dump(),
        "propagation": config.propagate.weight,
        "relations": RELATION_LAYOUTS,
        "recipes": sorted(RECIPES),
        "default_recipe": DEFAULT_RECIPE,
        "store_buckets": store.buckets,
        **{
            name: sum(output.manifest[name] for output in turns.values())
            for name in ("namespaces", "turns", "episodes", "facts", "topics")
        },
        "outcomes": outcomes,
        "buckets": _listed(store, turns),
    }
    if skills:
        manifest["skills"] = _skills(store, skills)
    return _advance(store, _write(store, manifest), imports)


def publish_skills(
    version: Version,
    skills: Mapping[int, Output],
    evolved: Mapping[str, Any],
    outcomes: Mapping[str, Mapping[str, int]],
) -> Published:
    """Make a version that differs from the current one in its skills alone, and the current one.

    Args:
        version: The current one. Where somebody chose it, the new one is as good as chosen.
        skills: The skill index of each bucket that has one.
        evolved: What the manifest is to say of how they were made.
        outcomes: What became of the rows of each stage since.
    """
    store = version.store
    manifest = {name: value for name, value in version.manifest.items() if name not in ("version", "checksum")}
    manifest["outcomes"] = {**manifest["outcomes"], **outcomes}
    manifest["skills"] = {**_skills(store, skills), "evolved": evolved}
    new = _write(store, manifest)
    while True:
        number, current = pointers(store)[-1]
        if current.version == new:
            return Published(new, number, moved=False)
        if current.version != version.id:
            kept = (
                f"version {new} was not made the current one: it was evolved from {version.id}, and {current.version} "
                "took that one's place meanwhile; run this again to evolve that"
            )
            return Published(new, number, moved=False, kept=kept)
        if store.claim("current", number + 1, current.model_copy(update={"version": new}).model_dump()):
            return Published(new, number + 1, moved=True)


def _skills(store: Store, skills: Mapping[int, Output]) -> dict[str, Any]:
    return {
        "index_revision": SKILL_INDEX_REVISION,
        "recipes": sorted(SKILL_RECIPES),
        **{
            name: sum(output.manifest[name] for output in skills.values())
            for name in ("namespaces", "trajectories", "skills", "subtasks")
        },
        "buckets": _listed(store, skills),
    }


def _write(store: Store, manifest: Mapping[str, Any]) -> str:
    """Write the manifest of a version and return its id."""
    version = version_id(manifest)
    _write_manifest(store, manifest_path(store, version), {**manifest, "version": version})
    return version


def _listed(store: Store, outputs: Mapping[int, Output]) -> dict[str, Any]:
    """Return where the index of each bucket is, its files, and what IVF indexes of large levels it has."""
    return {
        str(bucket): {
            "folder": output.folder.relative_to(store.root).as_posix(),
            **{name: output.manifest[name] for name in ("files", "large") if name in output.manifest},
        }
        for bucket, output in outputs.items()
    }


def _advance(store: Store, version: str, imports: int) -> Published:
    """Move the pointer, unless it moved on meanwhile: the next number is free only if nothing was decided since."""
    while True:
        history = pointers(store)
        number, current = history[-1] if history else (0, None)
        if current is not None and current.version == version:
            return Published(version, number, moved=False)
        kept = _why_kept([pointer for _, pointer in history], version, imports)
        if kept:
            return Published(version, number, moved=False, kept=kept)
        if store.claim("current", number + 1, Pointer(version=version, imports=imports).model_dump()):
            return Published(version, number + 1, moved=True)


def _why_kept(history: list[Pointer], version: str, imports: int) -> str | None:
    newest = max((pointer.imports for pointer in history), default=0)
    if imports < newest:
        return (
            f"version {version} was not made the current one: another, published meanwhile, covers {newest} imports, "
            f"this one {imports}; run the rebuild again to build from all of them"
        )
    if history and history[-1].rollback and version in {pointer.version for pointer in history}:
        return (
            f"the store was rolled back to version {history[-1].version}, which stays the current one: version "
            f"{version} was current before, and nothing is new since"
        )
    return None


def _write_manifest(store: Store, path: Path, manifest: Mapping[str, Any]) -> None:
    try:
        store.write_json(path, seal(manifest))
    except FileExistsError:
        if not _lists(path, manifest):
            store.write_json(path, seal(manifest), replace=True)


def _lists(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Say whether an earlier manifest of the same version is intact and lists the files that are there now."""
    found = read_sealed(path)
    if found is None or found.get("version") != path.parent.name:
        return False
    return all(found.get(name) == manifest.get(name) for name in ("buckets", "skills"))
