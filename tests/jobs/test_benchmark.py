"""The cases of `jobs.benchmark` as a person runs them, and the tables made of their results."""

import json
import subprocess
import sys

import pytest

from jobs import benchmark, readme
from pipelines import scaling


@pytest.fixture
def in_this_process(monkeypatch):
    """Other interpreters take seconds to start; that they are started is tested with `in_fresh_process`."""

    def here(environment, work, *given):
        return work(*given)

    monkeypatch.setattr(scaling, "in_fresh_process", here)
    monkeypatch.setattr(benchmark, "in_fresh_process", here)


SMALL = ("--turns-a-namespace", 20, "--repeats", 1, "--buckets", 1)


def test_from_measures_to_pictures_and_tables(job, in_this_process, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "QUERIES", 5)
    results = tmp_path / "results"
    cases = {
        "benchmark-scale-local.json": ("scale", "--turns", "40,60", *SMALL),
        "benchmark-incremental-local.json": ("incremental", "--turns", 200, *SMALL),
        "benchmark-search.json": ("search", "--turns", 60, "--repeats", 1),
    }
    for name, (case, *arguments) in cases.items():
        work = tmp_path / "work"
        code, out, err = job(benchmark, case, *arguments, "--work", work, "--out", results / name)
        assert code == 0, err
        assert list(work.iterdir()) == []
        result = json.loads((results / name).read_text())
        assert result["case"] == case
        assert {"machine", "commit", "repeats", "encoder"} <= result.keys()
        assert f"commit {result['commit']}" in out
    files = [results / name for name in cases]
    code, out, _ = job(benchmark, "plot", *files, "--out", tmp_path / "plots")
    assert code == 0
    assert [line.rpartition("/")[2] for line in out.split()] == [
        "scale-stages.png",
        "scale-memory-disk.png",
        "incremental.png",
        "search.png",
    ]
    monkeypatch.setattr(readme, "RESULTS", results)
    names = ("scale", "incremental", "search")
    page = readme.with_results("".join(f"<!-- results: {name} -->\n<!-- end -->\n" for name in names))
    assert "| local | 60 | 3 |" in page
    assert "| local | 40 | 60 |" in page
    assert "| local | 200 | 2 | 1 |" in page
    assert "| `hypermem` |" in page
    assert page.count("commit") == 3


def test_the_configuration_of_a_case_is_what_its_arguments_say(monkeypatch, job):
    seen = []

    def measure(config, *rest):
        seen.append((config, rest[:3]))
        return {"case": "scale", "sizes": [{"mismatches": ["a: 1 instead of 2"]}], "list": [1]}

    monkeypatch.setattr(benchmark, "benchmark_scale", measure)
    arguments = ["--engine", "ray", "--buckets", 64, "--turns", "10,200", "--repeats", 4, "--set", "run.workers=3"]
    code, _, err = job(benchmark, "scale", *arguments, "--json")
    [(config, rest)] = seen
    assert (config.run.engine, config.run.ray.address, config.run.workers) == ("ray", "local", 3)
    assert (config.encoder.name, config.store.buckets) == ("static", 64)
    assert rest == ([10, 200], 50, 4)
    # The counts of a result are checked: such a result is no success.
    assert code == 1
    assert "counts do not add up: a: 1 instead of 2" in err


def test_a_search_uses_one_thread_and_asks_what_the_log_speaks_of(job, monkeypatch):
    seen = []

    def fresh(environment, work, *given):
        seen.append((environment, given))
        return {"case": "search", "encoder": "static"}

    monkeypatch.setattr(benchmark, "in_fresh_process", fresh)
    assert job(benchmark, "search", "--turns", 50, "--encoder", "static", "--json")[0] == 0
    [(environment, (config, queries, repeats, free))] = seen
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert (config.encoder.name, len(queries), repeats, free) == ("static", 200, 5, False)


def test_walks_use_one_thread_and_are_compared_with_a_plain_loop(job, monkeypatch, tmp_path):
    seen = []

    def fresh(environment, work, *given):
        seen.append(environment)
        return work(*given)

    monkeypatch.setattr(benchmark, "in_fresh_process", fresh)
    monkeypatch.setattr(benchmark, "PLAIN_WALKS", 1)
    code, out, err = job(benchmark, "walks", "--batch", 16, "--repeats", 1, "--out", tmp_path / "walks.json")
    assert code == 0, err
    assert seen[0]["OMP_NUM_THREADS"] == "1"
    result = json.loads((tmp_path / "walks.json").read_text())
    assert (result["case"], result["neighbours"], result["hops"], result["batch"]) == ("walks", 37, 5, 16)
    assert result["walks_a_second"]["median"] > result["plain_walks_a_second"]["median"] > 0
    assert f"ratio {result['ratio']}" in out


def test_tokens_are_at_least_half_as_fast_as_those_of_bm25s(job, in_this_process, tmp_path):
    out_file = tmp_path / "tokens.json"
    code, out, err = job(benchmark, "tokens", "--turns", 400, "--repeats", 5, "--out", out_file)
    assert code == 0, err
    result = json.loads(out_file.read_text())
    assert (result["case"], result["texts"]) == ("tokens", 400)
    assert result["ratio"] >= 0.5
    assert f"ratio {result['ratio']}" in out


def test_skills_use_one_thread_and_tell_their_parts(job, monkeypatch):
    seen = []

    def fresh(environment, work, *given):
        seen.append((environment, given))
        return work(*given)

    monkeypatch.setattr(benchmark, "in_fresh_process", fresh)
    sizes = ("--trajectories", 200, "--skills", 30, "--queries", 10, "--repeats", 2)
    code, out, err = job(benchmark, "skills", *sizes)
    assert code == 0, err
    [(environment, given)] = seen
    assert (environment["OMP_NUM_THREADS"], given) == ("1", (200, 30, 10, 2))
    assert "trajectories 200, skills 30, queries 10" in out
    assert "propagation" in out


def test_a_large_namespace_is_told_and_shown(job, in_this_process, tmp_path, monkeypatch):
    out_file = tmp_path / "results" / "benchmark-large.json"
    sizes = ("--facts", 1_000, "--ivf-from", 900)
    code, out, err = job(benchmark, "large", *sizes, "--work", tmp_path / "work", "--out", out_file)
    assert code == 0, err
    assert list((tmp_path / "work").iterdir()) == []
    assert "facts 1000, turns 200" in out
    monkeypatch.setattr(readme, "RESULTS", out_file.parent)
    page = readme.with_results("<!-- results: large -->\n<!-- end -->")
    assert "| fact, propagated | 1,000 |" in page
    assert "| `hybrid` |" in page
    assert "1,000 facts, 200 turns" in page


def test_wrong_use_is_told(job, tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"case": "locomo"}')
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    cases = [
        (2, ("scale", "--turns", "10,0"), "'0' is not a whole number from 1 on"),
        (2, ("scale", "--engine", "auto"), "invalid choice: 'auto'"),
        (2, ("scale", "--set", "run.wrkers=1"), "run.wrkers: unknown key"),
        (2, ("build", "--turns", 5, "--namespaces", 6), "--namespaces: 6 are more than the 5 turns"),
        (2, ("plot", other, "--out", tmp_path), "other.json is no result document of search, scale, incremental"),
        (2, ("plot", broken, "--out", tmp_path), "broken.json is no result document"),
        (1, ("plot", tmp_path / "none.json", "--out", tmp_path), "none.json"),
    ]
    for expected, arguments, message in cases:
        code, out, err = job(benchmark, *arguments)
        assert (code, out) == (expected, ""), arguments
        assert message in " ".join(err.split()), arguments
        assert "Traceback" not in err


def test_matplotlib_is_loaded_by_plot_alone():
    script = "import jobs.benchmark, sys; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
    script = "import sys; sys.modules['matplotlib'] = None; from jobs import benchmark; benchmark.main(sys.argv[1:])"
    command = [sys.executable, "-c", script, "plot", "x.json", "--out", "y"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "ConfigError: plot needs matplotlib: pip install 'hgmem[plots]'" in done.stderr


def test_forgetting_is_timed_and_looked_after(job, tmp_path):
    arguments = ("--turns", 60, "--namespaces", 4, "--canaries", 12, "--buckets", 2, "--repeats", 1)
    code, out, err = job(
        benchmark, "forget", *arguments, "--work", tmp_path / "work", "--out", tmp_path / "forget.json"
    )
    assert code == 0, err
    assert list((tmp_path / "work").iterdir()) == []
    result = json.loads((tmp_path / "forget.json").read_text())
    assert {when: one["canaries_found"] for when, one in result["audits"].items()} == {
        "before": 12, "after_forgetting": 0, "after_prune": 0,
    }  # fmt: skip
    assert result["ratio"]["median"] > 0
    assert "ratio" in out
