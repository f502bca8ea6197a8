"""Feedback for logs that have none: runs in time order, each credited to what would have been shown for it.

At each run the memory holds what earlier runs taught. What it would have shown is credited with how the run went,
though nothing was shown: rows of FEEDBACK whose `query_id` begins with `replay/`. So they are off-policy, and are to be
told apart from what was observed.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.schemas import FEEDBACK, STRING, conform
from hgmem_core.similar import most_similar
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_recipes import DualPath
from hgmem_core.skill_search import retrieve, star_of
from hgmem_core.skill_utility import NodeKind

REPLAY_REVISION = 1
"""Raised when an equal graph and equal vectors give other feedback."""

REPLAYED = "replay/"
"""What the `query_id` of replayed feedback begins with; the id of the run follows."""

_BLOCK = 4096


def replay(graph: SkillGraph, tasks: Floats, plans: Floats, recipe: DualPath) -> pa.Table:
    """Return FEEDBACK of every run: matched subtasks, retrieved runs and chosen skills, all from earlier runs.

    A run is earlier if it comes before in `SkillGraph.time_order`. Nothing is built anew from run to run: in time
    order, what a run may see is a beginning of the rows.

    Args:
        graph: As it was learnt, before any evolution: pruned and merged skills know what came later.
        tasks: The vector of each run's task, float32 `[runs, d]`, in the order of TRAJECTORY.
        plans: The vector of each run's plan, likewise.
        recipe: Of retrieval.

    Raises:
        ValueError: The recipe needs what is known only at the end: utilities, degrees, or pairs.
    """
    if recipe.weight != "count" or recipe.edges != "hyper":
        raise ValueError(f"recipe {recipe.name!r} cannot be replayed: only κ over whole runs grows with the log")
    hypergraph, order = graph.hypergraph, graph.time_order
    when = np.empty(len(order), np.int64)
    when[order] = np.arange(len(order))
    born = _first_in(hypergraph.edges_of_subtask, when)
    subtask_order = np.argsort(born, kind="stable")
    subtask_vectors = graph.vectors.subtasks[subtask_order]
    run_vectors = graph.vectors.trajectories[order]
    parts: dict[NodeKind, list[tuple[Ints, Ints]]] = {"subtask": [], "trajectory": [], "skill": []}
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        place = when[block]
        seen = np.searchsorted(born[subtask_order], place)
        found = most_similar(plans[block], subtask_vectors, recipe.subtasks, subtask_order, seen)
        subtasks = np.append(subtask_order, -1)[found]
        found = most_similar(tasks[block], run_vectors, recipe.trajectories, order, place)
        queries, runs = star_of(hypergraph, subtasks, np.append(order, -1)[found])
        earlier = when[runs] < place[queries]
        star = (queries[earlier], runs[earlier])
        results = retrieve(graph, tasks[block], subtasks, star, recipe)
        found_by_kind: dict[NodeKind, list[Ints]] = {
            "subtask": [result.subtasks for result in results],
            "trajectory": [result.trajectories for result in results],
            "skill": [result.skills for result in results],
        }
        for kind, nodes in found_by_kind.items():
            parts[kind].append((np.repeat(block, [len(some) for some in nodes]), np.concatenate(nodes)))
    return _feedback(graph, parts)


def _first_in(edges: Lists, when: Ints) -> Ints:
    """Return the place in time of the first run of each subtask; after all runs for one that is in none."""
    first = np.full(len(edges.offsets) - 1, len(when))
    np.minimum.at(first, np.repeat(np.arange(len(first)), np.diff(edges.offsets)), when[edges.values])
    return first


def _feedback(graph: SkillGraph, parts: dict[NodeKind, list[tuple[Ints, Ints]]]) -> pa.Table:
    runs = graph.tables.trajectories
    query_ids = pc.binary_join_element_wise(
        pa.scalar(REPLAYED, STRING), runs.column("trajectory_id"), pa.scalar("", STRING)
    )
    shown_at = pc.coalesce(runs.column("said_at"), runs.column("ingested_at"))
    tables = [FEEDBACK.empty()]
    for kind, found in parts.items():
        nothing: tuple[npt.NDArray[Any], npt.NDArray[Any]] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        queries, nodes = (np.concatenate(part) for part in zip(nothing, *found, strict=True))
        rows = runs.take(queries).select(["namespace", "outcome", "n_steps"])
        rows = rows.append_column("query_id", query_ids.take(queries))
        rows = rows.append_column("node_kind", pa.array([kind] * len(nodes), STRING))
        rows = rows.append_column("node_id", graph.ids(kind).take(nodes))
        tables.append(rows.append_column("shown_at", shown_at.take(queries)).select(FEEDBACK.arrow.names))
    return conform(pa.concat_tables([tables[0], *(table.cast(FEEDBACK.arrow) for table in tables[1:])]), FEEDBACK)
