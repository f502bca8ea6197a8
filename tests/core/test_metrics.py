from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.metrics import METRICS, ndcg, recall, reciprocal_rank

items = st.lists(st.integers(0, 20).map(str), unique=True, max_size=20)
relevant_sets = st.sets(st.integers(0, 20).map(str), min_size=1)


@given(items, relevant_sets)
def test_metrics_equal_their_definitions_written_out(ranked, relevant):
    found = [item in relevant for item in ranked]
    expected = {f"recall@{k}": 100 * sum(found[:k]) / len(relevant) for k in (2, 5, 10, 20, 30)}
    gain = sum(1 / log2(place + 2) for place, is_hit in enumerate(found[:10]) if is_hit)
    ideal = sum(1 / log2(place + 2) for place in range(min(10, len(relevant))))
    expected["ndcg@10"] = 100 * gain / ideal
    expected["hit@10"] = 100 * (True in found[:10])
    expected["mrr"] = 100 / (found.index(True) + 1) if True in found else 0
    expected["all@10"] = 100 * (sum(found[:10]) == len(relevant))
    assert {name: metric(ranked, relevant) for name, metric in METRICS.items()} == pytest.approx(expected)


def test_known_values():
    assert recall(["a", "b", "c"], {"c", "x"}, 3) == 50
    assert ndcg(["x", "a"], {"a"}, 10) == pytest.approx(100 / log2(3))
    assert reciprocal_rank(["x", "y", "a"], {"a"}) == pytest.approx(100 / 3)
    assert reciprocal_rank([], {"a"}) == 0
