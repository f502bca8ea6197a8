"""From a RUN and its QREL to metrics by question, and from those to tables by recipe and group."""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.intervals import ci95
from hgmem_core.metrics import METRICS

WITH_INTERVAL = ("recall@10", "ndcg@10")
"""The metrics that have an interval in a result."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Every metric of every question under every recipe.

    Attributes:
        metrics: Their names, in the order of the last axis.
        conversations: The namespace of each question.
        groups: The group of each question.
        values: For each recipe, in percent, float64 `[questions, metrics]`.
    """

    metrics: tuple[str, ...]
    conversations: list[str]
    groups: list[str]
    values: Mapping[str, npt.NDArray[np.float64]]

    def of(self, recipe: str, metric: str) -> npt.NDArray[np.float64]:
        """Return one metric of a recipe by question, `[questions]`."""
        return self.values[recipe][:, self.metrics.index(metric)]

    def members(self, group: Set[str]) -> npt.NDArray[np.bool_]:
        """Tell which questions belong to a group, given as the values of QUERY.group that it holds."""
        return np.array([own in group for own in self.groups], bool)

    def with_metric(self, name: str, values: Mapping[str, Sequence[float]]) -> "Scores":
        """Return the scores with one more metric, given for each recipe by question."""
        grown = {recipe: np.column_stack([own, values[recipe]]) for recipe, own in self.values.items()}
        return Scores((*self.metrics, name), self.conversations, self.groups, grown)


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Return the mean over several runs of the same questions and recipes, question by question."""
    first = scores[0]
    values = {recipe: np.mean([one.values[recipe] for one in scores], axis=0) for recipe in first.values}
    return Scores(first.metrics, first.conversations, first.groups, values)


def question_scores(
    run: pa.Table, queries: pa.Table, qrels: pa.Table, recipes: Sequence[str], metrics: Sequence[str]
) -> Scores:
    """Score every question under every recipe.

    A question for which a recipe returned nothing counts with 0, not as absent.

    Args:
        run: RUN.
        queries: QUERY.
        qrels: QREL; every query has at least one row.
        recipes: The recipes that were asked, in their order: one may have found nothing at all.
        metrics: Names of `METRICS`.
    """
    relevant: defaultdict[str, set[str]] = defaultdict(set)
    for query_id, turn in zip(qrels.column("query_id").to_pylist(), qrels.column("turn_id").to_pylist(), strict=True):
        relevant[query_id].add(turn)
    ranked: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    columns = (run.column(name).to_pylist() for name in ("query_id", "id", "recipe"))
    for query_id, item, recipe in zip(*columns, strict=True):
        ranked[recipe, query_id].append(item)
    asked = queries.column("query_id").to_pylist()
    values = {
        recipe: np.array(
            [[METRICS[name](ranked[recipe, one], relevant[one]) for name in metrics] for one in asked], float
        ).reshape(len(asked), len(metrics))
        for recipe in dict.fromkeys(recipes)
    }
    return Scores(tuple(metrics), queries.column("namespace").to_pylist(), queries.column("group").to_pylist(), values)


def result_rows(scores: Scores, groups: Mapping[str, Set[str]]) -> list[dict[str, Any]]:
    """Return one row for each recipe and group: `recipe`, `group`, `n`, the metrics' means, and `ci95` of some.

    Groups without a question are left out.
    """
    rows = []
    for recipe, values in scores.values.items():
        for group, held in groups.items():
            members = scores.members(held)
            if not members.any():
                continue
            strata = [name for name, is_in in zip(scores.conversations, members, strict=True) if is_in]
            means = values[members].mean(axis=0).round(4).tolist()
            intervals = {name: _rounded(ci95(scores.of(recipe, name)[members], strata)) for name in WITH_INTERVAL}
            row = {"recipe": recipe, "group": group, "n": int(members.sum())}
            rows.append({**row, **dict(zip(scores.metrics, means, strict=True)), "ci95": intervals})
    return rows


def paired_differences(
    scores: Scores, baseline: str, groups: Mapping[str, Set[str]], recipes: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return how recipes differ from a baseline on the same questions, with intervals and by conversation.

    Args:
        scores: Of all of them.
        baseline: One of them.
        groups: Of questions.
        recipes: Which are compared; None for all others.
    """
    rows = []
    for recipe in scores.values if recipes is None else recipes:
        for group, held in groups.items():
            members = scores.members(held)
            if recipe == baseline or not members.any():
                continue
            strata = np.array(scores.conversations)[members]
            for metric in WITH_INTERVAL:
                differences = (scores.of(recipe, metric) - scores.of(baseline, metric))[members]
                rows.append(
                    {
                        "recipe": recipe,
                        "baseline": baseline,
                        "group": group,
                        "metric": metric,
                        "difference": round(float(differences.mean()), 4),
                        "ci95": _rounded(ci95(differences, strata.tolist())),
                        "by_conversation": {
                            str(name): round(float(differences[strata == name].mean()), 2) for name in np.unique(strata)
                        },
                    }
                )
    return rows


def _rounded(interval: tuple[float, float]) -> list[float]:
    return [round(end, 2) for end in interval]
