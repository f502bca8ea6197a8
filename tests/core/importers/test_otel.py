import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message

TRACES = Path(__file__).parents[2] / "data/exports/otel/traces.jsonl"
REQUESTS = [json.loads(line) for line in TRACES.read_text().splitlines()]
T = 1_715_161_000


def read(*requests, namespace="acme/{user.id}"):
    rows = [LogRow(f"t:{number}", value) for number, value in enumerate(requests, 1)]
    return list(IMPORTERS["otel"](rows, InputConfig(format="otel", paths=["t"], namespace=namespace)))


def said(*requests, **settings):
    return [one for one in read(*requests, **settings) if isinstance(one, Message)]


def text(role, content):
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def value(item):
    return {"stringValue": item if isinstance(item, str) else json.dumps(item)}


def request(*spans, resource=()):
    scopes = [{"spans": [span for span in spans]}]
    return {"resourceSpans": [{"resource": {"attributes": list(resource)}, "scopeSpans": scopes}]}


def span(attributes=(), started=T, parent="", own="s1", trace="t1", events=()):
    """A span of four seconds whose attributes are written as text, or as JSON."""
    pairs = {"user.id": "oona", **dict(attributes)}
    return {
        "traceId": trace,
        "spanId": own,
        "parentSpanId": parent,
        "startTimeUnixNano": f"{started}000000000",
        "endTimeUnixNano": f"{started + 4}000000000",
        "attributes": [{"key": key, "value": value(item)} for key, item in pairs.items() if item is not None],
        "events": [
            {"name": name, "attributes": [{"key": key, "value": value(item)} for key, item in fields.items()]}
            for name, fields in events
        ],
    }


def call(told, answered, **fields):
    return span({"gen_ai.input.messages": told, "gen_ai.output.messages": answered}, **fields)


def test_each_message_of_a_conversation_is_read_once_though_calls_repeat_their_past():
    found = said(*REQUESTS)
    assert [(one.session_id, one.role, one.text) for one in found] == [
        ("conv-tide", "system", "You are a pilot of ships."),
        ("conv-tide", "user", "What is the tide at Skerry?"),
        ("conv-tide", "assistant", ""),
        ("conv-tide", "tool", '{"high": "14:20"}'),
        ("conv-tide", "assistant", "High tide at Skerry is at 14:20."),
        ("conv-tide", "user", "My boat is called Petrel."),
        ("conv-tide", "assistant", "A fine name for a boat."),
        ("0af7651916cd43dd8448eb211c80319c", "user", "Where is the chart of Skerry?"),
        ("0af7651916cd43dd8448eb211c80319c", "assistant", "The chart of Skerry is in drawer nine."),
    ]
    dropped = [one.reason for one in read(*REQUESTS) if not isinstance(one, Message)]
    assert dropped.count("repeats a message of an earlier call") == 7
    assert sum("holds no messages" in reason for reason in dropped) == 2


def test_what_is_new_to_a_call_was_said_when_it_began_and_its_answer_when_it_ended():
    told, answer = said(request(call([text("user", "Hi")], [text("assistant", "Ho")])))
    assert told.said_at == datetime.fromtimestamp(T, UTC)
    assert answer.said_at == datetime.fromtimestamp(T + 4, UTC)


def test_a_past_that_no_call_shows_is_read_without_a_time():
    history = [text("user", "Hi"), text("assistant", "Ho"), text("user", "Hey")]
    first, second, third, answer = said(request(call(history, [text("assistant", "Hm")])))
    assert [one.said_at is None for one in (first, second, third, answer)] == [True, True, False, False]


def test_equal_messages_of_one_conversation_are_told_apart():
    history = [text("user", "More"), text("assistant", "One"), text("user", "More")]
    found = said(
        request(call(history[:1], [history[1]])), request(call(history, [text("assistant", "Two")], started=T + 60))
    )
    assert [one.text for one in found] == ["More", "One", "More", "Two"]
    assert len({one.source_id for one in found}) == 4


def test_a_later_file_gives_what_it_repeats_the_same_names():
    history = [text("user", "Hi"), text("assistant", "Ho"), text("user", "Hey")]
    first = said(request(call(history[:1], [history[1]])))
    later = said(request(call(history, [text("assistant", "Hm")], started=T + 60)))
    assert [one.source_id for one in first] == [one.source_id for one in later[:2]]


def test_arguments_are_the_same_however_their_json_was_written():
    parts = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "tide", "arguments": arguments}]}
        for arguments in ({"b": 1, "a": 2}, '{"a": 2,  "b": 1}')
    ]
    one, two = (said(request(call([text("user", "Hi")], [part])))[1] for part in parts)
    assert one.source_id == two.source_id


def test_spans_come_by_their_beginning_and_inherit_what_is_around_them():
    inner = call([text("user", "Hi")], [], own="s2", parent="s1", started=T + 1)
    later = call([text("user", "Ho")], [], own="s3", parent="s1", started=T + 2)
    for one in (inner, later):
        one["attributes"] = [pair for pair in one["attributes"] if pair["key"] != "user.id"]
    outer = span({"gen_ai.conversation.id": "c9"}, own="s1")
    found = said(request(later, inner, outer))
    assert [(one.namespace, one.session_id, one.text) for one in found] == [
        ("acme/oona", "c9", "Hi"),
        ("acme/oona", "c9", "Ho"),
    ]


def test_the_namespace_may_name_what_the_resource_says():
    resource = [{"key": "service.name", "value": {"stringValue": "pilot"}}]
    (found,) = said(request(call([text("user", "Hi")], []), resource=resource), namespace="{service.name}/{user.id}")
    assert found.namespace == "pilot/oona"


def test_circles_of_parents_end():
    spans = [call([text("user", "Hi")], [], own=own, parent=parent) for own, parent in (("a", "b"), ("b", "a"))]
    assert len(said(request(*spans))) == 1


@pytest.mark.parametrize(
    "events",
    [
        [("gen_ai.user.message", {"content": "Hi"}), ("gen_ai.choice", {"message": {"content": "Ho"}, "index": 0})],
        [
            ("gen_ai.user.message", {"gen_ai.event.content": {"content": "Hi"}}),
            ("gen_ai.choice", {"gen_ai.event.content": {"message": {"role": "assistant", "content": "Ho"}}}),
        ],
        [
            ("gen_ai.content.prompt", {"gen_ai.prompt": [{"role": "user", "content": "Hi"}]}),
            ("gen_ai.content.completion", {"gen_ai.completion": [{"role": "assistant", "content": "Ho"}]}),
        ],
    ],
)
def test_the_events_of_earlier_conventions_are_read(events):
    found = said(request(span(events=events)))
    assert [(one.role, one.text) for one in found] == [("user", "Hi"), ("assistant", "Ho")]


def test_a_tools_event_answers_a_call():
    calls = [{"id": "c1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}]
    events = [
        ("gen_ai.assistant.message", {"tool_calls": calls}),
        ("gen_ai.tool.message", {"id": "c1", "content": "14:20"}),
    ]
    asked, answered = said(request(span(events=events)))
    assert asked.attachments == ({"type": "tool_call", "id": "c1", "name": "tide", "arguments": "{}"},)
    assert (answered.role, answered.call_id, answered.text) == ("tool", "c1", "14:20")


def test_numbered_attributes_are_read_in_their_order():
    attributes = {
        **{f"gen_ai.prompt.{number}.role": "user" for number in (10, 2)},
        "gen_ai.prompt.10.content": "second",
        "gen_ai.prompt.2.content": "first",
        "gen_ai.completion.0.content": "third",
        "gen_ai.completion.0.tool_calls.0.name": "tide",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}",
    }
    found = said(request(span(attributes)))
    assert [(one.role, one.text) for one in found] == [("user", "first"), ("user", "second"), ("assistant", "third")]
    assert found[2].attachments[0]["name"] == "tide"


def test_structured_attributes_are_read_as_json_is():
    told = {"arrayValue": {"values": [{"kvlistValue": {"values": [
        {"key": "role", "value": {"stringValue": "user"}},
        {"key": "parts", "value": {"arrayValue": {"values": [{"kvlistValue": {"values": [
            {"key": "type", "value": {"stringValue": "text"}}, {"key": "content", "value": {"stringValue": "Hi"}},
        ]}}]}}},
    ]}}]}}  # fmt: skip
    one = span()
    one["attributes"].append({"key": "gen_ai.input.messages", "value": told})
    assert [found.text for found in said(request(one))] == ["Hi"]


def test_other_choices_and_reasoning_are_no_part_of_the_talk():
    answers = [
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "Ho"}]},
        text("assistant", "Hey"),
    ]
    _, answer, other = read(request(call([text("user", "Hi")], answers)))
    assert (answer.text, other.outcome, other.reason) == ("Ho", "empty", "another choice of the same answer")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "not an OTLP trace"),
        ({"resourceSpans": 1}, "not an OTLP trace"),
        ({"resourceSpans": [1]}, "'scopeSpans'"),
        ({"resourceSpans": [{"scopeSpans": [{}]}]}, "'spans'"),
        (request(1), "no object"),
        (request(call("cut off [", [])), "gen_ai.input.messages"),
        (request(call([3], [])), "must be an object"),
        (request(call([{"parts": []}], [])), "no role"),
        (request(call([text("user", "Hi")], [], trace=None)), "neither a conversation nor a trace"),
        (request(span({"user.id": None, "gen_ai.input.messages": [text("user", "Hi")]})), "'user.id'"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(value, reason):
    (result,) = read(value)
    assert result.outcome == "rejected"
    assert reason in result.reason


def test_a_span_without_messages_is_empty():
    assert [result.outcome for result in read(request(span()), request())] == ["empty", "empty"]
