"""Vectors and scores of vLLM in this process, against the same models computed by hand."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hgmem_core.chat import ModelError
from hgmem_core.rerank import RerankError
from pipelines.vllm_pooling import VllmEmbedder, VllmScorer
from tests.vllm.conftest import CONTEXT_TOKENS, ENGINE_KWARGS
from tests.vllm.tiny_qwen3 import DIMENSION

TEXTS = ["yes", "Is it naïve?", "你好 — 你好", "no " * 50]
QUERY = "Query: is it? Document: "
TOLERANCE = 1e-4
ENDS_WITHIN_SECONDS = 600


def last_states(folder, texts):
    """The model, its tokeniser, and the last token's state of each text."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model.model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1] for text in texts]
    return model, tokenizer, torch.stack(states)


@pytest.fixture(scope="module")
def vectors(checkpoint):
    _, _, states = last_states(checkpoint["embedding"], TEXTS)
    return torch.nn.functional.normalize(states).numpy()


@pytest.fixture(scope="module")
def scores(checkpoint):
    model, tokenizer, states = last_states(checkpoint["reranker"], [QUERY + text for text in TEXTS])
    odds = model.lm_head(states)[:, tokenizer.convert_tokens_to_ids(["no", "yes"])]
    return torch.softmax(odds, dim=1)[:, 1].detach().numpy()


def test_vectors_of_the_engine(checkpoint, vectors):
    embedder = pickle.loads(pickle.dumps(VllmEmbedder(str(checkpoint["embedding"]), ENGINE_KWARGS)))
    found = embedder.embed([*TEXTS, "a" * 2 * CONTEXT_TOKENS])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:-1], vectors, atol=TOLERANCE)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=TOLERANCE)
    assert embedder.embed([]).shape == (0, DIMENSION)


def test_a_script_of_its_own_comes_to_an_end(checkpoint, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import jobs.query
from pipelines.vllm_pooling import VllmEmbedder

if __name__ == "__main__":
    embedder = VllmEmbedder({str(checkpoint["embedding"])!r}, {ENGINE_KWARGS!r})
    print("dimension", embedder.embed(["yes"]).shape[1])
"""
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=ENDS_WITHIN_SECONDS)
    assert f"dimension {DIMENSION}" in ended.stdout, ended.stderr


def test_odds_of_yes_as_scores_of_the_engine(checkpoint, scores):
    scorer = pickle.loads(pickle.dumps(VllmScorer(str(checkpoint["reranker"]), ENGINE_KWARGS, yes_or_no=True)))
    found = scorer.scores(QUERY, [*TEXTS, "a" * 2 * CONTEXT_TOKENS])
    assert found.dtype == np.float32
    assert len(found) == len(TEXTS) + 1
    np.testing.assert_allclose(found[:-1], scores, atol=TOLERANCE)
    assert scorer.scores(QUERY, []).shape == (0,)


def test_scores_of_a_model_with_a_head_of_its_own(checkpoint, scores):
    found = VllmScorer(str(checkpoint["scorer"]), ENGINE_KWARGS, yes_or_no=False).scores(QUERY, TEXTS)
    np.testing.assert_allclose(found, scores, atol=TOLERANCE)


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match=r"vLLM cannot run .*/nothing") as caught:
        VllmEmbedder(str(tmp_path / "nothing"), {}).embed(["a"])
    assert "\n" not in str(caught.value)
    with pytest.raises(RerankError, match=r"vLLM cannot run .*/nothing"):
        VllmScorer(str(tmp_path / "nothing"), {}, yes_or_no=False).scores("a", ["b"])
