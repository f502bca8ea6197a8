"""Which questions are held back, and what is kept of a training."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hgmem_core.recipes import RECIPES
from hgmem_core.tasks.task import TaskError
from hgmem_core.trained import TrainedModelError
from hgmem_core.training_run import TrainingRun
from pipelines import ray_training
from pipelines.evaluation import evaluate_task
from pipelines.files import file_sha256
from pipelines.model_store import open_models
from pipelines.model_training import UNFINISHED, split_examples, train_model
from pipelines.progress import Silent
from pipelines.ray_training import Trained
from pipelines.training import Trainer
from tests.pipelines.small_benchmark import Small

QUICK = {"run": {"train": {"epochs": 4, "validate_epochs": 2}}}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("small"), "c1", "c2", "c3", **QUICK)


@pytest.fixture
def without_ray(monkeypatch):
    """Train in this process; what was asked of Ray."""
    asked = []

    def train(training, folder, config, progress):
        folder.mkdir(parents=True)
        (folder / "checkpoint").touch()
        asked.append(folder)
        run = training.start()
        while not run.is_over:
            run.next_epoch()
        return Trained(run.weights(), run.curve)

    monkeypatch.setattr(ray_training, "train_on_ray", train)
    return asked


def trained(small, name, models, validation=None, seed=0):
    config, version = small.config, small.version
    return train_model(small.task, version, config, small.encoder, name, validation, seed, models, Silent())


def held_out(split):
    return [one.query_id for one in split.validation]


def test_the_last_namespace_is_held_back_or_the_one_that_is_named(small):
    for named, expected in ((None, "locomo/c3"), ("locomo/c2", "locomo/c2")):
        split = split_examples(small.examples, named)
        assert {one.namespace for one in split.validation} == {expected}
        rest = sorted({one.namespace for one in split.training})
        assert len(split.training) + len(split.validation) == 30
        assert expected not in rest
        assert split.about == {"by": "namespace", "training": rest, "validation": expected}
    with pytest.raises(TaskError, match="is asked in 'locomo/c4'; there are locomo/c1, locomo/c2, locomo/c3"):
        split_examples(small.examples, "locomo/c4")


def test_of_a_single_namespace_a_tenth_of_the_questions_is_held_back(small):
    one = [example for example in small.examples if example.namespace == "locomo/c1"]
    many = [replace(one[0], query_id=f"q{number}") for number in range(200)]
    split = split_examples(many, None)
    held = held_out(split)
    assert len(held) == 20
    assert {*held, *(example.query_id for example in split.training)} == {example.query_id for example in many}
    assert set(held) != set(sorted(example.query_id for example in many)[:20])
    # The same whatever the order; of more questions, those of the first stay where they were as far as may be.
    assert set(held_out(split_examples(many[::-1], None))) == set(held)
    more = [*many, *(replace(one[0], query_id=f"r{number}") for number in range(20))]
    assert len(set(held) - set(held_out(split_examples(more, None)))) <= 4
    assert len(held_out(split_examples(one[:2], None))) == 1
    for few, named in ((one[:1], None), (one, "locomo/c1")):
        with pytest.raises(TaskError, match=f"all {len(few)} questions would be held back"):
            split_examples(few, named)


def test_trees_are_kept_with_what_they_were_grown_from(small, tmp_path):
    made = trained(small, "learned-flat", tmp_path, seed=7)
    encoder = small.encoder.identity.as_dict()
    stored = open_models(tmp_path, encoder)["learned-flat"]
    training = [example for example in small.examples if example.namespace != "locomo/c3"]
    expected = Trainer(small.config.run.train).train(RECIPES["learned-flat"], training, [], 7).as_dict()
    assert all(np.array_equal(stored.trained.as_dict()[name], array) for name, array in expected.items())
    manifest = stored.manifest
    assert manifest["encoder"] == encoder
    assert manifest["data"] == {"data_sha256": file_sha256(Path(small.task.files.data.path))}
    assert manifest["split"] == {
        "by": "namespace",
        "training": ["locomo/c1", "locomo/c2"],
        "validation": "locomo/c3",
        "questions": 20,
    }
    assert (manifest["task"], manifest["seed"], manifest["settings"]["trees"]) == ("locomo", 7, 200)
    assert manifest["training_seconds"] == made.seconds > 0
    assert not (tmp_path / UNFINISHED).exists()
    curves = json.loads((made.folder / "curves.json").read_text())
    assert (curves["recipe"], curves["task"], curves["seed"]) == ("learned-flat", "locomo", 7)
    assert curves["rows"][-1]["trees"] == 200
    assert (made.folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_are_those_of_an_evaluation_of_what_was_held_back(small, tmp_path, without_ray):
    within = replace(small.task, questions=small.task.questions.within({"locomo/c2"}))
    for name, before in (("learned-flat", "hybrid-window"), ("routed", "routed"), ("hage", "hage")):
        made = trained(small, name, tmp_path, "locomo/c2")
        models = open_models(tmp_path, small.encoder.identity.as_dict())
        result = evaluate_task(
            within, small.version, small.config, small.encoder, [name, "hybrid-window"], Silent(), models=models
        )
        rows = {row["recipe"]: row for row in result["results"] if row["group"] == "1-4"}
        assert made.metrics["questions"] == rows[name]["n"] == 10
        assert made.metrics["after"] == {"recipe": name} | {metric: rows[name][metric] for metric in small.task.metrics}
        assert made.metrics["before"]["recipe"] == before
    flat = {metric: rows["hybrid-window"][metric] for metric in small.task.metrics}
    trees = open_models(tmp_path, small.encoder.identity.as_dict())["learned-flat"].manifest["metrics"]
    assert trees["before"] == {"recipe": "hybrid-window"} | flat
    assert trees["after"]["mrr"] > trees["before"]["mrr"]


def test_walks_are_kept_and_their_checkpoints_are_not(small, tmp_path, without_ray):
    made = trained(small, "hage:trainable-router", tmp_path)
    stored = open_models(tmp_path, small.encoder.identity.as_dict())["hage:trainable-router"]
    assert made.folder == tmp_path / "hage-trainable-router"
    settings = {"epochs": 4, "validate_epochs": 2, "trains": "router", "batch": 16}
    assert settings.items() <= stored.manifest["settings"].items()
    rows = json.loads((made.folder / "curves.json").read_text())["rows"]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0]["recall@10"] == pytest.approx(made.metrics["before"]["recall@10"])
    best = max(row["recall@10"] for row in rows[1:] if "recall@10" in row)
    assert made.metrics["after"]["recall@10"] == pytest.approx(best)
    assert not (tmp_path / UNFINISHED).exists()


def test_a_frontier_is_kept_at_its_best_epoch_and_its_checkpoints_are_not(small, tmp_path, without_ray):
    made = trained(small, "routed", tmp_path)
    stored = open_models(tmp_path, small.encoder.identity.as_dict())["routed"]
    settings = {"epochs": 4, "validate_epochs": 2, "patience": 6, "warm_epochs": 6, "batch": 16}
    assert settings.items() <= stored.manifest["settings"].items()
    assert stored.manifest["settings"]["trees"]["trees"] == 200
    rows = json.loads((made.folder / "curves.json").read_text())["rows"]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0]["recall@10"] == pytest.approx(made.metrics["before"]["recall@10"])
    best = max(row["recall@10"] for row in rows[1:] if "recall@10" in row)
    assert made.metrics["after"]["recall@10"] == pytest.approx(best)
    assert len(without_ray) == 1
    assert not (tmp_path / UNFINISHED).exists()


def test_a_run_has_the_folder_of_the_one_that_it_goes_on_with_and_of_no_other(small, tmp_path, without_ray):
    trained(small, "hage", tmp_path)
    trained(small, "hage", tmp_path)
    trained(small, "hage", tmp_path, seed=1)
    trained(small, "hage", tmp_path, "locomo/c2")
    trained(small, "hage:trainable-edges", tmp_path)
    trained(small, "routed", tmp_path)
    first, same, *others = without_ray
    assert first == same
    assert first.parent == tmp_path / UNFINISHED
    assert len({first, *others}) == 5


def test_a_folder_of_other_models_is_refused_before_training(small, tmp_path, without_ray):
    made = trained(small, "learned-flat", tmp_path)
    [arrays] = made.folder.glob("*.safetensors")
    arrays.write_bytes(b"")
    with pytest.raises(TrainedModelError, match=r"safetensors has 0 bytes.* or name another folder than"):
        trained(small, "hage", tmp_path)
    assert without_ray == []
    trained(small, "learned-flat", tmp_path)  # in its own place


def test_walks_that_all_earn_the_same_are_no_model(small, tmp_path, without_ray, monkeypatch):
    next_epoch = TrainingRun.next_epoch

    def same(run):
        row = next_epoch(run)
        row["return"] = -1.05
        return row

    monkeypatch.setattr(TrainingRun, "next_epoch", same)
    with pytest.raises(TrainedModelError, match="recipe 'hage': every walk of 4 epochs earned the same"):
        trained(small, "hage", tmp_path)
    assert not (tmp_path / "hage").exists()


def test_tuned_vectors_that_are_not_there_are_asked_for(small, tmp_path):
    for name in ("learned-flat:tuned", "routed:tuned"):
        with pytest.raises(TrainedModelError, match=rf"{name}.* reads tuned vectors: name the folder.*encoder\.tuned"):
            trained(small, name, tmp_path)


def test_a_model_that_saw_the_questions_is_told_of(small, tmp_path):
    trained(small, "learned-flat", tmp_path)
    models = open_models(tmp_path, small.encoder.identity.as_dict())

    def result(*recipes):
        return evaluate_task(small.task, small.version, small.config, small.encoder, recipes, Silent(), models=models)

    seen = result("hybrid", "learned-flat")
    [warning] = [text for text in seen["warnings"] if "trained on" in text]
    assert warning.startswith("learned-flat was trained on this very file")
    [told] = seen["models"]
    manifest = models["learned-flat"].manifest
    assert (told["recipe"], told["arrays_sha256"]) == ("learned-flat", manifest["arrays"]["sha256"])
    assert told["split"] == manifest["split"]
    # A model that no recipe reads has no part in the result.
    unread = result("hybrid")
    assert "models" not in unread
    assert not [text for text in unread["warnings"] if "trained on" in text]


def test_half_of_a_few_questions_is_never_all_of_them(small, tmp_path):
    few = [one for one in small.examples if one.namespace == "locomo/c1"]
    trainer = Trainer(small.config.run.train)
    for count in (2, 3):
        learning = trainer.learning(RECIPES["routed"], few[:count], [], 0)
        assert len(learning.questions) == count
    with pytest.raises(TrainedModelError, match="'routed': one question is too little"):
        trainer.learning(RECIPES["routed"], few[:1], [], 0)
