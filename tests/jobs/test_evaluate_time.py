"""The evaluation of times on a conversation written for it, and on the real data where that is at hand."""

import json
import os
from pathlib import Path

import jsonschema
import pytest

from hgmem_core.tasks.task import TaskError
from hgmem_core.time_triggers import time_triggers
from jobs import evaluate

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())
TURNS = [
    "We sailed to Hvar last Friday, and two weeks ago to Vis.",
    "I swim every Tuesday, and lately I row.",
    "Some winter I shall ski for hours.",
]


def evaluated(tmp_path, turns):
    session = [{"speaker": "Ana", "dia_id": f"D1:{turn + 1}", "text": text} for turn, text in enumerate(turns)]
    conversation = {"session_1": session, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    data, out = tmp_path / "small.json", tmp_path / "r.json"
    data.write_text(json.dumps([{"sample_id": "conv-1", "conversation": conversation}]))
    assert evaluate.main(["time", "--data", str(data), "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    return result


def test_the_share_of_placed_words_and_the_commonest_others(tmp_path, capsys):
    result = evaluated(tmp_path, TURNS)
    rows = {row["kind"]: row for row in result["results"]}
    assert {kind: (row["n"], row["placed"]) for kind, row in rows.items()} == {
        "point": (3, 66.7),
        "duration": (1, 0.0),
        "repeated": (1, 0.0),
        "vague": (1, 0.0),
    }
    assert rows["point"]["unplaced"] == [{"shape": "winter", "n": 1}]
    assert rows["repeated"]["unplaced"] == [{"shape": "every N", "n": 1}]
    assert result["turns"] == 3
    shown = capsys.readouterr().out
    assert "66.7 %" in shown and "lately 1" in shown


def test_what_is_no_locomo_is_refused(tmp_path):
    data = tmp_path / "small.json"
    for content, fault in (("{}", "not a list"), ("nothing", "cannot be read")):
        data.write_text(content)
        with pytest.raises(TaskError, match=fault):
            evaluate.main(["time", "--data", str(data)])


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("May I come on 5 May, in 2021 or in the early 90s?", ["point"] * 3),
        ("Next Christmas, or that weekend.", ["point", "point"]),
        ("She sang for three years, all night.", ["duration", "duration"]),
        ("Once a week, on Mondays, daily.", ["repeated"] * 3),
        ("A long time ago, and soon again.", ["vague", "vague"]),
        ("The cat sat on the mat.", []),
    ],
)
def test_words_that_speak_of_time_are_of_a_kind(text, kinds):
    assert [trigger.kind for trigger in time_triggers(text)] == kinds


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_most_times_of_locomo_are_placed(tmp_path):
    out = tmp_path / "r.json"
    assert (
        evaluate.main(
            ["time", "--data", str(Path(os.environ["HGMEM_DATA"]) / "locomo" / "locomo6.json"), "--out", str(out)]
        )
        == 0
    )
    points = json.loads(out.read_text())["results"][0]
    assert points["kind"] == "point" and points["n"] > 300
    assert points["placed"] >= 91
