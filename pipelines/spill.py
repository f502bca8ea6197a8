"""The one shuffle: rows cut by bucket while a log is read, in bounded memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from hgmem_core.ids import bucket_of
from pipelines.store import open_arrow, write_file

SPILL_BYTES = 64 << 20
"""Rows held in memory before they are written to files."""

RESULT = pa.schema([(name, pa.large_string()) for name in ("namespace", "row_id", "outcome", "reason", "raw")])
"""What became of a log row: OUTCOME without its stage, and the raw text of a refused row."""


class Spill:
    """Rows by bucket: in memory up to `SPILL_BYTES`, then in files of the workspace."""

    def __init__(self, folder: Path, buckets: int) -> None:
        """Begin without rows; `folder` is empty and stays until the spill was read."""
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        """The reasons of rejected rows alone."""
        self._folder = folder
        self._buckets = buckets
        self._bucket_of: dict[str, int] = {}
        self._held: dict[tuple[str, int], list[pa.Table]] = {}
        self._held_bytes = 0
        self._files: dict[tuple[str, int], list[Path]] = {}

    def add_messages(self, table: pa.Table, file: int) -> None:
        """Add MESSAGE rows of the file with that number."""
        self._add("messages", table.append_column("file", pa.array(np.full(table.num_rows, file, np.int32))))

    def add_outcomes(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Add what became of log rows: the columns of `RESULT`; counts them."""
        self.outcomes.update(result["outcome"] for result in results)
        self.reasons.update(result["reason"] for result in results if result["reason"])
        self.faults.update(result["reason"] for result in results if result["outcome"] == "rejected")
        columns = [pa.array([result[name] for result in results], pa.large_string()) for name in RESULT.names]
        self._add("results", pa.Table.from_arrays(columns, schema=RESULT))

    def _add(self, kind: str, table: pa.Table) -> None:
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
        """Write what is held in memory to files."""
        for (kind, bucket), tables in self._held.items():
            files = self._files.setdefault((kind, bucket), [])
            path = self._folder / f"{kind}-{bucket:05d}-{len(files):05d}.arrow"
            write_file(path, pa.concat_tables(tables))
            files.append(path)
        self._held.clear()
        self._held_bytes = 0

    def buckets(self, kind: Literal["messages", "results"]) -> Iterator[tuple[int, pa.Table]]:
        """Yield each bucket that has rows of a kind, with all of them in their order."""
        for (found, bucket), files in sorted(self._files.items()):
            if found == kind:
                yield bucket, pa.concat_tables([open_arrow(path) for path in files])
