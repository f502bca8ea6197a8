"""Retention: which versions a store keeps, and the removal of the others with all that only they were made of.

Removed are first the manifests of versions, then outputs that no version left, and no import, is made of. So whatever
moment it ends in, no version is left with an output gone that was not damaged before; the next pruning goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.files import StoreError
from pipelines.job_log import LeaseTaken, VersionsPruned, open_store_log
from pipelines.lease import hold_lease
from pipelines.store import Store
from pipelines.version_history import Reach, stored_manifest
from pipelines.versions import current_version, manifest_path, pointers, read_manifest


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or would be.

    Attributes:
        versions: Ids, the one that was current first at the start; those that never were, before it.
        kept: Ids of the versions that are left, likewise.
        outputs: How many.
        bytes: Of those outputs and manifests, as much as the disk gets back once nobody reads them any more.
    """

    versions: tuple[str, ...]
    kept: tuple[str, ...]
    outputs: int
    bytes: int


def prune(store: Store, keep: int, began_at: datetime) -> Pruned:
    """Hold a store and prune it; see `prune_held`."""
    with hold_lease(store, "prune", began_at) as lease, open_store_log("prune", store, began_at) as log:
        log.write(LeaseTaken(lease.holder.host, lease.holder.pid, lease.taken_from is not None))
        store.sweep()
        pruned = prune_held(store, keep)
        log.write(VersionsPruned(len(pruned.versions), pruned.outputs, pruned.bytes))
        return pruned


def prune_held(store: Store, keep: int, dry_run: bool = False) -> Pruned:
    """Remove the versions beyond the newest `keep`, and every output that none of those left was made of.

    Which version is newer goes by when each first was the current one. The current one stays, and so does what is newer
    than it: whoever rolled back may want to go forward again. A version that never was current goes, for nothing asks
    for it. Outputs of a build that was stopped go, too; answers of a language model stay.

    Args:
        store: Held by the caller, unless it is a dry run.
        keep: At least 1.
        dry_run: Whether to remove nothing, and say what would be.

    Raises:
        StoreError: No version is current, or a manifest is damaged that tells what a version left is made of; then
            nothing is removed.
    """
    order = _by_age(store)
    current = current_version(store)
    if current is None or current[1] not in order:
        raise StoreError(f"{store} has no current version to keep: rebuild it, or roll back to one that it has")
    newest_first = order[::-1]
    left = newest_first[: max(keep, 1 + newest_first.index(current[1]))]
    gone = [version for version in store.version_ids() if version not in left]
    gone.sort(key=lambda version: order.index(version) if version in order else -1)
    reach = Reach(store)
    manifests = [_told(store, reach, version) for version in left]
    freed, back = 0, []
    for version in gone:
        path = manifest_path(store, version)
        manifest = read_manifest(store, version)
        size = path.stat().st_size
        if not dry_run:
            store.remove(path.parent)
            if manifest is not None and _is_current(store, version):  # somebody rolled back to it in this moment
                store.write_json(path, manifest)
                manifests.append(manifest)
                back.append(version)
                continue
        freed += size
    unneeded = list(reach.beyond(manifests, set()))
    for folder in unneeded:
        freed += reach.bytes(folder)
        if not dry_run:
            store.remove(folder)
    kept = tuple(version for version in order if version in left or version in back)
    return Pruned(tuple(version for version in gone if version not in back), kept, len(unneeded), freed)


def _by_age(store: Store) -> list[str]:
    """Return the versions that were current and are there, in the order in which each first was."""
    there = set(store.version_ids())
    return list(dict.fromkeys(pointer.version for _, pointer in pointers(store) if pointer.version in there))


def _is_current(store: Store, version: str) -> bool:
    current = current_version(store)
    return current is not None and current[1] == version


def _told(store: Store, reach: Reach, version: str) -> Mapping[str, Any]:
    """Return the manifest of a version whose indexes all say what they were made from."""
    manifest = stored_manifest(store, version)
    damaged = reach.unreadable(manifest)
    if damaged is not None:
        raise StoreError(
            f"{damaged / 'manifest.json'} is missing or damaged, so nobody can tell what version {version} was made "
            "from: run the rebuild again, which makes it again, or keep fewer versions"
        )
    return manifest
