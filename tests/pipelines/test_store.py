import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from hgmem_core.schemas import SCHEMA_VERSION
from pipelines.hosts import host_id
from pipelines.store import Store, StoreError, create_json, open_arrow, write_file


def test_a_store_remembers_its_buckets(tmp_path):
    Store.make(tmp_path / "store", 4)
    assert Store.open(tmp_path / "store").buckets == Store.make(tmp_path / "store", 0).buckets == 4
    assert Store.make(tmp_path / "other", 0).buckets == 8
    with pytest.raises(StoreError, match="was made with 4 buckets, the configuration says 8"):
        Store.make(tmp_path / "store", 8)


def test_a_place_without_a_store_or_with_a_newer_one_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is no store"):
        Store.open(tmp_path)
    Store.make(tmp_path / "store", 4)
    (tmp_path / "store" / "store.json").write_text('{"schema_version": 99, "buckets": 4}')
    with pytest.raises(StoreError, match=f"tables of version 99; this software reads {SCHEMA_VERSION}"):
        Store.open(tmp_path / "store")
    for content in (
        '{"schema',
        "[]",
        "{}",
        f'{{"schema_version": {SCHEMA_VERSION}}}',
        f'{{"schema_version": {SCHEMA_VERSION}, "buckets": 0}}',
    ):
        (tmp_path / "store" / "store.json").write_text(content)
        with pytest.raises(StoreError, match=r"store\.json is damaged"):
            Store.open(tmp_path / "store")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make a store"):
        Store.make(tmp_path / "file" / "store", 4)


def test_an_output_appears_whole_or_not_at_all(tmp_path):
    store = Store.make(tmp_path, 1)
    folder = store.output_folder("stage", "abc")
    with pytest.raises(AttributeError):
        store.keep(folder, {"good.arrow": pa.table({"a": [1]}), "bad.arrow": object()}, {})
    assert store.find(folder) is None
    assert not folder.exists()
    assert list((tmp_path / "tmp").iterdir()) == []
    kept = store.keep(folder, {"good.arrow": pa.table({"a": [1]})}, {"note": 1})
    assert store.find(folder).manifest == kept.manifest
    assert open_arrow(folder / "good.arrow").to_pydict() == {"a": [1]}


def test_the_first_to_finish_an_output_wins(tmp_path):
    store = Store.make(tmp_path, 1)
    folder = store.output_folder("stage", "abc")
    store.keep(folder, {"x.arrow": pa.table({"a": [1]})}, {"by": "first"})
    assert store.keep(folder, {"x.arrow": pa.table({"a": [2]})}, {"by": "second"}).manifest["by"] == "first"
    assert open_arrow(folder / "x.arrow").to_pydict() == {"a": [1]}


def test_a_damaged_or_unfinished_output_gives_way(tmp_path):
    store = Store.make(tmp_path, 1)
    folder = store.output_folder("stage", "abc")
    files = {"x.arrow": pa.table({"a": [1]})}
    first = store.keep(folder, files, {})
    content = (folder / "x.arrow").read_bytes()
    for damaged in (content[:10], content.replace(b"a", b"b", 1), None):
        (folder / "x.arrow").unlink()
        if damaged is not None:
            (folder / "x.arrow").write_bytes(damaged)
        assert store.find(folder).damage()
        assert store.keep(folder, files, {}).manifest == first.manifest
        assert (folder / "x.arrow").read_bytes() == content
    (folder / "manifest.json").unlink()
    (folder / "stray").mkdir()
    assert store.keep(folder, files, {}).manifest == first.manifest
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "x.arrow"]


def test_an_output_that_another_maker_mended_just_now_stays(tmp_path, monkeypatch):
    store = Store.make(tmp_path, 1)
    folder = store.output_folder("stage", "abc")
    store.keep(folder, {"x.arrow": pa.table({"a": [1]})}, {"by": "first"})
    inode, find = folder.stat().st_ino, Store.find

    def too_early(self, folder):
        monkeypatch.setattr(Store, "find", find)

    monkeypatch.setattr(Store, "find", too_early)
    assert store.keep(folder, {"x.arrow": pa.table({"a": [2]})}, {"by": "second"}).manifest["by"] == "first"
    assert folder.stat().st_ino == inode


def test_makers_who_find_the_same_damage_leave_one_whole_output(tmp_path):
    store = Store.make(tmp_path, 1)
    folder = store.output_folder("stage", "abc")
    table = pa.table({"a": list(range(1000))})
    for _ in range(20):
        store.keep(folder, {"x.arrow": table}, {})
        (folder / "x.arrow").write_bytes(b"damaged")
        at_once(8, lambda _: store.keep(folder, {"x.arrow": table}, {}))
        assert store.find(folder).damage() is None
        assert list((tmp_path / "tmp").iterdir()) == []


def test_makers_of_one_store_at_once_all_get_it(tmp_path):
    for number in range(40):
        stores = at_once(8, lambda _, number=number: Store.make(tmp_path / str(number), 4))
        assert [store.buckets for store in stores] == [4] * 8


def at_once(count, work):
    """Call `work` in threads that begin together; its results, or the first error."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_what_is_left_of_processes_that_are_gone_is_swept(tmp_path):
    store, day = Store.make(tmp_path, 1), 24 * 3600
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone, run = done.stdout.decode().strip(), "0a1b2c3d-0123456789abcdef0123456789abcdef"
    ages_s = {
        f"{host_id()}-{gone}-{run}": 0,
        f"{gone}-{run}": 0,
        f"far_00000000-{os.getpid()}-{run}": day + 60,
        f"{host_id()}-{os.getppid()}-{run}": 9 * day,
        f"{os.getppid()}-12345678-{'1' * 32}": 9 * day,
        f"far_00000000-{gone}-{run}": day - 60,
        "notes": 9 * day,
    }
    with store.workspace() as ours:
        ages_s[ours.name] = 9 * day
        for name, age_s in ages_s.items():
            (tmp_path / "tmp" / name / "inside").mkdir(parents=True, exist_ok=True)
            changed = time.time() - age_s
            os.utime(tmp_path / "tmp" / name / "inside", (changed, changed))
            os.utime(tmp_path / "tmp" / name, (changed - 9 * day, changed - 9 * day))
        store.sweep()
        assert {path.name for path in tmp_path.glob("tmp/*")} == set(list(ages_s)[3:])


def test_a_workspace_names_its_host_and_process(tmp_path):
    with Store.make(tmp_path, 1).workspace() as folder:
        assert folder.name.startswith(f"{host_id()}-{os.getpid()}-")


def test_only_numbered_names_are_numbered_files(tmp_path):
    store = Store.make(tmp_path, 1)
    store.append_numbered("current", {"a": 1})
    for name in ("000002 (copy).json", "000003.json~", ".000004.json.ab", "5.json", "0000006.json", "000007.txt"):
        (tmp_path / "current" / name).write_text("{}")
    assert [number for number, _ in store.numbered("current")] == [1]
    assert store.append_numbered("current", {"a": 2}) == 2
    (tmp_path / "current" / "1000000.json").write_text("{}")
    assert store.append_numbered("current", {"a": 3}) == 1_000_001


def test_concurrent_writers_never_share_a_number(tmp_path):
    store = Store.make(tmp_path, 1)
    numbers = []
    threads = [
        threading.Thread(target=lambda who=who: numbers.append(store.append_numbered("current", {"who": who})))
        for who in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 17))
    assert sorted(json.loads(path.read_text())["who"] for _, path in store.numbered("current")) == list(range(16))


def test_a_json_file_is_never_replaced(tmp_path):
    create_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(FileExistsError):
        create_json(tmp_path / "a.json", {"a": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_slice_is_written_without_bytes_of_its_neighbours(tmp_path):
    table = pa.table(
        {"text": ["kept", "a canary beside it", "kept"], "more": [["a"], ["another canary, in a list"], []]}
    )
    for start in (0, 1, 2):
        for kept in (table.slice(0, start), table.slice(start + 1)):
            write_file(tmp_path / "slice.arrow", kept)
            assert open_arrow(tmp_path / "slice.arrow").equals(kept)
            if start == 1:
                assert b"canary" not in (tmp_path / "slice.arrow").read_bytes()
