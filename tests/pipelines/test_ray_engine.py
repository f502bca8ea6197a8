"""The engine on Ray: equal to the local one, honest about what fails, and no harm to a Ray that others started."""

import os
import signal
from pathlib import Path

import pytest
import ray

from hgmem_core.run_config import ResourcesConfig, RunConfig
from pipelines import ray_connection
from pipelines.engine import ClusterError
from pipelines.import_stage import ImportFailed
from pipelines.job_log import open_job_log
from pipelines.log_files import LogFileError
from pipelines.preflight import PreflightError
from pipelines.progress import Silent
from pipelines.ray_engine import RayEngine, ray_engine
from pipelines.skill_evolve import evolve_skills
from pipelines.static import StaticEncoder
from pipelines.store import DamagedOutput, Store
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs
from tests.pipelines.scripted_model import ScriptedChat
from tests.pipelines.survival import MOMENTS, survive_kills, survive_losses

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]
USERS = [f"user{number:02d}" for number in range(30)]


def engine(**changes):
    with open_job_log("test") as log:
        return RayEngine(RunConfig(engine="ray", **changes), log, Silent())


def logs_of(folder):
    return [write_jsonl(folder / f"{part}.jsonl", rows(USERS[part::3], 16)) for part in range(3)]


def test_both_engines_give_equal_files(tmp_path):
    logs = logs_of(tmp_path)
    for name in ("local", "ray"):
        config = config_of(tmp_path / name, *logs, buckets=5, run={"engine": name})
        done = run(config)
        assert done.engine.name == name
        # A late message, an edit and a new namespace, on top of what is there.
        more = write_jsonl(tmp_path / "more.jsonl", rows(USERS[:1], 1) + rows(["zoe"], 4))
        run(config_of(tmp_path / name, *logs, more, buckets=5, run={"engine": name}))
        assert list((tmp_path / name).glob("pieces/*")) == list((tmp_path / name).glob("tmp/*")) == []
        assert done.built.report.outcomes["index"] == {"ok": 480}
    assert files_of(tmp_path / "local") == files_of(tmp_path / "ray")
    assert ray.is_initialized(), "the engine ended a Ray that it had not started"


def test_both_engines_learn_equal_skills(tmp_path):
    logs = [write_runs(tmp_path / f"{part}.jsonl", runs(USERS[part:6:3])) for part in range(3)]
    chat = {
        "format": "jsonl",
        "paths": [str(write_jsonl(tmp_path / "chat.jsonl", rows(USERS[:2])))],
        "namespace": "acme/{user}",
    }
    for name in ("local", "ray"):
        settings = {"buckets": 4, "run": {"engine": name}}
        run(runs_config(tmp_path / name, *logs, **settings))
        more = write_runs(tmp_path / "more.jsonl", [{**runs(USERS[:1])[0], "outcome": "failure"}, *runs(["zoe"])])
        done = run(runs_config(tmp_path / name, *logs, more, more=[chat], **settings))
        assert done.engine.name == name
        assert done.built.report.outcomes["index_skills"] == {"ok": 84}
        assert list((tmp_path / name).glob("pieces/*")) == []
    assert files_of(tmp_path / "local") == files_of(tmp_path / "ray")


def test_both_engines_evolve_equal_skills(tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", runs(USERS[:4]))
    for name in ("local", "ray"):
        run(runs_config(tmp_path / name, log, buckets=3))
        model = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE), "stages": ["evolve"]}
        settings = runs_config(tmp_path / name, log, run={"engine": name}, llm=model)
        done = evolve_skills(settings, StaticEncoder(), None, 2, NOW, Silent(), ScriptedChat())
        assert (done.engine.name, done.merged > 4, len(done.decisions) > 1) == (name, True, True)
        assert done.report.spent["evolve"].calls > 4
        assert list((tmp_path / name).glob("pieces/*")) == []
    assert evolved_files(tmp_path / "local") == evolved_files(tmp_path / "ray")


def evolved_files(root):
    return {name: content for name, content in files_of(root).items() if not name.startswith("calls/")}


def test_the_error_of_a_worker_is_raised_as_it_is():
    def work(item):
        if item == 2:
            raise DamagedOutput(Path("/somewhere"), "the file is shorter")
        return {"item": item}

    with pytest.raises(DamagedOutput, match="the file is shorter") as caught:
        list(engine().map("buckets", work, range(4)))
    assert caught.value.folder == Path("/somewhere")


def test_bad_input_ends_a_run_as_it_does_without_ray(tmp_path):
    broken = write_jsonl(tmp_path / "log.jsonl", rows(USERS[:2]) + [{"id": "x", "user": "ana"}] * 9)
    with pytest.raises(ImportFailed, match="rows were rejected"):
        run(config_of(tmp_path / "store", broken, run={"engine": "ray"}))
    with pytest.raises(LogFileError, match="does not exist"):
        run(config_of(tmp_path / "store", tmp_path / "absent.jsonl", run={"engine": "ray"}))


def test_a_log_that_disappears_while_it_is_read_fails_with_its_name(tmp_path, monkeypatch):
    log = write_jsonl(tmp_path / "log.jsonl", rows(USERS[:2]))
    original = RayEngine.map

    def gone(self, kind, work, items):
        log.unlink(missing_ok=True)
        return original(self, kind, work, items)

    monkeypatch.setattr(RayEngine, "map", gone)
    with pytest.raises((OSError, LogFileError), match=r"log\.jsonl"):
        run(config_of(tmp_path / "store", log, run={"engine": "ray"}))
    assert Store.open(tmp_path / "store").numbered("imports") == []


def test_a_worker_that_dies_is_replaced(tmp_path):
    marker = tmp_path / "died"

    def work(item):
        if item == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"double": 2 * item}

    results = dict(engine().map("buckets", work, range(4)))
    assert results == {item: {"double": 2 * item} for item in range(4)}
    assert marker.exists()


def test_a_run_without_progress_fails_and_says_what_it_waits_for(tmp_path):
    hours = tmp_path / "never"

    def work(item):
        if item == 7:
            import time

            while not hours.exists():
                time.sleep(0.05)
        return {}

    done = []
    with pytest.raises(ClusterError, match=r"waiting for 1 run\.ray\.buckets \(7\), each asking for 1 CPUs.*free in"):
        done.extend(engine(stall_minutes=0.05).map("buckets", work, [5, 7]))
    hours.touch()


def test_work_that_fits_on_no_node_is_refused_before_it_starts(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows(USERS[:1]))
    resources = {"engine": "ray", "ray": {"buckets": {"cpus": 64.0}}}
    with pytest.raises(PreflightError, match=r"run\.ray\.buckets asks for 64 CPU a task; the largest node has 2"):
        run(config_of(tmp_path / "store", log, run=resources))
    assert not (tmp_path / "store" / "current").exists()


def test_a_node_without_the_software_or_the_store_is_refused(tmp_path, monkeypatch):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows(USERS[:1])), run={"engine": "ray"})
    original = ray_connection._ask_nodes
    bare = {"answer": lambda found: ({}, True), "says": r"^hgmem is not installed on .*: install it there"}
    blind = {"answer": lambda found: (found[0], False), "says": "cannot see .*store: it has to lie on a file system"}
    for case in (bare, blind):

        def asked(nodes, folder, case=case):
            return {node: case["answer"](found) for node, found in original(nodes, folder).items()}

        monkeypatch.setattr(ray_connection, "_ask_nodes", asked)
        with pytest.raises(PreflightError, match=case["says"]):
            run(config)
    assert not list((tmp_path / "store").glob("imports/*"))


def test_a_cluster_that_grows_is_told_so_and_not_refused(tmp_path):
    config = RunConfig(engine="ray", ray={"autoscaling": True, "buckets": ResourcesConfig(cpus=64.0)})
    notes = []

    class Notes(Silent):
        def note(self, text):
            notes.append(text)

    with open_job_log("test") as log, ray_engine(config, Store.make(tmp_path, 1), log, Notes()):
        pass
    assert len(notes) == 1
    assert "waits until the cluster has added one" in notes[0]


def test_kills_at_random_moments_change_nothing(tmp_path):
    assert len(list(survive_kills(tmp_path, 1, seed=1))) == 1


def test_the_loss_of_a_node_changes_nothing(tmp_path):
    assert list(survive_losses(tmp_path, MOMENTS[2:])) == ["during a write"]
