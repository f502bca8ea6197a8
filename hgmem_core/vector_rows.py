"""Where the vectors of nodes are: EMBEDDING rows as a matrix, in their own order or in that of other rows."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NO_VECTOR = -1

Vectors = npt.NDArray[np.float32]


def vectors_of(embeddings: pa.Table) -> Vectors:
    """Return the vectors of EMBEDDING rows as float32 `[n, d]`, in their order."""
    dimension = embeddings.schema.field("vector").type.list_size
    column = embeddings.column("vector").combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an empty column stays chunked
        return np.zeros((0, dimension), np.float32)
    return np.asarray(column.flatten().to_numpy(), np.float32).reshape(-1, dimension)


def rows_of_vectors(nodes: pa.ChunkedArray, embeddings: pa.Table) -> tuple[npt.NDArray[np.int64], Vectors]:
    """Return the row of each node's vector, `NO_VECTOR` where it has none, and the matrix of all vectors.

    Args:
        nodes: Ids of nodes; each names one node, whatever its namespace.
        embeddings: EMBEDDING of one variant.
    """
    found = pc.index_in(nodes, value_set=embeddings.column("node_id").combine_chunks())
    return pc.fill_null(found, NO_VECTOR).to_numpy().astype(np.int64), vectors_of(embeddings)


def aligned_vectors(nodes: pa.ChunkedArray, embeddings: pa.Table) -> tuple[Vectors, npt.NDArray[np.bool_]]:
    """Return one vector a node, float32 `[n, d]`, zeros where it has none, and which nodes have one."""
    rows, vectors = rows_of_vectors(nodes, embeddings)
    found = rows != NO_VECTOR
    aligned = np.zeros((len(rows), vectors.shape[1]), np.float32)
    aligned[found] = vectors[rows[found]]
    return aligned, found
