"""IVF indexes of large namespaces, built and measured; `hgmem_core.sharded` searches them.

How many lists a search reads is chosen here, as the fewest with which a sample of queries surely finds at least
`RECALL` of its ten nearest rows. Where no reasonable number does, there is no IVF index and all rows are scored.
"""

from collections.abc import Iterator

import numpy as np

from hgmem_core.dense import Rows, Vectors, fill_ivf, load_ivf, train_ivf
from hgmem_core.index import BucketIndex, LargeLevel, level_rows
from hgmem_core.sharded import Ivf, Shards

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
_TRAINING_ROWS = 40
_FEWEST_TRAINING_ROWS = 39
"""A list; with fewer, FAISS warns that its centroids mean little."""
_BLOCK_ROWS = 1 << 16
"""Worked on at a time, so that a build needs little memory besides the vectors."""


def large_levels(index: BucketIndex, ivf_from: int) -> tuple[LargeLevel, ...]:
    """Build the IVF indexes of those levels of a bucket's namespaces that have at least `ivf_from` rows."""
    return tuple(
        LargeLevel(namespace, name, level, build_ivf(getattr(index, name)[rows], getattr(index, _ENCODED[name])[rows]))
        for namespace, name, level, rows in level_rows(index.namespaces)
        if rows.stop - rows.start >= ivf_from
    )


_ENCODED = {"vectors": "vectors", "graph_vectors": "graph_vectors", "propagated_vectors": "graph_vectors"}
"""Of vectors, those of the same rows that the encoder made, as it does those of queries."""


def build_ivf(vectors: Vectors, encoded: Vectors, shard_rows: int = SHARD_ROWS) -> Ivf:
    """Build and measure an IVF index of the directions of some rows; everything random is seeded.

    Args:
        vectors: Float32 `[n, d]`; rows of zeros are left out.
        encoded: What the encoder made of the same rows, which tells where queries lie.
        shard_rows: The most rows of a shard.
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
    queries = _sample(encoded, present, random)
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


def _sample(encoded: Vectors, present: Rows, random: np.random.Generator) -> Vectors:
    """Return queries: a row each, moved by the difference of two others.

    A row itself would always be in the list that is read first. A question is as far from its answer, and as likely in
    any direction, as rows are from each other.
    """
    row, one, other = (_directions(encoded[random.choice(present, _QUERIES)]) for _ in range(3))
    return np.ascontiguousarray(_directions(row + one - other))


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
