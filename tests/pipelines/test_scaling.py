from dataclasses import replace

import pytest

from hgmem_core.config import Config, StoreConfig
from hgmem_core.run_config import RunConfig
from pipelines import scaling
from pipelines.benchmark import synthetic_input
from pipelines.progress import Silent
from pipelines.scaling import benchmark_incremental, benchmark_scale
from pipelines.synthetic import SyntheticLog, write_log

CONFIG = Config(store=StoreConfig(buckets=1), encoder={"name": "static"}, run=RunConfig(engine="local"))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Other interpreters take seconds to start; that they are started is tested with `in_fresh_process`."""
    monkeypatch.setattr(scaling, "in_fresh_process", lambda environment, work, *given: work(*given))


def test_sizes_are_measured_and_their_counts_add_up(tmp_path):
    result = benchmark_scale(CONFIG, [60, 40], 20, 2, tmp_path, Silent())
    assert (result["engine"], result["encoder"], result["buckets"], result["workers"]) == ("local", "static", 1, 2)
    assert [(row["turns"], row["namespaces"]) for row in result["sizes"]] == [(40, 2), (60, 3)]
    for row in result["sizes"]:
        assert row["mismatches"] == []
        assert row["nodes"]["turns"] == row["turns"]
        assert list(row["outcomes"]) == list(row["ms_a_turn_by_stage"])
        assert len(row["outcomes"]) == 13
        assert row["outcomes"]["import"]["ok"] == row["turns"]
        assert row["peak_memory_mib"]["median"] > 50
        assert 0 < row["store_mib"] < 50
        assert row["store_files"] > 20
        seconds = row["wall_seconds"]
        assert 0 < seconds["min"] <= seconds["median"] <= seconds["max"]
        assert row["ms_a_turn"]["wall"]["median"] == pytest.approx(1e3 * seconds["median"] / row["turns"], abs=1)
    smallest = result["smallest"]
    assert smallest["turns"] == 8
    assert 0 < result["engine_start"]["wall_seconds"]["median"] < smallest["wall_seconds"]["median"]
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]


def taking(seconds):
    """What measures rebuilds that take `seconds(turns)`, and twice as much CPU."""

    def measured(config, log, repeats, folder, progress):
        usage = scaling.Usage(wall_seconds=seconds(log.turns), cpu_seconds=2 * seconds(log.turns))
        nodes = dict.fromkeys(("turns", "facts", "episodes", "topics"), log.turns)
        names = "merge encode_turns segment extract encode_facts encode_episodes consolidate group encode_topics index"
        stages = {name: {"outcomes": {"ok": log.turns}, "seconds": 1.0} for name in names.split()}
        stages["propagate"] = {"outcomes": {"ok": 3 * log.turns}, "seconds": 1.0}
        stages["relate"] = {"outcomes": {"ok": 2 * log.turns}, "seconds": 1.0}
        run = scaling.Measured(usage, {"ok": log.turns}, 1.0, stages, nodes)
        return [run] * repeats, {"bytes": 1, "files": 1}

    return measured


def test_slopes_are_what_a_further_turn_costs(monkeypatch, tmp_path):
    """A rebuild that takes 10 s at any size, and 2 ms a turn up to 1,000 turns, then 3 ms."""

    seconds = taking(lambda turns: 10 + 0.002 * min(turns, 1_000) + 0.003 * max(0, turns - 1_000))
    monkeypatch.setattr(scaling, "_repeat_full", seconds)
    result = benchmark_scale(CONFIG, [1_000, 2_000, 4_000], 50, 1, tmp_path, Silent())
    slopes = [(row["from_turns"], row["to_turns"], row["wall_ms_a_turn"]) for row in result["slopes"]]
    assert slopes == [(8, 1_000, 2.0), (1_000, 2_000, 3.0), (2_000, 4_000, 3.0)]
    assert [row["cpu_ms_a_turn"] for row in result["slopes"]] == [4.0, 6.0, 6.0]
    assert [row["wall_ms_a_turn"] for row in result["slope_ratios"]] == [1.5, 1.0]
    assert [row["mismatches"] for row in result["sizes"]] == [[], [], []]


def test_a_slope_that_is_noise_is_compared_with_nothing(monkeypatch, tmp_path):
    """Rebuilds that take 10 s at any size."""

    monkeypatch.setattr(scaling, "_repeat_full", taking(lambda turns: 10.0))
    result = benchmark_scale(CONFIG, [1_000, 2_000], 50, 1, tmp_path, Silent())
    assert result["slope_ratios"] == [{"wall_ms_a_turn": None, "cpu_ms_a_turn": None}]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A rebuild of 40 turns, measured."""
    folder = tmp_path_factory.mktemp("run")
    write_log(folder / "log", SyntheticLog(40, 2))
    store = StoreConfig(root=str(folder / "store"), buckets=1)
    return scaling._rebuild(CONFIG.model_copy(update={"store": store, "inputs": [synthetic_input(folder / "log")]}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: {"nodes": {**run.nodes, "turns": 39}}, "turns of the version: 39 instead of 40"),
        (lambda run: {"nodes": {**run.nodes, "facts": 0}}, "facts of the version: 0 instead of"),
        (lambda run: {"imported": {"ok": 40, "rejected": 1}}, "rows of import: 41 instead of 40"),
        (lambda run: {"stages": lost(run.stages, "segment")}, "rows of segment: 39 instead of 40"),
        (lambda run: {"stages": lost(run.stages, "propagate")}, "rows of propagate: "),
        (lambda run: {"stages": lost(run.stages, "relate")}, "rows of relate: "),
    ],
)
def test_counts_that_do_not_add_up_are_told(monkeypatch, tmp_path, run, change, said):
    measured = iter([run, replace(run, **change(run))])
    monkeypatch.setattr(scaling, "_measure", lambda config, store, logs: store.mkdir() or next(measured))
    [row] = benchmark_scale(CONFIG, [40], 20, 1, tmp_path, Silent())["sizes"]
    assert len(row["mismatches"]) == 1
    assert row["mismatches"][0].startswith(said)


def lost(stages, name):
    """Stages of which one lost a row."""
    outcomes = dict(stages[name]["outcomes"])
    outcomes["ok"] -= 1
    return {**stages, name: {**stages[name], "outcomes": outcomes}}


def test_a_grown_log_is_rebuilt_on_a_copy_of_the_full_one(tmp_path):
    result = benchmark_incremental(CONFIG, 200, 20, 1, tmp_path, Silent())
    assert (result["turns"], result["namespaces"]) == (200, 10)
    assert result["full"]["mismatches"] == []
    for spread, namespaces in (("few", 1), ("all", 2)):
        grown = result["grown"][spread]
        assert (grown["new_turns"], grown["namespaces_with_new_turns"]) == (2, namespaces)
        assert grown["mismatches"] == []  # so each began without what the others added
        taken, whole = grown["cpu_seconds"]["median"], result["full"]["cpu_seconds"]["median"]
        start = result["engine_start"]["cpu_seconds"]["median"]
        assert grown["cpu_share"]["median"] == pytest.approx(taken / whole, abs=1e-3)
        without_start = (taken - start) / (whole - start)
        assert grown["cpu_share_without_start"]["median"] == pytest.approx(without_start, abs=1e-3)
        assert 0 < grown["cpu_share"]["min"] <= grown["cpu_share"]["max"]
