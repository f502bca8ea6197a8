"""Exact search by cosine in blocks: pairs that are similar enough, and the most similar rows.

Products of blocks only propose; what decides is each pair's own cosine, which does not depend on what it is computed
beside. So many queries at once are answered as each alone, and a threshold is met by the same pairs.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Ints

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]

_ROUNDING = 1e-5
"""By how much the product of a block may differ from the pair's own cosine."""
_QUERIES = 256
_ROWS = 1 << 16


def row_cosines(one: Matrix, one_rows: Ints, other: Matrix, other_rows: Ints) -> Matrix:
    """Return the cosine of row `one_rows[i]` of `one` and row `other_rows[i]` of `other` for each i, `[n]`.

    Vectors are of unit length, or zero: then so is the cosine.
    """
    cosines = np.empty(len(one_rows), np.result_type(one, other))
    for start in range(0, len(one_rows), _ROWS):
        some = slice(start, start + _ROWS)
        np.einsum("nd,nd->n", one[one_rows[some]], other[other_rows[some]], out=cosines[some])
    return cosines


def similar_pairs(queries: Matrix, vectors: Matrix, floor: float) -> Iterator[tuple[Ints, Ints, Matrix]]:
    """Yield, a block at a time, the pairs whose cosine is at least `floor`: rows of both sides, and the cosines.

    Args:
        queries: Of unit length or zero, `[q, d]`.
        vectors: The same, `[n, d]`.
        floor: The cosine of a pair that just counts is `floor` in the type of the vectors.
    """
    for start in range(0, len(queries), _QUERIES):
        block = queries[start : start + _QUERIES]
        for first in range(0, len(vectors), _ROWS):
            near = block @ vectors[first : first + _ROWS].T >= floor - _ROUNDING
            one, other = _where(near)
            cosines = row_cosines(block, one, vectors, other + first)
            kept = cosines >= floor
            if kept.any():
                yield one[kept] + start, other[kept] + first, cosines[kept]


def most_similar(queries: Matrix, vectors: Matrix, count: int, ranks: Ints, limits: Ints) -> Ints:
    """Return the rows of the `count` vectors most similar to each query, the most similar first.

    Args:
        queries: Of unit length, or zero: then nothing is similar to it; `[q, d]`.
        vectors: Of unit length or zero, `[n, d]`.
        count: How many.
        ranks: Equally similar vectors come in this order, int64 `[n]`.
        limits: A query sees the first `limits[q]` vectors, int64 `[q]`.

    Returns:
        int64 `[q, count]`, -1 where there are not so many.
    """
    found = np.full((len(queries), count), -1)
    limits = np.where(queries.any(axis=1), limits, 0)
    if not count or not len(vectors):
        return found
    for start in range(0, len(queries), _QUERIES):
        some = slice(start, start + _QUERIES)
        block = queries[some]
        one, other = _proposed(block, vectors, count, limits[some])
        cosines = row_cosines(block, one, vectors, other)
        order = np.lexsort((ranks[other], -cosines, one))
        place = places(one[order])
        best = place < count
        found[one[order][best] + start, place[best]] = other[order][best]
    return found


def _proposed(block: Matrix, vectors: Matrix, count: int, limits: Ints) -> tuple[Ints, Ints]:
    """Return pairs of a query and a row, among them the `count` most similar ones of each query."""
    best = np.full((len(block), count), -np.inf, block.dtype)
    parts: list[tuple[Ints, Ints, Matrix]] = []
    fewest, most = int(limits.min()), int(limits.max())
    for first in range(0, most, _ROWS):
        stop = min(first + _ROWS, most)
        products = block @ vectors[first:stop].T
        unseen = products[:, max(fewest - first, 0) :]
        unseen[np.arange(stop - unseen.shape[1], stop) >= limits[:, None]] = -np.inf
        best = np.partition(np.concatenate([best, products], axis=1), -count, axis=1)[:, -count:]
        near = products >= np.maximum(best.min(axis=1) - _ROUNDING, np.finfo(block.dtype).min)[:, None]
        one, other = _where(near)
        parts.append((one, other + first, products[one, other]))
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    one, other, near_by = (np.concatenate(part) for part in zip(*parts, strict=True))
    kept = near_by >= best.min(axis=1)[one] - _ROUNDING
    return one[kept], other[kept]


def _where(mask: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the rows and columns of what is true, by rows: where little is, far faster than `np.nonzero`."""
    rows, columns = np.divmod(np.flatnonzero(mask), max(mask.shape[1], 1))
    return rows, columns


def places(groups: npt.NDArray[Any]) -> Ints:
    """Return the place of each entry among those of its group, from 0; entries of a group lie together.

    >>> places(np.array([4, 4, 7, 4])).tolist()
    [0, 1, 0, 0]
    """
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)])
    sizes = np.diff(np.concatenate([starts, [len(groups)]]))
    within: Ints = np.arange(len(groups)) - np.repeat(starts, sizes)
    return within
