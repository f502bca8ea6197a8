"""The versions of a store: when each was the current one, what is in it, and what it takes on disk."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.files import StoreError
from pipelines.imports import read_imports
from pipelines.store import Store
from pipelines.versions import (
    VersionError,
    manifest_path,
    open_version,
    pointers,
    read_manifest,
    removed_versions,
)

COUNTED = ("namespaces", "turns", "episodes", "facts", "topics")
"""What a manifest counts."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version that a store has.

    Attributes:
        version: Its id.
        numbers: Of the pointers that named it, rising; empty if it never was the current one.
        is_current: Whether it is.
        published_at: When it first was, as far as that was said.
        counts: Of its namespaces, turns, episodes, facts, topics and skills.
        bytes: What it takes on disk: its indexes, and all that they were made from.
        shared_bytes: Of those, what other versions of the store are made of, too.
        fault: Why it is not served; None if it is.
    """

    version: str
    numbers: tuple[int, ...]
    is_current: bool
    published_at: datetime | None
    counts: Mapping[str, int]
    bytes: int
    shared_bytes: int
    fault: str | None = None


_CUT_SHORT = "its removal was cut short: the next `prune` ends it"


class _Found(NamedTuple):
    bytes: int
    made_from: tuple[Path, ...]


class Reach:
    """Which outputs versions are made of; looks at the manifest of each output once, and at no other file."""

    def __init__(self, store: Store) -> None:
        """Begin without a look."""
        self._store = store
        self._found: dict[Path, _Found | None] = {}

    def of(self, manifest: Mapping[str, Any]) -> Set[Path]:
        """Return the folders of a version's indexes and of what those were made from; some may be gone."""
        indexes = {self._store.root / about["folder"] for about in index_entries(manifest)}
        found = (self._look(folder) for folder in indexes)
        return indexes.union(*(one.made_from for one in found if one is not None))

    def unreadable(self, manifest: Mapping[str, Any]) -> Path | None:
        """Return the first index of a version that does not say what it was made from; None if all do."""
        folders = sorted(self._store.root / about["folder"] for about in index_entries(manifest))
        return next((folder for folder in folders if self._look(folder) is None), None)

    def beyond(self, manifests: Iterable[Mapping[str, Any]], kept: Set[Path]) -> Iterator[Path]:
        """Yield the outputs that no import and none of some versions is made of, apart from those that are kept."""
        imports = (one.folder for one in read_imports(self._store))
        needed = {*kept, *imports}.union(*map(self.of, manifests))
        return (folder for folder in self._store.output_folders() if folder not in needed)

    def bytes(self, folder: Path) -> int:
        """Return what an output takes with its manifest; 0 if it has none."""
        found = self._look(folder)
        return 0 if found is None else found.bytes

    def _look(self, folder: Path) -> _Found | None:
        if folder not in self._found:
            self._found[folder] = self._read(folder)
        return self._found[folder]

    def _read(self, folder: Path) -> _Found | None:
        output = self._store.find(folder)
        if output is None:
            return None
        try:
            manifest_bytes = (folder / "manifest.json").stat().st_size
        except FileNotFoundError:  # somebody removed it since
            return None
        files = sum(about["bytes"] for about in output.manifest["files"].values())
        return _Found(files + manifest_bytes, tuple(output.made_from))


def index_entries(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a version's manifest says of each index: of turns, then of skills, bucket by bucket."""
    skills = manifest.get("skills", {}).get("buckets", {})
    return [*manifest["buckets"].values(), *skills.values()]


def history(store: Store) -> list[VersionRecord]:
    """Return every version of a store, the one that was current first at the end; those that never were, at the start.

    A version that is damaged, or needs other software, is among them and says so.

    Raises:
        StoreError: A pointer is damaged.
    """
    every = pointers(store)
    named: dict[str, list[int]] = {}
    times: dict[str, datetime] = {}
    for number, pointer in every:
        if pointer.removes:
            continue  # it names the version before it once more
        named.setdefault(pointer.version, []).append(number)
        if pointer.published_at is not None:
            times.setdefault(pointer.version, pointer.published_at)
    removed = removed_versions(pointer for _, pointer in every)
    current = max(named, key=lambda version: named[version][-1], default=None)
    reach = Reach(store)
    folders: dict[str, Set[Path]] = {}
    counts: dict[str, Mapping[str, int]] = {}
    for version in store.version_ids():
        manifest = read_manifest(store, version)
        folders[version] = set() if manifest is None else reach.of(manifest)
        counts[version] = {} if manifest is None else counts_of(manifest)
    uses = Counter(folder for own in folders.values() for folder in own)
    return [
        VersionRecord(
            version=version,
            numbers=tuple(named.get(version, ())),
            is_current=version == current,
            published_at=times.get(version),
            counts=counts[version],
            bytes=sum(map(reach.bytes, folders[version])),
            shared_bytes=sum(reach.bytes(folder) for folder in folders[version] if uses[folder] > 1),
            fault=_CUT_SHORT if version in removed else _fault(store, version),
        )
        for version in sorted(folders, key=lambda version: (named.get(version, [0])[0], version))
    ]


def counts_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return how much of what a version holds."""
    return {**{name: manifest[name] for name in COUNTED}, "skills": manifest.get("skills", {}).get("skills", 0)}


def _fault(store: Store, version: str) -> str | None:
    try:
        open_version(store, version)
    except VersionError as error:
        return str(error)
    return None


def stored_manifest(store: Store, version: str) -> Mapping[str, Any]:
    """Return the manifest of a version, whether or not this software can serve it.

    Raises:
        StoreError: It is damaged, or of software that writes other manifests.
    """
    path, manifest = manifest_path(store, version), read_manifest(store, version)
    if manifest is None or manifest.get("version") != version:
        raise StoreError(
            f"{path} is damaged or was written by other software, so nobody can tell which outputs the version needs: "
            "use the software that made it, restore it from a backup, run the rebuild that made it again, or give the "
            f"version up and remove {path.parent}"
        )
    return manifest
