"""Models by name as encoders: run here, at a server, on vLLM; one protocol, prefixes and instructions, cuts, errors."""

import json
import pickle
import socket
from importlib.util import find_spec

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers

from hgmem_core.chat import ModelError
from hgmem_core.config import config_from
from hgmem_core.encoding import count_tokens, encode_documents, encode_queries, encode_texts
from hgmem_core.model_config import EncoderConfig, ServerConfig
from hgmem_core.section import ConfigError
from pipelines import encoders, vllm_encoder
from pipelines.encoders import EncoderError, open_encoder, token_counter
from pipelines.minilm import MiniLM
from pipelines.retriever import Retriever
from pipelines.run import with_encoder_resources
from pipelines.static import StaticEncoder
from pipelines.versions import VersionError, check_encoder, open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.scripted_server import Scripted, ScriptedServer
from tests.pipelines.tiny_models import tiny_encoder
from tests.vllm.tiny_qwen3 import write_tiny_qwen3

TEXTS = ["the red bicycle", "", "tea with lemon. " * 3, "a harbour in lisbon", "naïve 漢字 🙂", "violin lesson"]
QWEN3 = "Qwen/Qwen3-Embedding-0.6B"


def normalised(vectors):
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


# At a server


@pytest.fixture
def server():
    with ScriptedServer(models={"scripted": None, QWEN3: None}) as server:
        yield server


def served(server, model="scripted", **settings):
    http = {"retries": 1, "give_up_minutes": 0.0, **settings.pop("http", {})}
    return EncoderConfig(name="http", model=model, http=ServerConfig(url=server.url, **http), **settings)


def sent(server):
    """Every text that the server was sent after the first request, which tries it."""
    return [text for request in server.log_of("/v1/embeddings")[1:] for text in request.body["input"]]


def vectors_of(server, texts):
    return np.array([server._vector(text) for text in texts], np.float32)


def test_a_served_model_gives_the_servers_vectors_at_unit_length(server):
    encoder = open_encoder(served(server, batch_size=2))
    expected = vectors_of(server, TEXTS)
    expected[1] = 0.0
    np.testing.assert_allclose(encode_texts(encoder, TEXTS), normalised(expected), atol=1e-6)
    assert all(len(request.body["input"]) <= 2 for request in server.log)
    assert all(request.body["model"] == "scripted" for request in server.log)


def test_vectors_find_their_texts_whatever_order_they_come_in(server):
    encoder = open_encoder(served(server, batch_size=2))

    def backwards(body):
        """The first request is answered last, and each one's vectors from the last to the first."""
        found = [{"index": at, "embedding": server._vector(text)} for at, text in enumerate(body["input"])]
        return Scripted(document={"data": found[::-1]}, seconds=0.2 if "one" in body["input"] else 0.0)

    server.script = backwards
    texts = ["one", "two", "three", "seven", "eleven"]
    np.testing.assert_allclose(encode_texts(encoder, texts), normalised(vectors_of(server, texts)), atol=1e-6)


def test_a_server_that_changes_its_model_is_noticed(server):
    encoder = open_encoder(served(server))
    server.dimension = 4
    with pytest.raises(ModelError, match=r"gives vectors of shape \(2, 4\), not \[n, 8\]"):
        encode_texts(encoder, ["one", "another"])


def test_several_requests_are_in_flight(server):
    encoder = open_encoder(served(server, batch_size=1, http={"concurrency": 4}))
    server.script = lambda body: Scripted(seconds=0.05)
    encode_documents(encoder, [f"text {number}" for number in range(12)], list(range(13)), 32)
    assert server.most_in_flight == 4


def test_queries_of_qwen3_are_instructed_and_documents_are_not(server):
    encoder = open_encoder(served(server, QWEN3))
    encode_queries(encoder, ["Who plays?"])
    encode_documents(encoder, ["Bo: I play."], [0, 1], 32)
    query, document = sent(server)
    assert query == (
        "Instruct: Given a question, find the messages, events and facts of past conversations that answer it\n"
        "Query:Who plays?"
    )
    assert document == "Bo: I play."


def test_an_instruction_of_ones_own(server):
    encoder = open_encoder(served(server, QWEN3, query_instruction="Find gossip"))
    encode_queries(encoder, ["Who?", " "])
    assert sent(server) == ["Instruct: Find gossip\nQuery:Who?"]
    assert encoder.identity.prefix == "Instruct: Find gossip\nQuery:"


def test_prefixes_stand_before_queries_and_documents(server):
    encoder = open_encoder(served(server, query_prefix="query: ", document_prefix="passage: "))
    encode_queries(encoder, ["Who?"])
    encode_documents(encoder, ["Bo.", ""], [0, 2], 32)
    assert sent(server) == ["query: Who?", "passage: Bo."]
    assert (encoder.identity.prefix, encoder.identity.document_prefix) == ("query: ", "passage: ")


def test_a_cut_vector_has_unit_length_again(server):
    encoder = open_encoder(served(server, dimension=3))
    assert encoder.identity.dimension == 3
    expected = normalised(vectors_of(server, ["tea", "violin"])[:, :3])
    np.testing.assert_allclose(encode_texts(encoder, ["tea", "violin"]), expected, atol=1e-6)
    with pytest.raises(EncoderError, match=r"encoder\.dimension=9: scripted gives 8 floats"):
        open_encoder(served(server, dimension=9))


def test_without_a_tokeniser_no_piece_has_more_bytes_than_tokens_are_allowed(server):
    encoder = open_encoder(served(server, max_tokens=32, document_prefix="doc: "))
    text = "Ana met naïve 漢字 people 🙂 at the harbour. " * 5
    [vector] = encode_documents(encoder, [text], [0, 1], 32)
    pieces = sent(server)
    assert all(len(piece.encode()) <= 30 and piece.startswith("doc: ") for piece in pieces)
    assert "".join(sorted(piece.removeprefix("doc: ") for piece in pieces)) != text  # they are sent by length
    sizes = np.array([[len(piece.encode()) - 5] for piece in pieces], np.float32)
    assert sizes.sum() == len(text.encode())
    mean = (vectors_of(server, pieces) * sizes).sum(axis=0, keepdims=True)
    np.testing.assert_allclose(vector, normalised(mean)[0], atol=1e-5)


def test_with_a_tokeniser_pieces_are_cut_between_its_tokens(server, tmp_path):
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    encoder = open_encoder(served(server, max_tokens=16, tokenizer=str(tmp_path)))
    text = "  " + "Ana met extraordinarily many 漢字 people. " * 5
    assert count_tokens(encoder, text) == 35
    encode_texts(encoder, [text])
    assert sorted(len(piece.split()) for piece in sent(server)) == [10, 10, 10]
    assert sorted("".join(sent(server))) == sorted(text)


@pytest.mark.parametrize("content", [None, "no JSON", '{"version": 1}'])
def test_a_tokeniser_that_is_none_is_refused(server, tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(EncoderError, match=r"tokenizer\.json"):
        open_encoder(served(server, tokenizer=str(path)))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Scripted(document={"data": [{"index": 0, "embedding": [1.0] * 8}]}), "gave 1 vectors for 2 texts"),
        (Scripted(raw=b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1]}]}'), "NaN or inf"),
        (Scripted(status=400, message="too long"), r"too long.*lower encoder\.max_tokens"),
        (Scripted(document={"vectors": []}), "no list of vectors"),
        (Scripted(document={"data": [{"index": 0, "embedding": None}, {"index": 1, "embedding": [1]}]}), "no list"),
        (Scripted(status=401, message="no such key"), "no such key"),
    ],
)
def test_what_is_no_vector_ends_in_one_line(server, answer, why):
    encoder = open_encoder(served(server))
    server.script = lambda body: answer
    with pytest.raises(ModelError, match=why) as refusal:
        encode_texts(encoder, ["one", "another"])
    assert "\n" not in str(refusal.value)
    assert server.url in str(refusal.value)


def test_another_model_and_no_server_are_refused_when_the_encoder_is_opened(server):
    with pytest.raises(ModelError, match="`other` does not exist") as refusal:
        open_encoder(served(server, "other"))
    server.die()
    with pytest.raises(ModelError, match="start the server") as absence:
        open_encoder(served(server))
    server.revive()
    assert "\n" not in str(refusal.value) + str(absence.value)


def test_an_encoder_travels_to_another_process_without_asking_again(server):
    encoder = open_encoder(served(server))
    asked = len(server.log)
    copy = pickle.loads(pickle.dumps(encoder))
    assert len(server.log) == asked
    assert copy.identity == encoder.identity
    assert np.array_equal(encode_texts(copy, TEXTS), encode_texts(encoder, TEXTS))


def test_the_identity_tells_what_is_known_of_a_served_model(server):
    assert open_encoder(served(server, QWEN3, max_tokens=512)).identity.as_dict() == {
        "name": QWEN3, "weights_sha256": "", "dimension": 8, "max_tokens": 512,
        "prefix": "Instruct: Given a question, find the messages, events and facts of past conversations that answer it"
        "\nQuery:",
        "pooling": "", "normalised": True, "quantisation": "", "document_prefix": "",
    }  # fmt: skip


def test_a_context_is_counted_by_a_packaged_tokeniser_where_the_models_is_not_known(server, tmp_path):
    text = "Ana moved to Lisbon in March."
    assert token_counter(open_encoder(served(server)))(text) == count_tokens(StaticEncoder(), text) < len(text)
    mini = MiniLM(tmp_path)
    assert token_counter(mini)(text) == count_tokens(mini, text)


def test_a_store_that_is_built_by_a_server_answers_instructed_queries(server, tmp_path):
    config = config_of(
        tmp_path / "store",
        write_jsonl(tmp_path / "log.jsonl", rows(users=("ana", "bo"))),
        encoder=served(server, QWEN3).model_dump(),
    )
    done = run(config)
    assert all(not text.startswith("Instruct:") for text in sent(server))
    retriever = Retriever(open_version(done.store), open_encoder(config.encoder))
    asked = len(server.log)
    response = retriever.search("acme/ana", "Who has a violin lesson?", "dense")
    assert len(response.hits) == 10
    [request] = server.log[asked:]
    assert [text.partition("\nQuery:")[2] for text in request.body["input"]] == ["Who has a violin lesson?"]


def test_a_version_of_a_model_may_be_asked_through_whatever_runs_it(server, tmp_path):
    model = tiny_encoder(tmp_path / "tiny")
    log = write_jsonl(tmp_path / "log.jsonl", rows(users=("ana",)))
    here = EncoderConfig(name="sentence-transformers", model=model)
    done = run(config_of(tmp_path / "store", log, encoder=here.model_dump()))
    version = open_version(done.store)
    server.models, server.dimension = {model: None, "other": None}, 16
    check_encoder(version, open_encoder(served(server, model, max_tokens=64)).identity)
    with pytest.raises(VersionError, match=f"query it with encoder.model='{model}'"):
        check_encoder(version, open_encoder(served(server, "other", max_tokens=64)).identity)


# On vLLM


class RecordingEmbedder:
    """Stands in for vLLM, which is not here: vectors by length."""

    def __init__(self, model, engine_kwargs):
        self.made_from = model, engine_kwargs
        self.seen = []

    def embed(self, texts):
        self.seen.append(list(texts))
        return np.array([[len(text), 1.0, 0.0, 0.0] for text in texts], np.float32)


@pytest.fixture
def model_on_disk(tmp_path):
    folder = tmp_path / "Qwen3-Embedding-tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4}))
    return folder


def test_vllm_is_given_instructed_queries_bare_documents_and_all_at_once(model_on_disk, monkeypatch):
    made = []
    monkeypatch.setattr(
        vllm_encoder, "VllmEmbedder", lambda *arguments: made.append(RecordingEmbedder(*arguments)) or made[0]
    )
    settings = {"engine_kwargs": {"max_model_len": 512}}
    encoder = open_encoder(EncoderConfig(name="vllm", model=str(model_on_disk), dimension=2, vllm=settings))
    assert made[0].made_from == (str(model_on_disk), {"max_model_len": 512})
    assert encoder.identity.dimension == 2
    vectors = encode_documents(encoder, ["one", "another", "third"], [0, 1, 2, 3], 1)
    np.testing.assert_allclose(vectors, normalised(np.array([[3, 1], [7, 1], [5, 1]], np.float32)), atol=1e-6)
    encode_queries(encoder, ["Who?"])
    documents, [query] = made[0].seen
    assert sorted(documents) == ["another", "one", "third"]
    assert query.startswith("Instruct: ")
    assert query.endswith("\nQuery:Who?")


def test_opening_vllm_loads_no_model_and_needs_to_know_the_dimension(model_on_disk):
    encoder = open_encoder(EncoderConfig(name="vllm", model=str(model_on_disk)))
    assert encoder.identity.dimension == 4
    assert pickle.loads(pickle.dumps(encoder)).identity == encoder.identity
    with pytest.raises(EncoderError, match=r"encoder\.dimension=8: .* gives 4 floats"):
        open_encoder(EncoderConfig(name="vllm", model=str(model_on_disk), dimension=8))
    elsewhere = {"name": "vllm", "model": "acme/not-on-this-machine"}
    with pytest.raises(EncoderError, match=r"encoder\.dimension: how many floats acme/not-on-this-machine gives"):
        open_encoder(EncoderConfig(**elsewhere))
    assert open_encoder(EncoderConfig(**elsewhere, dimension=1_024)).identity.dimension == 1_024


def test_layers_behind_the_model_leave_the_dimension_unknown(model_on_disk):
    (model_on_disk / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    with pytest.raises(EncoderError, match=r"encoder\.dimension: how many floats"):
        open_encoder(EncoderConfig(name="vllm", model=str(model_on_disk)))


# Here, on sentence-transformers


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return tiny_encoder(folder, prompts={"query": "query : ", "document": "passage : "})


def here(model, **settings):
    return open_encoder(EncoderConfig(name="sentence-transformers", model=model, **settings))


def direct(model, texts, **arguments):
    return SentenceTransformer(model, device="cpu").encode(texts, normalize_embeddings=True, **arguments)


def test_vectors_equal_those_of_sentence_transformers_with_the_models_own_prompts(tiny):
    encoder = here(tiny)
    texts = [text for text in TEXTS if text]
    vectors = encode_queries(encoder, texts)
    np.testing.assert_allclose(vectors, direct(tiny, texts, prompt_name="query"), atol=1e-5)
    documents = encode_documents(encoder, texts, [0, len(texts)], 32)
    np.testing.assert_allclose(documents, direct(tiny, texts, prompt_name="document"), atol=1e-5)
    assert np.abs(vectors - documents).max() > 0.01


def test_what_is_configured_comes_before_the_models_own_prompts(tiny):
    encoder = here(tiny, query_prefix="lisbon : ")
    [vector] = encode_queries(encoder, ["tea"])
    np.testing.assert_allclose(vector, direct(tiny, ["tea"], prompt="lisbon : ")[0], atol=1e-5)
    assert here(tiny, query_instruction="Find tea").identity.prefix == "Instruct: Find tea\nQuery:"


def test_a_default_prompt_stands_before_everything(tmp_path):
    model = tiny_encoder(tmp_path / "tiny", prompts={"any": "tea : "}, default="any")
    [vector] = encode_documents(here(model), ["violin"], [0, 1], 32)
    np.testing.assert_allclose(vector, direct(model, ["violin"])[0], atol=1e-5)


def test_a_model_that_leaves_the_prompt_out_of_a_vector_still_does(tmp_path):
    model = tiny_encoder(tmp_path / "tiny", prompts={"query": "query : "}, include_prompt=False)
    [vector] = encode_queries(here(model), ["violin lesson"])
    np.testing.assert_allclose(vector, direct(model, ["violin lesson"], prompt_name="query")[0], atol=1e-5)
    whole = direct(model, ["query : violin lesson"], prompt="")[0]
    assert np.abs(vector - whole).max() > 0.01


def test_matryoshka(tiny):
    encoder = here(tiny, dimension=5)
    vectors = encode_queries(encoder, ["tea", "violin"])
    expected = direct(tiny, ["tea", "violin"], prompt_name="query", truncate_dim=5)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    with pytest.raises(EncoderError, match="gives 16 floats"):
        here(tiny, dimension=17)


def test_the_identity_of_a_model_here(tiny):
    identity = here(tiny).identity
    assert (identity.name, identity.dimension, identity.max_tokens) == (tiny, 16, 64)
    assert (identity.prefix, identity.document_prefix) == ("query : ", "passage : ")
    assert (identity.pooling, identity.quantisation) == ("mean", "fp32")
    assert len(identity.weights_sha256) == 64
    assert here(tiny, max_tokens=32).identity.max_tokens == 32


def test_a_text_longer_than_the_model_takes_is_the_mean_of_its_pieces(tiny):
    encoder = here(tiny, query_prefix="tea : ")
    long = "the red bicycle with lemon " * 24
    assert count_tokens(encoder, long) == 120
    [vector] = encode_queries(encoder, [long])
    pieces = ["tea : " + "the red bicycle with lemon " * 12] * 2
    np.testing.assert_allclose(vector, direct(tiny, pieces, prompt="")[0], atol=1e-5)


def test_a_text_has_the_same_bits_again_and_in_another_process(tiny):
    encoder = here(tiny)
    first = encode_queries(encoder, TEXTS)
    assert np.array_equal(encode_queries(encoder, TEXTS), first)
    assert np.array_equal(encode_queries(pickle.loads(pickle.dumps(encoder)), TEXTS), first)
    assert not first[1].any()


def test_a_model_that_is_not_here_is_not_fetched(monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(EncoderError, match=r"acme/no-such-model is not on this machine.*encoder\.download=true"):
        here("acme/no-such-model")


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(EncoderError, match=r"encoder\.model: .* cannot be loaded"):
        here(str(tmp_path))


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(encoders, "find_spec", lambda name: None if name.startswith("sentence") else find_spec(name))
    with pytest.raises(EncoderError, match=r"pip install 'hgmem\[transformers\]'"):
        here("any")


def test_qwen3_here(tmp_path):
    folder = write_tiny_qwen3(tmp_path / "Qwen3-Embedding-tiny", "embedding")
    encoder = here(str(folder))
    assert (encoder.identity.dimension, encoder.identity.pooling, encoder.identity.max_tokens) == (
        64,
        "lasttoken",
        2_048,
    )
    text = "Where is the violin?"
    [query] = encode_queries(encoder, [text])
    [document] = encode_documents(encoder, [text], [0, 1], 32)
    instructed = (
        "Instruct: Given a question, find the messages, events and facts of past conversations that answer it\n"
        f"Query:{text}"
    )
    np.testing.assert_allclose([query, document], direct(str(folder), [instructed, text]), atol=1e-5)


# How actors are asked for


@pytest.mark.parametrize(
    ("encoder", "said", "asked"),
    [
        ({"name": "vllm", "model": "m"}, {}, (0.0, 1.0, 0)),
        ({"name": "vllm", "model": "m", "vllm": {"engine_kwargs": {"tensor_parallel_size": 4}}}, {}, (0.0, 4.0, 0)),
        ({"name": "vllm", "model": "m"}, {"cpus": 2.0}, (2.0, 0.0, 0)),
        ({"name": "http", "model": "m"}, {}, (0.0, 0.0, 1)),
        ({"name": "http", "model": "m"}, {"concurrency": 3}, (0.0, 0.0, 3)),
        ({"name": "minilm"}, {}, (0.0, 0.0, 0)),
    ],
)
def test_what_an_encoders_actors_ask_for_if_nothing_was_said(encoder, said, asked):
    config = config_from({"encoder": encoder, "run": {"ray": {"encode": {"cpus": 0.0, **said}}}})
    encode = with_encoder_resources(config).ray.encode
    assert (encode.cpus, encode.gpus, encode.concurrency) == asked


def test_vllm_has_no_place_in_one_process():
    with pytest.raises(ConfigError, match=r"encoder\.name=vllm runs in actors on Ray"):
        config_from({"encoder": {"name": "vllm", "model": "m"}, "run": {"engine": "local"}})


@pytest.mark.parametrize(
    ("encoder", "why"),
    [
        ({"name": "http"}, "model is missing"),
        ({"model": "BAAI/bge-m3"}, "name=minilm has a model of its own"),
        ({"dimension": 64}, "takes no dimension"),
        ({"name": "http", "model": "m", "query_prefix": "q", "query_instruction": "i"}, "exclude each other"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(encoder, why):
    with pytest.raises(ConfigError, match=f"encoder: .*{why}"):
        config_from({"encoder": encoder})
