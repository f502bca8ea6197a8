"""HotpotQA and MuSiQue evaluated on small files written for it, and on the real data where that is at hand."""

import json
import os
from pathlib import Path

import jsonschema
import pytest

from jobs import evaluate, rebuild
from tests.jobs.test_evaluate import SCHEMA

DATA = Path(__file__).parents[1] / "data"
STATIC = ("--set", "encoder.name=static")

# Supporting paragraphs found among the first five, in percent: bm25s with its English stop words and Snowball stems.
REFERENCE = {"hotpotqa": 79.5, "musique": 49.8}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(evaluate, "cache_folder", lambda name: tmp_path / name)


def files(task, folder=DATA, data="", corpus="musique_corpus.json"):
    arguments = (task, "--data", folder / (data or f"{task}.json"))
    return (*arguments, "--corpus", folder / corpus) if task == "musique" else arguments


def evaluated(job, tmp_path, *arguments):
    out = tmp_path / "r.json"
    code, printed, err = job(evaluate, *arguments, "--out", out)
    assert code == 0, err
    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    return result, printed


@pytest.mark.parametrize(
    ("task", "sizes", "paragraphs"),
    [
        ("hotpotqa", {"all": 3, "bridge": 2, "comparison": 1}, 7),
        ("musique", {"all": 3, "2hop": 1, "3hop": 1, "4hop": 1}, 6),
    ],
)
def test_the_table_and_the_document_hold_each_recipe_by_group(job, tmp_path, task, sizes, paragraphs):
    options = (*files(task), "--recipes", "bm25,hypergraph", "--baseline", "bm25", *STATIC)
    result, printed = evaluated(job, tmp_path, *options)
    for recipe in ("bm25", "hypergraph"):
        assert {row["group"]: row["n"] for row in result["results"] if row["recipe"] == recipe} == sizes
    assert result["evidence"]["paragraphs"] == paragraphs
    assert result["warnings"] == [
        f"{task}/paragraphs has {paragraphs} turns: recall@10 and deeper is 100 there whatever the recipe"
    ]
    # So few paragraphs are all found in ten.
    assert {row["recall@10"] for row in result["results"]} == {100}
    assert all(row["recall@2"] <= row["recall@5"] for row in result["results"])
    assert {row["recipe"] for row in result["differences"]} == {"hypergraph"}
    assert "R@2" in printed
    assert ("corpus_sha256" in result) == (task == "musique")


def test_what_names_a_page_finds_it(job, tmp_path):
    rows = evaluated(job, tmp_path, *files("hotpotqa"), "--recipes", "bm25", *STATIC)[0]["results"]
    assert {row["group"]: row["recall@2"] for row in rows}["comparison"] == 100


def test_without_a_corpus_the_questions_paragraphs_alone_are_asked(job, tmp_path):
    options = ("--recipes", "bm25", *STATIC)
    evaluated(job, tmp_path, *files("musique"), *options)
    result, _ = evaluated(job, tmp_path, "musique", "--data", DATA / "musique.json", *options)
    assert result["warnings"] == [
        "musique/paragraphs has 5 turns: recall@5 and deeper is 100 there whatever the recipe"
    ]
    assert result["evidence"] == {"questions": 3, "evidence": 9, "paragraphs": 5}
    assert "corpus_sha256" not in result


def test_lines_are_read_as_a_list_is(job, tmp_path):
    listed = json.loads((DATA / "musique.json").read_text(encoding="utf-8"))
    lines = tmp_path / "musique.jsonl"
    lines.write_text("".join(json.dumps(question) + "\n" for question in listed))
    arguments = ("--recipes", "bm25", *STATIC)
    results = [
        evaluated(job, tmp_path, "musique", "--data", path, *arguments)[0]["results"]
        for path in (DATA / "musique.json", lines)
    ]
    assert results[0] == results[1]


MEMORY = """
[store]
root = "{root}"
[encoder]
name = "static"
[[inputs]]
format = "hotpotqa"
paths = ["{data}"]
namespace = "hotpotqa/paragraphs"
"""


def test_a_version_that_a_rebuild_made_can_be_asked(job, tmp_path):
    memory = tmp_path / "memory.toml"
    memory.write_text(MEMORY.format(root=tmp_path / "store", data=DATA / "hotpotqa.json"))
    built = json.loads(job(rebuild, memory, "--json")[1])
    assert (built["imported"]["outcomes"]["ok"], built["turns"]) == (12, 7)
    options = ("--recipes", "bm25", *STATIC)
    stored = ("--version", built["version"], "--set", f"store.root={tmp_path / 'store'}")
    result, _ = evaluated(job, tmp_path, *files("hotpotqa"), *options, *stored)
    assert result["index_version"] == built["version"]
    assert result["results"] == evaluated(job, tmp_path, *files("hotpotqa"), *options)[0]["results"]
    code, _, err = job(evaluate, *files("musique"), *options, *stored)
    assert code == 1
    assert "has no namespace 'musique/paragraphs': it holds other data" in " ".join(err.split())


def test_a_bad_file_fails_with_its_name(job, tmp_path):
    (tmp_path / "cut.json").write_text('[{"_id": "q-li')
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "cut.jsonl").write_text('{"id": "2hop__1_2"}\n{"id": \n')
    (tmp_path / "other.json").write_text('{"sample_id": "conv-1"}')
    (tmp_path / "short.json").write_text(json.dumps([{"title": "Holm", "text": "Holm lies on a hill."}]))
    short = ("musique", "--data", DATA / "musique.json", "--corpus", tmp_path / "short.json")
    cases = [
        (1, files("hotpotqa", tmp_path, "cut.json"), "cut.json cannot be read as HotpotQA's JSON: not JSON"),
        (1, files("hotpotqa", tmp_path, "gone.json"), "gone.json cannot be read as HotpotQA's JSON"),
        (1, files("hotpotqa", tmp_path, "none.json"), "none.json: it holds no question"),
        (1, files("hotpotqa", tmp_path, "other.json"), "other.json: row 1: the question is not an object with a list"),
        (1, ("musique", "--data", tmp_path / "cut.jsonl"), "cut.jsonl cannot be read as MuSiQue's JSON: cut.jsonl:2"),
        (1, short, "question 1 ('2hop__1_2'): paragraphs[0] ('Port Ansel') is not in"),
        (1, files("musique", DATA, "musique_corpus.json"), "question 1: not an object with id, question and a list"),
        (2, (*files("hotpotqa"), "--corpus", DATA / "musique_corpus.json"), "--corpus: hotpotqa has all in one file"),
        (2, ("segmentation", "--data", tmp_path, "--corpus", tmp_path), "--corpus: segmentation has all in one file"),
    ]
    for expected, arguments, message in cases:
        code, out, err = job(evaluate, *arguments, *STATIC)
        assert (code, out) == (expected, ""), arguments
        assert message in " ".join(err.split()), arguments


real = pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")


def real_files(task):
    folder = Path(os.environ["HGMEM_DATA"]) / "multihop"
    data = {"hotpotqa": "hotpotqa_distractor_200.json", "musique": "musique_train.json"}[task]
    return files(task, folder, data, "musique_train_corpus.json")


@real
@pytest.mark.parametrize(("task", "questions", "paragraphs"), [("hotpotqa", 200, 1968), ("musique", 100, 1890)])
def test_bm25_reaches_an_independent_implementation(job, tmp_path, task, questions, paragraphs):
    result, _ = evaluated(job, tmp_path, *real_files(task), "--recipes", "bm25", *STATIC)
    assert (result["evidence"]["questions"], result["evidence"]["paragraphs"]) == (questions, paragraphs)
    assert result["warnings"] == []
    row = next(row for row in result["results"] if row["group"] == "all")
    assert row["recall@5"] == pytest.approx(REFERENCE[task], abs=1.5)
