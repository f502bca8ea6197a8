"""The evaluation job on a small conversation written for it, and on the real data where that is at hand."""

import json
import os
from pathlib import Path

import jsonschema
import pytest

from hgmem_core.tasks.task import TaskError
from jobs import evaluate, retrieval_evaluation, tune

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())

# Evidence turns found by each recipe, in percent: an independent implementation's values on the six conversations.
REFERENCE = {
    "bm25": {"recall@10": (55.5, 29.8), "ndcg@10": 41.5},
    "hybrid": {"recall@10": (59.9, 39.3), "ndcg@10": 43.1},
    "hybrid-window": {"recall@10": (69.6, 39.9), "ndcg@10": 50.2},
    "untrained": {"recall@10": (75.1, 44.5), "ndcg@10": 56.1},
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    for job in (retrieval_evaluation, tune):
        monkeypatch.setattr(job, "cache_folder", lambda name: tmp_path_factory.getbasetemp() / name)


def small_locomo():
    topics = ["a kitten called Pip", "my new violin", "the lemon harvest", "a trip to Odessa Bay", "Lena's exam"]
    sessions = {
        f"session_{number}": [
            {"speaker": ("Ana", "Bo")[turn % 2], "dia_id": f"D{number}:{turn + 1}", "text": f"About {topic}, you know."}
            for turn, topic in enumerate(topics)
        ]
        for number in (1, 2, 10)
    }
    dates = {f"{name}_date_time": f"1:56 pm on {place + 1} May, 2023" for place, name in enumerate(sessions)}
    questions = [
        {"question": "What is the kitten called?", "answer": "Pip", "evidence": ["D1:1", "D10:1"], "category": 1},
        {"question": "Who plays the violin?", "answer": "Bo", "evidence": ["D2:02"], "category": 4},
        {"question": "Nothing at all?", "answer": "", "evidence": [], "category": 3},
    ]
    return [{"sample_id": "conv-1", "conversation": {"speaker_a": "Ana", **dates, **sessions}, "qa": questions}]


def evaluated(tmp_path, data, *arguments):
    out = tmp_path / "r.json"
    assert evaluate.main(["locomo", "--data", str(data), "--out", str(out), *arguments]) == 0
    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    return result


def test_the_result_fits_its_schema_and_counts_what_was_repaired(tmp_path):
    data = tmp_path / "small.json"
    data.write_text(json.dumps(small_locomo()))
    result = evaluated(tmp_path, data, "--recipes", "bm25,default", "--set", "encoder.name=static")
    assert [row["recipe"] for row in result["results"] if row["group"] == "all"] == ["bm25", "default"]
    assert {row["group"]: row["n"] for row in result["results"][:4]} == {"all": 2, "1-4": 2, "1": 1, "4": 1}
    assert result["evidence"] == {
        "questions": 3,
        "questions_left_out": 1,
        "evidence": 3,
        "evidence_repaired": 1,
        "evidence_dropped": 0,
    }
    assert result["warnings"] == ["locomo/conv-1 has 15 turns: recall@20 and deeper is 100 there whatever the recipe"]
    again = evaluated(tmp_path, data, "--recipes", "bm25,default", "--set", "encoder.name=static")
    assert again == result


def test_each_named_recipe_is_asked_once_whatever_the_buckets(tmp_path):
    data = tmp_path / "small.json"
    data.write_text(json.dumps(small_locomo()))
    static = ("--set", "encoder.name=static")
    twice = evaluated(tmp_path, data, "--recipes", "bm25, bm25,hybrid,bm25", *static)["results"]
    assert [row["recipe"] for row in twice if row["group"] == "all"] == ["bm25", "hybrid"]
    assert all(0 <= value <= 100 for row in twice for name, value in row.items() if "@" in name or name == "mrr")
    again = evaluated(tmp_path, data, "--recipes", "bm25,hybrid", *static, "--set", "store.buckets=4")["results"]
    assert again == twice


def test_another_limit_of_texts_is_another_store(tmp_path):
    samples = small_locomo()
    samples[0]["conversation"]["session_1"][0]["text"] = "A long story of a kitten called Pip. " * 100
    data = tmp_path / "small.json"
    data.write_text(json.dumps(samples))
    versions = [
        evaluated(tmp_path, data, "--set", "encoder.name=static", "--set", f"imports.max_turn_chars={limit}")[
            "index_version"
        ]
        for limit in (400, 800, 400)
    ]
    assert versions[0] == versions[2] != versions[1]


@pytest.mark.parametrize("change", [{"qa": []}, {"qa": None}, {"qa": [{"evidence": ["D1:1"]}]}])
def test_a_damaged_file_is_refused_by_name(tmp_path, change):
    data = tmp_path / "small.json"
    data.write_text(json.dumps([{**small_locomo()[0], **change}]))
    with pytest.raises(TaskError, match=r"small.json: .*conv-1"):
        evaluated(tmp_path, data, "--set", "encoder.name=static")


def test_differences_and_contexts_on_request(tmp_path):
    data = tmp_path / "small.json"
    data.write_text(json.dumps(small_locomo()))
    options = ["--recipes", "hypermem,bm25", "--baseline", "bm25", "--context-tokens", "400"]
    result = evaluated(tmp_path, data, *options, "--set", "encoder.name=static")
    assert {row["recipe"] for row in result["differences"]} == {"hypermem"}
    assert all(0 <= row["all@context"] <= 100 for row in result["results"])
    assert result["context_tokens"] == 400


def test_the_worst_questions_are_told_with_what_was_missed_and_why(tmp_path):
    samples = small_locomo()
    every = [f"D{session}:{turn}" for session in (1, 2, 10) for turn in range(1, 6)]
    samples[0]["qa"][0] |= {"question": "Who would know it?", "evidence": every}  # every turn says "know"
    samples[0]["qa"][1] |= {"question": "Who rehearses on the kitten?", "evidence": ["D2:4", "D2:5"]}
    data = tmp_path / "small.json"
    data.write_text(json.dumps(samples))
    worst = evaluated(tmp_path, data, "--recipes", "bm25", "--worst", "2", "--set", "encoder.name=static")["worst"]
    unheard, cut = worst["questions"]
    assert (unheard["recipe"], unheard["question"], unheard["recall@10"]) == ("bm25", "Who rehearses on the kitten?", 0)
    assert [(one["source_id"], one["rank"], one["why"]) for one in unheard["missed"]] == [
        ("D2:4", None, "never_found"),
        ("D2:5", None, "never_found"),
    ]
    assert {one["source_id"] for one in unheard["first"]} == {"D1:1", "D2:1", "D10:1"}
    assert not any(one["is_evidence"] for one in unheard["first"])
    assert sorted((one["rank"], one["legs"]["bm25/turn"], one["why"]) for one in cut["missed"]) == [
        (rank, rank, "cut") for rank in range(11, 16)
    ]
    assert worst["evidence_by_rank"] == [{"recipe": "bm25", "1-10": 10, "11-30": 5, "31-100": 0, "101-": 0, "never": 2}]


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_hypergraph_keeps_its_marks_on_locomo(tmp_path):
    data = Path(os.environ["HGMEM_DATA"]) / "locomo" / "locomo6.json"
    out = tmp_path / "halves.json"
    assert tune.main(["--data", str(data), "--out", str(out)]) == 0
    held_out = json.loads(out.read_text())["mean_of_held_out_halves"]
    assert held_out["recall@10"] >= 77
    assert held_out["ndcg@10"] >= 59
    assert held_out["multi-hop recall@10"] >= 47
    rows = evaluated(tmp_path, data, "--recipes", "hypergraph", "--context-tokens", "1500")["results"]
    assert next(row for row in rows if row["group"] == "1-4")["all@context"] >= 70


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_recipes_reach_an_independent_implementation_on_locomo(tmp_path):
    data = Path(os.environ["HGMEM_DATA"]) / "locomo" / "locomo6.json"
    rows = evaluated(tmp_path, data, "--recipes", ",".join(REFERENCE))["results"]
    found = {(row["recipe"], row["group"]): row for row in rows}
    for recipe, reference in REFERENCE.items():
        assert found[recipe, "1-4"]["n"] == 888
        for group, expected in zip(("1-4", "1"), reference["recall@10"], strict=True):
            assert found[recipe, group]["recall@10"] == pytest.approx(expected, abs=1.5), (recipe, group)
        assert found[recipe, "1-4"]["ndcg@10"] == pytest.approx(reference["ndcg@10"], abs=1.5), recipe
