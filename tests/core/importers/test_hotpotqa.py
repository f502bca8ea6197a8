import json
from pathlib import Path

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message

QUESTIONS = json.loads((Path(__file__).parents[2] / "data" / "hotpotqa.json").read_text(encoding="utf-8"))


def read(*questions, namespace="hotpotqa/small"):
    rows = [LogRow(f"hot.json:{number}", question) for number, question in enumerate(questions, 1)]
    return list(IMPORTERS["hotpotqa"](rows, InputConfig(format="hotpotqa", paths=["hot.json"], namespace=namespace)))


def test_a_paragraph_becomes_a_message_and_a_session_under_its_title():
    first, second, *_ = read(QUESTIONS[0])
    assert second == Message(
        row_id="hot.json:1:context[1]",
        namespace="hotpotqa/small",
        session_id=second.session_id,
        text="Ormel Light\nThe Ormel Light is a lighthouse on the Sorrel Reef. It was built by Edda Quill in 1871.",
        source_id=second.session_id,
    )
    assert first.session_id < second.session_id


def test_a_repeated_paragraph_keeps_its_session_and_the_order_of_the_file_decides_none():
    messages = read(*QUESTIONS)
    assert {message.session_id for message in read(*reversed(QUESTIONS))} == {one.session_id for one in messages}
    ids_of = {}
    for message in messages:
        ids_of.setdefault(message.text, set()).add((message.session_id, message.source_id))
    assert (len(messages), len(ids_of)) == (12, 7)
    assert all(len(ids) == 1 for ids in ids_of.values())
    assert len({session for ids in ids_of.values() for session, _ in ids}) == 7


def test_two_paragraphs_of_one_title_are_two():
    first, second = read({"context": [["Mire", ["A bog."]], ["Mire", ["A village."]]]})
    assert first.source_id != second.source_id


def test_files_that_begin_differently_share_no_session():
    (one,) = read({"context": [["Mire", ["A bog."]]]})
    (other,) = read({"context": [["Fen", ["A marsh."]]]})
    assert one.session_id != other.session_id


def test_labels_are_never_read():
    questions = [{**question, "supporting_facts": [["SECRET", 0]], "level": "SECRET"} for question in QUESTIONS]
    for question in questions:
        question["question"] = question["type"] = "SECRET"
    broken = {**questions[0], "context": "none"}
    results = read(*questions, broken, {**questions[0], "context": [["Mire", "no list"]]})
    assert len(results) == 14
    assert "SECRET" not in str(results)


def test_a_namespace_may_be_each_questions_own():
    messages = read(*QUESTIONS, namespace="hotpotqa/{_id}")
    assert {message.namespace for message in messages} == {"hotpotqa/q-light", "hotpotqa/q-ferry", "hotpotqa/q-hats"}
    (nameless,) = read({"context": [["Mire", ["A bog."]]]}, namespace="hotpotqa/{_id}")
    assert (nameless.outcome, nameless.row_id) == ("rejected", "hot.json:1")
    assert "'_id' is not in the row" in nameless.reason


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "must be a title and a list of sentences"),
        (["Mire"], "must be a title and a list of sentences"),
        (["Mire", "A bog."], "must be a title and a list of sentences"),
        (["Mire", ["A bog.", 7]], "must be a title and a list of sentences"),
        ([7, ["A bog."]], "the title is 7"),
        ([" \u200b", ["A bog."]], "it must be a visible text"),
    ],
)
def test_a_malformed_paragraph_is_rejected_alone(bad, reason):
    before, result, after = read({"context": [["Fen", ["A marsh."]], bad, ["Mire", ["A bog."]]]})
    assert (result.outcome, result.row_id) == ("rejected", "hot.json:1:context[1]")
    assert reason in result.reason
    assert (before.text, after.text) == ("Fen\nA marsh.", "Mire\nA bog.")


@pytest.mark.parametrize("bad", [None, 5, [], {}, {"context": None}, {"context": {"title": []}}])
def test_a_malformed_question_is_rejected_and_the_next_one_read(bad):
    result, *messages = read(bad, QUESTIONS[0])
    assert (result.outcome, result.row_id) == ("rejected", "hot.json:1")
    assert "'context'" in result.reason
    assert len(messages) == 4


def test_a_page_without_sentences_is_its_title():
    (message,) = read({"context": [["Mire", []]]})
    assert message.text == "Mire"


def test_damaged_text_is_repaired_and_noted():
    (message,) = read({"context": [["Mire\x00", ["half \ud83d"]]]})
    assert message.text == "Mire\nhalf \ufffd"
    assert message.note == "title: control characters removed; text: lone surrogates replaced"


def test_an_unreadable_row_is_rejected():
    config = InputConfig(format="hotpotqa", paths=["hot.jsonl"], namespace="hotpotqa/small")
    (result,) = IMPORTERS["hotpotqa"]([LogRow("hot.jsonl:4", None, "not JSON", "{")], config)
    assert (result.outcome, result.reason) == ("rejected", "not JSON")
