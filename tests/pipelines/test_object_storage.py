import threading

import pytest

from pipelines import object_storage
from pipelines.object_storage import ObjectStorage, ObjectStorageError
from tests.pipelines.object_server import times


@pytest.fixture
def storage(bucket):
    return ObjectStorage(f"{bucket}/a/b")


def of_method(method):
    return lambda found, key: found == method


def test_of_many_who_create_an_object_one_does(storage):
    assert storage.create("x.json", b"1")
    assert not storage.create("x.json", b"1")
    assert storage.get("x.json").content == b"1"


def test_an_object_that_another_wrote_meanwhile_is_not_replaced(storage):
    storage.put("x.json", b"1")
    read = storage.get("x.json")
    storage.put("x.json", b"theirs")
    assert storage.replace("x.json", b"mine", read.tag) is None
    assert storage.get("x.json").content == b"theirs"


def test_errors_of_the_server_are_tried_again(object_server, storage):
    with object_server.failing(faults=times(2, 503)):
        storage.put("x", b"1")
    with object_server.failing(faults=times(2, 500)):
        assert storage.get("x").content == b"1"
    with object_server.failing(faults=times(1, 500)):
        assert [one.key for one in storage.listed("")] == ["x"]


def test_who_created_an_object_and_did_not_hear_so_still_has_it(object_server, storage):
    with object_server.failing(lost=times(1, 500, of_method("PUT"))):
        assert storage.create("x.json", b"1")
    with object_server.failing(lost=times(1, 500, of_method("PUT"))):
        assert not storage.create("x.json", b"1")


def test_who_replaced_an_object_and_did_not_hear_so_still_has_it(object_server, storage):
    storage.put("x.json", b"1")
    read = storage.get("x.json")
    with object_server.failing(lost=times(1, 500, of_method("PUT"))):
        tag = storage.replace("x.json", b"2", read.tag)
    assert tag == storage.get("x.json").tag


def test_errors_name_the_object_and_say_what_to_do(object_server, storage, bucket):
    with object_server.failing(faults=lambda method, key: 403):
        with pytest.raises(ObjectStorageError, match=f"reading {bucket}/a/b/x .*403.*AWS_ACCESS_KEY_ID"):
            storage.get("x")
        with pytest.raises(ObjectStorageError, match=f"writing {bucket}/a/b/x "):
            storage.put("x", b"1")
    with pytest.raises(ObjectStorageError, match="s3://nowhere/x failed: there is no such bucket"):
        ObjectStorage("s3://nowhere").get("x")
    with pytest.raises(ObjectStorageError, match="s3:// names no bucket"):
        ObjectStorage("s3://")


def test_a_server_that_does_not_answer_is_given_up(object_server, storage, tmp_path, monkeypatch):
    storage.put("x.json", b"1")
    monkeypatch.setattr(object_storage, "_TIMEOUT", "200ms")
    monkeypatch.setattr(object_storage, "_RETRIES", 0)
    asked, done = ObjectStorage(storage.url), threading.Event()
    with object_server.failing(faults=lambda method, key: 503 if done.wait(30) else None):
        for request in (
            lambda: asked.get("x.json"), lambda: asked.download("x.json", tmp_path / "x.json"),
            lambda: asked.put("x.json", b"2"), lambda: asked.create("y.json", b"2"), lambda: asked.listed(""),
        ):  # fmt: skip
            with pytest.raises(ObjectStorageError, match=r"is the endpoint .* right, and can it be reached"):
                request()
        done.set()
    assert not list(tmp_path.glob("*.json"))


def test_listings_go_no_further_than_asked(storage):
    for key in ("versions/a/manifest.json", "versions/b/manifest.json", "versions-old/c", "x"):
        storage.put(key, b"1")
    assert storage.folders("versions/") == ["a", "b"]
    assert [one.key for one in storage.listed("versions/a/")] == ["versions/a/manifest.json"]
    storage.delete([one.key for one in storage.listed("versions/")])
    assert [one.key for one in storage.listed("")] == ["versions-old/c", "x"]


def test_a_large_file_travels_whole_and_leaves_nothing_behind(storage, tmp_path):
    content = bytes(range(256)) * (48 << 10)  # in several parts
    (tmp_path / "large").write_bytes(content)
    storage.put("large", tmp_path / "large")
    assert storage.create("manifest.json", content)
    for key in ("large", "manifest.json"):
        assert storage.download(key, tmp_path / "there" / key)
        assert (tmp_path / "there" / key).read_bytes() == content
    assert not storage.download("none", tmp_path / "there" / "none")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["large", "manifest.json"]
