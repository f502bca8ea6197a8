"""Small skill hypergraphs made up for tests."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from hgmem_core.schemas import INCIDENCE, LESSON, SKILL, SUBTASK, TRAJECTORY, UTILITY, conform
from hgmem_core.skill_graph import SkillGraph, SkillTables, SkillVectors

IMPORTED = datetime(2026, 1, 1, tzinfo=UTC)


def table(rows, schema):
    rows = [{"namespace": "n", **row} for row in rows]
    return conform(pa.Table.from_pylist(rows, schema.arrow), schema)


def units(vectors, dimension=3):
    """Vectors made as long as one."""
    matrix = np.array(list(vectors), np.float32).reshape(-1, dimension)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.divide(matrix, lengths, out=np.zeros_like(matrix), where=lengths > 0)


def graph(runs, skills=None, subtasks=None, dimension=3):
    """A graph of runs by id.

    Args:
        runs: For each id what is not the default: `skills` and `subtasks` (ids), `outcome`, `n_steps`, `vector`,
            `lesson`, `said_at`, `sequence`.
        skills: For each id likewise `vector`, `polarity`, `name`, `text`, `aliases`, and of UTILITY `shown`,
            `succeeded`, `mean_steps`, `utility`; those of runs need not be named.
        subtasks: For each id the same, as far as it has it.
        dimension: Of vectors, which are zeros by default.
    """
    skills, subtasks = dict(skills or {}), dict(subtasks or {})
    for run in runs.values():
        for known, kind in ((skills, "skills"), (subtasks, "subtasks")):
            for node in run.get(kind, ()):
                known.setdefault(node, {})
    skill_rows = [
        {"skill_id": name, "polarity": own.get("polarity", "positive"), "name": own.get("name", f"name of {name}")}
        | {"text": own.get("text", f"text of {name}"), "aliases": own.get("aliases", [])}
        for name, own in skills.items()
    ]
    holder = {node: name for name, run in runs.items() for node in run.get("subtasks", ())}
    subtask_rows = [
        {"subtask_id": name, "trajectory_id": holder.get(name, ""), "position": 0, "text": f"text of {name}"}
        for name in subtasks
    ]
    run_rows = [
        {"trajectory_id": name, "sequence": run.get("sequence", place), "task_id": name, "task": f"task {name}"}
        | {"steps": [], "outcome": run.get("outcome", "success"), "n_steps": run.get("n_steps", 5)}
        | {"ingested_at": IMPORTED, "said_at": run.get("said_at")}
        for place, (name, run) in enumerate(runs.items())
    ]
    members = [
        {"kind": "trajectory", "hyperedge_id": name, "node_id": node, "node_kind": kind, "role": kind, "weight": 1.0}
        for name, run in runs.items()
        for kind in ("skill", "subtask")
        for node in run.get(f"{kind}s", ())
    ]
    known = [
        {"node_kind": kind, "node_id": name, "shown": own["shown"], "succeeded": own.get("succeeded", 0)}
        | {"mean_steps": own.get("mean_steps"), "utility": own.get("utility", 0.5)}
        for kind, nodes in (("skill", skills), ("subtask", subtasks))
        for name, own in nodes.items()
        if "shown" in own
    ]
    lessons = [{"trajectory_id": name, "text": run["lesson"]} for name, run in runs.items() if "lesson" in run]
    tables = SkillTables(
        table(run_rows, TRAJECTORY),
        table(lessons, LESSON),
        table(subtask_rows, SUBTASK),
        table(skill_rows, SKILL),
        table(members, INCIDENCE),
        table(known, UTILITY),
    )

    def vectors(nodes):
        return units([nodes[name].get("vector", (0,) * dimension) for name in sorted(nodes)], dimension)

    return SkillGraph.of(tables, SkillVectors(vectors(subtasks), vectors(skills), vectors(runs)))


def names(own, kind, rows):
    """The ids of some nodes."""
    return own.ids(kind).take(rows).to_pylist()
