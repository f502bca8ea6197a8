import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipelines.files import StoreError, file_sha256
from pipelines.forget import Selection, forget, restore
from pipelines.minilm import IDENTITY as MINILM
from pipelines.publish import publish
from pipelines.serve_problems import Problem
from pipelines.serve_versions import RETRY_SECONDS, Versions
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import VersionError, current_version, open_version, point_to
from tests.pipelines.endpoint import client_of, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.test_serve_api import post, problem_of

LATER = datetime(2026, 2, 1, tzinfo=UTC)
QUESTION = {"query": "the lighthouse keeper", "namespace": "acme/ana"}
NEWS = {
    "id": "news", "user": "ana", "session": "s9", "time": "2024-04-01T10:00:00+00:00", "speaker": "Ana",
    "text": "The lighthouse keeper called.",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A store with two versions, the later one current; the ids of both."""
    folder = tmp_path_factory.mktemp("built")
    logs = [write_jsonl(folder / "log.jsonl", rows()), write_jsonl(folder / "news.jsonl", [NEWS])]
    ids = []
    for count in (1, 2):
        run(config_of(folder / "store", *logs[:count]))
        ids.append(current_version(Store.open(folder / "store"))[1])
    return folder / "store", ids


@pytest.fixture
def root(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "store")
    return tmp_path / "store"


def index_file(root, version):
    """A file that only that version has."""
    store = Store.open(root)
    folders = [
        {about["folder"] for about in open_version(store, each).manifest["buckets"].values()}
        for each in (version, *(other for other in store.version_ids() if other != version))
    ]
    [folder] = folders[0] - folders[1]
    return root / folder / "nodes.arrow"


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # what is mapped of it stays as it was
    path.write_bytes(content)


def test_a_moved_pointer_is_followed_and_each_answer_says_its_version(built, root):
    old, new = built[1]
    store = Store.open(root)
    point_to(store, old)
    with client_of(serve_config(root)) as client:
        before = post(client, "search", **QUESTION).json()
        point_to(store, new)
        client.service.refresh()
        after = post(client, "search", **QUESTION).json()
    assert (before["version"], after["version"]) == (old, new)
    assert "lighthouse" not in before["hits"][0]["text"]
    assert "lighthouse" in after["hits"][0]["text"]


def test_a_new_version_is_noticed_without_being_told(built, root):
    old, new = built[1]
    store = Store.open(root)
    point_to(store, old)
    with client_of(serve_config(root, refresh_seconds=0.05)) as client:
        assert client.get("/v1/version").json()["version"] == old
        point_to(store, new)
        seen = (client.get("/v1/version").json()["version"] for _ in range(100_000))
        assert any(version == new for version in seen)


def test_rolling_back_serves_the_old_version_at_once_and_can_be_undone(built, root):
    old, new = built[1]
    with client_of(serve_config(root)) as client:
        for version in (old, new):
            told = post(client, "version/rollback", version=version)
            assert (told.status_code, told.json()["version"], told.json()["refused"]) == (200, version, None)
            assert post(client, "search", **QUESTION).json()["version"] == version
        assert current_version(Store.open(root)) == (told.json()["pointer"], new)
        problem_of(post(client, "version/rollback", version="f" * 16), 422)


def test_rolling_back_has_a_time_of_its_own_for_it_verifies_all_files(built, root):
    old, new = built[1]
    with client_of(serve_config(root, timeout_seconds=1e-6)) as client:
        problem_of(post(client, "search", **QUESTION), 504)
        assert post(client, "version/rollback", version=old).json()["version"] == old
        point_to(Store.open(root), new)
        assert client.post("/v1/version/reload").json()["version"] == new


def test_a_rollback_that_takes_longer_goes_on(built, root):
    old, _ = built[1]
    with client_of(serve_config(root, version_timeout_seconds=1e-6)) as client:
        problem_of(post(client, "version/rollback", version=old), 504)
        assert any(client.get("/v1/version").json()["version"] == old for _ in range(100_000))


def test_a_rollback_to_a_damaged_version_leaves_the_pointer(built, root):
    old, new = built[1]
    damage(index_file(root, old))
    with client_of(serve_config(root)) as client:
        problem_of(post(client, "version/rollback", version=old), 503)
        assert post(client, "search", **QUESTION).json()["version"] == new
    assert current_version(Store.open(root))[1] == new


def test_rolling_back_reads_only_what_was_not_read_before_or_was_written_since(built, root, monkeypatch):
    old, new = built[1]
    monkeypatch.setattr("pipelines.verified_files.SETTLED_SECONDS", -1.0)
    read = []
    monkeypatch.setattr("pipelines.files.file_sha256", lambda path: read.append(path) or file_sha256(path))
    with client_of(serve_config(root)) as client:
        assert post(client, "version/rollback", version=old).json()["version"] == old
        assert index_file(root, old) in read
        read.clear()
        assert post(client, "version/rollback", version=new).json()["version"] == new
        assert read == []
        damage(index_file(root, old))
        problem_of(post(client, "version/rollback", version=old), 503)
        assert read == [index_file(root, old)]
        assert post(client, "search", **QUESTION).json()["version"] == new


def test_a_broken_version_is_refused_while_the_old_one_serves_until_it_is_mended(built, root):
    old, new = built[1]
    store, path = Store.open(root), index_file(root, new)
    good = path.read_bytes()
    point_to(store, old)
    with client_of(serve_config(root)) as client:
        damage(path)
        point_to_unchecked(store, new)
        client.service.refresh()
        told = client.get("/v1/version").json()
        assert (told["version"], told["refused"]) == (old, new)
        assert post(client, "search", **QUESTION).json()["version"] == old
        assert client.get("/v1/readyz").status_code == 200
        assert "hgmem_version_refused 1.0" in client.get("/metrics").text
        path.write_bytes(good)
        assert client.post("/v1/version/reload").json() == told | {
            "version": new,
            "pointer": told["pointer"] + 1,
            "refused": None,
        }


def test_a_version_whose_vectors_are_of_another_encoder_than_it_says_is_refused(built, root):
    _, new = built[1]
    store, config = Store.open(root), serve_config(root)
    buckets = open_version(store, new).manifest["buckets"]
    indexes = {int(bucket): {"index": store.find(root / about["folder"])} for bucket, about in buckets.items()}
    versions = Versions(config)
    versions.refresh()
    publish(store, indexes, config, MINILM, {}, imports=2)
    versions.refresh()
    assert versions.current.version.id == new
    assert "the query vector has shape (384,); the index has 256 dimensions" in versions.refused.why


def point_to_unchecked(store, version):
    store.append_numbered("current", {"version": version, "rollback": True})


def test_a_refused_version_is_tried_again_after_a_while(built, root):
    old, new = built[1]
    store, path = Store.open(root), index_file(root, new)
    good = path.read_bytes()
    point_to(store, old)
    time = [0.0]
    versions = Versions(serve_config(root), clock=lambda: time[0])
    versions.refresh()
    damage(path)
    point_to_unchecked(store, new)
    versions.refresh()
    path.write_bytes(good)
    versions.refresh()
    assert versions.current.version.id == old
    time[0] = RETRY_SECONDS
    versions.refresh()
    assert (versions.current.version.id, versions.refused) == (new, None)


def test_a_damaged_pointer_is_refused_while_the_old_version_serves(built, root):
    _, new = built[1]
    with client_of(serve_config(root)) as client:
        (root / "current" / "000099.json").write_text("{")
        client.service.refresh()
        assert client.get("/v1/version").json()["refused"] == "unknown"
        assert post(client, "search", **QUESTION).json()["version"] == new
        (root / "current" / "000099.json").unlink()
        client.service.refresh()
        assert client.get("/v1/version").json()["refused"] is None


def test_an_endpoint_without_a_version_lives_and_serves_the_first_one(tmp_path):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()))
    with client_of(serve_config(tmp_path / "store")) as client:
        assert client.get("/v1/healthz").status_code == 200
        for response in (client.get("/v1/readyz"), post(client, "search", **QUESTION)):
            assert str(tmp_path) not in problem_of(response, 503)["detail"]
        run(config)
        assert client.post("/v1/version/reload").status_code == 200
        assert post(client, "search", **QUESTION).json()["hits"]


def test_an_index_of_another_encoder_is_refused_with_what_to_do(root, monkeypatch):
    monkeypatch.setattr("pipelines.serve_versions.PACKAGED_ENCODERS", ())
    monkeypatch.setattr("pipelines.serve_versions.open_encoder", lambda config: OtherWeights())
    versions = Versions(serve_config(root))
    versions.refresh()
    with pytest.raises(VersionError, match="built with another encoder"):
        _ = versions.current


class OtherWeights(StaticEncoder):
    identity = replace(StaticEncoder().identity, weights_sha256="f" * 64)


def test_a_replica_that_notices_nothing_new_any_more_says_so_to_whoever_looks_at_its_health(root, monkeypatch):
    with client_of(serve_config(root, refresh_seconds=0.01)) as client:
        client.service.probe()
        assert client.get("/v1/readyz").status_code == 200
        monkeypatch.setattr("pipelines.serve_versions.current_version", lambda store: {}["of an unforeseen shape"])
        told = next(each for _ in range(100_000) if (each := client.get("/v1/readyz")).status_code != 200)
        assert "log of the endpoint" in problem_of(told, 503)["detail"]
        with pytest.raises(Problem):
            client.service.probe()
        assert post(client, "search", **QUESTION).json()["hits"]  # until it is replaced


def test_a_request_is_answered_by_one_version_through_a_switch(built, root, monkeypatch):
    """A switch between the two namespaces of one request does not show."""
    old, new = built[1]
    store = Store.open(root)
    point_to(store, old)
    with client_of(serve_config(root)) as client:
        retriever = client.service.versions.current.retriever
        search = retriever.search

        def switching(namespace, *arguments):
            if namespace == "acme/bo":
                point_to(store, new)
                client.service.refresh()
            return search(namespace, *arguments)

        monkeypatch.setattr(retriever, "search", switching)
        body = {"query": "the lighthouse keeper", "namespaces": ["acme/bo", "acme/ana"], "k": 50}
        found = post(client, "search", **body).json()
        assert found["version"] == old
        assert not [hit for hit in found["hits"] if "lighthouse" in hit["text"]]
        assert client.get("/v1/version").json()["version"] == new


def test_what_is_forgotten_is_gone_at_once_and_after_a_rollback_and_a_restart(built, root):
    old, _ = built[1]
    with client_of(serve_config(root)) as client:
        hit = post(client, "search", query="the red bicycle", namespace="acme/ana", k=1).json()["hits"][0]
        episode = next(
            edge["id"]
            for edge in post(client, "memories/get", namespace="acme/ana", id=hit["turn_id"]).json()["hyperedges"]
            if edge["kind"] == "episode"
        )
        told = post(client, "forget", namespace="acme/ana", turn=hit["turn_id"]).json()
        assert (told["turns"], told["runs"]) == (1, 0)
        assert_forgotten(client, hit, episode)
        post(client, "version/rollback", version=old)
        assert_forgotten(client, hit, episode)
    with client_of(serve_config(root)) as client:
        assert_forgotten(client, hit, episode)


def assert_forgotten(client, hit, episode):
    """Neither the turn nor what may tell of it is anywhere."""
    body = {"query": "the red bicycle", "namespace": "acme/ana", "k": 50}
    found = post(client, "search", **body, levels=["turn", "fact", "episode", "topic"])
    context = post(client, "context", query="the red bicycle", namespace="acme/ana", tokens=2_000)
    stats = post(client, "namespaces/stats", namespace="acme/ana")
    assert found.json()["hits"]
    assert not [text for text in (found.text, context.text) if hit["text"] in text or hit["turn_id"] in text]
    assert episode not in [node["id"] for node in found.json()["nodes"]]
    assert stats.json()["turns"] + 1 == stats.json()["facts"] + 1 == turns_of(client)
    for one in (hit["turn_id"], episode):
        problem_of(post(client, "memories/get", namespace="acme/ana", id=one), 404)


def turns_of(client):
    """The turns of the namespace in the version that is served, forgotten ones too."""
    return len(client.service.versions.current.retriever.namespace("acme/ana"))


def test_forgetting_over_http_is_forgetting_by_the_job(built, root):
    store, selection = Store.open(root), Selection("acme/ana", session="s1")
    wanted = forget(store, selection, LATER, dry_run=True)
    with client_of(serve_config(root)) as client:
        told = post(client, "forget", namespace="acme/ana", session="s1").json()
        assert told == {"tombstone": 1, "turns": wanted.turns, "runs": 0, "facts": wanted.facts}
        assert wanted.turns == 4 and wanted.facts > 0
        turn = post(client, "search", **QUESTION, k=1).json()["hits"][0]["turn_id"]
        assert post(client, "forget", namespace="acme/ana", turn=turn).json()["tombstone"] == 2
        again = post(client, "forget", namespace="acme/ana", turn=turn).json()
        assert again == {"tombstone": None, "turns": 0, "runs": 0, "facts": 0}
        # What never was is forgotten in advance: it may come with the next log.
        told = post(client, "forget", namespace="acme/nobody", session="s9").json()
        assert (told["tombstone"], told["turns"]) == (3, 0)
    assert restore(store, selection, LATER).turns == 4


def test_a_tombstone_of_another_process_reaches_the_replica_at_its_next_look(root):
    with client_of(serve_config(root)) as one, client_of(serve_config(root)) as other:
        assert post(other, "search", **QUESTION).json()["hits"]
        assert post(one, "forget", namespace="acme/ana").json()["turns"] == 13
        other.service.refresh()
        assert post(other, "search", **QUESTION).json()["reason"] == "unknown_namespace"


def test_keys_or_tombstones_that_cannot_be_read_leave_what_was_known(root):
    with client_of(serve_config(root)) as client:
        post(client, "forget", namespace="acme/ana", session="s0")
        (root / "tombstones" / "000002.json").write_text("{")
        client.service.refresh()
        found = post(client, "search", query="number", namespace="acme/ana", k=50).json()["hits"]
        assert found and "s0" not in {hit["session_id"] for hit in found}
        with pytest.raises(StoreError, match="000002"):
            client.service.versions.refresh_tombstones()
