import numpy as np
import pytest

from hgmem_core.intervals import bootstrap_means, ci95

VALUES = np.random.default_rng(3).uniform(0, 100, 60)
STRATA = ["a"] * 20 + ["b"] * 40


def test_resamples_are_drawn_within_their_stratum():
    # Values that are constant within each conversation cannot vary, whatever is drawn.
    constant = np.where(np.array(STRATA) == "a", 10.0, 70.0)
    np.testing.assert_allclose(bootstrap_means(constant, STRATA), 50.0)


def test_the_interval_is_that_of_an_obvious_bootstrap():
    generator = np.random.default_rng(9)
    means = [np.mean([*generator.choice(VALUES[:20], 20), *generator.choice(VALUES[20:], 40)]) for _ in range(10_000)]
    assert ci95(VALUES, STRATA) == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.6)


def test_equal_calls_give_equal_intervals_around_the_mean():
    low, high = ci95(VALUES, STRATA)
    assert (low, high) == ci95(VALUES, STRATA)
    assert low < VALUES.mean() < high
