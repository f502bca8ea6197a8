"""Abstention from the command line: evaluated, trained, and told with an answer."""

import json
from pathlib import Path

import jsonschema
import pytest

from hgmem_core.section import ConfigError
from hgmem_core.trained import TrainedModelError
from jobs import evaluate, query, retrieval_evaluation, train
from tests.pipelines.asked_conversations import write_asked

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())
STATIC = ("--set", "encoder.name=static")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    for job in (retrieval_evaluation, train):
        monkeypatch.setattr(job, "cache_folder", lambda name: tmp_path / name)


@pytest.fixture
def data(tmp_path):
    return write_asked(tmp_path / "asked.json", "c1", "c02", "c003")


def trained(data, *arguments):
    models = data.parent / "models"
    given = ["locomo", "--data", str(data), "--recipe", "abstention", "--out", str(models), *STATIC, *arguments]
    assert train.main(given) == 0
    return models


def store_of(data):
    """What names the store that a training left in the cache."""
    [root] = (data.parent / "evaluations").glob("locomo-*")
    return "--store", str(root), "--namespace", "locomo/c1", *STATIC


def test_the_evaluation_writes_what_the_schema_says(tmp_path, data, capsys):
    out = tmp_path / "r.json"
    assert evaluate.main(["abstention", "--data", str(data), "--out", str(out), *STATIC]) == 0
    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    shown = capsys.readouterr().out
    assert f"{result['results'][0]['auroc']:.3f}" in shown
    assert "question text" in shown
    assert f"difference in AUROC {result['auroc_difference']['difference']:+.3f}" in shown


@pytest.mark.parametrize("arguments", [("--cv",), ("--seeds", "3")])
def test_an_evaluation_draws_nothing_and_always_leaves_one_out(data, arguments):
    with pytest.raises(ConfigError, match="nothing is drawn"):
        evaluate.main(["abstention", "--data", str(data), *STATIC, *arguments])


def test_a_trained_abstainer_speaks_when_the_store_is_asked(data, capsys):
    models = trained(data)
    shown = capsys.readouterr().out
    assert "60 questions, 30 of them without an answer" in shown
    use = f"--set retrieve.models={models} --set retrieve.abstain_below=0.5"
    assert use in shown
    asked = [*store_of(data), *use.split()]
    says = []
    for speaker in ("Ana", "Bo"):
        assert query.main([f"What does {speaker} love about the new violin?", *asked]) == 0
        says.append("abstains" in capsys.readouterr().out)
    assert sorted(says) == [False, True]
    assert query.main(["What does Zoe think of jazz?", *asked, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["abstention"]) == {"probability", "abstains", "reason"}


def test_a_threshold_needs_its_model(data):
    trained(data)
    with pytest.raises(TrainedModelError, match="there is no model 'abstention'"):
        query.main(["tea", *store_of(data), "--set", "retrieve.abstain_below=0.5"])


def test_training_has_no_validation_of_its_own(data):
    with pytest.raises(ConfigError, match="--validation: abstention holds back every namespace once"):
        trained(data, "--validation", "locomo/c1")
