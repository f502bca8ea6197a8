import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.summarise import SUMMARY_CHARS, TITLE_CHARS, read_statement, shorten, summarise
from hgmem_core.tokens import tokenizer

TOKENIZE = tokenizer("english")


def summed_up(*said, vectors=None):
    statements = [read_statement(speaker, text, TOKENIZE) for speaker, text in said]
    return summarise(statements, np.zeros((len(said), 2), np.float32) if vectors is None else vectors)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("I moved. To Lisbon! Really?", ["I moved.", "To Lisbon!", "Really?"]),
        ("wow ! ! ! so  good . . .", ["wow ! ! !", "so good . . ."]),
        ("我搬家了。去里斯本！", ["我搬家了。", "去里斯本！"]),
        ("one\n\ntwo", ["one", "two"]),
        ("version 3.5 of it", ["version 3.5 of it"]),
        ("🙂", ["🙂"]),
        ("  ", []),
    ],
)
def test_texts_become_sentences(text, sentences):
    assert list(read_statement(None, text, TOKENIZE).sentences) == sentences


def test_what_many_say_is_central():
    title, summary = summed_up(
        ("Ana", "The lemon harvest on our farm begins in October this year."),
        ("Bo", "My bicycle has a flat tyre again, so I walked all the way home."),
        ("Ana", "Our farm needs twenty people for the lemon harvest in October."),
        ("Bo", "I would help with the lemon harvest on the farm in October."),
    )
    assert "lemon harvest" in title
    assert summary.index("begins") < summary.index("twenty") < summary.index("would help")
    assert summary.startswith("Ana: The lemon harvest")
    assert "Bo: " in summary


def test_vectors_decide_between_equal_words():
    said = [("Ana", "alpha beta gamma delta"), ("Bo", "epsilon zeta eta theta"), ("Ana", "iota kappa omega sigma")]
    vectors = np.array([[1, 0], [0, 1], [0.1, 0.995]], np.float32)
    assert summed_up(*said, vectors=vectors)[0] in ("epsilon zeta eta theta", "iota kappa omega sigma")


def test_a_speaker_is_named_once_in_a_run_and_nobody_where_unknown():
    assert summed_up(("Ana", "Tea is warm."), ("Ana", "Rain is cold."))[1] == "Ana: Tea is warm. Rain is cold."
    assert summed_up((None, "Tea is warm."), ("Bo", "Rain is cold."))[1] == "Tea is warm. Bo: Rain is cold."


def test_what_is_said_twice_is_told_once():
    assert summed_up(("Ana", "Tea is warm."), ("Ana", "Tea is warm."))[1] == "Ana: Tea is warm."


def test_a_statement_stands_before_a_question():
    assert summed_up(("Ana", "Is green lemon tea warm?"), ("Bo", "Green lemon tea is warm."))[0].startswith("Green")


def test_nothing_said_gives_nothing():
    assert summed_up() == summed_up(("Ana", " ")) == ("", "")


@given(st.lists(st.tuples(st.sampled_from(["Ana", None]), st.text(max_size=600)), max_size=6))
def test_lengths_hold_for_any_text(said):
    title, summary = summed_up(*said)
    assert len(title) <= TITLE_CHARS
    assert len(summary) <= SUMMARY_CHARS


def test_long_texts_are_cut_after_a_word():
    assert shorten("seven tickets to Lisbon", 16) == "seven tickets…"
    assert shorten("fits", 4) == "fits"
    assert len(shorten("a" * 100, 10)) == 10
    assert shorten("👩‍👩‍👧" * 30, 20).rstrip("…") in {"👩‍👩‍👧" * count for count in range(1, 5)}
