"""Versions: a manifest that names the outputs a version is made of, the pointer to the current one, and opening.

`pipelines.publish` writes the manifest and moves the pointer.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from hgmem_core.dense import open_faiss, open_ivf
from hgmem_core.encoding import EncoderIdentity
from hgmem_core.ids import bucket_of, digest_of_parts
from hgmem_core.index import INDEX_REVISION
from hgmem_core.model_config import PACKAGED_ENCODERS
from hgmem_core.namespace_index import BucketFiles, IndexReader
from hgmem_core.recipes import RecipeError, find_recipe
from hgmem_core.relations import LAYOUTS
from hgmem_core.schemas import SCHEMA_VERSION
from hgmem_core.sharded import Shards
from hgmem_core.skill_graph import SkillTables
from hgmem_core.skill_index import SKILL_INDEX_REVISION, SKILL_TABLES, SkillIndex
from hgmem_core.stage_config import IndexConfig
from hgmem_core.tokens import TOKENS_REVISION
from pipelines.files import StoreError, open_arrow, read_as, read_sealed
from pipelines.store import TOMBSTONES, VERSION_ID, Store
from pipelines.verified_files import VerifiedFiles

SKILL_VECTORS_FILE = "skill.faiss"
SKILL_INDEX_FILES = (*(f"{name}.arrow" for name in SKILL_TABLES), SKILL_VECTORS_FILE)

_TABLES = (
    "namespaces.arrow", "nodes.arrow", "graph_nodes.arrow", "postings.arrow", "turn_relations.arrow",
    "fact_relations.arrow",
)  # fmt: skip
_VECTORS = ("turn.faiss", "graph.faiss", "graph_propagated.faiss")
INDEX_FILES = (*_TABLES, *_VECTORS)
TUNED_FILE = "turn_tuned.faiss"
"""Beside them in a version that has tuned vectors."""

_VERIFYING_THREADS = 4
"""That read the files of a version: to hash is work for the processor, to fetch or to read from a disk is waiting."""

_NOT_SERVED = "version {} is not served; roll back to another version or rebuild"
DECIDING = (
    "schema_version", "index_revision", "tokens_revision", "encoder", "tuned_encoder", "index", "propagation",
    "relations", "default_recipe", "store_buckets",
)  # fmt: skip
RELATION_LAYOUTS = {graph: list(layout) for graph, layout in LAYOUTS.items()}
"""Of each event graph, as a manifest has it."""

PUBLISHED_WITH = "published_with"
"""In a manifest: the folders of those buckets of which something was erased after the version was published."""

_SOFTWARE: Mapping[str, Any] = MappingProxyType(
    {
        "schema_version": SCHEMA_VERSION,
        "index_revision": INDEX_REVISION,
        "tokens_revision": TOKENS_REVISION,
        "relations": RELATION_LAYOUTS,
    }
)
"""What a manifest must say for this software to read the version."""


class VersionError(StoreError):
    """A version that must not be served: damaged, made by other software, or asked with another encoder."""


class Pointer(BaseModel, frozen=True, strict=True):
    """The content of `current/000001.json`.

    Attributes:
        version: The version that it makes the current one.
        imports: The number of the last import that the version covers; 0 where that was not said.
        rollback: Whether somebody chose the version, and no build.
        published_at: The time of the job that wrote it, by its machine's clock; None where that was not said. Pointers
            are ordered by their numbers alone, for a clock may jump back.
        removes: Versions that whoever wrote it is about to remove: it names the version before it once more, and nobody
            points to one of those any more.
        tombstones: The number of the last tombstone file that there was: who reads those knows by it that one is lost.
    """

    version: Annotated[str, Field(pattern=f"^{VERSION_ID}$")]
    imports: int = 0
    rollback: bool = False
    published_at: datetime | None = None
    removes: tuple[Annotated[str, Field(pattern=f"^{VERSION_ID}$")], ...] = ()
    tombstones: int = 0

    def content(self) -> dict[str, Any]:
        """Return it as its file holds it."""
        unsaid = {name for name in ("removes", "tombstones") if not getattr(self, name)}
        return self.model_dump(mode="json", exclude_none=True, exclude=unsaid)


def version_id(manifest: Mapping[str, Any]) -> str:
    """Return the id of the version that a manifest describes: a hash of everything in it that decides answers.

    The digests of files are not among it, because they depend on the time of the import: two stores with the same logs
    and settings have versions of the same id. The identities of the outputs stand for their content.
    """
    deciding = {name: manifest.get(name) for name in DECIDING}
    told = [deciding, _folders(manifest)]
    skills = manifest.get("skills")
    if skills is not None:
        told += [skills.get("index_revision"), _folders(skills)]
    return digest_of_parts([json.dumps(told, sort_keys=True)])[:16]


def _folders(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return which output each bucket had when the version was published, whatever was erased since."""
    folders = {bucket: about["folder"] for bucket, about in manifest.get("buckets", {}).items()}
    return {**folders, **manifest.get(PUBLISHED_WITH, {})}


def manifest_path(store: Store, version: str) -> Path:
    """Return where the manifest of a version lies, or would."""
    return store.root / "versions" / version / "manifest.json"


class _Index(BaseModel):
    folder: str
    files: Mapping[str, Mapping[str, Any]]


class _Indexes(BaseModel):
    buckets: Mapping[str, _Index]


class _Manifest(_Indexes):
    """What whoever counts, prunes or erases has to read in a manifest, whatever software made the version."""

    skills: _Indexes | None = None
    store_buckets: int
    namespaces: int
    turns: int
    episodes: int
    facts: int
    topics: int


class _Served(_Manifest):
    """What whoever asks a version has to read in its manifest besides."""

    encoder: Mapping[str, Any]
    tuned_encoder: Mapping[str, Any] | None
    index: Mapping[str, Any]
    propagation: float
    default_recipe: str
    published_with: Mapping[str, str] = {}


def read_manifest(store: Store, version: str) -> dict[str, Any] | None:
    """Return the manifest of a version, whether or not this software can serve it.

    None if it is gone or damaged, or does not say where this software looks what the version is made of.
    """
    path = manifest_path(store, version)
    store.fetch(path)
    manifest = read_sealed(path)
    try:
        _Manifest.model_validate(manifest)
    except ValidationError:
        return None
    return manifest


def pointers(store: Store) -> list[tuple[int, Pointer]]:
    """Return every pointer that there was with its number, the current one last.

    Raises:
        StoreError: One of them holds something else.
    """
    return [(number, _pointer(path)) for number, path in store.numbered("current")]


def _pointer(path: Path) -> Pointer:
    return read_as(Pointer, path, "restore it from a backup, or remove it: the highest number that is left counts")


def removed_versions(history: Iterable[Pointer]) -> frozenset[str]:
    """Return the versions that were removed, or are to be, and that were not published again since.

    Args:
        history: All pointers, the current one last.
    """
    removed: set[str] = set()
    for pointer in history:
        removed.update(pointer.removes)
        removed.discard(pointer.version)
    return frozenset(removed)


def current_version(store: Store) -> tuple[int, str] | None:
    """Return the pointer's number and the version it names, or None before the first publish.

    Raises:
        StoreError: The pointer holds something else.
    """
    current = current_pointer(store)
    return None if current is None else (current[0], current[1].version)


def current_pointer(store: Store) -> tuple[int, Pointer] | None:
    """Return the pointer that counts, with its number; see `current_version`."""
    numbered = store.numbered("current")
    return (numbered[-1][0], _pointer(numbered[-1][1])) if numbered else None


def claim_pointer(store: Store, history: Sequence[tuple[int, Pointer]], pointer: Pointer) -> int | None:
    """Write the pointer that follows all others; it says which tombstone files there are.

    Args:
        store: Where.
        history: Those others, see `pointers`.
        pointer: What else it says.

    Returns:
        Its number; None if somebody else took that.
    """
    number, before = history[-1] if history else (0, pointer)
    known = max([before.tombstones, *(own for own, _ in store.numbered(TOMBSTONES))])
    content = pointer.model_copy(update={"tombstones": known}).content()
    return number + 1 if store.claim("current", number + 1, content) else None


def point_to(store: Store, version: str, published_at: datetime | None = None) -> int:
    """Make an existing version the current one and return the pointer's new number; this is rollback, too.

    It stays until a version is built that was never current: of new logs, or with another configuration. It does not
    wait for a job that works on the store.

    Args:
        store: The store.
        version: Its id.
        published_at: The time of the job.

    Raises:
        VersionError: The store has no such version, it cannot be opened, or it is being removed.
    """
    while True:
        # Who removes versions says so by the next number first: if that is ours, none removes this one any more.
        history = pointers(store)
        if version in removed_versions(pointer for _, pointer in history):
            raise VersionError(
                f"{store} has no version {version!r} any more: it was removed, or is about to be; `list` has the others"
            )
        open_version(store, version)
        chosen = Pointer(version=version, rollback=True, published_at=published_at)
        number = claim_pointer(store, history, chosen)
        if number is not None:
            return number


@dataclass(frozen=True, slots=True)
class Version:
    """An opened version. Its manifest is read; a bucket's files are checked when the bucket is first used."""

    store: Store
    manifest: Mapping[str, Any]
    verified: bool = False
    """Whether every file was just compared with the manifest, so that opening a bucket looks at their sizes alone."""

    @property
    def id(self) -> str:
        """The version's id."""
        return str(self.manifest["version"])

    @property
    def index(self) -> IndexConfig:
        """How its texts were indexed, which is how its queries are read."""
        return IndexConfig.model_validate(self.manifest["index"])

    @property
    def default_recipe(self) -> str:
        """The recipe that `default` stands for in this version."""
        return str(self.manifest["default_recipe"])

    @property
    def tuned_encoder(self) -> Mapping[str, Any] | None:
        """What made its tuned vectors, see `pipelines.tuned_vectors.Tuned`; None if it has none."""
        tuned: Mapping[str, Any] | None = self.manifest["tuned_encoder"]
        return tuned

    @property
    def store_buckets(self) -> int:
        """The number of buckets that it was made with; those of the store may have changed since."""
        return int(self.manifest["store_buckets"])

    def bucket_of(self, namespace: str) -> int:
        """Return the bucket that would hold `namespace`."""
        return bucket_of(namespace, self.store_buckets)

    def open_bucket(self, bucket: int) -> IndexReader | None:
        """Check a bucket's files against the manifest and map them into memory; None if the version has none of it.

        Raises:
            VersionError: A file is missing, truncated or altered.
        """
        about = self.manifest["buckets"].get(str(bucket))
        if about is None:
            return None
        folder = self.store.root / about["folder"]
        large = about.get("large", [])
        ivf_files = {name for one in large for name in one["files"]}
        for name, listed in about["files"].items():
            if name in INDEX_FILES or name == TUNED_FILE or name in ivf_files:
                _check_file(self.store, folder / name, listed, self.id, not self.verified)
        tables = {name.removesuffix(".arrow"): open_arrow(folder / name) for name in _TABLES}
        turn, graph, propagated = (open_faiss(str(folder / name)) for name in _VECTORS)
        tuned = None if self.tuned_encoder is None else open_faiss(str(folder / TUNED_FILE))
        files = BucketFiles(
            **tables,
            vectors=turn,
            graph_vectors=graph,
            propagated_vectors=propagated,
            propagation=float(self.manifest["propagation"]),
            tuned_vectors=tuned,
            shards=_open_shards(folder, large),
        )
        return IndexReader(files)

    @property
    def has_skills(self) -> bool:
        """Whether it was made of any runs of agents."""
        return "skills" in self.manifest

    def open_skills(self, bucket: int) -> SkillIndex | None:
        """Check a bucket's skill files against the manifest and map them into memory; None if there are none.

        Raises:
            VersionError: A file is missing, truncated or altered.
        """
        about = self.manifest["skills"]["buckets"].get(str(bucket)) if self.has_skills else None
        if about is None:
            return None
        folder = self.store.root / about["folder"]
        for name in SKILL_INDEX_FILES:
            _check_file(self.store, folder / name, about["files"].get(name), self.id, not self.verified)
        tables = SkillTables(**{name: open_arrow(folder / f"{name}.arrow") for name in SKILL_TABLES})
        return SkillIndex(tables, open_faiss(str(folder / SKILL_VECTORS_FILE)))

    def verify(self, verified: VerifiedFiles | None = None) -> Iterator[str]:
        """Check every file of the version; yield each one's path after it passed.

        Args:
            verified: Of files that it knows only the size is compared, and it is told of those that pass.

        Raises:
            VersionError: At the first file that is missing, truncated or altered.
        """
        skills = self.manifest["skills"]["buckets"] if self.has_skills else {}
        several = (*self.manifest["buckets"].values(), *skills.values())
        files = {f"{about['folder']}/{name}": listed for about in several for name, listed in about["files"].items()}

        def check(name: str) -> str:
            path, listed = self.store.root / name, files[name]
            compare = partial(_check_file, self.store, path, listed, self.id)
            if verified is None:
                compare()
            else:
                verified.check(path, listed, compare)
            return name

        with ThreadPoolExecutor(_VERIFYING_THREADS, thread_name_prefix="hgmem-verify") as pool:
            yield from pool.map(check, files)


def _open_shards(folder: Path, large: Iterable[Mapping[str, Any]]) -> dict[str, dict[tuple[int, int], Shards]]:
    """Map the IVF indexes of large levels; see `hgmem_core.namespace_index.BucketFiles`."""
    opened: dict[str, dict[tuple[int, int], Shards]] = {}
    for one in large:
        if one["files"]:
            rows = one["first_row"], one["first_row"] + one["rows"]
            shards = [open_ivf(str(folder / name)) for name in one["files"]]
            opened.setdefault(one["vectors"], {})[rows] = Shards(shards, one["probed"])
    return opened


def _check_file(
    store: Store, path: Path, listed: Mapping[str, Any] | None, version: str, contents: bool = True
) -> None:
    damage = store.damage_of(path, listed, contents)
    if damage:
        raise VersionError(f"{damage}: {_NOT_SERVED.format(version)}")


def open_version(store: Store, version: str | None = None) -> Version:
    """Open a version by id, or the current one.

    Raises:
        VersionError: There is no such version, its manifest is damaged, or it needs other software than this.
        StoreError: The pointer is damaged.
    """
    asked = "" if version is not None else f", which {store.root / 'current'} names as the current one"
    if version is None:
        current = current_version(store)
        if current is None:
            raise VersionError(f"{store} has no published version yet; rebuild it first")
        version = current[1]
    path = manifest_path(store, version)
    if re.fullmatch(VERSION_ID, version):
        store.fetch(path)
    if not re.fullmatch(VERSION_ID, version) or not path.is_file():
        known = ", ".join(store.version_ids()) or "none"
        raise VersionError(f"{store} has no version {version!r}{asked}; it has {known}")
    return Version(store, _checked_manifest(path, version))


def _checked_manifest(path: Path, version: str) -> Mapping[str, Any]:
    manifest = read_sealed(path)
    if manifest is None or manifest.get("version") != version:
        raise VersionError(f"{path} is damaged: {_NOT_SERVED.format(version)}")
    other = {name: manifest.get(name) for name, ours in _SOFTWARE.items() if manifest.get(name) != ours}
    if other:
        ours = {name: _SOFTWARE[name] for name in other}
        raise VersionError(f"version {version} has {other}, this software reads {ours}: rebuild the store")
    try:
        _Served.model_validate(manifest)
    except ValidationError as error:
        raise VersionError(f"{path} is damaged: {_NOT_SERVED.format(version)}") from error
    made = manifest.get("skills", {}).get("index_revision", SKILL_INDEX_REVISION)
    if made != SKILL_INDEX_REVISION:
        raise VersionError(
            f"version {version} has skills of index revision {made}, this software reads {SKILL_INDEX_REVISION}: "
            "rebuild the store"
        )
    if version_id(manifest) != version:
        raise VersionError(f"{path} is damaged: it describes another version; {_NOT_SERVED.format(version)}")
    try:
        IndexConfig.model_validate(manifest["index"])
        find_recipe("default", manifest["default_recipe"])
    except (ValidationError, RecipeError) as error:
        raise VersionError(
            f"version {version} has settings that this software does not know: rebuild the store ({error})"
        ) from error
    return manifest


_MAY_BE_UNKNOWN = ("weights_sha256", "pooling", "quantisation")
"""Of a model at a server: empty, and then equal to anything."""


def differing_properties(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of the properties in which the identities of two encoders differ."""
    return [
        name
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name) and not (name in _MAY_BE_UNKNOWN and "" in (one.get(name), other.get(name)))
    ]


def check_encoder(version: Version, encoder: EncoderIdentity) -> None:
    """Refuse an encoder other than the one that made the version's vectors; a model may run here or at a server.

    Raises:
        VersionError: Names each differing property with both values.
    """
    built = version.manifest["encoder"]
    asked = encoder.as_dict()
    differing = [
        f"{name}: version has {built.get(name)!r}, encoder has {asked.get(name)!r}"
        for name in differing_properties(built, asked)
    ]
    if differing:
        setting = "name" if built.get("name") in PACKAGED_ENCODERS else "model"
        raise VersionError(
            f"version {version.id} was built with another encoder ({'; '.join(differing)}): "
            f"query it with encoder.{setting}={built.get('name')!r}, or rebuild"
        )


def check_tuned(version: Version, tuned: Mapping[str, Any] | None) -> None:
    """Refuse another tuned encoder, or other heads, than those that made the version's tuned vectors, if it has any.

    Args:
        version: To be asked.
        tuned: The identity of those at hand, see `pipelines.tuned_vectors.Tuned`; None for none, which is in order as
            long as no recipe needs them.

    Raises:
        VersionError: Names each differing property with both values.
    """
    built = version.tuned_encoder
    if built is None or tuned is None:
        return
    differing = [
        f"{name}: version has {built.get(name)!r}, encoder.tuned has {tuned.get(name)!r}"
        for name in differing_properties(built, tuned)
    ]
    if differing:
        raise VersionError(
            f"the tuned vectors of version {version.id} were made by others ({'; '.join(differing)}): name the folder "
            "that it was built with as encoder.tuned, or rebuild"
        )
