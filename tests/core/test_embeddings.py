from hgmem_core.embeddings import MOST_BEFORE_CHARS, context_texts
from hgmem_core.turns import date_texts, turn_texts
from tests.core.fixtures import message, turns_of


def test_a_turn_stands_after_the_two_before_it_in_its_session():
    turns = turns_of(
        message("one"), message("two", 1, "Bo"), message("three", 2), message("four", 3),
        message("elsewhere", 9, session="s2"), message("after", 10, session="s2"),
    )  # fmt: skip
    assert context_texts(turns) == [
        "(6:00 pm on 1 March, 2024) Ana: one",
        "(6:01 pm on 1 March, 2024) Ana: one >> Bo: two",
        "(6:02 pm on 1 March, 2024) Ana: one Bo: two >> Ana: three",
        "(6:03 pm on 1 March, 2024) Bo: two Ana: three >> Ana: four",
        "(6:09 pm on 1 March, 2024) Ana: elsewhere",
        "(6:10 pm on 1 March, 2024) Ana: elsewhere >> Ana: after",
    ]


def test_a_long_turn_is_whole_in_its_own_text_and_short_in_that_of_the_next():
    long = "tea with lemon " * 60
    turns = turns_of(message(long), message("yes", 1))
    own, after = context_texts(turns)
    assert own.endswith(turn_texts(turns)[0])
    before, said = after.removeprefix(date_texts(turns)[1]).split(" >> ")
    assert said == "Ana: yes"
    assert len(before) <= MOST_BEFORE_CHARS
    assert before.startswith("Ana: tea with lemon tea")
