import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.ids import bucket_of, check_namespace, content_id, table_digest
from hgmem_core.schemas import QUERY, TURN


@given(st.lists(st.one_of(st.none(), st.integers(), st.text()), max_size=4))
def test_ids_depend_on_where_parts_begin(parts):
    assert content_id(*parts) == content_id(*parts)
    assert content_id(*parts) != content_id(*parts, None)
    if len(parts) > 1 and isinstance(parts[0], str) and isinstance(parts[1], str):
        assert content_id(*parts) != content_id(parts[0] + parts[1], *parts[2:])


def test_known_ids_do_not_move():
    # Stores on disk hold these; a change here means that every store must be rebuilt.
    assert content_id("turn", "acme/alice", "s1", "m1") == "f8b9f2c9f0af65663e8778c7"
    assert bucket_of("acme/alice", 8) == 3


@given(st.text(min_size=1), st.integers(1, 1_000))
def test_buckets_are_in_range(namespace, buckets):
    assert 0 <= bucket_of(namespace, buckets) < buckets


@pytest.mark.parametrize("namespace", ["a", "acme/alice", "acme/Zoë/2024", "locomo/conv-26", "a b/c"])
def test_namespaces(namespace):
    assert check_namespace(namespace) == namespace


@pytest.mark.parametrize(
    "namespace",
    ["", " ", None, 7, "/a", "a/", "a//b", "../x", "a/../b", "a/.", "a\\b", "a/\x00", "a/\u202eb", " a/b", "a" * 600],
)
def test_what_is_no_namespace_is_refused_with_a_reason(namespace):
    with pytest.raises(ValueError, match="namespace"):
        check_namespace(namespace)


def rows(count, chunks=1, offset=0):
    columns = {
        "namespace": ["n"] * count,
        "query_id": [str(number) for number in range(count)],
        "text": ["x" * number for number in range(count)],
        "group": ["g"] * count,
    }
    table = pa.table(columns).cast(QUERY.arrow)
    size = max(1, count // chunks)
    return pa.concat_tables([table.slice(at, size) for at in range(0, count, size)]).slice(offset)


def test_digests_see_values_not_memory_layout():
    assert table_digest(rows(12), QUERY) == table_digest(rows(12, chunks=5), QUERY)
    fresh = pa.Table.from_pylist(rows(12, offset=3).to_pylist(), QUERY.arrow)
    assert table_digest(rows(12, offset=3), QUERY) == table_digest(fresh, QUERY)
    assert table_digest(rows(12), QUERY) != table_digest(rows(11), QUERY)


@pytest.mark.parametrize(("column", "value"), [("text", ""), ("position", 0), ("said_at", 0)])
def test_digests_tell_null_from_zero_and_one_value_from_another(column, value):
    base = {field.name: None for field in TURN.arrow}
    base.update(namespace="n", session_id="s", position=1, turn_id="t", text="hi", attachments="[]", revision=0)
    base["ingested_at"] = 5
    table = pa.Table.from_pylist([base], TURN.arrow)
    other = pa.Table.from_pylist([{**base, column: value}], TURN.arrow)
    assert table_digest(table, TURN) != table_digest(other, TURN)


def test_the_time_of_import_is_outside_a_digest():
    base = {field.name: None for field in TURN.arrow} | {"namespace": "n", "ingested_at": 1}
    later = {**base, "ingested_at": 2}
    digests = {table_digest(pa.Table.from_pylist([row], TURN.arrow), TURN) for row in (base, later)}
    assert len(digests) == 1


def test_text_that_moves_between_rows_changes_the_digest():
    first = {"namespace": "n", "query_id": "q", "text": "ab", "group": "c"}
    second = {"namespace": "n", "query_id": "q", "text": "a", "group": "bc"}
    tables = [pa.Table.from_pylist([row, row], QUERY.arrow) for row in (first, second)]
    assert table_digest(tables[0], QUERY) != table_digest(tables[1], QUERY)
