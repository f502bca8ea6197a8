from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.context import Statement, assemble

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)


def statement(text, day, *turns):
    return Statement(text, f"{day} January, 2024", (False, BEGAN + timedelta(days=day), day), turns or (text,))


def count(text):
    return len(text.split())


def test_statements_stand_in_time_order_under_their_day():
    context = assemble([statement("late news", 9), statement("early news", 2), statement("more news", 9)], 100, count)
    assert context.text.splitlines() == [
        "2 January, 2024:",
        "[1] early news",
        "9 January, 2024:",
        "[2] late news",
        "[3] more news",
    ]
    assert context.tokens == count(context.text)
    assert context.left_out == 0


def test_the_best_come_first_when_room_is_short_and_short_ones_fill_it():
    long, short = statement("word " * 30, 1), statement("short one", 2)
    context = assemble([statement("best of all", 3), long, short], 20, count)
    assert [kept.text for kept in context.statements] == ["short one", "best of all"]
    assert context.left_out == 1


def test_nothing_is_said_twice_and_no_source_is_lost():
    context = assemble([statement("same", 1, "a"), statement("same", 1, "b", "a")], 100, count)
    assert [kept.turn_ids for kept in context.statements] == [("a", "b")]
    assert context.turn_ids() == {"a", "b"}


def test_days_of_several_zones_stand_once_each_and_keep_the_budget():
    # Moments alternate between two days because the turns' zones differ.
    mixed = [
        Statement(
            f"turn {number}", f"{1 + number % 2} May, 2024", (False, BEGAN + timedelta(hours=number), number), ("t",)
        )
        for number in range(8)
    ]
    whole = assemble(mixed, 10_000, count)
    assert [line for line in whole.text.splitlines() if line.endswith(":")] == ["1 May, 2024:", "2 May, 2024:"]
    for budget in range(5, 60, 5):
        assert assemble(mixed, budget, count).tokens <= budget


@given(
    st.lists(st.tuples(st.text("abc ", min_size=1, max_size=60), st.integers(1, 9)), max_size=20), st.integers(0, 120)
)
def test_the_budget_holds_with_headers_and_separators(parts, budget):
    context = assemble([statement(text, day) for text, day in parts], budget, len)
    assert context.tokens <= budget or not context.statements
    assert len(context.statements) + context.left_out == len({text for text, _ in parts})


@pytest.mark.parametrize("budget", [0, 3])
def test_a_budget_too_small_for_anything_gives_an_empty_context(budget):
    context = assemble([statement("a fact", 1)], budget, count)
    assert (context.text, context.statements, context.left_out) == ("", (), 1)
