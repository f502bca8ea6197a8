"""What forgetting a namespace at once takes, beside the rebuild of its bucket's files; and whether anything is left."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hgmem_core.config import Config, StoreConfig
from hgmem_core.ids import bucket_of
from hgmem_core.run_config import RunConfig
from pipelines.audit import Audit, Texts, audit
from pipelines.benchmark import NOW, FreeEncoder, spread, synthetic_input
from pipelines.build import index_buckets
from pipelines.forget import Selection, forget
from pipelines.imports import imported_parts, read_imports
from pipelines.progress import Progress, Silent
from pipelines.rebuild import erase, rebuild
from pipelines.retention import prune_held
from pipelines.run import open_run
from pipelines.store import Store
from pipelines.synthetic import SyntheticLog, write_log, write_more
from pipelines.tombstone_files import read_tombstones
from pipelines.version_history import Reach
from pipelines.versions import manifest_path

_MORE = 20
"""Turns that the namespace has in the second version alone."""


def benchmark_forget(
    config: Config, log: SyntheticLog, canaries: int, dimension: int, repeats: int, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Measure the forgetting of a namespace of middling size in a store of two versions, vectors at no cost.

    Args:
        config: How; its inputs and its store's root are not used.
        log: What the store holds.
        canaries: Turns that the namespace has besides, each with a text of its own that is looked for.
        dimension: Floats of a vector; they are most of a large store.
        repeats: Of the rebuild of the bucket, and of forgetting, each on a copy of the store.
        folder: Where logs and stores are made.
        progress: Told of steps.

    Returns:
        Seconds of both and their ratio; of the audits of the whole store how many canaries they found, in how many
        files, and how long they took: before, after forgetting, and after the earlier version was removed.
    """
    progress.start("forget", 2 + 2 * repeats)
    encoder = FreeEncoder(dimension)
    user = f"u{log.namespaces // 2:06d}"
    texts = write_canaries(folder / "canaries", user, canaries)
    base = folder / "base"
    store = _build(config, encoder, base, log, folder, progress)
    before = _looked_for(store, texts)
    bucket = bucket_of(f"bench/{user}", store.buckets)
    rebuilt, forgotten, ratios = [], [], []
    for _ in range(repeats):
        rebuilt.append(_rebuild_bucket(config, encoder, _copied(base, folder / "rebuilt"), bucket))
        progress.advance("forget", 1)
        copy = _copied(base, folder / "forgotten")
        began = time.perf_counter()
        forget(copy, Selection(f"bench/{user}"), NOW)
        erase(_of(config, copy.root), encoder, NOW, Silent())
        forgotten.append(time.perf_counter() - began)
        ratios.append(forgotten[-1] / rebuilt[-1])
        progress.advance("forget", 1)
    after = _looked_for(copy, texts)
    prune_held(copy, 1)
    pruned = _looked_for(copy, texts)
    progress.finish("forget")
    found = {"before": before, "after_forgetting": after, "after_prune": pruned}
    whole = {"before": canaries, "after_forgetting": 0, "after_prune": 0}
    return {
        "case": "forget",
        "encoder": "free",
        "dimension": dimension,
        "turns": log.turns + canaries + _MORE,
        "namespaces": log.namespaces,
        "buckets": store.buckets,
        "canaries": canaries,
        "repeats": repeats,
        "rebuild_of_bucket_seconds": spread(rebuilt),
        "forget_seconds": spread(forgotten),
        "ratio": spread(ratios),
        "audits": found,
        "mismatches": [
            f"canaries found {when.replace('_', ' ')}: {found[when]['canaries_found']} instead of {should}"
            for when, should in whole.items()
            if found[when]["canaries_found"] != should or found[when]["unreadable"]
        ],
    }


def write_canaries(folder: Path, user: str, count: int) -> list[str]:
    """Write a log of turns of one user, a session of ten each, and return their texts, which nobody else says."""
    folder.mkdir(parents=True)
    words = np.random.default_rng(7).integers(0, 1 << 63, (count, 2))
    texts = [f"My canary {one:016x} sings at the window of number {other:016x}." for one, other in words.tolist()]
    minutes = [60_000_000 * number for number in range(count)]
    rows = {
        "id": [f"canary{number}" for number in range(count)],
        "user": [user] * count,
        "session": [f"canaries{number // 10}" for number in range(count)],
        "time": pa.array(minutes, pa.timestamp("us", "UTC")),
        "speaker": ["Ana"] * count,
        "text": texts,
    }
    pq.write_table(pa.table(rows), folder / "canaries.parquet")
    return texts


def _of(config: Config, root: Path, *logs: Path) -> Config:
    place = StoreConfig(root=str(root), buckets=config.store.buckets)
    inputs = [synthetic_input(*logs)] if logs else []
    run = RunConfig(engine="local", workers=config.run.workers)
    return config.model_copy(update={"store": place, "inputs": inputs, "run": run})


def _build(
    config: Config, encoder: FreeEncoder, base: Path, log: SyntheticLog, folder: Path, progress: Progress
) -> Store:
    """Build two versions: of the log and the canaries, and then of some more turns of the same namespace."""
    write_log(folder / "log", log)
    sizes = log.sizes()
    sizes[log.namespaces // 2] += _MORE
    write_more(folder / "more", log, sizes)
    for logs in ((folder / "log", folder / "canaries"), (folder / "log", folder / "canaries", folder / "more")):
        done = rebuild(_of(config, base, *logs), encoder, NOW, Silent())
        progress.advance("forget", 1)
    return done.store


def _copied(base: Path, folder: Path) -> Store:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder, copy_function=_copy)
    return Store.open(folder)


def _copy(source: str, target: str) -> None:
    """Copy a file of a store; outputs are never written in place, so another name for them is enough."""
    if "outputs" in Path(source).parts:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _rebuild_bucket(config: Config, encoder: FreeEncoder, store: Store, bucket: int) -> float:
    """Return how many seconds it takes to make every file of a bucket, once none of it is there."""
    for version in store.version_ids():
        store.remove(manifest_path(store, version).parent)
    for _, path in store.numbered("current"):
        store.remove_file(path)
    for folder in Reach(store).beyond([], set()):
        store.remove(folder)
    with open_run("rebuild", _of(config, store.root), NOW, Silent()) as run:
        parts = imported_parts(store, read_imports(store), read_tombstones(store))
        began = time.perf_counter()
        index_buckets(run, config, encoder, None, None, {bucket: parts[bucket]})
        return time.perf_counter() - began


def _looked_for(store: Store, texts: Sequence[str]) -> dict[str, Any]:
    began = time.perf_counter()
    made: Audit = audit(store.root, store.every_file(), Texts(texts), Silent())
    return {
        "canaries_found": len({one.text for one in made.found}),
        "files": made.files,
        "bytes": made.bytes,
        "unreadable": len(made.unreadable),
        "seconds": round(time.perf_counter() - began, 3),
    }
