from itertools import product

import numpy as np
import pytest

from hgmem_core.abstention_metrics import auroc, bootstrap_aurocs, calibration, interval


def pairs(scores, labels):
    """The AUROC by its definition."""
    wins = [float(a > b) + 0.5 * (a == b) for a, b in product(scores[labels], scores[~labels])]
    return sum(wins) / len(wins)


@pytest.mark.parametrize("values", [1, 3, 1_000])
def test_auroc_is_the_share_of_pairs_in_order(values):
    generator = np.random.default_rng(0)
    scores = generator.integers(0, values, 60) / 10
    labels = generator.random(60) < 0.7
    assert auroc(scores, labels) == pytest.approx(pairs(scores, labels))
    assert auroc(-scores, labels) == pytest.approx(1 - pairs(scores, labels))


def test_without_a_pair_nothing_is_told_apart():
    assert auroc(np.array([0.1, 0.9]), np.array([True, True])) == 0.5


def test_resamples_are_drawn_within_conversations_and_alike_for_all_systems():
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4 > 0
    scores = labels + generator.normal(size=80)
    names = [f"c{place // 40}" for place in range(80)]
    resampled = bootstrap_aurocs(scores, labels, names)
    assert len(resampled) == 10_000
    low, high = interval(resampled)
    assert low < auroc(scores, labels) < high
    assert 0.1 < high - low < 0.4
    assert np.array_equal(bootstrap_aurocs(3 * scores + 1, labels, names), resampled)
    # With a conversation of its own for each question every resample is the same.
    alone = bootstrap_aurocs(scores, labels, [str(place) for place in range(80)])
    assert np.ptp(alone) == 0


def test_calibration_compares_what_is_said_with_what_is_so():
    predicted = np.array([0.25, 0.25, 0.25, 0.25, 1.0, 1.0])
    labels = np.array([True, False, False, False, True, False])
    found = calibration(predicted, labels)
    assert found["brier"] == pytest.approx((0.75**2 + 3 * 0.25**2 + 1) / 6, abs=1e-4)
    assert found["calibration_error"] == pytest.approx(0.5 * 2 / 6, abs=1e-4)
    assert found["reliability"] == [
        {"from": 0.2, "until": 0.3, "n": 4, "predicted": 0.25, "observed": 0.25},
        {"from": 0.9, "until": 1.0, "n": 2, "predicted": 1.0, "observed": 0.5},
    ]
