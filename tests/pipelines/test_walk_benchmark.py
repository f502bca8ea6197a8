import pytest

from pipelines.walk_benchmark import walk_benchmark
from tests.core.event_graphs import one_thread as one_thread  # a fixture


def test_walks_are_counted_by_wall_and_by_processor():
    result = walk_benchmark(10, 32, 2, 2)
    assert (result["case"], result["neighbours"], result["batch"], result["threads"]) == ("walks", 10, 32, 1)
    measures = [value for name, value in result.items() if name.endswith("_second")]
    assert len(measures) == 4
    for spread in measures:
        assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    fast, plain = (result[name]["median"] for name in ("walks_a_cpu_second", "plain_walks_a_cpu_second"))
    assert result["ratio"] == pytest.approx(fast / plain, rel=0.05)
    assert fast > 2 * plain
