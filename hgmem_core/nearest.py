"""The nearest neighbours of every vector of a namespace by cosine, in blocks, so that memory stays small."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats, Ints

Mask = npt.NDArray[np.bool_]

MOST_COMPARED = 1 << 13
"""Up to so many vectors, all are compared with all."""

_BLOCK = 512
"""Rows that are compared at a time, and the most vectors of a cell."""
_PROBES = 16
"""Cells that a vector is compared with."""
_ROUNDS = 3
_STEP = 2.0**-17
"""Cosines that differ by less may count as equal. With 18 bits for a cosine and 13 for a number, one integer of 32
bits orders both."""
_LAST = int(np.iinfo(np.int64).max)


def nearest(vectors: Floats, count: int) -> Ints:
    """Return the numbers of the `count` nearest others of each vector, nearest first, ties by number.

    Beyond `MOST_COMPARED` vectors it is an approximation: they are put into cells (k-means from evenly spread vectors,
    cells of more than 512 cut), and each is compared with those of the 16 cells whose middles are nearest to it.

    Args:
        vectors: Of unit length, float32 `[n, d]`.
        count: At least 1.

    Returns:
        int64 `[n, count]`, -1 where there are not so many.
    """
    every = np.arange(len(vectors))
    keys = np.full((len(vectors), count + 1), _LAST)
    if len(vectors) <= MOST_COMPARED:
        for rows in _runs(len(vectors)):
            found = _keys(vectors[rows], vectors, every, count + 1)
            keys[rows, : found.shape[1]] = found
    else:
        keys = _keys_of_cells(vectors, count + 1)
    numbers = np.where(keys == _LAST, -1, keys & 0xFFFF_FFFF)
    # A vector is among its own nearest, unless there are so many equal ones that it comes after them.
    own = numbers == every[:, None]
    own[~own.any(axis=1), -1] = True
    others: Ints = numbers[~own].reshape(len(vectors), count)
    return others


def _keys(queries: Floats, vectors: Floats, numbers: Ints, count: int) -> Ints:
    """Return for each query the `count` nearest vectors, nearest first: int64, the cosine's order above the number."""
    keys = (queries @ vectors.T * np.float32(-1 / _STEP)).astype(np.int32)
    keys <<= 13
    keys |= np.arange(len(vectors), dtype=np.int32)
    if count < len(vectors):
        keys = np.partition(keys, count - 1, axis=1)[:, :count]
    keys.sort(axis=1)
    wide: Ints = (keys.astype(np.int64) >> 13 << 32) | numbers[keys & (MOST_COMPARED - 1)]
    return wide


def _keys_of_cells(vectors: Floats, count: int) -> Ints:
    cells = _cells(vectors)
    middles = np.stack([_unit(vectors[cell].mean(axis=0)) for cell in cells])
    some = min(_PROBES, len(cells))
    probes = np.concatenate(
        [_keys(vectors[rows], middles, np.arange(len(cells)), some) & 0xFFFF_FFFF for rows in _runs(len(vectors))]
    )
    keys = np.full((len(vectors), some * count), _LAST)
    order = np.argsort(probes.ravel(), kind="stable")
    bounds = np.searchsorted(probes.ravel()[order], np.arange(len(cells) + 1))
    for cell, first, last in zip(cells, bounds[:-1], bounds[1:], strict=True):
        for start in range(first, last, _BLOCK):
            rows, probe = np.divmod(order[start : min(start + _BLOCK, last)], some)
            found = _keys(vectors[rows], vectors[cell], cell, count)
            keys[rows[:, None], (probe * count)[:, None] + np.arange(found.shape[1])] = found
    return np.sort(np.partition(keys, count - 1, axis=1)[:, :count], axis=1)


def _cells(vectors: Floats) -> list[Ints]:
    middles = vectors[:: int(len(vectors) ** 0.5)]
    for _ in range(_ROUNDS):
        own = np.concatenate([(vectors[rows] @ middles.T).argmax(axis=1) for rows in _runs(len(vectors))])
        order = np.argsort(own, kind="stable")
        _, starts = np.unique(own[order], return_index=True)
        middles = _unit(np.add.reduceat(vectors[order], starts, axis=0))
    cells = np.split(order, starts[1:])
    return [cell[start : start + _BLOCK] for cell in cells for start in range(0, len(cell), _BLOCK)]


def _runs(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _unit(vectors: Floats) -> Floats:
    units: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return units


def nearest_in_namespaces(vectors: Floats, present: Mask, namespace: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """Return for each vector its nearest others of the same namespace: sources, targets and ranks from 1, int64 `[n]`.

    Args:
        vectors: float32 `[rows, d]`, of unit length where `present`.
        present: Which rows have a vector, bool `[rows]`.
        namespace: The number of each row's namespace, int64 `[rows]`, rising.
        count: How many others.
    """
    rows = np.flatnonzero(present)
    sources, targets, ranks = [rows[:0]], [rows[:0]], [rows[:0]]
    for own in np.split(rows, np.flatnonzero(np.diff(namespace[rows])) + 1):
        near = nearest(vectors[own], count)
        source, place = np.nonzero(near >= 0)
        sources.append(own[source])
        targets.append(own[near[source, place]])
        ranks.append(place + 1)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(ranks)


def pair_cosines(vectors: Floats, one: Ints, other: Ints) -> Floats:
    """Return the cosine of each pair of rows, float32 `[n]`.

    Args:
        vectors: Of unit length, or zero: then so is the cosine; float32 `[rows, d]`.
        one: Rows, int64 `[n]`.
        other: The same.
    """
    cosines = np.empty(len(one), np.float32)
    for some in _runs(len(one)):
        np.einsum("nd,nd->n", vectors[one[some]], vectors[other[some]], out=cosines[some])
    return cosines
