"""The owner of FAISS: vectors of a bucket as one flat inner-product index, and back as a matrix.

A namespace is a contiguous range of rows, and all its similarities are needed (windows are sums of them), so a search
is one product of the memory-mapped matrix with the query; FAISS is the format on disk and the index above that size.
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


def open_faiss(path: str) -> Vectors:
    """Map a flat FAISS index file into memory and return its vectors, float32 `[n, d]`, read-only.

    The matrix keeps the index alive. Nothing is read before it is used.

    Raises:
        VectorError: The file is no flat FAISS index.
    """
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise VectorError(f"{path} is not a readable FAISS index: {error}") from error
    if not isinstance(index, faiss.IndexFlat):
        raise VectorError(f"{path} holds a {type(index).__name__}; expected a flat index")
    if index.ntotal == 0:
        return np.zeros((0, index.d), np.float32)
    return _FlatVectors.over(index)


class _FlatVectors(np.ndarray[tuple[int, int], np.dtype[np.float32]]):
    """A view of a FAISS index's own memory that keeps the index from being freed."""

    index: object

    @classmethod
    def over(cls, index: "faiss.IndexFlat") -> Vectors:
        matrix = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d).view(cls)
        matrix.index = index
        matrix.flags.writeable = False
        return matrix

    def __array_finalize__(self, source: object) -> None:
        self.index = getattr(source, "index", None)
