import pytest

from hgmem_core.query_names import find_names
from hgmem_core.query_time import query_time
from hgmem_core.sub_queries import MOST_SUB_QUERIES, sub_queries

SPEAKERS = ["Ana", "Bo", "小明", "小红"]


def within(text):
    time = query_time(text, None, None)
    return sub_queries(text, find_names(text, SPEAKERS, time.times), time)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What do Ana and Bo both cook?", ["What do Ana cook", "What do Bo cook", "Ana Bo cook"]),
        ("Which songs do Ana, Bo or Cy sing?", ["Which songs do Ana sing", "Which songs do Bo sing"]),
        ("What are Ana's and Bo's jobs?", ["What are Ana's jobs", "What are Bo's jobs", "Ana Bo jobs"]),
        ("What did Ana sew and where did she sell it?", ["What did Ana sew", "where did Ana sell it"]),
        ("Who came? What did Ana give her guests?", ["What did Ana give her guests"]),
        ("What did Ana paint in June 2023?", ["What did Ana paint", "Ana paint"]),
        ("In June 2023, what did Ana's aunt paint?", ["what did Ana's aunt paint", "Ana aunt paint"]),
        ("What did Ana paint after her wedding?", ["Ana paint wedding", "Ana's wedding"]),
        ("小明和小红都喜欢什么？", ["小明喜欢什么", "小红喜欢什么"]),
        ("小明买了什么，他去了哪里？", ["小明买了什么", "小明去了哪里"]),
        ("小明2023年6月买了什么？", ["小明买了什么"]),
        ("搬家之后小明做了什么？", ["小明搬家"]),
    ],
)
def test_questions_within_a_question(text, found):
    queries = within(text)
    assert [query for query in found if query not in queries] == []


@pytest.mark.parametrize("text", ["", " ", "why?", "😀", "the of and", "Ana", "Lyon?", "小明去了哪里？", "ana bakes"])
def test_what_has_nothing_shorter_within_has_none(text):
    assert within(text) == []


def test_names_that_are_not_in_a_row_stay_together():
    assert within("What did Ana sell to Bo?") == ["Ana sell Bo"]
    assert within("Who is Ana, Bo's aunt?") == ["Ana Bo aunt"]


def test_a_pronoun_stays_where_two_are_named():
    assert "where did she sell it" in within("What did Ana sew for Bo and where did she sell it?")


def test_they_are_few_and_say_different_things():
    text = "What did Ana, Bo and Cy sew in June 2023, and where did they sell it after the fair, and who came?"
    queries = within(text)
    assert len(queries) == MOST_SUB_QUERIES
    assert len({query.casefold() for query in [*queries, text]}) == MOST_SUB_QUERIES + 1


def test_an_instruction_is_no_question():
    first, *others = within("Did Ana sell the old boat? Answer with yes or no.")
    assert first == "Did Ana sell the old boat"
    assert not any("with" in query for query in others)


def test_what_is_left_of_a_question_alone_is_none():
    assert within("When and where did Ana marry?") == ["where did Ana marry", "Ana marry"]
    assert within("What do Ana and Bo both like?") == ["What do Ana like", "What do Bo like"]


def test_a_cut_leaves_no_gap():
    assert "What did Ana paint, and did it sell" in within("What did Ana paint in June 2023, and did it sell?")


def test_none_is_long():
    assert within("What did Ana sew in June 2023" + ", then mend and wash" * 40) == []
