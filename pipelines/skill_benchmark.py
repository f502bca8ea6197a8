"""What the algebra of a large skill hypergraph takes: who occurs with whom, propagation, and κ for many tasks."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np

from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.skill_cooccurrence import co_occurrence, propagate_skills, weighted
from hgmem_core.skill_graph import Hypergraph, lists_of
from hgmem_core.skill_recipes import DualPath
from hgmem_core.skill_search import best_of_each, kappa, star_of
from hgmem_core.stage_config import EvolutionConfig

_DIMENSION = 384
_SUBTASKS = 3
"""Of each run."""
_MOST_SKILLS = 3
_ZIPF = 0.9
"""The exponent of how often the n-th skill occurs."""


def benchmark_skills(trajectories: int, skills: int, queries: int, repeats: int) -> dict[str, Any]:
    """Measure a random hypergraph, whose skills are as unequally common as words are.

    To measure one thread, call it in a process whose libraries start no others.

    Args:
        trajectories: Runs, each with 3 subtasks of its own and 1 to 3 skills.
        skills: How many there are, with vectors of 384 dimensions.
        queries: Tasks, each led by 5 subtasks and 5 runs that are drawn at random.
        repeats: Each from the memberships on.

    Returns:
        Medians of seconds, by wall and by processor, of every part and together, and the largest memory in use.
    """
    rng = np.random.default_rng(0)
    runs, members = _memberships(rng, trajectories, skills)
    vectors, tasks = _units(rng, skills), _units(rng, queries)
    utility = rng.random(skills)
    rule, recipe = EvolutionConfig(), DualPath("benchmark")
    subtasks = rng.integers(trajectories * _SUBTASKS, size=(queries, recipe.subtasks))
    nearest = rng.integers(trajectories, size=(queries, recipe.trajectories))
    timed: list[dict[str, tuple[float, float]]] = []
    for _ in range(repeats):
        seconds: dict[str, tuple[float, float]] = {}
        with _timed(seconds, "hypergraph"):
            hypergraph = _hypergraph(runs, members, trajectories, skills)
        with _timed(seconds, "co_occurrence"):
            shared = weighted(co_occurrence(hypergraph), utility)
        with _timed(seconds, "propagation"):
            propagate_skills(shared, vectors, rule.restart, rule.depth)
        with _timed(seconds, "kappa"):
            found, nodes, counts = kappa(hypergraph, *star_of(hypergraph, subtasks, nearest))
            best_of_each(vectors, tasks, (found, nodes, counts.astype(np.float64)), recipe.skills)
        timed.append(seconds)

    def medians(place: int) -> dict[str, float]:
        parts = {part: median(one[part][place] for one in timed) for part in timed[0]}
        total = median(sum(taken[place] for taken in one.values()) for one in timed)
        return {part: round(taken, 2) for part, taken in {"total": total, **parts}.items()}

    return {
        "case": "skills",
        "trajectories": trajectories,
        "skills": skills,
        "queries": queries,
        "repeats": repeats,
        "memberships": len(hypergraph.skills.values),
        "largest_hub": int(np.diff(hypergraph.edges_of_skill.offsets).max()),
        "co_occurrences": len(shared.values),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "seconds": medians(0),
        "cpu_seconds": medians(1),
        "seconds_of_each_repeat": [round(sum(taken for taken, _ in one.values()), 2) for one in timed],
    }


@contextmanager
def _timed(seconds: dict[str, tuple[float, float]], part: str) -> Iterator[None]:
    began, began_cpu = time.perf_counter(), time.process_time()
    yield
    seconds[part] = (time.perf_counter() - began, time.process_time() - began_cpu)


def _memberships(rng: np.random.Generator, trajectories: int, skills: int) -> tuple[Ints, Ints]:
    """Return pairs of a run and a skill; a run may name a skill twice."""
    runs = np.repeat(np.arange(trajectories), rng.integers(1, _MOST_SKILLS + 1, trajectories))
    common = np.cumsum(np.arange(1, skills + 1) ** -_ZIPF)
    names = rng.permutation(skills)
    return runs, names[np.searchsorted(common, rng.random(len(runs)) * common[-1])]


def _hypergraph(runs: Ints, members: Ints, trajectories: int, skills: int) -> Hypergraph:
    count = trajectories * _SUBTASKS
    subtasks = Lists(np.arange(0, count + 1, _SUBTASKS), np.arange(count))
    return Hypergraph(lists_of(runs, members, trajectories, skills), subtasks, skills, count)


def _units(rng: np.random.Generator, count: int) -> Floats:
    vectors = rng.standard_normal((count, _DIMENSION), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
