"""The training job: a model that evaluations and queries use, or a message that says what is wrong."""

import json
import sys

import numpy as np
import pytest

from hgmem_core.recipes import RECIPES
from hgmem_core.section import ConfigError
from hgmem_core.tasks.task import TaskError
from hgmem_core.trained import TrainedModelError
from jobs import evaluate, query, retrieval_evaluation, train
from pipelines.model_store import open_models
from pipelines.training import Trainer
from pipelines.weights import EncoderError
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.pipelines.small_benchmark import Small, write_benchmark

STATIC = ("--set", "encoder.name=static")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    for job in (retrieval_evaluation, train):
        monkeypatch.setattr(job, "cache_folder", lambda name: tmp_path_factory.getbasetemp() / name)


@pytest.fixture
def data(tmp_path):
    return write_benchmark(tmp_path / "small.json", "c1", "c2", "c3")


def trained(data, recipe, *arguments):
    models = data.parent / "models"
    assert (
        train.main(["locomo", "--data", str(data), "--recipe", recipe, "--out", str(models), *STATIC, *arguments]) == 0
    )
    return models


def test_a_trained_model_is_evaluated_and_asked(tmp_path, data, capsys):
    models = trained(data, "learned-flat", "--validation", "locomo/c2")
    shown = capsys.readouterr().out
    assert "10 questions held back" in shown
    assert "before, hybrid-window" in shown
    assert f"--recipe learned-flat --set retrieve.models={models}" in shown
    use = (*STATIC, "--set", f"retrieve.models={models}")
    out = tmp_path / "r.json"
    recipes = ("--recipes", "hybrid-window,learned-flat", "--out", str(out))
    assert evaluate.main(["locomo", "--data", str(data), *recipes, *use]) == 0
    rows = {row["recipe"]: row for row in json.loads(out.read_text())["results"] if row["group"] == "1-4"}
    assert rows["learned-flat"]["mrr"] > rows["hybrid-window"]["mrr"]
    small = Small(tmp_path, "c1")
    capsys.readouterr()
    asked = (
        "What does Ana say of my new violin?",
        "--store",
        str(small.version.store.root),
        "--recipe",
        "learned-flat",
    )
    assert query.main([*asked, "--namespace", "locomo/c1", "--k", "1", "--json", *use]) == 0
    [hit] = json.loads(capsys.readouterr().out)["hits"]
    assert (hit["speaker"], hit["text"]) == ("Ana", "It was my new violin again, all day.")


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_frontier_trained_on_ray_is_that_of_one_process_and_is_asked(tmp_path, data):
    models = trained(data, "routed", "--seed", "3")
    small = Small(tmp_path, "c1", "c2", "c3")
    training, validation = (
        [example for example in small.examples if (example.namespace == "locomo/c3") == held] for held in (False, True)
    )
    expected = Trainer(small.config.run.train).train(RECIPES["routed"], training, validation, 3).as_dict()
    stored = open_models(models, small.encoder.identity.as_dict())["routed"].trained.as_dict()
    assert all(np.array_equal(stored[name], array) for name, array in expected.items())
    curve = json.loads((models / "routed" / "curves.json").read_text())["rows"]
    assert [row["epoch"] for row in curve] == list(range(len(curve)))
    assert 7 < len(curve) <= 10
    assert all("recall@10" in row for row in curve)
    assert (models / "routed" / "curves.png").stat().st_size > 1_000
    out = tmp_path / "r.json"
    arguments = ["locomo", "--data", str(data), "--recipes", "routed", "--out", str(out), *STATIC]
    assert evaluate.main([*arguments, "--set", f"retrieve.models={models}"]) == 0
    assert json.loads(out.read_text())["results"][0]["recall@10"] > 90


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_walks_trained_on_ray_are_those_of_one_process(tmp_path, data, capsys):
    schedule = {"epochs": 5, "validate_epochs": 2, "checkpoint_epochs": 2}
    settings = [part for name, value in schedule.items() for part in ("--set", f"run.train.{name}={value}")]
    models = trained(data, "hage", "--seed", "3", "--json", *settings)
    manifest = json.loads(capsys.readouterr().out)
    small = Small(tmp_path, "c1", "c2", "c3", run={"train": schedule})
    training, validation = (
        [example for example in small.examples if (example.namespace == "locomo/c3") == held] for held in (False, True)
    )
    expected = Trainer(small.config.run.train).train(RECIPES["hage"], training, validation, 3).as_dict()
    found = open_models(models, small.encoder.identity.as_dict())["hage"].trained.as_dict()
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name
    assert (manifest["recipe"], manifest["seed"], manifest["split"]["questions"]) == ("hage", 3, 20)
    assert manifest["metrics"]["after"].keys() == manifest["metrics"]["before"].keys() > {"recall@10"}
    assert not list(models.glob(".*"))


def test_what_cannot_be_trained_ends_the_job_with_what_to_do(tmp_path, data):
    for arguments, error, message in (
        (("--validation", "locomo/c7"), ConfigError, "--validation: 'locomo/c7' is none of locomo/c1, locomo/c2, loc"),
        (("--corpus", str(data)), ConfigError, "--corpus: locomo has all in one file"),
        (("--seed", "-1"), ConfigError, "--seed: -1 is not between 0 and"),
        (("--set", "run.train.epochs=0"), ConfigError, "run.train.epochs"),
    ):
        with pytest.raises(error, match=message):
            trained(data, "hage", *arguments)
    for recipe in ("hybrid", "hage:beam", "default"):
        with pytest.raises(SystemExit) as caught:
            trained(data, recipe)
        assert caught.value.code == 2
    samples = json.loads(data.read_text())
    for sample in samples:
        for question in sample["qa"]:
            question["category"] = 5
    data.write_text(json.dumps(samples))
    with pytest.raises(TaskError, match="no question of the groups 1, 2, 3, 4 to learn from"):
        trained(data, "learned-flat")
    assert not (tmp_path / "models").exists()


def test_heads_are_trained_with_how_to_use_them(data, capsys):
    folder = trained(data, "heads", "--licence", "CC BY 4.0", "--set", "run.train.epochs=2")
    shown = capsys.readouterr().out
    assert "10 questions held back: recall@10 " in shown
    assert f"--set encoder.tuned={folder}, and rebuild" in shown
    trained(data, "heads", "--licence", "CC BY 4.0", "--json", "--set", "run.train.epochs=1")
    assert json.loads(capsys.readouterr().out)["licence"] == "CC BY 4.0"


def test_what_cannot_be_tuned_ends_the_job_with_what_to_do(tmp_path, data):
    for recipe, arguments, error, message in (
        ("encoder", (), ConfigError, "--licence: names that of the data"),
        ("heads", ("--licence", ""), ConfigError, "--licence: names that of the data"),
        ("learned-flat", ("--licence", "CC0"), ConfigError, "--licence: .* goes with no other"),
        ("heads", ("--licence", "CC0", "--validation", "c7"), ConfigError, "--validation: 'c7' is none of locomo/c1"),
        ("encoder", ("--licence", "CC0"), EncoderError, "cannot be tuned.* set encoder.name=minilm"),
    ):
        with pytest.raises(error, match=message):
            trained(data, recipe, *arguments)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("job", ["train", "evaluate"])
def test_a_missing_package_for_training_is_named(tmp_path, data, monkeypatch, job):
    class NotInstalled:
        def find_spec(self, name, path=None, target=None):
            if name == "sklearn":
                raise ModuleNotFoundError("No module named 'sklearn'", name=name)

    learners = ("hgmem_core.boosting", "pipelines.training", "pipelines.model_training", "pipelines.cross_validation")
    for name in [name for name in sys.modules if name in learners or name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    with pytest.raises(ConfigError, match=r"training needs sklearn: pip install 'hgmem\[train\]'"):
        if job == "train":
            trained(data, "learned-flat")
        else:
            evaluate.main(["locomo", "--data", str(data), "--cv", "--recipes", "learned-flat", *STATIC])


def test_models_of_another_encoder_are_neither_used_nor_joined(data):
    models = trained(data, "learned-flat")
    minilm = ("--set", "encoder.name=minilm")
    use = ("--recipes", "learned-flat", "--set", f"retrieve.models={models}")
    with pytest.raises(TrainedModelError, match=r"learned-flat/manifest.json was trained on another encoder"):
        evaluate.main(["locomo", "--data", str(data), *use, *minilm])
    with pytest.raises(TrainedModelError, match=f"another encoder.* or name another folder than {models}"):
        trained(data, "hage", *minilm)


def test_a_single_namespace_holds_a_tenth_of_its_questions_back(tmp_path, capsys):
    data = write_benchmark(tmp_path / "small.json", "c1")
    models = trained(data, "learned-flat:hypergraph", "--json")
    split = json.loads(capsys.readouterr().out)["split"]
    assert split == {"by": "question", "namespace": "locomo/c1", "one_in": 10, "questions": 9}
    assert (models / "learned-flat-hypergraph" / "curves.png").exists()
