"""LongMemEval as a task: what its questions need is what its importer makes of the same file."""

import copy
import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message
from hgmem_core.tasks import BENCHMARKS
from hgmem_core.tasks.task import TaskError, TaskFile, TaskFiles
from hgmem_core.turns import merge_imports, messages_table

QUESTIONS = json.loads((Path(__file__).parents[1] / "data" / "longmemeval.json").read_text(encoding="utf-8"))


def task_of(*questions):
    return BENCHMARKS["longmemeval"].read(TaskFiles(TaskFile("long.json", questions), None))


def turns_of(task, rows):
    (config,) = task.inputs
    results = IMPORTERS[config.format]([LogRow(f"file:{number}", row) for number, row in enumerate(rows, 1)], config)
    messages = [one for one in results if isinstance(one, Message)]
    turns, _ = merge_imports([messages_table(messages, 0, datetime(2026, 1, 1, tzinfo=UTC), 10_000)])
    return {turn["turn_id"]: turn for turn in turns.to_pylist()}


def changed(**fields):
    return {**copy.deepcopy(QUESTIONS[0]), **fields}


def test_evidence_is_the_marked_turns_and_their_sessions():
    task = task_of(*QUESTIONS)
    turns = turns_of(task, QUESTIONS)
    needed = {}
    for row in task.questions.qrels.to_pylist():
        needed.setdefault(row["query_id"], []).append(turns[row["turn_id"]])
    assert {query_id: sorted(turn["text"][:20] for turn in found) for query_id, found in needed.items()} == {
        "q_violin": ["I bought a violin at"],
        "q_trips": ["I am back from Graz,", "My weekend in Bergen"],
        "q_moved": ["I have five plants, ", "With the two ferns I"],
    }
    for query_id, found in needed.items():
        assert {turn["session_id"] for turn in found} == task.questions.sessions[query_id]
    assert task.questions.counts == {
        "questions": 4,
        "abstention": 1,
        "questions_left_out": 0,
        "evidence": 5,
        "sessions": 5,
        "sessions_dropped": 0,
    }


def test_questions_without_an_answer_are_asked_for_an_answer_alone():
    task = task_of(*QUESTIONS)
    assert "q_violin_abs" not in task.questions.queries.column("query_id").to_pylist()
    golds = {gold.query_id: gold for gold in task.golds}
    assert (golds["q_violin_abs"].group, golds["q_violin_abs"].answers) == ("abstention", ())
    assert golds["q_moved"].answers == ("7",)
    assert golds["q_violin"].asked_on == date(2023, 6, 1)
    assert task.unanswerable == {"abstention"}


def test_labels_reach_no_query():
    assert "SECRET" not in str(task_of(*QUESTIONS).questions.queries.to_pylist())


def test_a_question_without_a_marked_turn_is_left_out_and_counted():
    blank = [[{"role": "user", "content": " ", "has_answer": True}], [], []]
    task = task_of(changed(question_id="q_blank", haystack_sessions=blank), *QUESTIONS)
    assert "q_blank" not in task.questions.queries.column("query_id").to_pylist()
    assert task.questions.counts["questions_left_out"] == 1


def test_a_session_that_is_named_and_not_there_is_counted():
    counts = task_of(changed(answer_session_ids=["answer_violin", "answer_gone"])).questions.counts
    assert (counts["sessions"], counts["sessions_dropped"]) == (1, 1)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({}, "question 2: the question is not an object with question_id"),
        (changed(question=None), "question 2: not an object with question, question_type"),
        (changed(question_type="riddle"), "question 2: the question_type is 'riddle', not one of single-session-user"),
        (changed(haystack_session_ids=["one"]), "question 2: there are 3 haystack_sessions and 1 haystack_session_ids"),
        (changed(answer_session_ids="one"), "question 2: its answer_session_ids are no list"),
        (changed(question_id="q_trips"), r"question 2 \('q_trips'\): its id occurs twice"),
    ],
)
def test_a_question_that_is_not_longmemevals_is_refused_by_place_and_field(question, reason):
    with pytest.raises(TaskError, match=rf"long\.json: {reason}"):
        task_of(QUESTIONS[1], question)


def test_a_file_without_evidence_is_refused():
    with pytest.raises(TaskError, match="no question has a turn of evidence"):
        task_of(QUESTIONS[3])
