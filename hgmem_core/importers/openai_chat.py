"""Chat logs in the shape of the OpenAI chat API: conversations with messages, or one message a line."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.ids import content_id
from hgmem_core.importers.content import read_content, read_media, read_tool_calls
from hgmem_core.importers.fields import (
    DEFAULT_SESSION,
    NamespaceTemplate,
    empty,
    is_missing,
    joined,
    name_of,
    refused,
    time_of,
    unreadable,
)
from hgmem_core.importers.sessions import SilentGaps
from hgmem_core.messages import Dropped, LogRow, Message

_SESSION_KEYS = ("session_id", "conversation_id")
_TIME_KEYS = ("timestamp", "created_at", "create_time", "time")
_INSTRUCTIONS = ("system", "developer")
"""Roles of messages that begin many conversations alike."""


@dataclass(slots=True)
class _Conversation:
    """What the messages of a conversation share.

    Attributes:
        namespace: Theirs, or the empty string where `fault` says why there is none.
        calls: The ids of the tool calls made so far, or None where the row shows one message only.
    """

    config: InputConfig
    namespace: str
    fault: str
    session_id: str
    said_at: datetime | None
    notes: list[str]
    calls: set[str] | None = field(default_factory=set)


def read_openai_chat(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each message of each conversation.

    A row is a conversation object with `messages`, a list of messages, or a single message. A conversation without
    an id gets one from how it begins, so that it keeps it while it grows; of those of a namespace and file that begin
    alike, the second gets another, and the third. A single message without one belongs to the session `log`.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces, gaps = NamespaceTemplate(config.namespace), SilentGaps(config.session_gap_minutes)
    sessions = _Sessions()
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
        elif isinstance(row.value, list):
            yield from _read_conversation(row.row_id, {}, row.value, config, namespaces, sessions)
        elif isinstance(row.value, Mapping) and "messages" in row.value:
            messages = row.value["messages"]
            yield from _read_conversation(row.row_id, row.value, messages, config, namespaces, sessions)
        elif isinstance(row.value, Mapping) and ("role" in row.value or "content" in row.value):
            yield _read_single(row.row_id, row.value, config, namespaces, gaps)
        else:
            yield refused(row.row_id, "the row is neither a conversation with 'messages' nor a message", row.value)


class _Sessions:
    """The ids of a file's conversations that have none of their own."""

    def __init__(self) -> None:
        self._alike: Counter[str] = Counter()

    def next_id(self, namespace: str, messages: list[Any], said_at: datetime | None) -> str:
        """Return the id of the next conversation: by its beginning, its time, and the equals before it in the file.

        The beginning is what comes up to and including the first message that is no instruction to the model.
        """
        end = next((place for place, message in enumerate(messages, 1) if not _instructs(message)), len(messages))
        # ASCII, because lone surrogates can be escaped but not encoded.
        opening = json.dumps(messages[:end], sort_keys=True, separators=(",", ":"), default=str)
        time = [said_at.isoformat()] if said_at else []
        kind = content_id(namespace, opening, *time)
        ordinal = self._alike[kind]
        self._alike[kind] += 1
        return content_id("session", opening, *time, *([ordinal] if ordinal else []))


def _instructs(message: object) -> bool:
    return isinstance(message, Mapping) and message.get("role") in _INSTRUCTIONS


def _read_conversation(
    row_id: str,
    fields: Mapping[str, Any],
    messages: object,
    config: InputConfig,
    namespaces: NamespaceTemplate,
    sessions: _Sessions,
) -> Iterator[Message | Dropped]:
    if not isinstance(messages, list):
        yield refused(row_id, "'messages' is not a list", fields)
        return
    if not messages:
        yield empty(row_id, reason="a conversation without messages")
        return
    namespace, fault = _namespace(namespaces, fields)
    notes: list[str] = []
    said_at = _time(fields, config, notes)
    session_id = _first_name(fields, (*_SESSION_KEYS, "id"), notes)
    if session_id is None:
        session_id = sessions.next_id(namespace, messages, said_at)
    conversation = _Conversation(config, namespace, fault, session_id, said_at, notes)
    for index, message in enumerate(messages):
        yield _read_message(f"{row_id}[{index}]", index, message, conversation)


def _read_single(
    row_id: str, message: Mapping[str, Any], config: InputConfig, namespaces: NamespaceTemplate, gaps: SilentGaps
) -> Message | Dropped:
    namespace, fault = _namespace(namespaces, message)
    notes: list[str] = []
    session_id = _first_name(message, _SESSION_KEYS, notes)
    # The call that a message answers may be in another row, or another file, so no pairing is checked.
    conversation = _Conversation(config, namespace, fault, session_id or DEFAULT_SESSION, None, notes, None)
    result = _read_message(row_id, None, message, conversation)
    if session_id is None and isinstance(result, Message):
        session_id, cut_from = gaps.session(namespace, result.said_at)
        return replace(result, session_id=session_id, cut_from=cut_from)
    return result


def _namespace(namespaces: NamespaceTemplate, fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return the namespace and no fault, or none and what is wrong."""
    try:
        return namespaces.fill(fields), ""
    except ValueError as error:
        return "", str(error)


def _first_name(fields: Mapping[str, Any], keys: tuple[str, ...], notes: list[str]) -> str | None:
    return next((name for key in keys if (name := name_of(fields.get(key), key, notes)) is not None), None)


def _time(fields: Mapping[str, Any], config: InputConfig, notes: list[str]) -> datetime | None:
    key = next((key for key in _TIME_KEYS if not is_missing(fields.get(key))), None)
    return None if key is None else time_of(fields[key], key, config, notes)


def _read_message(
    row_id: str, index: int | None, message: object, conversation: _Conversation
) -> Message | Dropped:  # fmt: skip
    namespace = conversation.namespace
    if not isinstance(message, Mapping):
        return refused(row_id, "the message is not an object", message, namespace)
    notes = list(conversation.notes)
    calls = read_tool_calls(message, notes)
    call_id = _answered_call(message, calls, conversation, notes)
    if conversation.fault:
        return refused(row_id, conversation.fault, message)
    role = name_of(message.get("role"), "role", notes)
    if role is None:
        return refused(row_id, "the message has no role", message, namespace)
    try:
        text, attachments = _body(message, notes)
    except ValueError as error:
        return refused(row_id, f"content: {error}", message, namespace)
    attachments += calls
    if not text and not attachments:
        return empty(row_id, namespace)
    said_at = _said_at(message, conversation, notes)
    return Message(
        row_id=row_id,
        namespace=namespace,
        session_id=conversation.session_id,
        text=text,
        source_id=name_of(message.get("id"), "id", notes),
        sequence=index,
        role=role,
        speaker=name_of(message.get("name"), "name", notes) or role,
        said_at=said_at,
        time_zone=conversation.config.time_zone if said_at else None,
        attachments=tuple(attachments),
        call_id=call_id,
        note=joined(notes),
    )


def _body(message: Mapping[str, Any], notes: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """Return text and attachments; a refusal or a spoken answer stands beside a content of null."""
    text, attachments = read_content(message.get("content"), notes)
    if not text and isinstance(message.get("refusal"), str):
        text, _ = read_content(message["refusal"], notes)
    if isinstance(message.get("audio"), Mapping):
        attachments.append(read_media("audio", message))
    return text, attachments


def _said_at(message: Mapping[str, Any], conversation: _Conversation, notes: list[str]) -> datetime | None:
    """Return the message's own time, else the conversation's; a bad time of its own is not replaced by a guess."""
    before = len(notes)
    said_at = _time(message, conversation.config, notes)
    return conversation.said_at if said_at is None and len(notes) == before else said_at


def _answered_call(
    message: Mapping[str, Any], calls: list[dict[str, Any]], conversation: _Conversation, notes: list[str]
) -> str | None:
    """Return the id of the call that a tool's message answers, and remember the calls that this message makes."""
    if conversation.calls is not None:
        conversation.calls.update(call["id"] for call in calls if call["id"] is not None)
    if message.get("role") != "tool":
        return None
    call_id = name_of(message.get("tool_call_id"), "tool_call_id", notes)
    if call_id is None:
        notes.append("a tool's message without the id of its call")
    elif conversation.calls is not None and call_id not in conversation.calls:
        notes.append("answers no call of this conversation")
    return call_id
