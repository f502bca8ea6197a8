import gc

import faiss
import numpy as np
import pytest

from hgmem_core.dense import VectorError, open_faiss, to_faiss

VECTORS = np.random.default_rng(0).standard_normal((50, 24)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "turn.faiss").write_bytes(to_faiss(VECTORS))
    return str(tmp_path / "turn.faiss")


def test_products_of_a_range_equal_the_matrix_product(path):
    vectors = open_faiss(path)
    gc.collect()
    for start, stop in ((0, 50), (7, 31), (12, 12)):
        expected = VECTORS[start:stop] @ VECTORS[3]
        np.testing.assert_allclose(vectors.products(VECTORS[3], start, stop), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(vectors.copy(), VECTORS)
    assert len(vectors) == 50


def test_products_of_some_rows_are_those_of_the_range(path):
    vectors = open_faiss(path)
    every = vectors.products(VECTORS[3], 0, 50)
    for rows in ([4, 0, 49, 4], [], list(range(50))):
        assert vectors.products_of(VECTORS[3], np.array(rows, np.int64)).tolist() == every[rows].tolist()


def test_an_empty_index_is_valid(tmp_path):
    (tmp_path / "empty.faiss").write_bytes(to_faiss(np.zeros((0, 24), np.float32)))
    vectors = open_faiss(str(tmp_path / "empty.faiss"))
    assert (len(vectors), vectors.products(VECTORS[0], 0, 0).tolist()) == (0, [])
    assert vectors.products_of(VECTORS[0], np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_refused_by_its_row(value):
    broken = VECTORS.copy()
    broken[7, 3] = value
    with pytest.raises(VectorError, match=r"rows \[7\] .* NaN or an infinity"):
        to_faiss(broken)


def test_a_query_of_another_dimension_is_refused_with_both(path):
    with pytest.raises(VectorError, match=r"shape \(12,\); the index has 24 dimensions"):
        open_faiss(path).products(VECTORS[0, :12], 0, 5)
    with pytest.raises(VectorError, match=r"shape \(12,\); the index has 24 dimensions"):
        open_faiss(path).products_of(VECTORS[0, :12], np.arange(5))


def test_what_is_no_flat_index_is_refused(tmp_path):
    (tmp_path / "text").write_text("no index at all")
    with pytest.raises(VectorError, match="not a readable FAISS index"):
        open_faiss(str(tmp_path / "text"))
    other = faiss.IndexHNSWFlat(24, 8)
    other.add(VECTORS)
    faiss.write_index(other, str(tmp_path / "hnsw"))
    with pytest.raises(VectorError, match="IndexHNSWFlat; expected a flat index"):
        open_faiss(str(tmp_path / "hnsw"))
