"""Whatever JSON stands in a row of a log, of any format: it has an outcome, and importing it again changes nothing."""

import json
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.config import InputConfig
from hgmem_core.importers.slack import SlackNames, SlackRow
from hgmem_core.messages import LogRow
from tests.core.importers.test_malformed import COLUMNS, EVERY, SHAPES
from tests.fuzz.log_files import check_results

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=9)
    | st.sampled_from(["user", "assistant", "text", "2024-05-08T13:56:00Z", "D1:1", "[]", '{"role": "user"}'])
)


def json_of(format):
    """Any JSON, in which the names that this format looks for are as frequent as they have to be to be found."""
    names = set()
    level = [SHAPES.get(format, SHAPES["tabular"])]
    while level:
        names.update(chain.from_iterable(item for item in level if isinstance(item, dict)))
        level = list(
            chain.from_iterable(
                item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)
            )
        )
    keys = st.sampled_from(sorted(names)) | st.text(max_size=4)
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=12,
    )


@pytest.mark.parametrize("format", EVERY)
@settings(max_examples=60)
@given(st.data())
def test_any_json_in_any_row_has_an_outcome_and_is_imported_once(format, data):
    values = data.draw(st.lists(json_of(format), min_size=1, max_size=3))
    if format == "slack":
        values = [SlackRow("harbour", SlackNames({"U1": "Ana"}), value) for value in values]
    columns = COLUMNS if format in ("parquet", "jsonl", "csv") else {}
    config = InputConfig(format=format, paths=["log"], namespace="acme", columns=columns, session_gap_minutes=30)
    rows = [LogRow(f"log:{number}", value) for number, value in enumerate(values, 1)]
    results = list(EVERY[format](iter(rows), config))
    check_results(rows, results)
    assert list(EVERY[format](iter(rows), config)) == results
    json.dumps([result.row_id for result in results]).encode()
