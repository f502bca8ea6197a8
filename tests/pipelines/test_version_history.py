import json
import shutil
from datetime import timedelta

import pytest

from pipelines.files import StoreError, seal
from pipelines.retention import prune
from pipelines.store import Store
from pipelines.version_history import Reach, history
from pipelines.versions import current_version, manifest_path, point_to
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store of two versions: the second has a namespace more, in a bucket of its own or not."""
    folder = tmp_path_factory.mktemp("original")
    run(config_of(folder / "store", write_jsonl(folder / "one.jsonl", rows())))
    more = write_jsonl(folder / "two.jsonl", rows(users=("dee",)))
    run(config_of(folder / "store", more), NOW - timedelta(days=400))  # the clock jumped back
    return folder / "store"


@pytest.fixture
def store(original, tmp_path):
    shutil.copytree(original, tmp_path / "store")
    return Store.open(tmp_path / "store")


def on_disk(store, *versions):
    """The bytes of the outputs of some versions, counted file by file."""
    folders = set()
    for version in versions:
        for about in json.loads(manifest_path(store, version).read_text())["buckets"].values():
            folder = store.root / about["folder"]
            made_from = json.loads((folder / "manifest.json").read_text())["made_from"]
            folders |= {folder, *(store.root / "outputs" / stage / name for stage, name in made_from.items())}
    return sum(path.stat().st_size for folder in folders for path in folder.glob("*"))


def test_versions_stand_in_the_order_of_their_pointers_whatever_the_clock_said(store):
    first, second = history(store)
    assert (first.numbers, second.numbers) == ((1,), (2,))
    assert (first.is_current, second.is_current) == (False, True)
    assert (first.published_at, second.published_at) == (NOW, NOW - timedelta(days=400))
    assert first.counts == {"namespaces": 3, "turns": 36, "episodes": 9, "facts": 36, "topics": 3, "skills": 0}
    assert second.counts["turns"] == 48


def test_what_versions_take_and_share_is_what_their_files_take(store):
    first, second = history(store)
    assert first.bytes == on_disk(store, first.version)
    assert second.bytes == on_disk(store, second.version)
    both = on_disk(store, first.version, second.version)
    assert first.shared_bytes == second.shared_bytes == first.bytes + second.bytes - both > 0


def test_a_rollback_is_another_number_of_a_version_with_the_time_of_its_first(store):
    first = history(store)[0].version
    point_to(store, first, NOW + timedelta(days=1))
    found = history(store)[0]
    assert (found.version, found.numbers, found.is_current, found.published_at) == (first, (1, 3), True, NOW)


def test_a_pointer_without_a_time_leaves_it_unknown(store):
    path = store.root / "current" / "000002.json"
    content = json.loads(path.read_text())
    del content["published_at"]
    path.write_text(json.dumps(seal(content)))
    assert [record.published_at is None for record in history(store)] == [False, True]


def test_damaged_versions_are_listed_with_what_is_wrong(store):
    first, second = (record.version for record in history(store))
    manifest_path(store, first).write_text("{}")
    damaged, sound = history(store)
    assert (damaged.version, damaged.bytes, damaged.counts, sound.fault) == (first, 0, {}, None)
    assert f"{first}/manifest.json is damaged" in damaged.fault
    assert sound.version == second


@pytest.mark.parametrize("content", [{}, {"buckets": [1]}, {"buckets": {"0": {"place": "elsewhere"}}, "skills": []}])
def test_a_version_of_later_software_is_listed_and_nothing_is_removed_that_it_may_need(store, content):
    first, second = (record.version for record in history(store))
    manifest_path(store, second).write_text(json.dumps(seal({**content, "version": second, "schema_version": 99})))
    sound, later = history(store)
    assert (sound.version, sound.fault, later.version, later.counts) == (first, None, second, {})
    assert "'schema_version': 99" in later.fault and "rebuild the store" in later.fault
    before = files_of(store.root)
    with pytest.raises(StoreError, match=f"{second}/manifest.json is damaged or .* use the software that made it"):
        prune(store, 1, NOW)
    assert files_of(store.root) == before
    point_to(store, first)
    assert current_version(store) == (3, first)


def test_a_store_without_a_version_has_no_history(tmp_path):
    assert history(Store.make(tmp_path / "store", 2)) == []


def test_skills_count_and_their_outputs_too(tmp_path):
    done = run(runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs())))
    [record] = history(done.store)
    assert record.counts["skills"] == done.built.skills > 0
    files = done.store.root.glob("outputs/[!i]*/*/*.*")
    indexes = done.store.root.glob("outputs/index_skills/*/*.*")
    assert record.bytes == sum(path.stat().st_size for path in (*files, *indexes))


def test_a_rollback_to_a_version_whose_removal_begins_in_that_moment_moves_nothing(store, monkeypatch):
    first, second = (record.version for record in history(store))
    claim = Store.claim

    def claimed(self, kind, number, content):
        monkeypatch.setattr(Store, "claim", claim)
        prune(self, 1, NOW)
        return claim(self, kind, number, content)

    monkeypatch.setattr(Store, "claim", claimed)
    with pytest.raises(StoreError, match=f"no version '{first}' any more: it was removed, or is about to be"):
        point_to(store, first)
    assert current_version(store) == (3, second)
    [left] = history(store)
    assert (left.version, left.numbers, left.is_current) == (second, (2,), True)


def test_an_output_that_somebody_removes_meanwhile_is_one_that_is_not_there(store, monkeypatch):
    folder = next(store.output_folders())
    assert Reach(store).bytes(folder) > 0
    find = Store.find

    def found_and_removed(self, folder):
        output = find(self, folder)
        shutil.rmtree(folder)
        return output

    monkeypatch.setattr(Store, "find", found_and_removed)
    assert Reach(store).bytes(folder) == 0
