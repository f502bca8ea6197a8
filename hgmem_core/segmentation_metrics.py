"""Segmentation metrics, in percent, over the gaps between neighbouring turns: True where a new segment begins.

Pk is Beeferman et al. (1999), WindowDiff Pevzner and Hearst (2002). Both slide a window of k turns' distance over a
conversation; lower is better.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Boundaries = npt.NDArray[np.bool_]

METRICS = ("pk", "window_diff", "precision", "recall", "f1")


def window_size(gold: Boundaries) -> int:
    """Return k: half the mean length of the gold segments in turns, rounded, at least 1.

    >>> window_size(np.array([False, False, False, True, False, False, False]))
    2
    """
    return max(1, int((len(gold) + 1) / (2 * (int(gold.sum()) + 1)) + 0.5))


def pk(gold: Boundaries, found: Boundaries, k: int) -> float:
    """Return how often `gold` and `found` differ on whether two turns `k` apart are in one segment."""
    return _disagreement(_boundaries_within(gold, k) > 0, _boundaries_within(found, k) > 0)


def window_diff(gold: Boundaries, found: Boundaries, k: int) -> float:
    """Return how often `gold` and `found` differ in the number of boundaries between two turns `k` apart."""
    return _disagreement(_boundaries_within(gold, k), _boundaries_within(found, k))


def score_segmentation(gold: Sequence[Boundaries], found: Sequence[Boundaries]) -> dict[str, float]:
    """Return `METRICS`: Pk and WindowDiff averaged over conversations, each with its own k; the rest over all gaps.

    A conversation of one turn has no gap and does not count.
    """
    pairs = [(own, other) for own, other in zip(gold, found, strict=True) if len(own)]
    if not pairs:
        return dict.fromkeys(METRICS, 0.0)
    windowed = [[metric(own, other, window_size(own)) for metric in (pk, window_diff)] for own, other in pairs]
    hits = sum(int((own & other).sum()) for own, other in pairs)
    said = sum(int(other.sum()) for _, other in pairs)
    true = sum(int(own.sum()) for own, _ in pairs)
    means = np.mean(windowed, axis=0).tolist()
    shares = (_percent(hits, said), _percent(hits, true), _percent(2 * hits, said + true))
    return dict(zip(METRICS, [*means, *shares], strict=True))


def even_boundaries(gaps: int, count: int) -> Boundaries:
    """Return `count` boundaries that cut a conversation into segments of nearly equal length.

    >>> even_boundaries(5, 2).tolist()
    [False, True, False, True, False]
    """
    places = [(gaps + 1) * number // (count + 1) - 1 for number in range(1, count + 1)]
    boundaries = np.zeros(gaps, bool)
    boundaries[places] = True
    return boundaries


def _boundaries_within(boundaries: Boundaries, k: int) -> npt.NDArray[np.int64]:
    total = np.concatenate([[0], np.cumsum(boundaries)])
    return np.asarray(total[k:] - total[:-k], np.int64)


def _disagreement(gold: npt.NDArray[np.generic], found: npt.NDArray[np.generic]) -> float:
    return 100.0 * float(np.mean(gold != found))


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
