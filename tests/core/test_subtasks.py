import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.subtasks import MOST_SUBTASKS, SUBTASK_CHARS, subtasks


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("put a warm brick on the bench.", ["put a warm brick on the bench"]),
        ("find two mugs and put them in the sink.", ["find two mugs", "put them in the sink"]),
        (
            "Open the file, then count its lines; save the number.",
            ["Open the file", "count its lines", "save the number"],
        ),
        ("How many kites are red, and which is the oldest?", ["How many kites are red", "which is the oldest?"]),
        ("What are the names and ages of the owners?", ["What are the names and ages of the owners?"]),
        ("1. Open the file 2) Read it all 3. Close it again", ["Open the file", "Read it all", "Close it again"]),
        ("- feed the cat\n- water the plants", ["feed the cat", "water the plants"]),
        ("先打开冰箱，然后拿出苹果，最后把它放进微波炉。", ["先打开冰箱", "拿出苹果", "把它放进微波炉"]),
        ("Hi there! My kite is torn. Could you help me with that? Thanks!", ["My kite is torn"]),
        ("Dr. Li paid 3.5 euros for it.", ["Dr. Li paid 3.5 euros for it"]),
        ("Search and sort the cards", ["Search and sort the cards"]),
        ("Restart", ["Restart"]),
        ("Hello!", ["Hello!"]),
        ("", []),
        (" \n\x00", []),
    ],
)
def test_a_task_is_cut_where_another_thing_to_do_begins(task, expected):
    assert subtasks(task) == expected


def test_more_than_four_steps_are_joined_and_none_is_lost():
    steps = ["feed the old grey cat", "water plants", "lock doors", "call the landlady at noon", "buy some bread"]
    found = subtasks("\n".join(steps))
    assert found == [steps[0], "water plants; lock doors", steps[3], steps[4]]


@given(
    st.lists(st.sampled_from([*"ab1 .,;!?\n-，。、", "then ", " and put ", "1. ", "然后", "包", "\ud800"])).map("".join)
)
def test_any_text_gives_at_most_four_short_steps(task):
    found = subtasks(task)
    assert len(found) <= MOST_SUBTASKS
    assert all(step.strip() and len(step) <= SUBTASK_CHARS for step in found)
    assert found or not any(sign.isalnum() for sign in task)


@pytest.mark.parametrize("unit", ["a", "then ", "1. ", " and put ", "，", "do it; ", "\n", "x, "])
def test_a_text_without_end_takes_no_time(unit):
    task = unit * (10_000_000 // len(unit))
    began = time.process_time()
    subtasks(task)
    assert time.process_time() - began < 1.0
