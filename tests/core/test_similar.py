import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hgmem_core.similar as similar
from hgmem_core.similar import most_similar, row_cosines, similar_pairs
from tests.core.skill_graphs import units

few = st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(similar, "_QUERIES", 3)
    monkeypatch.setattr(similar, "_ROWS", 4)


def cosine(one, other):
    return row_cosines(one[None], np.array([0]), other[None], np.array([0]))[0]


@given(few, few, st.data())
@settings(max_examples=60)
def test_the_most_similar_rows_are_those_of_a_plain_sort(queries, vectors, data):
    queries, vectors = units(queries), units(vectors)
    count = data.draw(st.integers(0, 5))
    ranks = np.array(data.draw(st.permutations(range(len(vectors)))))
    limits = np.array([data.draw(st.integers(0, len(vectors))) for _ in queries])
    found = most_similar(queries, vectors, count, ranks, limits)
    for query, limit, rows in zip(queries, limits, found, strict=True):
        seen = range(limit) if query.any() else ()
        plain = sorted(seen, key=lambda row: (-cosine(query, vectors[row]), ranks[row]))[:count]
        assert rows.tolist() == plain + [-1] * (count - len(plain))


@given(few, few, st.sampled_from([-1.0, 0.0, 0.5, 0.9, 1.0]))
@settings(max_examples=60)
def test_similar_pairs_are_those_of_a_plain_loop(queries, vectors, floor):
    queries, vectors = units(queries), units(vectors)
    found = {
        (one, other): near
        for block in similar_pairs(queries, vectors, floor)
        for one, other, near in zip(*(part.tolist() for part in block), strict=True)
    }
    every = {(i, j): cosine(one, other) for i, one in enumerate(queries) for j, other in enumerate(vectors)}
    assert found == {pair: near for pair, near in every.items() if near >= floor}
