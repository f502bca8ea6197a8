"""Two publishers at once, on a disk and in object storage: exactly one wins, and the other says so."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from hgmem_core.model_config import EncoderConfig
from pipelines.encoders import open_encoder
from pipelines.publish import publish, publish_skills
from pipelines.retention import prune
from pipelines.store import Output, Store
from pipelines.versions import VersionError, current_version, open_version, point_to
from tests.pipelines.logs import NOW, config_of

RACES = 100
COUNTS = {"namespaces": 1, "trajectories": 1, "skills": 1, "subtasks": 1, "files": {}}


@pytest.fixture(params=["disk", "object storage"])
def stores(request, tmp_path):
    """One store as two publishers have it: in object storage, each with a mirror of its own."""
    if request.param == "disk":
        return [Store.make(tmp_path / "store", 1) for _ in range(2)]
    url = f"{request.getfixturevalue('bucket')}/store"
    return [Store.make(url, 1, cache=str(tmp_path / f"machine-{number}")) for number in range(2)]


def at_once(*works):
    """Do all of some works at the same time; return their results in order."""
    barrier = threading.Barrier(len(works))

    def begin(work):
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(begin, work) for work in works]]


def test_of_two_publishers_exactly_one_wins_a_hundred_times(stores):
    identity = open_encoder(EncoderConfig(name="static")).identity
    publish(stores[0], {}, config_of(stores[0].root), identity, {}, 1)
    for race in range(RACES):
        before = current_version(stores[0])

        def publisher(number, race=race):
            store = stores[number]
            folder = store.output_folder("index_skills", f"{race}-{number}")
            version = open_version(store)
            return lambda: publish_skills(version, {0: Output(folder.name, folder, COUNTS, store)}, {}, {})

        published = at_once(publisher(0), publisher(1))
        [winner] = [one for one in published if one.moved]
        [loser] = [one for one in published if not one.moved]
        assert winner.number == before[0] + 1
        assert f"made of {before[1]}, and {winner.version} took that one's place meanwhile" in loser.kept
        assert [current_version(store) for store in stores] == [(winner.number, winner.version)] * 2


def test_a_number_goes_to_exactly_one_of_two_writers_with_the_same_content(stores):
    for number in range(1, RACES + 1):
        claims = [partial(store.claim, "current", number, {"version": "0123456789abcdef"}) for store in stores]
        assert sorted(at_once(*claims)) == [False, True]
    assert [len(store.numbered("current")) for store in stores] == [RACES] * 2


def test_of_a_rollback_and_a_pruning_one_wins_and_the_current_version_is_there(stores):
    identity = open_encoder(EncoderConfig(name="static")).identity
    one, other = stores
    for race in range(RACES // 10):
        old, new = (
            publish(one, {}, config_of(one.root, index={"k1": k1}), identity, {}, 1).version
            for k1 in (1.0 + race / 100, 2.0 + race / 100)
        )

        def rolled_back(old=old):
            try:
                return point_to(other, old)
            except VersionError:
                return None

        pruned, number = at_once(lambda: prune(one, 1, NOW), rolled_back)
        current = old if number else new
        for store in stores:
            assert current_version(store)[1] == open_version(store).id == current
        assert (old in pruned.versions) == (number is None)
        assert (old in one.version_ids()) == (number is not None)
        prune(one, 1, NOW)
