import errno
import gzip
import importlib.metadata
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from hgmem_core import __version__
from hgmem_core.run_config import ResourcesConfig
from pipelines import preflight
from pipelines.preflight import (
    PreflightError,
    available_memory,
    check_disk,
    check_resources,
    check_software,
    check_writable,
    disk_needed,
    log_bytes,
    memory_warning,
    software_versions,
)
from pipelines.store import Store
from tests.pipelines.logs import config_of, rows, run, write_jsonl

GIB = 1 << 30
HERE = {"hgmem": "0.1.0", "python": "3.11", "ray": "2.60.0"}


@contextmanager
def disk(folder, kilobytes=256):
    """A small disk of its own; the test is skipped where one may not be mounted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_store_that_can_be_written_is_left_as_it_was(tmp_path):
    check_writable(Store.make(tmp_path, 1))
    assert list(tmp_path.glob("tmp/*")) == []


def test_a_full_disk_is_refused(tmp_path):
    with disk(tmp_path / "disk") as root:
        store = Store.make(root / "store", 1)
        check_writable(store)
        with pytest.raises(OSError, match="No space left"):
            (root / "rest").write_bytes(bytes(1 << 20))
        refused(store, "No space left on device")


def test_a_read_only_disk_is_refused(tmp_path):
    # The superuser may write where the mode of a folder forbids it, but not on a disk that is mounted read-only.
    with disk(tmp_path / "disk") as root:
        store = Store.make(root / "store", 1)
        subprocess.run(["mount", "-o", "remount,ro", root], check=True)
        refused(store, "Read-only file system")


@pytest.mark.parametrize("call", ["mkdir", "write", "fsync"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_whatever_of_a_write_fails_is_refused(tmp_path, monkeypatch, call, number):
    # Stands in for disks where none can be mounted, and for faults that none can be made to have.
    store = Store.make(tmp_path, 1)

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(preflight.os, call, fail)
    refused(store, os.strerror(number))
    monkeypatch.undo()
    assert list(tmp_path.glob("tmp/*")) == []


def refused(store, reason):
    with pytest.raises(PreflightError) as error:
        check_writable(store)
    message = str(error.value)
    assert message.startswith(f"the store {store.root} cannot be written: {reason}; ")
    assert "store.root" in message
    assert "\n" not in message


def test_too_little_disk_is_refused_with_both_numbers(tmp_path):
    with disk(tmp_path / "disk", kilobytes=2048) as root:
        check_disk(root, 1 << 20)
        with pytest.raises(PreflightError, match=rf"{root} has 2\.0 MiB free, this run needs at least 229\.0 MiB"):
            check_disk(root, disk_needed(10_000_000, 15))
    with pytest.raises(PreflightError, match=r"GiB free, this run needs at least 745,058\.1 GiB"):
        check_disk(tmp_path, disk_needed(0, 10**11))
    check_disk(tmp_path, disk_needed(0, 0))


def test_what_a_store_takes_is_no_less_than_what_is_asked_for(tmp_path):
    # The estimate refuses, so that it has to be below what a run really writes.
    log = write_jsonl(tmp_path / "log.jsonl", rows(count=100))
    done = run(config_of(tmp_path / "store", log, buckets=1))
    size = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*"))
    assert disk_needed(log_bytes([log]), 0) < size
    assert disk_needed(0, done.built.turns) < size


def test_packed_logs_count_more_and_missing_ones_nothing(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(bytes(1000))
    (tmp_path / "b.jsonl.GZ").write_bytes(gzip.compress(bytes(1000)))
    size = (tmp_path / "b.jsonl.GZ").stat().st_size
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "c.parquet")
    paths = [tmp_path / "a.jsonl", str(tmp_path / "b.jsonl.GZ"), tmp_path / "c.parquet", tmp_path / "none.jsonl"]
    assert log_bytes(paths) == 1000 + 4 * size + 4000


def test_memory_is_warned_about_when_the_workers_may_need_more():
    assert memory_warning(2, 100_000, 17_000_000_000) is None
    assert memory_warning(2, 100_000, None) is None
    warning = memory_warning(2, 100_000, 15 * GIB)
    assert "2 workers on buckets of up to 100,000 turns may take 15.8 GiB" in warning
    assert "15.0 GiB are available" in warning
    assert memory_warning(1, 100_000, 15 * GIB) is None


def test_available_memory_is_what_the_machine_and_the_container_leave(tmp_path, monkeypatch):
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() <= total
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    places = {"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": limit}
    monkeypatch.setattr(preflight, "Path", lambda path: places[path])
    assert available_memory() is None
    meminfo.write_text("MemTotal:  64 kB\nMemAvailable:  32 kB\nSwapFree: 1 kB\n")
    assert available_memory() == 32 * 1024
    for content, expected in (("max\n", 32 * 1024), ("1024\n", 1024), ("999999999\n", 32 * 1024)):
        limit.write_text(content)
        assert available_memory() == expected


def test_versions_are_those_of_this_process(monkeypatch):
    versions = software_versions()
    assert versions["hgmem"] == __version__
    assert versions["pyarrow"] == importlib.metadata.version("pyarrow")
    assert versions["python"].count(".") == 1
    assert {"ray", "numpy", "polars", "faiss-cpu", "bm25s"} < versions.keys()
    monkeypatch.setattr(preflight, "PACKAGES", ("no-such-package",))
    assert software_versions()["no-such-package"] == "not installed"
    check_software(versions, {"node": software_versions() | versions})


def test_a_node_with_other_software_is_named_with_package_and_versions():
    check_software(HERE, {"10.0.0.1": HERE, "10.0.0.2": dict(HERE)})
    old, bare = {**HERE, "ray": "2.59.0"}, {"hgmem": "0.1.0", "python": "3.12"}
    nodes = {"head": HERE, "n1": old, "n2": old, "n3": old, "n4": old, "n5": bare}
    with pytest.raises(PreflightError) as refused:
        check_software(HERE, nodes)
    lines = str(refused.value).splitlines()
    assert [line.partition(", so")[0] for line in lines] == [
        "ray is 2.59.0 on n1, n2, n3 and 1 more and 2.60.0 here",
        "python is 3.12 on n5 and 3.11 here",
        "ray is not installed on n5 and 2.60.0 here",
    ]
    with pytest.raises(PreflightError, match="bm25s is 1 on n1 and not installed here"):
        check_software(HERE, {"n1": {**HERE, "bm25s": "1"}})


NODES = [{"CPU": 2.0, "memory": 4.0 * GIB}, {"CPU": 1.0, "GPU": 1.0, "memory": 8.0 * GIB}]


@pytest.mark.parametrize(
    ("ask", "nodes", "fault"),
    [
        ({"cpus": 2.0}, NODES, None),
        ({"cpus": 1.0, "gpus": 0.5, "memory_gib": 8.0}, NODES, None),
        (
            {"cpus": 8.0},
            NODES,
            "asks for 8 CPU a task; the largest node has 2: lower run.ray.buckets.cpus, or add a larger node",
        ),
        (
            {"gpus": 1.0},
            NODES[:1],
            "asks for 1 GPU a task; the largest node has 0: lower run.ray.buckets.gpus, or add a larger node",
        ),
        (
            {"memory_gib": 8.5},
            NODES,
            "asks for 8.5 GiB of memory a task; the largest node has 8: lower run.ray.buckets.memory_gib, "
            "or add a larger node",
        ),
        (
            {"cpus": 2.0, "gpus": 1.0},
            NODES,
            "asks for cpus = 2, gpus = 1 a task; no one node has all: lower one of them, or add a larger node",
        ),
        ({"cpus": 1.0}, [], "has no node to run on: start one, or set run.engine=local"),
    ],
)
def test_a_task_has_to_fit_on_one_node(ask, nodes, fault):
    asks = {"imports": ResourcesConfig(cpus=0.0), "buckets": ResourcesConfig(**ask)}
    if fault is None:
        assert check_resources(asks, nodes, may_grow=False) == []
        return
    with pytest.raises(PreflightError) as refused:
        check_resources(asks, nodes, may_grow=False)
    assert str(refused.value).splitlines()[-1] == f"run.ray.buckets {fault}"
    waits = check_resources(asks, nodes, may_grow=True)
    assert waits[-1] == f"run.ray.buckets {fault}; it waits until the cluster has added one"
