"""What one large namespace takes to index and to search, vectors given."""

import resource
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hgmem_core.index import build_index
from hgmem_core.ivf import large_levels
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Query
from hgmem_core.recipes import RECIPES
from hgmem_core.schemas import ok_outcomes
from hgmem_core.search import Filters, hits_of, rank_turns
from hgmem_core.stage_config import IndexConfig
from hgmem_core.tokens import tokenizer
from pipelines.large_log import NAMESPACE, PROPAGATION, large_log
from pipelines.stages import index_files
from pipelines.store import Store
from pipelines.versions import Version

RECIPES_TIMED = ("hypermem:no-topic-no-episode-stage", "hybrid", "hypergraph", "hypermem")
"""The first is a hybrid query over all facts: the best by words and the best by vector, joined by rank."""


def benchmark_large(facts: int, folder: Path, config: IndexConfig) -> dict[str, Any]:
    """Build the index of one namespace of `facts` facts, and a fifth as many turns, and search it.

    To measure one thread, call it in a process whose libraries start no others.

    Args:
        facts: How many, a multiple of 50.
        folder: Where the index is written.
        config: How to index.

    Returns:
        Seconds of the build by part; what the manifest says of the IVF indexes; recall of the ten nearest facts and
        turns over questions that are no rows; milliseconds of a search by recipe, and of scoring every fact exactly.
        `cpu` are milliseconds of the processor, which other work on the machine does not count towards.
    """
    log = large_log(facts)
    parts = _Parts()
    index = build_index(log.turns, log.embeddings, log.graph, config, PROPAGATION)
    outcomes = ok_outcomes("index", log.turns.column("namespace"), log.turns.column("turn_id"))
    questions, asked = log.questions, log.asked
    del log  # of a million facts, some gigabytes
    parts.end("tables")
    index = replace(index, large=large_levels(index, config.ivf_from))
    parts.end("ivf")
    store = Store.make(folder / "store", 1)
    made = index_files(index, outcomes, {})
    output = store.keep(store.output_folder("index", "0" * 16), made.files, made.about)
    parts.end("files")
    about = {"folder": output.folder.relative_to(store.root).as_posix(), **output.manifest}
    manifest = {"version": "0" * 16, "propagation": PROPAGATION, "tuned_encoder": None, "buckets": {"0": about}}
    del index, made
    reader = Version(store, manifest).open_bucket(0)
    opened = reader.open(NAMESPACE) if reader else None
    if opened is None:
        raise KeyError(NAMESPACE)
    tokenize = tokenizer(config.language)
    queries = [Query(text, tuple(tokenize(text)), vector) for text, vector in zip(questions, asked, strict=True)]
    times = {name: _timed(queries, _search(opened, name)) for name in RECIPES_TIMED}
    times["exact cosines of facts"] = _timed(
        queries[:20], lambda query: opened.graph.cosines("fact", _vector(query), PROPAGATION)
    )
    return {
        "case": "large",
        "facts": facts,
        "turns": len(opened),
        "queries": len(queries),
        "ivf_from": config.ivf_from,
        "build_seconds": parts.seconds(wall=True),
        "build_cpu_seconds": parts.seconds(wall=False),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "indexes": [{name: one[name] for name in one if name != "files"} for one in about.get("large", [])],
        "recall_at_10": {"fact": _recall(opened, queries, "fact"), "turn": _recall(opened, queries, "turn")},
        "p50_ms": {name: _percentile(taken, 50) for name, (taken, _) in times.items()},
        "p95_ms": {name: _percentile(taken, 95) for name, (taken, _) in times.items()},
        "cpu_p50_ms": {name: _percentile(taken, 50) for name, (_, taken) in times.items()},
    }


class _Parts:
    """What the parts of a work take, one after the other."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._ends = [(time.perf_counter(), time.process_time())]

    def end(self, name: str) -> None:
        """End the part of this name."""
        self._names.append(name)
        self._ends.append((time.perf_counter(), time.process_time()))

    def seconds(self, wall: bool) -> dict[str, float]:
        """Return the seconds of each part and in total, by the clock or by the processor."""
        ends = [by_clock if wall else by_processor for by_clock, by_processor in self._ends]
        taken = [end - start for start, end in pairwise(ends)]
        parts = {"total": ends[-1] - ends[0], **dict(zip(self._names, taken, strict=True))}
        return {name: round(seconds, 1) for name, seconds in parts.items()}


def _vector(query: Query) -> Floats:
    if query.vector is None:
        raise ValueError(f"the query {query.text!r} has no vector")
    return query.vector


def _search(index: NamespaceIndex, name: str) -> Callable[[Query], object]:
    return lambda query: hits_of(index, rank_turns(index, query, RECIPES[name], Filters(), 10))


def _percentile(milliseconds: list[float], of: float) -> float:
    return round(float(np.percentile(milliseconds, of)), 3)


def _timed(queries: list[Query], work: Callable[[Query], object]) -> tuple[list[float], list[float]]:
    """Return milliseconds of each query, by the clock and by the processor, after one round that warms up."""
    wall, cpu = [], []
    for query in [*queries, *queries]:
        began, began_cpu = time.perf_counter(), time.thread_time()
        work(query)
        cpu.append(1e3 * (time.thread_time() - began_cpu))
        wall.append(1e3 * (time.perf_counter() - began))
    return wall[len(queries) :], cpu[len(queries) :]


def _recall(index: NamespaceIndex, queries: list[Query], level: Literal["fact", "turn"]) -> float:
    """Return which share of the ten nearest facts or turns the recipes are given, on average."""
    found = []
    for query in queries:
        vector = _vector(query)
        if level == "fact":
            every = index.graph.cosines("fact", vector, PROPAGATION)
            near = every
            if index.graph.is_large("fact"):
                rows = index.graph.nearest("fact", vector, PROPAGATION, 100, None)
                near = np.full(len(every), -1, np.float32)
                near[rows] = every[rows]
        else:
            every, near = index.cosines(vector), index.near_cosines(vector, 100, None)
        best, given = (np.argpartition(-scores, 10)[:10] for scores in (every, near))
        found.append(len(np.intersect1d(best, given)) / 10)
    return round(float(np.mean(found)), 4)
