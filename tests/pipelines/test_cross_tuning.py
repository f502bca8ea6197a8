"""Tuned vectors of a comparison saw neither what is asked about nor what a model learns from them with."""

import json
from functools import partial
from pathlib import Path

import jsonschema
import pytest

from hgmem_core.tasks.task import TaskError
from pipelines import cross_tuning
from pipelines.cross_tuning import tuned_views
from pipelines.cross_validation import cross_validate
from pipelines.progress import Silent
from pipelines.tuned_training import train_heads
from pipelines.weights import EncoderError
from tests.pipelines.logs import NOW
from tests.pipelines.small_benchmark import Small

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())
NAMES = ("c1", "c2", "c3", "c4")
TUNED = "learned-flat:tuned"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("small"), *NAMES)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tune(small, cache):
    def views(examples):
        return tuned_views("heads", small.task, examples, small.config, small.encoder, cache, NOW, Silent())

    return views


@pytest.fixture(scope="module")
def result(small, tune):
    return compared(small, "hybrid-window", "learned-flat:hypergraph", TUNED, tune=tune)


def compared(small, *recipes, config=None, version=None, tune=None):
    version, config = version or small.version, config or small.config
    return cross_validate(small.task, version, config, small.encoder, recipes, 1, Silent(), tune)


def test_vectors_saw_neither_what_is_asked_nor_what_is_learned_from(result):
    jsonschema.validate({**result, "commit": None}, SCHEMA)
    asked = [name for view in result["tuned"] for name in view["namespaces"]]
    assert sorted(asked) == [f"locomo/{name}" for name in NAMES]
    for view in result["tuned"]:
        assert sorted(view["vectors"]) == sorted(asked)
        for name, vectors in view["vectors"].items():
            seen = set(vectors["trained_on"])
            assert seen
            assert not seen & {*view["namespaces"], name}


def test_what_is_asked_about_is_tuned_on_all_the_rest(result):
    for view in result["tuned"]:
        rest = sorted({f"locomo/{name}" for name in NAMES} - set(view["namespaces"]))
        assert all(view["vectors"][name]["trained_on"] == rest for name in view["namespaces"])


def test_a_view_asks_with_the_vectors_that_are_told_of_and_learns_from_all(small, tune):
    for view in tune(small.examples):
        own = view.retriever.version.tuned_encoder["weights_sha256"]
        assert {view.tuned[name]["weights_sha256"] for name in view.namespaces} == {own}
        assert {one.query_id for one in view.examples} == {one.query_id for one in small.examples}
        assert all(one.query.tuned is not None for one in view.examples)


def test_recipes_without_tuned_vectors_are_as_in_a_comparison_of_their_own(small, result):
    alone = compared(small, "hybrid-window", "learned-flat:hypergraph")
    assert alone["tuned"] == []
    assert [row for row in result["results"] if row["recipe"] != TUNED] == alone["results"]


def test_what_was_tuned_is_taken_again(small, cache, tune, monkeypatch):
    before = tune(small.examples)

    def never(*_):
        raise AssertionError("tuned once more")

    monkeypatch.setattr(cross_tuning, "fit_heads", never)
    assert [view.tuned for view in tune(small.examples)] == [view.tuned for view in before]
    # What is damaged is tuned anew.
    folder = sorted(cache.glob("tuned-*"))[0]
    next(folder.glob("*.safetensors")).write_bytes(b"none")
    with pytest.raises(AssertionError, match="tuned once more"):
        tune(small.examples)


def test_vectors_tuned_on_the_questions_themselves_are_refused(small, tmp_path):
    made = train_heads(
        small.task, small.version, small.config, small.encoder, None, 0, "none", tmp_path / "heads", Silent()
    )
    encoder = small.config.encoder.model_copy(update={"tuned": str(made.folder)})
    config = small.config.model_copy(update={"encoder": encoder})
    with pytest.raises(TaskError, match=r"was tuned on the same questions.*--tune"):
        compared(small, "hybrid-window", TUNED, config=config)


def test_without_tuned_vectors_a_recipe_that_reads_them_is_refused(small):
    with pytest.raises(TaskError, match=r"learned-flat:tuned reads tuned vectors.*--tune"):
        compared(small, "hybrid-window", TUNED)


def test_an_encoder_that_cannot_be_tuned_is_refused_before_anything_is(small, cache):
    views = partial(tuned_views, "encoder", small.task, small.examples, small.config, small.encoder, cache, NOW)
    with pytest.raises(EncoderError, match="cannot be tuned"):
        views(Silent())


def test_a_graph_is_compared_with_the_trees_it_begins_with(small):
    result = compared(small, "hybrid-window", "learned-flat:hypergraph", "routed")
    shares = {(row["recipe"], row["baseline"]) for row in result["own_shares"]}
    assert shares == {("routed", "learned-flat:hypergraph")}
    [share] = [row for row in result["own_shares"] if (row["group"], row["metric"]) == ("1-4", "ndcg@10")]
    means = {row["recipe"]: row["ndcg@10"] for row in result["results"] if row["group"] == "1-4"}
    assert share["difference"] == pytest.approx(means["routed"] - means["learned-flat:hypergraph"], abs=1e-3)
    assert {row["baseline"] for row in result["differences"]} == {"hybrid-window"}
    assert compared(small, "hybrid-window", "routed")["own_shares"] == []
