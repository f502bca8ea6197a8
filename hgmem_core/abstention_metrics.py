"""How well probabilities that a question has an answer tell apart those that have one, and whether they are right."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.intervals import RESAMPLES, SEED

BINS = 10
"""Of equal width, in which predicted and observed shares are compared."""

_AT_A_TIME = 500
"""Resamples, so that they fit into memory."""

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]


def auroc(scores: Numbers, labels: Labels) -> float:
    """Return how often a question with an answer scores above one without, a tie counting half; 0.5 without a pair.

    >>> auroc(np.array([0.9, 0.4, 0.4]), np.array([True, True, False]))
    0.75
    """
    return float(_aurocs(scores, labels, np.ones((1, len(scores))))[0])


def bootstrap_aurocs(scores: Numbers, labels: Labels, strata: Sequence[str]) -> Numbers:
    """Return the AUROC of `RESAMPLES` resamples of the questions, each drawn within its stratum: float64 `[resamples]`.

    The same questions are drawn whatever the scores, so that those of two systems can be subtracted.
    """
    generator = np.random.default_rng(SEED)
    names = np.asarray(strata)
    found = []
    for first in range(0, RESAMPLES, _AT_A_TIME):
        counts = np.zeros((min(_AT_A_TIME, RESAMPLES - first), len(scores)))
        for name in np.unique(names):
            own = np.flatnonzero(names == name)
            counts[:, own] = generator.multinomial(len(own), np.full(len(own), 1 / len(own)), len(counts))
        found.append(_aurocs(scores, labels, counts))
    return np.concatenate(found)


def _aurocs(scores: Numbers, labels: Labels, counts: Numbers) -> Numbers:
    """Return the AUROC where each question counts so many times, float64 `[len(counts)]`."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf) > 0)
    ordered = counts[:, order]
    with_answer = np.add.reduceat(ordered * labels[order], starts, axis=1)
    without = np.add.reduceat(ordered * ~labels[order], starts, axis=1)
    above = np.cumsum(without, axis=1) - 0.5 * without
    pairs = with_answer.sum(axis=1) * without.sum(axis=1)
    wins = (with_answer * above).sum(axis=1)
    found: Numbers = np.divide(wins, pairs, out=np.full(len(counts), 0.5), where=pairs > 0)
    return found


def interval(resampled: Numbers) -> list[float]:
    """Return the 95 % percentile interval of resampled values, rounded."""
    low, high = np.percentile(resampled, [2.5, 97.5])
    return [round(float(low), 4), round(float(high), 4)]


def calibration(probabilities: Numbers, labels: Labels) -> Mapping[str, Any]:
    """Return how right probabilities are.

    Returns:
        `brier`, the mean squared error; `calibration_error`, the mean distance of predicted and observed shares in
        bins, weighted by their questions; `reliability`, for each bin that holds questions its bounds, how many, and
        both shares.
    """
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    rows = []
    error = 0.0
    for number in np.unique(bins):
        held = bins == number
        predicted, observed = float(probabilities[held].mean()), float(labels[held].mean())
        error += held.mean() * abs(predicted - observed)
        bounds = {"from": number / BINS, "until": (number + 1) / BINS}
        rows.append(bounds | {"n": int(held.sum()), "predicted": round(predicted, 4), "observed": round(observed, 4)})
    brier = float(((probabilities - labels) ** 2).mean())
    return {"brier": round(brier, 4), "calibration_error": round(float(error), 4), "reliability": rows}
