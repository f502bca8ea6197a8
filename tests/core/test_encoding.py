"""Splitting, batching and averaging, against an encoder small enough to reckon by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from hgmem_core import encoding
from hgmem_core.encoding import (
    EncoderIdentity,
    EncodingError,
    Vectors,
    count_tokens,
    encode_documents,
    encode_queries,
    encode_texts,
    split_evenly,
)

DIMENSION = 3


class LetterEncoder:
    """One token a letter, white space apart; a piece is its letters' mean, bent so that splitting shows."""

    identity = EncoderIdentity("letters", "0" * 64, DIMENSION, 7, "", "mean", True, "fp32")
    makes_batches = False

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text if not letter.isspace()] for text in texts]

    def understands(self, tokens: Sequence[int]) -> bool:
        return ord("?") not in tokens

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        self.batches.append([len(piece) for piece in pieces])
        return np.array([self.vector(piece) for piece in pieces], dtype=np.float32).reshape(-1, DIMENSION)

    @staticmethod
    def vector(piece: Sequence[int]) -> list[float]:
        return [np.sin(sum(piece)), len(piece) ** 0.5, np.cos(piece[0])]


class BrokenEncoder(LetterEncoder):
    """Gives what it is told to for the text that holds a `!`."""

    def __init__(self, answer: Vectors) -> None:
        super().__init__()
        self.answer = answer

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        if any(ord("!") in piece for piece in pieces):
            return self.answer
        return super().encode_batch(pieces)


TEXTS = [
    "river",
    "a",
    "",
    "the quick brown fox jumps over the lazy dog",
    " \n\t",
    "abcdef",
    "abcde",
    "river",
    "twelve chars",
    "漢字かな交じり文とemoji🙂",
]


def obvious(texts: Sequence[str]) -> Vectors:
    """One piece at a time, in the order of the texts."""
    encoder, rows = LetterEncoder(), []
    for text in texts:
        ids = [ord(letter) for letter in text if not letter.isspace()]
        total = np.zeros(DIMENSION)
        for piece in split_evenly(ids, 5):
            total += len(piece) * np.array(encoder.vector(piece))
        rows.append(total / np.linalg.norm(total) if ids else total)
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 32])
def test_matches_the_obvious_loop(batch_size):
    vectors = encode_texts(LetterEncoder(), TEXTS, batch_size)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, obvious(TEXTS), atol=1e-6)


def test_blank_texts_are_rows_of_zeros_and_others_have_unit_length():
    lengths = np.linalg.norm(encode_texts(LetterEncoder(), TEXTS), axis=1)
    np.testing.assert_allclose(lengths, [float(bool(text.strip())) for text in TEXTS], atol=1e-6)


def test_no_texts_and_only_blank_texts():
    assert encode_texts(LetterEncoder(), []).shape == (0, DIMENSION)
    assert not encode_texts(LetterEncoder(), ["", " "]).any()


def test_neither_order_nor_batching_changes_a_bit():
    vectors = encode_texts(LetterEncoder(), TEXTS, 32)
    order = np.random.default_rng(7).permutation(len(TEXTS))
    for batch_size in (1, 3, 32):
        assert np.array_equal(
            encode_texts(LetterEncoder(), [TEXTS[place] for place in order], batch_size), vectors[order]
        )


@pytest.mark.parametrize(("texts_limit", "chars_limit"), [(1, 10_000), (3, 10_000), (4096, 20)])
def test_windows_do_not_change_a_bit(monkeypatch, texts_limit, chars_limit):
    whole = encode_texts(LetterEncoder(), TEXTS)
    monkeypatch.setattr(encoding, "WINDOW_TEXTS", texts_limit)
    monkeypatch.setattr(encoding, "WINDOW_CHARS", chars_limit)
    assert np.array_equal(encode_texts(LetterEncoder(), TEXTS), whole)


def test_batches_hold_pieces_of_like_length_within_the_limits():
    encoder = LetterEncoder()
    encode_texts(encoder, TEXTS * 3, batch_size=4)
    lengths = [length for batch in encoder.batches for length in batch]
    assert lengths == sorted(lengths)
    assert max(lengths) == 5
    assert max(map(len, encoder.batches)) == 4


@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 10, 11, 254])
def test_split_keeps_every_id_in_the_fewest_even_runs(length):
    pieces = split_evenly(list(range(length)), 5)
    assert [token for piece in pieces for token in piece] == list(range(length))
    assert len(pieces) == -(-length // 5)
    sizes = [len(piece) for piece in pieces]
    assert not sizes or (max(sizes) <= 5 and max(sizes) - min(sizes) <= 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_no_number_names_its_text(value):
    answer = np.ones((1, DIMENSION), dtype=np.float32)
    answer[0, 1] = value
    with pytest.raises(EncodingError, match="text 2"):
        encode_texts(BrokenEncoder(answer), ["fine", "good", "bad!", "well"], batch_size=1)


def test_the_place_counts_from_the_first_window(monkeypatch):
    monkeypatch.setattr(encoding, "WINDOW_TEXTS", 2)
    answer = np.full((1, DIMENSION), np.nan, dtype=np.float32)
    with pytest.raises(EncodingError, match="text 5"):
        encode_texts(BrokenEncoder(answer), ["a", "b", "c", "d", "e", "f!"], batch_size=1)


@pytest.mark.parametrize("shape", [(2, DIMENSION), (1, DIMENSION + 1), (DIMENSION,)])
def test_a_wrong_shape_is_refused(shape):
    with pytest.raises(EncodingError, match="text 1"):
        encode_texts(BrokenEncoder(np.ones(shape, dtype=np.float32)), ["fine", "bad!"], batch_size=1)


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(ValueError, match="batch_size"):
        encode_texts(LetterEncoder(), ["a"], batch_size=0)


def test_count_tokens():
    assert count_tokens(LetterEncoder(), "a bc") == 3
    assert count_tokens(LetterEncoder(), " ") == 0


def test_a_query_that_is_not_understood_gives_zeros_and_a_document_its_vector():
    encoder = LetterEncoder()
    queries = encode_queries(encoder, ["tea", "tea?"])
    assert queries[0].any()
    assert not queries[1].any()
    assert encode_documents(encoder, ["tea?"], [0, 1], 32).any()
