"""Vectors of large namespaces: beside the flat rows an IVF index in shards, which tells what rows are worth a look.

What a search finds there is an approximation of the order only: the rows that come out are scored exactly, from the
flat rows. The shards of a namespace share their centroids, and every row is known by its place in the namespace, so
the lists that a query reads, and what it finds in them, are the same for any number of shards.

How many lists are read is chosen when the index is built, as the fewest with which a sample of queries surely finds at
least `RECALL` of its ten nearest rows. Where no reasonable number does, there is no IVF index and all rows are scored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hgmem_core.dense import IvfVectors, Mask, Rows, Vectors, fill_ivf, load_ivf, train_ivf

SHARD_ROWS = 1 << 20
"""The most rows in one file."""

RECALL = 0.98
"""The least share of the ten nearest rows that a search is to find."""

_NEAREST = 10
_QUERIES = 256
"""In the sample by which recall is measured."""
_CANDIDATES = 100
"""Rows of the sample's queries that are scored exactly; the recipes take as many or more."""
_SURE = 1.96
"""Standard errors by which the sample must do better than `RECALL`."""
_ROUNDING = 1e-5
"""Of inner products: within it, rows are equally near."""

_FEWEST_LISTS = 8
_TRAINING_ROWS = 64
_FEWEST_TRAINING_ROWS = 39
"""A list; with fewer, FAISS warns that its centroids mean little."""
_BLOCK_ROWS = 1 << 16
"""Worked on at a time, so that a build needs little memory besides the vectors."""

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


def build_ivf(vectors: Vectors, shard_rows: int = SHARD_ROWS) -> Ivf:
    """Build and measure an IVF index of the directions of `vectors` `[n, d]`; rows of zeros are left out.

    Everything random is seeded: equal vectors give equal bytes.
    """
    present = np.flatnonzero(vectors.any(axis=1))
    lists = _lists_of(len(present))
    if lists < _FEWEST_LISTS:
        return Ivf(len(vectors), 0, 0, 0.0, (), f"{len(present)} vectors are too few to train on")
    random = np.random.default_rng(0)
    chosen = np.sort(random.choice(present, min(len(present), _TRAINING_ROWS * lists), replace=False))
    trained = train_ivf(_directions(vectors[chosen]), lists)
    shards = tuple(
        fill_ivf(trained, _blocks(vectors, present[(present >= first) & (present < first + shard_rows)]))
        for first in range(0, len(vectors), shard_rows)
    )
    opened = Shards([load_ivf(shard) for shard in shards], 1)
    queries = _sample(vectors, present, random)
    least = _nearest_products(vectors, present, queries)
    recall = np.zeros(len(queries), np.float32)
    probed = 1
    while probed <= lists // 2:
        recall = _recall(vectors, opened, queries, least, probed)
        if recall.mean() - _SURE * recall.std() / len(queries) ** 0.5 >= RECALL:
            return Ivf(len(vectors), lists, probed, round(float(recall.mean()), 4), shards)
        probed *= 2
    why = f"with half of the lists a sample of queries finds {recall.mean():.3f} of the nearest rows, not {RECALL}"
    return Ivf(len(vectors), lists, lists // 2, round(float(recall.mean()), 4), (), why)


def _lists_of(rows: int) -> int:
    """Return how many lists suit some rows: a power of two near twice their square root, with enough to train on."""
    return 1 << max(int(min(2.8 * rows**0.5, rows / _FEWEST_TRAINING_ROWS)).bit_length() - 1, 0)


def _directions(vectors: Vectors) -> Vectors:
    directions: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return directions


def _blocks(vectors: Vectors, rows: Rows) -> Iterator[tuple[Rows, Vectors]]:
    for start in range(0, len(rows), _BLOCK_ROWS):
        some = rows[start : start + _BLOCK_ROWS]
        yield some, _directions(vectors[some])


def _sample(vectors: Vectors, present: Rows, random: np.random.Generator) -> Vectors:
    """Return queries: each lies near a row, but between it, another one and a direction of chance.

    A row itself is in the list that is read first, which says nothing of a question that no row answers word for word.
    """
    one, other = (_directions(vectors[random.choice(present, _QUERIES)]) for _ in range(2))
    chance = _directions(random.standard_normal(one.shape, np.float32))
    return np.ascontiguousarray(_directions(one + np.float32(0.4) * other + np.float32(0.6) * chance))


def _nearest_products(vectors: Vectors, present: Rows, queries: Vectors) -> Vectors:
    """Return the tenth largest inner product of each query with a direction."""
    best = np.full((len(queries), _NEAREST), -np.inf, np.float32)
    for _, block in _blocks(vectors, present):
        found = np.concatenate([best, queries @ block.T], axis=1)
        best = np.partition(found, -_NEAREST, axis=1)[:, -_NEAREST:]
    least: Vectors = best.min(axis=1)
    return least


def _recall(vectors: Vectors, shards: "Shards", queries: Vectors, least: Vectors, probed: int) -> Vectors:
    """Return which share of the ten nearest rows each query finds; of equally near rows any will do."""
    found = shards.search(queries, _CANDIDATES, probed, None)
    hits = [
        (_directions(vectors[rows]) @ query >= bound - _ROUNDING).sum()
        for rows, query, bound in zip(found, queries, least, strict=True)
    ]
    return np.minimum(np.array(hits, np.float32) / _NEAREST, 1)


class Shards:
    """The IVF index of the rows of one level of a namespace, opened."""

    def __init__(self, shards: Sequence[IvfVectors], probed: int) -> None:
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
