from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.fitting import batches


@given(st.lists(st.integers(1, 9)), st.integers(1, 5), st.integers(1, 12), st.lists(st.integers(1, 9), max_size=3))
def test_runs_hold_everything_once_fit_and_are_as_long_as_can_be(sizes, most, room, later):
    def fits(some):
        return sum(some) <= room

    runs = batches(sizes, most, fits)
    assert [item for run in runs for item in run] == sizes
    assert all(len(run) == 1 or (len(run) <= most and fits(run)) for run in runs)
    for run, following in pairwise(runs):
        assert len(run) == most or not fits([*run, following[0]])
    kept = runs[:-1]
    assert batches(sizes + later, most, fits)[: len(kept)] == kept
