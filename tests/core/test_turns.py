from datetime import timedelta

import pyarrow as pa
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
        message(f"said {number % 5}", number % 3 if with_times else None, sequence=None if with_times else number)
        for number in range(8)
    ]
    shuffled = [messages[place] for place in order]
    # Equal messages differ in nothing but their ordinal, so the tables are equal in everything.
    assert turns_of(*shuffled).drop_columns(["ingested_at"]) == turns_of(*messages).drop_columns(["ingested_at"])


def test_without_times_and_sequences_the_file_decides():
    messages = [message(text, None) for text in "dbca"]
    assert texts(turns_of(*messages)) == ["d", "b", "c", "a"]


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


def test_merging_needs_no_memory_of_chunks():
    table = imported(*(message(str(number), number, source_id=str(number)) for number in range(20)))
    chunks = pa.concat_tables([table.slice(at, 3) for at in range(0, 20, 3)])
    assert merge_imports([chunks])[0] == merge_imports([table])[0]
