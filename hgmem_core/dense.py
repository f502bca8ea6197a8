"""The owner of FAISS: the vectors of a bucket as one flat index on disk, searched where they lie in memory.

A namespace is a contiguous range of rows, and all its similarities are needed (windows are sums of them), so a search
is one pass of FAISS's inner products over the range. The file's vectors are not aligned to four bytes, which FAISS
does not mind; numpy would copy them at every query.
"""

import faiss
import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class VectorError(ValueError):
    """Vectors that must not be indexed, or an index that holds none: says which rows or what is wrong."""


def to_faiss(vectors: Vectors) -> bytes:
    """Return a FAISS `IndexFlatIP` over float32 `[n, d]` as bytes; row i keeps number i.

    Raises:
        VectorError: A vector holds NaN or an infinity: FAISS would take it and never find it again.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise VectorError(f"rows {bad[:10].tolist()} of the vectors hold NaN or an infinity ({len(bad)} in all)")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, np.float32))
    return faiss.serialize_index(index).tobytes()


class FlatVectors:
    """The vectors of a flat FAISS index, float32 `[n, d]`, which may be mapped from a file."""

    def __init__(self, index: faiss.IndexFlat) -> None:
        """Keep the index, which owns the memory."""
        self._index = index
        values = index.ntotal * index.d
        self._matrix = faiss.rev_swig_ptr(index.get_xb(), values).reshape(index.ntotal, index.d) if values else None

    def __len__(self) -> int:
        """Count the vectors."""
        return int(self._index.ntotal)

    def products(self, query: Vectors, start: int, stop: int) -> Vectors:
        """Return the inner products of rows `start` to `stop` - 1 with `query` `[d]`: float32 `[stop - start]`.

        Raises:
            VectorError: The query has another dimension.
        """
        given = self._checked(query)
        if self._matrix is None or stop <= start:
            return np.zeros(stop - start, np.float32)
        return _inner_products(given, self._matrix[start:stop])

    def products_of(self, query: Vectors, rows: npt.NDArray[np.int64]) -> Vectors:
        """Return the inner products of some rows, of which others are not read: float32 `[len(rows)]`.

        Raises:
            VectorError: The query has another dimension.
        """
        given = self._checked(query)
        if self._matrix is None or not len(rows):
            return np.zeros(len(rows), np.float32)
        # Copied, since FAISS's own kernel for rows by number shares the work among threads that wait for each other.
        return _inner_products(given, self._matrix[rows])

    def vectors(self, rows: npt.NDArray[np.int64]) -> Vectors:
        """Return the vectors of some rows, float32 `[len(rows), d]`."""
        return np.zeros((len(rows), self._index.d), np.float32) if self._matrix is None else self._matrix[rows]

    def _checked(self, query: Vectors) -> Vectors:
        if query.shape != (self._index.d,):
            raise VectorError(f"the query vector has shape {query.shape}; the index has {self._index.d} dimensions")
        return np.ascontiguousarray(query, np.float32)

    def copy(self) -> Vectors:
        """Return all vectors as an array of its own."""
        return np.zeros((0, self._index.d), np.float32) if self._matrix is None else self._matrix.copy()


def _inner_products(query: Vectors, rows: Vectors) -> Vectors:
    """Return the inner products of contiguous `rows` `[n, d]`, aligned or not, with `query` `[d]`, n > 0."""
    products = np.zeros(len(rows), np.float32)
    inner_products = faiss.fvec_inner_products_ny  # type: ignore[attr-defined]  # not in FAISS's stubs
    inner_products(faiss.swig_ptr(products), faiss.swig_ptr(query), faiss.swig_ptr(rows), len(query), len(rows))
    return products


def open_faiss(path: str) -> FlatVectors:
    """Map a flat FAISS index file into memory; nothing is read before it is used.

    Raises:
        VectorError: The file is no flat FAISS index.
    """
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise VectorError(f"{path} is not a readable FAISS index: {error}") from error
    if not isinstance(index, faiss.IndexFlat):
        raise VectorError(f"{path} holds a {type(index).__name__}; expected a flat index")
    return FlatVectors(index)
