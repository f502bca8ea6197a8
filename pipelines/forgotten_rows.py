"""Log rows that an import does not keep: what somebody asked to forget, and what an earlier import of the file has.

A file that was imported while some of it was forgotten may be imported again once that was restored. It then gives the
rows that were left out before, and no others: the rest is there, and may have been edited since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.tombstones import FORGOTTEN, Mask, Tombstones
from pipelines.imports import Import
from pipelines.spill import RowKind
from pipelines.store import Store
from pipelines.tombstone_files import read_tombstones

IMPORTED_BEFORE = "imported before"
"""The reason of an OUTCOME row that an earlier import of the same file has kept."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which rows an import keeps.

    Attributes:
        forgotten: What it does not: what any of these cover.
        earlier: For a file of the import, by its number there, the same of each earlier import of it.
    """

    forgotten: Sequence[Tombstones]
    earlier: Mapping[int, Sequence[Sequence[Tombstones]]]

    @classmethod
    def of(cls, store: Store, files: Sequence[str], before: Sequence[Import], without: Sequence[int]) -> "Keeping":
        """Return what an import keeps.

        Args:
            store: Where to.
            files: What each of its files is known by.
            before: The imports before it.
            without: See `pipelines.imports.Entry.without`.

        Raises:
            StoreError: A tombstone is damaged.
        """
        earlier = {}
        for place, key in enumerate(files):
            # What was erased from earlier imports later than this one was there when this one was made.
            numbers = [
                [number for number in one.entry.without if number <= without[0]]
                for one in before
                if key in one.entry.files
            ]
            if numbers:
                earlier[place] = [_read(store, own) for own in numbers]
        return cls(_read(store, without), earlier)

    @property
    def is_everything(self) -> bool:
        """Whether no row is left out."""
        return not any(one.namespaces for one in self.forgotten) and not self.earlier

    def left_out(self, kind: RowKind, table: pa.Table, files: npt.NDArray[np.int64]) -> list[str | None]:
        """Return why each row is left out, None where it is kept.

        Args:
            kind: What the rows are.
            table: MESSAGE or TRAJECTORY rows.
            files: The number of the file of each.
        """
        has_it = np.zeros(table.num_rows, bool)
        for number, earlier in self.earlier.items():
            has_it |= (files == number) & np.logical_or.reduce([_kept(one, kind, table) for one in earlier])
        told = zip(_kept(self.forgotten, kind, table).tolist(), has_it.tolist(), strict=True)
        return [FORGOTTEN if not is_kept else IMPORTED_BEFORE if is_there else None for is_kept, is_there in told]


def _read(store: Store, numbers: Sequence[int]) -> list[Tombstones]:
    return [read_tombstones(store, number) for number in numbers]


def _kept(every: Sequence[Tombstones], kind: RowKind, table: pa.Table) -> Mask:
    """Return which rows none of some tombstones cover."""
    is_message = kind == "messages"
    kept = np.ones(table.num_rows, bool)
    for one in every:
        kept &= (one.kept_messages if is_message else one.kept_trajectories)(table)[1]
    return kept


def is_imported(store: Store, key: str, imports: Sequence[Import]) -> bool:
    """Say whether there is nothing left to import of a file: what was left out of it, if anything was, stays forgotten.

    Args:
        store: Where.
        key: What the file is known by.
        imports: Of the store, the oldest first.

    Raises:
        StoreError: A tombstone is damaged.
    """
    earlier = [one for one in imports if key in one.entry.files]
    if not earlier:
        return False
    # Whatever the ones before lacked, the last has, but for what was forgotten then, or was erased since.
    last = earlier[-1].entry
    lacking = {number for one in earlier for number in one.entry.erased if number >= last.tombstones}
    lacking |= {last.tombstones} if last.forgotten else set()
    now = read_tombstones(store)
    return not any(now.lift(then) for then in _read(store, sorted(lacking)))


def by_log_row(table: pa.Table, numbers: str, left_out: Sequence[str | None]) -> dict[int, str | None]:
    """Return for each log row that gave something why that is left out, by the number that the row was given.

    Args:
        table: MESSAGE or TRAJECTORY rows.
        numbers: The column of their numbers.
        left_out: Why each of them is left out, None where it is kept.
    """
    rows = table.column(numbers).to_pylist()
    parts = table.column("part").to_pylist() if "part" in table.column_names else [0] * len(rows)
    return {row: why for row, part, why in zip(rows, parts, left_out, strict=True) if not part}


def without_left_out(
    results: pa.Table, left_out: Mapping[int, str | None], forgotten: Sequence[Tombstones]
) -> tuple[pa.Table, list[tuple[str, str | None, str]]]:
    """Return what became of log rows, some of which are left out.

    Args:
        results: Of a bucket, in the order of the rows; see `pipelines.spill.RESULT`.
        left_out: Of `by_log_row`, of all rows that gave something.
        forgotten: In force, see `Keeping`.

    Returns:
        `results` with `empty` and the reason of rows that are left out; and of each of those the outcome and the reason
        that it had before, and its reason now. Of a refused row nobody knows when it was said: a forgotten namespace
        keeps no raw text of any.
    """
    rows, changes = results.to_pylist(), []
    giving = [row for row in rows if row["outcome"] in ("ok", "partial")]
    for row, number in zip(giving, sorted(left_out), strict=True):
        why = left_out[number]
        if why is not None:
            changes.append((row["outcome"], row["reason"], why))
            row.update(outcome="empty", reason=why)
    for row in rows:
        if any(one.forgets(row["namespace"]) for one in forgotten):
            row["raw"] = None
    return pa.Table.from_pylist(rows, schema=results.schema), changes
