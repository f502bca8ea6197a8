import pytest

from hgmem_core.answer import Answer
from hgmem_core.protocols import PROTOCOLS, find_protocol
from hgmem_core.section import ConfigError
from hgmem_core.tasks.task import Gold
from hgmem_core.token_f1 import best_f1, exact_match, locomo_list_f1, locomo_words

FIVE = frozenset("5")


def gold(group="4", *answers):
    return Gold("locomo/x", "x:0001", "Where does Ana live?", group, answers)


def answered(text):
    return Answer("answered", "llm", text, (1,))


ABSTAINED, FAILED = Answer("abstained", "llm"), Answer("failed", "llm")


@pytest.mark.parametrize(
    ("judgements", "score"),
    [((1.0, 1.0, 0.0), 100), ((1.0, 0.0, 0.0), 0), ((1.0, None, 1.0), 100), ((1.0, None, None), 0)],
)
def test_hypermem_goes_by_the_majority_and_a_missing_vote_is_against(judgements, score):
    assert PROTOCOLS["hypermem"].score(gold("4", "Lisbon"), answered("Lisbon"), judgements, FIVE) == {"judge": score}


def test_hypermem_asks_four_categories_three_times_each():
    protocol = PROTOCOLS["hypermem"]
    assert [category for category in "12345" if protocol.asks(gold(category))] == list("1234")
    assert len(protocol.markings(gold("4", "Lisbon"), answered("Lisbon"))) == 3


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (ABSTAINED, 100),
        (answered("There is no information about that."), 100),
        (answered("Not mentioned in the conversation"), 100),
        (answered("She lives in Lisbon."), 0),
        (FAILED, 0),
    ],
)
def test_hage_takes_silence_for_right_where_there_is_no_answer(answer, score):
    protocol = PROTOCOLS["hage"]
    assert not protocol.needs_judge(gold("5"), answer, FIVE)
    assert protocol.score(gold("5"), answer, (), FIVE) == {"judge": score}


def test_hage_keeps_grades():
    protocol = PROTOCOLS["hage"]
    one = gold("1", "Lisbon")
    assert protocol.needs_judge(one, answered("Porto"), FIVE)
    assert protocol.score(one, answered("Porto"), (0.6,), FIVE) == {"judge": 60.0}
    assert protocol.score(one, answered("Porto"), (None,), FIVE) == {"judge": 0.0}


@pytest.mark.parametrize("name", list(PROTOCOLS))
@pytest.mark.parametrize("answer", [ABSTAINED, FAILED])
def test_a_question_that_has_an_answer_and_gets_none_is_wrong(name, answer):
    protocol = PROTOCOLS[name]
    assert not protocol.needs_judge(gold("4", "Lisbon"), answer, FIVE)
    assert set(protocol.score(gold("4", "Lisbon"), answer, (), FIVE).values()) == {0.0}


def f1(group, text, right):
    return PROTOCOLS["locomo-f1"].score(gold(group, right), answered(text), (), FIVE)["f1"]


def test_locomos_f1_counts_stems_without_articles():
    assert f1("4", "The painted lakes", "a painting of lake") == pytest.approx(80.0)
    assert f1("2", "7 May, 2023", "7 May 2023") == 100.0
    assert f1("4", "Lisbon", "Bergen") == 0.0


def test_locomos_f1_splits_lists_of_category_1_alone():
    assert f1("1", "guitar, lakes", "lakes, guitars") == 100.0
    assert f1("1", "guitar", "lakes, guitars") == 50.0
    assert f1("4", "guitar", "lakes, guitars") == pytest.approx(200 / 3)


def test_locomos_f1_leaves_the_reasons_of_category_3_out():
    assert f1("3", "Likely no", "Likely no; though she likes to read") == 100.0
    assert f1("4", "Likely no", "Likely no; though she likes to read") < 100.0


@pytest.mark.parametrize(
    ("answer", "score"),
    [(answered("No information available"), 100), (ABSTAINED, 100), (answered("I do not know"), 0), (FAILED, 0)],
)
def test_locomos_f1_wants_its_own_words_on_category_5(answer, score):
    assert PROTOCOLS["locomo-f1"].score(gold("5"), answer, (), FIVE) == {"f1": score}


def test_the_best_of_several_right_answers_counts():
    scores = PROTOCOLS["answer-f1"].score(gold("all", "Lisbon", "Lisboa"), answered("the Lisboa."), (), frozenset())
    assert scores == {"f1": 100.0, "em": 100.0}
    scores = PROTOCOLS["answer-f1"].score(gold("all", "Lisbon"), answered("in Lisbon"), (), frozenset())
    assert scores == {"f1": pytest.approx(200 / 3), "em": 0.0}


def test_words_that_are_punctuation_alone_match_nothing():
    assert best_f1("...", ["Lisbon"]) == 0.0
    assert locomo_words("The, and!") == []
    assert locomo_list_f1(",", "Lisbon") == 0.0
    assert exact_match("Tin Orchard", ["The Tin-Orchard"]) == 0.0


def test_rules_go_to_the_questions_that_they_are_for():
    protocol = PROTOCOLS["longmemeval"]
    assert "off by one" in protocol.markings(gold("temporal-reasoning", "3"), answered("4"))[0].rule
    assert protocol.markings(gold("multi-session", "3"), answered("4"))[0].rule == ""


def test_a_protocol_of_another_task_is_refused_with_those_there_are():
    assert find_protocol("hage", "hotpotqa").name == "hage"
    with pytest.raises(ConfigError, match="'locomo-f1' is no protocol for hotpotqa; there are hage, answer-f1"):
        find_protocol("locomo-f1", "hotpotqa")
