"""Retrieval of skills and lessons for tasks (HyperSkill, dual path), many tasks at once.

E* are the runs that hold one of the k_u subtasks nearest to the plan, and the k_e runs nearest to the task. κ(v) is how
many of them hold skill v; the k_s skills of the largest κ are kept, equal ones by cosine to the task, then by id. There
is no floor: what little there is to find is found.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.similar import most_similar, places, row_cosines
from hgmem_core.skill_graph import Hypergraph, SkillGraph
from hgmem_core.skill_recipes import DualPath, FlatSkills, SkillRecipe

Numbers = npt.NDArray[np.float64]

_BLOCK = 4096
"""Queries that are answered at a time."""


@dataclass(frozen=True, slots=True)
class SkillQueries:
    """Tasks to find skills for.

    Attributes:
        tasks: The vector of each task's text, float32 `[q, d]`; zeros find nothing.
        plans: The vector of each task's whole plan, all its subtasks in one text; the same shape.
        scores: BM25 of each skill's name and text for each task, float32 `[q, skills]`; what recipe needs it reads it,
            else it may have no columns.
    """

    tasks: Floats
    plans: Floats
    scores: Floats

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self.tasks)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was found for one task, as numbers of a `SkillGraph`.

    Attributes:
        skills: Best first, both polarities.
        weights: What each is ranked by: κ, or what the recipe puts in its place; float64.
        cosines: Of each with the task, float32.
        trajectories: E*, nearest to the task first: their lessons come along.
        subtasks: R_u, nearest to the plan first.
    """

    skills: Ints
    weights: Numbers
    cosines: Floats
    trajectories: Ints
    subtasks: Ints


@dataclass(frozen=True, slots=True)
class Ranked:
    """Parallel arrays, grouped by query: best first within each."""

    queries: Ints
    nodes: Ints
    weights: Numbers
    cosines: Floats

    def of_each(self, count: int) -> list[slice]:
        """Return where the entries of each of `count` queries are."""
        bounds = np.searchsorted(self.queries, np.arange(count + 1)).tolist()
        return [slice(first, last) for first, last in pairwise(bounds)]


def search_many(graph: SkillGraph, queries: SkillQueries, recipe: SkillRecipe) -> list[Retrieved]:
    """Return what a recipe finds for each task; the same as for each alone.

    Raises:
        ValueError: The recipe ranks by BM25 and `queries.scores` has not one column for each skill.
    """
    found: list[Retrieved] = []
    for start in range(0, len(queries), _BLOCK):
        some = slice(start, start + _BLOCK)
        block = SkillQueries(queries.tasks[some], queries.plans[some], queries.scores[some])
        found += _flat(graph, block, recipe) if isinstance(recipe, FlatSkills) else _dual_path(graph, block, recipe)
    return found


def _dual_path(graph: SkillGraph, queries: SkillQueries, recipe: DualPath) -> list[Retrieved]:
    subtasks = _nearest(queries.plans, graph.vectors.subtasks, recipe.subtasks)
    if recipe.edges == "hyper":
        nearest = _nearest(queries.tasks, graph.vectors.trajectories, recipe.trajectories)
        return retrieve(graph, queries.tasks, subtasks, star_of(graph.hypergraph, subtasks, nearest), recipe)
    hypergraph = graph.hypergraph
    with_pairs = np.flatnonzero((np.diff(hypergraph.skills.offsets) > 0) & (hypergraph.sizes > 1))
    found = _nearest(queries.tasks, graph.vectors.trajectories[with_pairs], recipe.trajectories)
    nearest = np.append(with_pairs, -1)[found]
    star, support = _pairs(graph.hypergraph, subtasks, nearest, recipe.trajectories)
    return _retrieved(graph, queries.tasks, subtasks, star, support, recipe)


def _nearest(queries: Floats, vectors: Floats, count: int) -> Ints:
    return most_similar(queries, vectors, count, np.arange(len(vectors)), np.full(len(queries), len(vectors)))


def star_of(hypergraph: Hypergraph, subtasks: Ints, nearest: Ints) -> tuple[Ints, Ints]:
    """Return E* of each query as pairs of a query and a run, each once, sorted.

    Args:
        hypergraph: Who belongs to which run.
        subtasks: R_u, int64 `[q, k_u]`, -1 for none.
        nearest: The runs nearest to each task, int64 `[q, k_e]`, -1 for none.
    """
    one, through = _members(hypergraph.edges_of_subtask, subtasks)
    other, _ = np.nonzero(nearest >= 0)
    edges = np.concatenate([through, nearest[nearest >= 0]])
    return _distinct(np.concatenate([one, other]), edges, len(hypergraph))


def kappa(hypergraph: Hypergraph, queries: Ints, edges: Ints) -> tuple[Ints, Ints, Ints]:
    """Return κ: for each query and skill of its runs how many of them hold the skill; sorted by query and skill.

    Args:
        hypergraph: Who belongs to which run.
        queries: Of each pair in E*, int64 `[n]`.
        edges: The run of each pair; a pair stands once.

    Returns:
        Queries, skills and κ, int64.
    """
    holders = np.repeat(queries, hypergraph.skills.sizes(edges))
    keys = holders * hypergraph.n_skills + hypergraph.skills.of_all(edges)
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    counts = np.diff(np.concatenate([starts, [len(keys)]]))
    found, skills = np.divmod(keys[starts], max(hypergraph.n_skills, 1))
    return found, skills, counts


def best_of_each(vectors: Floats, tasks: Floats, support: tuple[Ints, Ints, Numbers], count: int) -> Ranked:
    """Return the `count` nodes of the largest weight of each query; equal ones by cosine to the task, then by id.

    Args:
        vectors: Of the nodes, float32 `[n, d]`.
        tasks: Of the queries, float32 `[q, d]`.
        support: Queries, nodes and their weights, parallel arrays.
        count: How many of each query.
    """
    queries, nodes, weights = support
    cosines = row_cosines(tasks, queries, vectors, nodes)
    order = np.lexsort((nodes, -cosines, -weights, queries))
    order = order[places(queries[order]) < count]
    return Ranked(queries[order], nodes[order], weights[order], cosines[order])


def retrieve(
    graph: SkillGraph, tasks: Floats, subtasks: Ints, star: tuple[Ints, Ints], recipe: DualPath
) -> list[Retrieved]:
    """Return the skills of E*, by what the recipe ranks them by.

    Args:
        graph: Its nodes and edges.
        tasks: Of the queries, float32 `[q, d]`.
        subtasks: R_u, int64 `[q, k_u]`, -1 for none.
        star: E*; see `star_of`.
        recipe: Its `edges` is `hyper`.
    """
    return _retrieved(graph, tasks, subtasks, star, kappa(graph.hypergraph, *star), recipe)


def _retrieved(
    graph: SkillGraph,
    tasks: Floats,
    subtasks: Ints,
    star: tuple[Ints, Ints],
    support: tuple[Ints, Ints, Ints],
    recipe: DualPath,
) -> list[Retrieved]:
    queries, skills, counts = support
    weights = counts.astype(np.float64)
    if recipe.weight == "utility":
        weights *= graph.skill_tally.utility[skills]
    elif recipe.weight == "degree":
        weights /= graph.hypergraph.edges_of_skill.sizes(skills)
    wanted = recipe.skills if recipe.fill == "turns" else graph.hypergraph.n_skills
    ranked = best_of_each(graph.vectors.skills, tasks, (queries, skills, weights), wanted)
    if recipe.fill == "actions":
        ranked = _with_mistakes(ranked, graph.negative, len(tasks), recipe.skills)
    runs = best_of_each(graph.vectors.trajectories, tasks, (*star, np.zeros(len(star[0]))), len(graph.hypergraph))
    return _split(len(tasks), ranked, runs, subtasks)


def kept_places(negative: npt.NDArray[np.bool_], count: int) -> Ints:
    """Return the first `count` places of a ranked list, the best mistake's in the place of the last if none has one.

    Args:
        negative: Which of the list are mistakes, best first.
        count: How many are kept; one alone is the best of all.

    >>> kept_places(np.array([False, False, False, True]), 2).tolist()
    [0, 3]
    """
    places = np.arange(min(count, len(negative)))
    if count > 1 and negative.any() and not negative[:count].any():
        places[-1] = int(np.argmax(negative))
    return places


def _with_mistakes(ranked: Ranked, negative: npt.NDArray[np.bool_], queries: int, count: int) -> Ranked:
    own = ranked.of_each(queries)
    parts = [entries.start + kept_places(negative[ranked.nodes[entries]], count) for entries in own]
    kept = np.concatenate([np.zeros(0, np.int64), *parts])
    return Ranked(ranked.queries[kept], ranked.nodes[kept], ranked.weights[kept], ranked.cosines[kept])


def _split(count: int, ranked: Ranked, runs: Ranked, subtasks: Ints) -> list[Retrieved]:
    found = []
    for skills, own, near in zip(ranked.of_each(count), runs.of_each(count), subtasks, strict=True):
        weights, cosines = ranked.weights[skills], ranked.cosines[skills]
        found.append(Retrieved(ranked.nodes[skills], weights, cosines, runs.nodes[own], near[near >= 0]))
    return found


def _flat(graph: SkillGraph, queries: SkillQueries, recipe: FlatSkills) -> list[Retrieved]:
    n_skills = graph.hypergraph.n_skills
    if recipe.kind == "dense":
        queried, skills = _entries(_nearest(queries.tasks, graph.vectors.skills, recipe.skills))
        weights = row_cosines(queries.tasks, queried, graph.vectors.skills, skills).astype(np.float64)
    else:
        if queries.scores.shape != (len(queries), n_skills):
            raise ValueError(
                f"recipe {recipe.name!r} needs BM25 scores of shape {[len(queries), n_skills]}: one a task and skill;"
                f" they have {list(queries.scores.shape)}"
            )
        queried, skills = np.nonzero(queries.scores > 0)
        weights = queries.scores[queried, skills].astype(np.float64)
    ranked = best_of_each(graph.vectors.skills, queries.tasks, (queried, skills, weights), recipe.skills)
    near, runs = _entries(_nearest(queries.tasks, graph.vectors.trajectories, recipe.trajectories))
    support = (near, runs, np.zeros(len(runs)))
    lessons = best_of_each(graph.vectors.trajectories, queries.tasks, support, recipe.trajectories)
    return _split(len(queries), ranked, lessons, np.zeros((len(queries), 0), np.int64))


def _entries(rows: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the rows that are there, -1 being none, each with its query."""
    queries, _ = np.nonzero(rows >= 0)
    return queries, rows[rows >= 0]


def _members(lists: Lists, rows: Ints) -> tuple[Ints, Ints]:
    """Return the lists of the rows of each query, each value with its query."""
    queries, rows = _entries(rows)
    return np.repeat(queries, lists.sizes(rows)), lists.of_all(rows)


def _distinct(queries: Ints, values: Ints, n_values: int) -> tuple[Ints, Ints]:
    keys = np.unique(queries * n_values + values)
    first, second = np.divmod(keys, max(n_values, 1))
    return first, second


def _pairs(
    hypergraph: Hypergraph, subtasks: Ints, nearest: Ints, count: int
) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints, Ints]]:
    """Return the runs that some retrieved pair is of, and κ over pairs; see `skill_recipes.DualPath.edges`."""
    star: list[tuple[int, int]] = []
    support: list[tuple[int, int, int]] = []
    for query, (own_subtasks, own_runs) in enumerate(zip(subtasks.tolist(), nearest.tolist(), strict=True)):
        pairs: set[tuple[int, int]] = set()
        runs: set[int] = set()
        for subtask in own_subtasks:
            for run in hypergraph.edges_of_subtask.of(subtask).tolist() if subtask >= 0 else ():
                runs.add(run)
                pairs |= {(-1 - subtask, skill) for skill in hypergraph.skills.of(run).tolist()}
        left = count
        for run in own_runs:
            some = _pairs_of(hypergraph, run)[:left] if run >= 0 else []
            left -= len(some)
            runs |= {run} if some else set()
            pairs |= set(some)
        star += [(query, run) for run in sorted(runs)]
        counts: dict[int, int] = {}
        for pair in pairs:
            for skill in (node for node in pair if node >= 0):
                counts[skill] = counts.get(skill, 0) + 1
        support += [(query, skill, counts[skill]) for skill in sorted(counts)]
    one, edges = np.array(star, np.int64).reshape(-1, 2).T
    queries, skills, weights = np.array(support, np.int64).reshape(-1, 3).T
    return (one, edges), (queries, skills, weights)


def _pairs_of(hypergraph: Hypergraph, run: int) -> list[tuple[int, int]]:
    """Return the pairs of a run's nodes of which one is a skill; subtask i is written -1 - i."""
    skills = hypergraph.skills.of(run).tolist()
    subtasks = [-1 - subtask for subtask in hypergraph.subtasks.of(run).tolist()]
    pairs = [(subtask, skill) for subtask in subtasks for skill in skills]
    return pairs + [(one, other) for place, one in enumerate(skills) for other in skills[place + 1 :]]
