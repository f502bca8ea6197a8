"""Where the vectors of nodes are: EMBEDDING rows as one matrix, and the row of each node."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NO_VECTOR = -1


def rows_of_vectors(
    nodes: pa.ChunkedArray, embeddings: pa.Table, level: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the row of each node's vector, `NO_VECTOR` where it has none, and the matrix of all vectors.

    Args:
        nodes: Ids of nodes; each names one node, whatever its namespace.
        embeddings: EMBEDDING; only the variant `base` is read.
        level: The level of the nodes.
    """
    wanted = pc.and_(pc.equal(embeddings.column("level"), level), pc.equal(embeddings.column("variant"), "base"))
    kept = embeddings.filter(wanted)
    values = kept.column("vector").combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # an empty column stays chunked
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    found = pc.index_in(nodes, value_set=kept.column("node_id").combine_chunks())
    rows = pc.fill_null(found, NO_VECTOR).to_numpy().astype(np.int64)
    return rows, values.flatten().to_numpy().reshape(-1, values.type.list_size)
