"""Log rows that are imported after somebody asked to forget what they say: nothing is kept of them but that."""

from collections.abc import Mapping

import pyarrow as pa

from hgmem_core.tombstones import FORGOTTEN, Mask, Tombstones


def kept_by_row(table: pa.Table, numbers: str, kept: Mask) -> dict[int, bool]:
    """Return for each log row that gave something whether that is kept, by the number that it was given.

    Args:
        table: MESSAGE or TRAJECTORY rows.
        numbers: The column of their numbers.
        kept: Which of them are kept, bool `[rows]`.
    """
    rows = table.column(numbers).to_pylist()
    parts = table.column("part").to_pylist() if "part" in table.column_names else [0] * len(rows)
    return {row: is_kept for row, part, is_kept in zip(rows, parts, kept.tolist(), strict=True) if not part}


def without_forgotten(
    results: pa.Table, kept: Mapping[int, bool], tombstones: Tombstones
) -> tuple[pa.Table, list[tuple[str, str | None]]]:
    """Return what became of log rows once tombstones are looked at.

    Args:
        results: Of a bucket, in the order of the rows; see `pipelines.spill.RESULT`.
        kept: Of `kept_by_row`, of all rows that gave something.
        tombstones: In force.

    Returns:
        `results` with `empty` and the reason of rows that are forgotten, and the outcome and the reason that each of
        those had before. Of a refused row nobody knows when it was said: a forgotten namespace keeps no raw
        text of any.
    """
    rows, before = results.to_pylist(), []
    giving = [row for row in rows if row["outcome"] in ("ok", "partial")]
    for row, number in zip(giving, sorted(kept), strict=True):
        if not kept[number]:
            before.append((row["outcome"], row["reason"]))
            row.update(outcome="empty", reason=FORGOTTEN)
    for row in rows:
        if tombstones.forgets(row["namespace"]):
            row["raw"] = None
    return pa.Table.from_pylist(rows, schema=results.schema), before
