import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.segmentation_metrics import even_boundaries, pk, score_segmentation, window_diff, window_size


def segments_of(boundaries):
    """The number of the segment that each turn is in."""
    numbers = [0]
    for boundary in boundaries:
        numbers.append(numbers[-1] + int(boundary))
    return numbers


def reference(gold, found, k):
    """Pk and WindowDiff, written out over pairs of turns."""
    own, other = segments_of(gold), segments_of(found)
    probes = range(len(own) - k)
    apart = [(own[at] != own[at + k]) != (other[at] != other[at + k]) for at in probes]
    counts = [(own[at + k] - own[at]) != (other[at + k] - other[at]) for at in probes]
    return 100 * sum(apart) / len(probes), 100 * sum(counts) / len(probes)


@st.composite
def pairs(draw):
    size = draw(st.integers(1, 30))
    gaps = st.lists(st.booleans(), min_size=size, max_size=size)
    return np.array(draw(gaps)), np.array(draw(gaps))


@given(pairs())
def test_windowed_metrics_equal_their_definition(pair):
    gold, found = pair
    k = window_size(gold)
    assert 1 <= k <= len(gold)
    assert (pk(gold, found, k), window_diff(gold, found, k)) == pytest.approx(reference(gold, found, k))
    assert pk(gold, found, k) <= window_diff(gold, found, k)
    assert pk(gold, gold, k) == window_diff(gold, gold, k) == 0


@given(st.lists(pairs(), min_size=1, max_size=5))
def test_scores_average_conversations_and_pool_gaps(conversations):
    gold, found = zip(*conversations, strict=True)
    scores = score_segmentation(gold, found)
    each = [reference(own, other, window_size(own)) for own, other in conversations]
    assert scores["pk"] == pytest.approx(np.mean([own for own, _ in each]))
    assert scores["window_diff"] == pytest.approx(np.mean([other for _, other in each]))
    hits = sum(own and other for pair in conversations for own, other in zip(*pair, strict=True))
    said, true = (sum(map(sum, side)) for side in (found, gold))
    assert scores["precision"] == pytest.approx(100 * hits / said if said else 0)
    assert scores["recall"] == pytest.approx(100 * hits / true if true else 0)
    harmonic = scores["precision"] + scores["recall"]
    assert scores["f1"] == pytest.approx(2 * scores["precision"] * scores["recall"] / harmonic if harmonic else 0)


def test_a_near_miss_costs_less_than_a_miss():
    gold, near, far = (np.arange(11) == place for place in (5, 6, 9))
    k = window_size(gold)
    assert k == 3
    assert 0 < window_diff(gold, near, k) < window_diff(gold, far, k)


def test_the_window_is_half_the_mean_segment():
    assert window_size(np.zeros(15, bool)) == 8
    assert window_size(np.ones(15, bool)) == 1
    assert window_size(np.arange(15) % 4 == 3) == 2


def test_conversations_without_a_gap_do_not_count():
    nothing = np.zeros(0, bool)
    gold = np.array([False, True, False])
    assert score_segmentation([gold, nothing], [~gold, nothing]) == score_segmentation([gold], [~gold])
    assert set(score_segmentation([nothing], [nothing]).values()) == {0.0}


@given(st.integers(1, 40), st.data())
def test_even_boundaries_make_segments_of_nearly_equal_length(gaps, data):
    count = data.draw(st.integers(0, gaps))
    boundaries = even_boundaries(gaps, count)
    assert boundaries.sum() == count
    lengths = np.bincount(segments_of(boundaries))
    assert lengths.max() - lengths.min() <= 1
