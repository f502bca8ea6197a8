import numpy as np
import pytest

from hgmem_core.stage_config import IndexConfig
from pipelines.large_benchmark import RECIPES_TIMED, benchmark_large
from pipelines.large_log import large_log


@pytest.mark.parametrize("ivf_from", [800, 100_000])
def test_a_large_namespace_is_built_and_searched(tmp_path, ivf_from):
    result = benchmark_large(2_000, tmp_path, IndexConfig(ivf_from=ivf_from))
    assert (result["facts"], result["turns"]) == (2_000, 400)
    levels = {(one["vectors"], one["level"]) for one in result["indexes"]}
    large = {("graph_vectors", "fact"), ("propagated_vectors", "fact")}
    assert levels == (large if ivf_from == 800 else set())
    assert min(result["recall_at_10"].values()) > 0.9
    assert set(RECIPES_TIMED) < result["p50_ms"].keys()
    for name, middle in result["p50_ms"].items():
        assert 0 < middle <= result["p95_ms"][name]
    assert result["build_seconds"]["total"] >= result["build_seconds"]["ivf"] >= 0


def test_the_log_is_the_same_each_time_and_its_vectors_are_like_those_of_texts():
    log, again = large_log(3_000), large_log(3_000)
    assert log.graph.base.equals(again.graph.base)
    assert log.questions == again.questions
    level, column = log.graph.base.column("level").to_numpy(), log.graph.base.column("vector").combine_chunks()
    facts = column.flatten().to_numpy().reshape(-1, 384)[level == "fact"]
    assert np.linalg.norm(facts, axis=1) == pytest.approx(1, abs=1e-5)
    assert 0.2 < (facts @ facts.T).mean() < 0.4
    assert 0.55 < np.median((log.asked @ facts.T).max(axis=1)) < 0.75
