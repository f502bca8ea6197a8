"""Retention: which versions a store keeps, and the removal of the others with all that only they were made of.

The next pointer says first which versions go, beside the current one, which stays: nobody can roll back to one of them
from then on, and whoever did before has taken the number. Removed are then their manifests, then outputs that no
version left, and no import, is made of. So whatever moment it ends in, the current version is there, and no version is
left with an output gone that was not damaged before; the next pruning goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.files import StoreError
from pipelines.job_log import JobLog, LeaseTaken, VersionsPruned, open_store_log
from pipelines.lease import hold_lease
from pipelines.progress import Progress
from pipelines.store import Store
from pipelines.version_history import Reach, stored_manifest
from pipelines.versions import Pointer, claim_pointer, manifest_path, pointers, removed_versions


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
        pruned = prune_held(store, keep, lease.check)
        log.write(VersionsPruned(len(pruned.versions), pruned.outputs, pruned.bytes))
        return pruned


def prune_held(store: Store, keep: int, check: Callable[[], None] = lambda: None, dry_run: bool = False) -> Pruned:
    """Remove the versions beyond the newest `keep`, and every output that none of those left was made of.

    Which version is newer goes by when each first was the current one. The current one stays, and so does what is newer
    than it: whoever rolled back may want to go forward again. A version that never was current goes, for nothing asks
    for it. Outputs of a build that was stopped go, too; answers of a language model stay.

    Args:
        store: Held by the caller, unless it is a dry run.
        keep: At least 1.
        check: Called before each removal: of the lease, for a process that stood still may have lost it to one that
            builds of what is to be removed.
        dry_run: Whether to remove nothing, and say what would be.

    Raises:
        StoreError: No version is current, or a manifest is damaged that tells what a version left is made of; then
            nothing is removed.
    """
    while True:
        history = pointers(store)
        kept, gone = _decided(store, [pointer for _, pointer in history], keep)
        reach = Reach(store)
        manifests = [_told(store, reach, version) for version in kept]
        if dry_run or _claimed(store, history, gone):
            break
    freed = 0
    for path in (manifest_path(store, version) for version in gone):
        store.fetch(path)
        freed += path.stat().st_size if path.exists() else 0
        if not dry_run:
            check()
            store.remove(path.parent)
    unneeded = list(reach.beyond(manifests, set()))
    for folder in unneeded:
        freed += reach.bytes(folder)
        if not dry_run:
            check()
            store.remove(folder)
    return Pruned(tuple(gone), tuple(kept), len(unneeded), freed)


def retain(store: Store, keep: int, check: Callable[[], None], log: JobLog, progress: Progress) -> Pruned | None:
    """Prune a store at the end of a job that published a version, which is there whatever comes of this.

    Args:
        store: Held by the caller.
        keep: See `prune_held`; 0 keeps all.
        check: See there.
        log: Told what was removed.
        progress: Told why nothing was.

    Returns:
        None where nothing was to be removed, or nothing could be.
    """
    if not keep:
        return None
    try:
        pruned = prune_held(store, keep, check)
    except (StoreError, OSError) as error:
        progress.note(f"no version was removed: {error}")
        return None
    log.write(VersionsPruned(len(pruned.versions), pruned.outputs, pruned.bytes))
    return pruned


def _decided(store: Store, history: Sequence[Pointer], keep: int) -> tuple[list[str], list[str]]:
    """Return the versions that stay and those that go, the one that was current first at the start.

    Raises:
        StoreError: No version is current.
    """
    there, removed = set(store.version_ids()), removed_versions(history)
    order = [version for version in dict.fromkeys(pointer.version for pointer in history) if version in there]
    newest_first = [version for version in reversed(order) if version not in removed]
    if not history or history[-1].version not in newest_first:
        raise StoreError(f"{store} has no current version to keep: rebuild it, or roll back to one that it has")
    left = newest_first[: max(keep, 1 + newest_first.index(history[-1].version))]
    gone = sorted(
        there.difference(left), key=lambda version: (order.index(version) if version in order else -1, version)
    )
    return left[::-1], gone


def _claimed(store: Store, history: Sequence[tuple[int, Pointer]], gone: Sequence[str]) -> bool:
    """Say by the next pointer that versions are to be removed; return False if somebody else took its number."""
    _, current = history[-1]
    if removed_versions(pointer for _, pointer in history).issuperset(gone):
        return True  # a pruning that was cut short said so
    return claim_pointer(store, history, current.model_copy(update={"removes": tuple(gone)})) is not None


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
