import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.statements import asks, split_sentences
from hgmem_core.summarise import read_statement
from hgmem_core.text import beginning, clean, is_blank, split_text

# Characters that break naive cutting: joiners, marks, flags, Hangul letters, line ends, sentence ends.
TRICKY = st.sampled_from(
    [*'ab \n\r。？…"字한하क👩🇫🇷\u0301\u200d\u094d\u0903\u0600\ufe0f\u3000', "\n\n", ". ", "👩\u200d👧", "\r\n"]
)
TEXTS = st.lists(TRICKY, max_size=60).map("".join) | st.text(max_size=80)
ANY_TEXT = st.text(st.characters(codec=None), max_size=60) | st.text(
    st.sampled_from("a \n\r\x00\x0c\x85\ud83d\ude00\udb40\udc41\ufeff\u200b\U000e0041"), max_size=20
)


@pytest.mark.parametrize(
    ("text", "kept", "kind"),
    [
        ("half \ud83d emoji", "half \ufffd emoji", "lone surrogates"),
        ("a\x00b\x1b\x9bc", "abc", "control characters"),
        ("page one\x0cpage two", "page one\npage two", "control characters"),
        ("seen\U000e0068\U000e0069 text", "seen text", "tag characters"),
        ("\ufeffmarked", "marked", "byte order marks"),
        ("😀\U000e0148\U000e0155 hi", "😀 hi", "variation selectors"),
        ("a\ufe00\ufe01\ufe02b", "ab", "variation selectors"),
    ],
)
def test_what_cannot_be_stored_goes_and_the_note_names_it(text, kept, kind):
    cleaned, note = clean(text)
    assert cleaned == kept
    assert kind in note


def test_each_kind_of_change_is_named_once():
    note = clean("\x00\x01\ud800\U000e0041")[1]
    assert note.count("control") == 1
    assert "surrogates" in note
    assert "tag characters" in note


@pytest.mark.parametrize(
    "text",
    [
        "cafe\u0301",
        "ＡＢＣ",
        "👩\u200d👩\u200d👧",
        "\u202bשלום\u202c",
        "मैं",
        "tab\tand\nline",
        "İı ß",
        "\u00ad",
        "a\u2028b",
        "❤️ 葛\U000e0100城",
    ],
)
def test_ordinary_text_of_any_script_stays_as_it_is(text):
    assert clean(text) == (text, None)


def test_line_ends_become_newlines_without_a_note():
    assert clean(" one\r\ntwo\rthree\r\n ") == ("one\ntwo\nthree", None)


def test_two_surrogates_that_belong_together_become_their_character():
    assert clean("\ud83d\ude00") == ("😀", None)


@given(ANY_TEXT)
def test_clean_text_is_storable_and_cleaning_it_again_changes_nothing(text):
    cleaned, _ = clean(text)
    assert cleaned.encode().decode() == cleaned
    assert not regex.search(r"[\p{Cc}--[\n\t]]", cleaned, flags=regex.V1)
    assert clean(cleaned) == (cleaned, None)


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\u3000\u00a0", "\u200b\u200d\ufeff", "\u200e\u202a\u2066", "\x00\x1f", "ㅤ"]
)
def test_nothing_visible_is_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", [".", "。", " a", "\u200bא", "👍", "\u0301", "\ufffd", "~", "!"])
def test_anything_visible_is_not_blank(text):
    assert not is_blank(text)


@given(TEXTS, st.integers(1, 30))
def test_pieces_join_to_the_text_and_none_is_too_long(text, size):
    pieces = split_text(text, size)
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)


@given(TEXTS, st.integers(1, 12))
def test_no_cut_is_inside_a_cluster_that_would_fit(text, size):
    inside = set()
    for cluster in regex.finditer(r"\X", text):
        if len(cluster[0]) <= size:
            inside.update(range(cluster.start() + 1, cluster.end()))
    cut = 0
    for piece in split_text(text, size)[:-1]:
        cut += len(piece)
        assert cut not in inside


@pytest.mark.parametrize(
    ("text", "size", "first"),
    [
        ("One line.\nTwo.\n\nNext one. And more words", 30, "One line.\nTwo.\n\n"),
        ("Alpha beta gamma.\n\nNext line\nand more words", 34, "Alpha beta gamma.\n\n"),
        ("One sentence. A line\nNext one. And more", 34, "One sentence. A line\n"),
        ("First part is here. Then some more words", 30, "First part is here. "),
        ("这是第一句话。这是第二句话没有说完的部分", 12, "这是第一句话。"),
        ("你来吗？我们等你一起吃饭", 6, "你来吗？"),
        ("मैं गया। वह आ गई थी", 13, "मैं गया। "),
        ("some plain words without an end", 12, "some plain "),
        ("ab cdefghijklmnop", 10, "ab "),
        ("abcdefghijklmnop", 10, "abcdefghij"),
        ("12345678e\u0301x", 9, "12345678"),
        ("1234567 \u0301x and", 8, "1234567"),
        ("🇫🇷🇩🇪🇮🇹", 3, "🇫🇷"),
        ("abcdefgh\r\nx", 9, "abcdefgh"),
    ],
)
def test_cuts_prefer_paragraphs_lines_sentences_blanks_then_characters(text, size, first):
    assert split_text(text, size)[0] == first


def test_a_short_text_is_one_piece_and_an_empty_one_none():
    assert split_text("short", 5) == ["short"]
    assert split_text("", 5) == []


@given(TEXTS, st.integers(1, 12))
def test_a_beginning_ends_between_two_characters_as_seen(text, size):
    found = beginning(text, size)
    assert text.startswith(found)
    assert len(found) <= size
    clusters = regex.findall(r"\X", text)
    if clusters and len(clusters[0]) <= size:
        fits = [sum(map(len, clusters[:count])) for count in range(len(clusters) + 1)]
        assert len(found) == max(length for length in fits if length <= size)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("你来了。吃饭了吗？「好！」走吧。", ["你来了。", "吃饭了吗？", "「好！」", "走吧。"]),
        ("मैं गया। वह आई॥ ठीक है", ["मैं गया।", "वह आई॥", "ठीक है"]),
        ("أين أنت؟ أنا هنا.", ["أين أنت؟", "أنا هنا."]),
        ("وہ آیا۔ میں گیا۔", ["وہ آیا۔", "میں گیا۔"]),
        ("ខ្ញុំទៅ។ អ្នកមក។", ["ខ្ញុំទៅ។", "អ្នកមក។"]),
    ],
)
def test_sentences_end_at_the_marks_of_their_script(text, sentences):
    assert split_sentences(text) == sentences
    assert list(read_statement(None, text, str.split).sentences) == sentences


def test_a_question_mark_of_any_script_asks():
    assert asks("أين أنت؟")
    assert asks("你在哪里？")
    assert not asks("أنا هنا.")


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="max_chars must be at least 1"):
        split_text("text", 0)


@pytest.mark.parametrize("unit", ["a", "字", "🇫🇷", "\u0301", "👩\u200d👧", "한"])
def test_megabytes_without_blanks_are_split_in_time_that_grows_with_their_length(unit):
    began = time.process_time()
    split_text(unit * (1_000_000 // len(unit)), 32_768)
    assert time.process_time() - began < 5  # takes 0.1 s; quadratic work takes minutes
