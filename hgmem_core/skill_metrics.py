"""How good is what was retrieved for tasks of which it is known how agents went about them.

A run is looked at as the set of its actions' templates, a text as the set of those that it has between backticks
(`hgmem_core.action_templates`). Three metrics, in percent:

    family_precision@5   of the first five skills, the share whose runs are mostly of the task's family: over half
    coverage@500t        of a run's templates, the share that a text of 500 tokens has, each weighing its lift
    harmful_rate         of the first five skills, as far as they say what to do, the share that has a template which
                         runs on record have only where they failed

Where nothing was found, all three are 0. Several runs of a task are its near-duplicates, so values are averaged over
the runs of each task first, and what is resampled for intervals are tasks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.action_templates import run_templates, templates_within
from hgmem_core.intervals import ci95
from hgmem_core.run_patterns import PatternCounts, RunActions

FAMILY_PRECISION, COVERAGE, HARMFUL_RATE = "family_precision@5", "coverage@500t", "harmful_rate"
SKILL_METRICS = (FAMILY_PRECISION, COVERAGE, HARMFUL_RATE)
FIRST = 5
"""Skills that `family_precision@5` and `harmful_rate` look at."""
TOKENS = 500
"""Of the text that `coverage@500t` looks at."""

Numbers = npt.NDArray[np.float64]


def split_by_task(ordered: pa.Table, share: float) -> tuple[pa.Table, pa.Table]:
    """Return what is learned from and what is held out, all runs of a task on one side.

    Learned from are the tasks that came first, at least one of them; the last one is always held out.

    Args:
        ordered: TRAJECTORY of one namespace, see `hgmem_core.skills.in_time_order`.
        share: Of the tasks that are learned from.
    """
    ids = ordered.column("task_id").to_pylist()
    tasks = list(dict.fromkeys(ids))
    learned = set(tasks[: min(max(int(share * len(tasks)), 1), len(tasks) - 1)])
    is_learned = np.array([task in learned for task in ids], bool)
    return ordered.filter(pa.array(is_learned)), ordered.filter(pa.array(~is_learned))


def templates_of_runs(trajectories: pa.Table) -> list[frozenset[str]]:
    """Return the templates of each run's actions; a run that only talked has none."""
    return [
        frozenset(template for template in run_templates(step["action"] for step in steps) if template is not None)
        for steps in trajectories.column("steps").to_pylist()
    ]


class TemplateLifts:
    """How much more often runs that succeeded have a template than runs that failed."""

    def __init__(self, runs: Sequence[Set[str]], outcomes: Sequence[str]) -> None:
        """Count runs, given by their templates and how they ended."""
        self._counts = PatternCounts()
        self._seen: set[str] = set()
        for templates, outcome in zip(runs, outcomes, strict=True):
            self._seen |= templates
            patterns = frozenset((template,) for template in templates)
            self._counts.add(RunActions(tuple(sorted(templates)), patterns), outcome)

    def of(self, template: str) -> float:
        """Return the lift as `PatternCounts.lift` smooths it; 1 for a template that no run has."""
        return self._counts.lift((template,)) if template in self._seen else 1.0


def coverage(run: Set[str], text: str, lifts: TemplateLifts) -> float:
    """Return how much of a run's templates a text has, in percent; the run has at least one."""
    weights = {template: lifts.of(template) for template in sorted(run)}
    found = templates_within(text)
    return 100 * sum(weight for template, weight in weights.items() if template in found) / sum(weights.values())


def prevailing_family(families: Iterable[str | None]) -> str | None:
    """Return the family of more than half of some runs, or None; a run of unknown family counts for none.

    >>> prevailing_family(["heat", "heat", "cool"]), prevailing_family(["heat", "cool"])
    ('heat', None)
    """
    every = list(families)
    counts = Counter(family for family in every if family is not None)
    family, count = next(iter(counts.most_common(1)), (None, 0))
    return family if 2 * count > len(every) else None


def family_precision(found: Sequence[str | None], family: str) -> float:
    """Return the share of the first five skills, given by their prevailing family, that are of a task's, in percent.

    >>> family_precision(["heat", None, "cool", "heat"], "heat")
    50.0
    """
    first = found[:FIRST]
    return 100 * sum(own == family for own in first) / len(first) if first else 0.0


def only_in_failures(runs: Sequence[Set[str]], outcomes: Sequence[str]) -> frozenset[str]:
    """Return the templates of runs that failed which no run that succeeded has."""
    of: dict[str, set[str]] = {"success": set(), "failure": set(), "unknown": set()}
    for templates, outcome in zip(runs, outcomes, strict=True):
        of[outcome] |= templates
    return frozenset(of["failure"] - of["success"])


def harmful_rate(texts: Iterable[str], harmful: Set[str]) -> float:
    """Return the share of texts that have a harmful template, in percent."""
    flags = [bool(templates_within(text) & harmful) for text in texts]
    return 100 * sum(flags) / len(flags) if flags else 0.0


@dataclass(frozen=True, slots=True)
class SkillScores:
    """Every metric of every held-out run under every system.

    Attributes:
        tasks: The task of each run.
        values: For each system its values by metric, in percent, float64 `[runs]`, NaN where a metric does not apply.
    """

    tasks: Sequence[str]
    values: Mapping[str, Mapping[str, Numbers]]

    def by_task(self, system: str, metric: str) -> Numbers:
        """Return the mean over the runs of each task, float64 `[tasks]`; tasks to which it does not apply left out."""
        values = self.values[system][metric]
        applies = ~np.isnan(values)
        names = np.asarray(self.tasks)[applies]
        _, of = np.unique(names, return_inverse=True)
        means: Numbers = np.bincount(of, weights=values[applies]) / np.bincount(of) if len(of) else np.zeros(0)
        return means

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each system: `system`, each metric, its `tasks` and its `ci95`; None where none applies."""
        rows: list[dict[str, object]] = []
        for system, values in self.values.items():
            means = {metric: self.by_task(system, metric) for metric in values}
            rows.append(
                {
                    "system": system,
                    **{metric: round(float(own.mean()), 2) if len(own) else None for metric, own in means.items()},
                    "tasks": {metric: len(own) for metric, own in means.items()},
                    "ci95": {metric: interval(own) for metric, own in means.items() if len(own)},
                }
            )
        return rows

    def differences(self, system: str) -> list[dict[str, object]]:
        """Return by how much each other system differs from one, task by task: negative where it has less."""
        rows: list[dict[str, object]] = []
        for other, values in self.values.items():
            for metric in values:
                difference = self.by_task(other, metric) - self.by_task(system, metric)
                if other != system and len(difference):
                    rows.append(
                        {
                            "system": other,
                            "baseline": system,
                            "metric": metric,
                            "difference": round(float(difference.mean()), 2),
                            "ci95": interval(difference),
                        }
                    )
        return rows


def interval(values: Numbers) -> list[float]:
    """Return the 95 % interval of the mean of values, one a task."""
    return [round(end, 2) for end in ci95(values, [""] * len(values))]
