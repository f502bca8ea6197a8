"""The owner of FAISS: the vectors of a bucket as one flat index on disk, searched where they lie in memory, and IVF.

A namespace is a contiguous range of rows, and all its similarities are needed (windows are sums of them), so a search
is one pass of FAISS's inner products over the range. The file's vectors are not aligned to four bytes, which FAISS
does not mind; numpy would copy them at every query.

Of large namespaces `hgmem_core.sharded` has IVF indexes besides, eight bits a number, whose ids are the rows' numbers.
The ids are IVF's own: an IDMap around an IVF index gives wrong ids after a removal.
"""

from collections.abc import Iterable

import faiss
import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SEED = 1
_ITERATIONS = 6
"""Of k-means."""


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
    index = _read(path)
    if not isinstance(index, faiss.IndexFlat):
        raise VectorError(f"{path} holds a {type(index).__name__}; expected a flat index")
    return FlatVectors(index)


class IvfVectors:
    """Rows of one shard in inverted lists, an approximation of each in eight bits a number."""

    def __init__(self, index: faiss.IndexIVF) -> None:
        """Keep the index, which owns the memory."""
        self._index = index

    @property
    def lists(self) -> int:
        """Into how many lists the rows are divided."""
        return int(self._index.nlist)

    def search(self, queries: Vectors, count: int, probed: int, passes: Mask | None) -> list[tuple[Rows, Vectors]]:
        """Return for each of the `queries` `[n, d]` at most `count` rows and about what their inner products are.

        Args:
            queries: Contiguous.
            count: The most rows of a query.
            probed: How many lists are read, the nearest ones.
            passes: Which rows may be found, by their numbers; None for all.
        """
        parameters = faiss.SearchParametersIVF()
        parameters.nprobe = probed
        if passes is not None:
            bits = np.packbits(passes, bitorder="little")
            # Kept by name: FAISS holds a bare pointer to it.
            selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg, arg-type]  # the stubs have C++'s
            parameters.sel = selector
        products, rows = self._index.search(queries, count, params=parameters)
        # Where there are fewer rows than `count`, FAISS says row -1 with the lowest of all floats.
        return [(found[found >= 0], scores[found >= 0]) for found, scores in zip(rows, products, strict=True)]


def train_ivf(sample: Vectors, lists: int) -> bytes:
    """Return an empty IVF index as bytes: centroids and ranges learned of a `sample` `[n, d]`, n at least 39 `lists`.

    Equal samples give equal bytes, whatever the number of threads.
    """
    dimension = sample.shape[1]
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimension), dimension, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.seed, index.cp.niter, index.cp.spherical = _SEED, _ITERATIONS, True
    index.cp.max_points_per_centroid = len(sample)  # it is a sample already
    index.train(np.ascontiguousarray(sample))
    return faiss.serialize_index(index).tobytes()


def fill_ivf(trained: bytes, parts: Iterable[tuple[Rows, Vectors]]) -> bytes:
    """Return a trained IVF index with rows in it, as bytes; `parts` are the rows' numbers and vectors."""
    index = faiss.deserialize_index(np.frombuffer(trained, np.uint8))
    for rows, vectors in parts:
        index.add_with_ids(np.ascontiguousarray(vectors), rows)
    return faiss.serialize_index(index).tobytes()


def load_ivf(content: bytes) -> IvfVectors:
    """Return the IVF index that `content` is."""
    return IvfVectors(faiss.deserialize_index(np.frombuffer(content, np.uint8)))  # type: ignore[arg-type]  # it is one


def open_ivf(path: str) -> IvfVectors:
    """Map an IVF index file into memory; lists are read when they are probed.

    Raises:
        VectorError: The file is no IVF index.
    """
    index = _read(path)
    if not isinstance(index, faiss.IndexIVF):
        raise VectorError(f"{path} holds a {type(index).__name__}; expected an IVF index")
    return IvfVectors(index)


def _read(path: str) -> faiss.Index:
    try:
        return faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise VectorError(f"{path} is not a readable FAISS index: {error}") from error
