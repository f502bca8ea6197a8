import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.loose_json import Unreadable, read_value

LEAVES = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False) | st.text()
FINITE = LEAVES.filter(lambda leaf: leaf not in (float("inf"), float("-inf")))
OBJECTS = st.dictionaries(
    st.text(), st.recursive(FINITE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
)


@settings(max_examples=60)
@given(OBJECTS, st.booleans(), st.sampled_from([None, 0, 3]), st.text())
def test_sound_json_is_read_as_by_the_standard_library(value, as_ascii, indent, behind):
    text = json.dumps(value, ensure_ascii=as_ascii, indent=indent)
    found = read_value(text + behind, 0)
    assert (found.value, found.end, found.state) == (value, len(text), "whole")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ('{"a": [1 2]\n"b": 3}', {"a": [1, 2], "b": 3}),
        ('{"a": "one\ntwo\x00\tthree"}', {"a": "one\ntwo\x00\tthree"}),
        ('{"a": [True, False, None]}', {"a": [True, False, None]}),
        ('{"a": [+1, .5, 1., 01, -2E+2]}', {"a": [1, 0.5, 1.0, 1, -200.0]}),
        ('{"a": [1], "b": 2, "a": [3], "b": 4}', {"a": [1, 3], "b": 4}),
        (r'{"a": "C:\dir\users, \d+ \( it\'s"}', {"a": r"C:\dir\users, \d+ \( it's"}),
        (r'{"a": "\x41\u{1F600}\U0001f600"}', {"a": "A😀😀"}),
        (r'{"a": "\xe4\xbd\xa0 caf\xe9"}', {"a": "你 café"}),
        (r'{"a": "\ud83d\ude00 \ud83d \ude00"}', {"a": "😀 \ufffd \ufffd"}),
        (r'{"\u0061\ud800": 1}', {"a\ufffd": 1}),
    ],
)
def test_slips_that_lose_nothing_are_mended(text, value):
    found = read_value(text, 0)
    assert (found.value, found.state) == (value, "whole")


@pytest.mark.parametrize(
    "written",
    [
        "NaN",
        "-Infinity",
        "undefined",
        "1e999",
        "9" * 5000,
        str(2**63),
        r'"\u597"',
        r'"\ud83"',
        r'"\x4"',
        '"\\u{ffffff}"',
    ],
)
def test_what_is_no_value_is_marked_where_it_stands(written):
    value = read_value(f'{{"a": {written}, "b": [{written}, 1]}}', 0).value
    assert isinstance(value["a"], Unreadable)
    assert isinstance(value["b"][0], Unreadable)
    assert value["b"][1] == 1


@pytest.mark.parametrize(
    "item",
    ['{"s": "she said "no" to it", "n": 2}', '{"s": oops}', '{"s": }', '{"s": ["a", b]}', "{s: 1}", '{"s" "n": [1]}'],
)
def test_an_object_in_a_list_that_is_not_well_formed_is_left_out_alone(item):
    found = read_value(f'{{"a": [{{"n": 1}}, {item}, {{"n": 3}}], "b": 4}}', 0)
    assert found.state == "whole"
    assert found.value["a"][::2] == [{"n": 1}, {"n": 3}]
    assert isinstance(found.value["a"][1], Unreadable)
    assert found.value["b"] == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "b": [{"c": 1}, {"c": [2', {"a": 1, "b": [{"c": 1}]}),
        ('{"a": 1, "b": [1, 23', {"a": 1, "b": [1]}),
        ('{"a": "x", "b": "y\\', {"a": "x"}),
        ('{"a": "x", "b": {"c": 1, "d": [2,', {"a": "x"}),
        ('{"a": 1, "b": tru', {"a": 1}),
        ('[{"a": 1}, {"a": 2}, {"a"', [{"a": 1}, {"a": 2}]),
        ('{"a": [1], "a": [2, ', {"a": [1, 2]}),
        ("{", {}),
    ],
)
def test_of_a_text_that_ends_too_early_the_complete_values_stay(text, value):
    found = read_value(text, 0)
    assert (found.value, found.state, found.end) == (value, "cut", len(text))


def test_what_is_no_json_breaks_a_value_and_tells_where_to_read_on():
    text = '{"a": 1, "b": [2], so {"c": 3}'
    found = read_value(text, 0)
    assert (found.value, found.state) == ({"a": 1, "b": [2]}, "broken")
    assert found.end <= text.index("{", 1)


def test_a_quote_that_was_never_closed_does_not_hide_what_follows():
    text = 'like {"a": "x and then {"a": 5}'
    assert read_value(text, 5).end <= text.index("{", 6)


@pytest.mark.parametrize("piece", ["[", '{"a":', '[{"a":['])
def test_endless_nesting_is_read_in_linear_time(piece):
    def seconds(size):
        text = '{"a":' + piece * (size // len(piece))
        start = time.thread_time()
        at = 0
        while at < len(text) and text[at] in "{[":
            at = read_value(text, at).end
        return time.thread_time() - start

    # Quadratic work would take 64 times as long, and minutes.
    assert seconds(200_000) < 30 * seconds(25_000) + 3
