"""OpenTelemetry's traces of generative models: the messages of their calls, each once, though calls repeat their past.

Messages are read from `gen_ai.system_instructions`, `gen_ai.input.messages` and `gen_ai.output.messages`; from the
earlier conventions' events, `gen_ai.user.message`, `gen_ai.choice` and the like; and from numbered attributes such as
`gen_ai.prompt.0.content`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.ids import content_id
from hgmem_core.importers.content import Attachment, read_content, read_tool_calls
from hgmem_core.importers.fields import (
    NamespaceTemplate,
    empty,
    is_missing,
    joined,
    name_of,
    refused,
    shown,
    time_of,
    unreadable,
)
from hgmem_core.importers.otlp import Span, read_spans
from hgmem_core.messages import Dropped, LogRow, Message

_SESSION_KEYS = ("gen_ai.conversation.id", "session.id")
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,4})\.(role|content|tool_calls\.(\d{1,4})\.(\w+))")
_MEDIA = {"blob": "content", "uri": "uri", "file": "file_id"}
_NOTHING = "the span holds no messages of a model; instrumentations record them only where told to"
_REPEATED = "repeats a message of an earlier call"
_OTHER_CHOICE = "another choice of the same answer"


@dataclass(slots=True)
class _Talk:
    """What a call was told and what it answered, as it is recorded."""

    told: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, records: object, to: list[Any], what: str) -> None:
        """Add recorded messages, a list or JSON of one; what cannot be read becomes a fault."""
        try:
            records = json.loads(records) if isinstance(records, str) else records
        except (RecursionError, ValueError):
            records = False
        if isinstance(records, list):
            to += records
        elif not is_missing(records):
            self.faults.append(f"{what} is no list of messages, nor JSON of one")


def read_otel(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each message of each call, and one for each span without any.

    A row is an export request in OTLP's JSON encoding. A session is a `gen_ai.conversation.id`, a `session.id`, or a
    trace. A message is named by what it says and by how many equal ones came before it in its call; one that was read
    before is dropped as empty, so that the history in each call is not said again. The namespace template sees the
    attributes of the span, of those that it is inside of, and of the resource.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces = NamespaceTemplate(config.namespace)
    seen: set[tuple[str, str, str]] = set()
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
            continue
        try:
            spans = list(read_spans(row.row_id, row.value))
        except ValueError as error:
            yield refused(row.row_id, str(error), row.value)
            continue
        if not spans:
            yield empty(row.row_id, reason="a request without spans")
        for span in spans:
            if isinstance(span, Span):
                yield from _read_span(span, config, namespaces, seen)
            else:
                where, _, what = span.rpartition(": ")
                yield refused(where, what)


def _read_span(
    span: Span, config: InputConfig, namespaces: NamespaceTemplate, seen: set[tuple[str, str, str]]
) -> Iterator[Message | Dropped]:
    talk = _talk(span)
    for fault in talk.faults:
        yield refused(span.row_id, fault)
    if not talk.told and not talk.answers:
        if not talk.faults:
            yield empty(span.row_id, reason=_NOTHING)
        return
    notes: list[str] = []
    session = next((name for key in _SESSION_KEYS if (name := name_of(span.inherited.get(key), key, notes))), None)
    session = session or name_of(span.trace_id, "traceId", notes)
    try:
        namespace, fault = namespaces.fill(span.inherited), ""
    except ValueError as error:
        namespace, fault = "", str(error)
    fault = fault or ("" if session else "the span has neither a conversation nor a trace")
    call = _Call(config, namespace, session or "", span, notes, _last_answer(talk.told))
    alike: Counter[str] = Counter()
    for index, record in enumerate((*talk.told, *talk.answers)):
        row_id = f"{span.row_id}.{index}"
        if index > len(talk.told):
            yield empty(row_id, namespace, _OTHER_CHOICE)
        elif fault:
            yield refused(row_id, fault, record)
        else:
            result = _read_message(row_id, index, record, index == len(talk.told), call, alike)
            if isinstance(result, Message):
                said = (namespace, result.session_id, result.source_id or "")
                result = empty(row_id, namespace, _REPEATED) if said in seen else result
                seen.add(said)
            yield result


def _talk(span: Span) -> _Talk:
    talk = _Talk()
    for attributes in (span.attributes, *(own for name, own in span.events if name.endswith("operation.details"))):
        instructions = _Talk()
        instructions.add(attributes.get("gen_ai.system_instructions"), instructions.told, "gen_ai.system_instructions")
        talk.faults += instructions.faults
        if instructions.told:
            talk.told.append({"role": "system", "parts": instructions.told})
        for key, to in (("gen_ai.input.messages", talk.told), ("gen_ai.output.messages", talk.answers)):
            talk.add(attributes.get(key), to, key)
    if not talk.told and not talk.answers:
        for name, attributes in span.events:
            _add_event(talk, name, attributes)
    if not talk.told and not talk.answers:
        _add_numbered(talk, span.attributes)
    return talk


def _add_event(talk: _Talk, name: str, attributes: Mapping[str, Any]) -> None:
    """Add what an event of the earlier conventions says; its body is in its attributes, or JSON in one of them."""
    body = {**attributes, **_object(attributes.get("gen_ai.event.content"))}
    said = _EVENT.fullmatch(name)
    if said:
        role = body.get("role") if isinstance(body.get("role"), str) else said[1]
        talk.told.append({**body, "role": role, "tool_call_id": body.get("id")})
    elif name == "gen_ai.choice":
        answer = {**body, **_object(body.get("message"))}
        talk.answers.append({"role": "assistant", **answer})
    elif name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
        key = "gen_ai.prompt" if name.endswith("prompt") else "gen_ai.completion"
        talk.add(attributes.get(key), talk.told if name.endswith("prompt") else talk.answers, key)


def _object(value: object) -> Mapping[str, Any]:
    """Return an object, or JSON of one, as it is; anything else as an empty one."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (RecursionError, ValueError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _add_numbered(talk: _Talk, attributes: Mapping[str, Any]) -> None:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for key, value in attributes.items():
        if (match := _NUMBERED.fullmatch(key)) is None:
            continue
        role = "assistant" if match[1] == "completion" else None
        record = found.setdefault((match[1], int(match[2])), {"role": role})
        if match[4] is None:
            record[match[3]] = value
        else:
            calls = record.setdefault("calls", {})
            calls.setdefault(int(match[4]), {})[match[5]] = value
    for (kind, _), record in sorted(found.items(), key=lambda item: item[0]):
        calls = record.pop("calls", {})
        (talk.told if kind == "prompt" else talk.answers).append(
            {**record, "tool_calls": [calls[number] for number in sorted(calls)]}
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """What the messages of a call share; those told before `last_answer` were said in earlier ones."""

    config: InputConfig
    namespace: str
    session_id: str
    span: Span
    notes: list[str]
    last_answer: int


def _last_answer(told: list[Any]) -> int:
    """Return the place of the last message that the model itself is told to have said, -1 where there is none."""
    return max((at for at, one in enumerate(told) if isinstance(one, Mapping) and one.get("role") == "assistant"),
               default=-1)  # fmt: skip


def _read_message(
    row_id: str, index: int, record: object, is_answer: bool, call: _Call, alike: Counter[str]
) -> Message | Dropped:
    namespace = call.namespace
    if not isinstance(record, Mapping):
        return refused(row_id, f"the message is {shown(record)}; it must be an object", record, namespace)
    notes = list(call.notes)
    role = name_of(record.get("role"), "role", notes)
    if role is None:
        return refused(row_id, "the message has no role", record, namespace)
    try:
        text, attachments, call_id = _body(record, role, notes)
    except ValueError as error:
        return refused(row_id, f"content: {error}", record, namespace)
    if not text and not attachments:
        return empty(row_id, namespace)
    kind = content_id(role, text, call_id, *(_canonical(item) for item in attachments))
    name = content_id(kind, alike[kind]) if alike[kind] else kind
    alike[kind] += 1
    said_at = _said_at(index, is_answer, call, notes)
    return Message(
        row_id=row_id,
        namespace=namespace,
        session_id=call.session_id,
        text=text,
        source_id=name,
        sequence=index if said_at else None,
        role=role,
        speaker=name_of(record.get("name"), "name", notes) or role,
        said_at=said_at,
        time_zone=call.config.time_zone if said_at else None,
        attachments=tuple(attachments),
        call_id=call_id,
        note=joined(notes),
    )


def _said_at(index: int, is_answer: bool, call: _Call, notes: list[str]) -> datetime | None:
    """Return the call's end for its answer and its beginning for what is new to it; the rest was said before."""
    span = call.span
    if not is_answer and index <= call.last_answer:
        return None
    nanoseconds = (span.ended or span.started) if is_answer else span.started
    return time_of(nanoseconds, "time", call.config.model_copy(update={"time_unit": "ns"}), notes)


def _canonical(item: Attachment) -> str:
    """Return an attachment as text that is the same however its JSON was written."""
    arguments = item.get("arguments")
    try:
        item = {**item, "arguments": json.loads(arguments)} if isinstance(arguments, str) and arguments else item
    except (RecursionError, ValueError):
        pass  # no JSON: as it was written
    return json.dumps(item, sort_keys=True, separators=(",", ":"), default=str)


def _body(record: Mapping[str, Any], role: str, notes: list[str]) -> tuple[str, list[Attachment], str | None]:
    """Return text, attachments, and for a tool's message the id of the call that it answers."""
    parts = record.get("parts")
    if not isinstance(parts, list):
        text, attachments = read_content(record.get("content"), notes)
        attachments += read_tool_calls({**record, "tool_calls": _calls(record.get("tool_calls"))}, notes)
        return text, attachments, name_of(record.get("tool_call_id"), "id", notes) if role == "tool" else None
    shapes: list[Any] = []
    calls: list[Attachment] = []
    answered: str | None = None
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or not isinstance(kind, str):
            shapes.append(part)
        elif kind == "text":
            shapes.append({"type": "text", "text": part.get("content")})
        elif kind in ("tool_call", "server_tool_call"):
            calls += read_tool_calls({"tool_calls": [part]}, notes)
        elif kind in ("tool_call_response", "server_tool_call_response"):
            answered = answered or name_of(part.get("id"), "id", notes)
            shapes.append(_response(part, notes))
        elif kind in _MEDIA:
            shapes.append(_media(kind, part))
        elif kind != "reasoning":
            shapes.append(part)
    text, attachments = read_content(shapes, notes)
    return text, [*attachments, *calls], answered


def _calls(value: object) -> object:
    """Return tool calls that may be written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (RecursionError, ValueError):
        return value


def _response(part: Mapping[str, Any], notes: list[str]) -> str | None:
    value = next((part[key] for key in ("response", "result") if not is_missing(part.get(key))), None)
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (RecursionError, TypeError, ValueError):
        notes.append(f"response: {shown(value)} cannot be written as JSON: left out")
        return None


def _media(kind: str, part: Mapping[str, Any]) -> dict[str, Any]:
    modality = part.get("modality")
    name = modality if modality in ("image", "audio") else "file"
    key = {"blob": "data", "uri": "url", "file": "file_id"}[kind]
    return {"type": name, name: {key: part.get(_MEDIA[kind])}}
