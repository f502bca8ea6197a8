import pytest

from hgmem_core.gate import Floor, failures, gated, read_floor
from hgmem_core.section import ConfigError

RESULT = {
    "results": [
        {"recipe": "bm25", "group": "1-4", "n": 9, "recall@10": 55.5, "ndcg@10": 41.5, "ci95": {}},
        {"recipe": "bm25", "group": "1", "n": 3, "recall@10": 29.8, "ndcg@10": 20.0, "ci95": {}},
        {"recipe": "hypergraph", "group": "1-4", "n": 9, "recall@10": 80.5, "ndcg@10": 65.2, "ci95": {}},
        {"recipe": "hypergraph", "group": "1", "n": 3, "recall@10": 52.9, "ndcg@10": 40.0, "ci95": {}},
    ]
}


def compared(low, high):
    row = {"recipe": "bm25", "baseline": "v1", "group": "1-4", "metric": "ndcg@10", "by_conversation": {}}
    return {**row, "difference": (low + high) / 2, "ci95": [low, high]}


def test_floors_are_read_with_and_without_a_group():
    assert read_floor("recall@10=70") == Floor(None, "recall@10", 70.0)
    assert read_floor(" 1-4/ndcg@10=41.5 ") == Floor("1-4", "ndcg@10", 41.5)


@pytest.mark.parametrize("text", ["recall@10", "recall@10=", "=70", "recall@10=most", "recall@10>70", "a/b/=4"])
def test_what_is_no_floor_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"is no floor; write .*such as recall@10=70"):
        read_floor(text)


def test_every_recipe_has_to_reach_every_floor_of_the_main_group_or_of_its_own():
    found = gated(RESULT, [read_floor("recall@10=55.5"), read_floor("1/recall@10=50")], "1-4")["gate"]
    assert not found["passed"]
    assert [(one["recipe"], one["group"], one["passed"]) for one in found["floors"]] == [
        ("bm25", "1-4", True),
        ("hypergraph", "1-4", True),
        ("bm25", "1", False),
        ("hypergraph", "1", True),
    ]
    assert failures(found) == ["bm25, 1: recall@10 is 29.80, 20.20 below 50"]


@pytest.mark.parametrize(("interval", "passed"), [((-4.0, -1.0), False), ((-4.0, 0.0), True), ((-9.0, 3.0), True)])
def test_worse_is_an_interval_below_nothing(interval, passed):
    found = gated({**RESULT, "comparisons": [compared(*interval)]}, [], "1-4")
    assert found["gate"]["passed"] is passed
    assert "comparisons" not in found
    assert [line.partition(":")[2] for line in failures(found["gate"])] == (
        [] if passed else [" ndcg@10 is 2.50 below version v1 (difference -2.50, 95 % interval -4.00 .. -1.00)"]
    )


def test_a_floor_of_something_that_was_not_measured_is_refused():
    with pytest.raises(ConfigError, match="judge was not measured; there are recall@10, ndcg@10"):
        gated(RESULT, [read_floor("judge=70")], "1-4")
    with pytest.raises(ConfigError, match="no group 'easy' was asked; there are 1-4, 1"):
        gated(RESULT, [read_floor("easy/recall@10=70")], "1-4")
