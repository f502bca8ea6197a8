"""Ten thousand records for each importer that no service would write: each has an outcome, and none ends the import."""

import json
import math
import random
from collections import Counter
from typing import Any

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS, TRAJECTORY_IMPORTERS
from hgmem_core.importers.slack import SlackNames, SlackRow
from hgmem_core.messages import Dropped, LogRow
from pipelines.log_rows import json_value

RECORDS = 10_000
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, -0.0, math.nan, math.inf, 10**30, -(10**400), 2**63, "", " ", "x", "None",
    "\ud800", "a\x00b", "\U000e0041", "\u202e", "9" * 400, "2024-13-45", "<@U1> &amp; <", "```", "> ", "[", "{",
    '{"a":', "data:image/png;base64,####", [], {}, [[]], [None], [{}], {"": None}, {"a": {"b": []}}, b"\xff", [1, "x"],
)  # fmt: skip
"""In the place of any value; `deep` stands for something nested."""


def text(said):
    return [{"type": "text", "text": said}]


NODE = {"author": {"role": "user", "name": None}, "create_time": 1.7e9, "recipient": "all", "metadata": {}}
SHAPES: dict[str, Any] = {
    "tabular": {"text": "Hi", "session": "s", "id": "m", "sequence": 1, "time": 1.7e9, "speaker": "Ana",
                "role": "user", "attachments": [{"type": "image", "caption": "a boat"}], "call_id": "c"},
    "openai": {"id": "c", "created_at": 1.7e9, "messages": [
        {"role": "user", "content": "Hi", "id": 1},
        {"role": "assistant", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t", "content": text("Ho")}]},
    "chatgpt": {"id": "c", "conversation_id": "c", "current_node": "b", "mapping": {
        "r": {"id": "r", "parent": None, "children": ["a"], "message": None},
        "a": {"id": "a", "parent": "r", "children": ["b", "d"],
              "message": {**NODE, "content": {"content_type": "text", "parts": ["Hi"]}}},
        "b": {"id": "b", "parent": "a", "children": [],
              "message": {**NODE, "content": {"content_type": "multimodal_text", "parts": [
                  {"content_type": "image_asset_pointer", "asset_pointer": "file://x", "metadata": {"dalle": {}}}]}}},
        "d": {"id": "d", "parent": "a", "children": [],
              "message": {**NODE, "content": {"content_type": "code", "text": "1"}}}}},
    "claude": {"uuid": "c", "account": {"uuid": "u"}, "chat_messages": [
        {"uuid": "m", "sender": "human", "text": "Hi", "content": text("Hi"), "created_at": "2024-05-08T00:00:00Z",
         "attachments": [{"file_name": "a.txt", "extracted_content": "x"}], "files": [], "parent_message_uuid": "z"},
        {"uuid": "n", "sender": "assistant", "parent_message_uuid": "m", "content": [
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            {"type": "tool_result", "tool_use_id": "t", "content": text("Ho")}]}]},
    "slack": {"type": "message", "user": "U1", "text": "<@U1> hi", "ts": "1715155200.000200", "thread_ts": "1.0",
              "files": [{"id": "F", "title": "t", "mimetype": "image/png"}], "attachments": [{"title": "t"}],
              "blocks": [{"text": {"text": "x"}}], "user_profile": {"real_name": "Ana"}, "bot_id": None},
    "otel": {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [
        {"traceId": "t", "spanId": "s", "parentSpanId": "s", "startTimeUnixNano": "1700000000000000000",
         "endTimeUnixNano": "1700000001000000000", "attributes": [
             {"key": "gen_ai.conversation.id", "value": {"stringValue": "c"}},
             {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [{"kvlistValue": {"values": [
                 {"key": "role", "value": {"stringValue": "user"}},
                 {"key": "content", "value": {"stringValue": "Hi"}}]}}]}}},
             {"key": "gen_ai.output.messages", "value": {"stringValue":
                 '[{"role": "assistant", "parts": [{"type": "text", "content": "Ho"}]}]'}},
             {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}}],
         "events": [{"name": "gen_ai.choice", "attributes": []}]}]}]}]},
    "locomo": {"sample_id": "p", "conversation": {
        "session_1": [{"dia_id": "D1:1", "speaker": "Ana", "text": "Hi", "img_url": ["u"], "blip_caption": "c"}],
        "session_1_date_time": "1:56 pm on 8 May, 2023"}},
    "hotpotqa": {"_id": "q", "context": [["Title", ["One. ", "Two."]]]},
    "musique": {"id": "q", "paragraphs": [{"title": "Title", "paragraph_text": "One."}]},
    "trajectories": {"task": "Do", "steps": [{"action": {"name": "f", "arguments": {}}, "observation": {"a": 1}}],
                     "outcome": "success", "id": "r", "time": 1.7e9, "n_steps": 2},
    "tau-bench": {"task_id": 1, "reward": 1.0, "traj": [
        {"role": "user", "content": "Do"},
        {"role": "assistant", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t", "content": "done"}]},
    "intercode": {"task_id": 1, "query": "Do", "turn_history": {"actions": ["ls"], "observations": ["x"]},
                  "summary": {"max_reward": 1.0}},
    "alfworld": {"name": "look-1/trial", "result": True, "traj": "Your task is to: look.\n> go\nYou went."},
}  # fmt: skip
COLUMNS = {name: name for name in ("session", "id", "sequence", "time", "speaker", "role", "attachments", "call_id")}
EVERY = {**IMPORTERS, **TRAJECTORY_IMPORTERS}


def deep(depth):
    value: Any = "x"
    for number in range(depth):
        value = [value] if number % 2 else {"content": value}
    return value


def places(value, path=()):
    """Every place inside of a value, the whole of it first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value, path, change):
    """A copy of a value with another one at a place."""
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], change)
    return copy


def spoilt(value, rng):
    """A copy of a record with some faults: a value is another, missing, twice there, or stands at another place."""
    for _ in range(rng.randint(1, 4)):
        every = list(places(value))
        path = rng.choice(every)
        other = rng.choice([*JUNK, deep(90), path[-1] if path else None])
        kind = rng.random()
        if kind < 0.6:
            value = changed(value, path, lambda _, other=other: other)
        elif kind < 0.8 and path:
            value = changed(value, path[:-1], lambda held, key=path[-1]: without(held, key))
        elif kind < 0.9:
            value = changed(value, path, lambda held: held * 2 if isinstance(held, list) else [held])
        else:
            moved = value_at(value, rng.choice(every))
            value = changed(value, path, lambda _, moved=moved: moved)
    return value


def value_at(value, path):
    for key in path:
        value = value[key]
    return value


def without(held, key):
    if isinstance(held, dict):
        return {name: item for name, item in held.items() if name != key}
    return [item for number, item in enumerate(held) if number != key]


def row(number, value, rng, format):
    """A row that was read from a file: some are cut-off JSON, the others what their JSON says, or a table's values."""
    name = f"log:{number}"
    if rng.random() < 0.1:
        try:
            body = json.dumps(value, default=str).encode()
        except RecursionError:
            body = b"["
        read, error = json_value(body[: rng.randint(0, len(body))])
        if error is not None:
            return LogRow(name, None, error, "…")
        value = read
    if format == "slack" and rng.random() < 0.95:
        value = SlackRow(rng.choice(["harbour", "C1"]), SlackNames({"U1": "Ana"}, {"harbour": "C1"}), value)
    return LogRow(name, value)


@pytest.mark.parametrize("format", EVERY)
def test_ten_thousand_malformed_records_reconcile(format):
    rng = random.Random(format)
    shape = SHAPES.get(format, SHAPES["tabular"])
    rows = [row(number, spoilt(shape, rng), rng, format) for number in range(RECORDS)]
    columns = COLUMNS if format in ("parquet", "jsonl", "csv") else {}
    config = InputConfig(format=format, paths=["log"], namespace="acme", columns=columns)
    outcomes = Counter[str]()
    told = set()
    for result in EVERY[format](iter(rows), config):
        outcomes[result.outcome if isinstance(result, Dropped) else "partial" if result.note else "ok"] += 1
        told.add(result.row_id.split("[")[0].split(":")[1])
        if isinstance(result, Dropped):
            assert result.reason
        else:
            json.dumps(result.attachments if hasattr(result, "attachments") else None, allow_nan=False)
            (result.text if hasattr(result, "text") else result.task).encode()
    assert len(told) == RECORDS  # no record is lost in silence
    assert outcomes.total() >= RECORDS
    assert outcomes.keys() <= {"ok", "partial", "empty", "fallback", "rejected"}
    assert outcomes["rejected"] > RECORDS / 20
    # Traces that differ in their faults alone repeat each other's messages.
    assert outcomes["ok"] + outcomes["partial"] > RECORDS / (200 if format == "otel" else 20)
