from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.ids import (
    anonymous_turn_id,
    bucket_of,
    check_namespace,
    content_id,
    namespace_digests,
    part_id,
    turn_id,
)
from hgmem_core.schemas import FACT, QUERY, TURN, embedding_schema


@given(st.lists(st.one_of(st.none(), st.integers(), st.text()), max_size=4))
def test_ids_depend_on_where_parts_begin(parts):
    assert content_id(*parts) == content_id(*parts)
    assert content_id(*parts) != content_id(*parts, None)
    if len(parts) > 1 and isinstance(parts[0], str) and isinstance(parts[1], str):
        assert content_id(*parts) != content_id(parts[0] + parts[1], *parts[2:])


def test_what_differs_has_another_id_whatever_stands_between_its_parts():
    # Signs that could be taken for where a part begins, and one letter in two forms.
    texts = ["".join(signs) for size in range(3) for signs in product("s1:/\u00e9\u0301e", repeat=size)]
    parts = [*texts, None, 0, 1, 11]
    every = [*((part,) for part in parts), *product(parts, repeat=2), *product(parts[:8], repeat=3)]
    assert len({content_id(*one) for one in every}) == len(every)


@given(st.lists(st.tuples(*[st.sampled_from(["a", "a/b", "b", "", "a|b", "\u00e9", "e\u0301"])] * 3), unique=True))
def test_no_two_messages_share_an_id(keys):
    assert len({turn_id(*key) for key in keys}) == len(keys)
    assert len({anonymous_turn_id(*key[:2], 0, None, key[2]) for key in keys}) == len(keys)
    assert not {turn_id(*key) for key in keys} & {anonymous_turn_id(*key[:2], 0, None, key[2]) for key in keys}
    assert len({part_id(turn_id(*key), part) for key in keys for part in range(3)}) == 3 * len(keys)


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
    assert namespace_digests(rows(12), QUERY) == namespace_digests(rows(12, chunks=5), QUERY)
    fresh = pa.Table.from_pylist(rows(12, offset=3).to_pylist(), QUERY.arrow)
    assert namespace_digests(rows(12, offset=3), QUERY) == namespace_digests(fresh, QUERY)
    assert namespace_digests(rows(12), QUERY) != namespace_digests(rows(11), QUERY)


@pytest.mark.parametrize(("column", "value"), [("text", ""), ("position", 0), ("said_at", 0)])
def test_digests_tell_null_from_zero_and_one_value_from_another(column, value):
    base = {field.name: None for field in TURN.arrow}
    base.update(namespace="n", session_id="s", position=1, turn_id="t", text="hi", attachments="[]", revision=0)
    base["ingested_at"] = 5
    table = pa.Table.from_pylist([base], TURN.arrow)
    other = pa.Table.from_pylist([{**base, column: value}], TURN.arrow)
    assert namespace_digests(table, TURN) != namespace_digests(other, TURN)


def test_the_time_of_import_is_outside_a_digest():
    base = {field.name: None for field in TURN.arrow} | {"namespace": "n", "ingested_at": 1}
    later = {**base, "ingested_at": 2}
    first, second = (namespace_digests(pa.Table.from_pylist([row], TURN.arrow), TURN) for row in (base, later))
    assert first == second


def test_text_that_moves_between_rows_changes_the_digest():
    first = {"namespace": "n", "query_id": "q", "text": "ab", "group": "c"}
    second = {"namespace": "n", "query_id": "q", "text": "a", "group": "bc"}
    tables = [pa.Table.from_pylist([row, row], QUERY.arrow) for row in (first, second)]
    assert namespace_digests(tables[0], QUERY) != namespace_digests(tables[1], QUERY)


def test_a_namespace_has_the_same_digest_whatever_stands_beside_it():
    facts = [
        {"namespace": name, "fact_id": f"{name}{at}", "text": "t" * at, "keywords": ["k"] * at, "queries": []}
        | {"entities": [name], "confidence": 0.5, "support": at, "turn_ids": [name], "place": None if at else "Lyon"}
        | {"time_phrase": None, "valid_from": at, "valid_to": None, "superseded_by": None}
        for name in "abc"
        for at in range(3)
    ]
    whole = namespace_digests(pa.Table.from_pylist(facts, FACT.arrow), FACT)
    alone = namespace_digests(pa.Table.from_pylist(facts[3:6], FACT.arrow), FACT)
    assert list(whole) == ["a", "b", "c"]
    assert alone == {"b": whole["b"]}
    facts[4]["keywords"] = []
    changed = namespace_digests(pa.Table.from_pylist(facts, FACT.arrow), FACT)
    assert {name for name in whole if whole[name] != changed[name]} == {"b"}


def test_vectors_are_part_of_a_digest():
    schema = embedding_schema(2)
    rows = [
        {"namespace": "a", "level": "turn", "node_id": str(at), "variant": "base", "vector": [at, 0.5]} for at in (0, 1)
    ]
    other = [{**rows[0], "vector": [0, -0.5]}, rows[1]]
    tables = [pa.Table.from_pylist(content, schema.arrow) for content in (rows, other)]
    first, second = (namespace_digests(table, schema)["a"] for table in tables)
    assert first != second
