"""What a store has imported: numbered entries, each with an output that holds its messages and runs by bucket.

An import cannot be made from anything else in the store. Damage to it is refused with the names of its logs; importing
them again writes the same files to the same place. Only erasing changes an import: see `pipelines.erased_imports`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from hgmem_core.ids import bucket_of, digest_of_parts
from hgmem_core.lineage import select
from hgmem_core.schemas import OUTCOME
from hgmem_core.tombstones import NO_TOMBSTONES, Tombstones, forgotten_outcomes
from pipelines.files import StoreError, read_as
from pipelines.spill import RowKind
from pipelines.store import Output, Store


class Part(BaseModel, frozen=True, strict=True):
    """How many messages, or runs, of a bucket an import holds, and the digest of what they say.

    Attributes:
        rows: How many.
        digest: Of what they say.
        suffix: Of the names of its files, where they were written anew without what was erased.
    """

    rows: int
    digest: str
    suffix: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""


class Cut(BaseModel, frozen=True, strict=True):
    """An import in other buckets: what its entry says of them once the store has so many; see `pipelines.rebucket`."""

    buckets: int
    identity: Annotated[str, Field(alias="import", pattern="^[0-9a-f]{32}$")]
    parts: dict[int, Part]
    runs: dict[int, Part] = {}


class Entry(BaseModel, frozen=True, strict=True):
    """The content of `imports/000001.json`.

    Attributes:
        identity: The name of the import's output.
        files: What each log file is known by: its bytes and the settings it was read with.
        logs: The path that each file had.
        parts: Its messages, by bucket.
        runs: Its runs of agents, by bucket; an import without any does not say so.
        ingested_at: The time of the import, kept with every message and run.
        tombstones: The number of the last tombstone file that it knew: what those cover it left out.
        forgotten: How many rows of the logs that is.
        erased: The same number of each erasure that took rows out of it since.
        recut: The import in another number of buckets, while the store changes to that.
    """

    identity: Annotated[str, Field(alias="import", pattern="^[0-9a-f]{32}$")]
    files: list[str]
    logs: list[str] = []
    parts: dict[int, Part]
    runs: dict[int, Part] = {}
    ingested_at: datetime
    tombstones: int = 0
    forgotten: int = 0
    erased: list[int] = []
    recut: Cut | None = None

    def in_buckets(self, buckets: int) -> "Entry":
        """Return the entry of the import as it is cut in a store of so many buckets."""
        cut = self.recut
        if cut is None or cut.buckets != buckets:
            return self
        return self.model_copy(update={"identity": cut.identity, "parts": cut.parts, "runs": cut.runs})

    def parts_of(self, kind: RowKind) -> Mapping[int, Part]:
        """Return its messages or its runs, by bucket."""
        return self.parts if kind == "messages" else self.runs

    @property
    def without(self) -> tuple[int, ...]:
        """The numbers of tombstone files at each of which it lacks what was covered then; first that of the import."""
        return (self.tombstones, *self.erased)

    @property
    def rows(self) -> int:
        """How many messages and runs it holds."""
        return sum(part.rows for parts in (self.parts, self.runs) for part in parts.values())

    def as_imported(self) -> "Entry":
        """Return it with the names that files have which an import writes."""
        parts, runs = (
            {bucket: part.model_copy(update={"suffix": ""}) for bucket, part in own.items()}
            for own in (self.parts, self.runs)
        )
        return self.model_copy(update={"parts": parts, "runs": runs})

    def as_json(self) -> dict[str, Any]:
        """Return the content of its file."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class Import:
    """An import as its entry tells; its output is looked at when it is used."""

    number: int
    path: Path
    entry: Entry
    folder: Path

    def output(self, store: Store) -> Output:
        """Return its output, the files not looked at yet.

        Raises:
            StoreError: The output has no readable manifest, or another than the entry says.
        """
        output = store.find(self.folder)
        if output is None:
            raise StoreError(self.again(f"{self.folder / 'manifest.json'} is missing or damaged"))
        told = parts_json(output.manifest.get("parts"), output.manifest.get("runs"))
        if self.parts_json() not in (told, *output.manifest.get(PARTS_WHILE_ERASING, ())):
            raise StoreError(self.again(f"{self.path} and {self.folder / 'manifest.json'} tell different parts"))
        return output

    def parts_json(self) -> dict[str, Any]:
        """Return its parts as manifests hold them."""
        every = (self.entry.parts_of(kind) for kind in get_args(RowKind))
        return parts_json(
            *({str(bucket): part.model_dump(exclude_defaults=True) for bucket, part in own.items()} for own in every)
        )

    def is_damaged(self, store: Store) -> bool:
        """Say whether any of its files is missing, truncated or altered; reads them all."""
        try:
            return self.output(store).damage() is not None
        except StoreError:
            return True

    def again(self, damage: str) -> str:
        """Say what is damaged, and which logs to import again."""
        logs = " and ".join(self.entry.logs) or "its logs"
        return f"{damage}. The store cannot make it anew: import again {logs}, unchanged and together, or restore it"


PARTS_WHILE_ERASING = "parts_while_erasing"
"""In the manifest of an import of which files are being written anew: its parts before, the oldest first."""


def parts_json(messages: object, runs: object) -> dict[str, Any]:
    """Return the parts of an import as manifests hold them: of one without runs nothing is said of any."""
    return {"parts": messages, **({"runs": runs} if runs else {})}


@dataclass(frozen=True, slots=True)
class ImportedPart:
    """The messages, or the runs, that one import holds of one bucket.

    Attributes:
        origin: The import.
        kind: Which of the two.
        bucket: The bucket.
        files: The size and sha256 of its files, as the import's manifest lists them.
        fault: Why nothing can be read of it; None if it can.
        tombstones: Of the bucket's namespaces. What they cover is read, and then left out by whoever merges imports.
        store: Where.
    """

    origin: Import
    kind: RowKind
    bucket: int
    files: Mapping[str, Mapping[str, Any]]
    fault: str | None
    tombstones: Tombstones
    store: Store

    @property
    def _part(self) -> Part:
        return self.origin.entry.parts_of(self.kind)[self.bucket]

    @property
    def rows(self) -> int:
        """How many messages or runs."""
        return self._part.rows

    @property
    def digest(self) -> str:
        """What they say, and what of it is forgotten; the time of the import does not count."""
        said = self._part.digest
        named = sorted(self.tombstones.namespaces)
        return digest_of_parts([said, *map(self.tombstones.digest_of, named)]) if named else said

    def digests(self) -> Mapping[str, str]:
        """Return the digest of what the rows of each namespace say, and of what is forgotten of it.

        Raises:
            StoreError: The file is not as it was written; names the logs to import again.
        """
        names, digests = self._table(digests_name(self.kind, self.bucket, self._part.suffix)).columns
        found = dict(zip(names.to_pylist(), digests.to_pylist(), strict=True))
        for name in self.tombstones.namespaces & found.keys():
            found[name] = digest_of_parts([found[name], self.tombstones.digest_of(name)])
        return found

    def read(self, namespaces: Set[str] | None = None) -> pa.Table:
        """Return its MESSAGE or TRAJECTORY rows, or those of some namespaces.

        Raises:
            StoreError: The file is not as it was written; names the logs to import again.
        """
        rows = self._table(part_name(self.kind, self.bucket, self._part.suffix))
        return rows if namespaces is None else select(rows, namespaces)

    def _table(self, name: str) -> pa.Table:
        if self.fault:
            raise StoreError(self.fault)
        path = self.origin.folder / name
        damage = self.store.damage_of(path, self.files.get(name))
        if damage:
            raise StoreError(self.origin.again(damage))
        return pq.read_table(path)


def kept_rows(parts: Sequence[ImportedPart], namespaces: Set[str] | None) -> tuple[list[pa.Table], pa.Table]:
    """Return the rows of each part that no tombstone covers, and OUTCOME of stage `merge` for the others.

    Args:
        parts: Of one bucket and kind.
        namespaces: Those to read; None for all.

    Raises:
        StoreError: A file is not as it was written; names the logs to import again.
    """
    tables, outcomes = [], [OUTCOME.empty()]
    for number, part in enumerate(parts):
        rows = part.read(namespaces)
        is_message = part.kind == "messages"
        table, kept = (part.tombstones.kept_messages if is_message else part.tombstones.kept_trajectories)(rows)
        tables.append(table)
        if not kept.all():
            forgotten = rows.select(["namespace", "row" if is_message else "sequence"]).filter(pa.array(~kept))
            names, places = forgotten.columns
            outcomes.append(forgotten_outcomes("merge", names, [f"{number}:{place}" for place in places.to_pylist()]))
    return tables, pa.concat_tables(outcomes)


def digests_table(digests: Mapping[str, str]) -> pa.Table:
    """Return the digests of a bucket's namespaces as an import keeps them, beside their rows."""
    columns = {"namespace": list(digests), "digest": list(digests.values())}
    return pa.table({name: pa.array(column, pa.large_string()) for name, column in columns.items()})


def digests_name(kind: RowKind, bucket: int, suffix: str = "") -> str:
    """Return the name of a bucket's digests in an import's output."""
    return f"{_numbered('digests' if kind == 'messages' else 'run-digests', bucket, suffix)}.parquet"


def part_name(kind: RowKind, bucket: int, suffix: str = "") -> str:
    """Return the name of a bucket's file in an import's output."""
    return f"{_numbered('bucket' if kind == 'messages' else 'runs', bucket, suffix)}.parquet"


def rejects_name(bucket: int, suffix: str = "") -> str:
    """Return the name of a bucket's rejects in an import's output."""
    return f"{_numbered('rejects', bucket, suffix)}.parquet"


def _numbered(stem: str, bucket: int, suffix: str) -> str:
    return f"{stem}-{bucket:05d}{'-' if suffix else ''}{suffix}"


def read_imports(store: Store) -> list[Import]:
    """Return the imports of a store, the oldest first.

    Two importers of the same logs at the same time both write an entry for the one output; the first of them counts.

    Raises:
        StoreError: An entry holds something else.
    """
    imports: dict[str, Import] = {}
    for number, path in store.numbered("imports"):
        entry = read_as(Entry, path).in_buckets(store.buckets)
        imports.setdefault(entry.identity, Import(number, path, entry, store.output_folder("import", entry.identity)))
    return list(imports.values())


def imported_parts(store: Store, imports: Sequence[Import], tombstones: Tombstones) -> dict[int, list[ImportedPart]]:
    """Return the parts of every bucket that has some, the oldest import first.

    Args:
        store: Where they are.
        imports: Of the store.
        tombstones: What is to be left out of them.

    Raises:
        StoreError: There are none, and none were forgotten: nothing was imported yet.
    """
    parts: dict[int, list[ImportedPart]] = {}
    named: defaultdict[int, set[str]] = defaultdict(set)
    for namespace in tombstones.namespaces:
        named[bucket_of(namespace, store.buckets)].add(namespace)
    own = {bucket: tombstones.only(names) for bucket, names in named.items()}
    for one in imports:
        files: Mapping[str, Mapping[str, Any]] = {}
        fault = None
        try:
            files = one.output(store).manifest["files"]
        except StoreError as error:
            fault = str(error)  # it matters to those buckets alone that are to be built again
        for kind in get_args(RowKind):
            for bucket, part in one.entry.parts_of(kind).items():
                names = (part_name(kind, bucket, part.suffix), digests_name(kind, bucket, part.suffix))
                listed = {name: files[name] for name in names if name in files}
                parts.setdefault(bucket, []).append(
                    ImportedPart(one, kind, bucket, listed, fault, own.get(bucket, NO_TOMBSTONES), store)
                )
    if not parts and any(one.entry.forgotten or one.entry.erased for one in imports):
        return {}
    if not parts and imports:
        raise StoreError(
            f"{store} holds no messages: no row of what was imported had a text or an attachment, and no run of "
            "an agent had a step; check `columns.text` of the input"
        )
    if not parts:
        raise StoreError(f"{store} holds no messages yet; import a log first")
    return parts
