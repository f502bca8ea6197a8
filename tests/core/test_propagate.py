import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.propagate import propagate
from hgmem_core.schemas import INCIDENCE, conform, embedding_schema
from hgmem_core.vector_rows import vectors_of

DIMENSION = 3


def embeddings(vectors):
    rows = [
        {"namespace": "n", "level": "fact", "node_id": node, "variant": "base", "vector": vector}
        for node, vector in vectors.items()
    ]
    return conform(pa.Table.from_pylist(rows, embedding_schema(DIMENSION).arrow), embedding_schema(DIMENSION))


def incidences(members):
    rows = [
        {"namespace": "n", "kind": "episode", "hyperedge_id": edge, "node_id": node, "weight": weight}
        | {"node_kind": "fact", "role": "core"}
        for (edge, node), weight in members.items()
    ]
    return conform(pa.Table.from_pylist(rows, INCIDENCE.arrow), INCIDENCE)


def by_loop(vectors, members, weight, mean):
    """The paper's formulas, one node and one hyperedge at a time."""
    edges = {}
    for (edge, node), own in members.items():
        if node in vectors:
            edges.setdefault(edge, {})[node] = own
    edge_vector = {}
    for edge, weights in edges.items():
        total = sum(math.exp(own) for own in weights.values())
        edge_vector[edge] = sum(np.array(vectors[node]) * math.exp(own) / total for node, own in weights.items())
    moved = {}
    for node, vector in vectors.items():
        around = [edge_vector[edge] for edge, weights in edges.items() if node in weights]
        total = sum(around, np.zeros(DIMENSION))
        moved[node] = np.array(vector) + weight * (total / len(around) if mean and around else total)
    return moved


nodes = st.sampled_from("abcdef")
floats = st.floats(-1, 1, width=32)


@given(
    st.dictionaries(nodes, st.lists(floats, min_size=DIMENSION, max_size=DIMENSION), min_size=1),
    st.dictionaries(st.tuples(st.sampled_from("xyz"), nodes), st.floats(0, 1, width=32), max_size=12),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
)
def test_propagation_equals_the_formulas_written_out(vectors, members, weight, mean):
    result = propagate(embeddings(vectors), incidences(members), weight, "mean" if mean else "sum")
    expected = by_loop(vectors, members, weight, mean)
    found = dict(zip(result.column("node_id").to_pylist(), vectors_of(result), strict=True))
    assert found.keys() == expected.keys()
    for node, vector in expected.items():
        np.testing.assert_allclose(found[node], vector, atol=1e-5)
    assert set(result.column("variant").to_pylist()) == {"propagated"}


def test_a_lone_member_keeps_its_direction_and_weights_pull():
    vectors = {"a": [1, 0, 0], "b": [0, 1, 0], "c": [0, 0, 1]}
    alone = vectors_of(propagate(embeddings(vectors), incidences({("x", "a"): 0.2}), 0.5, "sum"))
    np.testing.assert_allclose(alone, [[1.5, 0, 0], [0, 1, 0], [0, 0, 1]])
    heavy = vectors_of(propagate(embeddings(vectors), incidences({("x", "a"): 1.0, ("x", "b"): 0.0}), 1.0, "sum"))
    assert heavy[1, 0] == pytest.approx(math.e / (1 + math.e))
    assert heavy[0, 1] == pytest.approx(1 / (1 + math.e))
