"""Boosted trees, trained: scikit-learn's histogram gradient boosting, taken over into the arrays of a `Forest`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from hgmem_core.boosted import Forest
from hgmem_core.lexical import Floats


@dataclass(frozen=True, slots=True)
class BoostingSettings:
    """How trees are grown.

    Attributes:
        trees: How many.
        rate: The share of each tree's step that is taken.
        leaves: Of a tree, at most 32.
        leaf_rows: The fewest training rows in a leaf.
        l2: Penalty on leaf values.
    """

    trees: int = 200
    rate: float = 0.05
    leaves: int = 15
    leaf_rows: int = 40
    l2: float = 5.0


def fit_forest(rows: Floats, labels: npt.NDArray[np.bool_], settings: BoostingSettings, seed: int) -> Forest:
    """Train trees to tell the rows whose label is true; a forest's scores are log odds.

    Args:
        rows: float32 `[n, features]`, finite.
        labels: bool `[n]`, of both kinds.
        settings: How trees are grown.
        seed: Of the order of features in equal splits.

    Raises:
        ValueError: The labels are all equal: there is nothing to learn.
    """
    if labels.all() or not labels.any():
        raise ValueError(f"all {len(labels)} training rows have the same label; training needs evidence and others")
    model = HistGradientBoostingClassifier(
        max_iter=settings.trees,
        learning_rate=settings.rate,
        max_leaf_nodes=settings.leaves,
        min_samples_leaf=settings.leaf_rows,
        l2_regularization=settings.l2,
        early_stopping=False,
        random_state=seed,
    )
    # Threads that wait for each other on a busy machine make it several times slower than one alone.
    with threadpool_limits(1, user_api="openmp"):
        model.fit(rows, labels)
    trees = [predictor.nodes for [predictor] in model._predictors]
    return _forest(trees, float(model._baseline_prediction.ravel()[0]), rows.shape[1])


def _forest(trees: list[npt.NDArray[Any]], baseline: float, n_features: int) -> Forest:
    leaves = max(2, *(int(nodes["is_leaf"].sum()) for nodes in trees))
    shape = len(trees), leaves - 1
    features = np.zeros(shape, np.int32)
    thresholds = np.full(shape, np.inf, np.float32)
    masks = np.zeros(shape, np.uint32)
    values = np.zeros((len(trees), leaves), np.float32)
    for number, nodes in enumerate(trees):
        order, tests = _laid_out(nodes)
        values[number, : len(order)] = nodes["value"][order]
        for place, (node, first, middle) in enumerate(tests):
            features[number, place] = nodes["feature_idx"][node]
            thresholds[number, place] = _below(nodes["num_threshold"][node])
            masks[number, place] = (1 << middle) - (1 << first)
    return Forest(features, thresholds, masks, values, baseline, n_features)


def _laid_out(nodes: npt.NDArray[Any]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return a tree's leaves from left to right, and each inner node with the run of leaves on its left."""
    leaves: list[int] = []
    tests: list[tuple[int, int, int]] = []

    def visit(node: int) -> None:
        if nodes["is_leaf"][node]:
            leaves.append(node)
            return
        first = len(leaves)
        visit(int(nodes["left"][node]))
        tests.append((node, first, len(leaves)))
        visit(int(nodes["right"][node]))

    visit(0)
    return leaves, tests


def _below(threshold: float) -> np.float32:
    """Return the largest float32 that is not above a float64: the same float32 numbers are greater."""
    rounded = np.float32(threshold)
    return rounded if float(rounded) <= threshold else np.nextafter(rounded, np.float32(-np.inf))
