import numpy as np
import pytest

from hgmem_core.chat import ModelError
from hgmem_core.encoding import encode_queries
from hgmem_core.model_config import EncoderConfig
from pipelines.encoders import open_encoder
from pipelines.serve_encoding import encode_together, vector_of


class Picky:
    """An encoder that refuses a whole batch for one text."""

    def __init__(self, encoder):
        self._encoder = encoder
        self.identity = encoder.identity
        self.makes_batches = True

    def tokenize(self, texts):
        if any("bad" in text for text in texts):
            raise ModelError("the server refuses a text")
        return self._encoder.tokenize(texts)

    def understands(self, tokens):
        return True

    def encode_batch(self, pieces):
        return self._encoder.encode_batch(pieces)


@pytest.fixture(scope="module")
def static():
    return open_encoder(EncoderConfig(name="static"))


def test_questions_of_several_encoders_get_their_own_vectors_in_order(static):
    picky = Picky(static)
    asked = [(static, "a red bicycle"), (picky, "tea"), (static, ""), (picky, "the harbour")]
    found = encode_together(asked)
    for vector, (_, text) in zip(found, asked, strict=True):
        assert np.array_equal(vector, encode_queries(static, [text])[0])


def test_a_question_that_cannot_be_encoded_hurts_no_neighbour(static):
    picky = Picky(static)
    good, bad, other = encode_together([(picky, "tea"), (picky, "bad"), (picky, "the harbour")])
    assert np.array_equal(vector_of(good), encode_queries(static, ["tea"])[0])
    assert np.array_equal(vector_of(other), encode_queries(static, ["the harbour"])[0])
    with pytest.raises(ModelError, match="refuses"):
        vector_of(bad)
