import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from hgmem_core.schemas import SchemaError
from pipelines.files import StoreError, seal
from pipelines.store import Store
from pipelines.tombstone_files import Tombstone, add_tombstones, number_of_tombstones, read_tombstones
from tests.pipelines.logs import NOW


@pytest.fixture
def store(tmp_path):
    return Store.make(tmp_path / "store", 3)


def named(*namespaces):
    return [Tombstone(namespace=name, scope="namespace", deleted_at=NOW) for name in namespaces]


def test_tombstones_are_read_as_they_were_written(store):
    assert number_of_tombstones(store) == 0
    assert read_tombstones(store).namespaces == frozenset()
    assert add_tombstones(store, named("acme/ana", "acme/bo")) == 1
    assert add_tombstones(store, named("acme/chen")) == number_of_tombstones(store) == 2
    assert read_tombstones(store).namespaces == {"acme/ana", "acme/bo", "acme/chen"}
    assert read_tombstones(store, until=1).namespaces == {"acme/ana", "acme/bo"}
    assert read_tombstones(store, until=0).namespaces == frozenset()


def test_the_later_number_decides_whatever_the_clock_said(store):
    [lifted] = named("acme/ana")
    add_tombstones(store, named("acme/ana"))
    add_tombstones(store, [lifted.model_copy(update={"deleted_at": NOW.replace(year=2001), "restored_at": NOW})])
    assert read_tombstones(store).namespaces == frozenset()
    add_tombstones(store, [lifted.model_copy(update={"deleted_at": NOW.replace(year=2002)})])
    assert read_tombstones(store).namespaces == {"acme/ana"}


def test_of_many_writers_none_is_lost(store):
    names = [f"acme/{number}" for number in range(30)]
    with ThreadPoolExecutor(6) as pool:
        numbers = list(pool.map(lambda name: add_tombstones(store, named(name)), names))
    assert sorted(numbers) == list(range(1, 31))
    assert read_tombstones(store).namespaces == set(names)


def test_one_row_twice_in_a_file_is_refused(store):
    with pytest.raises(SchemaError, match="two rows share the key"):
        add_tombstones(store, named("acme/ana", "acme/ana"))
    assert number_of_tombstones(store) == 0


@pytest.mark.parametrize("damage", ["missing", "altered", "emptied", "another"])
def test_a_damaged_file_is_refused_by_name(store, damage):
    for name in ("acme/ana", "acme/bo"):
        add_tombstones(store, named(name))
    path = store.root / "tombstones" / "000001.json"
    content = path.read_text()
    if damage == "missing":
        path.unlink()
    else:
        other = json.dumps({"tombstones": []})
        path.write_text({"altered": content.replace("ana", "amy"), "emptied": "", "another": other}[damage])
    with pytest.raises(StoreError, match=r"000001\.json is missing or damaged"):
        read_tombstones(store)


@pytest.mark.parametrize("name", ["namespace", "id", "scope", "deleted_at"])
def test_a_whole_file_that_holds_no_tombstones_is_refused_by_name(store, name):
    row = {**named("acme/ana")[0].model_dump(mode="json"), name: "\ud800"}
    store.append_numbered("tombstones", seal({"tombstones": [row]}))
    with pytest.raises(StoreError, match=r"000001\.json holds something else than tombstones"):
        read_tombstones(store)
