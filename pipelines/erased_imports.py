"""Imports without what tombstones cover: files of touched buckets are written anew, beside those that they replace.

First the new files are added and the manifest lists both; whoever has the old entry of the import reads the old files,
and nothing has changed yet. Then the entry names the new ones, and at last the old files are removed. After a kill in
between, the same work finds what there is and goes on: new files are named by their content.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgmem_core.ids import bucket_of, digest_of_namespaces, digest_of_parts, namespace_digests, part_id
from hgmem_core.schemas import MESSAGE
from hgmem_core.tombstones import Tombstones
from hgmem_core.trajectories import IMPORTED_RUN
from pipelines.files import StoreError, file_sha256, seal
from pipelines.imports import (
    PARTS_WHILE_ERASING,
    Import,
    Part,
    digests_name,
    digests_table,
    part_name,
    read_imports,
    rejects_name,
)
from pipelines.spill import RowKind
from pipelines.store import Output, Store

UNKNOWN_NAMESPACE = ""
"""Whose rejects are that had no namespace which could be read."""


@dataclass(slots=True)
class Said:
    """Ids and texts of what was said in some buckets."""

    ids: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def add(self, kind: RowKind, rows: pa.Table) -> None:
        """Take MESSAGE or TRAJECTORY rows."""
        if kind == "messages":
            messages, parts = (rows.column(name).to_pylist() for name in ("message_id", "part"))
            self.ids.update(
                part_id(message, part) if part else message for message, part in zip(messages, parts, strict=True)
            )
            for name in ("text", "attachments"):
                self.texts.update(rows.column(name).to_pylist())
            return
        self.ids.update(rows.column("trajectory_id").to_pylist())
        self.texts.update(rows.column("task").to_pylist())
        for steps in rows.column("steps").to_pylist():
            self.texts.update(said for step in steps for said in step.values() if said is not None)


@dataclass(frozen=True, slots=True)
class ErasedImport:
    """An import that is to lose rows.

    Attributes:
        now: As it is.
        after: As it will be; its files are there already.
        manifest: What its manifest will say.
        old: The size and sha256 of files that go, by name.
        new: Likewise of those that replace them.
    """

    now: Import
    after: Import
    manifest: Mapping[str, Any]
    old: Mapping[str, Mapping[str, Any]]
    new: Mapping[str, Mapping[str, Any]]

    @property
    def manifest_path(self) -> Path:
        """Where its manifest is."""
        return self.now.folder / "manifest.json"


@dataclass(frozen=True, slots=True)
class ErasedImports:
    """The imports of a store as they will be, and what they lose.

    Attributes:
        every: All of them, the oldest first.
        changed: Those that lose something.
        erased: What is covered, in the touched buckets.
        kept: What is not.
    """

    every: list[Import]
    changed: list[ErasedImport]
    erased: Said
    kept: Said


def prepare_imports(store: Store, tombstones: Tombstones, until: int, namespaces: Set[str]) -> ErasedImports:
    """Write the files of touched buckets anew; whoever reads the imports does not notice yet.

    Args:
        store: Whose lease this process holds.
        tombstones: Say what goes.
        until: The number of the last file of those.
        namespaces: Of which something goes.

    Raises:
        StoreError: An import is damaged; names its logs.
    """
    made = ErasedImports([], [], Said(), Said())
    for one in read_imports(store):
        output = one.output(store)
        changed = _prepare(_Work(store, one, output, tombstones, namespaces, made.erased, made.kept), until)
        made.every.append(one if changed is None else changed.after)
        if changed is not None:
            made.changed.append(changed)
    return made


def switch_imports(store: Store, imports: ErasedImports) -> None:
    """Let the entries name the new files."""
    for one in imports.changed:
        if one.now.entry != one.after.entry:
            store.write_json(one.now.path, one.after.entry.as_json(), replace=True)


def drop_old_files(store: Store, imports: ErasedImports) -> None:
    """Remove the files that were written anew, once the manifest lists them no more."""
    for one in imports.changed:
        store.write_json(one.manifest_path, one.manifest, replace=True)
        for name in one.old:
            store.remove_file(one.now.folder / name)


def _prepare(work: "_Work", until: int) -> ErasedImport | None:
    """Write an import's files anew; None if it holds nothing that goes."""
    store, one, told = work.store, work.one, work.output.manifest
    before = [*told.get(PARTS_WHILE_ERASING, ()), one.parts_json()]
    # An earlier attempt was cut short while it removed what its manifest lists no more.
    listed = {*told["files"], "manifest.json"}
    left = {path.name: path for path in store.files(one.folder, wanted=lambda path: path.name not in listed)}
    buckets = {bucket_of(name, store.buckets) for name in work.namespaces}
    parts = {kind: dict(_parts_before(before[0], kind)) for kind in get_args(RowKind)}
    for kind, own in parts.items():
        for bucket in sorted(buckets & own.keys()):
            part = work.part(kind, bucket, own.pop(bucket))
            if part is not None:
                own[bucket] = part
    for bucket in sorted(buckets | {bucket_of(UNKNOWN_NAMESPACE, store.buckets)}):
        work.rejects(bucket)
    entry = one.entry.model_copy(update={"parts": parts["messages"], "runs": parts["runs"]})
    if entry.rows != one.entry.rows:  # it is imported again once it was restored, and its log is given
        entry = entry.model_copy(update={"erased": sorted({*entry.erased, until})})
    after = replace(one, entry=entry)
    left = {name: path for name, path in left.items() if name not in work.new}
    if not work.old and not left and PARTS_WHILE_ERASING not in told:
        return None
    # What an earlier attempt wrote, which was cut short, is of no use if other tombstones are in force now.
    gone = {*work.old, *told.get(_NEW_WHILE_ERASING, ())} - work.new.keys()
    both = {**told["files"], **work.new}
    about = {name: value for name, value in told.items() if name not in _CHANGED}
    about |= {**after.parts_json(), "turns": sum(part.rows for part in entry.parts.values())}
    if entry.runs or "trajectories" in about:
        about["trajectories"] = sum(part.rows for part in entry.runs.values())
    manifest = seal({**about, "files": {name: listed for name, listed in both.items() if name not in gone}})
    meanwhile = {
        PARTS_WHILE_ERASING: _distinct(before),
        _NEW_WHILE_ERASING: sorted({*told.get(_NEW_WHILE_ERASING, ()), *work.new}),
    }
    store.write_json(one.folder / "manifest.json", {**about, "files": both, **meanwhile}, replace=True)
    old = {name: told["files"][name] for name in gone}
    old |= {name: {"sha256": file_sha256(path)} for name, path in left.items()}
    return ErasedImport(one, after, manifest, old, work.new)


_NEW_WHILE_ERASING = "files_while_erasing"
"""Beside it: the names of the files that were written for that."""

_CHANGED = ("files", "checksum", "parts", "runs", PARTS_WHILE_ERASING, _NEW_WHILE_ERASING)


def _parts_before(told: Mapping[str, Any], kind: RowKind) -> Iterator[tuple[int, Part]]:
    """Yield the parts that an import had before anything of it was written anew, by bucket."""
    for bucket, part in told.get("parts" if kind == "messages" else "runs", {}).items():
        yield int(bucket), Part.model_validate(part)


def _distinct(told: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [json.loads(text) for text in dict.fromkeys(json.dumps(one, sort_keys=True) for one in told)]


@dataclass(slots=True)
class _Work:
    """Writes the files of one import anew."""

    store: Store
    one: Import
    output: Output
    tombstones: Tombstones
    namespaces: Set[str]
    erased: Said
    kept: Said
    old: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    new: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def part(self, kind: RowKind, bucket: int, part: Part) -> Part | None:
        """Return a part without what is covered; None if nothing is left."""
        names = part_name(kind, bucket, part.suffix), digests_name(kind, bucket, part.suffix)
        rows = self._table(names[0])
        if kind == "messages":
            kept, mask = self.tombstones.kept_messages(rows)
        else:
            kept, mask = self.tombstones.kept_trajectories(rows)
        self.erased.add(kind, rows.filter(pa.array(~mask)))
        self.kept.add(kind, kept)
        if kept.num_rows == rows.num_rows:
            return part
        for name in names:
            self.old[name] = self.output.manifest["files"][name]
        if not kept.num_rows:
            return None
        digests = namespace_digests(kept, MESSAGE if kind == "messages" else IMPORTED_RUN)
        digest = digest_of_namespaces(digests)
        suffix = digest[:16]
        self._write(part_name(kind, bucket, suffix), kept)
        self._write(digests_name(kind, bucket, suffix), digests_table(digests))
        return Part(rows=kept.num_rows, digest=digest, suffix=suffix)

    def rejects(self, bucket: int) -> None:
        """Blank the raw text of what was rejected in the namespaces, or in one that is not known."""
        first = rejects_name(bucket)
        stem = first.removesuffix(".parquet")
        told = self.output.manifest
        for name in told["files"].keys() - told.get(_NEW_WHILE_ERASING, ()):
            if name != first and not name.startswith(f"{stem}-"):
                continue
            rows = self._table(name)
            theirs = pa.array([*sorted(self.namespaces), UNKNOWN_NAMESPACE], pa.large_string())
            is_theirs = pc.is_in(rows.column("namespace"), value_set=theirs)
            is_open = pc.and_(is_theirs, pc.is_valid(rows.column("raw")))
            if not pc.any(is_open).as_py():
                continue
            self.erased.texts.update(rows.filter(is_open).column("raw").to_pylist())
            raw = pc.if_else(is_open, pa.scalar(None, pa.large_string()), rows.column("raw"))
            blank = rows.set_column(rows.column_names.index("raw"), rows.schema.field("raw"), raw)
            self.old[name] = told["files"][name]
            self._write(rejects_name(bucket, digest_of_parts([name, *sorted(self.namespaces)])[:16]), blank)

    def _table(self, name: str) -> pa.Table:
        path = self.one.folder / name
        damage = self.store.damage_of(path, self.output.manifest["files"].get(name))
        if damage:
            raise StoreError(self.one.again(damage))
        return pq.read_table(path)

    def _write(self, name: str, table: pa.Table) -> None:
        path = self.one.folder / name
        listed = self.output.manifest["files"].get(name)
        if listed is None or self.store.damage_of(path, listed):
            listed = self.store.add_file(path, table)
        self.new[name] = listed
