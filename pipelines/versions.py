"""Versions: a manifest that names the outputs a version is made of, the pointer to the current one, and opening."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgmem_core import __version__
from hgmem_core.config import Config, IndexConfig
from hgmem_core.dense import open_faiss
from hgmem_core.encoding import EncoderIdentity
from hgmem_core.ids import bucket_of, digest_of_parts
from hgmem_core.index import INDEX_REVISION
from hgmem_core.namespace_index import BucketFiles, IndexReader
from hgmem_core.recipes import DEFAULT_RECIPE, RECIPES
from hgmem_core.schemas import SCHEMA_VERSION
from hgmem_core.tokens import TOKENS_REVISION
from pipelines.store import Output, Store, StoreError, create_json, file_sha256, open_arrow, read_json

_TABLES = ("namespaces.arrow", "nodes.arrow", "graph_nodes.arrow", "postings.arrow")
_VECTORS = ("turn.faiss", "graph.faiss", "graph_propagated.faiss")
INDEX_FILES = (*_TABLES, *_VECTORS)


class VersionError(StoreError):
    """A version that must not be served: damaged, made by other software, or asked with another encoder."""


def publish(
    store: Store,
    buckets: Mapping[int, Output],
    config: Config,
    encoder: EncoderIdentity,
    outcomes: Mapping[str, Mapping[str, int]],
) -> tuple[str, int, bool]:
    """Make the buckets' index outputs the current version.

    Returns:
        The version's id, its number in `current/`, and whether the pointer moved.
    """
    identities = [f"{bucket}:{output.identity}" for bucket, output in sorted(buckets.items())]
    encoder_text = json.dumps(encoder.as_dict(), sort_keys=True)
    version = digest_of_parts([str(SCHEMA_VERSION), encoder_text, config.index.model_dump_json(), *identities])[:16]
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "software_version": __version__,
        "index_revision": INDEX_REVISION,
        "tokens_revision": TOKENS_REVISION,
        "version": version,
        "encoder": encoder.as_dict(),
        "index": config.index.model_dump(),
        "propagation": config.propagate.weight,
        "recipes": sorted(RECIPES),
        "default_recipe": DEFAULT_RECIPE,
        "store_buckets": store.buckets,
        **{
            name: sum(output.manifest[name] for output in buckets.values())
            for name in ("namespaces", "turns", "episodes", "facts", "topics")
        },
        "outcomes": outcomes,
        "buckets": {
            str(bucket): {
                "folder": output.folder.relative_to(store.root).as_posix(),
                "files": output.manifest["files"],
            }
            for bucket, output in sorted(buckets.items())
        },
    }
    path = _manifest_path(store, version)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        create_json(path, manifest)
    except FileExistsError:
        pass  # the same version was published before; its files are the same
    current = current_version(store)
    if current is not None and current[1] == version:
        return version, current[0], False
    return version, point_to(store, version), True


def _manifest_path(store: Store, version: str) -> Path:
    return store.root / "versions" / version / "manifest.json"


def current_version(store: Store) -> tuple[int, str] | None:
    """Return the pointer's number and the version it names, or None before the first publish."""
    numbered = store.numbered("current")
    return (numbered[-1][0], read_json(numbered[-1][1])["version"]) if numbered else None


def point_to(store: Store, version: str) -> int:
    """Make an existing version the current one and return the pointer's new number; this is rollback, too.

    Raises:
        VersionError: The store has no such version.
    """
    if not _manifest_path(store, version).exists():
        known = sorted(path.parent.name for path in (store.root / "versions").glob("*/manifest.json"))
        raise VersionError(f"{store.root} has no version {version!r}; it has {', '.join(known) or 'none'}")
    return store.append_numbered("current", {"version": version})


@dataclass(frozen=True, slots=True)
class Version:
    """An opened version. Its manifest is read; a bucket's files are checked when the bucket is first used."""

    store: Store
    manifest: Mapping[str, Any]

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

    def bucket_of(self, namespace: str) -> int:
        """Return the bucket that would hold `namespace`."""
        return bucket_of(namespace, self.manifest["store_buckets"])

    def open_bucket(self, bucket: int) -> IndexReader | None:
        """Check a bucket's files against the manifest and map them into memory; None if the version has none of it.

        Raises:
            VersionError: A file is missing, truncated or altered.
        """
        about = self.manifest["buckets"].get(str(bucket))
        if about is None:
            return None
        folder = self.store.root / about["folder"]
        for name, listed in about["files"].items():
            if name in INDEX_FILES:
                _check_file(folder / name, listed, self.id)
        namespaces, nodes, graph_nodes, postings = (open_arrow(folder / name) for name in _TABLES)
        turn, graph, propagated = (open_faiss(str(folder / name)) for name in _VECTORS)
        propagation = float(self.manifest["propagation"])
        files = BucketFiles(namespaces, nodes, graph_nodes, postings, turn, graph, propagated, propagation)
        return IndexReader(files)

    def verify(self) -> Iterator[str]:
        """Check every file of the version; yield each one's path after it passed.

        Raises:
            VersionError: At the first file that is missing, truncated or altered.
        """
        for about in self.manifest["buckets"].values():
            for name, listed in about["files"].items():
                _check_file(self.store.root / about["folder"] / name, listed, self.id)
                yield f"{about['folder']}/{name}"


def _check_file(path: Path, listed: Mapping[str, Any], version: str) -> None:
    mend = f"version {version} is not served; roll back to another version or rebuild"
    try:
        size = path.stat().st_size
    except OSError as error:
        raise VersionError(f"{path} is missing or unreadable ({error}): {mend}") from error
    if size != listed["bytes"]:
        raise VersionError(f"{path} has {size} bytes, the manifest says {listed['bytes']}: {mend}")
    found = file_sha256(path)
    if found != listed["sha256"]:
        raise VersionError(f"{path} has sha256 {found}, the manifest says {listed['sha256']}: {mend}")


def open_version(store: Store, version: str | None = None) -> Version:
    """Open a version by id, or the current one.

    Raises:
        VersionError: There is no such version, or it has other tables than this software reads.
    """
    if version is None:
        current = current_version(store)
        if current is None:
            raise VersionError(f"{store.root} has no published version yet; rebuild it first")
        version = current[1]
    try:
        manifest = read_json(_manifest_path(store, version))
    except FileNotFoundError as error:
        raise VersionError(f"{store.root} has no version {version!r}") from error
    software = {"schema_version": SCHEMA_VERSION, "index_revision": INDEX_REVISION, "tokens_revision": TOKENS_REVISION}
    other = {name: manifest.get(name) for name, ours in software.items() if manifest.get(name) != ours}
    if other:
        raise VersionError(f"version {version} has {other}, this software reads {software}: rebuild the store")
    return Version(store, manifest)


def check_encoder(version: Version, encoder: EncoderIdentity) -> None:
    """Refuse an encoder other than the one that made the version's vectors.

    Raises:
        VersionError: Names each differing property with both values.
    """
    built = version.manifest["encoder"]
    asked = encoder.as_dict()
    if built != asked:
        differing = [
            f"{name}: version has {built.get(name)!r}, encoder has {asked.get(name)!r}"
            for name in sorted({*built, *asked})
            if built.get(name) != asked.get(name)
        ]
        raise VersionError(
            f"version {version.id} was built with another encoder ({'; '.join(differing)}): "
            f"query it with encoder.name={built.get('name')!r}, or rebuild"
        )
