import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message

EXPORT = json.loads((Path(__file__).parents[2] / "data/exports/chatgpt/conversations.json").read_text())


def read(*conversations, namespace="me"):
    rows = [LogRow(f"c:{number}", value) for number, value in enumerate(conversations, 1)]
    return list(IMPORTERS["chatgpt"](rows, InputConfig(format="chatgpt", paths=["c"], namespace=namespace)))


def messages(*conversations):
    return [one for one in read(*conversations) if isinstance(one, Message)]


def chat(*said, current=None, **fields):
    """A conversation of (id, parent, text) whose messages are the user's."""
    mapping = {
        node: {
            "id": node,
            "parent": parent,
            "children": [other for other, its, _ in said if its == node],
            "message": message(text) if isinstance(text, str) else text,
        }
        for node, parent, text in said
    }
    return {"id": "c1", "mapping": mapping, "current_node": current or said[-1][0], **fields}


def message(text, role="user", **fields):
    return {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}, **fields}


def one(**fields):
    (result,) = read(chat(("m", None, message("", **fields))))
    return result


def test_the_current_branch_is_read_in_its_order_and_the_others_are_counted():
    found = read(*EXPORT)
    assert [result.text for result in found if isinstance(result, Message)] == [
        "Which ferry goes to Skerry island in the morning?",
        "The ferry Gannet leaves for Skerry at 07:10 from pier four.",
        "How much is it for two adults and a goat?",
        "",
        "22",
        "Two adults and a goat pay 22 crowns.",
        "My goat Bramble will wear this.",
        "Bramble looks ready for the sea.",
    ]
    reasons = [result.reason for result in found if not isinstance(result, Message)]
    assert [reason.split(":")[0] for reason in reasons] == [
        "hidden from the conversation",
        "hidden from the conversation",
        "what the model thought before it answered",
        *["stands on a branch of the conversation that was given up"] * 3,
    ]
    assert len(found) == sum(node["message"] is not None for node in EXPORT[0]["mapping"].values())


def test_a_message_keeps_what_the_export_says_of_it():
    first, *_, answer, picture, _ = messages(*EXPORT)
    assert first == Message(
        row_id="c:1[u1]",
        namespace="me",
        session_id="conv-ferry",
        text="Which ferry goes to Skerry island in the morning?",
        source_id="u1",
        sequence=3,
        role="user",
        speaker="user",
        said_at=datetime(2024, 5, 8, 9, 36, 40, 250_000, tzinfo=UTC),
        time_zone="UTC",
    )
    assert answer.text.endswith("22 crowns.")  # the app's private marks of its citations are gone
    assert (picture.said_at, picture.note) == (None, None)
    assert picture.attachments == (
        {"type": "image", "id": "file-service://file-7", "caption": "a goat on a ferry"},
        {"type": "file", "name": "ticket.pdf"},
    )


def test_code_for_a_tool_is_a_call_and_its_output_the_tools_message():
    call, output = messages(*EXPORT)[3:5]
    assert call.attachments == ({"type": "tool_call", "id": None, "name": "python", "arguments": "print(2 * 9 + 4)"},)
    assert (output.role, output.speaker, output.text) == ("tool", "python", "22")


def test_an_edited_question_and_a_new_answer_keep_the_names_of_the_old_ones():
    before = [("q", None, "How old is Bo?"), ("a", "q", "Ten."), ("q2", "a", "And Ana?"), ("a2", "q2", "Nine.")]
    after = [*before, ("a'", "q", "Eleven."), ("q2'", "a'", "And Chen?"), ("a2'", "q2'", "Four."), ("q3", "a2'", "Ok")]
    old, new = messages(chat(*before)), messages(chat(*after))
    assert [one.source_id for one in old] == ["q", "a", "q2", "a2"]
    assert [(one.source_id, one.text) for one in new] == [
        ("q", "How old is Bo?"),
        ("a", "Eleven."),
        ("q2", "And Chen?"),
        ("a2", "Four."),
        ("q3", "Ok"),
    ]


def test_a_conversation_without_a_current_message_ends_with_its_last():
    for current in ("gone", None, 7):
        (first, second) = messages({**chat(("a", None, "Hi"), ("b", "a", "Ho")), "current_node": current})
        assert (first.text, second.text) == ("Hi", "Ho")
        assert "current_node" in first.note


@pytest.mark.parametrize("parents", [{"a": "b", "b": "a"}, {"a": "a", "b": "a"}, {"a": "gone", "b": "a"}])
def test_circles_and_unknown_parents_end_a_branch(parents):
    found = messages(chat(("a", parents["a"], "Hi"), ("b", parents["b"], "Ho")))
    assert [one.text for one in found] == ["Hi", "Ho"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"content_type": "text", "parts": ["One.", "Two."]}, "One.\nTwo."),
        (
            {"content_type": "tether_quote", "url": "x", "title": "Tides", "text": "High at noon."},
            "Tides\nHigh at noon.",
        ),
        ({"content_type": "system_error", "name": "Error", "text": "It broke."}, "It broke."),
        (
            {"content_type": "multimodal_text", "parts": [{"content_type": "audio_transcription", "text": "Ahoy"}]},
            "Ahoy",
        ),
    ],
)
def test_each_type_of_content_gives_its_text(content, text):
    result = one(content=content)
    assert (result.text, result.attachments, result.note) == (text, (), None)


def test_a_part_of_unknown_type_leaves_its_type_behind():
    result = one(content={"content_type": "multimodal_text", "parts": [{"content_type": "hologram"}, "Look!"]})
    assert (result.text, result.attachments) == ("Look!", ({"type": "hologram"},))
    assert "hologram" in result.note


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "must be an object"),
        ({"id": "c1"}, "'mapping'"),
        ({"mapping": {}}, "'conversation_id'"),
        (chat(("m", None, "Hi"), id=None), "'conversation_id'"),
        (chat(("m", None, ["Hi"])), "not an object"),
        (chat(("m", None, message("Hi", author={}))), "no author with a role"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(value, reason):
    (result,) = read(value)
    assert result.outcome == "rejected"
    assert reason in result.reason


def test_a_conversation_without_messages_is_empty():
    (result,) = read(chat(("root", None, None)))
    assert (result.outcome, result.reason) == ("empty", "a conversation without messages")


def test_a_conversation_without_a_tenant_is_refused_message_by_message():
    results = read(chat(("a", None, "Hi"), ("b", "a", "Ho")), namespace="acme/{workspace}")
    assert ["workspace" in result.reason for result in results] == [True, True]
