"""What is trained for `encoder.tuned` is that of the questions that were not held back, and works once it is named."""

import numpy as np
import pytest

from hgmem_core import heads
from hgmem_core.embeddings import context_texts
from hgmem_core.run_config import RunConfig
from hgmem_core.trained import TrainedModelError
from pipelines import tuned_training
from pipelines.bert_encoder import BertFolder
from pipelines.encoder_examples import examples_digest, tuning_examples
from pipelines.encoder_tuning import EncoderTraining, EncoderTuning, HeldOutTurns
from pipelines.encoders import tuned_vectors
from pipelines.minilm import IDENTITY
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.training import examples_of
from pipelines.tuned_encoder import open_tuned
from pipelines.tuned_files import read_tuned
from pipelines.tuned_training import check_folder, encoder_to_tune, train_encoder, train_heads
from pipelines.versions import open_version
from pipelines.weights import EncoderError
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.pipelines import small_benchmark, tiny_bert
from tests.pipelines.logs import NOW
from tests.pipelines.small_benchmark import Small

LICENCE = "CC BY 4.0"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("small"), "c1", "c2", "c3")


@pytest.fixture
def tiny(tmp_path, small, monkeypatch):
    """A tiny encoder that knows the words of the benchmark."""
    words = {word for example in small.examples for word in example.query.text.lower().split()}
    words |= {word for text in context_texts(small.examples[0].index.nodes) for word in text.lower().split()}
    monkeypatch.setattr(tiny_bert, "WORDS", sorted(words - {">>"}))
    return tiny_bert.tiny_bert(tmp_path / "base")


def heads_of(small, folder, validation="locomo/c2", **train):
    config = small.config.model_copy(update={"run": RunConfig.model_validate({"train": train})})
    return train_heads(small.task, small.version, config, small.encoder, validation, 0, LICENCE, folder, Silent())


@pytest.mark.parametrize(("within", "found"), [(1, 0.0), (2, 100.0)])
def test_heads_are_measured_as_the_rebuilt_store_finds(small, tmp_path, monkeypatch, within, found):
    # Among ten of so few turns all evidence is.
    for module in (heads, tuned_training):
        monkeypatch.setattr(module, "FOUND_WITHIN", within)
    made = heads_of(small, tmp_path / "heads")
    manifest = read_tuned(made.folder)
    assert (manifest["kind"], manifest["task"], manifest["licence"]) == ("heads", "locomo", LICENCE)
    assert manifest["split"]["validation"] == "locomo/c2"
    assert (manifest["split"]["questions"], made.metrics["questions"]) == (20, 10)
    config = small.config.model_copy(
        update={
            "encoder": small.config.encoder.model_copy(update={"tuned": str(made.folder)}),
            "inputs": list(small.task.inputs),
        }
    )
    version = open_version(rebuild(config, small.encoder, NOW, Silent()).store)
    retriever = Retriever(version, small.encoder, tuned=tuned_vectors(config.encoder, small.encoder.identity))
    held_out = examples_of(retriever, small.task.questions.within({"locomo/c2"}), {"1", "4"})

    def recall(scores):
        return 100 * np.mean(
            [np.isin(one.evidence, np.argsort(-scores(one), kind="stable")[:within]).mean() for one in held_out]
        )

    plain = recall(lambda one: one.index.cosines(one.query.vector))
    tuned = recall(lambda one: one.index.tuned_cosines(one.query.tuned))
    assert made.metrics["before"] == {"recall@10": pytest.approx(plain, abs=1e-4)}
    assert made.metrics["after"] == {"recall@10": pytest.approx(tuned, abs=1e-4)}
    assert (plain, tuned) == (found, 100.0)


def test_nothing_is_learned_from_what_is_held_back(small, tmp_path, monkeypatch):
    plain = small_benchmark.conversation

    def one_is_contrary(name):
        """Ask in c2 for what is not meant elsewhere."""
        with monkeypatch.context() as patch:
            if name == "c2":
                patch.setattr(small_benchmark, "SAID", small_benchmark.SAID[::-1])
            return plain(name)

    monkeypatch.setattr(small_benchmark, "conversation", one_is_contrary)
    (tmp_path / "contrary").mkdir()
    contrary = Small(tmp_path / "contrary", "c1", "c2", "c3")

    def losses(small, validation):
        folder = heads_of(small, tmp_path / "heads", validation, epochs=2).folder
        return [row["loss"] for row in read_tuned(folder)["curve"]]

    assert losses(contrary, "locomo/c2") == losses(small, "locomo/c2")
    assert losses(contrary, "locomo/c1") != losses(small, "locomo/c1")


def test_heads_are_trained_as_long_as_is_set(small, tmp_path):
    folder = heads_of(small, tmp_path / "heads", epochs=3).folder
    assert [row["epoch"] for row in read_tuned(folder)["curve"]] == [1, 2, 3]
    assert read_tuned(folder)["settings"]["patience"] == 8
    # All is found from the beginning, so that there is nothing to gain.
    folder = heads_of(small, tmp_path / "heads", patience=2).folder
    assert len(read_tuned(folder)["curve"]) == 2


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray", "one_thread")
def test_an_encoder_tuned_on_ray_is_that_of_two_epochs_in_one_process(small, tiny, tmp_path):
    made = train_encoder(
        small.task, small.version, small.config, small.encoder, tiny, None, 5, LICENCE, tmp_path / "tuned", Silent()
    )
    examples, held_out = [], []
    for name in ("locomo/c1", "locomo/c2", "locomo/c3"):
        own = [one for one in small.examples if one.namespace == name]
        texts = context_texts(own[0].index.nodes)
        if name == "locomo/c3":
            held_out.append(HeldOutTurns(texts, [one.query.text for one in own], [one.evidence for one in own]))
            continue
        for one in own:
            examples += tuning_examples(one.index, texts, one.query, one.query_id, one.evidence)
    train = small.config.run.train.model_copy(update={"epochs": 2, "validate_epochs": 1})
    run = EncoderTraining(tiny, examples, held_out, EncoderTuning(), train, 5).start()
    while not run.is_over:
        run.next_epoch()
    manifest = read_tuned(made.folder)
    assert manifest["curve"] == run.curve
    assert manifest["data"]["examples"] == examples_digest(examples)
    assert (manifest["licence"], manifest["settings"]["epochs"], manifest["seed"]) == (LICENCE, 2, 5)
    assert made.metrics["before"]["recall@10"] == pytest.approx(run.curve[0]["recall@10"], abs=1e-4)
    assert made.metrics["after"]["recall@10"] == pytest.approx(max(row["recall@10"] for row in run.curve[1:]), abs=1e-4)
    kept = BertFolder(made.folder, tiny.identity).weights()
    expected = run.weights()
    assert all(np.array_equal(kept[name], expected[name]) for name in expected)
    assert open_tuned(made.folder, tmp_path / "cache", tiny.identity).identity.name == "tiny-tuned"
    assert not list(made.folder.glob(".*"))


def test_only_minilm_is_tuned(small, monkeypatch):
    with pytest.raises(EncoderError, match=r"encoder '.*static.*' cannot be tuned.*set encoder.name=minilm"):
        encoder_to_tune(small.encoder)
    monkeypatch.setattr(type(small.encoder), "identity", IDENTITY)
    assert encoder_to_tune(small.encoder).identity == IDENTITY


def test_a_folder_with_something_else_is_left_as_it_is(small, tmp_path):
    folder = tmp_path / "mine"
    check_folder(folder)
    folder.mkdir()
    (folder / ".unfinished").mkdir()
    (folder / ".heads.safetensors").write_bytes(b"what a full disk left")
    check_folder(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(TrainedModelError, match="mine holds something else than a tuned encoder or heads"):
        heads_of(small, folder)
    assert (folder / "manifest.json").read_text() == "{}"
