"""Getting hold of a Ray: the one that is named or one of this run's own, with nodes that can do the work."""

import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hgmem_core.config import ResourcesConfig, RunConfig
from pipelines.engine import ClusterError
from pipelines.preflight import PreflightError, check_resources, check_software, software_versions
from pipelines.progress import Progress

_PROBE_SECONDS = 120.0
"""For a node to start a process and answer."""

_OBJECT_STORE_BYTES = 256 << 20
"""Of a Ray that is started for a run: rows travel through the store, and names are short."""


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, which in Ray's is the error at its root."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def needed(encode: ResourcesConfig) -> ResourcesConfig:
    """Return what an encoder's actor takes: one CPU, if nothing was said."""
    return encode if encode.cpus or encode.gpus else encode.model_copy(update={"cpus": 1.0})


@contextmanager
def connected(
    config: RunConfig, asks: Mapping[str, ResourcesConfig], shared: Path | None, progress: Progress
) -> Iterator[int]:
    """Connect to Ray, check its nodes, and leave it as it was: what this process did not start, it does not end.

    Gives how many buckets are worked on at a time on a Ray that was started here, 0 for another.

    Args:
        config: Where Ray is.
        asks: What one task takes of each kind of work, by its name in `run.ray`.
        shared: A folder that every node has to see; None for none.
        progress: Told of what the cluster lacks yet.

    Raises:
        PreflightError: A node lacks this software or the folder, or none is large enough for the work.
        ClusterError: There is no Ray, or a node does not answer.
    """
    mine = not ray.is_initialized()
    address = ""
    if mine:
        address = config.ray.address or os.environ.get("RAY_ADDRESS") or "local"
        connect(address)
    # What Ray Data tells the terminal, the job says itself.
    handlers = [each for each in logging.getLogger("ray.data").handlers if not isinstance(each, logging.FileHandler)]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL)
    try:
        for warning in _check_nodes(config, asks, shared and shared.resolve()):
            progress.note(warning)
        yield _tasks_at_once(config) if mine and address == "local" else 0
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
        if mine:
            ray.shutdown()


def connect(address: str) -> None:
    """Connect to the Ray at an address, or to one that is started for this process: `local`.

    Raises:
        ClusterError: There is none.
    """
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
            # Else Ray makes one that everybody on the machine can read. Workers inherit it; Ray knows one a process.
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"no Ray at {address!r} ({last_line(error)}): start one, correct run.ray.address, or set run.engine=local"
        ) from error


def _tasks_at_once(config: RunConfig) -> int:
    """Return how many buckets are worked on at a time on a Ray of this machine alone."""
    cpus, concurrency = config.ray.buckets.cpus, config.ray.buckets.concurrency
    [node] = alive_nodes()
    fit = max(1, int(node["Resources"].get("CPU", 0) / cpus)) if cpus else 1
    return min(fit, concurrency) if concurrency else fit


def alive_nodes() -> list[dict[str, Any]]:
    """Return the nodes of the Ray that this process is connected to, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _check_nodes(config: RunConfig, asks: Mapping[str, ResourcesConfig], shared: Path | None) -> list[str]:
    """Look at what the cluster has; return what it lacks yet."""
    nodes = alive_nodes()
    warnings = check_resources(asks, [node["Resources"] for node in nodes], config.ray.autoscaling)
    name_of = {node["NodeID"]: f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})" for node in nodes}
    with TemporaryDirectory(prefix=".seen-", dir=shared) as folder:  # no node has one of that name of its own
        found = _ask_nodes(list(name_of), folder if shared else os.sep)
    check_software(software_versions(), {name_of[node]: versions for node, (versions, _) in found.items()})
    blind = [name_of[node] for node, (_, sees) in found.items() if not sees]
    if blind:
        raise PreflightError(
            f"{', '.join(blind)} cannot see {shared}: it has to lie on a file system that all nodes share"
        )
    return warnings


def _ask_nodes(nodes: Sequence[str], folder: str) -> dict[str, tuple[dict[str, str], bool]]:
    """Return what software each node has, and whether it sees a folder."""

    def probe() -> tuple[dict[str, str], bool]:
        # Sent by value, so that it runs even where this package is not installed.
        import os

        try:
            from pipelines.preflight import software_versions as versions
        except ImportError:
            return {}, True
        return versions(), os.path.isdir(folder)

    task = ray.remote(num_cpus=0)(probe)
    asked = {
        node: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in nodes
    }
    try:
        return dict(zip(asked, ray.get(list(asked.values()), timeout=_PROBE_SECONDS), strict=True))
    except ray.exceptions.RayError as error:
        raise ClusterError(f"a node of the cluster does not answer ({last_line(error)}): look at its logs") from error
