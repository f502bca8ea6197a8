from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.lineage import Lineage, join_digests, select, spans, splice

NAMES = st.sets(st.sampled_from(["a", "a/b", "b", "é", "z", "中"]), max_size=6)


def table(names, value):
    rows = [{"namespace": name, "row": row, "value": value} for name in sorted(names) for row in range(1 + len(name))]
    return pa.Table.from_pylist(
        rows, pa.schema([("namespace", pa.large_string()), ("row", pa.int64()), ("value", pa.string())])
    )


@given(NAMES, NAMES, NAMES)
def test_a_splice_is_the_kept_rows_and_the_new_ones_in_order_of_namespaces(old, new, kept):
    kept -= new
    joined = splice(table(old, "old"), table(new, "new"), kept)
    expected = sorted(
        table(old & kept, "old").to_pylist() + table(new, "new").to_pylist(), key=lambda row: row["namespace"]
    )
    assert joined.to_pylist() == expected
    assert joined.schema == table(old, "old").schema


@given(NAMES, NAMES)
def test_neighbouring_namespaces_of_one_table_are_one_span(old, new):
    found = spans(table(old, "old"), table(new, "new"), old - new)
    assert all(one[0] != other[0] or one[2] != other[1] for one, other in pairwise(found))


def test_a_splice_with_nothing_kept_is_the_new_table():
    assert splice(table("ab", "old"), table("", "new"), frozenset()).num_rows == 0
    assert splice(table("ab", "old"), table("c", "new"), frozenset()).equals(table("c", "new"))


@given(NAMES, NAMES)
def test_select_gives_the_rows_of_the_named(names, wanted):
    assert select(table(names, "x"), wanted).equals(table(names & wanted, "x"))


def test_joined_digests_tell_which_input_lacks_a_namespace():
    first, second = join_digests([{"a": "1"}, {}])["a"], join_digests([{}, {"a": "1"}])["a"]
    assert first != second
    assert join_digests([{"a": "1"}, {"a": "2"}])["a"] != join_digests([{"a": "2"}, {"a": "1"}])["a"]
    assert join_digests([]) == {}


def test_a_later_input_without_a_namespace_leaves_its_digest():
    assert join_digests([{"a": "1"}, {"b": "2"}])["a"] == join_digests([{"a": "1"}])["a"]
    assert join_digests([{"b": "2"}, {"a": "1"}])["a"] != join_digests([{"a": "1"}])["a"]


def test_a_lineage_comes_back_from_its_table():
    lineage = Lineage({"b": "1", "a": "2"}, {"a": "x", "b": "y"})
    again = Lineage.of(lineage.table())
    assert (again, again.digest) == (lineage, lineage.digest)
    assert lineage.table().column("namespace").to_pylist() == ["a", "b"]
