"""The size of a mirror: what goes first, what stays, and that what went is fetched again."""

import os
import time

import pytest

from pipelines.mirror_bound import note_use, served_from, trim
from pipelines.object_storage import ObjectStorage
from pipelines.retriever import Retriever
from pipelines.serve_versions import Versions
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import VersionError, current_version, open_version, point_to
from tests.pipelines.logs import config_of, rows, run, write_jsonl

HOUR = 3600


@pytest.fixture
def config(bucket, tmp_path):
    """A store of two versions in object storage, which a machine with a bounded mirror uses."""
    logs = [write_jsonl(tmp_path / f"{user}.jsonl", rows(users=(user,))) for user in ("ana", "bo")]
    for count in (1, 2):
        run(config_of(f"{bucket}/store", *logs[:count], buckets=1))
    place = {"root": f"{bucket}/store", "cache": str(tmp_path / "mirrors"), "cache_gib": 1e-6}
    return config_of(f"{bucket}/store", store=place)


@pytest.fixture
def store(config):
    return Store.open(config.store.root, config.store.cache, config.store.cache_gib)


def held(store):
    """The files that a mirror holds of outputs."""
    return {path for path in store.root.glob("outputs/*/*/*") if not path.name.startswith(".")}


def age(paths, seconds):
    """Let files be used last so long ago."""
    for path in paths:
        os.utime(path, (time.time() - seconds, path.stat().st_mtime))


def fetch(store, version=None):
    """Fetch all of a version; return its files."""
    opened = open_version(store, version)
    return {store.root / name for name in opened.verify()}


def test_what_was_used_longest_ago_goes_first_until_it_is_enough(tmp_path):
    paths = [tmp_path / "outputs" / "index" / name / "nodes.arrow" for name in "abcd"]
    for place, path in enumerate(paths):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(1_000))
        age([path], HOUR * (4 - place))
    (tmp_path / "store.json").write_bytes(bytes(10_000))
    note_use(paths[0])
    trim(tmp_path, 2_000)
    assert [path.exists() for path in paths] == [True, False, False, True]
    assert (tmp_path / "store.json").exists()
    trim(tmp_path, 100)
    assert [path.exists() for path in paths] == [True, False, False, False]  # used just now
    age(paths[:1], -HOUR)
    trim(tmp_path, 100)
    assert not paths[0].exists()  # the clock jumped back since


def test_a_query_on_a_full_mirror_makes_room_and_what_went_is_fetched_again(store):
    first, second = store.version_ids()
    old = fetch(store, first)
    age(old, HOUR)
    fetch(store, second)
    assert not held(store) & old - fetch(store, second)
    assert Retriever(open_version(store, first), StaticEncoder()).search("acme/ana", "the red bicycle").hits


def test_what_a_served_version_is_made_of_stays_until_another_is_served(config, store):
    versions = Versions(config)
    versions.refresh()
    served = fetch(store)
    [other] = set(store.version_ids()) - {versions.current.version.id}
    old = fetch(store, other)
    age(served | old, HOUR)
    trim(store.root, 1)
    assert held(store) >= served and not held(store) & old - served
    point_to(store, other)
    age(served, HOUR)
    versions.refresh()
    assert versions.current.version.id == other
    assert not held(store) & served - fetch(store)


def test_a_lock_of_a_process_that_ended_keeps_nothing(store):
    _, version = current_version(store)
    with served_from(store.root, version):
        files = fetch(store)
        age(files, HOUR)
        trim(store.root, 1)
        assert held(store) >= files
    trim(store.root, 1)
    assert not held(store) & files


def test_without_a_bound_nothing_goes(config, tmp_path):
    store = Store.open(config.store.root, config.store.cache)
    first, second = store.version_ids()
    files = fetch(store, first)
    age(files, HOUR)
    fetch(store, second)
    assert held(store) >= files


def test_a_file_that_went_and_came_altered_is_not_served(config, store):
    versions = Versions(config)
    versions.refresh()
    version = versions.current.version
    about = version.manifest["buckets"]["0"]
    key = f"{about['folder']}/nodes.arrow"
    (store.root / key).unlink()
    ObjectStorage(config.store.root).put(key, bytes(about["files"]["nodes.arrow"]["bytes"]))
    with pytest.raises(VersionError, match=r"nodes\.arrow has sha256"):
        version.open_bucket(0)
