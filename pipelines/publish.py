"""Publishing: write a version's manifest, then move the pointer to it unless another version has a better claim."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
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
from pipelines.files import read_sealed
from pipelines.store import Output, Store
from pipelines.versions import (
    PUBLISHED_WITH,
    RELATION_LAYOUTS,
    Pointer,
    Version,
    claim_pointer,
    manifest_path,
    pointers,
    removed_versions,
    version_id,
)

_COUNTED = ("namespaces", "turns", "episodes", "facts", "topics")
_COUNTED_SKILLS = ("namespaces", "trajectories", "skills", "subtasks")
"""What a manifest says of its buckets together."""
_OF_ONE_VERSION = ("version", "checksum", PUBLISHED_WITH)
"""What a manifest says of its version alone, and not of another one that is made of it."""


Gate = Callable[[str], str | None]
"""Given the id of a version that is about to become the current one, tells why it should not; None if it may."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version that exists, and what became of the pointer.

    Attributes:
        version: The version's id.
        number: The number of the current pointer.
        moved: Whether that number was made for this version.
        kept: Why another version stays the current one; None if this one is it.
        refused: Whether that is because a gate refused this one.
    """

    version: str
    number: int
    moved: bool
    kept: str | None = None
    refused: bool = False


def publish(
    store: Store,
    indexes: Indexes,
    config: Config,
    encoder: EncoderIdentity,
    outcomes: Mapping[str, Mapping[str, int]],
    imports: int,
    tuned: Mapping[str, Any] | None = None,
    published_at: datetime | None = None,
    gate: Gate | None = None,
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
        published_at: The time of the job, for the pointer.
        gate: Asked before the pointer moves; None lets every version pass.
    """
    turns, skills = (
        {bucket: own[stage] for bucket, own in sorted(indexes.items()) if stage in own}
        for stage in ("index", "index_skills")
    )
    manifest: dict[str, Any] = {
        **settings_of(store, config, encoder, tuned),
        "software_version": __version__,
        "recipes": sorted(RECIPES),
        **{name: sum(output.manifest[name] for output in turns.values()) for name in _COUNTED},
        "outcomes": outcomes,
        "buckets": _listed(store, turns),
    }
    if skills:
        manifest["skills"] = _skills(store, skills)
    pointer = Pointer(version=_write(store, manifest), imports=imports, published_at=published_at)
    return _advance(store, pointer, gate)


def settings_of(
    store: Store, config: Config, encoder: EncoderIdentity, tuned: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what decides the answers of a version beside its outputs, as its manifest has it; see `publish`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "index_revision": INDEX_REVISION,
        "tokens_revision": TOKENS_REVISION,
        "encoder": encoder.as_dict(),
        "tuned_encoder": tuned,
        "index": config.index.model_dump(),
        "propagation": config.propagate.weight,
        "relations": RELATION_LAYOUTS,
        "default_recipe": DEFAULT_RECIPE,
        "store_buckets": store.buckets,
    }


def publish_skills(
    version: Version,
    skills: Mapping[int, Output],
    evolved: Mapping[str, Any],
    outcomes: Mapping[str, Mapping[str, int]],
    published_at: datetime | None = None,
) -> Published:
    """Make a version that differs from the current one in its skills alone, and the current one.

    Args:
        version: The current one. Where somebody chose it, the new one is as good as chosen.
        skills: The skill index of each bucket that has one.
        evolved: What the manifest is to say of how they were made.
        outcomes: What became of the rows of each stage since.
        published_at: The time of the job, for the pointer.
    """
    store = version.store
    manifest = {name: value for name, value in version.manifest.items() if name not in _OF_ONE_VERSION}
    manifest["outcomes"] = {**manifest["outcomes"], **outcomes}
    manifest["skills"] = {**_skills(store, skills), "evolved": evolved}
    return _follow(version, _write(store, manifest), published_at, "; run this again to make one of that")


def publish_buckets(
    version: Version, buckets: Collection[int], indexes: Indexes, published_at: datetime | None = None
) -> Published:
    """Make a version that differs from the current one in some buckets alone, and the current one.

    Args:
        version: The current one. Where somebody chose it, the new one is as good as chosen.
        buckets: Those that were built again.
        indexes: Of each of them; a bucket of which nothing is left has none.
        published_at: The time of the job, for the pointer.
    """
    store = version.store
    manifest = {name: value for name, value in version.manifest.items() if name not in _OF_ONE_VERSION}
    manifest["skills"] = {name: value for name, value in _skills_of(manifest).items() if name != PUBLISHED_WITH}
    manifest = _with_buckets(store, manifest, buckets, indexes)
    if not manifest["skills"]["buckets"]:
        del manifest["skills"]
    return _follow(version, _write(store, manifest), published_at, ", which has nothing of what was erased either")


def redirect(
    store: Store, version: str, manifest: Mapping[str, Any], buckets: Collection[int], indexes: Indexes
) -> Mapping[str, Any]:
    """Let an earlier version have other indexes of some buckets, or none of them; it keeps its id.

    Args:
        store: Where.
        version: Its id.
        manifest: Its manifest, as it is.
        buckets: Those that change.
        indexes: What it has of each from now on.

    Returns:
        Its manifest from now on: the same if nothing of it changes.
    """
    changed = _with_buckets(store, manifest, buckets, indexes)
    for section, was in ((changed, manifest), (changed.get("skills"), manifest.get("skills"))):
        if section is not None and was is not None and section["buckets"] != was["buckets"]:
            gone = {bucket: about["folder"] for bucket, about in was["buckets"].items()
                    if section["buckets"].get(bucket) != about}  # fmt: skip
            section[PUBLISHED_WITH] = {**gone, **was.get(PUBLISHED_WITH, {})}
    if changed == manifest:
        return manifest
    store.write_json(manifest_path(store, version), changed, replace=True)
    return changed


def _skills_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    none = {"index_revision": SKILL_INDEX_REVISION, "recipes": sorted(SKILL_RECIPES), "buckets": {}}
    skills: Mapping[str, Any] = manifest.get("skills", {**none, **dict.fromkeys(_COUNTED_SKILLS, 0)})
    return skills


def _with_buckets(
    store: Store, manifest: Mapping[str, Any], buckets: Collection[int], indexes: Indexes
) -> dict[str, Any]:
    """Return a manifest with other indexes of some buckets, and the counts that go with them."""
    outcomes = {stage: Counter(counts) for stage, counts in manifest["outcomes"].items()}
    sections = []
    for stage, about, counted in (
        ("index", manifest, _COUNTED),
        ("index_skills", _skills_of(manifest), _COUNTED_SKILLS),
    ):
        section, own = dict(about), dict(about["buckets"])
        for bucket in buckets:
            old = own.pop(str(bucket), None)
            before = None if old is None else store.find(store.root / old["folder"])
            after = indexes.get(bucket, {}).get(stage)
            for output, sign in ((before, -1), (after, 1)):
                if output is not None:
                    section |= {name: section[name] + sign * output.manifest[name] for name in counted}
                    _count(store, output, sign, outcomes)
            if after is not None:
                own |= _listed(store, {bucket: after})
        sections.append({**section, "buckets": own})
    told, skills = sections
    told["outcomes"] = {stage: {name: many for name, many in sorted(counts.items()) if many}
                        for stage, counts in outcomes.items()}  # fmt: skip
    if skills["buckets"] or "skills" in manifest:
        told["skills"] = skills
    return told


def _count(store: Store, index: Output, sign: int, outcomes: dict[str, Counter[str]]) -> None:
    """Add what became of the rows of an index's stages to sums, or take it from them."""
    for output in (index, *filter(None, map(store.find, index.made_from))):
        own = outcomes.setdefault(output.manifest["stage"], Counter())
        for name, many in output.manifest["outcomes"].items():
            own[name] += sign * many


def _skills(store: Store, skills: Mapping[int, Output]) -> dict[str, Any]:
    return {
        "index_revision": SKILL_INDEX_REVISION,
        "recipes": sorted(SKILL_RECIPES),
        **{name: sum(output.manifest[name] for output in skills.values()) for name in _COUNTED_SKILLS},
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


def _follow(version: Version, new: str, published_at: datetime | None, then: str) -> Published:
    """Move the pointer from one version to another that was made of it, unless it moved on meanwhile.

    Args:
        version: The current one, as far as is known. Where somebody chose it, the new one is as good as chosen.
        new: The id of the other.
        published_at: The time of the job.
        then: What follows in the reason if a third one took its place.
    """
    while True:
        history = pointers(version.store)
        number, current = history[-1]
        if current.version == new:
            return Published(new, number, moved=False)
        if current.version != version.id:
            kept = (
                f"version {new} was not made the current one: it was made of {version.id}, and {current.version} took "
                f"that one's place meanwhile{then}"
            )
            return Published(new, number, moved=False, kept=kept)
        pointer = current.model_copy(update={"version": new, "published_at": published_at, "removes": ()})
        claimed = claim_pointer(version.store, history, pointer)
        if claimed is not None:
            return Published(new, claimed, moved=True)


def _advance(store: Store, pointer: Pointer, gate: Gate | None) -> Published:
    """Move the pointer, unless it moved on meanwhile: the next number is free only if nothing was decided since."""
    version = pointer.version
    while True:
        history = pointers(store)
        number, current = history[-1] if history else (0, None)
        if current is not None and current.version == version:
            return Published(version, number, moved=False)
        kept = _why_kept([one for _, one in history], version, pointer.imports)
        if kept:
            return Published(version, number, moved=False, kept=kept)
        refusal, gate = gate(version) if gate else None, None
        if refusal:
            kept = (
                f"version {version} was not made the current one, since it does not pass the gate: {refusal}. It is in "
                f"the store; python -m jobs.versions {store} rollback {version} makes it the current one all the same"
            )
            return Published(version, number, moved=False, kept=kept, refused=True)
        claimed = claim_pointer(store, history, pointer)
        if claimed is not None:
            return Published(version, claimed, moved=True)


def _why_kept(history: list[Pointer], version: str, imports: int) -> str | None:
    newest = max((pointer.imports for pointer in history), default=0)
    if imports < newest:
        return (
            f"version {version} was not made the current one: another, published meanwhile, covers {newest} imports, "
            f"this one {imports}; run the rebuild again to build from all of them"
        )
    known = {pointer.version for pointer in history} - removed_versions(history)
    if history and history[-1].rollback and version in known:
        return (
            f"the store was rolled back to version {history[-1].version}, which stays the current one: version "
            f"{version} was current before, and nothing is new since"
        )
    return None


def _write_manifest(store: Store, path: Path, manifest: Mapping[str, Any]) -> None:
    try:
        store.write_json(path, manifest)
    except FileExistsError:
        if not _lists(path, manifest):
            store.write_json(path, manifest, replace=True)


def _lists(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Say whether an earlier manifest of the same version is intact and lists the files that are there now."""
    found = read_sealed(path)
    if found is None or found.get("version") != path.parent.name:
        return False
    return all(found.get(name) == manifest.get(name) for name in ("buckets", "skills"))
