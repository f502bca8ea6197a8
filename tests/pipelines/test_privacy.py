"""Who may read a store, and what must not be in one: foreign code, and keys of servers."""

import os
import pickle
import pickletools
import stat
import traceback

import pyarrow.parquet as pq
import pytest

from hgmem_core.chat import ModelError
from hgmem_core.config import config_from
from hgmem_core.section import ConfigError
from pipelines.files import open_arrow
from pipelines.lease import hold_lease
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.retention import prune
from pipelines.static import StaticEncoder
from pipelines.store import Store, StoreError
from pipelines.versions import current_version, point_to
from tests.pipelines.llm_marks import config_for, talk
from tests.pipelines.logs import NOW, config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_input, write_runs
from tests.pipelines.scripted_model import script_of
from tests.pipelines.scripted_server import ScriptedServer

KEY = "sk-canary-0123456789abcdef"


def config(folder, **sections):
    """Logs of messages and of runs."""
    log = write_jsonl(folder / "log.jsonl", rows())
    tree = config_of(folder / "store", log, **sections).model_dump()
    return config_from({**tree, "inputs": [*tree["inputs"], runs_input(write_runs(folder / "runs.jsonl", runs()))]})


def modes(root):
    """The permissions of every file and folder of a store."""
    every = [root, *root.rglob("*")]
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in every}
    return {mode for path, mode in found.items() if path.is_file()}, {
        mode for path, mode in found.items() if path.is_dir()
    }


@pytest.fixture(params=[0o000, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mode", "files", "folders"), [("0600", 0o600, 0o700), ("640", 0o640, 0o750)])
def test_every_file_of_a_store_is_as_private_as_the_settings_say(tmp_path, mode, files, folders):
    (tmp_path / "store").mkdir(mode=0o755)
    place = {"root": str(tmp_path / "store"), "buckets": 3, "file_mode": mode}
    settings = config(tmp_path, store=place)
    run(settings)
    store = Store.open(tmp_path / "store")
    with hold_lease(store, "test", NOW), store.workspace() as work:
        assert (store.root / "lease.json").exists()
        assert stat.S_IMODE(work.stat().st_mode) == folders
        assert modes(store.root) == ({files}, {folders})
    run(config_of(store.root, write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",))), store=place))
    point_to(store, current_version(store)[1])
    prune(store, 1, NOW)
    assert modes(store.root) == ({files}, {folders})
    assert {path.parent.name for path in store.root.rglob("*.json*")} >= {"logs", "current", "imports", "store"}


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_workers_on_ray_write_as_privately(tmp_path):
    run(config(tmp_path, run={"engine": "ray"}))
    assert modes(tmp_path / "store") == ({0o600}, {0o700})


def test_a_store_stays_as_private_as_its_root_was_made(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    run(config_of(tmp_path / "store", log))
    for path in (tmp_path / "store", *(tmp_path / "store").rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    run(config_of(tmp_path / "store", log, write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",)))))
    assert modes(tmp_path / "store") == ({0o640}, {0o750})


@pytest.mark.parametrize("mode", ["0400", "0666", "0700", "0606", "rw", "600600", ""])
def test_permissions_that_make_no_sense_are_refused(mode):
    with pytest.raises(ConfigError, match=r"store\.file_mode"):
        config_from({"store": {"file_mode": mode}})


def test_a_root_that_vanishes_is_not_made_anew_in_parts(tmp_path):
    store = Store.make(tmp_path / "store", 2)
    folder = store.output_folder("merge", "0" * 32)
    with store.workspace():
        (tmp_path / "store").rename(tmp_path / "away")
    for write in (
        lambda: store.keep(folder, {"a.parquet": b"x"}, {}),
        lambda: store.append_numbered("current", {"version": "0" * 16}),
    ):
        with pytest.raises(StoreError, match="store is gone: it was removed, renamed or unmounted"):
            write()
    assert not (tmp_path / "store").exists()


def is_pickle(content):
    """Say whether some bytes would be loaded as a pickle: its first opcode, and all up to its end."""
    if not content or content[0] not in b"\x80(]}cl":
        return False
    try:
        return any(opcode.name == "STOP" for opcode, *_ in pickletools.genops(content))
    except (ValueError, UnicodeDecodeError, IndexError):
        return False


def test_nothing_in_a_store_is_a_pickle(tmp_path):

    assert is_pickle(pickle.dumps({"a": 1}, protocol=0))
    assert is_pickle(pickle.dumps({"a": 1}))
    run(config(tmp_path))
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".parquet", ".arrow", ".faiss"}
    assert [path for path in files if is_pickle(path.read_bytes())] == []


def texts_of(root):
    """Every byte of a store, with tables unpacked."""
    for path in root.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
            if path.suffix in (".parquet", ".arrow"):
                table = pq.read_table(path) if path.suffix == ".parquet" else open_arrow(path)
                yield f"{table.schema.metadata} {table.to_pylist()}".encode()


class Heard(Silent):
    """Keeps what a person would be told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("SERVER_KEY", KEY)


def with_key(folder, url):
    settings = config_for(folder, talk(folder, 6), url)
    http = settings.llm.http.model_copy(update={"key_variable": "SERVER_KEY", "retries": 1})
    return settings.model_copy(update={"llm": settings.llm.model_copy(update={"http": http})})


@pytest.mark.usefixtures("key")
def test_the_key_of_a_server_is_nowhere_in_a_store(tmp_path):
    heard = Heard()
    with ScriptedServer(script_of(0.3, ["prose"]), key=KEY) as server:
        built = rebuild(with_key(tmp_path, server.url), StaticEncoder(), NOW, heard).built
    assert built.report.spent["extract"].calls > 6
    contents = list(texts_of(tmp_path / "store"))
    assert any(b"Parcel" in content for content in contents)
    assert not any(KEY.encode() in content for content in contents)
    assert not any(KEY in note for note in heard.notes)


@pytest.mark.usefixtures("key")
def test_the_key_of_a_server_is_in_no_error(tmp_path):
    with ScriptedServer(script_of(), key="another") as server, pytest.raises(ModelError) as refused:
        rebuild(with_key(tmp_path, server.url), StaticEncoder(), NOW, Silent())
    told = "".join(traceback.format_exception(refused.value))
    assert "HTTP 401" in told
    assert KEY not in told
    assert not any(KEY.encode() in content for content in texts_of(tmp_path / "store"))
