"""What runs teach, and the plans of their tasks, told by a language model; the embedded engine where it does not."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from hgmem_core.chat import Reply, Request
from hgmem_core.ids import content_id
from hgmem_core.passes import Terms, reject_rows, reject_table
from hgmem_core.schemas import INCIDENCE, LESSON, OUTCOME, SUBTASK, conform
from hgmem_core.skills import TAUGHT, in_time_order, learn_skills, plan_tasks
from hgmem_core.skills_llm import Task, Trajectory, decompose_llm, distil_llm
from hgmem_core.taught import Planned, Taught, mention_rows

Made = TypeVar("Made")
Asking = Generator[list[Request], list[Reply], Made]


def plan_llm(trajectories: pa.Table, terms: Terms) -> Asking[Planned]:
    """Return the plans of tasks; see `hgmem_core.skills_llm.decompose_llm`.

    Args:
        trajectories: TRAJECTORY.
        terms: Of asking.
    """
    runs = trajectories.select(["namespace", "trajectory_id", "task"]).to_pylist()
    settled = yield from decompose_llm([Task(*run.values()) for run in runs], terms)
    without = np.array([one.answer is None for one in settled], bool)
    subtasks, incidences = plan_tasks(trajectories.filter(pa.array(without)))
    rows = [
        {
            "namespace": run["namespace"],
            "subtask_id": content_id("subtask", run["namespace"], run["trajectory_id"], position),
            "trajectory_id": run["trajectory_id"],
            "position": position,
            "text": item.text,
        }
        for run, one in zip(runs, settled, strict=True)
        for position, item in enumerate(one.answer.subtasks if one.answer else ())
    ]
    members = [
        {"namespace": row["namespace"], "kind": "trajectory", "hyperedge_id": row["trajectory_id"]}
        | {"node_id": row["subtask_id"], "node_kind": "subtask", "role": "subtask", "weight": 1.0}
        for row in rows
    ]
    rejects = [
        row
        for run, one in zip(runs, settled, strict=True)
        for row in reject_rows("decompose", run["namespace"], run["trajectory_id"], one)
    ]
    return Planned(
        conform(pa.concat_tables([subtasks, pa.Table.from_pylist(rows, SUBTASK.arrow)]), SUBTASK),
        conform(pa.concat_tables([incidences, pa.Table.from_pylist(members, INCIDENCE.arrow)]), INCIDENCE),
        _outcomes("decompose", runs, [(one.outcome, one.passes, one.reason) for one in settled]),
        reject_table(rejects),
    )


def teach_llm(trajectories: pa.Table, language: str, terms: Terms) -> Asking[Taught]:
    """Return what runs teach; see `hgmem_core.skills_llm.distil_llm`.

    Args:
        trajectories: TRAJECTORY.
        language: Of the tasks, for the embedded engine.
        terms: Of asking.
    """
    runs = in_time_order(trajectories).to_pylist()
    distilled = yield from distil_llm([_shown(run) for run in runs], terms)
    embedded = learn_skills(trajectories, language) if any(one.outcome == "fallback" for one in distilled) else None
    mentions: list[dict[str, Any]] = []
    lessons: list[dict[str, Any]] = []
    stand_in = [] if embedded is None else embedded.mentions.to_pylist()
    stand_in_lessons = {} if embedded is None else _by_run(embedded.lessons.to_pylist())
    by_run = _by_run(stand_in)
    for run, one in zip(runs, distilled, strict=True):
        key = run["namespace"], run["trajectory_id"]
        if one.outcome == "fallback":
            mentions += by_run.get(key, [])
            lessons += stand_in_lessons.get(key, [])
            continue
        about = {"namespace": key[0], "trajectory_id": key[1]}
        mentions += [{**about, **skill.model_dump()} for skill in one.skills]
        lessons += [{**about, "text": one.lesson}] if one.lesson else []
    return Taught(
        mention_rows(pa.Table.from_pylist(mentions, TAUGHT)),
        conform(pa.Table.from_pylist(lessons, LESSON.arrow), LESSON),
        _outcomes("skills", runs, [(one.outcome, one.passes, one.reason) for one in distilled]),
        reject_table([row for one in distilled for row in one.rejects]),
    )


def _shown(run: Mapping[str, Any]) -> Trajectory:
    """Return a run as the model is to see it: what was done, and what was seen then."""
    steps = [
        step["action"] if step["observation"] is None else f"{step['action']} -> {step['observation']}"
        for step in run["steps"]
    ]
    return Trajectory(run["namespace"], run["trajectory_id"], run["task"], steps, run["outcome"])


def _by_run(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["namespace"], row["trajectory_id"]), []).append(row)
    return found


def _outcomes(stage: str, runs: Sequence[Mapping[str, Any]], told: Sequence[tuple[str, int, str | None]]) -> pa.Table:
    rows = [
        {"namespace": run["namespace"], "stage": stage, "row_id": run["trajectory_id"]}
        | {"outcome": outcome, "passes": passes, "reason": reason}
        for run, (outcome, passes, reason) in zip(runs, told, strict=True)
    ]
    return conform(pa.Table.from_pylist(rows, OUTCOME.arrow), OUTCOME)
