"""From imported runs of agents to trajectories: ids, the union of all imports, the order in the log."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from hgmem_core.ids import content_id
from hgmem_core.schemas import OUTCOME, TRAJECTORY, conform
from hgmem_core.transcript import ends
from hgmem_core.turns import microseconds

TRAJECTORIES_REVISION = 1
"""Raised when equal imports give other trajectories."""

RunOutcome = Literal["success", "failure", "unknown"]

IMPORTED_RUN = replace(TRAJECTORY, name="IMPORTED_RUN", key=("namespace", "sequence"))
"""What one import writes into a bucket: an id may be repeated, `sequence` is the run's place in that import."""

_CONTENT = ("source_id", "task_id", "task", "steps", "outcome", "n_steps", "said_at")


@dataclass(frozen=True, slots=True)
class Step:
    """What an agent did, and what it saw then; None where the log does not show that."""

    action: str
    observation: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent as a log gives it.

    Attributes:
        row_id: The row it came from, see `LogRow`.
        namespace: Whose memory it belongs to; already checked.
        trajectory_id: See `trajectory_id`. Without an id of the log's own it is provisional until `number_equal_runs`
            has seen the whole file.
        task_id: What runs of one task share.
        task: What was to be done, as the agent was told.
        steps: At least one.
        outcome: How it ended.
        n_steps: How many steps it took; `steps` may be fewer.
        source_id: The log's own id of the run, or None.
        said_at: When it was made, timezone-aware, or None.
        note: What was lost or changed on the way, which makes the outcome of the row `partial`; else None.
    """

    row_id: str
    namespace: str
    trajectory_id: str
    task_id: str
    task: str
    steps: tuple[Step, ...]
    outcome: RunOutcome
    n_steps: int
    source_id: str | None = None
    said_at: datetime | None = None
    note: str | None = None


def trajectory_id(namespace: str, source_id: str) -> str:
    """Return the id of a run that carries its log's own id."""
    return content_id("trajectory", namespace, source_id)


def anonymous_trajectory_id(
    namespace: str, task_id: str, task: str, steps: Sequence[Step], said_at: datetime | None
) -> str:
    """Return the id of a run without an id of its own: by its task, its steps and its time.

    How it ended makes no difference, since that may become known, or be corrected, later. Equal runs of one file are
    told apart by `number_equal_runs`.
    """
    time = None if said_at is None else microseconds(said_at)
    said = [text for step in steps for text in (step.action, step.observation)]
    return content_id("ran", namespace, time, task_id, task, *said)


def cut_long_texts(run: Run, max_chars: int) -> Run:
    """Return a run whose task, actions and observations keep their two ends where they are longer than `max_chars`.

    Its id stays that of the whole; its note says how many texts were cut.
    """
    texts = [run.task, *(text for step in run.steps for text in (step.action, step.observation or ""))]
    longer = sum(len(text) > max_chars for text in texts)
    if not longer:
        return run
    cut = f"{longer} texts of more than {max_chars:,} characters cut to their ends"
    return replace(
        run,
        task=ends(run.task, max_chars),
        steps=tuple(
            Step(ends(step.action, max_chars), None if step.observation is None else ends(step.observation, max_chars))
            for step in run.steps
        ),
        note=f"{run.note}; {cut}" if run.note else cut,
    )


def trajectories_table(runs: Sequence[Run], first_row: int, ingested_at: datetime) -> pa.Table:
    """Return the runs of one file in their order, with the columns of TRAJECTORY.

    It is no table of that name yet: ids may be repeated until `merge_runs` has joined all imports.

    Args:
        runs: Consecutive runs of one file.
        first_row: The `sequence` of the first one; later ones count on from it.
        ingested_at: When the import began, the same for all its rows.
    """
    rows = [
        {
            "namespace": run.namespace,
            "trajectory_id": run.trajectory_id,
            "source_id": run.source_id,
            "sequence": row,
            "task_id": run.task_id,
            "task": run.task,
            "steps": [{"action": step.action, "observation": step.observation} for step in run.steps],
            "outcome": run.outcome,
            "n_steps": run.n_steps,
            "said_at": run.said_at,
            "ingested_at": ingested_at,
        }
        for row, run in enumerate(runs, first_row)
    ]
    return pa.Table.from_pylist(rows, schema=TRAJECTORY.arrow)


def number_equal_runs(runs: pa.Table) -> pa.Table:
    """Tell equal runs without an id apart: the second gets an id of its own, the third another.

    `runs` holds the rows of one file that fall into one bucket. Runs with an id keep it, so that a repeated id stays
    one trajectory.
    """
    counted = _frame(runs).sort("sequence").with_columns(ordinal=pl.int_range(pl.len()).over("trajectory_id"))
    repeats = counted.filter(pl.col("source_id").is_null() & (pl.col("ordinal") > 0))
    if repeats.is_empty():
        return runs
    ids = runs.column("trajectory_id").to_pylist()
    for at, first, ordinal in repeats.select("at", "trajectory_id", "ordinal").iter_rows():
        ids[at] = content_id("again", first, ordinal)
    place = runs.column_names.index("trajectory_id")
    return runs.set_column(place, TRAJECTORY.arrow.field("trajectory_id"), pa.array(ids, pa.large_string()))


def merge_runs(imports: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Return the TRAJECTORY table that several imports of one bucket make together, and its OUTCOME rows.

    A run that was delivered several times is what its latest delivery says, at the place in the log of its first one:
    `sequence` counts the trajectories of a namespace by import and row. `ingested_at` is when that content was first
    seen.

    Args:
        imports: As `trajectories_table` makes them, numbered by file, the oldest import first.

    Returns:
        TRAJECTORY, and OUTCOME of stage `merge` with one row for each input row, named `<import>:<sequence>`: `ok` for
        the row that a trajectory comes from, `empty` for a repetition, `partial` for what a later row replaced.
    """
    every = pa.concat_tables([TRAJECTORY.empty(), *imports]).combine_chunks()
    source = [number for number, table in enumerate(imports) for _ in range(table.num_rows)]
    run = ["namespace", "trajectory_id"]
    frame = _frame(every).with_columns(source=pl.Series(source, dtype=pl.Int64))
    frame = frame.sort("source", "sequence").with_row_index("place")
    frame = frame.with_columns(
        wins=pl.col("place") == pl.col("place").max().over(run),
        latest=pl.col("at").last().over(run),
        first=pl.col("place").min().over(run),
    )
    same = _equal_rows(every, frame.filter(pl.len().over(run) > 1))
    frame = frame.with_columns(same=pl.col("at").is_in(same) | pl.col("wins"))
    seen = pl.col("ingested_at").filter("same").min().over(run)
    frame = frame.with_columns(ingested_at=seen)
    kept = frame.filter("wins").sort("first")
    kept = kept.with_columns(sequence=pl.int_range(pl.len(), dtype=pl.Int64).over("namespace"))
    table = every.take(kept["at"].to_arrow())
    for name in ("sequence", "ingested_at"):
        table = table.set_column(table.column_names.index(name), TRAJECTORY.arrow.field(name), kept[name].to_arrow())
    return conform(table, TRAJECTORY), _merge_outcomes(frame)


def _frame(runs: pa.Table) -> pl.DataFrame:
    """Return what tells runs apart and in which row `at` each is."""
    frame = pl.from_arrow(runs.select(["namespace", "trajectory_id", "source_id", "sequence", "ingested_at"]))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_row_index("at")


def _equal_rows(every: pa.Table, repeated: pl.DataFrame) -> list[int]:
    """Return the rows of runs that came several times which say what the latest one says."""
    places = sorted({*repeated["at"], *repeated["latest"]})
    said = dict(zip(places, every.select(_CONTENT).take(pa.array(places, pa.int64())).to_pylist(), strict=True))
    return [at for at, latest in repeated.select("at", "latest").iter_rows() if said[at] == said[latest]]


def _merge_outcomes(frame: pl.DataFrame) -> pa.Table:
    kinds: dict[tuple[bool, bool], tuple[str, str | None]] = {
        (True, True): ("ok", None),
        (False, True): ("empty", "repeats the same run"),
        (False, False): ("partial", "a later run with the same id replaced it"),
    }
    rows: list[dict[str, Any]] = []
    for namespace, source, sequence, wins, same in frame.select(
        "namespace", "source", "sequence", "wins", "same"
    ).iter_rows():
        outcome, reason = kinds[wins, same]
        rows.append(
            {
                "namespace": namespace,
                "stage": "merge",
                "row_id": f"{source}:{sequence}",
                "outcome": outcome,
                "passes": 1,
                "reason": reason,
            }
        )
    return conform(pa.Table.from_pylist(rows, schema=OUTCOME.arrow), OUTCOME)
