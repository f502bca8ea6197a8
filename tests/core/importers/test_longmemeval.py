import copy
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message

QUESTIONS = json.loads((Path(__file__).parents[2] / "data" / "longmemeval.json").read_text(encoding="utf-8"))


def read(*questions):
    rows = [LogRow(f"long.json:{number}", question) for number, question in enumerate(questions, 1)]
    return list(IMPORTERS["longmemeval"](rows, InputConfig(format="longmemeval", paths=["long.json"])))


def changed(**fields):
    return {**copy.deepcopy(QUESTIONS[0]), **fields}


def test_every_turn_of_a_haystack_is_a_message_of_its_session_and_time():
    messages = read(QUESTIONS[0])
    assert [(one.session_id, one.role) for one in messages] == [
        ("session_00001", "user"),
        ("session_00001", "assistant"),
        ("session_00002", "user"),
        ("session_00002", "assistant"),
        ("session_00002", "user"),
        ("session_00003", "user"),
        ("session_00003", "assistant"),
    ]
    assert messages[2].text == "I bought a violin at the flea market, how should I store it?"
    assert messages[2].said_at == datetime(2023, 5, 21, 18, 40, tzinfo=UTC)
    assert len({one.source_id for one in messages}) == 7


def test_questions_have_memories_of_their_own():
    namespaces = [{one.namespace for one in read(question)} for question in QUESTIONS]
    assert all(len(own) == 1 for own in namespaces)
    assert len(set.union(*namespaces)) == len(QUESTIONS)


def test_no_label_becomes_memory():
    told = str(read(*QUESTIONS)).lower()
    for label in ("secret", "answer", "_abs", "has_answer", "q_violin", "single-session", "which cities"):
        assert label not in told


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (["question"], "the question is not an object with question_id and lists"),
        (changed(question_id=7), "the question is not an object with question_id and lists"),
        (changed(haystack_dates=[]), "there are 3 haystack_sessions and 0 haystack_dates"),
    ],
)
def test_a_question_that_cannot_be_read_is_one_refusal(question, reason):
    refused, *rest = read(question, QUESTIONS[2])
    assert refused.outcome == "rejected"
    assert reason in refused.reason
    assert refused.raw is None
    assert [type(one) for one in rest[:3]] == [Message] * 3


def test_bad_sessions_and_turns_are_refused_and_their_neighbours_stay():
    sessions = ["no list", [{"role": "user", "content": 5}, "text", {"role": "user", "content": "It rained."}], [{}]]
    results = read(changed(haystack_sessions=sessions))
    assert [getattr(one, "outcome", "message") for one in results] == [
        "rejected", "rejected", "rejected", "message", "empty",
    ]  # fmt: skip
    assert results[0].reason == "the session is 'no list'; it must be a list of turns"


def test_a_date_that_is_none_leaves_turns_without_a_time_and_says_so():
    message, *_ = read(changed(haystack_dates=["soon", "2023/05/21 (Sun) 18:40", "2023/05/29 (Mon) 11:05"]))
    assert message.said_at is None
    assert "haystack_dates[0]" in message.note
