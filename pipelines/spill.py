"""The one shuffle: rows of a log file cut by bucket while it is read, in bounded memory, then taken up by bucket."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from hgmem_core.ids import bucket_of
from pipelines.files import create_file

SPILL_BYTES = 64 << 20
"""Rows held in memory before they are written to files."""

RESULT = pa.schema([(name, pa.large_string()) for name in ("namespace", "row_id", "outcome", "reason", "raw")])
"""What became of a log row: OUTCOME without its stage, and the raw text of a refused row."""


RowKind = Literal["messages", "runs"]
"""What a log holds: MESSAGE rows, or those of TRAJECTORY."""

Kind = Literal[RowKind, "results"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_BUCKETS = b"hgmem.buckets"
"""In a spill file's metadata: whose rows each of its batches are."""


class Spill:
    """The rows of one log file by bucket: in memory up to `SPILL_BYTES`, then in files of a folder."""

    def __init__(self, folder: Path, buckets: int) -> None:
        """Begin without rows in an empty folder."""
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        """The reasons of rejected rows alone."""
        self.folder = folder
        self._buckets = buckets
        self._bucket_of: dict[str, int] = {}
        self._held: dict[tuple[str, int], list[pa.Table]] = {}
        self._held_bytes = 0
        self._flushes = 0
        self._written: set[int] = set()

    def add_rows(self, kind: RowKind, table: pa.Table) -> None:
        """Add what the log holds."""
        self._add(kind, table)

    def add_outcomes(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Add what became of log rows: the columns of `RESULT`; counts them."""
        self.outcomes.update(result["outcome"] for result in results)
        self.reasons.update(result["reason"] for result in results if result["reason"])
        self.faults.update(result["reason"] for result in results if result["outcome"] == "rejected")
        columns = [pa.array([result[name] for result in results], pa.large_string()) for name in RESULT.names]
        self._add("results", pa.Table.from_arrays(columns, schema=RESULT))

    def _add(self, kind: Kind, table: pa.Table) -> None:
        if not table.num_rows:
            return
        numbers = np.array([self._bucket(name) for name in table.column("namespace").to_pylist()])
        for bucket in np.unique(numbers).tolist():
            part = table.filter(pa.array(numbers == bucket))
            self._held.setdefault((kind, bucket), []).append(part)
            self._held_bytes += part.nbytes
        if self._held_bytes > SPILL_BYTES:
            self.flush()

    def _bucket(self, namespace: str) -> int:
        if namespace not in self._bucket_of:
            if len(self._bucket_of) > 1_000_000:
                self._bucket_of.clear()  # a cache, not a table of all namespaces
            self._bucket_of[namespace] = bucket_of(namespace, self._buckets)
        return self._bucket_of[namespace]

    def flush(self) -> None:
        """Write what is held in memory: a file of each kind, a batch of each bucket."""
        for kind in KINDS:
            held = {bucket: self._held.pop((kind, bucket)) for found, bucket in sorted(self._held) if found == kind}
            if held:
                self._write(self.folder / f"{kind}-{self._flushes:05d}.arrow", held)
        self._flushes += 1
        self._held_bytes = 0

    def _write(self, path: Path, held: Mapping[int, Sequence[pa.Table]]) -> None:
        schema = next(iter(held.values()))[0].schema.with_metadata({_BUCKETS: json.dumps(list(held))})
        with pa.ipc.new_file(create_file(path), schema) as writer:
            for tables in held.values():
                [batch] = pa.concat_tables(tables).combine_chunks().to_batches()
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        self._written.update(held)

    def buckets(self) -> list[int]:
        """Write what is held in memory and return the buckets that have rows."""
        self.flush()
        return sorted(self._written)


def spilled(folders: Iterable[Path], kind: Kind, bucket: int) -> pa.Table | None:
    """Return the rows of a kind that a bucket has in some spills, in their order; None if there are none."""
    batches = []
    for path in (path for folder in folders for path in sorted(folder.glob(f"{kind}-*.arrow"))):
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            buckets = json.loads(reader.schema.metadata[_BUCKETS])
            if bucket in buckets:
                batches.append(reader.get_batch(buckets.index(bucket)).replace_schema_metadata(None))
    return pa.Table.from_batches(batches) if batches else None
