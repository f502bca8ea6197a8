import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from hgmem_core.boosted import Forest, ForestError, forest_of
from hgmem_core.boosting import BoostingSettings, fit_forest

FEW = BoostingSettings(trees=20, rate=0.2, leaves=8, leaf_rows=5)


def rows_and_labels(seed=0, rows=400):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 5)).astype(np.float32).round(1)
    return values, values[:, 0] * values[:, 1] + values[:, 2] > 0.3


def walked(forest, row):
    """Follow each tree as the masks say, one leaf ruled out at a time."""
    total = forest.baseline
    for tree in range(len(forest.values)):
        ruled_out = 0
        for node in range(forest.features.shape[1]):
            if row[forest.features[tree, node]] > forest.thresholds[tree, node]:
                ruled_out |= int(forest.masks[tree, node])
        total += forest.values[tree, next(leaf for leaf in range(32) if not ruled_out >> leaf & 1)]
    return total


@pytest.mark.parametrize("leaves", [2, 7, 32])
def test_scores_are_those_of_the_library_that_grew_the_trees(leaves):
    rows, labels = rows_and_labels()
    other, _ = rows_and_labels(1, 1_000)
    grown = HistGradientBoostingClassifier(
        max_iter=20, learning_rate=0.2, max_leaf_nodes=leaves, min_samples_leaf=5, l2_regularization=5.0,
        early_stopping=False, random_state=0,
    ).fit(rows, labels)  # fmt: skip
    forest = fit_forest(rows, labels, BoostingSettings(20, 0.2, leaves, 5), 0)
    assert len(forest.values) == 20
    assert forest.values.shape[1] <= leaves
    np.testing.assert_allclose(forest.scores(other), grown.decision_function(other), atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-4, 4, width=32), min_size=5, max_size=5))
def test_each_row_falls_into_the_first_leaf_that_is_left(row):
    forest = fit_forest(*rows_and_labels(), FEW, 0)
    values = np.array([row], np.float32)
    assert forest.scores(values)[0] == pytest.approx(walked(forest, values[0]), abs=1e-5)


def test_many_rows_score_as_each_alone_and_none_score_as_nothing():
    forest = fit_forest(*rows_and_labels(), FEW, 0)
    rows, _ = rows_and_labels(2, 700)
    np.testing.assert_array_equal(forest.scores(rows), [forest.scores(row[None])[0] for row in rows])
    assert forest.scores(rows[:0]).shape == (0,)


def test_thresholds_between_two_floats_part_them():
    below, above = np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))
    rows = np.array([[below], [above]] * 20, np.float32)
    scores = fit_forest(rows, rows[:, 0] > below, BoostingSettings(5, 0.5, 2, 5), 0).scores(rows[:2])
    assert scores[0] < 0 < scores[1]


def test_arrays_make_the_same_forest_again():
    forest = fit_forest(*rows_and_labels(), FEW, 0)
    rows, _ = rows_and_labels(3)
    again = forest_of(forest.arrays())
    np.testing.assert_array_equal(again.scores(rows), forest.scores(rows))
    assert all(array.dtype != object for array in forest.arrays().values())


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("values", None, "'values' is missing"),
        ("masks", lambda array: array.astype(np.int64), "masks is int64"),
        ("thresholds", lambda array: array[:, :-1], "has thresholds, masks and values of"),
        ("features", lambda array: array + 5, "tests a feature outside of the 5"),
        ("values", lambda array: array * np.float32(np.nan), "is no number"),
        ("thresholds", lambda array: array * np.float32(np.nan), "is no number"),
    ],
)
def test_arrays_that_are_no_forest_are_refused(name, change, complaint):
    arrays = fit_forest(*rows_and_labels(), FEW, 0).arrays()
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    with pytest.raises(ForestError, match=complaint):
        forest_of(arrays)


def test_rows_of_another_width_are_refused():
    forest = fit_forest(*rows_and_labels(), FEW, 0)
    with pytest.raises(ForestError, match=r"shape \(3, 4\) do not fit a forest of 5 features"):
        forest.scores(np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("label", [True, False])
def test_labels_of_one_kind_teach_nothing(label):
    rows, _ = rows_and_labels(rows=50)
    with pytest.raises(ValueError, match="all 50 training rows have the same label"):
        fit_forest(rows, np.full(50, label), FEW, 0)


def test_a_forest_of_one_leaf_gives_every_row_the_same():
    forest = Forest(
        np.zeros((1, 1), np.int32), np.full((1, 1), np.inf, np.float32), np.zeros((1, 1), np.uint32),
        np.array([[2, 9]], np.float32), 0.5, 3,
    )  # fmt: skip
    assert forest.scores(np.zeros((2, 3), np.float32)).tolist() == [2.5, 2.5]
