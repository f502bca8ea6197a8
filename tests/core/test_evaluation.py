import pyarrow as pa
import pytest

from hgmem_core.evaluation import paired_differences, question_scores, result_rows
from hgmem_core.ids import turn_id
from hgmem_core.tasks.locomo import GROUPS, namespace_of, read_questions, session_of
from hgmem_core.tasks.task import RETRIEVAL_METRICS, TaskError


def sample(*questions, sample_id="conv-1"):
    conversation = {
        "speaker_a": "Ana",
        "session_1_date_time": "1:00 pm on 1 May, 2023",
        "session_1": [{"dia_id": f"D1:{n}", "speaker": "Ana", "text": "hi"} for n in range(1, 6)],
        "session_10": [{"dia_id": f"D10:{n}", "speaker": "Ana", "text": "hi"} for n in range(1, 4)],
    }
    return {"sample_id": sample_id, "conversation": conversation, "qa": list(questions)}


def question(*evidence, category=1):
    return {"question": "Who?", "answer": "secret", "category": category, "evidence": list(evidence)}


def turns_of(questions):
    return questions.qrels.column("turn_id").to_pylist()


def expected(*pairs):
    namespace = namespace_of("conv-1")
    return sorted(turn_id(namespace, session_of(session), f"D{session}:{turn}") for session, turn in pairs)


@pytest.mark.parametrize(
    ("evidence", "pairs", "counts"),
    [
        (["D1:1", "D10:2"], [(1, 1), (10, 2)], {"evidence": 2}),
        (["D1:1; D10:2"], [(1, 1), (10, 2)], {"evidence": 1, "evidence_repaired": 1}),
        (["D1:05"], [(1, 5)], {"evidence": 1, "evidence_repaired": 1}),
        (["D:10:3"], [(10, 3)], {"evidence": 1, "evidence_repaired": 1}),
        (["D1:1 D1:2 D10:1"], [(1, 1), (1, 2), (10, 1)], {"evidence": 1, "evidence_repaired": 1}),
        (["D", "D1:2"], [(1, 2)], {"evidence": 2, "evidence_dropped": 1}),
        (["D1:99", "D1:2"], [(1, 2)], {"evidence": 2, "evidence_dropped": 1}),
        (["D1:2", "D1:2"], [(1, 2)], {"evidence": 2}),
    ],
)
def test_evidence_is_repaired_by_rule_and_counted(evidence, pairs, counts):
    questions = read_questions([sample(question(*evidence))])
    assert sorted(turns_of(questions)) == expected(*pairs)
    assert {name: count for name, count in questions.counts.items() if count} == {"questions": 1, **counts}


def test_a_question_without_evidence_is_left_out_and_counted():
    questions = read_questions(
        [sample(question(), question("D7:7"), question("D1:1"), {**question(), "evidence": None})]
    )
    assert questions.queries.num_rows == 1
    assert questions.counts["questions_left_out"] == 3


def test_answers_reach_no_query():
    assert "secret" not in str(read_questions([sample(question("D1:1"))]).queries.to_pylist())


@pytest.mark.parametrize("content", [{}, {"sample_id": "x"}, "text", None])
def test_another_file_is_refused(content):
    with pytest.raises(TaskError, match="sample_id, conversation and qa"):
        read_questions([content])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"qa": []}, "'conv-1' has no list of questions"),
        ({"qa": None}, "'conv-1' has no list of questions"),
        ({"qa": [5]}, "'conv-1', question 0: not an object with question, category and evidence"),
        ({"qa": [question("D1:1"), {"evidence": ["D1:1"], "category": 1}]}, "'conv-1', question 1: not an object"),
        ({"qa": [{"evidence": ["D1:1"], "question": "Who?"}]}, "'conv-1', question 0: not an object"),
        ({"qa": [{**question(), "question": None}]}, "'conv-1', question 0: not an object"),
        ({"qa": [{**question(), "evidence": "D1:1"}]}, "'conv-1', question 0: its evidence is no list"),
        ({"conversation": []}, "'conv-1': its conversation is no object"),
        ({"conversation": {"session_1": [{"dia_id": "D1:1"}, "hi"]}}, r"'conv-1', session_1\[1\]: not an object"),
        ({"sample_id": None}, "sample_id None is neither text nor a whole number"),
        ({"sample_id": ["x"]}, "neither text nor a whole number"),
        ({"qa": [question("D7:7")]}, "no question has evidence"),
    ],
)
def test_a_fault_of_a_sample_is_named(change, reason):
    with pytest.raises(TaskError, match=reason):
        read_questions([{**sample(question("D1:1")), **change}])


def test_a_sample_that_comes_twice_is_refused():
    with pytest.raises(TaskError, match="'conv-1' occurs twice"):
        read_questions([sample(question("D1:1")), sample(question("D1:2"), sample_id="conv-2"), sample(question())])


def test_a_recipe_that_found_nothing_has_its_row_of_zeros():
    questions = read_questions([sample(question("D1:1"))])
    run = pa.table({"query_id": pa.array([], pa.string()), "id": [], "recipe": pa.array([], pa.string())})
    rows = result_rows(question_scores(run, questions.queries, questions.qrels, ["b", "a"], RETRIEVAL_METRICS), GROUPS)
    assert [(row["recipe"], row["group"], row["mrr"]) for row in rows if row["group"] == "all"] == [
        ("b", "all", 0),
        ("a", "all", 0),
    ]


def test_groups_average_their_questions_and_a_missing_answer_counts_as_zero():
    questions = read_questions([sample(question("D1:1"), question("D1:2", "D1:3"), question("D1:4", category=5))])
    first, second, _ = questions.queries.column("query_id").to_pylist()
    relevant = dict(zip(questions.qrels.column("query_id").to_pylist(), turns_of(questions), strict=True))
    run = pa.table({"query_id": [first, second], "id": [relevant[first], relevant[second]], "recipe": ["r", "r"]})
    scores = question_scores(run, questions.queries, questions.qrels, ["r", "r"], RETRIEVAL_METRICS)
    rows = {row["group"]: row for row in result_rows(scores, GROUPS)}
    assert {group: row["n"] for group, row in rows.items()} == {"all": 3, "1-4": 2, "1": 2, "5": 1}
    assert rows["1"]["recall@10"] == 75
    assert rows["all"]["recall@10"] == 50
    assert rows["1"]["all@10"] == 50
    assert rows["5"]["mrr"] == 0
    assert rows["1"]["ci95"]["recall@10"] == [50, 100]


def test_paired_differences_are_those_of_the_same_questions():
    questions = read_questions([sample(question("D1:1"), question("D1:2"))])
    first, second = questions.queries.column("query_id").to_pylist()
    relevant = dict(zip(questions.qrels.column("query_id").to_pylist(), turns_of(questions), strict=True))
    run = pa.table(
        {"query_id": [first, second, first], "id": [relevant[first], relevant[second], relevant[first]]}
        | {"recipe": ["better", "better", "worse"]}
    )
    scores = question_scores(run, questions.queries, questions.qrels, ["worse", "better"], RETRIEVAL_METRICS)
    rows = paired_differences(scores, "worse", GROUPS)
    found = {(row["group"], row["metric"]): row for row in rows}
    assert found["all", "recall@10"]["difference"] == 50
    assert found["all", "recall@10"]["by_conversation"] == {"locomo/conv-1": 50}
    assert found["all", "recall@10"]["ci95"] == [0, 100]
    assert {row["recipe"] for row in rows} == {"better"}
