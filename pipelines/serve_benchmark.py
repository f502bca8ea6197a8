"""What the endpoint costs beside the retriever called directly, and what becomes of requests while versions change."""

import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hgmem_core.config import Config
from hgmem_core.index import build_index
from hgmem_core.ivf import large_levels
from hgmem_core.schemas import ok_outcomes
from pipelines.encoders import open_encoder
from pipelines.large_log import NAMESPACE, PROPAGATION, large_log
from pipelines.processes import Running, descendants, memory_bytes
from pipelines.progress import Progress
from pipelines.publish import publish
from pipelines.serve_load import Asked, Client, Direct, Load, direct, together
from pipelines.serve_soak import soak
from pipelines.stages import index_files
from pipelines.store import Store
from pipelines.synthetic import SyntheticLog, questions
from pipelines.versions import open_version, point_to

NAME = "hgmem-benchmark"
"""Of the application on Serve."""

CLIENTS = 16
CANCELLED = 200
ROUNDS = 4
"""In which the endpoint and the retriever take turns, so that other work on the machine hurts both."""

SWAP_SECONDS = 5.0
"""After which a moved pointer has to count."""

_PARTS = {
    "proxy": r"ray::ProxyActor|ray::HAProxyManager|(.*/)?haproxy$",
    "replicas": f"ray::ServeReplica:{NAME}:",
    "controller": "ray::ServeController",
}
"""What the processes of Serve call themselves."""

_SETTINGS = ("RAY_SERVE_", "RAY_worker_niceness")
"""What variables of the environment begin with that Serve goes by."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked.

    Attributes:
        facts: Of the namespace, which has a fifth as many turns; a multiple of 50.
        questions: How many different ones.
        requests: Of one client, and of `CLIENTS` at the same time.
        soak: Requests while versions change; 0 for none.
        replicas: Of the endpoint.
    """

    facts: int
    questions: int
    requests: int
    soak: int
    replicas: int


def benchmark_serve(config: Config, sizes: Sizes, progress: Progress) -> dict[str, Any]:
    """Serve one large namespace on a Ray of this machine, and ask; see `pipelines.large_log` for what it holds.

    Args:
        config: Of the store, which is made if there is none, and of the endpoint.
        sizes: How much.
        progress: Told of parts.

    Returns:
        Milliseconds by the clock of a request and of the direct call, and of the processor in each part of Serve;
        requests a second; memory as the sum of proportional set sizes; seconds until a swap; counts of the soak.
    """
    progress.start("index", None)
    store = _large_store(config, sizes.facts)
    progress.finish("index")
    first, second = store.version_ids()
    point_to(store, first)
    asked = questions(SyntheticLog(sizes.questions, 1), 0, sizes.questions)
    with ExitStack() as stack:
        processes = stack.enter_context(direct(config, NAMESPACE, asked, 2))
        progress.start("serve", None)
        began = time.perf_counter()
        port = stack.enter_context(endpoint(config, sizes.replicas))
        load = Load(port, NAMESPACE, asked)
        ready = _seconds_until(port, load, first, began)
        load.ask(2 * len(load), CLIENTS)
        result = {
            "case": "serve",
            "turns": open_version(store).manifest["turns"],
            "facts": sizes.facts,
            "encoder": config.encoder.name,
            "replicas": sizes.replicas,
            "threads": config.serve.threads,
            "environment": _environment(),
            "questions": len(load),
            "ready_seconds": round(ready, 1),
            **_one_at_a_time(load, processes[0], sizes.requests),
            **_many(load, processes, sizes.requests),
            "cancelled": _cancelled(port, load),
            "swap": _swap(port, store, second, load),
        }
        point_to(store, first)
        if sizes.soak:
            result["soak"] = _soak(port, load, store, (first, second), sizes.soak, config.serve.refresh_seconds)
        progress.finish("serve")
    result["mismatches"] = _mismatches(result)
    return result


def _environment() -> dict[str, str]:
    """Return what Serve goes by; of places on this machine, their last part."""
    told = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)}
    return {name: Path(value).name if value.startswith("/") else value for name, value in told.items()}


def _large_store(config: Config, facts: int) -> Store:
    """Return a store that has two versions of one large namespace, each of files of its own; made if there is none."""
    root = Path(config.store.root)
    if root.exists():
        return Store.open(config.store.root)
    log = large_log(facts)
    index = build_index(log.turns, log.embeddings, log.graph, config.index, PROPAGATION)
    outcomes = ok_outcomes("index", log.turns.column("namespace"), log.turns.column("turn_id"))
    del log
    index = replace(index, large=large_levels(index, config.index.ivf_from))
    made = index_files(index, outcomes, {})
    store = Store.make(root, 1)
    encoder = open_encoder(config.encoder).identity
    for number in range(2):
        output = store.keep(store.output_folder("index", f"{number:016d}"), made.files, made.about)
        publish(store, {0: {"index": output}}, config, encoder, {}, 0)
    return store


@contextmanager
def endpoint(config: Config, replicas: int) -> Iterator[int]:
    """Serve a store on the Ray of this process, or on one that is started for it; give the port on this machine."""
    # Imported here because no other case needs Serve.
    import ray
    from ray import serve

    from pipelines.ray_connection import connect
    from pipelines.serving import deployed

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    is_mine = not ray.is_initialized()
    if is_mine:
        connect("local")
    try:
        port = _free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(deployed(config, num_replicas=replicas), name=NAME, route_prefix="/")
        yield port
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        if is_mine:
            ray.shutdown()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _seconds_until(port: int, load: Load, version: str, began: float) -> float:
    """Ask one question again and again until the answer is of a version; return the seconds since `began`."""
    client = Client(port)
    while client.ask("/v1/search", load.body(0))[1].get("version") != version:
        pass
    client.close()
    return time.perf_counter() - began


def _processes() -> dict[str, list[Running]]:
    running = descendants()
    return {part: [one for one in running if re.match(title, one.title)] for part, title in _PARTS.items()}


def _cpu_seconds() -> dict[str, float]:
    return {part: sum(one.cpu_seconds for one in several) for part, several in _processes().items()}


def _memory_mib() -> dict[str, int]:
    return {part: round(sum(memory_bytes(one.id) for one in several) / _MIB) for part, several in _processes().items()}


def _replicas() -> list[int]:
    return [one.id for one in _processes()["replicas"]]


def _one_at_a_time(load: Load, one: Direct, requests: int) -> dict[str, Any]:
    """Ask the endpoint and the retriever by turns, one question after the other."""
    served: list[Asked] = []
    called: list[Asked] = []
    cpu = dict.fromkeys([*_PARTS, "direct"], 0.0)
    share = -(-requests // ROUNDS)
    for _ in range(ROUNDS):
        one.start(share)
        told = one.told()
        called += told.asked
        cpu["direct"] += told.cpu_seconds
        before = _cpu_seconds()
        served += load.ask(share, 1)
        for part, seconds in _cpu_seconds().items():
            cpu[part] += seconds - before[part]
    milliseconds = {part: round(1e3 * seconds / len(served), 2) for part, seconds in cpu.items()}
    added = milliseconds["proxy"] + milliseconds["replicas"] - milliseconds["direct"]
    return {
        "one_at_a_time": {**_latency(served), "errors": _errors(served), "requests": len(served)},
        "direct": _latency(called),
        "cpu_ms_a_request": {**milliseconds, "added": round(added, 2)},
        "other_hits": sum(one.turns != other.turns for one, other in zip(served, called, strict=True)),
    }


def _many(load: Load, processes: Sequence[Direct], requests: int) -> dict[str, Any]:
    """Ask with many clients, and two processes call the retriever before and after that."""
    rates = [together(processes, -(-requests // 4))]
    before, began = _cpu_seconds(), time.perf_counter()
    asked = load.ask(requests, CLIENTS)
    seconds = time.perf_counter() - began
    cpu = {part: 1e3 * (used - before[part]) / requests for part, used in _cpu_seconds().items()}
    rates.append(together(processes, -(-requests // 4)))
    rate, called = requests / seconds, float(np.mean(rates))
    return {
        "many_at_a_time": {
            **_latency(asked),
            "errors": _errors(asked),
            "requests": len(asked),
            "clients": CLIENTS,
            "a_second": round(rate, 1),
            "two_direct_a_second": round(called, 1),
            "ratio": round(rate / called, 2),
        },
        "many_cpu_ms_a_request": {part: round(used, 2) for part, used in cpu.items()},
        "memory_mib": _memory_mib(),
    }


def _latency(asked: Sequence[Asked]) -> dict[str, float]:
    taken = [one.milliseconds for one in asked]
    return {f"p{percent}_ms": round(float(np.percentile(taken, percent)), 1) for percent in (50, 95)}


def _errors(asked: Sequence[Asked]) -> int:
    return sum(one.status != 200 for one in asked)


def _cancelled(port: int, load: Load) -> dict[str, Any]:
    """Give up many requests, and ask one question after."""
    for place in range(CANCELLED):
        client = Client(port)
        client.send("/v1/search", load.body(place))
        client.close()
    began = time.perf_counter()
    status, _ = Client(port).ask("/v1/search", load.body(0))
    return {"requests": CANCELLED, "next_seconds": round(time.perf_counter() - began, 3), "next_status": status}


def _swap(port: int, store: Store, version: str, load: Load) -> dict[str, Any]:
    """Move the pointer to another version, and ask until it answers."""
    buckets = open_version(store, version).manifest["buckets"].values()
    size = sum(file["bytes"] for about in buckets for file in about["files"].values())
    began = time.perf_counter()
    point_to(store, version)
    return {"mib": round(size / _MIB, 1), "seconds": round(_seconds_until(port, load, version, began), 2)}


def _soak(
    port: int, load: Load, store: Store, versions: tuple[str, str], requests: int, refresh_s: float
) -> dict[str, Any]:
    first, second = versions
    replicas = len(_replicas())
    _settle(load, first, replicas)
    before = sum(_memory_mib().values())
    counts = soak(load, port, store, second, _replicas, requests, CLIENTS, refresh_s + SWAP_SECONDS)
    point_to(store, first)
    _settle(load, first, replicas)
    return {**counts, "memory_mib_before": before, "memory_mib_after": sum(_memory_mib().values())}


def _settle(load: Load, version: str, replicas: int) -> None:
    """Ask until there are as many replicas as there were, every one has the version, and has been asked everything."""
    while {one.version for one in load.ask(len(load), CLIENTS)} != {version} or len(_replicas()) < replicas:
        pass


def _mismatches(result: Mapping[str, Any]) -> list[str]:
    """Return which counts do not add up."""
    found = []
    if result["other_hits"]:
        found.append(f"{result['other_hits']} answers name other turns than the direct call")
    soaked = result.get("soak")
    if soaked is not None:
        told = soaked["answers"] + soaked["errors_in_flight"] + soaked["other_errors"]
        if told != soaked["requests"]:
            found.append(f"{soaked['requests']} requests, of which {told} were answered or failed")
    return found
