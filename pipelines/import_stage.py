"""The import stage: log files to MESSAGE rows by bucket. The one shuffle, streaming, in bounded memory.

Rows are cut by bucket into spill files as they are read; at the end each bucket's spill becomes one part file. An
import is the new files of one call: a file whose bytes were imported before with the same settings is left out. An
import that was damaged since is written again when all its files are there.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import ImportConfig, InputConfig
from hgmem_core.ids import digest_of_parts, table_digest
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import OUTCOMES, Dropped, Message
from hgmem_core.schemas import MESSAGE, OUTCOME, REJECT, conform
from hgmem_core.turns import messages_table, number_equals
from pipelines.files import RESTORE, StoreError, file_sha256
from pipelines.imports import Import, part_name, read_imports
from pipelines.log_files import check_columns, expand_paths, open_rows
from pipelines.progress import Progress
from pipelines.spill import Spill
from pipelines.store import Output, Store

IMPORT_REVISION = 2
"""Raised when an equal file and equal settings give other messages."""

CHUNK_MESSAGES = 4_096


class ImportFailed(RuntimeError):
    """An import that keeps nothing: too many rejected rows. Says how many, why, and how to allow them."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: files taken and left out, what became of their rows, the turns they gave."""

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


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    label: str
    """Its path below the folder that all files share, to name rows with."""
    sha256: str
    settings: str
    input: InputConfig

    @property
    def key(self) -> str:
        return f"{self.sha256}:{self.settings}"


def import_logs(
    store: Store, inputs: Sequence[InputConfig], config: ImportConfig, ingested_at: datetime, progress: Progress
) -> Imported:
    """Import the files of `inputs` that the store does not know.

    Args:
        store: Where to.
        inputs: The logs; their files are looked at before anything is read.
        config: Limits.
        ingested_at: The time of this import, kept with every row.
        progress: Told of rows read.

    Raises:
        LogFileError: A file is missing, empty, of another format, or lacks a named column.
        ImportFailed: Too large a share of the rows was rejected; the store is as it was.
        StoreError: An earlier import is damaged and its logs now give other messages.
    """
    began = time.perf_counter()
    store.sweep()
    files = _files(inputs, config)
    by_key = {file.key: file for file in files}
    imports = read_imports(store)
    known = {key for one in imports for key in one.entry.files}
    lost = [one for one in imports if by_key.keys() >= set(one.entry.files) and one.is_damaged(store)]
    new = [file for key, file in by_key.items() if key not in known]
    if new or lost:
        progress.start("import", None)
    for one in lost:
        _write_again(store, one, [by_key[key] for key in one.entry.files], config, progress)
    if not new:
        return Imported(None, 0, len(files), {}, 0, time.perf_counter() - began, mended=len(lost))
    identity = digest_of_parts([str(IMPORT_REVISION), str(store.buckets), *(file.key for file in new)])
    with _read(store, new, config, ingested_at, progress) as spill:
        output = _keep(store, identity, spill, ingested_at)
    entry = {
        "import": identity,
        "files": [file.key for file in new],
        "logs": [file.path for file in new],
        "parts": output.manifest["parts"],
        "ingested_at": output.manifest["ingested_at"],
    }
    return Imported(
        number=store.append_numbered("imports", entry),
        files=len(new),
        known_files=len(files) - len(new),
        outcomes={outcome: spill.outcomes[outcome] for outcome in OUTCOMES},
        turns=output.manifest["turns"],
        seconds=time.perf_counter() - began,
        reasons=dict(spill.reasons.most_common(10)),
        mended=len(lost),
    )


@contextmanager
def _read(
    store: Store, files: Sequence[_File], config: ImportConfig, ingested_at: datetime, progress: Progress
) -> Iterator[Spill]:
    with store.workspace() as folder:
        spill = Spill(folder, store.buckets)
        first_row = 0
        for number, file in enumerate(files):
            first_row = _read_file(file, number, first_row, config, ingested_at, spill, progress)
        spill.flush()
        _refuse_many_rejects(spill.outcomes, spill.faults, config)
        yield spill


def _write_again(store: Store, one: Import, files: Sequence[_File], config: ImportConfig, progress: Progress) -> None:
    """Put what an import held back in its place: the same logs at the time of then give the same files."""
    with _read(store, files, config, one.entry.ingested_at, progress) as spill:
        _keep(store, one.entry.identity, spill, one.entry.ingested_at, one)


def _files(inputs: Sequence[InputConfig], config: ImportConfig) -> list[_File]:
    listed = [(path, one) for one in inputs for path in expand_paths(one.paths)]
    labels = _labels([path for path, _ in listed])
    files = []
    for (path, one), label in zip(listed, labels, strict=True):
        check_columns(path, one)
        settings = digest_of_parts([one.model_dump_json(exclude={"paths"}), str(config.max_turn_chars)])
        files.append(_File(path, label, file_sha256(Path(path)), settings, one))
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


def _read_file(
    file: _File,
    number: int,
    first_row: int,
    config: ImportConfig,
    ingested_at: datetime,
    spill: "Spill",
    progress: Progress,
) -> int:
    results = IMPORTERS[file.input.format](open_rows(file.path, file.input), file.input)
    base = Path(file.path).name
    while chunk := list(islice(results, CHUNK_MESSAGES)):
        messages = [item for item in chunk if isinstance(item, Message)]
        table = messages_table(messages, first_row, ingested_at, config.max_turn_chars)
        first_row += table.num_rows
        spill.add_messages(table, number)
        spill.add_outcomes([_result(item, file.label + item.row_id.removeprefix(base)) for item in chunk])
        progress.advance("import", len(chunk))
    return first_row


def _result(item: Message | Dropped, row_id: str) -> dict[str, Any]:
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


def _keep(store: Store, identity: str, spill: Spill, ingested_at: datetime, earlier: Import | None = None) -> Output:
    parts: dict[str, dict[str, Any]] = {}
    files: dict[str, pa.Table] = {}
    for bucket, table in spill.buckets("messages"):
        messages = _number_by_file(table)
        files[part_name(bucket)] = messages
        parts[str(bucket)] = {"rows": messages.num_rows, "digest": table_digest(messages, MESSAGE)}
    for bucket, results in spill.buckets("results"):
        files[f"outcomes-{bucket:05d}.parquet"] = _outcome_table(results)
        rejects = _reject_table(results)
        if rejects.num_rows:
            files[f"rejects-{bucket:05d}.parquet"] = rejects
    if earlier is not None and parts != earlier.parts_json():
        raise StoreError(
            f"{earlier.path} is damaged, or this software reads its logs otherwise than the one that imported them; "
            f"{RESTORE}"
        )
    about = {
        "parts": parts,
        "turns": sum(part["rows"] for part in parts.values()),
        "outcomes": dict(spill.outcomes),
        "ingested_at": ingested_at.isoformat(),
    }
    return store.keep(store.output_folder("import", identity), files, about)


def _number_by_file(table: pa.Table) -> pa.Table:
    """Give equal messages of one file their own ids; rows of a file are neighbours."""
    numbers = table.column("file").to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    messages = table.drop_columns(["file"])
    by_file: Iterable[pa.Table] = (
        number_equals(messages.slice(start, stop - start)) for start, stop in pairwise(bounds)
    )
    return conform(pa.concat_tables(by_file), MESSAGE)


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
