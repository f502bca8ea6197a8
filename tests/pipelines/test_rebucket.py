"""A store in other buckets: equal to one that was made so, whatever moment a change is stopped in."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

from hgmem_core.config import config_from
from hgmem_core.model_config import EncoderConfig
from hgmem_core.tombstones import NO_TOMBSTONES
from pipelines.calls import is_sound
from pipelines.encoders import open_encoder
from pipelines.files import StoreError, seal
from pipelines.imports import imported_parts, read_imports
from pipelines.lease import LeaseHeld, hold_lease
from pipelines.ledger import ledger
from pipelines.progress import Silent
from pipelines.rebucket import rebucket
from pipelines.rebuild import rebuild
from pipelines.retention import prune
from pipelines.retriever import Retriever
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.version_diff import diff_versions
from pipelines.versions import current_version, open_version
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_input, write_runs
from tests.pipelines.scripted_model import ScriptedChat

ENCODER = open_encoder(EncoderConfig(name="static"))
USERS = ("ana", "bo", "chen", "dee", "eve")


def logs_of(folder):
    """Two imports: rows of use and of none, of the same users in both; the second with runs of agents."""
    first = [*rows(USERS), {"id": "x", "user": "bo"}, {**rows()[0], "id": "y", "text": ""}]
    unnamed = [{name: value for name, value in row.items() if name != "id"} for row in rows(("ana",), 3)]
    second = [*unnamed, *unnamed, *rows(("bo", "zoe"), 6)]
    return (
        write_jsonl(folder / "one.jsonl", first),
        write_jsonl(folder / "two.jsonl", second),
        write_runs(folder / "runs.jsonl", runs(("ana", "zoe"))),
    )


def configs(root, folder, buckets):
    one, two, ran = logs_of(folder)
    settings = {"imports": {"max_reject_rate": 0.5}}
    first, second = (config_of(root, log, buckets=buckets, **settings) for log in (one, two))
    return first, config_from({**second.model_dump(), "inputs": [*second.model_dump()["inputs"], runs_input(ran)]})


def build(root, folder, buckets):
    for config in configs(root, folder, buckets):
        done = run(config)
    return done


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    build(folder / "store", folder, 3)
    return folder / "store"


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Stores that were made with so many buckets, and the ids of their versions."""
    folder, made = tmp_path_factory.mktemp("wanted"), {}

    def of(buckets):
        if buckets not in made:
            done = build(folder / str(buckets), folder, buckets)
            made[buckets] = files_of(folder / str(buckets)), done.built.version
        return made[buckets]

    return of


@pytest.fixture
def root(original, tmp_path):
    shutil.copytree(original, tmp_path / "store")
    return tmp_path / "store"


def without_paths(entry):
    """An entry of an import, the folder of its logs apart."""
    content = {name: value for name, value in json.loads(entry).items() if name != "checksum"}
    return {**content, "logs": [log.rpartition("/")[2] for log in content["logs"]]}


def imports_of(files):
    entries = {path: without_paths(content) for path, content in files.items() if path.startswith("imports/")}
    outputs = {path: content for path, content in files.items() if path.startswith("outputs/import/")}
    return entries, outputs


def assert_imports_equal(root, other):
    assert imports_of(files_of(root)) == imports_of(other)
    assert (root / "store.json").read_bytes() == other["store.json"]


@pytest.mark.parametrize("buckets", [2, 8])
def test_a_store_in_other_buckets_is_that_which_was_made_so(root, wanted, buckets):
    other, version = wanted(buckets)
    before = current_version(Store.open(root))[1]
    done = rebucket(Store.open(root), buckets, NOW, Silent())
    assert (done.before, done.after, done.imports, done.rows) == (3, buckets, 2, 60 + 6 + 12 + 24)
    assert_imports_equal(root, other)
    built = run(config_of(root, buckets=buckets)).built
    assert (built.version, built.is_new) == (version, True)
    store = Store.open(root)
    assert list(diff_versions(open_version(store, before), open_version(store))) == []
    prune(store, 1, NOW)
    mine = {path: content for path, content in files_of(root).items() if path.startswith("outputs/index")}
    theirs = {path: content for path, content in other.items() if path.startswith("outputs/index")}
    assert {path: mine[path] for path in theirs if path in mine} == mine
    assert mine.keys() <= theirs.keys()


def test_versions_of_the_old_buckets_answer_as_before(root):
    def asked():
        store = Store.open(root)
        return [
            Retriever(open_version(store, version), ENCODER).search(f"acme/{user}", "the red bicycle").hits
            for user in USERS
        ]

    version = current_version(Store.open(root))[1]
    before = asked()
    assert any(before)
    rebucket(Store.open(root), 7, NOW, Silent())
    assert asked() == before
    run(config_of(root, buckets=7))
    assert current_version(Store.open(root))[1] != version
    assert asked() == before


def test_there_and_back_is_as_if_nothing_was(root):
    before = files_of(root)
    rebucket(Store.open(root), 5, NOW, Silent())
    rebucket(Store.open(root), 3, NOW, Silent())
    assert files_of(root) == before


def test_logs_that_were_imported_are_known_afterwards(root, tmp_path):
    rebucket(Store.open(root), 5, NOW, Silent())
    for config in configs(root, tmp_path, 5):
        assert run(config).imported.files == 0
    more = run(config_of(root, write_jsonl(tmp_path / "more.jsonl", rows(("fay",))), buckets=5))
    assert (more.imported.number, more.imported.turns) == (3, 12)


class Killed(BaseException):
    """Ends a job as a signal does."""


MOMENTS = ("finish", "write_json", "remove", "remove_file")


def killed_at(monkeypatch, moment):
    """Let the process end before a change of the store; return how many there were before."""
    count = [0]

    def wrap(original):
        def changing(self, *arguments, **named):
            count[0] += 1
            if count[0] == moment:
                raise Killed
            return original(self, *arguments, **named)

        return changing

    for name in MOMENTS:
        monkeypatch.setattr(Store, name, wrap(getattr(Store, name)))
    return count


def test_a_change_that_was_stopped_leaves_a_store_and_is_finished_by_the_next(original, tmp_path, monkeypatch, wanted):
    other, version = wanted(5)
    rows_before = sum(one.entry.rows for one in read_imports(Store.open(original)))
    moment, found = 1, []
    while True:
        root = shutil.copytree(original, tmp_path / f"at-{moment}")
        with monkeypatch.context() as patched:
            killed_at(patched, moment)
            try:
                rebucket(Store.open(root), 5, NOW, Silent())
                break
            except Killed:
                pass
        store = Store.open(root)
        found.append(store.buckets)
        parts = [part for own in imported_parts(store, read_imports(store), NO_TOMBSTONES).values() for part in own]
        assert sum(part.read().num_rows for part in parts) == rows_before
        if moment % 6 == 0:
            assert run(config_of(root, buckets=store.buckets)).built.turns == 72
        rebucket(Store.open(root), 5, NOW, Silent())
        assert_imports_equal(root, other)
        if moment % 6 == 0:
            assert run(config_of(root, buckets=5)).built.version == version
        shutil.rmtree(root)
        moment += 1
    assert sorted(found) == found
    assert set(found) == {3, 5}


def test_a_change_may_be_given_up_for_another_one(original, tmp_path, monkeypatch, wanted):
    for moment in (3, 5, 7):
        root = shutil.copytree(original, tmp_path / f"at-{moment}")
        with monkeypatch.context() as patched:
            killed_at(patched, moment)
            with pytest.raises(Killed):
                rebucket(Store.open(root), 5, NOW, Silent())
        rebucket(Store.open(root), 2, NOW, Silent())
        assert_imports_equal(root, wanted(2)[0])


def calls_of(root):
    found = [
        (path.parent.name, row) for path in root.glob("calls/*/*.parquet") for row in pq.read_table(path).to_pylist()
    ]
    return sorted((row["namespace"], row["request_hash"], folder) for folder, row in found)


@pytest.mark.parametrize("moment", [None, 7])
def test_answers_of_a_model_move_along_and_nothing_is_asked_twice(tmp_path, monkeypatch, moment):
    log = write_jsonl(tmp_path / "log.jsonl", rows(USERS, 8))
    model = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE)}

    def built(name, buckets):
        chat = ScriptedChat()
        config = config_of(tmp_path / name, log, buckets=buckets, llm=model)
        rebuild(config, StaticEncoder(), NOW, Silent(), chat)
        return chat.asked

    assert built("store", 3)
    assert built("other", 5)
    root = tmp_path / "store"
    before = ledger(Store.open(root), config_of(root).llm.prices, ["namespace"])["calls"].sum()
    if moment is not None:
        with monkeypatch.context() as patched, pytest.raises(Killed):
            killed_at(patched, moment)
            rebucket(Store.open(root), 5, NOW, Silent())
    rebucket(Store.open(root), 5, NOW, Silent())
    assert calls_of(root) == calls_of(tmp_path / "other")
    assert all(is_sound(path) for path in root.glob("calls/*/*.parquet"))
    assert built("store", 5) == []
    assert ledger(Store.open(root), config_of(root).llm.prices, ["namespace"])["calls"].sum() == before


def test_a_damaged_import_is_refused_with_its_log_and_nothing_changes(root):
    path = next(root.glob("outputs/import/*/bucket-*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    before = files_of(root)
    with pytest.raises(StoreError, match=r"bucket-.*\.parquet.* import again .*\.jsonl"):
        rebucket(Store.open(root), 5, NOW, Silent())
    after = files_of(root)
    assert {path: after[path] for path in before} == before
    # What was written before the damaged file was met is of no store, and gone the next time.
    assert {path.split("/")[1] for path in after.keys() - before.keys()} <= {"import"}


def test_a_store_in_use_is_not_changed(root):
    before = files_of(root)
    with hold_lease(Store.open(root), "rebuild", NOW), pytest.raises(LeaseHeld):
        rebucket(Store.open(root), 5, NOW, Silent())
    assert files_of(root) == before


def test_a_store_that_was_changed_since_it_was_opened_is_changed_as_it_is_now(root, wanted):
    opened = Store.open(root)
    rebucket(Store.open(root), 5, NOW, Silent())
    done = rebucket(opened, 3, NOW, Silent())
    assert (done.before, done.after) == (5, 3)
    assert Store.open(root).buckets == 3


def test_a_rebuild_that_waited_for_a_change_works_on_what_came_of_it(root, monkeypatch):
    def change_and_hold(store, *given):
        rebucket(Store.open(root), 5, NOW, Silent())
        return hold_lease(store, *given)

    monkeypatch.setattr("pipelines.run.hold_lease", change_and_hold)
    with pytest.raises(StoreError, match=r"made with 5 buckets.*says 3"):
        run(config_of(root, buckets=3))
    done = run(config_of(root, buckets=0))
    assert open_version(done.store).store_buckets == 5


def test_a_configuration_of_other_buckets_is_told_what_to_run(root):
    with pytest.raises(StoreError, match=r"made with 3 buckets.*5.*jobs\.rebucket CONFIG --buckets 5"):
        run(config_of(root, buckets=5))


def test_a_store_of_other_tables_is_refused_with_what_to_run(root):
    path = root / "store.json"
    path.write_text(json.dumps(seal({**json.loads(path.read_text()), "schema_version": 1})))
    with pytest.raises(StoreError, match=r"tables of version 1.*jobs\.rebuild CONFIG --set store\.root=NEW"):
        rebucket(Store.open(root), 5, NOW, Silent())
