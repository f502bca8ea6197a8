import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.folding import fold
from hgmem_core.tokens import tokenizer

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
        ("co\u00adoperate", "cooperate"),
        ("pass\u200bword", "password"),
        ("\u202bשלום\u202c", "שלום"),
        ("میخواهم", "می\u200cخواهم"),
        ("a\U000e0068b", "ab"),
        ("葛\U000e0100", "葛"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
        ("1,000", "1000"),
        ("1,00,000", "100000"),
        ("3,5", "3.5"),
        ("٣٫٥", "3.5"),
        ("२०२४", "2024"),
        ("U.S.A.", "USA"),
        ("getUserName", "get_user_name"),
        ("YouTube", "You Tube YouTube"),
    ],
)
def test_forms_of_one_word_are_one_term(text, same):
    assert set(tokenize(text)) == set(tokenize(same)) != set()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("I use C++ and C#", ["i", "use", "c++", "c#"]),
        ("don't", ["don't"]),
        ("3.14 and 1,000,000", ["3.14", "1000000"]),
        ("notepad++ or g++", ["notepad++", "g++"]),
        (".NET and .env", [".net", "net", ".env", "env"]),
        ("AC/DC", ["ac", "dc"]),
        ("#trip @ana", ["trip", "ana"]),
        ("ana.lee@example.com", ["ana.lee@example.com", "ana", "lee", "exampl", "com"]),
        ("https://example.com/x", ["https", "example.com", "exampl", "com", "x"]),
        ("src/main_loop.py", ["src", "mainloop.pi", "main", "loop", "py"]),
        ("on 2023-05-08", ["2023-05-08", "2023", "05", "08"]),
        ("at 12:30", ["12:30", "12", "30"]),
        ("2023-05-08T12:30", ["2023-05-08t12:30", "2023-05-08", "2023", "05", "08", "12:30", "12", "30"]),
        ("v3.11.4", ["v3.11.4", "3.11.4", "3.11", "3", "11", "4"]),
        ("8,2023", ["8,2023", "8", "2023"]),
        ("5pm", ["5pm", "5", "pm"]),
        ("3.5kg", ["3.5kg", "3.5", "kg"]),
        ("550e8400-e29b", ["550e8400", "e29b"]),
        ("x C D", ["x", "c", "d"]),
        ("Ana's friends won't", ["ana", "friend", "won't"]),
        ("l'amour", ["l'amour", "amour"]),
        ("ISPARTA'da", ["isparta'da", "isparta", "da"]),
        ("running runs", ["run", "run"]),
        ("मैं स्कूल गया", ["मैं", "स्कूल", "गय"]),
        ("the of and", []),
        ("👩‍👩‍👧 ❤️ !!! …", []),
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
        ("서울에서 만났어요", "서울"),
        ("ຂ້ອຍຢູ່ວຽງຈັນ", "ວຽງຈັນ"),
        ("ខ្ញុំរស់នៅភ្នំពេញ", "ភ្នំពេញ"),
        ("ကျွန်တော်ရန်ကုန်မှာနေတယ်", "ရန်ကုန်"),
        ("我用Python写代码", "代码"),
    ],
)
def test_a_word_inside_a_sentence_without_spaces_is_found(sentence, word):
    assert set(tokenize(word)) <= set(tokenize(sentence))


def test_one_han_character_is_found_too():
    assert set(tokenize("猫")) <= set(tokenize("我的猫很可爱"))


def test_stems_and_stop_words_follow_the_language():
    assert tokenizer("german")("die Häuser") == tokenizer("german")("Häuser")
    assert tokenize("Пошли домой") == tokenizer("german")("Пошли домой")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Wir haben drei alte Häuser gekauft.", "Welches Haus habt ihr gekauft?"),
        ("Mis hermanas cantaban en el coro.", "¿Quién es la hermana que cantaba?"),
        ("J'ai vu l'exposition avec mes cousines.", "Quelle exposition ? Avec quel cousin ?"),
        ("Le mie sorelle hanno visto l'isola.", "Quando è andata sull'isola mia sorella?"),
        ("As minhas filhas moravam em Lisboa.", "Onde morava a minha filha?"),
        ("Jag köpte två gamla böcker av min granne.", "Vem köpte en gammal bok av grannen?"),
        ("Я вчера купила новые книги для брата.", "Какую книгу купили брату?"),
    ],
)
def test_a_text_gets_the_stems_of_its_own_language_whatever_is_configured(said, asked):
    assert len(set(tokenize(said)) & set(tokenize(asked))) >= 2


@pytest.mark.parametrize(
    "text",
    ["Der die das und ist nicht.", "¿Qué es esto?", "Wo ist das?", "и он не был", "Are they not that?"],
)
def test_stop_words_of_any_language_give_no_terms(text):
    assert set(tokenize(text)) <= {"wo"}


@pytest.mark.parametrize(
    "text",
    ["Come here, Ben Allen!", "Die Hard, then Ella sang in Los Angeles.", "My dog hates it.", "MIT, AT&T"],
)
def test_english_with_words_that_other_languages_have_too_stays_english(text):
    assert tokenize(text) == tokenize(f"{text} the the the the the the the")


@given(st.text())
def test_folding_twice_changes_nothing_more_and_terms_survive_it(text):
    assert fold(fold(text)) == fold(text)
    assert set(tokenize(fold(text))) <= set(tokenize(text))


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_the_fast_way_for_ascii_equals_the_general_one(text):
    # One letter beyond ASCII, apart from the text, sends the whole of it through the general grammar.
    assert tokenize(text + " ψ") == [*tokenize(text), "ψ"]


@given(st.text(st.sampled_from("aB1._@'+#T-:,v \u0301éЯ北ｱ한ก")))
def test_terms_do_not_depend_on_forms_or_on_what_is_not_shown(text):
    shown = "\u200b".join(text)
    assert tokenize(unicodedata.normalize("NFD", text)) == tokenize(unicodedata.normalize("NFC", text))
    assert tokenize(shown) == tokenize(text)
