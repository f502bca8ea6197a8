"""How fast it is: what a turn costs to build and a query to answer, the encoder left out."""

import os
import platform
import resource
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hgmem_core import __version__
from hgmem_core.config import ColumnsConfig, Config, InputConfig, RunConfig, StoreConfig
from hgmem_core.encoding import EncoderIdentity, Vectors
from hgmem_core.recipes import MODEL_FREE, RECIPES, AnyRecipe, model_name
from hgmem_core.search import Filters, hits_of
from pipelines.encoders import open_encoder, tuned_vectors
from pipelines.model_store import models_for
from pipelines.progress import Progress, Silent
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.versions import open_version

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FreeEncoder:
    """Stands in for an encoder at next to no cost: each text's length picks one of a few fixed unit vectors."""

    makes_batches = False

    def __init__(self, dimension: int) -> None:
        """Make the vectors, of as many floats as a real encoder's."""
        directions = np.random.default_rng(0).standard_normal((997, dimension)).astype(np.float32)
        self._directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        self.identity = EncoderIdentity("static", "", dimension, 256, "", "none", True, "fp32")

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return one token a text."""
        return [[len(text)] for text in texts]

    def understands(self, tokens: Sequence[int]) -> bool:
        """Say whether a text says something to the model: any does."""
        return True

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        """Return the vector of each piece's first token."""
        vectors: Vectors = self._directions[[piece[0] % len(self._directions) for piece in pieces]]
        return vectors


def benchmark_build(one: InputConfig, repeats: int, progress: Progress) -> dict[str, Any]:
    """Measure importing and building a log in one thread, with a free encoder of 384 dimensions.

    Returns:
        CPU milliseconds a turn (median of the repeats after one warm-up, and all of them) and wall milliseconds a turn
        by stage (medians). The encoder's stages hold what is left of it: texts and tables.
    """
    encoder = FreeEncoder(384)
    runs: list[dict[str, float]] = []
    progress.start("build", repeats + 1)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats + 1):
            store = StoreConfig(root=f"{folder}/store-{number}")
            config = Config(store=store, inputs=[one], run=RunConfig(engine="local", workers=1))
            began = time.process_time()
            done = rebuild(config, encoder, NOW, Silent())
            cpu = time.process_time() - began
            imported = done.imported.seconds if done.imported else 0.0
            seconds = {"total": cpu, "import": imported, **done.built.report.seconds}
            runs.append({part: 1e3 * taken / done.built.turns for part, taken in seconds.items()})
            progress.advance("build", 1)
    timed = runs[1:]
    return {
        "case": "build",
        "turns": done.built.turns,
        "namespaces": done.built.namespaces,
        "repeats": repeats,
        "cpu_ms_a_turn": {"total": round(median(run["total"] for run in timed), 4)},
        "cpu_ms_a_turn_of_each_repeat": [round(run["total"], 4) for run in timed],
        "ms_a_turn_by_stage": {
            part: round(median(run[part] for run in timed), 4) for part in timed[0] if part != "total"
        },
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def synthetic_input(*folders: Path) -> InputConfig:
    """Return how logs of `pipelines.synthetic` are read."""
    columns = ColumnsConfig(id="id", session="session", time="time", speaker="speaker")
    return InputConfig(format="parquet", paths=[*map(str, folders)], namespace="bench/{user}", columns=columns)


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Return the median of some repeats, the least and the largest."""
    return {name: round(of(values), digits) for name, of in (("median", median), ("min", min), ("max", max))}


def benchmark_search(config: Config, queries: Sequence[str], repeats: int, free: bool) -> dict[str, Any]:
    """Measure searches in the largest namespace of the logs of `config`, query vectors given.

    A search is everything after the query's vector: terms, lists, fusion, the ten hits with their texts. To measure
    one thread, call it in a process whose libraries start no others; `cpus_used` then is 1.

    Args:
        config: The logs, and the encoder that makes the vectors.
        queries: What is asked, one after the other.
        repeats: Rounds over all queries; one more before them warms up.
        free: Whether a `FreeEncoder` of 384 dimensions takes the encoder's place.

    Returns:
        Milliseconds of a search by recipe: median and 95th percentile over all queries and repeats, and the median of
        each repeat.
    """
    encoder = FreeEncoder(384) if free else open_encoder(config.encoder)
    config = config.model_copy(update={"run": RunConfig(engine="local")})  # one process
    done = rebuild(config, encoder, NOW, Silent())
    version = open_version(done.store, done.built.version)
    models = models_for(config.retrieve.models, version)
    retriever = Retriever(version, encoder, models=models, tuned=tuned_vectors(config.encoder, encoder.identity))
    recipes = {name: recipe for name, recipe in RECIPES.items() if name in MODEL_FREE or model_name(recipe) in models}
    sizes = {name: len(index) for name in retriever.namespaces() if (index := retriever.namespace(name))}
    namespace = max(sizes, key=lambda name: sizes[name])
    vectors = retriever.encode(list(queries))
    times: dict[str, list[list[float]]] = {name: [] for name in recipes}
    began, began_cpu = time.perf_counter(), time.process_time()
    for name, recipe in recipes.items():
        for repeat in range(repeats + 1):
            taken = [_time_search(retriever, namespace, recipe, *pair) for pair in zip(queries, vectors, strict=True)]
            if repeat:
                times[name].append(taken)
    cpus = (time.process_time() - began_cpu) / (time.perf_counter() - began)
    return {
        "case": "search",
        "turns": sizes[namespace],
        "queries": len(queries),
        "repeats": repeats,
        "encoder": "free" if free else config.encoder.name,
        "cpus_used": round(cpus, 2),
        "p50_ms": {name: round(float(np.percentile(taken, 50)), 4) for name, taken in times.items()},
        "p95_ms": {name: round(float(np.percentile(taken, 95)), 4) for name, taken in times.items()},
        "p50_ms_of_each_repeat": {
            name: [round(float(np.percentile(one, 50)), 4) for one in taken] for name, taken in times.items()
        },
    }


def _time_search(retriever: Retriever, namespace: str, recipe: AnyRecipe, text: str, vector: Vectors) -> float:
    began = time.perf_counter()
    index = retriever.namespace(namespace)
    ranking = retriever.rank(namespace, retriever.analyse(text, recipe, vector), recipe, 10, Filters())
    if index is None or ranking is None:
        raise KeyError(namespace)
    hits_of(index, ranking)
    return 1e3 * (time.perf_counter() - began)


def machine() -> dict[str, Any]:
    """Describe the machine and the software that a measurement comes from."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "python": platform.python_version(),
        "hgmem": __version__,
    }
