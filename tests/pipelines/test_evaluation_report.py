import json
from pathlib import Path

import jsonschema
import pytest

from pipelines.evaluation_report import ReportError, evaluation_page
from tests.pipelines.reported import EVIL, invented_result

RESULTS = Path(__file__).parents[2] / "jobs" / "results"
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())


def section(page, title):
    [found] = [one for one in page.sections if one.title == title]
    return found


def test_the_invented_document_is_one_that_an_evaluation_may_write():
    jsonschema.validate(invented_result(), SCHEMA)


def test_what_matters_comes_first():
    page = evaluation_page(invented_result(), "r.json")
    assert [(one.text, one.tone) for one in page.findings] == [
        ("The gate is not passed: 1 of 1 conditions fail.", "bad"),
        (
            "hypergraph finds 70.0 % of the evidence among its first ten turns, 95 % interval 66.0 to 74.0, over 40 "
            "questions.",
            "plain",
        ),
        ("Its weakest group is 1 multi-hop: 44.5 % (40.5 to 48.5, 10 questions).", "plain"),
        ("Against bm25 that is +20.0 points (+15.0 to +25.0), better in 1 of 2 conversations.", "good"),
        ("Not to be told from bm25 by recall@10: hypermem.", "plain"),
        ("Warning: locomo/a has 15 turns: recall@20 and deeper is 100 there whatever the recipe", "bad"),
    ]
    assert (page.tiles[0].name, page.tiles[0].value) == ("best recall@10", "70.0 %")


def test_recipes_stand_best_first_with_their_intervals():
    best, full = section(evaluation_page(invented_result(), "r.json"), "Recall by group").tables
    assert [cells[:2] for cells in best.rows] == [
        ("hypergraph", "66.0 to 74.0"),
        ("hypermem", "47.0 to 55.0"),
        ("bm25", "46.0 to 54.0"),
    ]
    assert len(full.rows) == 9


def test_each_missed_piece_of_evidence_says_why():
    asked = section(evaluation_page(invented_result(), "r.json"), "Worst questions").asked
    told = {one.title: one.questions[0] for one in asked}
    assert list(told) == ["hypergraph: 1 question", "bm25: 1 question", "hypermem: 1 question"]
    assert [one.is_folded for one in asked] == [False, True, True]
    assert told["hypergraph: 1 question"].about == "1 multi-hop · locomo/a · q1 · found 1 of 2"
    assert [one.missed[0].why for one in told.values()] == [
        "cut by k at rank 427, though bm25/turn has it at 5",
        "never found: the ranking does not hold it",
        "topic missed: no topic of its episode was chosen",
    ]
    assert told["hypergraph: 1 question"].missed[0].legs == [("bm25/turn", "5"), ("dense/turn", "none")]


def test_training_curves_stand_beside_it():
    curve = {"recipe": "hage", "seed": 3, "rows": [{"epoch": 0, "recall@10": 41.0}, {"epoch": 1, "loss": 2.0}]}
    training = section(evaluation_page(invented_result(), "r.json", [curve]), "Training of hage")
    assert (training.lead, [chart.title for chart in training.charts]) == ("seed 3", ["recall@10", "loss"])


@pytest.mark.parametrize("result", [{}, [], {"schema_version": 1, "task": "locomo", "results": []}, {"results": [1]}])
def test_another_file_is_refused_by_name(result):
    with pytest.raises(ReportError, match=r"r\.json is no result of jobs\.evaluate"):
        evaluation_page(result if isinstance(result, dict) else {"rows": result}, "r.json")


def test_a_name_may_be_anything(tmp_path):
    result = invented_result(results=[{**one, "recipe": f"${EVIL}$"} for one in invented_result()["results"][:3]])
    chart = section(evaluation_page(result, "r.json"), "Recall by group").charts[0]
    assert "<img" not in chart.svg and "&lt;img" in chart.svg


@pytest.mark.parametrize(
    "name", [path.name for path in sorted(RESULTS.glob("*.json")) if not path.name.startswith("benchmark")]
)
def test_every_kept_result_of_an_evaluation_has_a_report(name):
    result = json.loads((RESULTS / name).read_text())
    if "task" not in result:
        pytest.skip("no evaluation wrote it")
    assert evaluation_page(result, name).sections
