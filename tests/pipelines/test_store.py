import json
import threading

import pyarrow as pa
import pytest

from pipelines.store import Store, StoreError, create_json, open_arrow, read_json


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
    with pytest.raises(StoreError, match="tables of version 99; this software reads 1"):
        Store.open(tmp_path / "store")
    (tmp_path / "store" / "store.json").write_text('{"schema')
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
    assert sorted(read_json(path)["who"] for _, path in store.numbered("current")) == list(range(16))


def test_a_json_file_is_never_replaced(tmp_path):
    create_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(FileExistsError):
        create_json(tmp_path / "a.json", {"a": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
