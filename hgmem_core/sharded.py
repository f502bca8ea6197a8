"""Vectors of large namespaces: beside the flat rows an IVF index in shards, which tells what rows are worth a look.

What a search finds there is an approximation of the order only: the rows that come out are scored exactly, from the
flat rows. The shards of a namespace share their centroids, and every row is known by its place in the namespace, so
the lists that a query reads, and what it finds in them, are the same for any number of shards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EXACT_ROWS = 10_000
"""So few rows that pass a filter are all scored."""


@dataclass(frozen=True, slots=True)
class Ivf:
    """An IVF index of some rows as it was built, or why there is none.

    Attributes:
        rows: How many rows there are, those without a vector too.
        lists: Of the index; 0 without one.
        probed: Lists that a query reads.
        recall: The share of the ten nearest rows found so, on average over a sample of queries.
        shards: FAISS files, for at most `SHARD_ROWS` rows each; none where all rows are to be scored.
        flat_because: Why there are none, else None.
    """

    rows: int
    lists: int
    probed: int
    recall: float
    shards: tuple[bytes, ...]
    flat_because: str | None = None

    def about(self) -> dict[str, Any]:
        """Return what a manifest is to say of it."""
        measured = {"rows": self.rows, "lists": self.lists, "probed": self.probed, "recall": self.recall}
        return measured | ({} if self.flat_because is None else {"flat_because": self.flat_because})

    @classmethod
    def of(cls, about: Mapping[str, Any], shards: Sequence[bytes]) -> "Ivf":
        """Make it again of what a manifest says and its files."""
        rows, lists, probed, recall = (about[name] for name in ("rows", "lists", "probed", "recall"))
        return cls(rows, lists, probed, recall, tuple(shards), about.get("flat_because"))


class Shard(Protocol):
    """Some rows in inverted lists."""

    @property
    def lists(self) -> int:
        """Into how many lists the rows are divided."""
        ...

    def search(self, queries: Vectors, count: int, probed: int, passes: Mask | None) -> list[tuple[Rows, Vectors]]:
        """Return at most `count` rows of each query with their approximate products; see `hgmem_core.dense`."""
        ...


class Shards:
    """The IVF index of the rows of one level of a namespace, opened."""

    def __init__(self, shards: Sequence[Shard], probed: int) -> None:
        """Take its shards, and how many lists a query reads."""
        self._shards = shards
        self._probed = probed

    def nearest(self, query: Vectors, count: int, passes: Mask | None) -> Rows:
        """Return about the `count` rows nearest to a unit `query` `[d]` of those that pass, ascending.

        Few rows that pass are all returned. Of many, about as many are read as without a filter: the fewer pass, the
        more lists. Fewer than `count` rows are returned only where fewer pass.
        """
        probed = self._probed
        if passes is not None:
            passing = int(np.count_nonzero(passes))
            if passing <= max(EXACT_ROWS, count):
                return np.flatnonzero(passes)
            probed = -(-probed * len(passes) // passing)
        lists = self._shards[0].lists
        given = np.ascontiguousarray(query[None], np.float32)
        while True:
            [rows] = self.search(given, count, min(probed, lists), passes)
            if len(rows) >= count or probed >= lists:
                return np.sort(rows)
            probed *= 2

    def search(self, queries: Vectors, count: int, probed: int, passes: Mask | None) -> list[Rows]:
        """Ask every shard, and return the best `count` rows of each query, best first, equal ones by number."""
        answers = [shard.search(queries, count, probed, passes) for shard in self._shards]
        return [_merged(found, count) for found in zip(*answers, strict=True)]


def _merged(found: Sequence[tuple[Rows, Vectors]], count: int) -> Rows:
    rows, products = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows[np.lexsort((rows, -products))[:count]]


class VectorRows(Protocol):
    """The vectors of a bucket, wherever they are kept."""

    def products(self, query: Vectors, start: int, stop: int) -> Vectors:
        """Return the inner products of rows `start` to `stop` - 1 with `query`, float32 `[stop - start]`."""
        ...

    def products_of(self, query: Vectors, rows: Rows) -> Vectors:
        """Return the same for some rows, float32 `[len(rows)]`."""
        ...

    def vectors(self, rows: Rows) -> Vectors:
        """Return the vectors of some rows, float32 `[len(rows), dimension]`."""
        ...


class ShardedVectors:
    """The flat vectors of a bucket, with the IVF indexes of those ranges of rows that have one."""

    def __init__(self, flat: VectorRows, shards: Mapping[tuple[int, int], Shards]) -> None:
        """Take the vectors, and the index of the rows from one number to below another."""
        self._flat = flat
        self._shards = shards

    def products(self, query: Vectors, start: int, stop: int) -> Vectors:
        """Return the inner products of rows `start` to `stop` - 1 with `query`, float32 `[stop - start]`."""
        return self._flat.products(query, start, stop)

    def products_of(self, query: Vectors, rows: Rows) -> Vectors:
        """Return the same for some rows, float32 `[len(rows)]`."""
        return self._flat.products_of(query, rows)

    def vectors(self, rows: Rows) -> Vectors:
        """Return the vectors of some rows, float32 `[len(rows), dimension]`."""
        return self._flat.vectors(rows)

    def has_shards(self, start: int, stop: int) -> bool:
        """Tell whether there is an IVF index of exactly these rows."""
        return (start, stop) in self._shards

    def nearest(self, query: Vectors, start: int, stop: int, count: int, passes: Mask | None) -> Rows:
        """Return about the `count` rows nearest to `query` of a range that has shards, ascending, as its places.

        Args:
            query: Float32 `[dimension]`.
            start: The first row of the range.
            stop: The row after its last.
            count: The most rows, except where a few pass and all of them are returned.
            passes: Which rows of the range may be found; None for all.
        """
        return self._shards[start, stop].nearest(query, count, passes)
