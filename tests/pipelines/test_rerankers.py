"""Rerankers at a server by each protocol, here as a cross-encoder, on vLLM; Qwen3's form; queries that survive them."""

import math
import socket

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoModelForCausalLM, AutoTokenizer

from hgmem_core.model_config import RerankConfig
from hgmem_core.recipes import MODEL_FREE
from hgmem_core.rerank import INSTRUCTION, RerankError, qwen3_document, qwen3_query
from pipelines import encoders, vllm_pooling
from pipelines.encoders import EncoderError, open_encoder
from pipelines.rerankers import LocalScorer, open_reranker
from pipelines.retriever import Retriever
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.scripted_server import Scripted, ScriptedServer
from tests.pipelines.tiny_models import tiny_cross_encoder
from tests.vllm.tiny_qwen3 import write_tiny_qwen3

QWEN3 = "Qwen/Qwen3-Reranker-0.6B"
DOCUMENTS = ["Ana: I like tea.", "Bo: the violin lesson is on Friday.", "Ana: my violin is red."]


@pytest.fixture
def server():
    with ScriptedServer(models={"scripted": None, QWEN3: None, None: None}) as server:
        yield server


def served(server, model="scripted", protocol="rerank", url=None, **settings):
    http = {"url": url or server.url, "timeout_seconds": 5.0}
    return open_reranker(RerankConfig(engine="http", model=model, protocol=protocol, http=http, **settings))


def test_none_is_none():
    assert open_reranker(RerankConfig()) is None


def test_a_server_scores_texts_as_they_are(server):
    scores = served(server).scorer.scores("violin lesson", DOCUMENTS)
    np.testing.assert_allclose(scores, [0.0, 1.0, 0.5])
    assert scores.dtype == np.float32
    [request] = server.log
    assert request.path == "/v1/rerank"
    assert request.body == {"model": "scripted", "query": "violin lesson", "documents": DOCUMENTS}


def test_a_server_without_a_version_in_its_path(server):
    served(server, url=server.root).scorer.scores("violin", DOCUMENTS)
    assert server.log[-1].path == "/rerank"


def test_text_embeddings_inference_has_names_of_its_own(server):
    server.script = lambda body: Scripted(document=[{"index": 1, "score": 0.9}, {"index": 0, "score": 0.25}])
    scores = served(server, protocol="tei", url=server.root).scorer.scores("violin", DOCUMENTS[:2])
    np.testing.assert_allclose(scores, [0.25, 0.9])
    assert server.log[-1].body == {"query": "violin", "texts": DOCUMENTS[:2], "truncate": True}


def test_qwen3_is_given_its_own_form(server):
    served(server, QWEN3, instruction="Find lessons").scorer.scores("violin?", DOCUMENTS[:1])
    served(server, QWEN3).scorer.scores("violin?", DOCUMENTS[:1])
    served(server, QWEN3, template="none").scorer.scores("violin?", DOCUMENTS[:1])
    served(server, "scripted", template="qwen3").scorer.scores("violin?", DOCUMENTS[:1])
    own, default, bare, asked = (request.body for request in server.log)
    assert own["query"] == qwen3_query("Find lessons", "violin?")
    assert own["documents"] == [qwen3_document(DOCUMENTS[0])]
    assert default["query"] == asked["query"] == qwen3_query(INSTRUCTION, "violin?")
    assert (bare["query"], bare["documents"]) == ("violin?", DOCUMENTS[:1])


def test_odds_of_yes_against_no(server):
    likeliest = [{"yes": -0.1, "no": -2.5, "Yes": -3.0}, {"no": -0.01}, {"yes": -9999.0, "no": -0.01}]
    choices = [{"index": at, "text": "", "logprobs": {"top_logprobs": [said]}} for at, said in enumerate(likeliest)]
    server.script = lambda body: Scripted(document={"choices": choices[::-1]})
    scores = served(server, protocol="yes_no").scorer.scores("violin?", DOCUMENTS)
    yes = [math.exp(-0.1), math.exp(-10.0), 0.0]
    no = [math.exp(-2.5), math.exp(-0.01), math.exp(-0.01)]
    np.testing.assert_allclose(scores, [y / (y + n) for y, n in zip(yes, no, strict=True)], rtol=1e-6)
    [request] = server.log
    assert request.path == "/v1/completions"
    settings = {name: request.body[name] for name in ("max_tokens", "temperature", "logprobs")}
    assert settings == {"max_tokens": 1, "temperature": 0, "logprobs": 20}
    prompt = qwen3_query(INSTRUCTION, "violin?")
    assert request.body["prompt"] == [prompt + qwen3_document(text) for text in DOCUMENTS]


@pytest.mark.parametrize(
    ("protocol", "answer", "why"),
    [
        ("rerank", Scripted(document={"results": [{"index": 0, "relevance_score": 1.0}]}), "1 scores for 3 candidates"),
        ("rerank", Scripted(document={"results": [{"index": 0}]}), "no list of scores"),
        ("rerank", Scripted(document=[1, 2, 3]), "no list of scores"),
        ("rerank", Scripted(status=400, message="too long"), "did not take the candidates .*too long"),
        ("rerank", Scripted(status=500, message="out of memory"), "out of memory"),
        ("yes_no", Scripted(), "log probabilities"),
        ("yes_no", Scripted(document={"choices": [{"index": 0, "logprobs": None}]}), "log probabilities"),
    ],
)
def test_what_is_no_score_is_a_failure_in_one_line(server, protocol, answer, why):
    server.script = lambda body: answer
    with pytest.raises(RerankError, match=why) as failure:
        served(server, protocol=protocol).scorer.scores("violin?", DOCUMENTS)
    assert "\n" not in str(failure.value)


def test_a_server_that_comes_back_is_asked_again(server):
    reranking = served(server)
    server.die()
    with pytest.raises(RerankError, match="start the server"):
        reranking.scorer.scores("violin", DOCUMENTS)
    server.revive()
    assert reranking.scorer.scores("violin", DOCUMENTS)[2] == 1.0


def test_a_cross_encoder_scores_as_sentence_transformers_does(tmp_path):
    model = tiny_cross_encoder(tmp_path / "cross")
    reranking = open_reranker(RerankConfig(engine="sentence-transformers", model=model))
    expected = CrossEncoder(model, device="cpu").predict([("violin?", text) for text in DOCUMENTS])
    np.testing.assert_allclose(reranking.scorer.scores("violin?", DOCUMENTS), expected, atol=1e-6)


def test_a_classifier_is_no_reranker(tmp_path):
    model = tiny_cross_encoder(tmp_path / "cross", labels=3)
    with pytest.raises(EncoderError, match=r"rerank\.model: .* gives 3 numbers for a pair"):
        open_reranker(RerankConfig(engine="sentence-transformers", model=model))


def test_a_cross_encoder_that_is_not_here_is_not_fetched(monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(EncoderError, match=r"rerank\.model: acme/none is not on this machine.*rerank\.download=true"):
        open_reranker(RerankConfig(engine="sentence-transformers", model="acme/none"))


def test_vllm_is_given_qwen3s_form_and_told_of_yes_and_no(monkeypatch, tmp_path):
    made = []

    class Recording:
        def __init__(self, *arguments):
            made.append(arguments)

        def scores(self, query, documents):
            made.append((query, documents))
            return np.zeros(len(documents), np.float32)

    monkeypatch.setattr(vllm_pooling, "VllmScorer", Recording)
    monkeypatch.setattr(encoders, "find_spec", lambda name: name)
    settings = {"engine_kwargs": {"max_model_len": 4_096}}
    reranking = open_reranker(RerankConfig(engine="vllm", model=QWEN3, vllm=settings))
    reranking.scorer.scores("violin?", DOCUMENTS)
    assert made == [
        (QWEN3, {"max_model_len": 4_096}, True),
        (qwen3_query(INSTRUCTION, "violin?"), [qwen3_document(text) for text in DOCUMENTS]),
    ]
    open_reranker(RerankConfig(engine="vllm", model="BAAI/bge-reranker-v2-m3"))
    assert made[-1] == ("BAAI/bge-reranker-v2-m3", {}, False)
    with_a_head = str(write_tiny_qwen3(tmp_path / "Qwen3-Reranker-tiny", "scorer"))
    open_reranker(RerankConfig(engine="vllm", model=with_a_head))
    assert made[-1] == (with_a_head, {}, False)


def test_vllm_that_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(encoders, "find_spec", lambda name: None)
    with pytest.raises(EncoderError, match="vllm is not installed; run: pip install vllm"):
        open_reranker(RerankConfig(engine="vllm", model=QWEN3))


def test_a_model_here_that_fails_is_a_failure_of_the_reranker():
    class OutOfMemory:
        def scores(self, query, documents):
            raise RuntimeError("out of\nmemory")

    with pytest.raises(RerankError, match="the reranker failed: out of memory"):
        LocalScorer(OutOfMemory()).scores("violin?", DOCUMENTS)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    return run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows(users=("ana",))))).store


@pytest.mark.parametrize("recipe", MODEL_FREE)
def test_every_recipe_asks_the_server_and_tells_how_long_it_took(server, store, recipe):
    version = open_version(store)
    encoder = open_encoder(config_of(store.root).encoder)
    asked = "what about number 7"
    response = Retriever(version, encoder, served(server)).search("acme/ana", asked, recipe, k=3, explain=True)
    assert (response.reranked, response.rerank_failure) == (True, None)
    assert response.hits[0].text.endswith("number 7.")
    assert response.hits[0].legs["rerank"][0] == 1
    assert 0 < response.timings_ms["rerank"]
    assert response.timings_ms["search"] >= 0
    own = Retriever(version, encoder).search("acme/ana", asked, recipe, k=3)
    assert (own.reranked, own.rerank_failure, "rerank" in own.timings_ms) == (False, None, False)


def test_a_server_that_is_away_leaves_the_recipes_own_order(server, store):
    encoder = open_encoder(config_of(store.root).encoder)
    own = Retriever(open_version(store), encoder).search("acme/ana", "a violin lesson", k=5)
    retriever = Retriever(open_version(store), encoder, served(server))
    server.die()
    response = retriever.search("acme/ana", "a violin lesson", k=5)
    server.revive()
    assert response.hits == own.hits
    content = response.as_dict()
    assert content["reranked"] is False
    assert "start the server" in content["rerank_failure"]


def test_a_context_follows_the_reranker(server, store):
    encoder = open_encoder(config_of(store.root).encoder)
    retriever = Retriever(open_version(store), encoder, served(server))
    response = retriever.search("acme/ana", "what about number 7", "bm25", context_tokens=50)
    assert "number 7." in response.context.text


@pytest.mark.parametrize("kind", ["reranker", "chat"])  # the latter brings a template for chats
def test_qwen3_here_is_read_in_its_own_form_and_scored_by_its_odds_of_yes(tmp_path, kind):
    folder = write_tiny_qwen3(tmp_path / "Qwen3-Reranker-tiny", kind)
    reranking = open_reranker(RerankConfig(engine="sentence-transformers", model=str(folder)))
    scores = reranking.scorer.scores("violin?", DOCUMENTS)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    for document, score in zip(DOCUMENTS, scores, strict=True):
        prompt = qwen3_query(INSTRUCTION, "violin?") + qwen3_document(document)
        with torch.no_grad():
            logits = model(**tokenizer(prompt, return_tensors="pt", add_special_tokens=False)).logits[0, -1]
        yes, no = (logits[tokenizer.convert_tokens_to_ids(word)] for word in ("yes", "no"))
        assert float(torch.sigmoid(yes - no)) == pytest.approx(score, abs=1e-5)
