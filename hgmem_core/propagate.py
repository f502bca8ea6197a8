"""Embedding propagation over hyperedges (HyperMem, section on indexing).

For a hyperedge e with members u and weights w: α_{e,u} = exp(w_{e,u}) / Σ_v exp(w_{e,v}) and h_e = Σ_u α_{e,u} h_u.
Then, once and for all nodes at the same time, from their original vectors: h'_v = h_v + λ · Agg_{e ∋ v} h_e, where Agg
is the sum or the mean over the hyperedges that hold v. A node in no hyperedge keeps its vector.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.lexical import Floats, Ints
from hgmem_core.schemas import conform, embedding_schema
from hgmem_core.vector_rows import NO_VECTOR, rows_of_vectors

PROPAGATE_REVISION = 1
"""Raised when equal vectors and incidences give other propagated vectors."""


def hyperedge_sums(
    vectors: Floats, edges: Ints, members: Ints, weights: npt.NDArray[np.floating], mean: bool = False
) -> Floats:
    """Return Agg_{e ∋ v} h_e for every node: float32 `[n, d]`, zeros for a node in no hyperedge.

    Args:
        vectors: Of the nodes, float32 `[n, d]`.
        edges: For each incidence the number of its hyperedge, int64 `[m]`; any numbers from 0 on.
        members: For each incidence the row of its node, int64 `[m]`.
        weights: For each incidence its weight, `[m]`, in [0, 1].
        mean: Whether a node of several hyperedges takes their mean instead of their sum.
    """
    if not len(edges):
        return np.zeros(vectors.shape, np.float32)
    count = int(edges.max()) + 1
    exponentials = np.exp(np.asarray(weights, np.float64))
    alphas = exponentials / np.bincount(edges, weights=exponentials, minlength=count)[edges]
    edge_vectors = _sum_by(edges, (alphas[:, None] * vectors[members]), count)
    sums = _sum_by(members, edge_vectors[edges], len(vectors))
    if mean:
        sums /= np.maximum(np.bincount(members, minlength=len(vectors)), 1)[:, None]
    return sums.astype(np.float32)


def _sum_by(group: Ints, rows: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Return the sum of the rows of each group, float64 `[count, d]`."""
    sums = np.zeros((count, rows.shape[1]))
    order = np.argsort(group, kind="stable")
    present, first = np.unique(group[order], return_index=True)
    sums[present] = np.add.reduceat(rows[order], first, axis=0)
    return sums


def propagate(
    embeddings: pa.Table, incidences: pa.Table, weight: float, aggregation: Literal["sum", "mean"]
) -> pa.Table:
    """Return EMBEDDING rows of variant `propagated` for every node of `embeddings`; not normalised.

    Args:
        embeddings: EMBEDDING of variant `base`; node ids are unique across levels.
        incidences: INCIDENCE; members without a vector are left out and the others' α sum to one without them.
        weight: λ.
        aggregation: Agg.
    """
    dimension = embeddings.schema.field("vector").type.list_size
    rows, vectors = rows_of_vectors(incidences.column("node_id"), embeddings)
    known = incidences.filter(pa.array(rows != NO_VECTOR))
    members = rows[rows != NO_VECTOR]
    names = pa.chunked_array([known.column("hyperedge_id").combine_chunks()]).combine_chunks()
    edges = np.asarray(names.dictionary_encode().indices.to_numpy(), np.int64) if len(names) else members
    sums = hyperedge_sums(vectors, edges, members, known.column("weight").to_numpy(), aggregation == "mean")
    moved = (vectors + np.float32(weight) * sums).astype(np.float32)
    place = embeddings.column_names.index("vector")
    values = pa.FixedSizeListArray.from_arrays(pa.array(moved.reshape(-1)), dimension)
    result = embeddings.set_column(place, "vector", values)
    place = embeddings.column_names.index("variant")
    result = result.set_column(place, "variant", pa.array(["propagated"] * len(moved), pa.large_string()))
    return conform(result, embedding_schema(dimension))
