import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import Dropped, LogRow, Message

SHAPES = Path(__file__).parents[2] / "data" / "shapes.jsonl"
HELLO = {"sha256": hashlib.sha256(b"hello").hexdigest(), "bytes": 5}


def read(*values, namespace="acme", **settings):
    rows = [LogRow(f"chat:{number}", value) for number, value in enumerate(values, 1)]
    config = InputConfig(format="openai", paths=["chat"], namespace=namespace, **settings)
    return list(IMPORTERS["openai"](rows, config))


def say(content, **fields):
    """The one result for a user's message of this content."""
    return read([{"role": "user", "content": content, **fields}])[0]


def call(name="fare", arguments="{}", **fields):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **fields}


def test_a_conversation_gives_one_message_for_each_of_its_own():
    messages = [
        {"role": "user", "content": "Which ferry?", "id": "m1", "name": "Oona", "created_at": 1_700_000_000},
        {"role": "assistant", "content": "The first one."},
    ]
    first, second = read({"id": "c7", "messages": messages}, time_zone="Europe/Paris")
    assert first == Message(
        row_id="chat:1[0]",
        namespace="acme",
        session_id="c7",
        text="Which ferry?",
        source_id="m1",
        sequence=0,
        role="user",
        speaker="Oona",
        said_at=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        time_zone="Europe/Paris",
    )
    assert (second.row_id, second.sequence, second.source_id) == ("chat:1[1]", 1, None)
    assert (second.role, second.speaker, second.said_at) == ("assistant", "assistant", None)


@pytest.mark.parametrize("key", ["session_id", "conversation_id", "id"])
def test_the_session_is_named_by_the_conversation(key):
    (result,) = read({key: 12, "messages": [{"role": "user", "content": "Hi"}]})
    assert result.session_id == "12"


def test_a_conversation_without_an_id_gets_the_same_one_at_every_reading():
    greeting, other = [{"role": "user", "content": "Hi \ud83d"}], [{"role": "user", "content": "Ho"}]
    (first, second), (again,) = read(greeting, other), read(greeting)
    assert first.session_id == again.session_id != second.session_id


def test_a_conversation_without_an_id_keeps_its_session_while_it_grows():
    system, first = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    answer, other = {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Which ferry?"}
    for head in ([first], [system, first]):
        (short, *_), (long, *_), (different, *_) = (
            [message for message in read(talk)] for talk in (head, [*head, answer], [*head[:-1], other, answer])
        )
        assert short.session_id == long.session_id != different.session_id


def test_conversations_that_begin_alike_are_told_apart_by_their_place_among_each_other():
    ferry, train = ([{"role": "user", "content": "Hi"}, {"role": "user", "content": text}] for text in ("F", "T"))
    first, _, second, _ = read(ferry, train)
    assert first.session_id != second.session_id
    assert [message.session_id for message in read(ferry, [{"role": "user", "content": "Ho"}], train)[3:]] == [
        second.session_id
    ] * 2
    # Somebody else's conversations do not count.
    talks = [{"user": user, "messages": talk} for user, talk in (("a", ferry), ("b", ferry), ("a", train))]
    sessions = [message.session_id for message in read(*talks, namespace="{user}")[::2]]
    assert sessions == [first.session_id, first.session_id, second.session_id]


def test_equal_conversations_of_different_times_are_two():
    messages = [{"role": "user", "content": "Hi"}]
    first, second = read({"created_at": 1e9, "messages": messages}, {"created_at": 1.1e9, "messages": messages})
    assert first.session_id != second.session_id


def test_a_message_without_a_time_has_the_conversations():
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "Ho", "timestamp": "2024-05-08T10:00:00Z"},
    ]
    first, second = read({"created_at": "2024-05-08T09:00:00Z", "messages": messages})
    assert first.said_at == datetime(2024, 5, 8, 9, tzinfo=UTC)
    assert second.said_at == datetime(2024, 5, 8, 10, tzinfo=UTC)


def test_a_bad_time_is_not_replaced_by_that_of_the_conversation():
    (result,) = read({"created_at": 1e9, "messages": [{"role": "user", "content": "Hi", "time": "soon"}]})
    assert result.said_at is None
    assert "soon" in result.note


def test_the_namespace_is_spelled_out_by_the_conversation():
    chat = {"user": "oona", "metadata": {"org": "north"}, "messages": [{"role": "user", "content": "Hi"}]}
    (result,) = read(chat, namespace="{metadata.org}/{user}")
    assert result.namespace == "north/oona"


def test_each_message_of_a_conversation_without_a_tenant_is_rejected():
    results = read([{"role": "user", "content": "Hi"}, {"role": "user", "content": "Ho"}], namespace="acme/{user}")
    assert [result.outcome for result in results] == ["rejected", "rejected"]
    assert all("'user' is not in the row" in result.reason for result in results)


def test_a_single_message_in_a_row_is_read_by_its_own_fields():
    fields = {"role": "user", "content": "Hi", "user": "oona", "id": "m1"}
    with_session, without = read({**fields, "session_id": "s1"}, fields, namespace="acme/{user}")
    assert (with_session.row_id, with_session.session_id, with_session.source_id) == ("chat:1", "s1", "m1")
    assert (without.session_id, without.sequence, without.namespace) == ("log", None, "acme/oona")


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_a_turn_with_only_tool_calls_is_kept_with_empty_text(content):
    (result,) = read([{"role": "assistant", **content, "tool_calls": [call(arguments='{"to": "Skerry"}')]}])
    assert (result.text, result.note) == ("", None)
    assert result.attachments == (
        {"type": "tool_call", "id": "call_1", "name": "fare", "arguments": '{"to": "Skerry"}'},
    )


def test_arguments_given_as_an_object_become_canonical_json():
    (result,) = read([{"role": "assistant", "tool_calls": [call(arguments={"b": 1, "a": "é"})]}])
    assert result.attachments[0]["arguments"] == '{"a":"é","b":1}'


def test_a_legacy_function_call_is_a_tool_call_without_an_id():
    (result,) = read([{"role": "assistant", "content": None, "function_call": {"name": "fare", "arguments": "{}"}}])
    assert result.attachments == ({"type": "tool_call", "id": None, "name": "fare", "arguments": "{}"},)


@pytest.mark.parametrize("calls", ["fare", 5, [7], {"function": None}])
def test_broken_tool_calls_do_not_cost_the_text(calls):
    assert say("Hello", tool_calls=calls).text == "Hello"


def test_null_tool_calls_are_none():
    assert say("Hello", tool_calls=None).note is None


def test_a_tools_answer_names_its_call():
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "12.50"}
    _, result = read([{"role": "assistant", "tool_calls": [call()]}, answer])
    assert (result.call_id, result.text, result.note) == ("call_1", "12.50", None)


def test_an_answer_before_or_without_its_call_is_kept_and_noted():
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "12.50"}
    early, _, foreign, nameless = read(
        [
            answer,
            {"role": "assistant", "tool_calls": [call()]},
            {**answer, "tool_call_id": "x"},
            {**answer, "tool_call_id": None},
        ]
    )
    assert early.note == foreign.note == "answers no call of this conversation"
    assert (foreign.call_id, foreign.text) == ("x", "12.50")
    assert "without the id of its call" in nameless.note


def test_a_call_of_another_conversation_is_not_answered():
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "12.50"}
    assert read([{"role": "assistant", "tool_calls": [call()]}], [answer])[1].note is not None


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_use", "id": "call_1", "name": "fare", "input": {"to": "Skerry"}},
        {"type": "server_tool_use", "id": "call_1", "name": "fare", "input": {"to": "Skerry"}},
        {"type": "tool-call", "toolCallId": "call_1", "toolName": "fare", "args": {"to": "Skerry"}},
        {"type": "function_call", "call_id": "call_1", "name": "fare", "arguments": '{"to":"Skerry"}'},
    ],
)
def test_a_call_in_a_part_of_the_content_is_a_call(part):
    (result,) = read([{"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, part]}])
    expected = {"type": "tool_call", "id": "call_1", "name": "fare", "arguments": '{"to":"Skerry"}'}
    assert (result.text, result.attachments, result.note) == ("Let me see.", (expected,), None)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "12.50"},
        {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "12.50"}]},
        {
            "type": "tool-result",
            "toolCallId": "call_1",
            "toolName": "fare",
            "output": {"type": "text", "value": "12.50"},
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "12.50"},
    ],
)
def test_an_answer_in_a_part_of_the_content_is_the_tools_and_not_the_users(part):
    made = {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "fare", "input": {}}]}
    answered = {"role": "user", "id": "m2", "content": [part, {"type": "text", "text": "Too dear!"}]}
    _, said, result = read([made, answered])
    assert (said.role, said.text, said.attachments, said.source_id) == ("user", "Too dear!", (), "m2")
    assert (result.role, result.speaker, result.text, result.call_id) == ("tool", "tool", "12.50", "call_1")
    assert (result.source_id, result.sequence, result.note) == ("m2/0", 1, None)
    _, alone = read([made, {"role": "user", "content": [part]}])
    assert (alone.role, alone.text, alone.row_id) == ("tool", "12.50", "chat:1[1][0]")


def test_answers_of_other_shapes_are_kept_as_they_are():
    given = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": {"fare": 12.5}},
        {"type": "tool_result", "tool_use_id": "c", "content": None},
        {"type": "tool_result", "content": "nameless"},
        {"type": "tool_result", "tool_use_id": "d", "content": [{"type": "tool_result", "content": "within"}]},
    ]
    shown, written, nothing, nameless, nested = read({"role": "user", "content": given, "session_id": "s"})
    assert (shown.text, shown.attachments) == ("", ({"type": "image"},))
    assert written.text == '{"fare":12.5}'
    assert nothing.outcome == "empty"
    assert (nameless.text, "without the id" in nameless.note) == ("nameless", True)
    assert "within" in nested.text


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", "reasoning"])
def test_what_a_model_thought_is_not_said(kind):
    result = say([{"type": kind, "thinking": "sly", "text": "sly", "data": "c2x5"}, {"type": "text", "text": "Hello"}])
    assert (result.text, result.attachments, result.note) == ("Hello", (), None)


def image(url, **fields):
    return {"type": "image_url", "image_url": {"url": url, **fields}}


SOUND = {"data": "aGVsbG8=", "format": "wav", "transcript": "hello"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (["two", "strings"], "two\nstrings"),
        ({"type": "text", "text": "one part"}, "one part"),
        (
            [{"type": kind, "text": kind} for kind in ("text", "input_text", "output_text")],
            "text\ninput_text\noutput_text",
        ),
        ([{"text": "untyped"}], "untyped"),
        ([{"type": "text", "text": {"value": "nested"}}], "nested"),
        ([{"type": "refusal", "refusal": "I cannot."}], "I cannot."),
    ],
)
def test_text_of_every_known_shape(content, text):
    result = say(content)
    assert (result.text, result.attachments, result.note) == (text, (), None)


@pytest.mark.parametrize(
    ("content", "attachment"),
    [
        ({"type": "image", "caption": "a pier"}, {"type": "image", "caption": "a pier"}),
        ({"type": "image"}, {"type": "image"}),
        ({"type": "input_image", "image_url": "https://a.org/b"}, {"type": "image", "url": "https://a.org/b"}),
        (image("https://a.org/b", alt="a pier"), {"type": "image", "caption": "a pier", "url": "https://a.org/b"}),
        (image("data:image/png;base64,aGVsbG8="), {"type": "image", **HELLO}),
        (image("data:text/plain,hel%6Co"), {"type": "image", **HELLO}),
        ({"type": "image", "source": {"type": "base64", "data": "aGVsbG8="}}, {"type": "image", **HELLO}),
        ({"type": "input_audio", "input_audio": SOUND}, {"type": "audio", "caption": "hello", **HELLO}),
        ({"type": "video_url", "video_url": {"url": "https://a.org/b"}}, {"type": "video", "url": "https://a.org/b"}),
        ({"type": "document", "source": {"type": "base64", "data": "aGVsbG8="}}, {"type": "file", **HELLO}),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_id": "f1"}},
            {"type": "file", "name": "a.pdf", "id": "f1"},
        ),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,aGVsbG8="}}, {"type": "file", **HELLO}),
    ],
)
def test_media_of_every_known_shape(content, attachment):
    for result in (say(content), say([content])):
        assert (result.text, result.attachments, result.note) == ("", (attachment,), None)


@pytest.mark.parametrize(
    ("part", "kind"), [({"type": "hologram"}, "hologram"), ({"type": 5}, "unknown"), ({}, "unknown"), (5, "unknown")]
)
def test_a_part_of_unknown_type_leaves_its_type_and_a_note(part, kind):
    result = say([part, {"type": "text", "text": "Hello"}])
    assert (result.text, result.attachments) == ("Hello", ({"type": kind},))
    assert "part" in result.note


@pytest.mark.parametrize("payload", ["data:image/png;base64,%%%", "data:image/png;base64,é", "A" * 5_000])
def test_no_payload_is_kept_even_where_it_cannot_be_decoded(payload):
    result = say([{"type": "image_url", "image_url": {"url": payload}}])
    assert set(result.attachments[0]) == {"type", "sha256", "bytes"}


def test_a_refusal_or_a_spoken_answer_beside_null_content_is_kept():
    refusal = say(None, refusal="I cannot.")
    spoken = say(None, audio={"id": "a1", "data": "aGVsbG8=", "transcript": "hello"})
    assert refusal.text == "I cannot."
    assert spoken.attachments == ({"type": "audio", "caption": "hello", "id": "a1", **HELLO},)


@pytest.mark.parametrize("content", [None, "", " \n", [], [{"type": "text", "text": ""}]])
def test_a_message_with_nothing_in_it_is_empty(content):
    assert say(content).outcome == "empty"


@pytest.mark.parametrize(
    "bad", [42, "text", None, {"content": "no role"}, {"role": " ", "content": "x"}, {"role": "user", "content": True}]
)
def test_a_bad_message_is_rejected_alone(bad):
    before, result, after = read([{"role": "user", "content": "before"}, bad, {"role": "user", "content": "after"}])
    assert (result.outcome, result.row_id) == ("rejected", "chat:1[1]")
    assert (before.text, after.text) == ("before", "after")


@pytest.mark.parametrize(
    "value", [{"messages": None}, {"messages": "text"}, {"title": "no messages"}, 42, None, "text"]
)
def test_a_row_that_is_no_conversation_is_rejected(value):
    (result,) = read(value)
    assert (result.outcome, result.row_id) == ("rejected", "chat:1")


def test_a_conversation_without_messages_is_counted_as_empty():
    assert read({"messages": []})[0].outcome == "empty"


def test_two_people_who_are_no_assistants_keep_their_names():
    talk = [{"role": "user", "name": "Oona", "content": "Hi"}, {"role": "user", "name": "Piet", "content": "Ho"}]
    assert [message.speaker for message in read(talk)] == ["Oona", "Piet"]


def test_all_shapes_in_one_conversation_give_one_result_each_and_never_the_word_none():
    messages = [json.loads(line) for line in SHAPES.read_text("utf-8").splitlines()]
    results = read(messages)
    assert len(results) == len(messages)
    dropped = {int(result.row_id[7:-1]): result.outcome for result in results if isinstance(result, Dropped)}
    assert dropped == {16: "empty", 17: "empty", 18: "empty", 20: "rejected", 21: "rejected", 22: "rejected"}
    assert not any("None" in result.text for result in results if isinstance(result, Message))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    "messages role content tool_calls function name id type text image_url url time".split()
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_gives_storable_results_and_no_error(value):
    for result in read(value, {"messages": value}, [value, {"role": "tool", "content": value, "tool_calls": value}]):
        if isinstance(result, Message):
            assert result.text or result.attachments
            fields = (result.text, result.session_id, result.source_id, result.role, result.speaker, result.note)
            json.dumps([*fields, result.attachments], allow_nan=False, ensure_ascii=False).encode()
        else:
            f"{result.reason} {result.raw}".encode()
