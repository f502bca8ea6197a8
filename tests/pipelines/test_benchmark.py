import pytest

from hgmem_core.config import Config, StoreConfig
from hgmem_core.recipes import MODEL_FREE
from pipelines.benchmark import benchmark_build, benchmark_search, machine, spread, synthetic_input
from pipelines.progress import Silent
from pipelines.store import Store
from pipelines.synthetic import SyntheticLog, questions, write_log
from pipelines.versions import open_version

LOG = SyntheticLog(90, 3)


@pytest.fixture
def log(tmp_path):
    write_log(tmp_path / "log", LOG)
    return synthetic_input(tmp_path / "log")


@pytest.mark.parametrize("free", [True, False])
def test_searches_of_the_largest_namespace_are_timed_by_recipe(tmp_path, log, free):
    store = StoreConfig(root=str(tmp_path / "store"), buckets=2)
    config = Config(store=store, encoder={"name": "static"}, inputs=[log])
    result = benchmark_search(config, questions(LOG, 0, 2), 3, free)
    version = open_version(Store.open(store.root))
    assert version.manifest["encoder"]["dimension"] == (384 if free else 256)
    assert (result["turns"], result["queries"], result["repeats"]) == (LOG.sizes()[0], 2, 3)
    assert result["turns"] > 40 > LOG.sizes()[1]
    assert result["encoder"] == ("free" if free else "static")
    assert result["p50_ms"].keys() == result["p95_ms"].keys() == set(MODEL_FREE)
    for recipe, middle in result["p50_ms"].items():
        each = result["p50_ms_of_each_repeat"][recipe]
        assert len(each) == 3
        assert min(each) <= middle <= max(each)
        assert 0 < middle <= result["p95_ms"][recipe]


def test_a_build_is_timed_by_stage(log):
    result = benchmark_build(log, 2, Silent())
    assert (result["turns"], result["namespaces"]) == (90, 3)
    assert len(result["cpu_ms_a_turn_of_each_repeat"]) == 2
    assert list(result["ms_a_turn_by_stage"])[:2] == ["import", "merge"]
    assert len(result["ms_a_turn_by_stage"]) == 13
    assert min(result["ms_a_turn_by_stage"].values()) > 0


def test_spread_is_median_least_and_largest():
    assert spread([3.00004, 1, 2], 3) == {"median": 2, "min": 1, "max": 3.0}


def test_the_machine_is_described():
    about = machine()
    assert about["cpu"]
    assert about["cores"] >= 1
    assert 0 < about["memory_gib"] < 100_000
