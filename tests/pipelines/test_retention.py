import json
import shutil
from datetime import timedelta

import pytest

from hgmem_core.model_config import EncoderConfig
from pipelines.encoders import open_encoder
from pipelines.files import StoreError, seal
from pipelines.lease import LeaseHeld, hold_lease
from pipelines.retention import prune, prune_held
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.version_history import history
from pipelines.versions import current_version, manifest_path, open_version, point_to
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl

ENCODER = open_encoder(EncoderConfig(name="static"))
USERS = ("ana", "bo", "chen", "dee")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store of four versions, each of a log more than the one before."""
    folder = tmp_path_factory.mktemp("original")
    for user in USERS:
        run(config_of(folder / "store", write_jsonl(folder / f"{user}.jsonl", rows(users=(user,)))))
    return folder / "store"


@pytest.fixture
def store(original, tmp_path):
    shutil.copytree(original, tmp_path / "store")
    return Store.open(tmp_path / "store")


def ids(store):
    return [record.version for record in history(store)]


def ask(store, namespace="acme/ana", version=None):
    return Retriever(open_version(store, version), ENCODER).search(namespace, "the red bicycle").hits


def outputs(store):
    return {path for path in files_of(store.root) if path.startswith("outputs/")}


@pytest.mark.parametrize(("keep", "left"), [(1, [3]), (2, [2, 3]), (4, [0, 1, 2, 3]), (99, [0, 1, 2, 3])])
def test_the_newest_versions_stay_and_answer_as_before(store, keep, left):
    before = ids(store)
    answers = {version: ask(store, version=version) for version in before}
    pruned = prune(store, keep, NOW)
    assert ids(store) == [before[place] for place in left] == list(pruned.kept)
    assert pruned.versions == tuple(version for version in before if version not in pruned.kept)
    for version in pruned.kept:
        list(open_version(store, version).verify())
        assert ask(store, version=version) == answers[version]
    assert (pruned.bytes > 0) == (len(left) < 4)


def test_what_is_left_of_a_store_is_what_a_new_store_of_its_logs_has(store, tmp_path):
    prune(store, 1, NOW)
    logs = [write_jsonl(tmp_path / f"{user}.jsonl", rows(users=(user,))) for user in USERS]
    new = run(config_of(tmp_path / "new", *logs))
    assert new.built.version == current_version(store)[1]
    left, made = (  # how many imports a log came in tells in the names of these two alone
        {path for path in outputs(one) if path.split("/")[1] not in ("import", "merge")} for one in (store, new.store)
    )
    assert left == made
    merges = ({path for path in outputs(one) if path.startswith("outputs/merge/")} for one in (store, new.store))
    assert len(next(merges)) == len(next(merges))


def test_a_rebuild_after_pruning_makes_nothing_again(store):
    prune(store, 1, NOW)
    assert run(config_of(store.root)).built.report.made.total() == 0


def test_a_rollback_keeps_what_it_can_go_forward_to(store):
    first, second, third, fourth = ids(store)
    point_to(store, second)
    pruned = prune(store, 1, NOW)
    assert (pruned.versions, pruned.kept) == ((first,), (second, third, fourth))
    point_to(store, fourth)
    assert prune(store, 1, NOW).kept == (fourth,)


def test_the_newer_version_stays_whatever_the_clock_said(store):
    before = ids(store)
    for path in store.root.glob("current/*.json"):
        earlier = NOW - timedelta(days=int(path.stem))
        path.write_text(json.dumps(seal({**json.loads(path.read_text()), "published_at": earlier.isoformat()})))
    pruned = prune(store, 2, NOW)
    assert (pruned.versions, pruned.kept) == (tuple(before[:2]), tuple(before[2:]))
    assert current_version(store)[1] == before[3]


def test_a_version_that_never_was_current_goes(store):
    last = store.root / "current" / "000004.json"
    last.unlink()
    first, *_ = history(store)
    assert first.numbers == ()
    pruned = prune(store, 99, NOW)
    assert pruned.versions == (first.version,)
    assert len(pruned.kept) == 3
    assert first.version not in pruned.kept
    list(open_version(store).verify())


def test_a_dry_run_says_the_same_and_removes_nothing(store):
    before = files_of(store.root)
    told = prune_held(store, 2, dry_run=True)
    assert files_of(store.root) == before
    assert prune(store, 2, NOW) == told


def test_disk_freed_is_what_is_gone(store):
    before = files_of(store.root)
    pruned = prune(store, 1, NOW)
    after = files_of(store.root)
    gone = [path for path in before if path not in after]
    assert pruned.bytes == sum(len(before[path]) for path in gone)
    assert {path.partition("/")[0] for path in gone} == {"versions", "outputs"}
    assert not list((store.root / "tmp").glob("*"))


def test_outputs_of_no_version_go_and_imports_and_answers_stay(store):
    left = store.root / "outputs" / "extract" / ("0" * 32)
    left.mkdir()
    (left / "facts.parquet").write_bytes(b"half")
    kept = store.root / "calls" / "bucket-000000" / "x.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"answer")
    imports = {path for path in outputs(store) if path.startswith("outputs/import/")}
    assert prune(store, 99, NOW).outputs == 1
    assert not left.exists()
    assert kept.exists()
    assert imports <= outputs(store)


def test_a_pruning_that_was_killed_is_finished_by_the_next(original, tmp_path, monkeypatch):
    whole = Store.open(shutil.copytree(original, tmp_path / "whole"))
    prune(whole, 1, NOW)
    want, steps = files_of(whole.root), 0
    remove = Store.remove

    class Killed(BaseException):
        pass

    while True:
        store = Store.open(shutil.copytree(original, tmp_path / f"killed-{steps}"))
        left = [steps]

        def removing(self, folder, left=left):
            if not left[0]:
                raise Killed
            left[0] -= 1
            remove(self, folder)

        monkeypatch.setattr(Store, "remove", removing)
        try:
            prune(store, 1, NOW)
        except Killed:
            monkeypatch.setattr(Store, "remove", remove)
            for record in history(store):
                list(open_version(store, record.version).verify())
            assert run(config_of(store.root)).built.report.made.total() == 0
            prune(store, 1, NOW)
            assert files_of(store.root) == want
            shutil.rmtree(store.root)
            steps += 7
        else:
            break
    assert steps > 14


def test_a_reader_keeps_what_it_has_mapped(store):
    version = open_version(store, ids(store)[0])
    retriever = Retriever(version, ENCODER)
    hits = retriever.search("acme/ana", "the red bicycle").hits
    prune(store, 1, NOW)
    assert retriever.search("acme/ana", "the red bicycle").hits == hits


def test_a_rollback_in_the_moment_of_removal_keeps_its_version(store, monkeypatch):
    first, *_ = ids(store)
    remove = Store.remove

    def rolled_back(self, folder):
        if folder == manifest_path(self, first).parent:
            self.append_numbered("current", {"version": first, "rollback": True})
        remove(self, folder)

    monkeypatch.setattr(Store, "remove", rolled_back)
    pruned = prune(store, 1, NOW)
    assert first in pruned.kept
    assert first not in pruned.versions
    assert open_version(store).id == first
    list(open_version(store).verify())


def test_a_store_in_use_is_not_pruned(store):
    before = files_of(store.root)
    with hold_lease(store, "rebuild", NOW), pytest.raises(LeaseHeld):
        prune(store, 1, NOW)
    assert files_of(store.root) == before


@pytest.mark.parametrize("name", ["versions/{}/manifest.json", "index"])
def test_nothing_is_removed_where_a_damaged_manifest_hides_what_is_needed(store, name):
    version = ids(store)[2]
    if name == "index":
        own = open_version(store, version).manifest["buckets"].values()
        path = next(store.root / about["folder"] / "manifest.json" for about in own)
    else:
        path = store.root / name.format(version)
    path.write_text("{}")
    before = files_of(store.root)
    with pytest.raises(StoreError, match=str(path.relative_to(store.root)).replace(".", r"\.")):
        prune(store, 2, NOW)
    assert files_of(store.root) == before
    if name != "index":  # a version that goes need not be sound
        assert version in prune(store, 1, NOW).versions


def test_a_store_without_a_current_version_is_refused(tmp_path):
    with pytest.raises(StoreError, match="has no current version to keep: rebuild it"):
        prune(Store.make(tmp_path / "store", 2), 1, NOW)


def test_a_rebuild_keeps_as_many_versions_as_the_settings_say(store, tmp_path):
    log = write_jsonl(tmp_path / "eve.jsonl", rows(users=("eve",)))
    place = {"root": str(store.root), "buckets": 3, "keep_versions": 2}
    done = run(config_of(store.root, log, store=place))
    assert ids(store) == list(done.pruned.kept)
    assert (len(done.pruned.kept), len(done.pruned.versions)) == (2, 3)
    assert done.built.version in done.pruned.kept
    assert run(config_of(store.root)).pruned is None


def test_a_rebuild_is_done_though_nothing_could_be_removed(store, tmp_path):
    third = ids(store)[3]
    manifest_path(store, third).write_text("{}")
    place = {"root": str(store.root), "buckets": 3, "keep_versions": 2}
    done = run(config_of(store.root, write_jsonl(tmp_path / "eve.jsonl", rows(users=("eve",))), store=place))
    assert done.pruned is None
    assert current_version(store)[1] == done.built.version
    assert len(ids(store)) == 5
