import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message

EXPORT = json.loads((Path(__file__).parents[2] / "data/exports/claude/conversations.json").read_text())


def read(*conversations, namespace="me/{account.uuid}"):
    rows = [LogRow(f"c:{number}", value) for number, value in enumerate(conversations, 1)]
    return list(IMPORTERS["claude"](rows, InputConfig(format="claude", paths=["c"], namespace=namespace)))


def chat(*said, **fields):
    """A conversation of (uuid, parent, text) of the user's."""
    messages = [{"uuid": uuid, "parent_message_uuid": its, "sender": "human", "text": text} for uuid, its, text in said]
    return {"uuid": "c1", "account": {"uuid": "a"}, "chat_messages": messages, **fields}


def one(**fields):
    return read({**chat(), "chat_messages": [{"uuid": "m", "sender": "human", "text": "", **fields}]})


def test_the_last_branch_is_read_with_the_answers_of_tools_and_the_texts_of_files_as_theirs():
    found = read(*EXPORT)
    assert [(result.role, result.speaker, result.text) for result in found if isinstance(result, Message)] == [
        ("user", "user", "Here is my hive diary. How many hives do I have?"),
        ("file", "diary.txt", "3 March: the hive at the old mill swarmed."),
        ("assistant", "assistant", "You have one hive, at the old mill."),
        ("tool", "web_search", "Bees swarm in spring."),
        ("user", "user", "No, I have nine hives."),
        ("assistant", "assistant", "Nine hives it is."),
        ("user", "user", "My sister Oona plays the viola."),
    ]
    assert [result.reason for result in found if not isinstance(result, Message)] == [
        "stands on a branch of the conversation that was given up",
        "no text and no attachment",
    ]


def test_a_message_keeps_what_the_export_says_of_it():
    first, _, answer, result, edited, *_ = [one for one in read(*EXPORT) if isinstance(one, Message)]
    assert first == Message(
        row_id="c:1[0]",
        namespace="me/acc-1",
        session_id="5a0e",
        text="Here is my hive diary. How many hives do I have?",
        source_id="m1",
        sequence=0,
        role="user",
        speaker="user",
        said_at=datetime(2025, 4, 1, 8, 0, 1, tzinfo=UTC),
        time_zone="UTC",
        attachments=({"type": "file", "name": "diary.txt"}, {"type": "file", "name": "hive.jpg"}),
    )
    assert answer.attachments == (
        {"type": "tool_call", "id": "toolu_1", "name": "web_search", "arguments": '{"query":"swarming"}'},
    )
    assert (result.call_id, result.source_id) == ("toolu_1", "m2/0")
    assert edited.source_id == "m3"  # an edit takes the place of what was said first


def test_a_leaf_that_the_conversation_names_ends_the_branch():
    talk = chat(("a", "none", "Hi"), ("b", "a", "Ho"), ("c", "a", "Hey"), current_leaf_message_uuid="b")
    assert [result.text for result in read(talk) if isinstance(result, Message)] == ["Hi", "Ho"]


def test_without_parents_all_messages_are_read():
    assert [result.text for result in read(chat(("a", None, "Hi"), ("b", None, "Ho")))] == ["Hi", "Ho"]
    assert [result.text for result in read(chat(("a", "zero", "Hi"), ("b", "zero", "Ho")))] == ["Hi", "Ho"]


def test_blocks_are_preferred_to_the_text_that_an_older_export_has_alone():
    (result,) = one(text="This block is not supported.", content=[{"type": "text", "text": "Nine hives."}])
    assert (result.text, result.note) == ("Nine hives.", None)
    (result,) = one(text="Eight hives.", content=[])
    assert result.text == "Eight hives."


def test_a_block_of_unknown_type_leaves_its_type_behind():
    (result,) = one(content=[{"type": "voice_note"}, {"type": "text", "text": "Hm"}])
    assert (result.text, result.attachments) == ("Hm", ({"type": "voice_note"},))
    assert "voice_note" in result.note


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "must be an object"),
        ({"uuid": "c1"}, "'chat_messages'"),
        ({"chat_messages": []}, "'uuid'"),
        ({**chat(), "chat_messages": [3]}, "not an object"),
        ({**chat(), "chat_messages": [{"uuid": "m", "text": "Hi"}]}, "no sender"),
        ({**chat(("m", None, "Hi")), "account": None}, "'account.uuid'"),
        (chat(("m", None, True)), "text: "),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(value, reason):
    (result,) = read(value)
    assert result.outcome == "rejected"
    assert reason in result.reason


def test_a_conversation_without_messages_is_empty():
    (result,) = read(chat())
    assert (result.outcome, result.reason) == ("empty", "a conversation without messages")
