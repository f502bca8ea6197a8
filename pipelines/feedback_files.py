"""Feedback from files: which nodes were shown for a task, and how the run went that they were shown to."""

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pyarrow as pa

from hgmem_core.ids import check_namespace
from hgmem_core.importers.fields import integer_of, name_of
from hgmem_core.importers.runs import outcome_of
from hgmem_core.messages import LogRow
from hgmem_core.schemas import FEEDBACK, conform
from hgmem_core.skill_utility import NodeKind
from hgmem_core.times import parse_time
from pipelines.files import file_sha256
from pipelines.import_stage import ImportFailed
from pipelines.log_rows import LogFileError, json_lines, parquet_rows
from pipelines.store import Store
from pipelines.told_outcomes import FOLDER, told_rows

_KINDS = get_args(NodeKind)
_MOST_STEPS = 2**31 - 1
_UTC = ZoneInfo("UTC")


class _BadRow(ValueError):
    """A row that is not feedback: says which column is at fault, in words that are the same for every such row."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """The feedback of a file.

    Attributes:
        rows: FEEDBACK.
        rejected: For each reason how many rows of the file were left out.
        first: For each reason where the first of them stands.
        sha256: Of the file.
    """

    rows: pa.Table
    rejected: Mapping[str, int]
    first: Mapping[str, str]
    sha256: str


def read_feedback(path: Path, most_rejected: float) -> Feedback:
    """Read a Parquet file, JSON lines (`.jsonl`, `.jsonl.gz`), or a folder of what the endpoint was told, as FEEDBACK.

    An outcome may be a truth value, a number from 0 to 1 or a word, and a time what a log's may be. Of rows of one node
    for one query the first counts.

    Args:
        path: Of the file, or of the store's `feedback`.
        most_rejected: The largest share of rows that may be left out.

    Raises:
        LogFileError: The file cannot be read, or has no row.
        ImportFailed: More rows were left out.
    """
    kept: dict[tuple[str, ...], dict[str, Any]] = {}
    rejected: Counter[str] = Counter()
    first: dict[str, str] = {}
    for row in _open(path):
        try:
            read = _read(row)
            key = tuple(read[name] for name in ("namespace", "query_id", "node_kind", "node_id"))
            if key in kept:
                raise _BadRow("the node was shown for the query in an earlier row")
        except _BadRow as error:
            rejected[str(error)] += 1
            first.setdefault(str(error), row.row_id)
        else:
            kept[key] = read
    total = len(kept) + rejected.total()
    if not total:
        raise LogFileError(f"{path}: there is no row; without feedback nothing can be judged")
    if not kept or rejected.total() > most_rejected * total:
        often = "; ".join(f"{count} x {why} (first {first[why]})" for why, count in rejected.most_common(3))
        raise ImportFailed(
            f"{path}: {rejected.total()} of {total} rows of feedback were rejected, more than "
            f"imports.max_reject_rate={most_rejected:g} allows, so nothing was done. Most frequent: {often}. Mend the "
            "file, or raise the rate with --set imports.max_reject_rate=..."
        )
    rows = conform(pa.Table.from_pylist(list(kept.values()), FEEDBACK.arrow), FEEDBACK)
    sha256 = _sha256(path)
    return Feedback(rows, dict(rejected.most_common()), first, sha256)


def told_feedback(store: Store, most_rejected: float) -> Feedback:
    """Read what the endpoint was told of a store in object storage; see `read_feedback`."""
    # A mirror may hold what was erased there since.
    with tempfile.TemporaryDirectory(prefix="hgmem-feedback-") as name:
        for path in store.files(store.root / FOLDER, "*.json"):
            store.fetch(path)
            shutil.copy(path, name)
        return read_feedback(Path(name), most_rejected)


def _sha256(path: Path) -> str:
    if not path.is_dir():
        return file_sha256(path)
    files = sorted(path.glob("*.json"))
    return hashlib.sha256("".join(f"{file.name} {file_sha256(file)}\n" for file in files).encode()).hexdigest()


def _open(path: Path) -> Iterator[LogRow]:
    if path.is_dir():
        return told_rows(path)
    name = path.name.lower()
    if name.endswith(".parquet"):
        return parquet_rows(str(path))
    if name.endswith((".jsonl", ".jsonl.gz")):
        return json_lines(str(path))
    raise LogFileError(f"{path}: feedback is read from .parquet, .jsonl and .jsonl.gz; convert the file, or rename it")


def _read(row: LogRow) -> dict[str, Any]:
    """Return a row of FEEDBACK.

    Raises:
        _BadRow: It is none.
    """
    value = row.value
    if not isinstance(value, Mapping):
        raise _BadRow("the row cannot be read" if row.error else "the row is no object")
    try:
        namespace = check_namespace(value.get("namespace"))
    except ValueError as error:
        raise _BadRow("namespace: it is missing or none") from error
    try:
        shown_at = parse_time(value.get("shown_at"), _UTC)
    except ValueError as error:
        raise _BadRow("shown_at: not a time") from error
    if shown_at is None:
        raise _BadRow("shown_at: it is missing")
    if value.get("node_kind") not in _KINDS:
        raise _BadRow(f"node_kind: none of {', '.join(_KINDS)}")
    notes: list[str] = []
    outcome = outcome_of(value.get("outcome"), notes)
    if notes:
        raise _BadRow("outcome: no success, failure or unknown, no truth value and no number from 0 to 1")
    n_steps = integer_of(value.get("n_steps"), "n_steps", notes)
    if n_steps is None or not 0 <= n_steps <= _MOST_STEPS:
        raise _BadRow(f"n_steps: no whole number from 0 to {_MOST_STEPS}")
    ids = {name: name_of(value.get(name), name, notes) for name in ("query_id", "node_id")}
    for name, text in ids.items():
        if text is None:
            raise _BadRow(f"{name}: it is missing or no name")
    return {
        "namespace": namespace,
        **ids,
        "node_kind": value["node_kind"],
        "shown_at": shown_at,
        "outcome": outcome,
        "n_steps": n_steps,
    }
