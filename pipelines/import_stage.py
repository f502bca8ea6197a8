"""The import stage: log files to MESSAGE and TRAJECTORY rows by bucket. The one shuffle, in bounded memory.

A task reads a file and cuts its rows by bucket into spill files; then a task gathers what all spills hold of a bucket.
An import is the new files of one call: a file whose bytes were imported before with the same settings is left out. An
import that was damaged since is written again when all its files are there.
"""

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import ImportConfig, InputConfig
from hgmem_core.ids import digest_of_namespaces, digest_of_parts, namespace_digests
from hgmem_core.importers import IMPORTERS, TRAJECTORY_IMPORTERS
from hgmem_core.messages import OUTCOMES, Dropped, Message
from hgmem_core.schemas import MESSAGE, OUTCOME, REJECT, TableSchema, conform
from hgmem_core.tombstones import FORGOTTEN
from hgmem_core.trajectories import IMPORTED_RUN, cut_long_texts, number_equal_runs, trajectories_table
from hgmem_core.trajectories import Run as AgentRun
from hgmem_core.turns import messages_table, number_equals
from pipelines.exports import export_context
from pipelines.files import RESTORE, StoreError, file_sha256, make_folder, write_file
from pipelines.forgotten_rows import Keeping, by_log_row, is_imported, without_left_out
from pipelines.imports import (
    Import,
    digests_name,
    digests_table,
    part_name,
    parts_json,
    read_imports,
    rejects_name,
)
from pipelines.log_files import LogFileError, absolute, check_columns, expand_paths, file_of, open_rows
from pipelines.redaction import Redactor, identities_of
from pipelines.run import Run
from pipelines.spill import RowKind, Spill, spilled
from pipelines.store import Output, Store
from pipelines.tombstone_files import number_of_tombstones

IMPORT_REVISION = 4
"""Raised when an equal file and equal settings give other messages or runs."""

CHUNK_ROWS: Mapping[RowKind, int] = MappingProxyType({"messages": 4_096, "runs": 64})
"""Of a log, at a time; a run may be as long as a book."""

FILE_ROWS = 1 << 40
"""Between the rows of one file and those of the next, so that each file numbers its own; above the rows of any file."""


class ImportFailed(RuntimeError):
    """An import that keeps nothing: too many rejected rows. Says how many, why, and how to allow them."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: files taken and left out, what became of their rows, the turns and trajectories they gave."""

    number: int | None
    """Its number in the store, or None if every file was known."""
    files: int
    known_files: int
    outcomes: Mapping[str, int]
    turns: int
    seconds: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How often each reason was given, the most frequent first."""
    mended: int = 0
    """Earlier imports that were damaged and have been written again."""
    trajectories: int = 0


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file, named and digested."""

    path: str
    label: str
    """Its path below the folder that all files share, to name rows with."""
    sha256: str
    settings: str
    input: InputConfig

    @property
    def kind(self) -> RowKind:
        """What it holds."""
        return "runs" if self.input.format in TRAJECTORY_IMPORTERS else "messages"

    @property
    def key(self) -> str:
        """What it is known by: its bytes and the settings it is read with."""
        return f"{self.sha256}:{self.settings}"


def import_logs(run: Run, inputs: Sequence[InputConfig], config: ImportConfig, ingested_at: datetime) -> Imported:
    """Import the files of `inputs` that the store does not know.

    Args:
        run: Where to, and what does the work.
        inputs: The logs; their files are looked at before anything is read.
        config: Limits.
        ingested_at: The time of this import, kept with every row.

    Raises:
        LogFileError: A file is missing, empty, of another format, or lacks a named column.
        ImportFailed: Too large a share of the rows was rejected; the store is as it was.
        StoreError: An earlier import is damaged and its logs now give other messages.
    """
    began = time.perf_counter()
    store = run.store
    files = _files(inputs, config)
    by_key = {file.key: file for file in files}
    imports = read_imports(store)
    number = number_of_tombstones(store)
    lost = [one for one in imports if by_key.keys() >= set(one.entry.files) and one.is_damaged(store)]
    new = [file for key, file in by_key.items() if not is_imported(store, key, imports)]
    if new or lost:
        run.progress.start("import", None)
    for one in lost:
        # The same logs at the time of then, without what was left out then, give the same files.
        before = [other for other in imports if other.number < one.number]
        then = Keeping.of(store, one.entry.files, before, one.entry.without)
        again = Shuffle(store, [by_key[key] for key in one.entry.files], config, one.entry.ingested_at, then)
        bare = replace(one, entry=one.entry.as_imported())
        _shuffle(run, again, one.entry.identity, bare)
        if bare != one:
            store.write_json(one.path, bare.entry.as_json(), replace=True)
    if not new:
        return Imported(None, 0, len(files), {}, 0, time.perf_counter() - began, mended=len(lost))
    identity = import_identity(store.buckets, [file.key for file in new], number)
    keeping = Keeping.of(store, [file.key for file in new], imports, [number])
    output, counts = _shuffle(run, Shuffle(store, new, config, ingested_at, keeping), identity)
    run.lease.check()
    run.progress.finish("import")
    entry = {
        "import": identity,
        "files": [file.key for file in new],
        "logs": [file.path for file in new],
        **parts_json(output.manifest["parts"], output.manifest.get("runs")),
        "ingested_at": output.manifest["ingested_at"],
        **({"tombstones": number, "forgotten": counts.reasons[FORGOTTEN]} if number else {}),
    }
    return Imported(
        number=store.append_numbered("imports", entry),
        files=len(new),
        known_files=len(files) - len(new),
        outcomes={outcome: counts.outcomes[outcome] for outcome in OUTCOMES},
        turns=output.manifest["turns"],
        seconds=time.perf_counter() - began,
        reasons=dict(counts.reasons.most_common(10)),
        mended=len(lost),
        trajectories=output.manifest.get("trajectories", 0),
    )


def import_identity(buckets: int, keys: Sequence[str], tombstones: int) -> str:
    """Return the name of the output of an import of files, by their keys, into so many buckets.

    Args:
        buckets: Of the store.
        keys: What each file is known by.
        tombstones: The number of the last tombstone file that the import knows.
    """
    left_out = [f"tombstones {tombstones}"] if tombstones else []
    return digest_of_parts([str(IMPORT_REVISION), str(buckets), *keys, *left_out])


@dataclass(slots=True)
class _Counts:
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, read: Mapping[str, Any]) -> None:
        self.outcomes.update(read["outcomes"])
        self.reasons.update(read["reasons"])
        self.faults.update(read["faults"])

    def change(self, changes: Sequence[tuple[str, str | None, str]]) -> None:
        """Count rows as left out that were counted otherwise before; see `pipelines.forgotten_rows`."""
        for outcome, reason, now in changes:
            self.outcomes.update({outcome: -1, "empty": 1})
            self.reasons.update({now: 1, **({reason: -1} if reason else {})})
        self.outcomes, self.reasons = +self.outcomes, +self.reasons


def _shuffle(run: Run, shuffle: "Shuffle", identity: str, earlier: Import | None = None) -> tuple[Output, _Counts]:
    """Read the files, gather the buckets, and keep the import's output.

    Args:
        run: Does the work.
        shuffle: What to read.
        identity: The name of the output.
        earlier: The import that is written again, if it is not a new one.
    """
    store, counts = shuffle.store, _Counts()
    with store.workspace() as folder:
        folders: dict[int, str] = {}
        buckets: defaultdict[int, list[int]] = defaultdict(list)
        files = range(len(shuffle.files))
        for number, read in run.importer.map("imports", partial(shuffle.read_file, folder), files):
            counts.add(read)
            folders[number] = read["folder"]
            for bucket in read["buckets"]:
                buckets[bucket].append(number)
            run.progress.advance("import", sum(read["outcomes"].values()))
        _refuse_many_rejects(counts.outcomes, counts.faults, shuffle.config)
        draft = folder / "output"
        make_folder(draft)
        listed: dict[str, Any] = {}
        parts: dict[RowKind, dict[str, dict[str, Any]]] = {"messages": {}, "runs": {}}
        spills = {bucket: [folders[number] for number in sorted(numbers)] for bucket, numbers in buckets.items()}
        gather = partial(shuffle.gather, folder, spills)
        for bucket, gathered in run.importer.map("buckets", gather, sorted(spills)):
            counts.change(gathered["changes"])
            for name, about in gathered["files"].items():
                (folder / gathered["folder"] / name).rename(draft / name)
                listed[name] = about
            for kind in parts:
                if kind in gathered["parts"]:
                    parts[kind][str(bucket)] = gathered["parts"][kind]
        kept = parts_json(parts["messages"], parts["runs"])
        if earlier is not None and kept != earlier.parts_json():
            raise StoreError(
                f"{earlier.path} is damaged, or this software reads its logs otherwise than the one that imported "
                f"them; {RESTORE}"
            )
        about = {
            **kept,
            "turns": sum(part["rows"] for part in parts["messages"].values()),
            "outcomes": dict(counts.outcomes),
            "ingested_at": shuffle.ingested_at.isoformat(),
        }
        if parts["runs"]:
            about["trajectories"] = sum(part["rows"] for part in parts["runs"].values())
        return store.finish(draft, store.output_folder("import", identity), listed, about), counts


def _files(inputs: Sequence[InputConfig], config: ImportConfig) -> list[LogFile]:
    listed = [(path, one) for one in inputs for path in expand_paths(one.paths, one.format)]
    labels = _labels([path for path, _ in listed])
    hooks = identities_of(config.redact)
    files = []
    for (path, one), label in zip(listed, labels, strict=True):
        file = file_of(path)
        try:
            check_columns(file, one)
        except LogFileError as error:
            raise LogFileError(str(error).replace(file, path)) from error
        longest = config.max_step_chars if one.format in TRAJECTORY_IMPORTERS else config.max_turn_chars
        # A setting that came later and is not used is no part of what a file is known by.
        unused = set() if one.session_gap_minutes else {"session_gap_minutes"}
        shape = one.model_dump_json(exclude={"paths", *unused})
        settings = digest_of_parts([shape, str(longest), *hooks, *export_context(path, one.format)])
        files.append(LogFile(absolute(path), label, file_sha256(Path(file)), settings, one))
    return files


def _labels(paths: Sequence[str]) -> list[str]:
    """Return short names for files: their base names where those differ, else as much of the path as is needed.

    A path that occurs again, because several inputs read the file, is followed by `#2`, then `#3`.
    """
    seen: Counter[str] = Counter()
    labels = []
    for path, label in zip(paths, _short_names(paths), strict=True):
        seen[path] += 1
        labels.append(label if seen[path] == 1 else f"{label}#{seen[path]}")
    return labels


def _short_names(paths: Sequence[str]) -> list[str]:
    for parts in range(1, max((len(Path(path).parts) for path in paths), default=1) + 1):
        labels = [str(Path(*Path(path).parts[-parts:])) for path in paths]
        if len(set(labels)) == len(set(paths)):
            return labels
    return list(paths)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Reads log files and gathers their rows by bucket; travels to other processes.

    What an attempt writes is in a folder of its own, which only its result names: an attempt that was given up for lost
    and goes on all the same disturbs nobody.

    Attributes:
        store: Where to.
        files: In order.
        config: Limits.
        ingested_at: The time of the import.
        keeping: Which rows.
    """

    store: Store
    files: Sequence[LogFile]
    config: ImportConfig
    ingested_at: datetime
    keeping: Keeping

    def read_file(self, workspace: Path, number: int) -> dict[str, Any]:
        """Read the file of that number into a spill; return its folder, its buckets and what became of its rows."""
        file = self.files[number]
        folder = fresh_folder(workspace)
        spill = Spill(folder, self.store.buckets)
        results = self._results(file)
        base = Path(file.path).name
        row = number * FILE_ROWS
        while chunk := list(islice(results, CHUNK_ROWS[file.kind])):
            table = self._table(file.kind, chunk, row)
            row += table.num_rows
            spill.add_rows(file.kind, table)
            spill.add_outcomes([_result(item, file.label + item.row_id.removeprefix(base)) for item in chunk])
        return {
            "folder": folder.name,
            "buckets": spill.buckets(),
            "outcomes": dict(spill.outcomes),
            "reasons": dict(spill.reasons),
            "faults": dict(spill.faults),
        }

    def _results(self, file: LogFile) -> Iterator[Message | AgentRun | Dropped]:
        """Yield a result for each row of a file, without what is to be redacted."""
        rows, redacted = open_rows(file.path, file.input), Redactor(self.config.redact)
        if file.kind == "messages":
            yield from map(redacted, IMPORTERS[file.input.format](rows, file.input))
            return
        for result in map(redacted, TRAJECTORY_IMPORTERS[file.input.format](rows, file.input)):
            yield cut_long_texts(result, self.config.max_step_chars) if isinstance(result, AgentRun) else result

    def _table(self, kind: RowKind, results: Sequence[Message | AgentRun | Dropped], row: int) -> pa.Table:
        """Return what some consecutive rows of a file hold, numbered from `row` on."""
        if kind == "runs":
            runs = [item for item in results if isinstance(item, AgentRun)]
            return trajectories_table(runs, row, self.ingested_at)
        messages = [item for item in results if isinstance(item, Message)]
        return messages_table(messages, row, self.ingested_at, self.config.max_turn_chars)

    def gather(self, workspace: Path, spills: Mapping[int, Sequence[str]], bucket: int) -> dict[str, Any]:
        """Write what a bucket's spills hold of it; return the folder, its files, and the import's parts of it."""
        folder = fresh_folder(workspace)
        folders = [workspace / name for name in spills[bucket]]
        files: dict[str, pa.Table] = {}
        parts: dict[RowKind, dict[str, Any]] = {}
        left_out: dict[int, str | None] = {}
        for kind in get_args(RowKind):
            rows = spilled(folders, kind, bucket)
            if rows is not None:
                table = _numbered(kind, rows)
                if not self.keeping.is_everything:
                    why = self.keeping.left_out(kind, table, _files_of(kind, table))
                    left_out |= by_log_row(table, _KEPT[kind].row, why)
                    table = table.filter(pa.array([one is None for one in why], pa.bool_()))
                if table.num_rows:
                    digests = namespace_digests(table, _KEPT[kind].schema)
                    files[part_name(kind, bucket)] = table
                    files[digests_name(kind, bucket)] = digests_table(digests)
                    parts[kind] = {"rows": table.num_rows, "digest": digest_of_namespaces(digests)}
        results = spilled(folders, "results", bucket)
        changes: list[tuple[str, str | None, str]] = []
        if results is not None:
            if not self.keeping.is_everything:
                results, changes = without_left_out(results, left_out, self.keeping.forgotten)
            files[f"outcomes-{bucket:05d}.parquet"] = _outcome_table(results)
            rejects = _reject_table(results)
            if rejects.num_rows:
                files[rejects_name(bucket)] = rejects
        listed = {name: write_file(folder / name, table) for name, table in files.items()}
        return {"folder": folder.name, "files": listed, "parts": parts, "changes": changes}


def fresh_folder(workspace: Path) -> Path:
    """Make a folder of a name that nothing else has."""
    folder = workspace / uuid.uuid4().hex
    make_folder(folder)
    return folder


def _result(item: Message | AgentRun | Dropped, row_id: str) -> dict[str, Any]:
    """Return what became of a log row: the columns of OUTCOME, and `raw` for REJECT."""
    result = {"namespace": item.namespace, "row_id": row_id}
    if isinstance(item, Dropped):
        return {**result, "outcome": item.outcome, "reason": item.reason, "raw": item.raw}
    return {**result, "outcome": "partial" if item.note else "ok", "reason": item.note, "raw": None}


def _refuse_many_rejects(outcomes: Counter[str], faults: Counter[str], config: ImportConfig) -> None:
    total, rejected = outcomes.total(), outcomes["rejected"]
    if rejected > config.max_reject_rate * total:
        often = "; ".join(f"{count} x {reason}" for reason, count in faults.most_common(3))
        raise ImportFailed(
            f"{rejected} of {total} rows were rejected, more than imports.max_reject_rate={config.max_reject_rate} "
            f"allows, so nothing was kept. Most frequent: {often}. Mend the log or its column mapping, "
            f"or raise the rate with --set imports.max_reject_rate=..."
        )


class _Kept(NamedTuple):
    schema: TableSchema
    row: str
    """The column that numbers rows."""
    number: Callable[[pa.Table], pa.Table]
    """Tells equal rows of a file apart."""


_KEPT: Mapping[RowKind, _Kept] = MappingProxyType(
    {
        "messages": _Kept(MESSAGE, "row", number_equals),
        "runs": _Kept(IMPORTED_RUN, "sequence", number_equal_runs),
    }
)


def _files_of(kind: RowKind, table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the number of the file that each row is of."""
    return np.asarray(table.column(_KEPT[kind].row).to_numpy() // FILE_ROWS, np.int64)


def _numbered(kind: RowKind, table: pa.Table) -> pa.Table:
    """Give equal rows of one file their own ids; a file's rows are neighbours."""
    schema, _, number = _KEPT[kind]
    numbers = _files_of(kind, table)
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    by_file: Iterable[pa.Table] = (number(table.slice(start, stop - start)) for start, stop in pairwise(bounds))
    return conform(pa.concat_tables(by_file), schema)


def _stage_columns(results: pa.Table) -> dict[str, Any]:
    rows = results.num_rows
    return {"stage": pa.array(["import"] * rows, pa.large_string()), "one": pa.array(np.ones(rows, np.int32))}


def _outcome_table(results: pa.Table) -> pa.Table:
    extra = _stage_columns(results)
    columns = {name: results.column(name) for name in ("namespace", "row_id", "outcome", "reason")}
    return conform(pa.table({**columns, "stage": extra["stage"], "passes": extra["one"]}), OUTCOME)


def _reject_table(results: pa.Table) -> pa.Table:
    rejected = results.filter(pc.is_valid(results.column("reason")))
    extra = _stage_columns(rejected)
    columns = {
        "namespace": rejected.column("namespace"),
        "stage": extra["stage"],
        "source_id": rejected.column("row_id"),
        "attempt": extra["one"],
        "reason": rejected.column("reason"),
        "raw": rejected.column("raw"),
        "final": pc.not_equal(rejected.column("outcome"), "partial"),
    }
    return conform(pa.table(columns), REJECT)
