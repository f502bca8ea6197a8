"""The torch encoder says what the exported one says, which equals transformers' by its own tests."""

import numpy as np
import pytest
import torch

from hgmem_core.encoding import split_evenly
from pipelines.bert_torch import bert_vectors, load_bert
from pipelines.minilm import MiniLM, minilm_folder
from tests.pipelines.tiny_bert import tiny_bert

TEXTS = [
    "ok",
    "Where does Ada live now?",
    "(1:56 pm on 8 May, 2023) Ada: Guess! >> Bo: naïve café 漢字 🙂",
    "On day seven the keeper of the lighthouse counted 21 gulls and wrote a letter. " * 14,
]


def padded(pieces, length):
    ids = torch.tensor([[101, *piece, 102, *[7] * (length - len(piece) - 2)] for piece in pieces])
    return ids, torch.arange(length) < torch.tensor([[len(piece) + 2] for piece in pieces])


def test_equals_the_exported_encoder_whatever_the_padding(tmp_path):
    folder = minilm_folder()
    config = folder.config()
    tensors = load_bert(folder.weights(), config, "cpu")
    encoder = MiniLM(tmp_path)
    pieces = [split_evenly(ids, 254)[0] for ids in encoder.tokenize(TEXTS)]
    longest = max(map(len, pieces)) + 2
    assert longest > 200
    expected = encoder.encode_batch(pieces)
    with torch.no_grad():
        together = bert_vectors(tensors, config, *padded(pieces, longest + 9)).numpy()
        alone = [bert_vectors(tensors, config, *padded([piece], len(piece) + 2)).numpy()[0] for piece in pieces]
    np.testing.assert_allclose(together, expected, atol=1e-5)
    np.testing.assert_allclose(alone, expected, atol=1e-5)


def test_what_is_no_bert_is_refused(tmp_path):
    folder = tiny_bert(tmp_path)
    weights, config = folder.weights(), folder.config()
    with pytest.raises(ValueError, match="hidden_act is 'relu'"):
        load_bert(weights, {**config, "hidden_act": "relu"}, "cpu")
    del weights["encoder.layer.1.output.dense.bias"]
    with pytest.raises(ValueError, match=r"no tensor 'encoder\.layer\.1\.output\.dense\.bias' \(1 are missing\)"):
        load_bert(weights, config, "cpu")
