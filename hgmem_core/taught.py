"""What runs teach, and what becomes of it, as the tables that travel between the stages of trajectories."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import skill_id
from hgmem_core.schemas import MENTION, OUTCOME, REJECT, STRING, conform, namespace_ranges
from hgmem_core.skill_dedup import Deduplicated
from hgmem_core.skills import learn_skills, plan_tasks

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Planned:
    """The plans of a bucket's tasks.

    Attributes:
        subtasks: SUBTASK.
        incidences: INCIDENCE of kind `trajectory`, role `subtask`.
        outcomes: OUTCOME of stage `decompose`, a row for each run: `empty` for one whose task says nothing.
        rejects: REJECT.
    """

    subtasks: pa.Table
    incidences: pa.Table
    outcomes: pa.Table
    rejects: pa.Table = field(default_factory=REJECT.empty)


@dataclass(frozen=True, slots=True)
class Taught:
    """What the runs of a bucket teach.

    Attributes:
        mentions: MENTION.
        lessons: LESSON.
        outcomes: OUTCOME of stage `skills`, a row for each run: `empty` for one that teaches nothing.
        rejects: REJECT.
    """

    mentions: pa.Table
    lessons: pa.Table
    outcomes: pa.Table
    rejects: pa.Table = field(default_factory=REJECT.empty)


def plan(trajectories: pa.Table) -> Planned:
    """Return the plans of tasks without a language model; see `hgmem_core.subtasks`.

    Args:
        trajectories: TRAJECTORY.
    """
    subtasks, incidences = plan_tasks(trajectories)
    ids = trajectories.column("trajectory_id")
    reasons = ["the task says nothing that is to be done"] * len(ids)
    has_plan = _among(ids, subtasks)
    outcomes = _outcomes("decompose", trajectories.column("namespace"), ids, has_plan, reasons)
    return Planned(subtasks, incidences, outcomes)


def teach(trajectories: pa.Table, language: str) -> Taught:
    """Return what runs teach without a language model; see `hgmem_core.skills`.

    Args:
        trajectories: TRAJECTORY.
        language: Of the tasks.
    """
    learned = learn_skills(trajectories, language)
    ids = trajectories.column("trajectory_id")
    reasons = [
        "how the run ended is unknown" if outcome == "unknown" else "nothing that the run did has a template"
        for outcome in trajectories.column("outcome").to_pylist()
    ]
    teaches = _among(ids, learned.mentions) | _among(ids, learned.lessons)
    outcomes = _outcomes("skills", trajectories.column("namespace"), ids, teaches, reasons)
    return Taught(mention_rows(learned.mentions), learned.lessons, outcomes)


def mention_rows(mentions: pa.Table) -> pa.Table:
    """Return MENTION of what `hgmem_core.skills.learn_skills` gives, or another with its columns and its order."""
    names = ["namespace", "polarity", "name", "text"]
    said = zip(*(mentions.column(name).to_pylist() for name in names), strict=True)
    positions = [np.arange(stop - start) for _, start, stop in namespace_ranges(mentions)]
    columns: dict[str, Any] = {name: mentions.column(name) for name in mentions.column_names}
    columns["skill_id"] = pa.array([skill_id(*parts) for parts in said], STRING)
    columns["position"] = np.concatenate([np.zeros(0, np.int64), *positions])
    return conform(pa.table(columns).select(MENTION.arrow.names), MENTION)


def distinct_mentions(mentions: pa.Table) -> pa.Table:
    """Return the first MENTION row of each skill, in their order."""
    ids = mentions.column("skill_id").combine_chunks()
    return mentions.take(pc.index_in(pc.unique(ids), value_set=ids))


def dedup_outcomes(mentions: pa.Table, found: Deduplicated) -> pa.Table:
    """Return OUTCOME of stage `dedup`, a row for each of MENTION, named by its position: `empty` for what was joined.

    Args:
        mentions: MENTION.
        found: Of them.
    """
    leads = np.zeros(mentions.num_rows, bool)
    leads[found.mentions] = True
    positions = mentions.column("position").cast(STRING)
    reasons = ["says what an earlier skill says"] * mentions.num_rows
    return _outcomes("dedup", mentions.column("namespace"), positions, leads, reasons)


def _among(ids: pa.ChunkedArray, table: pa.Table) -> Mask:
    """Tell which runs have a row in a table."""
    return np.asarray(pc.is_in(ids, value_set=table.column("trajectory_id").combine_chunks()).to_numpy(), bool)


def _outcomes(
    stage: str, namespaces: pa.ChunkedArray, ids: pa.ChunkedArray, ok: Mask, reasons: Sequence[str]
) -> pa.Table:
    """Return OUTCOME of rows that came through, or are `empty` for a reason each."""
    rows = len(ids)
    columns = {
        "namespace": namespaces,
        "stage": pa.array([stage] * rows, STRING),
        "row_id": ids,
        "outcome": pa.array(np.where(ok, "ok", "empty"), STRING),
        "passes": pa.array(np.ones(rows, np.int32)),
        "reason": pa.array([None if fine else reason for fine, reason in zip(ok, reasons, strict=True)], STRING),
    }
    return conform(pa.table(columns), OUTCOME)
