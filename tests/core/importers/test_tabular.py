import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import Dropped, LogRow, Message

DATA = Path(__file__).parents[2] / "data"
COLUMNS = {name: name for name in "text session id sequence time speaker role attachments call_id".split()}


def read(*records, namespace="acme/{user}", columns=COLUMNS, **settings):
    """What the importer makes of these records, each of which belongs to Ana unless it says otherwise."""
    rows = [
        LogRow(f"log:{number}", {"user": "ana", **record} if isinstance(record, dict) else record)
        for number, record in enumerate(records, 1)
    ]
    config = InputConfig(format="jsonl", paths=["log"], namespace=namespace, columns=columns, **settings)
    return list(IMPORTERS["jsonl"](rows, config))


def test_a_full_row_becomes_a_message():
    record = {
        **{"text": "Shall we meet?", "session": "s1", "id": "m1", "sequence": 4, "time": "2024-05-08T13:56:00+02:00"},
        **{"speaker": "Ana", "role": "user", "attachments": [{"type": "file", "name": "map.pdf"}], "call_id": "c1"},
    }
    assert read(record, time_zone="Europe/Paris") == [
        Message(
            row_id="log:1",
            namespace="acme/ana",
            session_id="s1",
            text="Shall we meet?",
            source_id="m1",
            sequence=4,
            role="user",
            speaker="Ana",
            said_at=datetime(2024, 5, 8, 11, 56, tzinfo=UTC),
            time_zone="Europe/Paris",
            attachments=({"type": "file", "name": "map.pdf"},),
            call_id="c1",
        )
    ]


def test_a_row_with_only_text_stands_in_the_session_log():
    assert read({"text": "Hello"}) == [Message("log:1", "acme/ana", "log", "Hello")]


@pytest.mark.parametrize("text", [None, "", " \n\t", "\u200b", "\x00", float("nan"), [], [None, ""]])
def test_blank_rows_are_empty_and_their_neighbours_kept_in_order(text):
    results = read({"text": "before"}, {"text": text}, {"text": "after"})
    assert [type(result) for result in results] == [Message, Dropped, Message]
    assert results[1].outcome == "empty"
    assert results[1].namespace == "acme/ana"


def test_a_row_without_the_text_column_is_rejected():
    (result,) = read({"body": "Hello"})
    assert result.outcome == "rejected"
    assert "no text column 'text'" in result.reason
    assert "Hello" in result.raw


@pytest.mark.parametrize("user", [None, "", float("nan"), " ", True, ["ana"], float("inf"), 2.0**60, "..", "a\u200bb"])
def test_a_row_without_a_usable_tenant_is_rejected(user):
    (result,) = read({"text": "Hello", "user": user})
    assert result.outcome == "rejected"
    assert "namespace" in result.reason


def test_a_row_that_lacks_a_namespace_column_is_rejected_and_the_column_named():
    (result,) = read({"text": "Hello"}, namespace="acme/{tenant}")
    assert result.outcome == "rejected"
    assert "'tenant' is not in the row" in result.reason


def test_a_value_cannot_reach_into_the_namespace_of_another():
    (result,) = read({"text": "Hello", "user": "bo/private"})
    assert result.outcome == "rejected"
    assert "'/'" in result.reason


@given(st.one_of(st.none(), st.text(max_size=8), st.floats(), st.integers(), st.booleans()))
def test_every_namespace_is_one_segment_below_the_tenant(user):
    (result,) = read({"text": "Hello", "user": user})
    if isinstance(result, Message):
        assert result.namespace.startswith("acme/")
        assert result.namespace.count("/") == 1
        assert result.namespace.split("/")[1] not in ("", "None", "nan", "NaN" if user != "NaN" else "")


def test_a_template_may_name_nested_columns():
    (result,) = read({"text": "Hello", "meta": {"org": "north"}}, namespace="{meta.org}/{user}")
    assert result.namespace == "north/ana"


@pytest.mark.parametrize("template", ["acme/{user", "acme/{}", "acme/user}"])
def test_a_malformed_template_is_refused(template):
    with pytest.raises(ValueError, match="braces"):
        read({"text": "Hello"}, namespace=template)


def test_numbers_as_ids_become_text_without_a_decimal_point():
    (result,) = read({"text": "Hello", "id": 12.0, "session": 7, "user": 3.0, "call_id": Decimal(9), "sequence": 5.0})
    assert (result.source_id, result.session_id, result.namespace) == ("12", "7", "acme/3")
    assert (result.call_id, result.sequence, result.note) == ("9", 5, None)


@pytest.mark.parametrize("null", [None, float("nan"), ""])
def test_nulls_never_become_words(null):
    fields = ("session", "id", "sequence", "time", "speaker", "role", "attachments", "call_id")
    (result,) = read({"text": "Hello"} | dict.fromkeys(fields, null))
    assert result == Message("log:1", "acme/ana", "log", "Hello")


def test_a_bad_time_costs_the_time_and_not_the_text():
    (result,) = read({"text": "Hello", "time": "03/04/2024"})
    assert result.text == "Hello"
    assert result.said_at is None
    assert result.time_zone is None
    assert "03/04/2024" in result.note


def test_a_time_without_a_zone_is_read_in_the_zone_of_the_log():
    (result,) = read({"text": "Hello", "time": datetime(2024, 7, 1, 9)}, time_zone="Asia/Tokyo")
    assert result.said_at == datetime(2024, 7, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sequence", "number"), [("12", 12), ("-3", -3), ("4.0", 4), (Decimal(8), 8), (2**63 - 1, 2**63 - 1)]
)
def test_an_order_number_may_be_written_as_text(sequence, number):
    (result,) = read({"text": "Hello", "sequence": sequence})
    assert (result.sequence, result.note) == (number, None)


@pytest.mark.parametrize("sequence", ["third", 1.5, True, [1], 2**63, 10**400, "9" * 19, float("inf")])
def test_an_order_number_that_is_none_is_left_out_with_a_note(sequence):
    (result,) = read({"text": "Hello", "sequence": sequence})
    assert result.sequence is None
    assert "sequence" in result.note


@pytest.mark.parametrize("name", [True, {"first": "Ana"}, float("inf"), 2.0**60])
def test_a_name_that_is_none_is_left_out_with_a_note(name):
    (result,) = read({"text": "Hello", "speaker": name, "id": name})
    assert (result.speaker, result.source_id) == (None, None)
    assert "speaker" in result.note
    assert "id" in result.note


def test_text_and_names_are_cleaned_and_the_note_says_so():
    (result,) = read({"text": "half \ud83d", "speaker": " Ana\x00 ", "id": "m\ud83d"})
    assert (result.text, result.speaker, result.source_id) == ("half \ufffd", "Ana", "m\ufffd")
    assert "text: lone surrogates replaced" in result.note
    assert "speaker: control characters removed" in result.note


def test_the_text_column_may_hold_parts():
    parts = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    (result,) = read({"text": parts})
    assert result.text == "Look"
    assert result.attachments == ({"type": "image", "url": "https://example.org/a.png"},)


def test_text_in_bytes_is_read_as_utf_8():
    good, bad = read({"text": "café".encode()}, {"text": b"caf\xe9"})
    assert (good.text, good.note) == ("café", None)
    assert (bad.text, bad.note) == ("caf\ufffd", "text: bytes that are not UTF-8 replaced")


def test_a_number_as_text_is_kept_and_a_truth_value_rejected():
    number, truth = read({"text": 42}, {"text": True})
    assert number.text == "42"
    assert truth.outcome == "rejected"
    assert "column 'text'" in truth.reason


@pytest.mark.parametrize(
    "value", [[{"type": "file"}], {"type": "file"}, '[{"type": "file"}]', '{"type": "file"}', ({"type": "file"},)]
)
def test_attachments_are_objects_or_their_json(value):
    (result,) = read({"text": None, "attachments": value})
    assert result.attachments == ({"type": "file"},)
    assert (result.text, result.note) == ("", None)


@pytest.mark.parametrize("value", ["not json", "[1]", 5, ["name.png"], "[" * 5_000, "[" * 300 + "]" * 300])
def test_attachments_that_are_none_are_left_out_with_a_note(value):
    (result,) = read({"text": "Hello", "attachments": value})
    assert result.attachments == ()
    assert "attachments" in result.note


def test_an_attachment_holds_only_what_json_can():
    nested = {}
    for _ in range(300):
        nested = {"inner": nested}
    ugly = {
        "score": float("nan"),
        "at": datetime(2024, 5, 8),
        "raw": b"hello",
        "cost": Decimal("1.5"),
        "\ud83d": "\x00",
    }
    kept, deep = read({"text": "a", "attachments": ugly}, {"text": "b", "attachments": nested})
    stored = json.loads(json.dumps(kept.attachments[0], allow_nan=False, ensure_ascii=False).encode())
    assert stored["score"] is None
    assert stored["raw"]["bytes"] == 5
    assert stored["type"] == "unknown"
    assert deep.attachments == ()
    assert "nested" in deep.note


def test_inline_payloads_in_attachments_become_digests():
    (result,) = read({"text": "", "attachments": {"type": "image", "url": "data:image/png;base64,aGVsbG8="}})
    assert result.attachments[0]["url"]["bytes"] == 5
    assert "aGVsbG8" not in str(result)


@pytest.mark.parametrize("value", [["a", "list"], "text", 5, None])
def test_a_row_that_is_no_record_is_rejected(value):
    (result,) = read(value)
    assert result.outcome == "rejected"
    assert "not an object" in result.reason


def test_an_unreadable_row_is_rejected_with_its_reason_and_the_start_of_its_text():
    rows = [LogRow("log:1", None, "not JSON", "x" * 5_000), LogRow("log:2", {"text": "Hello"})]
    config = InputConfig(format="jsonl", paths=["log"], namespace="acme")
    bad, good = IMPORTERS["jsonl"](rows, config)
    assert (bad.outcome, bad.reason, len(bad.raw)) == ("rejected", "not JSON", 2_000)
    assert good.text == "Hello"


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            [*COLUMNS, "user"],
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats()
                | st.text(st.characters(codec=None), max_size=9),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["type", "text", "image_url", "url", "file"]), inner, max_size=3)
                ),
                max_leaves=6,
            ),
        ),
    )
)
def test_any_record_gives_one_storable_result(record):
    (result,) = read(record)
    if isinstance(result, Message):
        assert result.text or result.attachments
        fields = (result.text, result.session_id, result.source_id, result.role, result.speaker, result.note)
        json.dumps([*fields, result.attachments], allow_nan=False, ensure_ascii=False).encode()
    else:
        f"{result.reason} {result.raw}".encode()


def test_texts_of_many_scripts_are_kept_and_only_damage_is_noted():
    records = [json.loads(line) for line in (DATA / "unicode.jsonl").read_text("utf-8").splitlines()]
    results = {record["id"]: result for record, result in zip(records, read(*records), strict=True)}
    noted = {key for key, result in results.items() if isinstance(result, Message) and result.note}
    assert noted == {"u02", "u11", "u12", "u14"}
    assert [key for key, result in results.items() if isinstance(result, Dropped)] == ["u13"]
    assert results["u12"].text == "visible only"
    assert results["u03"].text != results["u04"].text
    assert results["u15"].text == "one\ntwo\nthree"
