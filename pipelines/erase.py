"""Physical erasure of what tombstones cover, from imports, outputs, earlier versions and kept calls of a model.

`prepare_erasure` writes imports anew without what is covered, beside the old ones; a build of the touched buckets, or
of all, makes indexes of them; `finish_erasure` lets everything point to those and removes the rest. Until then nothing
is lost, and after a kill at any moment the same job goes on. See `pipelines.erasure_record` for what is left behind.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder, EncoderIdentity
from hgmem_core.ids import bucket_of
from pipelines.build import index_buckets
from pipelines.calls import erase_calls
from pipelines.chat_model import ChatModel
from pipelines.engine import Indexes
from pipelines.erased_imports import ErasedImports, drop_old_files, prepare_imports, switch_imports
from pipelines.erasure_record import Record, erased_until, forget_unfinished
from pipelines.erasure_scan import scan_buckets
from pipelines.files import file_sha256
from pipelines.imports import imported_parts
from pipelines.object_logs import remove_copies
from pipelines.object_storage import is_url
from pipelines.pieces import Pieces
from pipelines.publish import publish_buckets, redirect, settings_of
from pipelines.run import Run
from pipelines.runner import Runner
from pipelines.skill_stages import SkillBuild
from pipelines.stages import BucketBuild
from pipelines.store import LINEAGE_FILE, DamagedOutput, Store, StoreError
from pipelines.told_outcomes import erase_outcomes
from pipelines.tombstone_files import number_of_tombstones, read_tombstones, tombstone_rows
from pipelines.tuned_vectors import Tuned
from pipelines.version_history import Reach
from pipelines.versions import DECIDING, Version, current_version, manifest_path, open_version, read_manifest


@dataclass(frozen=True, slots=True)
class Erasing:
    """An erasure that is prepared.

    Attributes:
        until: The number of the last tombstone file that it is for.
        rows: TOMBSTONE, what was written since the erasure before.
        namespaces: Of which something is to go.
        buckets: Those that hold them.
        imports: As they will be.
    """

    until: int
    rows: pa.Table
    namespaces: Set[str]
    buckets: Collection[int]
    imports: ErasedImports


@dataclass(frozen=True, slots=True)
class Erased:
    """What was erased.

    Attributes:
        certificate: The file that says so.
        namespaces: How many were touched.
        turns: Messages and runs of agents that are gone, counted by id.
        version: The current version; None if nothing was ever built.
        removed: Files that are gone.
        dropped: Earlier versions that lack the touched buckets now.
        scan: What was looked at for what is gone.
    """

    certificate: Path
    namespaces: int
    turns: int
    version: str | None
    removed: int
    dropped: list[str]
    scan: Mapping[str, int]


def prepare_erasure(run: Run) -> Erasing | None:
    """Write imports anew for what is not erased yet; None if there is nothing.

    Raises:
        StoreError: A tombstone, a certificate or an import is damaged, or there is no room.
    """
    store = run.store
    done, until = erased_until(store), number_of_tombstones(store)
    if done >= until:
        forget_unfinished(store)
        return None
    tombstones = read_tombstones(store, until)
    rows = tombstone_rows(store, until, done)
    namespaces = tombstones.namespaces & set(rows.column("namespace").to_pylist())
    if not namespaces:
        return None  # all of it was restored
    try:
        imports = prepare_imports(store, tombstones, until, namespaces)
    except OSError as error:
        raise StoreError(
            f"{store}: imports could not be written anew ({error}), and nothing was erased: make room and see "
            "that the store can be written, then run this again"
        ) from error
    return Erasing(until, rows, namespaces, sorted({bucket_of(name, store.buckets) for name in namespaces}), imports)


def erase_now(run: Run, config: Config, encoder: Encoder, tuned: Tuned | None, chat: ChatModel | None) -> Erased | None:
    """Erase what tombstones cover and build the touched buckets alone; None if everything is erased already.

    Args:
        run: The job.
        config: As that of the current version.
        encoder: See `pipelines.build.build`.
        tuned: See there.
        chat: See there.

    Raises:
        StoreError: The current version was built with other settings; an import is damaged; there is no room; something
            of what was erased is found.
        ClusterError: Ray cannot do the work.
        ModelError: The language model cannot be used.
    """
    erasing = prepare_erasure(run)
    if erasing is None:
        return None
    store = run.store
    if current_version(store) is None:
        return finish_erasure(run, erasing, {})
    version = open_version(store)
    _check_settings(version, config, encoder.identity, tuned, erasing.buckets)
    left = [one for one in erasing.imports.every if one.entry.rows]
    parts = imported_parts(store, left, read_tombstones(store)) if left else {}
    touched = {bucket: parts[bucket] for bucket in erasing.buckets if bucket in parts}
    try:
        indexes = index_buckets(run, config, encoder, tuned, chat, touched)[0] if touched else {}
        run.lease.check()
        published = publish_buckets(version, erasing.buckets, indexes, run.began_at)
    except OSError as error:
        raise StoreError(
            f"{store}: the touched buckets could not be built ({error}), and nothing was erased: make room and "
            "see that the store can be written, then run this again"
        ) from error
    if published.kept:
        run.progress.note(published.kept)
    return finish_erasure(run, erasing, indexes)


def finish_erasure(run: Run, erasing: Erasing, indexes: Indexes) -> Erased:
    """Let everything point to what was built of the imports as they will be, and remove the rest.

    Args:
        run: The job.
        erasing: What was prepared.
        indexes: Of the touched buckets; others do not matter. Of one of which nothing is left there is none.

    Raises:
        StoreError: The lease was lost, a file could not be removed, or something of what was erased is found.
    """
    try:
        return _finish(run, erasing, {bucket: indexes[bucket] for bucket in erasing.buckets if bucket in indexes})
    except OSError as error:
        raise StoreError(
            f"{run.store}: erasing was cut short ({error}); what it began stands. See that the store can be "
            "written, then run this again, which goes on"
        ) from error


def _finish(run: Run, erasing: Erasing, indexes: Indexes) -> Erased:
    store, began = run.store, datetime.now(UTC)
    run.lease.check()
    record = Record.of(store)
    current = current_version(store)
    manifests, dropped = _redirect_versions(store, erasing.namespaces, indexes, record)
    kept = {folder for own in indexes.values() for index in own.values() for folder in (index.folder, *index.made_from)}
    gone = [one for one in Reach(store).beyond(manifests, kept) if _holds(store, one, erasing.namespaces)]
    for folder in gone:
        record.removes_output(store, folder)
    for one in erasing.imports.changed:
        record.removes(store, one.now.folder, one.old)
        record.writes(store, one.now.folder, one.new)
    record.keep(store)
    run.lease.check()
    before: dict[Path, str] = {}
    for path in (path for one in erasing.imports.changed for path in (one.now.path, one.manifest_path)):
        store.fetch(path)
        before[path] = file_sha256(path)
    switch_imports(store, erasing.imports)
    for folder in gone:
        store.remove(folder)
    for bucket in erasing.buckets:
        for path, rest in erase_calls(store, bucket, erasing.namespaces).items():
            record.removed[path.relative_to(store.root).as_posix()] = path.stem.rpartition("-")[2]
            if rest is not None:
                record.written[rest.relative_to(store.root).as_posix()] = rest.stem.rpartition("-")[2]
    tombstones = read_tombstones(store, erasing.until)
    told = erase_outcomes(
        store,
        lambda row: tombstones.forgets(row.namespace, row.shown_at) or row.node_id in erasing.imports.erased.ids,
    )
    for path, sha256 in told.items():
        record.removed[path.relative_to(store.root).as_posix()] = sha256
    Pieces(store).clear()
    store.clear()
    record.keep(store)
    scan = scan_buckets(store, erasing.imports, erasing.buckets, kept, run.progress)
    if not record.scan or scan.ids >= record.scan["ids"]:  # else an earlier attempt knew more of what to look for
        record.scan = scan.as_dict()
    record.keep(store)
    run.lease.check()
    drop_old_files(store, erasing.imports)
    for log in {log for one in erasing.imports.every for log in one.entry.logs if is_url(log)}:
        remove_copies(log)
    for path, sha256 in before.items():
        record.replaces(store, path, sha256)
    about = {
        "tombstones_until": erasing.until,
        "tombstones": json.loads(json.dumps(erasing.rows.to_pylist(), default=str)),
        "buckets": list(erasing.buckets),
        "began_at": began.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "version": None if current is None else current[1],
    }
    certificate = record.certify(store, about)
    return Erased(
        certificate=certificate,
        namespaces=len(erasing.namespaces),
        turns=record.scan["ids"],
        version=about["version"],
        removed=len(record.removed),
        dropped=dropped,
        scan=record.scan,
    )


def _check_settings(
    version: Version, config: Config, encoder: EncoderIdentity, tuned: Tuned | None, buckets: Collection[int]
) -> None:
    """Refuse a configuration that would build a bucket otherwise than the version was built.

    Raises:
        StoreError: Names what differs.
    """
    store = version.store
    wanted = json.loads(json.dumps(settings_of(store, config, encoder, None if tuned is None else tuned.identity)))
    differing = [name for name in DECIDING if version.manifest.get(name) != wanted[name]]
    if not differing:
        runner = Runner(store, 0, {}, lambda _: None, "")
        digests = BucketBuild(runner, config, encoder, tuned).digests() | SkillBuild(runner, config, encoder).digests()
        made = dict(_stages(version, buckets))
        differing = [stage for stage, digest in digests.items() if made.get(stage, digest) != digest]
    if differing:
        raise StoreError(
            f"this configuration builds otherwise than version {version.id} was built ({', '.join(differing)}), so "
            "that its buckets cannot be built again one by one: run a rebuild, which erases, too, or take the "
            "configuration that the version was built with. Nothing was erased"
        )


def _stages(version: Version, buckets: Collection[int]) -> Iterator[tuple[str, str]]:
    """Yield the stages that made the indexes of some buckets, each with what tells it from one with other settings."""
    store = version.store
    for section in (version.manifest, version.manifest.get("skills", {"buckets": {}})):
        for bucket in buckets:
            about = section["buckets"].get(str(bucket))
            index = None if about is None else store.find(store.root / about["folder"])
            for output in filter(None, map(store.find, index.made_from if index else ())):
                yield output.manifest["stage"], output.manifest["stage_digest"]
            if index is not None:
                yield index.manifest["stage"], index.manifest["stage_digest"]


def _redirect_versions(
    store: Store, namespaces: Set[str], indexes: Indexes, record: Record
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Let versions that hold a namespace have the new index if they were built with equal settings, else none.

    Returns:
        The manifests of versions from now on, without those of which nothing is served; the ids of those that have
        none of the new indexes.
    """
    current = current_version(store)
    before = {version: read_manifest(store, version) for version in store.version_ids()}
    newest = None if current is None else before.get(current[1])
    after, dropped = [], []
    for version, manifest in before.items():
        if manifest is None:
            continue
        path = manifest_path(store, version)
        is_equal = newest is not None and _settings(manifest) == _settings(newest)
        sha256 = file_sha256(path)
        buckets = _holding(store, manifest, namespaces)
        after.append(redirect(store, version, manifest, buckets, indexes if is_equal else {}))
        if after[-1] != manifest:
            record.replaces(store, path, sha256)
            record.versions[version] = {"buckets": buckets, "has": "the new indexes" if is_equal else "none"}
        if version in record.versions and record.versions[version]["has"] == "none":
            dropped.append(version)
    return after, dropped


def _settings(manifest: Mapping[str, Any]) -> list[Any]:
    skills = manifest.get("skills", {}).get("index_revision")
    return [skills, *(manifest.get(name) for name in DECIDING if name != "default_recipe")]


def _holding(store: Store, manifest: Mapping[str, Any], namespaces: Set[str]) -> list[int]:
    """Return the buckets of a version that hold some namespaces, or of which that cannot be told."""
    buckets = sorted({bucket_of(name, manifest["store_buckets"]) for name in namespaces})
    sections = [section["buckets"] for section in (manifest, manifest.get("skills")) if section]
    return [
        bucket
        for bucket in buckets
        if any(
            str(bucket) in section and _holds(store, store.root / section[str(bucket)]["folder"], namespaces)
            for section in sections
        )
    ]


def _holds(store: Store, folder: Path, namespaces: Set[str]) -> bool:
    """Say whether an output was made of some namespaces, or nobody can tell."""
    output = store.find(folder)
    try:
        return output is None or not namespaces.isdisjoint(output.table(LINEAGE_FILE).column("namespace").to_pylist())
    except DamagedOutput:
        return True
