"""The segmentation evaluation on chats written for it, and on the real data where that is at hand."""

import json
import os
from pathlib import Path

import pytest

from hgmem_core.tasks.task import TaskError
from hgmem_core.tasks.tiage import read_conversations
from jobs import evaluate

TEA = [["i drink green tea every morning .", "-1"], ["green tea with lemon ? nice .", "0"], ["that is it .", "0"]]
VIOLIN = [["do you play the violin ?", "1"], ["the violin , since school .", "0"]]


def written(tmp_path, content, split="dev"):
    (tmp_path / f"anno_{split}.json").write_text(json.dumps(content))
    return tmp_path


def evaluated(tmp_path, folder, *arguments):
    out = tmp_path / "r.json"
    assert evaluate.main(["segmentation", "--data", str(folder), "--out", str(out), *arguments]) == 0
    return json.loads(out.read_text())


def test_the_table_and_the_document_hold_the_system_beside_the_baselines(tmp_path, capsys):
    folder = written(tmp_path, {"1": TEA + VIOLIN, "2": TEA, "10": TEA[:1]}, "train")
    result = evaluated(tmp_path, folder, "--split", "train", "--set", "encoder.name=static")
    assert [row["system"] for row in result["results"]] == ["hgmem", "none", "all", "even", "random"]
    assert (result["conversations"], result["turns"], result["gold_boundaries"]) == (3, 9, 1)
    rows = {row["system"]: row for row in result["results"]}
    assert (rows["none"]["f1"], rows["all"]["recall"], rows["even"]["precision"]) == (0, 100, 0)
    assert 0 < rows["random"]["f1"] < 100
    assert "window_diff" in capsys.readouterr().out
    assert evaluated(tmp_path, folder, "--split", "train", "--set", "encoder.name=static") == result


def test_labels_become_gaps_and_turns_keep_their_order():
    (conversation,) = read_conversations({"7": TEA + VIOLIN})
    assert conversation.boundaries.tolist() == [False, False, True, False]
    messages = conversation.messages()
    assert [message.text for message in messages] == [text for text, _ in TEA + VIOLIN]
    assert {(message.namespace, message.said_at, message.speaker) for message in messages} == {("tiage/7", None, None)}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ([], "object of conversations"),
        ({"1": []}, "conversation 1 is not a list"),
        ({"1": [["tea", "0"]]}, "conversation 1, turn 0"),
        ({"1": [["tea", "-1"], ["tea", "2"]]}, "conversation 1, turn 1"),
        ({"1": [["tea", "-1"], ["tea"]]}, "conversation 1, turn 1"),
    ],
)
def test_a_file_that_is_not_tiages_is_refused(tmp_path, content, fault):
    with pytest.raises(TaskError, match=fault):
        evaluate.main(["segmentation", "--data", str(written(tmp_path, content)), "--set", "encoder.name=static"])


def test_a_missing_split_is_named(tmp_path):
    with pytest.raises(TaskError, match=r"anno_train\.json cannot be read"):
        evaluate.main(["segmentation", "--data", str(tmp_path), "--split", "train", "--set", "encoder.name=static"])


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_episodes_are_nearer_to_peoples_than_any_baseline_on_tiage(tmp_path):
    result = evaluated(tmp_path, Path(os.environ["HGMEM_DATA"]) / "tiage")
    system, *baselines = result["results"]
    for metric in ("pk", "window_diff"):
        assert system[metric] <= min(row[metric] for row in baselines) - 2, metric
    assert system["f1"] >= 25
