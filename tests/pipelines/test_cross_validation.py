"""Trained recipes are asked about what they never saw, and counted as those that are not trained."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from hgmem_core.tasks.task import TaskError
from pipelines import cross_validation
from pipelines.cross_validation import Fold, cross_validate, leave_one_out
from pipelines.evaluation import evaluate_task
from pipelines.progress import Silent
from pipelines.training import Trainer
from tests.pipelines.small_benchmark import Small

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())
NAMES = ("locomo/c1", "locomo/c2", "locomo/c3")
QUICK = {"run": {"train": {"epochs": 2, "validate_epochs": 1}}}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("small"), "c1", "c2", "c3", **QUICK)


def validated(small, *recipes, seeds=1):
    result = cross_validate(small.task, small.version, small.config, small.encoder, recipes, seeds, Silent())
    jsonschema.validate({**result, "commit": None}, SCHEMA)
    return result


def rows(result, group="1-4"):
    return {row["recipe"]: row for row in result["results"] if row["group"] == group}


@pytest.fixture
def trainings(monkeypatch):
    """What was trained: recipe, namespaces learned from, namespaces held back, seed."""
    seen = []
    train = Trainer.train

    def told(self, recipe, training, validation, seed):
        namespaces = (tuple(sorted({one.namespace for one in some})) for some in (training, validation))
        seen.append((recipe.name, *namespaces, seed))
        return train(self, recipe, training, validation, seed)

    monkeypatch.setattr(cross_validation.Trainer, "train", told)
    return seen


def test_each_namespace_is_left_out_once_and_the_last_other_one_validates():
    assert leave_one_out(["a", "b", "c", "d"]) == [
        Fold("a", ("b", "c"), "d"),
        Fold("b", ("a", "c"), "d"),
        Fold("c", ("a", "b"), "d"),
        Fold("d", ("a", "b"), "c"),
    ]
    with pytest.raises(TaskError, match="three at least, to test, to learn from and to stop by; there are 2"):
        leave_one_out(["a", "b"])


def test_no_model_saw_what_it_is_asked_about(small, trainings):
    result = validated(small, "hybrid-window", "learned-flat", "hage", "hage:beam", seeds=2)
    asked = {fold["test"]: fold for fold in result["folds"]}
    assert tuple(asked) == NAMES
    for name, training, validation, _ in trainings:
        [left_out] = set(NAMES) - {*training, *validation}
        expected = (tuple(asked[left_out]["training"]), (asked[left_out]["validation"],))
        # Trees are grown to the end: nothing need be held back from them.
        assert (training, validation) == (expected if name == "hage" else (tuple(sorted(sum(expected, ()))), ()))
    # The beam is another search with the same model.
    assert [(name, seed) for name, _, _, seed in trainings] == 3 * [("learned-flat", 0), ("hage", 0)] + 3 * [
        ("learned-flat", 1),
        ("hage", 1),
    ]
    assert {name: len(seconds) for name, seconds in result["training_seconds"].items()} == {
        "learned-flat": 6,
        "hage": 6,
    }


def test_what_is_not_trained_counts_as_in_an_evaluation(small):
    plain = evaluate_task(small.task, small.version, small.config, small.encoder, ["bm25", "hybrid-window"], Silent())
    result = validated(small, "hybrid-window", "bm25", seeds=3)
    for group in ("all", "1-4", "1"):
        assert rows(result, group) == rows(plain, group)
    assert result["seeds"] == []
    [difference] = [row for row in result["differences"] if row["group"] == "all" and row["metric"] == "ndcg@10"]
    expected = rows(result)["bm25"]["ndcg@10"] - rows(result)["hybrid-window"]["ndcg@10"]
    assert difference["difference"] == pytest.approx(expected, abs=1e-3)
    assert list(difference["by_conversation"]) == list(NAMES)


def test_trained_recipes_alone_are_compared_too(small):
    result = validated(small, "learned-flat", "learned-flat", "hage")
    assert list(rows(result)) == ["learned-flat", "hage"]
    assert rows(result)["learned-flat"]["n"] == 30
    assert rows(result)["learned-flat"]["recall@5"] == 100


def test_a_question_counts_with_its_mean_over_the_seeds(small):
    result = validated(small, "hybrid", "hage", seeds=2)
    by_seed = [row for row in result["seeds"] if row["recipe"] == "hage"]
    assert [row["seed"] for row in by_seed] == [0, 1]
    for metric in ("recall@10", "ndcg@10"):
        mean = np.mean([row[metric] for row in by_seed])
        assert rows(result)["hage"][metric] == pytest.approx(mean, abs=1e-3)


def test_two_namespaces_are_too_few(tmp_path):
    two = Small(tmp_path, "c1", "c2")
    with pytest.raises(TaskError, match="there are 2"):
        validated(two, "hybrid")
