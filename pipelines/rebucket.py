"""The number of buckets of a store, changed: what was imported is cut anew, and answers of a language model move.

First imports are written as a store of the new number has them, where nobody looks; then each entry of an import says
where both are; then `store.json` is replaced, which is the one moment of change; then the old is removed. A job that
ends before that moment leaves the old store, one that ends after it the new one; the same job again does the rest.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgmem_core.ids import bucket_of
from hgmem_core.lineage import select
from hgmem_core.schemas import CALL, SCHEMA_VERSION, conform
from hgmem_core.stage_config import ImportConfig
from hgmem_core.tombstones import NO_TOMBSTONES
from pipelines.calls import calls_folder, is_sound, keep_calls
from pipelines.forgotten_rows import Keeping
from pipelines.import_stage import Shuffle, fresh_folder, import_identity
from pipelines.imports import PARTS_WHILE_ERASING, Import, imported_parts, parts_json, read_imports
from pipelines.job_log import LeaseTaken, open_store_log
from pipelines.lease import Lease, hold_lease
from pipelines.preflight import check_writable
from pipelines.progress import Progress
from pipelines.spill import RowKind, Spill
from pipelines.store import DamagedOutput, Output, Store, StoreError

_ROW_COLUMNS = {"messages": "row", "runs": "sequence"}


@dataclass(frozen=True, slots=True)
class Rebucketed:
    """A store with another number of buckets.

    Attributes:
        before: Buckets that it had.
        after: Buckets that it has.
        imports: How many imports it has.
        rows: Messages and runs in them.
    """

    before: int
    after: int
    imports: int
    rows: int


def rebucket(store: Store, buckets: int, began_at: datetime, progress: Progress) -> Rebucketed:
    """Change the number of buckets of a store; the next rebuild makes a version of them.

    Versions made before stay, and are served.

    Args:
        store: The store.
        buckets: How many it is to have; with as many as it has, what an earlier job left undone is done.
        began_at: The time.
        progress: For whoever watches.

    Raises:
        StoreError: The store cannot be used or written, another job holds it, or an import is damaged; the store is as
            it was then.
    """
    with (
        hold_lease(store, "rebucket", began_at) as lease,
        open_store_log("rebucket", store, began_at) as log,
    ):
        log.write(LeaseTaken(lease.holder.host, lease.holder.pid, lease.taken_from is not None))
        store = store.reopened()
        store.sweep()
        check_writable(store)
        before = store.buckets
        _settle(store)
        if buckets != before:
            store = _changed(store, buckets, lease, progress)
            _settle(store)
        imports = read_imports(store)
    return Rebucketed(before, buckets, len(imports), sum(one.entry.rows for one in imports))


def _changed(store: Store, buckets: int, lease: Lease, progress: Progress) -> Store:
    """Write what a store of other buckets needs, and make it that store."""
    imports = read_imports(store)
    cuts: dict[str, Output] = {}
    progress.start("cut", len(imports))
    for one in imports:
        cuts[one.entry.identity] = _cut(store, one, buckets)
        progress.advance("cut", 1)
    progress.finish("cut")
    lease.check()
    for _, path in store.numbered("imports"):
        entry = json.loads(path.read_bytes())
        cut = cuts[entry["import"]]
        parts = parts_json(cut.manifest["parts"], cut.manifest.get("runs"))
        recut = {"buckets": buckets, "import": cut.identity, **parts}
        store.write_json(path, {**entry, "recut": recut}, replace=True)
    store.write_json(store.root / "store.json", {"schema_version": SCHEMA_VERSION, "buckets": buckets}, replace=True)
    return store.with_buckets(buckets)


def _settle(store: Store) -> None:
    """Remove what only a store of another number of buckets needs, and move answers to where this one looks."""
    for _, path in store.numbered("imports"):
        entry = json.loads(path.read_bytes())
        if "recut" in entry:
            recut = entry.pop("recut")
            if recut.pop("buckets") == store.buckets:
                entry = {name: value for name, value in entry.items() if name != "runs"} | recut
            store.write_json(path, entry, replace=True)
    needed = {one.folder for one in read_imports(store)}
    for folder in store.output_folders():
        if folder.parent.name == "import" and folder not in needed:
            store.remove(folder)
    for path in store.files(store.root / "calls", "bucket-*/*.parquet"):
        _move_calls(store, path)


def _cut(store: Store, one: Import, buckets: int) -> Output:
    """Write the output that the same import would have in a store of so many buckets."""
    entry = one.entry
    folder = store.output_folder("import", import_identity(buckets, entry.files, entry.without[-1]))
    was = one.output(store)
    if PARTS_WHILE_ERASING in was.manifest:
        raise StoreError(
            f"{was.folder} is being written anew without what was forgotten, and that was cut short: finish it with "
            "`python -m jobs.forget CONFIG --now` or a rebuild, then run this again"
        )
    with store.workspace() as work:
        spill = Spill(fresh_folder(work), buckets)
        for kind, table in _rows(store, one):
            spill.add_rows(kind, table.sort_by(_ROW_COLUMNS[kind]))  # as they stood in their files
        for results in _results(one, was):
            spill.add_outcomes(results)
        shuffle = Shuffle(store, [], ImportConfig(), entry.ingested_at, Keeping((), {}))
        places = spill.buckets()
        gathered = {place: shuffle.gather(work, {place: [spill.folder.name]}, place) for place in places}
        draft = fresh_folder(work)
        listed: dict[str, Any] = {}
        parts: dict[RowKind, dict[str, Any]] = {"messages": {}, "runs": {}}
        for place, about in gathered.items():
            for name, file in about["files"].items():
                (work / about["folder"] / name).rename(draft / name)
                listed[name] = file
            for kind, part in about["parts"].items():
                parts[kind][str(place)] = part
        kept = {name: value for name, value in was.manifest.items() if name not in ("files", "checksum", "runs")}
        return store.finish(draft, folder, listed, {**kept, **parts_json(parts["messages"], parts["runs"])})


def _rows(store: Store, one: Import) -> Iterator[tuple[RowKind, pa.Table]]:
    """Yield the messages and runs of an import, bucket by bucket."""
    if one.entry.rows:
        for parts in imported_parts(store, [one], NO_TOMBSTONES).values():
            for part in parts:
                yield part.kind, part.read()


def _results(one: Import, output: Output) -> Iterator[list[dict[str, Any]]]:
    """Yield what became of the rows of an import's logs, bucket by bucket."""
    for name in sorted(output.manifest["files"]):
        if name.startswith("outcomes-"):
            stem = name.replace("outcomes-", "rejects-").removesuffix(".parquet")
            raw: dict[tuple[str, str], str | None] = {}
            # After an erasure their name has a suffix.
            for rejects in output.manifest["files"]:
                if rejects == f"{stem}.parquet" or rejects.startswith(f"{stem}-"):
                    for row in _table(one, output, rejects).to_pylist():
                        raw[row["namespace"], row["source_id"]] = row["raw"]
            columns = _table(one, output, name).select(["namespace", "row_id", "outcome", "reason"])
            yield [{**row, "raw": raw.get((row["namespace"], row["row_id"]))} for row in columns.to_pylist()]


def _table(one: Import, output: Output, name: str) -> pa.Table:
    try:
        return output.table(name)
    except DamagedOutput as error:
        raise StoreError(one.again(str(output.damage()))) from error


def _move_calls(store: Store, path: Path) -> None:
    """Move answers to the buckets of their namespaces, unless they are there, or damaged: then they are asked again."""
    if not is_sound(path):
        return
    table = pq.read_table(path)
    places: defaultdict[Path, set[str]] = defaultdict(set)
    for name in table.column("namespace").unique().to_pylist():
        places[calls_folder(store, bucket_of(name, store.buckets))].add(name)
    if places.keys() != {path.parent}:
        prefix = path.name.removesuffix(path.name.rpartition("-")[2])
        for folder, names in places.items():
            keep_calls(store, folder, conform(select(table, names), CALL), prefix)
        store.remove_file(path)
