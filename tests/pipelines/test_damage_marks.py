"""Damage to a file of a version is refused by name or harmless; a disk that fails costs a job, and no store."""

import errno
import json
import shutil
from collections import Counter

import pytest

from pipelines import build
from pipelines.files import StoreError, create_json, seal
from pipelines.store import Store
from pipelines.versions import VersionError, current_version, open_version
from tests.pipelines.damage_marks import answers, kinds_of, make, trials
from tests.pipelines.logs import config_of, files_of, rows, run, write_jsonl


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return make(tmp_path_factory.mktemp("original")).root


@pytest.fixture
def store(original, tmp_path):
    return Store.open(shutil.copytree(original, tmp_path / "store"))


@pytest.mark.parametrize("seed", [1])
def test_damage_is_refused_by_name_or_harmless(store, seed):
    kinds = kinds_of(store)
    found = sum(trials(store, 2 * len(kinds), seed).values(), Counter())
    assert found.total() == 2 * len(kinds) > 60
    assert {how.partition(": ")[2] for how in found} == {"refused", "harmless"}


@pytest.mark.parametrize("kind", ["store.json", "pointer", "manifest"])
def test_every_bit_of_what_is_read_first_counts(store, kind):
    """A flip in any of the bytes, one bit of each."""
    path = kinds_of(store)[kind][0]
    before, wanted = path.read_bytes(), answers(store.root)
    for place in range(0, len(before), max(1, len(before) // 40)):
        altered = bytearray(before)
        altered[place] ^= 1 << place % 8
        path.unlink()
        path.write_bytes(altered)
        try:
            assert open_version(Store.open(store.root)).bucket_of("acme/ana") == open_version(store).bucket_of(
                "acme/ana"
            )
        except StoreError as error:
            assert path.name in str(error)
    path.write_bytes(before)
    assert answers(store.root) == wanted


@pytest.mark.parametrize(
    ("name", "old", "new"), [("store.json", '"buckets": 2', '"buckets": 3'), ("pointer", "1", "2")]
)
def test_an_altered_number_that_could_be_one_is_refused(store, name, old, new):
    path = kinds_of(store)[name][0]
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(StoreError, match=rf"{path.name} is damaged"):
        open_version(Store.open(store.root))


def test_a_pointer_to_a_version_that_is_gone_is_named(store):
    shutil.rmtree(store.root / "versions" / current_version(store)[1])
    with pytest.raises(VersionError, match=r"has no version .*current names as the current one; it has none"):
        open_version(store)


def test_a_store_of_a_later_version_is_refused(store):
    path = store.root / "store.json"
    path.write_text(json.dumps(seal({**json.loads(path.read_text()), "schema_version": 99})))
    with pytest.raises(StoreError, match=r"tables of version 99.*jobs\.rebuild CONFIG --set store\.root=NEW"):
        Store.open(store.root)


class Full(OSError):
    """What a full disk says."""

    def __init__(self):
        super().__init__(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", ["versions", "current", "finish"])
def test_a_disk_that_is_full_in_the_middle_of_a_publish_leaves_the_version_before(store, tmp_path, monkeypatch, kind):
    before, wanted = current_version(store), answers(store.root)
    log = write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",)))
    write, finish = Store.write_json, Store.finish

    def full(self, path, content, replace=False):
        if kind in path.parts:
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / f".{path.name}.half").write_text("{")
            raise Full
        write(self, path, content, replace)

    def full_output(self, draft, folder, listed, about):
        if kind == "finish" and folder.parent.name == "index":
            (draft / "manifest.json").write_text("{")
            raise Full
        return finish(self, draft, folder, listed, about)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "write_json", full)
        patched.setattr(Store, "finish", full_output)
        with pytest.raises(OSError, match="No space left"):
            run(config_of(store.root, log, buckets=2))
    assert (current_version(store), answers(store.root)) == (before, wanted)
    assert not (store.root / "lease.json").exists()
    built = run(config_of(store.root, log, buckets=2)).built
    assert (built.is_new, built.number) == (True, 2)
    assert built.report.made.total() == 0 or kind == "finish"


def test_a_file_that_a_full_disk_cut_is_never_shown(store, monkeypatch):
    def half(path):
        path.write_text("{")
        raise Full

    monkeypatch.setattr("pipelines.files.create_file", half)
    before = files_of(store.root)
    with pytest.raises(OSError, match="No space left"):
        create_json(store.root / "current" / "000002.json", {"version": "0" * 16})
    assert files_of(store.root) == before


def test_a_root_that_vanishes_in_the_middle_of_a_build_is_named_and_not_made_anew(store, tmp_path, monkeypatch):
    def gone(*arguments, **named):
        store.root.rename(tmp_path / "away")
        return publish(*arguments, **named)

    publish = build.publish
    monkeypatch.setattr(build, "publish", gone)
    monkeypatch.setattr("pipelines.lease.Lease.check", lambda self: None)
    log = write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",)))
    with pytest.raises(StoreError, match="store is gone"):
        run(config_of(store.root, log, buckets=2))
    assert not store.root.exists()
    with pytest.raises(StoreError, match="is no store"):
        Store.open(store.root)
    monkeypatch.undo()
    (tmp_path / "away").rename(store.root)
    (store.root / "lease.json").unlink()  # that of a process that is gone is taken over; this one lives on
    assert run(config_of(store.root, log, buckets=2)).built.is_new
