"""Utility of subtasks, skills and runs (HyperSkill, equation 3): how runs went in which they took part.

γ = β · σ/ν + (1 − β) · (1 − (T̄ − T_min) / (T_max − T_min)), in [0, 1]: ν runs that a node took part in, σ of them
successes, T̄ their mean number of steps; T_min and T_max are taken over all runs of the namespace that count. If these
are equal, the second term is 1 − β. A node that took part in no run has the prior.

Who took part: what was shown for a run (FEEDBACK), or, where nobody recorded that, a run's own subtasks and skills. The
latter differs from the paper, where the run that a skill was learnt from does not count; few runs then say little, so
Laplace smoothing adds a success and a failure. Runs of unknown outcome count in neither way: not in ν, not in T̄.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import rows_of
from hgmem_core.lexical import Ints
from hgmem_core.schemas import STRING, UTILITY, conform

UTILITY_REVISION = 1
"""Raised when equal runs and memberships give other utilities."""

NodeKind = Literal["subtask", "skill", "trajectory"]
Numbers = npt.NDArray[np.float64]

SUCCESS, FAILURE, UNKNOWN = 1, 0, -1
PRIOR = 0.5


@dataclass(frozen=True, slots=True)
class UtilityRule:
    """How γ is made of counts.

    Attributes:
        success_share: β.
        prior: γ of a node that took part in no run.
        smoothing: Successes that are added, and as many failures.
        successes_only: Whether efficiency looks at successful runs only (the paper: at all), so that to fail fast is no
            merit; mean steps are theirs then, and a node without a success has no efficiency.
    """

    success_share: float = 0.7
    prior: float = PRIOR
    smoothing: float = 0.0
    successes_only: bool = False


RETRIEVED = UtilityRule()
"""Of what was shown, as published."""
MEMBERS = UtilityRule(smoothing=1.0)
"""Of a run's own nodes."""


@dataclass(frozen=True, slots=True)
class StepRange:
    """T_min and T_max: one number each, or one for each node, float64."""

    fewest: Numbers
    most: Numbers


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of some nodes.

    Attributes:
        shown: ν, int64 `[n]`.
        succeeded: σ, int64 `[n]`.
        mean_steps: T̄, float64 `[n]`, NaN where no run counts.
        utility: γ, float64 `[n]`.
    """

    shown: Ints
    succeeded: Ints
    mean_steps: Numbers
    utility: Numbers


def outcome_codes(outcomes: pa.ChunkedArray) -> npt.NDArray[np.int8]:
    """Return `SUCCESS`, `FAILURE` or `UNKNOWN` for each outcome, int8 `[n]`."""
    codes = pc.index_in(outcomes, value_set=pa.array(["failure", "success"], STRING))
    return np.asarray(pc.fill_null(codes, UNKNOWN).to_numpy(), np.int8)


def step_range(outcomes: npt.NDArray[np.int8], steps: Ints, rule: UtilityRule) -> StepRange:
    """Return the fewest and the most steps of the runs of one namespace that count."""
    counted = steps[_counted(outcomes, rule)]
    return StepRange(np.asarray(counted.min(initial=2**62), float), np.asarray(counted.max(initial=0), float))


def utilities(shown: Ints, succeeded: Ints, mean_steps: Numbers, steps: StepRange, rule: UtilityRule) -> Numbers:
    """Return γ of each node, float64 `[n]`; see the module's docstring."""
    runs = shown + 2 * rule.smoothing
    success = np.divide(succeeded + rule.smoothing, runs, out=np.zeros(len(shown)), where=runs > 0)
    width = steps.most - steps.fewest
    slow = np.divide(mean_steps - steps.fewest, width, out=np.zeros(len(shown)), where=np.asarray(width > 0))
    efficiency = np.where(np.isnan(mean_steps), 0.0, 1.0 - slow)
    utility = np.clip(rule.success_share * success + (1 - rule.success_share) * efficiency, 0.0, 1.0)
    found: Numbers = np.where(shown > 0, utility, rule.prior)
    return found


def tally(
    nodes: Ints, outcomes: npt.NDArray[np.int8], n_steps: Ints, count: int, steps: StepRange, rule: UtilityRule
) -> Tally:
    """Add up participations.

    Args:
        nodes: For each participation the row of its node, int64 `[m]`.
        outcomes: Of its run, int8 `[m]`.
        n_steps: Of its run, int64 `[m]`.
        count: How many nodes there are.
        steps: T_min and T_max.
        rule: Of γ.
    """
    shown = np.bincount(nodes[outcomes != UNKNOWN], minlength=count)
    succeeded = np.bincount(nodes[outcomes == SUCCESS], minlength=count)
    counted = _counted(outcomes, rule)
    total = np.bincount(nodes[counted], weights=n_steps[counted], minlength=count)
    runs = succeeded if rule.successes_only else shown
    mean_steps = np.divide(total, runs, out=np.full(count, np.nan), where=runs > 0)
    return Tally(shown, succeeded, mean_steps, utilities(shown, succeeded, mean_steps, steps, rule))


def _counted(outcomes: npt.NDArray[np.int8], rule: UtilityRule) -> npt.NDArray[np.bool_]:
    """Tell of which runs the steps count."""
    counted: npt.NDArray[np.bool_] = outcomes == SUCCESS if rule.successes_only else outcomes != UNKNOWN
    return counted


def utility_of_shown(nodes: pa.Table, feedback: pa.Table, rule: UtilityRule) -> pa.Table:
    """Return UTILITY of every node by what was shown.

    Args:
        nodes: See `nodes_of`.
        feedback: FEEDBACK; rows of nodes that are not among `nodes` count for T_min and T_max alone.
        rule: Of γ.
    """
    return _utility(nodes, feedback.select(["namespace", "node_id", "outcome", "n_steps"]), rule)


def utility_of_members(nodes: pa.Table, trajectories: pa.Table, incidences: pa.Table, rule: UtilityRule) -> pa.Table:
    """Return UTILITY of every node by the runs that it is part of, and of each run by itself.

    Args:
        nodes: See `nodes_of`.
        trajectories: TRAJECTORY.
        incidences: INCIDENCE of kind `trajectory`.
        rule: Of γ.
    """
    runs = pc.index_in(incidences.column("hyperedge_id"), trajectories.column("trajectory_id").combine_chunks())
    own = trajectories.select(["namespace", "trajectory_id", "outcome", "n_steps"])
    own = own.rename_columns(["namespace", "node_id", "outcome", "n_steps"])
    of_nodes = own.take(runs).set_column(1, own.schema.field("node_id"), incidences.column("node_id"))
    return _utility(nodes, pa.concat_tables([own, of_nodes]), rule)


def nodes_of(subtasks: pa.Table, skills: pa.Table, trajectories: pa.Table) -> pa.Table:
    """Return what has a utility, as columns `namespace`, `node_kind` and `node_id`: every row of the three tables."""
    parts = []
    for kind, table in (("subtask", subtasks), ("skill", skills), ("trajectory", trajectories)):
        kinds = pa.array([kind] * table.num_rows, STRING)
        columns = [table.column("namespace"), kinds, table.column(f"{kind}_id")]
        parts.append(pa.table(columns, ["namespace", "node_kind", "node_id"]))
    return pa.concat_tables(parts)


def _utility(nodes: pa.Table, took_part: pa.Table, rule: UtilityRule) -> pa.Table:
    """Return UTILITY from participations: columns namespace, node_id, outcome and n_steps."""
    outcomes, n_steps = outcome_codes(took_part.column("outcome")), _integers(took_part.column("n_steps"))
    namespaces = pc.unique(nodes.column("namespace"))
    codes = _integers(pc.fill_null(pc.index_in(took_part.column("namespace"), value_set=namespaces), -1))
    counted = _counted(outcomes, rule) & (codes >= 0)
    fewest, most = np.full(len(namespaces), np.inf), np.zeros(len(namespaces))
    np.minimum.at(fewest, codes[counted], n_steps[counted])
    np.maximum.at(most, codes[counted], n_steps[counted])
    own = _integers(pc.index_in(nodes.column("namespace"), value_set=namespaces))
    rows = rows_of(took_part.column("node_id"), nodes.column("node_id"))
    known = rows >= 0
    steps = StepRange(fewest[own], most[own])
    counts = tally(rows[known], outcomes[known], n_steps[known], nodes.num_rows, steps, rule)
    return conform(utility_rows(nodes, counts), UTILITY)


def utility_rows(nodes: pa.Table, counts: Tally) -> pa.Table:
    """Return nodes with what is known of each, in the columns of UTILITY."""
    mean_steps = pa.array(counts.mean_steps, mask=np.isnan(counts.mean_steps))
    columns: dict[str, Any] = {name: nodes.column(name) for name in ("namespace", "node_kind", "node_id")}
    columns |= {"shown": counts.shown, "succeeded": counts.succeeded, "mean_steps": mean_steps}
    return pa.table({**columns, "utility": counts.utility})


def _integers(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), np.int64)
