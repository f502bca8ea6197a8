"""Abstention on conversations written for it, and on the real data where that is at hand."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hgmem_core.abstention import ABSTENTION
from hgmem_core.config import config_from
from hgmem_core.search import Filters
from hgmem_core.tasks.task import Questions, TaskError
from hgmem_core.trained import TrainedModelError
from pipelines.abstention_evaluation import evaluate_abstention
from pipelines.abstention_training import ask_for_evidence, leave_one_out, train_abstention
from pipelines.encoders import open_encoder
from pipelines.evaluation import open_task, task_version
from pipelines.model_store import models_for, open_models
from pipelines.progress import Silent
from pipelines.retriever import Retriever
from tests.pipelines.asked_conversations import write_asked
from tests.pipelines.logs import NOW
from tests.pipelines.small_benchmark import write_benchmark


class Asked:
    """A benchmark and the version that holds it."""

    def __init__(self, folder, data, encoder="static"):
        self.config = config_from({"encoder": {"name": encoder}})
        self.task = open_task("locomo", data)
        self.encoder = open_encoder(self.config.encoder)
        self.version = task_version(self.task, self.config, self.encoder, folder, NOW, Silent())

    def evaluated(self, task=None):
        return evaluate_abstention(task or self.task, self.version, self.config, self.encoder, Silent())

    def trained(self, folder, task=None):
        return train_abstention(task or self.task, self.version, self.encoder, folder, Silent())


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    return Asked(folder, write_asked(folder / "asked.json", "c1", "c02", "c003"))


@pytest.fixture(scope="module")
def models(asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    asked.trained(folder)
    return folder


def retriever(asked, models, below=0.5):
    found = models_for(str(models), asked.version)
    return Retriever(asked.version, asked.encoder, models=found, abstain_below=below)


def test_evidence_tells_apart_what_the_wording_does_not(asked):
    result = asked.evaluated()
    evidence, control = result["results"]
    assert result["evidence"] == {"answerable": 30, "unanswerable": 30}
    assert evidence["auroc"] > 0.95 > 0.7 > control["auroc"]
    assert set(evidence["by_conversation"]) == {"locomo/c1", "locomo/c02", "locomo/c003"}
    assert evidence["abstained"]["5"] == evidence["abstained_of_unanswerable"] > 0.8
    assert evidence["abstained"]["1-4"] == evidence["abstained_of_answerable"] < 0.2
    difference = result["auroc_difference"]
    assert difference["difference"] == pytest.approx(evidence["auroc"] - control["auroc"], abs=1e-3)
    assert 0 < difference["ci95"][0] <= difference["difference"] <= difference["ci95"][1]
    assert asked.evaluated() == result


def test_a_conversation_is_judged_by_what_was_learned_of_the_others(asked):
    questions = ask_for_evidence(Retriever(asked.version, asked.encoder), asked.task, Silent())
    own = np.array([name == "locomo/c1" for name in questions.namespaces])
    misled = replace(questions, labels=np.where(own, ~questions.labels, questions.labels))
    found, other = (
        leave_one_out(each, lambda _: (questions.features, questions.rows))[0] for each in (questions, misled)
    )
    assert np.array_equal(found[own], other[own])
    assert not np.array_equal(found[~own], other[~own])


def test_labels_reach_no_evidence_and_no_answer_is_read(asked, tmp_path):
    samples = json.loads(Path(asked.task.files.data.path).read_text())
    for sample in samples:
        for question in sample["qa"]:
            question |= {"answer": "violin", "adversarial_answer": "kitten"}
            question["category"] = 9 - question["category"]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(samples))
    one, other = (
        ask_for_evidence(Retriever(asked.version, asked.encoder), task, Silent())
        for task in (asked.task, open_task("locomo", changed))
    )
    assert np.array_equal(one.rows, other.rows)
    assert np.array_equal(one.labels, ~other.labels)


def test_a_benchmark_without_unanswerable_questions_is_refused(tmp_path):
    small = Asked(tmp_path, write_benchmark(tmp_path / "small.json", "c1", "c2"))
    with pytest.raises(TaskError, match=r"small\.json: no question of locomo is one that its memory cannot answer"):
        small.evaluated()


def test_questions_of_one_kind_in_all_others_are_refused(asked, tmp_path):
    queries = asked.task.questions.queries.to_pylist()
    kept = [row["namespace"] == "locomo/c1" or row["group"] == "4" for row in queries]
    questions = asked.task.questions
    task = replace(asked.task, questions=Questions(questions.queries.filter(kept), questions.qrels, questions.counts))
    with pytest.raises(TrainedModelError, match="abstention: of 40 questions 30 have an answer"):
        asked.trained(tmp_path / "models", task)
    assert not (tmp_path / "models").exists()


def test_a_response_says_whether_to_abstain_and_why(asked, models):
    ask = retriever(asked, models).search
    told, other = (ask("locomo/c02", f"What does {name} love about the new violin?") for name in ("Bo", "Ana"))
    if told.abstention.abstains:
        told, other = other, told
    assert told.abstention.probability > 0.5 > other.abstention.probability
    assert other.abstention.abstains
    assert other.abstention.reason.code in ("other_speaker", "not_told")
    assert [hit.turn_id for hit in other.hits]  # what was found is there all the same
    assert other.as_dict()["abstention"]["reason"]["code"] == other.abstention.reason.code
    assert told.timings_ms["abstention"] > 0


@pytest.mark.parametrize(
    "question",
    [
        "Which glacier quantises yoghurt under the zinc parliament?",
        "new new new new",
        "Who sold a submarine to the bishop of Quito?",
        "愛",
    ],
)
def test_a_common_word_is_no_evidence(asked, models, question):
    found = retriever(asked, models).search("locomo/c02", question)
    assert found.abstention.abstains
    assert found.abstention.reason


def test_no_recipe_has_a_say(asked, models):
    ask = retriever(asked, models).search
    judged = {ask("locomo/c1", "Does Ana love the boat?", recipe).abstention for recipe in ("bm25", "dense", "default")}
    assert len(judged) == 1


def test_filters_leave_no_evidence_in_what_they_hide(asked, models):
    ask = retriever(asked, models).search
    question = "Who loves the new telescope?"
    every, of_one = ask("locomo/c1", question), ask("locomo/c1", question, filters=Filters(speaker="Ana"))
    assert every.abstention != of_one.abstention
    nothing = ask("locomo/c1", question, filters=Filters(speaker="Zoe"))
    assert (nothing.hits, nothing.abstention.probability, nothing.abstention.reason.code) == ([], 0.0, "nothing_found")
    assert ask("locomo/c9", question).abstention.reason.text == "nothing was found: unknown namespace"
    assert ask("locomo/c1", "???").abstention.abstains


def test_nothing_abstains_unless_a_threshold_is_given(asked, models):
    question = "What does Ana love about the new zeppelin?"
    assert not retriever(asked, models, 0.0).search("locomo/c1", question).abstention.abstains
    assert retriever(asked, models, 1.0).search("locomo/c1", question).abstention.abstains
    assert Retriever(asked.version, asked.encoder).search("locomo/c1", question).abstention is None
    with pytest.raises(TrainedModelError, match=r"abstain_below is 0\.5, and there is no model 'abstention'"):
        Retriever(asked.version, asked.encoder, abstain_below=0.5)


def test_the_model_is_kept_with_what_it_was_trained_on(asked, models):
    stored = open_models(models, asked.encoder.identity.as_dict())[ABSTENTION]
    questions = ask_for_evidence(Retriever(asked.version, asked.encoder), asked.task, Silent())
    assert stored.trained.features == questions.features
    assert stored.manifest["metrics"]["auroc"] == asked.evaluated()["results"][0]["auroc"]
    assert stored.manifest["split"]["training"] == ["locomo/c003", "locomo/c02", "locomo/c1"]
    renamed = replace(stored.trained, features=tuple(f"{name}s" for name in stored.trained.features))
    with pytest.raises(TrainedModelError, match="abstention: the abstainer reads other features"):
        Retriever(asked.version, asked.encoder, models={ABSTENTION: renamed}).search("locomo/c1", "the boat")


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_locomos_adversarial_questions_are_told_apart(tmp_path):
    data = Path(os.environ["HGMEM_DATA"]) / "locomo" / "locomo6.json"
    result = Asked(tmp_path, data, "minilm").evaluated()
    assert result["results"][0]["auroc"] > 0.85
    assert result["auroc_difference"]["ci95"][0] > 0.10
