import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.tokens import fold, tokenizer

tokenize = tokenizer("english")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("café", "cafe\u0301"),
        ("ＡＢＣ１２３", "abc123"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ISPARTA", "ısparta"),
        ("ﬁne", "fine"),
        ("don’t", "don't"),
    ],
)
def test_forms_of_one_word_are_one_term(text, same):
    assert tokenize(text) == tokenize(same) != []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("I use C++ and C#", ["i", "use", "c++", "c#"]),
        ("don't", ["don't"]),
        ("3.14 and 1,000,000", ["3.14", "1000000"]),
        ("on 2023-05-08", ["2023-05-08", "2023", "05", "08"]),
        ("at 12:30", ["12:30", "12", "30"]),
        ("running runs", ["run", "run"]),
        ("मैं स्कूल गया", ["मैं", "स्कूल", "गय"]),
        ("the of and", []),
        ("👩‍👩‍👧 !!! …", []),
        ("", []),
    ],
)
def test_terms(text, terms):
    assert tokenize(text) == terms


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("我昨天去了北京大学", "北京"),
        ("昨日は東京に行きました", "東京"),
        ("ฉันไปโรงเรียน", "เรียน"),
        ("안녕하세요 서울", "서울"),
    ],
)
def test_a_word_inside_a_sentence_without_spaces_is_found(sentence, word):
    assert set(tokenize(word)) <= set(tokenize(sentence))


def test_one_han_character_is_found_too():
    assert set(tokenize("猫")) <= set(tokenize("我的猫很可爱"))


def test_stems_and_stop_words_follow_the_language():
    assert tokenizer("german")("die Häuser") == tokenizer("german")("Häuser")
    assert tokenize("Пошли домой") == tokenizer("german")("Пошли домой")


@given(st.text())
def test_folding_twice_changes_nothing_more_and_terms_survive_it(text):
    assert fold(fold(text)) == fold(text)
    assert tokenize(fold(text)) == tokenize(text)


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_the_fast_way_for_ascii_equals_the_general_one(text):
    # One letter beyond ASCII, apart from the text, sends the whole of it through the general grammar.
    assert tokenize(text + " é") == [*tokenize(text), "é"]
