import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.schemas import (
    QREL,
    QUERY,
    RUN,
    TURN,
    SchemaError,
    conform,
    embedding_schema,
    layout_of,
    relation_schema,
)


def queries(**columns):
    full = {"namespace": ["n", "n"], "query_id": ["b", "a"], "text": ["two", "one"], "group": ["1", "1"]}
    return pa.table({**full, **columns})


def test_conform_orders_columns_widens_strings_and_sorts_by_key():
    table = conform(queries().select(["group", "text", "query_id", "namespace"]), QUERY)
    assert table.schema.equals(QUERY.arrow, check_metadata=True)
    assert table.column("text").to_pylist() == ["one", "two"]
    assert table.schema.field("text").type == pa.large_string()


def test_a_column_of_nulls_takes_the_declared_type_and_an_empty_table_keeps_the_schema():
    columns = {name: pa.nulls(0) for name in TURN.arrow.names}
    assert conform(pa.table(columns), TURN).schema.equals(TURN.arrow)
    assert TURN.empty().num_rows == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (queries().drop_columns(["text"]), r"QUERY: missing columns \['text'\]"),
        (queries(extra=[1, 2]), r"unknown columns \['extra'\]"),
        (queries(text=["x", None]), r"QUERY.text: 1 nulls in a required column"),
        (queries(text=pa.array([b"\xff", b"x"])), "QUERY.text"),
        (queries(query_id=["a", "a"]), r"QUERY: two rows share the key .*'query_id': 'a'"),
    ],
)
def test_what_does_not_fit_is_named(table, message):
    with pytest.raises(SchemaError, match=message):
        conform(table, QUERY)


def test_a_number_that_does_not_fit_is_refused_rather_than_wrapped():
    columns = {"namespace": ["n"], "query_id": ["q"], "turn_id": ["t"], "relevance": [2**40]}
    with pytest.raises(SchemaError, match=r"QREL\.relevance"):
        conform(pa.table(columns), QREL)


TYPES = {
    pa.large_string(): [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    pa.int32(): [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.float64()],
}
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "a/b"]), st.text(max_size=3), st.text(max_size=3), st.integers(0, 100)),
    unique_by=lambda row: row[:3],
    max_size=6,
)


@given(ROWS, st.data())
def test_columns_in_any_order_and_of_any_fitting_type_make_one_table(rows, data):
    columns = list(zip(QREL.arrow, zip(*rows, strict=True) if rows else [()] * 4, strict=True))
    wanted = pa.table({field.name: pa.array(values, field.type) for field, values in columns})
    order = data.draw(st.permutations(range(len(rows))))
    given_columns = {
        field.name: pa.array(
            [values[place] for place in order], data.draw(st.sampled_from(TYPES.get(field.type, [field.type])))
        )
        for field, values in data.draw(st.permutations(columns))
    }
    table = conform(pa.table(given_columns), QREL)
    assert table.schema.equals(QREL.arrow, check_metadata=True)
    assert table.to_pylist() == sorted(wanted.to_pylist(), key=lambda row: [row[name].encode() for name in QREL.key])
    assert conform(table, QREL).equals(table)


@given(st.sampled_from(QREL.arrow.names), st.sampled_from(["missing", "null", "type"]), st.text(min_size=1, max_size=3))
def test_whatever_does_not_fit_names_its_column(name, fault, extra):
    columns = {"namespace": ["n"], "query_id": ["q"], "turn_id": ["t"], "relevance": [1]}
    wrong = {"missing": None, "null": [None], "type": [[b"\xff"]]}[fault]
    columns = {key: wrong if key == name else value for key, value in columns.items() if key != name or wrong}
    with pytest.raises(SchemaError, match=f"QREL.*{name}"):
        conform(pa.table(columns), QREL)
    with pytest.raises(SchemaError, match="unknown columns"):
        conform(pa.table({**columns, name: ["n"], f"{extra}?": [1]}), QREL)


def test_keys_start_with_the_namespace_and_vectors_have_a_fixed_size():
    for schema in (TURN, QUERY, QREL, RUN, embedding_schema(3), relation_schema(("later", "cosine"))):
        assert schema.key[0] == schema.arrow.names[0] == "namespace"
    assert embedding_schema(3).arrow.field("vector").type == pa.list_(pa.float32(), 3)
    assert relation_schema(("later", "cosine")).arrow.field("features").type.list_size == 2


def test_a_table_of_relations_names_their_features():
    names = {"namespace": ["n"], "graph": ["turn"], "source_id": ["a"], "target_id": ["b"]}
    features = pa.array([[1.0, 0.5]], pa.list_(pa.float32(), 2))
    table = conform(pa.table({**names, "features": features}), relation_schema(("later", "cosine")))
    assert layout_of(table.schema) == ("later", "cosine")
