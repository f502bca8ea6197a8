"""How sure a mean or a difference of means is: percentile bootstrap over questions, stratified by conversation."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
SEED = 0


def bootstrap_means(values: npt.NDArray[np.float64], strata: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the means of `RESAMPLES` resamples of the questions, each drawn within its stratum: float64 `[resamples]`.

    Args:
        values: One number a question, `[n]`, n at least 1.
        strata: The conversation of each question.
    """
    generator = np.random.default_rng(SEED)
    names = np.asarray(strata)
    totals = np.zeros(RESAMPLES)
    for name in np.unique(names):
        own = values[names == name]
        counts = generator.multinomial(len(own), np.full(len(own), 1 / len(own)), RESAMPLES)
        totals += counts @ own
    return totals / len(values)


def ci95(values: npt.NDArray[np.float64], strata: Sequence[str]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of `values`; of a paired difference, give the differences.

    >>> ci95(np.array([1.0, 1.0, 1.0]), ["a", "a", "b"])
    (1.0, 1.0)
    """
    low, high = np.percentile(bootstrap_means(values, strata), [2.5, 97.5])
    return float(low), float(high)
