from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.schemas import MESSAGE, TURN
from hgmem_core.turns import date_texts, merge_imports, turn_texts
from tests.core.fixtures import BEGAN, IMPORTED, imported, message, turns_of


def texts(turns):
    return turns.column("text").to_pylist()


def test_tables_keep_their_schema():
    assert imported(message("hi")).schema.equals(MESSAGE.arrow)
    assert turns_of(message("hi")).schema.equals(TURN.arrow)
    assert imported().num_rows == 0


def test_turns_stand_by_time_then_sequence_then_id():
    late = message("late", 9)
    tie = [message(f"tie {number}", 5, sequence=9 - number) for number in range(3)]
    assert texts(turns_of(late, *tie, message("first", 1))) == ["first", "tie 2", "tie 1", "tie 0", "late"]


@given(st.permutations(range(8)), st.booleans())
def test_the_order_of_rows_does_not_matter_where_they_carry_times_or_sequences(order, with_times):
    messages = [
        message(f"said {number % 5}", number % 3, source_id=f"m{number}")
        if with_times
        else message(f"said {number % 5}", None, sequence=number)
        for number in range(8)
    ]
    shuffled = [messages[place] for place in order]
    # Equal messages differ in nothing but their ordinal, so the tables are equal in everything.
    assert turns_of(*shuffled).drop_columns(["ingested_at"]) == turns_of(*messages).drop_columns(["ingested_at"])


def test_without_times_and_sequences_the_file_decides():
    for ids in ([None] * 4, ["m4", "m2", "m3", "m1"]):
        messages = [message(text, None, source_id=id) for text, id in zip("dbca", ids, strict=True)]
        assert texts(turns_of(*messages)) == ["d", "b", "c", "a"]


@pytest.mark.parametrize(
    "ids",
    [
        ["m1", "m2", "m10"],
        ["9", "10", "10a", "a"],
        ["1.9", "1.10", "2.1"],
        ["a", "a1", "b"],
        ["m02", "m2", "m3"],
        ["m" + "9" * 5_000, "m1" + "0" * 5_000],
    ],
)
def test_ids_of_messages_of_one_time_are_ordered_as_numbers_are(ids):
    messages = [message("hi", source_id=id) for id in ids]
    for log in (messages, messages[::-1]):
        assert turns_of(*log).column("source_id").to_pylist() == ids


def test_messages_of_one_time_without_ids_keep_the_order_of_their_files():
    minute = [message(f"line {number}") for number in (3, 1, 2, 0)]
    later = message("later", 1)
    named = message("named", source_id="m1")
    assert texts(turns_of(later, *minute, named)) == ["named", "line 3", "line 1", "line 2", "line 0", "later"]
    grown = [imported(*minute[:2]), imported(*minute[1:3], minute[0]), imported(later, *minute)]
    assert texts(merge_imports(grown)[0]) == ["line 3", "line 1", "line 2", "line 0", "later"]


def test_a_long_text_of_a_tie_stays_in_one_piece():
    long = "word " * 1_000
    turns = turns_of(message(long), message("after"), message("another"))
    assert ("".join(texts(turns)[:-2]), texts(turns)[-2:]) == (long, ["after", "another"])


def test_a_message_before_any_time_stands_first():
    assert texts(turns_of(message("a", None), message("b", 1), message("c", 1))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "place", [lambda number: {"at": number}, lambda number: {"at": None, "sequence": number}, lambda _: {"at": None}]
)
def test_an_edit_without_time_and_sequence_keeps_its_place(place):
    log = imported(*(message(text, source_id=text, **place(number)) for number, text in enumerate("abc")))
    edits = imported(message("A", None, source_id="a"), message("word " * 300, None, source_id="b"))
    turns, _ = merge_imports([log, edits])
    assert (texts(turns)[0], "".join(texts(turns)[1:-1]), texts(turns)[-1]) == ("A", "word " * 300, "c")
    assert not any(turns.column("said_at").to_pylist()[:-1])


def test_an_edit_with_a_new_time_moves_and_a_second_without_one_stays_there():
    first = imported(message("a", 1, source_id="a"), message("b", 2, source_id="b"), message("c", 4, source_id="c"))
    moved = imported(message("a", 3, source_id="a"))
    assert texts(merge_imports([first, moved])[0]) == ["b", "a", "c"]
    assert texts(merge_imports([first, moved, imported(message("A", None, source_id="a"))])[0]) == ["b", "A", "c"]


def test_photos_without_text_are_different_turns_if_they_show_different_things():
    photos = [message("", attachments=({"type": "image", "caption": caption},)) for caption in ("a bike", "a boat")]
    turns, _ = merge_imports([imported(photo) for photo in (*photos, photos[0])])
    assert turn_texts(turns) == ["Ana: [image: a bike]", "Ana: [image: a boat]"]


def test_a_message_without_a_time_stands_by_the_last_time_before_it():
    assert texts(turns_of(message("a", 1), message("b", None), message("c", 2))) == ["a", "b", "c"]


def test_complete_sequences_decide_where_times_are_incomplete():
    messages = [message("b", None, sequence=2), message("c", 0, sequence=3), message("a", 5, sequence=1)]
    assert texts(turns_of(*messages)) == ["a", "b", "c"]


def test_equal_messages_without_an_id_are_different_turns_and_the_same_in_every_import():
    table = imported(message("yes"), message("yes"), message("yes", 1))
    assert len(set(table.column("message_id").to_pylist())) == 3
    again, _ = merge_imports([table, table])
    assert again.num_rows == 3


def test_a_repeated_import_changes_nothing_but_is_counted():
    first = imported(message("one", source_id="1"), message("two", 1, source_id="2"))
    later = imported(
        message("one", source_id="1"),
        message("two", 1, source_id="2"),
        message("three", 2, source_id="3"),
        ingested_at=IMPORTED + timedelta(days=1),
    )
    turns, outcomes = merge_imports([first, later])
    assert texts(turns) == ["one", "two", "three"]
    assert turns.column("revision").to_pylist() == [0, 0, 0]
    assert turns.column("ingested_at").to_pylist() == [IMPORTED, IMPORTED, IMPORTED + timedelta(days=1)]
    assert sorted(outcomes.column("outcome").to_pylist()) == ["empty", "empty", "ok", "ok", "ok"]


def test_an_edit_keeps_the_id_and_raises_the_revision():
    first = imported(message("old", source_id="1"))
    second = imported(message("new", source_id="1"), ingested_at=IMPORTED + timedelta(days=1))
    turns, outcomes = merge_imports([first, second])
    before, _ = merge_imports([first])
    assert turns.column("turn_id") == before.column("turn_id")
    assert (texts(turns), turns.column("revision").to_pylist()) == (["new"], [1])
    assert turns.column("ingested_at").to_pylist() == [IMPORTED + timedelta(days=1)]
    assert outcomes.column("outcome").to_pylist() == ["partial", "ok"]
    assert merge_imports([first, second, first])[0].column("revision").to_pylist() == [1]


def test_a_message_delivered_late_takes_its_place_and_moves_no_id():
    first = imported(message("a", 1, source_id="1"), message("c", 9, source_id="3"))
    turns, _ = merge_imports([first, imported(message("b", 7, source_id="2"))])
    assert texts(turns) == ["a", "b", "c"]
    assert turns.column("position").to_pylist() == [0, 1, 2]
    before = merge_imports([first])[0].column("turn_id").to_pylist()
    assert set(before) <= set(turns.column("turn_id").to_pylist())


def test_a_long_text_becomes_several_turns_and_loses_nothing():
    text = "".join(f"Sentence {number}. " for number in range(400)).strip()
    turns = turns_of(message(text, source_id="1"), message("after", 1, source_id="2"))
    assert turns.num_rows > 2
    assert "".join(texts(turns)[:-1]) == text
    assert texts(turns)[-1] == "after"
    assert len(set(turns.column("turn_id").to_pylist())) == turns.num_rows


def test_an_edit_may_bring_fewer_or_more_pieces_of_a_long_text():
    long, short = "word " * 1_000, "short"
    for before, after in ((long, short), (short, long)):
        first, second = imported(message(before, source_id="1")), imported(message(after, source_id="1"))
        turns, outcomes = merge_imports([first, second])
        assert "".join(texts(turns)) == after
        assert outcomes.column("outcome").to_pylist() == ["partial"] * first.num_rows + ["ok"] * second.num_rows


def test_namespaces_and_sessions_are_apart():
    turns = turns_of(message("x", source_id="1"), message("x", namespace="acme/bo", source_id="1"))
    assert len(set(turns.column("turn_id").to_pylist())) == 2
    assert turns.column("position").to_pylist() == [0, 0]


def test_what_stands_for_a_turn():
    image = {"type": "image", "caption": "a red bike"}
    call = {"type": "tool_call", "id": "1", "name": "book", "arguments": '{"day": 3}'}
    turns = turns_of(
        message("Look!", attachments=(image,)),
        message("", 1, speaker=None, role="assistant", attachments=(call,)),
        message("", 2, speaker=None, attachments=({"type": "image"},)),
    )
    assert turn_texts(turns) == ["Ana: Look! [image: a red bike]", 'assistant: [tool call: book {"day": 3}]', "[image]"]


def test_dates_are_shown_in_the_turns_own_zone():
    turns = turns_of(
        message("a", 0), message("b", 1, time_zone="Asia/Tokyo"), message("c", None, session="s2"), message("d", 360)
    )
    assert BEGAN.isoformat() == "2024-03-01T18:00:00+00:00"
    assert date_texts(turns) == [
        "(6:00 pm on 1 March, 2024) ",
        "(3:01 am on 2 March, 2024) ",
        "(12:00 am on 2 March, 2024) ",
        "",
    ]


def test_a_date_beyond_the_calendar_of_its_zone_is_shown_in_utc():
    first = replace(message("a", time_zone="America/New_York"), said_at=datetime(1, 1, 1, tzinfo=UTC))
    last = replace(message("b", time_zone="Asia/Tokyo"), said_at=datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
    assert date_texts(turns_of(first, last)) == ["(12:00 am on 1 January, 1) ", "(11:59 pm on 31 December, 9999) "]


def test_merging_needs_no_memory_of_chunks():
    table = imported(*(message(str(number), number, source_id=str(number)) for number in range(20)))
    chunks = pa.concat_tables([table.slice(at, 3) for at in range(0, 20, 3)])
    assert merge_imports([chunks])[0] == merge_imports([table])[0]
