import numpy as np
import pytest

from hgmem_core.nearest import MOST_COMPARED, nearest, nearest_in_namespaces, pair_cosines


def units(count, dimension=16, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def by_sorting(vectors, rows, count):
    cosines = vectors[rows] @ vectors.T
    cosines[np.arange(len(rows)), rows] = -np.inf
    return np.argsort(-cosines, axis=1, kind="stable")[:, :count]


@pytest.mark.parametrize("size", [2, 9, 700])
def test_the_nearest_are_those_that_sorting_finds(size):
    vectors = units(size)
    found = nearest(vectors, 8)
    expected = by_sorting(vectors, np.arange(size), min(8, size - 1))
    cosines = vectors @ vectors.T
    given = np.take_along_axis(cosines, found[:, : expected.shape[1]], axis=1)
    np.testing.assert_allclose(given, np.take_along_axis(cosines, expected, axis=1), atol=1e-5)
    assert (found[:, expected.shape[1] :] == -1).all() and not (found == np.arange(size)[:, None]).any()
    assert (found[:, 0] == expected[:, 0]).all()


def test_equal_vectors_are_taken_by_their_number():
    found = nearest(np.repeat(units(1), 20, axis=0), 3)
    assert found[:5].tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2]]


def test_of_very_many_most_of_the_nearest_are_found_and_never_itself():
    rng = np.random.default_rng(1)
    middles = units(60)
    vectors = middles[rng.integers(60, size=MOST_COMPARED + 900)] + 0.15 * rng.standard_normal(
        (MOST_COMPARED + 900, 16)
    )
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    found = nearest(vectors, 8)
    rows = np.arange(0, len(vectors), 37)
    shared = [
        len(set(ours) & set(theirs)) for ours, theirs in zip(found[rows], by_sorting(vectors, rows, 8), strict=True)
    ]
    assert sum(shared) > 0.9 * 8 * len(rows)
    assert not (found == np.arange(len(vectors))[:, None]).any()
    assert all(len(set(row)) == 8 for row in found.tolist())


def test_of_very_many_equal_vectors_each_has_others():
    found = nearest(np.repeat(units(1, 4), MOST_COMPARED + 100, axis=0), 3)
    assert (found >= 0).all() and not (found == np.arange(len(found))[:, None]).any()


def test_namespaces_and_rows_without_a_vector_are_kept_apart():
    vectors = np.repeat(units(1), 7, axis=0)
    present = np.array([True, True, False, True, True, True, False])
    sources, targets, ranks = nearest_in_namespaces(vectors, present, np.array([0, 0, 0, 1, 1, 1, 2]), 5)
    assert list(zip(sources.tolist(), targets.tolist(), ranks.tolist(), strict=True)) == [
        (0, 1, 1), (1, 0, 1), (3, 4, 1), (3, 5, 2), (4, 3, 1), (4, 5, 2), (5, 3, 1), (5, 4, 2),
    ]  # fmt: skip
    nobody = nearest_in_namespaces(vectors, np.zeros(7, bool), np.zeros(7, np.int64), 5)
    assert [len(part) for part in nobody] == [0, 0, 0]


def test_cosines_of_pairs():
    vectors = units(1_200)
    one, other = np.divmod(np.arange(0, 1_440_000, 997), 1_200)
    np.testing.assert_allclose(pair_cosines(vectors, one, other), (vectors @ vectors.T)[one, other], atol=1e-6)
