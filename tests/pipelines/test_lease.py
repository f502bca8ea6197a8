import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines import lease as lease_module
from pipelines.files import StoreError
from pipelines.hosts import host_id, is_gone, process_start
from pipelines.lease import LEASE_FILE, Holder, LeaseHeld, LeaseLost, hold_lease
from pipelines.store import Store

SINCE = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOLD = """
import sys
from datetime import UTC, datetime
from pipelines.lease import hold_lease
from pipelines.store import Store

with hold_lease(Store.open(sys.argv[1]), "rebuild", datetime(2026, 1, 1, 12, tzinfo=UTC)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path):
    return Store.make(tmp_path / "store", 1)


@pytest.fixture
def other(store):
    """Another process that holds the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def write_lease(store, age_seconds=0.0, **facts):
    """Write a lease as a process of another host would have, that long ago."""
    holder = {"holder": "h", "host": "far", "host_id": "far_00000000", "pid": 7, "process_start": "1"}
    path = store.root / LEASE_FILE
    path.write_text(
        Holder(**{**holder, "what": "rebuild", "since": "2026-01-01T12:00:00+00:00", **facts}).model_dump_json()
    )
    aged(path, age_seconds)
    return path


def aged(path, seconds):
    changed = path.stat().st_mtime - seconds
    os.utime(path, (changed, changed))


def hold(store, **settings):
    return hold_lease(store, "rebuild", SINCE, **settings)


def test_a_second_rebuild_is_refused_in_one_line_that_says_by_whom(store, other):
    with pytest.raises(LeaseHeld) as refused, hold(store):
        pass
    message = str(refused.value)
    assert "\n" not in message
    for said in (f"process {other.pid} on ", "rebuild since 2026-01-01T12:00:00+00:00", "last renewed "):
        assert said in message
    assert f"kill {other.pid}" in message
    other.communicate("")
    with hold(store) as lease:
        assert lease.taken_from is None


def test_a_killed_holder_is_followed_at_once(store, other):
    other.kill()
    # Dead, but not reaped: as where the first process of a container reaps nobody.
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    with hold(store) as lease:
        assert f"process {other.pid} on" in lease.taken_from
        lease.check()
    write_lease(store, host_id=host_id(), pid=other.pid)
    other.communicate()
    with hold(store) as lease:
        lease.check()


def test_a_suspended_holder_of_this_host_keeps_its_lease(store, other):
    other.send_signal(signal.SIGSTOP)
    aged(store.root / LEASE_FILE, 10_000)
    with pytest.raises(LeaseHeld, match=r"last renewed 10\d{3} s ago"), hold(store):
        pass


def test_a_process_id_that_went_to_another_process_holds_nothing(store):
    write_lease(store, host_id=host_id(), pid=os.getppid(), process_start="1")
    with hold(store) as lease:
        lease.check()
    write_lease(store, host_id=host_id(), pid=os.getppid(), process_start=process_start(os.getppid()))
    with pytest.raises(LeaseHeld), hold(store):
        pass


def test_the_lease_of_another_host_holds_while_it_is_renewed(store):
    path = write_lease(store, age_seconds=100, pid=os.getpid())
    with (
        pytest.raises(LeaseHeld, match=r"on far, last renewed 1\d\d s ago; .* 120 s after the last renewal"),
        hold(store),
    ):
        pass
    aged(path, 25)
    with hold(store) as lease:
        assert "process" in lease.taken_from
        lease.check()


def test_a_lease_from_before_the_clock_jumped_back_says_so(store):
    write_lease(store, age_seconds=-3_600, pid=os.getpid())
    with pytest.raises(LeaseHeld, match=r"renewed 3\d\d\d s ahead of the clock, which jumped back; .* or remove"):
        with hold(store):
            pass


@pytest.mark.parametrize("content", ["", "{", "[]", '{"holder": "h"}', "\x00" * 9])
def test_a_damaged_lease_holds_until_it_is_old(store, content):
    path = store.root / LEASE_FILE
    path.write_text(content)
    with pytest.raises(LeaseHeld, match=r"lease\.json is damaged and was written \d+ s ago.* remove it"), hold(store):
        pass
    aged(path, 200)
    with hold(store) as lease:
        assert lease.taken_from == "a damaged lease.json"
        lease.check()


@pytest.mark.parametrize("locks", [True, False])
def test_of_takers_at_once_exactly_one_wins(store, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(lease_module.fcntl, "flock", unsupported)
    for _ in range(30):
        write_lease(store, age_seconds=10_000)
        barrier, done = threading.Barrier(6), threading.Barrier(6)

        def take(barrier=barrier, done=done):
            barrier.wait()
            try:
                with hold(store) as lease:
                    done.wait()
                    lease.check()
            except LeaseHeld:
                done.wait()
                return "refused"
            except LeaseLost:
                return "lost"
            return "won"

        with ThreadPoolExecutor(6) as pool:
            results = [future.result() for future in [pool.submit(take) for _ in range(6)]]
        assert results.count("won") == 1
        assert not locks or results.count("refused") == 5
        assert not (store.root / LEASE_FILE).exists()


def unsupported(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize("content", [None, "{"])
def test_a_lease_that_was_removed_or_damaged_is_lost(store, content):
    path = store.root / LEASE_FILE
    with hold(store) as lease:
        lease.check()
        path.unlink()
        if content is not None:
            path.write_text(content)
        assert f"{path} is gone or damaged; nothing was published" in lost(lease)
    assert path.exists() == (content is not None)


def test_a_lease_that_another_took_is_lost_and_left_to_its_new_holder(store):
    with hold(store) as lease:
        path = write_lease(store)
        assert "process 7 on far holds it; nothing was published" in lost(lease)
    assert '"far"' in path.read_text()


def lost(lease):
    with pytest.raises(LeaseLost) as raised:
        lease.check()
    return str(raised.value)


def test_a_holder_that_was_suspended_learns_that_another_took_over(store):
    with hold(store) as lease:
        path = store.root / LEASE_FILE
        # As another host sees it after two minutes without a renewal.
        path.write_text(path.read_text().replace(host_id(), "far_00000000"))
        aged(path, 121)
        with hold(store) as taker:
            taker.check()
            assert "holds it; nothing was published" in lost(lease)


def test_renewals_show_in_the_time_of_the_file(store, monkeypatch):
    renewed, renew = threading.Event(), os.utime

    def watch(target, *times):
        renew(target, *times)
        if isinstance(target, int):
            renewed.set()

    with hold(store, renew_seconds=0.001):
        path = store.root / LEASE_FILE
        now = path.stat().st_mtime
        renew(path, (0, 0))
        monkeypatch.setattr(lease_module.os, "utime", watch)
        assert renewed.wait(30)
        assert path.stat().st_mtime >= now


def test_the_lease_ends_with_its_work_however_that_ends(store):
    for error in (StoreError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), hold(store):
            assert (store.root / LEASE_FILE).exists()
            raise error
        assert not (store.root / LEASE_FILE).exists()
    assert [path.name for path in store.root.iterdir()] == ["store.json"]
    assert "lease" not in {thread.name for thread in threading.enumerate()}


def test_a_place_where_no_lease_can_be_written_is_named(store):
    (store.root / LEASE_FILE).mkdir()
    with pytest.raises(StoreError, match=r"lease\.json cannot be written \(Is a directory\)"), hold(store):
        pass


def test_a_process_with_a_strange_name_is_told_from_one_that_is_gone(tmp_path):
    strange = tmp_path / "a) Z \udcff"
    strange.symlink_to(sys.executable)
    process = subprocess.Popen([strange, "-c", "input()"], stdin=subprocess.PIPE)
    assert not is_gone(process.pid, process_start(process.pid))
    assert is_gone(process.pid, "0")
    process.communicate(b"\n")
    assert is_gone(process.pid)


def test_a_host_is_named_alike_in_all_its_processes():
    other = subprocess.run(
        [sys.executable, "-c", "from pipelines.hosts import host_id; print(host_id())"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert other.stdout.strip() == host_id()
