"""Boosted regression trees as plain arrays: what a trained ranker is at query time.

Each node carries a mask of the leaves on its left, which are ruled out where its test `feature > threshold` holds, and
a row's leaf is the first that no test rules out (QuickScorer; Lucchese et al., SIGIR 2015). All rows and trees are
tested at once, node by node; no row walks down a tree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats

MOST_LEAVES = 32
"""Of one tree: a mask has 32 bits."""

_ROWS = 256
"""Rows tested together."""


class ForestError(ValueError):
    """Arrays are no forest, or rows do not fit it."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees whose leaf values are added up.

    Attributes:
        features: The feature that each node tests, int32 `[trees, nodes]`; unused nodes test feature 0.
        thresholds: A test holds above it, float32 `[trees, nodes]`; infinite for unused nodes.
        masks: The leaves that a test rules out, uint32 `[trees, nodes]`, leaves counting from the lowest bit.
        values: float32 `[trees, leaves]`, `leaves` at most 32.
        baseline: What is added to every row.
        n_features: Features of a row.
    """

    features: npt.NDArray[np.int32]
    thresholds: Floats
    masks: npt.NDArray[np.uint32]
    values: Floats
    baseline: float
    n_features: int

    def scores(self, rows: Floats) -> Floats:
        """Return the sum of each row's leaves, float32 `[len(rows)]`; a NaN passes no test.

        Args:
            rows: float32 `[n, n_features]`.

        Raises:
            ForestError: The rows have another number of features.
        """
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ForestError(f"rows of shape {rows.shape} do not fit a forest of {self.n_features} features")
        narrow = np.uint16 if self.values.shape[1] <= 16 else np.uint32  # half the memory to pass over
        # Node by node: all trees' first nodes, all second ones; so the tests of a round stay within a core's cache.
        thresholds_of, masks_of = self.thresholds.T[:, :, None], self.masks.T.astype(narrow)[:, :, None]
        tests = list(zip(self.features.T, thresholds_of, masks_of, strict=True))
        leaves = np.arange(len(self.values))[:, None] * self.values.shape[1]
        values = self.values.reshape(-1)
        total = np.full(len(rows), self.baseline)
        for start in range(0, len(rows), _ROWS):
            columns = np.ascontiguousarray(rows[start : start + _ROWS].T)
            ruled_out = np.zeros((len(self.values), columns.shape[1]), narrow)
            for tested, thresholds, masks in tests:
                ruled_out |= (columns[tested] > thresholds) * masks
            open_ones = ~ruled_out
            first = open_ones & (~open_ones + narrow(1))
            leaf = np.frexp(first.astype(np.float32))[1] - 1  # the number of its only bit
            total[start : start + _ROWS] += values[leaves + leaf].sum(axis=0, dtype=np.float64)
        return total.astype(np.float32)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the forest as named arrays, from which `forest_of` makes it again."""
        return {
            "features": self.features,
            "thresholds": self.thresholds,
            "masks": self.masks,
            "values": self.values,
            "baseline": np.array([self.baseline], np.float64),
            "n_features": np.array([self.n_features], np.int64),
        }


def forest_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Forest:
    """Make a forest of named arrays.

    Raises:
        ForestError: An array is missing, or of another type or shape than a forest's.
    """
    try:
        forest = Forest(
            arrays["features"],
            arrays["thresholds"],
            arrays["masks"],
            arrays["values"],
            float(arrays["baseline"][0]),
            int(arrays["n_features"][0]),
        )
    except (KeyError, IndexError) as error:
        raise ForestError(f"the arrays {', '.join(sorted(arrays))} are no forest: {error} is missing") from error
    types = {"features": np.int32, "thresholds": np.float32, "masks": np.uint32, "values": np.float32}
    for name, kind in types.items():
        if arrays[name].dtype != kind or arrays[name].ndim != 2:
            raise ForestError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}; expected {kind.__name__}")
    trees, nodes = forest.features.shape
    shapes = forest.thresholds.shape, forest.masks.shape, forest.values.shape
    if shapes != ((trees, nodes), (trees, nodes), (trees, nodes + 1)) or nodes >= MOST_LEAVES:
        raise ForestError(f"a forest of {trees} trees of {nodes} nodes has thresholds, masks and values of {shapes}")
    if not np.isfinite(forest.values).all() or np.isnan(forest.thresholds).any() or not np.isfinite(forest.baseline):
        raise ForestError("a leaf, a threshold or the baseline is no number")
    if not ((forest.features >= 0) & (forest.features < forest.n_features)).all():
        raise ForestError(f"a node tests a feature outside of the {forest.n_features}")
    return forest
