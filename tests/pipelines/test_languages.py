import pytest

from tests.pipelines.asked_languages import built, read, recall

CHINESE, ASKED = read("chinese.jsonl")
MIXED, ASKED_MIXED = read("languages.jsonl")


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    return built(tmp_path_factory.mktemp("minilm"), CHINESE, "minilm")


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    return built(tmp_path_factory.mktemp("multilingual"), CHINESE, "multilingual")


def test_chinese_is_found_by_its_words(minilm):
    assert recall(minilm, ASKED, "bm25", 3) >= 0.7


@pytest.mark.parametrize(("word", "turn"), [("壁画", "m15"), ("肖邦", "m43"), ("牙", "m22"), ("西湖", "m01")])
def test_a_word_inside_a_sentence_is_found_and_first(minilm, word, turn):
    assert minilm.search("acme/talk", word, recipe="bm25", k=1).hits[0].source_id == turn


def test_an_encoder_that_does_not_understand_a_question_leaves_it_to_the_words(minilm):
    assert not minilm.encode(["林雨搬到哪个城市去住了？", "Где живёт Аня?"]).any()
    assert minilm.encode(["Where does Lin Yu live?", "Wo wohnt Jonas?"]).any(axis=1).all()
    for k in (1, 3, 10):
        assert recall(minilm, ASKED, "hybrid", k) == recall(minilm, ASKED, "bm25", k)
    assert recall(minilm, ASKED, "hypergraph", 10) >= 0.9


@pytest.mark.parametrize("recipe", ["dense", "hypermem", "magma-static", "hage:static"])
def test_no_recipe_fails_on_a_question_that_is_not_understood(minilm, recipe):
    found = minilm.search("acme/talk", ASKED[0][0], recipe=recipe, k=3)
    assert found.hits or found.reason == "no_match"


def test_the_multilingual_encoder_finds_what_is_said_in_other_words(multilingual):
    assert recall(multilingual, ASKED, "hypergraph", 3) >= 0.9
    assert recall(multilingual, ASKED, "hypergraph", 3) > recall(multilingual, ASKED, "bm25", 3)
    across = [("Which city did Lin Yu move to?", {"m01"}), ("Which instrument does she get?", {"m42"})]
    assert recall(multilingual, across, "dense", 5) == 1.0


def test_words_of_several_languages_in_one_log_are_found_by_their_stems(tmp_path):
    assert recall(built(tmp_path, MIXED, "static"), ASKED_MIXED, "bm25", 1) >= 0.9
