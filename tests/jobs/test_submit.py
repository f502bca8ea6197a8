"""`ray job submit` of this folder to a cluster with token authentication, from the command to a query's answer."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from ray._private.runtime_env.packaging import create_package

from hgmem_core.config import to_toml
from jobs import query
from tests.pipelines.logs import config_of, rows, write_jsonl
from tests.pipelines.ray_cluster import head_node

ROOT = Path(__file__).parents[2]
ENGINES = ("ray",)
NOBODY = {"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN_PATH": None}


@pytest.fixture(scope="module")
def head():
    with head_node("--num-cpus=2") as running:
        yield running


def configuration(folder, engine):
    """Write a log and a configuration for it; return its path and the store's."""
    log = write_jsonl(folder / "log.jsonl", rows())
    config = config_of(folder / "store", log, buckets=2, run={"engine": engine})
    path = folder / "memory.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    return path, folder / "store"


def job_of(head, job):
    """Return what the cluster knows of a job, and what the job printed."""
    status, text = head.ask(f"/api/jobs/{job}")
    assert status == 200, text
    return json.loads(text), json.loads(head.ask(f"/api/jobs/{job}/logs")[1])["logs"]


@pytest.mark.ray
@pytest.mark.parametrize("engine", ENGINES)
def test_a_submitted_rebuild_publishes_a_version_that_answers(head, tmp_path, capsys, engine):
    config, store = configuration(tmp_path, engine)
    done = head.submit(ROOT, "python", "-m", "jobs.rebuild", config, "--json", job=f"rebuild-{engine}")
    assert done.returncode == 0, done.stdout + done.stderr
    known, printed = job_of(head, f"rebuild-{engine}")
    assert known["status"] == "SUCCEEDED"
    assert bool(known["job_id"]) == (engine == "ray"), "a driver of this cluster, and of no other"
    result = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    assert (result["published"], result["turns"]) == (True, 36)
    asked = ["the harbour in Lisbon", "--store", store, "--namespace", "acme/ana", "--recipe", "bm25", "--json"]
    assert query.main([str(word) for word in asked]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["version"] == result["version"]
    assert "harbour in Lisbon" in answer["hits"][0]["text"]


@pytest.mark.ray
def test_a_job_that_fails_says_why_in_one_line(head, tmp_path):
    config, store = configuration(tmp_path, "local")
    done = head.submit(ROOT, "python", "-m", "jobs.rebuild", config, "--set", "store.bukets=3", job="fails")
    assert done.returncode == 1
    known, printed = job_of(head, "fails")
    assert known["status"] == "FAILED"
    assert known["driver_exit_code"] == 2
    errors = [line for line in printed.splitlines() if "Running entrypoint" not in line and "job_manager" not in line]
    assert errors == ["error: store.bukets: unknown key"]
    assert "error: store.bukets: unknown key" in done.stdout
    assert not store.exists()


@pytest.mark.ray
def test_nobody_submits_without_the_token(head, tmp_path):
    trace = tmp_path / "trace"
    done = head.submit(tmp_path, "touch", trace, job="refused", **NOBODY)
    assert done.returncode != 0
    assert "Unauthorized: Missing authentication token" in done.stdout + done.stderr
    job = {"entrypoint": f"touch {trace}", "submission_id": "refused"}
    assert [head.ask("/api/jobs/", token, job)[0] for token in ("", "0" * 64)] == [401, 403]
    assert head.ask("/api/jobs/refused")[0] == 404
    assert not trace.exists()


def test_what_is_submitted_is_the_packages_and_configurations_and_small(tmp_path):
    """Beside them are logs, stores and environments, which `.rayignore` leaves out."""
    package = tmp_path / "package.zip"
    create_package(str(ROOT), package, include_gitignore=True)
    with ZipFile(package) as content:
        names = content.namelist()
    assert {"hgmem_core/config.py", "pipelines/rebuild.py", "jobs/configs/cluster.toml"} <= set(names)
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".toml")} == {"hgmem_core", "pipelines", "jobs"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("jobs/results")]
    assert package.stat().st_size < 4 << 20
