"""Encoders and rerankers by name at vLLM's own server, against the same models computed by hand."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hgmem_core.encoding import encode_documents, encode_queries
from hgmem_core.model_config import EncoderConfig, RerankConfig
from hgmem_core.rerank import qwen3_document, qwen3_query
from pipelines.encoders import open_encoder
from pipelines.rerankers import open_reranker
from tests.vllm.conftest import CONTEXT_TOKENS, served
from tests.vllm.tiny_qwen3 import DIMENSION

QUERY = "Is it naïve?"
TEXTS = ["yes", "你好 — 你好", "no " * 50]
TOLERANCE = 1e-4


def last_states(folder, prompts):
    """The model, its tokeniser, and the last token's state of each prompt."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model.model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1] for text in prompts]
    return model, tokenizer, torch.stack(states)


@pytest.fixture(scope="module")
def odds(checkpoint):
    """The odds of `yes` after each document in the form that the reranker reads."""
    prompts = [qwen3_query("Find", QUERY) + qwen3_document(text) for text in TEXTS]
    model, tokenizer, states = last_states(checkpoint["reranker"], prompts)
    logits = model.lm_head(states)[:, tokenizer.convert_tokens_to_ids(["no", "yes"])]
    return torch.softmax(logits, dim=1)[:, 1].detach().numpy()


def test_an_encoder(checkpoint):
    with served(checkpoint["embedding"], "--runner", "pooling", "--convert", "embed") as url:
        settings = {"name": "http", "model": "tiny", "query_instruction": "Find", "http": {"url": f"{url}/v1"}}
        encoder = open_encoder(EncoderConfig(**settings, max_tokens=CONTEXT_TOKENS))
        half = open_encoder(EncoderConfig(**settings, max_tokens=CONTEXT_TOKENS, dimension=DIMENSION // 2))
        found = [*encode_queries(encoder, [QUERY]), *encode_documents(encoder, TEXTS, [0, len(TEXTS)], 2)]
        cut = encode_queries(half, [QUERY])
        longest = "a" * (CONTEXT_TOKENS - 2)
        assert encode_documents(encoder, [longest, 2 * longest], [0, 2], 2).all(axis=1).all()
    prompts = [f"Instruct: Find\nQuery:{QUERY}", *TEXTS]
    _, _, states = last_states(checkpoint["embedding"], prompts)
    np.testing.assert_allclose(found, torch.nn.functional.normalize(states).numpy(), atol=TOLERANCE)
    expected = torch.nn.functional.normalize(states[:1, : DIMENSION // 2]).numpy()
    np.testing.assert_allclose(cut, expected, atol=TOLERANCE)


def scores(url, protocol):
    settings = {"engine": "http", "model": "tiny", "template": "qwen3", "instruction": "Find", "protocol": protocol}
    http = {"url": f"{url}/v1", "timeout_seconds": 300.0}
    return open_reranker(RerankConfig(**settings, http=http)).scorer.scores(QUERY, TEXTS)


def test_a_reranker(checkpoint, odds):
    overrides = {
        "architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["no", "yes"],
        "is_original_qwen3_reranker": True,
    }
    with served(checkpoint["reranker"], "--runner", "pooling", "--hf-overrides", json.dumps(overrides)) as url:
        np.testing.assert_allclose(scores(url, "rerank"), odds, atol=TOLERANCE)


def test_a_language_model_that_says_yes_or_no(checkpoint, odds):
    with served(checkpoint["reranker"]) as url:
        found = scores(url, "yes_no")
    # Only the likeliest tokens are told: a word that is not among them counts as very unlikely.
    assert found.shape == odds.shape
    assert ((found >= 0) & (found <= 1)).all()
