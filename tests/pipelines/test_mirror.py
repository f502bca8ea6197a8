import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hgmem_core.chat import Reply, Request
from hgmem_core.ids import bucket_of
from hgmem_core.model_config import LlmConfig, PriceConfig
from hgmem_core.stage_config import SkillsConfig
from pipelines import object_storage
from pipelines.calls import Answered, Calls, drop_refused
from pipelines.forget import Selection, forget
from pipelines.ledger import ledger
from pipelines.object_storage import ObjectStorage, ObjectStorageError
from pipelines.progress import Silent
from pipelines.rebuild import erase
from pipelines.retriever import Retriever
from pipelines.skill_evolve import evolve_skills
from pipelines.static import StaticEncoder
from pipelines.store import Store, StoreError
from pipelines.versions import VersionError, open_version
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl
from tests.pipelines.object_server import times
from tests.pipelines.runs import runs, runs_config, write_runs

WRITES = ("PUT", "POST", "DELETE")


@pytest.fixture
def log(tmp_path):
    return write_jsonl(tmp_path / "log.jsonl", rows())


@pytest.fixture
def url(bucket):
    return f"{bucket}/memory/store"


def objects_of(url):
    """Every object of a store by its key, with its content; the logs of jobs apart."""
    storage = ObjectStorage(url)
    keys = [one.key for one in storage.listed("") if not one.key.startswith("logs/")]
    return {key: storage.get(key).content for key in keys}


def forget_mirrors(tmp_path):
    """Be another machine: nothing was fetched yet."""
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def written(counts):
    """What was written, apart from the lease and the log of a job."""
    own = ("memory/store/lease.json", "memory/store/logs/", "")
    return [(method, key) for method, key in counts if method in WRITES and not key.startswith(own[:2]) and key]


def test_a_build_in_object_storage_is_the_same_to_the_byte(url, tmp_path, log):
    on_disk = run(config_of(tmp_path / "store", log))
    there = run(config_of(url, log))
    assert there.built.version == on_disk.built.version
    assert objects_of(url) == files_of(tmp_path / "store")


def test_a_rebuild_without_news_uploads_nothing_from_any_machine(url, tmp_path, log, object_server):
    first = run(config_of(url, log)).built
    object_server.counts()
    for _ in range(2):
        again = run(config_of(url, log)).built
        assert (again.version, again.is_new, sum(again.report.made.values())) == (first.version, False, 0)
        assert written(object_server.counts()) == []
        forget_mirrors(tmp_path)


def test_new_logs_cost_only_the_buckets_that_they_touch(url, tmp_path, log, object_server):
    run(config_of(url, log))
    more = write_jsonl(tmp_path / "more.jsonl", rows(users=("ana",), count=14)[12:])
    forget_mirrors(tmp_path)
    object_server.counts()
    there = run(config_of(url, log, more)).built
    uploaded = {key.split("/")[4] for _, key in written(object_server.counts()) if "/outputs/segment/" in key}
    assert len(uploaded) == 1
    run(config_of(tmp_path / "store", log))
    assert there.version == run(config_of(tmp_path / "store", log, more)).built.version
    assert objects_of(url) == files_of(tmp_path / "store")


def test_an_erasure_fetches_what_was_imported_of_the_touched_buckets_alone(url, tmp_path, log, object_server):
    config = config_of(url, log, buckets=64)
    run(config)
    forget_mirrors(tmp_path)
    store = Store.open(url)
    forget(store, Selection("acme/bo"), NOW)
    object_server.counts()
    assert erase(config, StaticEncoder(), NOW, Silent()).turns == 12
    keys = [key for method, key in object_server.counts() if method == "GET" and "/outputs/import/" in key]
    fetched = {int(table[1]) for table in map(re.compile(r"-(\d{5})[-.]").search, keys) if table}
    assert bucket_of("acme/bo", 64) in fetched and bucket_of("acme/ana", 64) not in fetched


def test_a_build_that_was_cut_off_before_a_manifest_is_taken_up_again(url, tmp_path, log, object_server):
    broken = times(
        1_000, 403, lambda method, key: method == "PUT" and "/group/" in key and key.endswith("manifest.json")
    )
    with object_server.failing(faults=broken), pytest.raises(ObjectStorageError, match=r"/group/.*json failed"):
        run(config_of(url, log))
    assert "current/000001.json" not in objects_of(url)
    object_server.counts()
    built = run(config_of(url, log)).built
    assert not [key for _, key in written(object_server.counts()) if "/outputs/segment/" in key]
    assert built.version == run(config_of(tmp_path / "store", log)).built.version
    assert objects_of(url) == files_of(tmp_path / "store")


def test_a_build_goes_on_through_errors_of_the_server(url, tmp_path, log, object_server):
    every_ninth = iter(range(1_000_000))
    with object_server.failing(faults=lambda method, key: 503 if next(every_ninth) % 9 == 0 else None):
        built = run(config_of(url, log)).built
    assert built.version == run(config_of(tmp_path / "store", log)).built.version
    assert objects_of(url) == files_of(tmp_path / "store")


@pytest.mark.parametrize("here", [True, False], ids=["the mirror has it whole", "the mirror has nothing"])
def test_a_truncated_object_is_refused_by_name_and_made_again(url, tmp_path, log, here):
    config = config_of(url, log, buckets=1)
    run(config)
    before = objects_of(url)
    [key] = [key for key in before if key.startswith("outputs/index/") and key.endswith("/nodes.arrow")]
    ObjectStorage(url).put(key, before[key][:-1])
    if not here:
        forget_mirrors(tmp_path)
        with pytest.raises(VersionError, match=f"{url}/{key} has {len(before[key]) - 1} bytes"):
            open_version(Store.open(url)).open_bucket(0)
    run(config)
    assert objects_of(url) == before
    forget_mirrors(tmp_path)
    assert list(open_version(Store.open(url)).verify())


def test_an_altered_object_is_refused_by_name(url, tmp_path, log):
    run(config_of(url, log, buckets=1))
    before = objects_of(url)
    [key] = [key for key in before if key.startswith("outputs/index/") and key.endswith("/postings.arrow")]
    ObjectStorage(url).put(key, bytes(len(before[key])))
    forget_mirrors(tmp_path)
    with pytest.raises(VersionError, match=f"{url}/{key} has sha256"):
        open_version(Store.open(url)).open_bucket(0)
    run(config_of(url, log, buckets=1))
    assert objects_of(url) == before


def test_a_damaged_mirror_mends_itself(url, log):
    run(config_of(url, log, buckets=1))
    version = open_version(Store.open(url))
    [path] = version.store.root.glob("outputs/index/*/nodes.arrow")
    path.write_bytes(b"x" * path.stat().st_size)
    assert version.open_bucket(0).namespaces()


def test_a_fresh_machine_fetches_only_what_a_query_needs(url, tmp_path, log, object_server):
    run(config_of(url, log, buckets=8))
    forget_mirrors(tmp_path)
    object_server.counts()
    version = open_version(Store.open(url))
    asked = object_server.counts()
    assert {key.removeprefix("memory/store/") for _, key in asked} == {
        "", "store.json", "current/000001.json", f"versions/{version.id}/manifest.json"
    }  # fmt: skip
    bucket = version.bucket_of("acme/ana")
    assert version.open_bucket(bucket) is not None
    folder = version.manifest["buckets"][str(bucket)]["folder"]
    asked = object_server.counts()
    assert {key.removeprefix("memory/store/").rpartition("/")[0] for _, key in asked} == {folder}
    assert not written(asked)
    version.open_bucket(bucket)
    assert not object_server.counts()


def test_a_machine_without_a_connection_says_so(url, log, monkeypatch, object_server):
    run(config_of(url, log))
    with object_server.failing(faults=lambda method, key: 403):
        with pytest.raises(ObjectStorageError, match=f"reading {url}/store.json failed: the server answered 403"):
            open_version(Store.open(url))


def test_a_server_that_cannot_be_reached_is_named(url, monkeypatch):
    monkeypatch.setattr(object_storage, "_RETRIES", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ObjectStorageError, match=rf"reading {url}/store.json failed: .*http://127.0.0.1:1\) right"):
        Store.open(url)


def test_answers_of_a_model_are_there_for_other_machines(url, tmp_path):
    config, request = LlmConfig(engine="http", model="scripted"), asked("Where is Ana?")
    here, there = (Store.make(url, 1, cache=str(tmp_path / name)) for name in ("here", "there"))
    Calls(here, 0, config, "j1").save([Answered(request, Reply("In Lisbon.", None, "stop", 10, 2, 1, 0.5))])
    Calls(here, 0, config, "j1").save([Answered(asked("And Bo?"), Reply(None, None, "refused", refusal="502"))])
    assert Calls(there, 0, config, "j2").find([request, asked("And Bo?")])[0].text == "In Lisbon."
    assert len(Calls(there, 0, config, "j1").find([request, asked("And Bo?")])) == 2
    assert ledger(there, PriceConfig()).to_dicts()[0]["calls"] == 2
    drop_refused(there)
    assert len(Calls(here, 0, config, "j1").find([request, asked("And Bo?")])) == 1


def asked(text):
    settings = {
        "attempt": 1,
        "system": "Be good.",
        "answer": "Facts",
        "schema": {},
        "max_tokens": 64,
        "thinking": "off",
    }
    return Request(namespace="acme/ana", stage="extract", row_id="e1", user=text, **settings)


def test_a_removed_output_is_gone_and_what_is_beside_it_stays(url, tmp_path):
    store = Store.make(url, 1)
    one, other = (store.keep(store.output_folder("merge", name), {"x": b"1"}, {}) for name in ("a" * 32, "a" * 31))
    store.remove(one.folder)
    assert store.find(one.folder) is None
    assert sorted(objects_of(url)) == [
        f"outputs/merge/{'a' * 31}/manifest.json",
        f"outputs/merge/{'a' * 31}/x",
        "store.json",
    ]
    store.set_aside(other.folder)
    assert store.find(other.folder).damage() is None


def test_the_log_of_a_job_is_there_when_it_has_ended(url, log):
    run(config_of(url, log))
    storage = ObjectStorage(url)
    [log] = [one.key for one in storage.listed("logs/")]
    assert b"job_finished" in storage.get(log).content.splitlines()[-1]


def test_skills_evolve_and_are_asked_for_on_another_machine(url, tmp_path):
    config = runs_config(url, write_runs(tmp_path / "runs.jsonl", runs()))
    run(config)
    evolved = evolve_skills(config, StaticEncoder(), None, 1, NOW, Silent())
    assert evolved.is_new
    forget_mirrors(tmp_path)
    retriever = Retriever(open_version(Store.open(url)), StaticEncoder())
    assert retriever.version.id == evolved.version
    assert retriever.skills("acme/ana", "Put a hot egg on the table", SkillsConfig()).as_dict()["skills"]


@pytest.mark.ray
def test_a_build_on_ray_has_the_same_outputs(url, tmp_path, log):
    on_disk = run(config_of(tmp_path / "store", log))
    config = tmp_path / "memory.toml"
    config.write_text(CONFIG.format(root=url, log=log), encoding="utf-8")
    command = [sys.executable, "-m", "jobs.rebuild", str(config), "--json", "--set", "run.engine=ray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert on_disk.built.version in done.stdout
    assert objects_of(url).keys() == files_of(tmp_path / "store").keys()  # the times of the imports differ


CONFIG = """
[store]
root = "{root}"
buckets = 3
[encoder]
name = "static"
[[inputs]]
format = "jsonl"
paths = ["{log}"]
namespace = "acme/{{user}}"
columns = {{ id = "id", session = "session", time = "time", speaker = "speaker" }}
"""


def test_another_endpoint_is_another_store(url, log, monkeypatch, object_server):
    run(config_of(url, log))
    root = Store.open(url).root
    monkeypatch.setenv("AWS_ENDPOINT_URL", object_server.url.replace("127.0.0.1", "localhost"))
    assert Store.open(url).root != root


def test_an_address_whose_slash_a_path_took_is_understood(url):
    made = Store.make(Path(url), 2)
    assert (str(made), Store.open(Path(url)).buckets) == (url, 2)


def test_there_is_no_store_where_there_is_none(url):
    with pytest.raises(StoreError, match=f"{url} is no store"):
        Store.open(url)


def test_a_server_that_overwrites_is_refused(url, object_server, monkeypatch):
    answer = object_server._answer

    def overwrite(environ, start_response):
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return answer(environ, start_response)

    monkeypatch.setattr(object_server._server, "app", overwrite)
    with pytest.raises(ObjectStorageError, match="does not know conditional writes"):
        Store.make(url, 1)
