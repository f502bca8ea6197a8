import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from pipelines.files import StoreError
from pipelines.hosts import host_id
from pipelines.lease import LEASE_FILE, Holder, LeaseHeld, LeaseLost, hold_lease
from pipelines.store import Store

SINCE = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = -1.0
"""After so many seconds without renewal any lease is nobody's: as if two minutes had gone by."""


@pytest.fixture
def store(bucket):
    return Store.make(f"{bucket}/store", 1)


def hold(store, **settings):
    return hold_lease(store, "rebuild", SINCE, **settings)


def write_lease(store, **facts):
    """Write a lease as a process of another host would have."""
    holder = {"holder": "h", "host": "far", "host_id": "far_00000000", "pid": 7, "process_start": "1"}
    lease = Holder(**{**holder, "what": "rebuild", "since": "2026-01-01T12:00:00+00:00", **facts})
    store.storage.put(LEASE_FILE, lease.model_dump_json().encode())


def lost(lease):
    with pytest.raises(LeaseLost) as raised:
        lease.check()
    return str(raised.value)


def test_a_second_rebuild_is_refused_and_told_by_whom(store):
    with hold(store) as lease:
        lease.check()
        with pytest.raises(LeaseHeld, match=rf"{store} is in use: rebuild since 2026-01-01T12.*kill \d+"), hold(store):
            pass
        lease.check()
    with hold(store) as lease:
        assert lease.taken_from is None
    assert [one.key for one in store.storage.listed("")] == ["store.json"]


def test_the_lease_of_another_host_holds_until_it_was_not_renewed_for_long(store):
    write_lease(store)
    with (
        pytest.raises(LeaseHeld, match=rf"on far, last renewed \d s ago; .* or remove {store}/lease.json"),
        hold(store),
    ):
        pass
    with hold(store, stale_seconds=OLD) as lease:
        assert lease.taken_from == "rebuild since 2026-01-01T12:00:00+00:00, process 7 on far"
        lease.check()


def test_a_killed_holder_of_this_host_is_followed_at_once(store):
    write_lease(store, host_id=host_id(), process_start="1")
    with hold(store) as lease:
        assert "process 7 on far" in lease.taken_from


def test_a_damaged_lease_holds_until_it_is_old(store):
    store.storage.put(LEASE_FILE, b"{")
    with pytest.raises(LeaseHeld, match=r"lease\.json is damaged and was written"), hold(store):
        pass
    with hold(store, stale_seconds=OLD) as lease:
        assert lease.taken_from == "a damaged lease.json"


def test_of_takers_at_once_exactly_one_wins(store):
    for _ in range(20):
        write_lease(store)
        barrier, done = threading.Barrier(4), threading.Barrier(4)

        def take(barrier=barrier, done=done):
            barrier.wait()
            try:
                with hold(store, stale_seconds=OLD) as lease:
                    done.wait()
                    lease.check()
            except LeaseHeld:
                done.wait()
                return "refused"
            return "won"

        with ThreadPoolExecutor(4) as pool:
            results = sorted(future.result() for future in [pool.submit(take) for _ in range(4)])
        assert results == ["refused", "refused", "refused", "won"]


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_lease_that_was_removed_or_damaged_is_lost(store, content):
    with hold(store) as lease:
        store.storage.delete([LEASE_FILE])
        if content is not None:
            store.storage.put(LEASE_FILE, content)
        assert f"{store}/lease.json is gone or damaged; nothing was published" in lost(lease)
    assert (store.storage.get(LEASE_FILE) is not None) == (content is not None)


def test_a_lease_that_another_took_is_lost_and_left_to_its_new_holder(store):
    with hold(store, renew_seconds=0.001) as lease:
        with hold_by_another(store) as taker:
            assert "holds it; nothing was published" in lost(lease)
            taker.check()


def hold_by_another(store):
    write_lease(store)
    return hold(store, stale_seconds=OLD)


def test_a_lease_is_renewed_and_each_renewal_is_another_object(store, object_server):
    renewed = threading.Semaphore(0)

    def watch(method, key):
        if method == "PUT" and key.endswith(LEASE_FILE):
            renewed.release()

    with hold(store, renew_seconds=0.001) as lease:
        first = store.storage.get(LEASE_FILE).tag
        with object_server.failing(faults=watch):
            assert all(renewed.acquire(timeout=60) for _ in range(3))
        assert store.storage.get(LEASE_FILE).tag != first
        lease.check()


def test_an_outage_between_two_renewals_costs_nothing(store, object_server):
    away = threading.Semaphore(0)

    def outage(method, key):
        away.release()
        return 403

    with hold(store, renew_seconds=0.001) as lease:
        with object_server.failing(faults=outage):
            assert all(away.acquire(timeout=60) for _ in range(3))
        lease.check()


def test_the_lease_ends_with_its_work_however_that_ends(store):
    for error in (StoreError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), hold(store):
            assert store.storage.get(LEASE_FILE)
            raise error
        assert store.storage.get(LEASE_FILE) is None
    assert "lease" not in {thread.name for thread in threading.enumerate()}
