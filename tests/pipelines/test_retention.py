import errno
import json
import os
import shutil
from contextlib import suppress
from datetime import timedelta

import pytest

from hgmem_core.model_config import EncoderConfig
from pipelines.encoders import open_encoder
from pipelines.files import StoreError, seal
from pipelines.lease import LeaseHeld, LeaseLost, hold_lease
from pipelines.retention import prune, prune_held
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.version_history import history
from pipelines.versions import VersionError, current_version, manifest_path, open_version, point_to
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


class Killed(BaseException):
    """As sudden as a power cut."""


def interrupted(monkeypatch, store, at, by, is_killed=False):
    """Do `by` before the change of that number that a pruning makes, and kill it before the next one.

    Returns:
        Whether it came to that.
    """
    left, came = [at], []

    def before(name, real):
        def change(self, *arguments):
            left[0] -= 1
            if left[0] == -2 and is_killed:
                raise Killed
            if left[0] == -1:
                came.append(name)
                with monkeypatch.context() as undone:
                    undone.setattr(Store, "claim", CLAIM)
                    undone.setattr(Store, "remove", REMOVE)
                    by()
            return real(self, *arguments)

        return change

    with monkeypatch.context() as changed:
        for name, real in (("claim", CLAIM), ("remove", REMOVE)):
            changed.setattr(Store, name, before(name, real))
        prune(store, 1, NOW)
    return bool(came)


CLAIM, REMOVE = Store.claim, Store.remove


@pytest.mark.parametrize("then", ["it goes on", "it is killed"])
def test_a_rollback_at_any_moment_of_a_pruning_is_refused_or_keeps_its_version(original, tmp_path, monkeypatch, then):
    step = moved = 0
    while True:
        store = Store.open(shutil.copytree(original, tmp_path / f"store-{step}"))
        first, *_, last = ids(store)

        def rolled_back(store=store, first=first):
            with suppress(VersionError):
                point_to(store, first)

        with suppress(Killed):
            if not interrupted(monkeypatch, store, step, rolled_back, then == "it is killed"):
                break
        current = current_version(store)[1]
        assert open_version(store).id == current in (first, last)
        list(open_version(store).verify())
        moved += current == first
        if then == "it is killed":
            prune(store, 1, NOW)
            assert current_version(store)[1] == current
            list(open_version(store).verify())
            assert len(ids(store)) == (4 if current == first else 1)
        shutil.rmtree(store.root)
        step += 1 if step < 4 else 5
    assert step > 14
    assert moved == 1  # before the pruning said what goes


def test_a_version_whose_removal_was_cut_short_is_told_so_and_cannot_be_chosen(store, monkeypatch):
    first, *_, last = ids(store)

    def kill():
        raise Killed

    with suppress(Killed):
        interrupted(monkeypatch, store, 1, kill)
    with pytest.raises(VersionError, match=f"no version '{first}' any more: it was removed, or is about to be"):
        point_to(store, first)
    assert [bool(one.fault) for one in history(store)] == [True, True, True, False]
    assert prune(store, 99, NOW).kept == (last,)


def test_a_version_that_was_removed_is_current_again_once_it_is_built_again(tmp_path):
    root = tmp_path / "store"
    logs = [write_jsonl(tmp_path / "log.jsonl", rows(users=("ana",)))]
    one = run(config_of(root, *logs)).built.version
    for k1 in (1.2, 0.9):
        other = run(config_of(root, *logs, index={"k1": k1})).built.version
    store = Store.open(root)
    assert prune(store, 2, NOW).versions == (one,)
    point_to(store, ids(store)[0])
    again = run(config_of(root, *logs)).built
    assert (again.version, again.is_new) == (one, True)
    point_to(store, other)
    assert point_to(store, one)
    list(open_version(store, one).verify())


def test_a_pruning_that_lost_its_lease_removes_nothing_more(store, monkeypatch):
    before = outputs(store)

    def lost():
        (store.root / "lease.json").unlink()

    with pytest.raises(LeaseLost):
        interrupted(monkeypatch, store, 3, lost)
    assert outputs(store) == before
    assert len(ids(store)) == 1


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


def test_a_rebuild_is_done_though_the_disk_is_full_by_then(store, tmp_path, monkeypatch):
    claim = Store.claim

    def full(self, kind, number, content):
        if content.get("removes"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return claim(self, kind, number, content)

    monkeypatch.setattr(Store, "claim", full)
    place = {"root": str(store.root), "buckets": 3, "keep_versions": 2}
    done = run(config_of(store.root, write_jsonl(tmp_path / "eve.jsonl", rows(users=("eve",))), store=place))
    assert done.pruned is None
    assert current_version(store)[1] == done.built.version
    assert len(ids(store)) == 5


def test_a_rebuild_is_done_though_nothing_could_be_removed(store, tmp_path):
    third = ids(store)[3]
    manifest_path(store, third).write_text("{}")
    place = {"root": str(store.root), "buckets": 3, "keep_versions": 2}
    done = run(config_of(store.root, write_jsonl(tmp_path / "eve.jsonl", rows(users=("eve",))), store=place))
    assert done.pruned is None
    assert current_version(store)[1] == done.built.version
    assert len(ids(store)) == 5
