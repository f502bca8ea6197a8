"""Claude's data export: `conversations.json`, each conversation a list of messages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import Attachment, read_content, read_media, read_tool_calls
from hgmem_core.importers.conversations import Conversation, read_conversations
from hgmem_core.importers.fields import empty, joined, name_of, refused, shown, time_of
from hgmem_core.importers.message_tree import ABANDONED, MessageTree
from hgmem_core.messages import Dropped, LogRow, Message

_ROLES = {"human": "user"}
_NOT_SAID = frozenset({"thinking", "redacted_thinking", "token_budget", "flag"})


def read_claude(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each message of each conversation.

    Where messages name the one that they follow, the branch that ends with the last one, or with
    `current_leaf_message_uuid`, is read; the others are dropped as empty. A message is named as the first one at its
    place, as in ChatGPT's export. What the model thought is left out. What a tool answered and what stands in an
    attached file are messages of their own, after the one that holds them, for its sender did not say it.

    Raises:
        ValueError: The namespace template is malformed.
    """
    return read_conversations(rows, config, _read_conversation)


def _read_conversation(conversation: Conversation, fields: Mapping[str, Any]) -> Iterator[Message | Dropped]:
    row_id, messages = conversation.row_id, fields.get("chat_messages")
    if not isinstance(messages, list):
        yield refused(row_id, "the conversation has no list of 'chat_messages'", fields)
        return
    session = name_of(fields.get("uuid"), "uuid", [])
    if session is None:
        yield refused(row_id, "the conversation has no 'uuid'", fields)
        return
    if not messages:
        yield empty(row_id, conversation.namespace, "a conversation without messages")
    places = _places(messages, fields.get("current_leaf_message_uuid"))
    for index, message in enumerate(messages):
        message_row = f"{row_id}[{index}]"
        if not isinstance(message, Mapping):
            yield refused(message_row, "the message is not an object", message, conversation.namespace)
            continue
        uuid = _uuid(message)
        if uuid is not None and uuid not in places:
            yield empty(message_row, conversation.namespace, ABANDONED)
        else:
            place = None if uuid is None else places[uuid]
            yield from _read_message(message_row, message, conversation, session, index, place)


def _uuid(message: object) -> str | None:
    return name_of(message.get("uuid"), "uuid", []) if isinstance(message, Mapping) else None


def _places(messages: list[Any], leaf: object) -> dict[str, str]:
    """Return the messages of the branch that is read, each with the name of its place; all, where they are no tree."""
    parents = {
        uuid: name_of(message.get("parent_message_uuid"), "parent_message_uuid", [])
        for message in messages
        if (uuid := _uuid(message)) is not None
    }
    # An export without parents is a plain list; the first message of one with them names a parent that is not there.
    if not any(parent in parents for parent in parents.values()):
        return {uuid: uuid for uuid in parents}
    tree = MessageTree(parents)
    branch = tree.branch(leaf if isinstance(leaf, str) and leaf in parents else next(reversed(parents)))
    return dict(zip(branch, tree.places(branch), strict=True))


def _read_message(
    row_id: str,
    message: Mapping[str, Any],
    conversation: Conversation,
    session_id: str,
    sequence: int,
    place: str | None,
) -> Iterator[Message | Dropped]:
    """Yield a message, then the answers of tools and the texts of files inside of it, each as theirs."""
    namespace, notes = conversation.namespace, list[str]()
    sender = name_of(message.get("sender"), "sender", notes)
    if sender is None:
        yield refused(row_id, "the message has no sender", message, namespace)
        return
    if conversation.fault:
        yield refused(row_id, conversation.fault, message)
        return
    try:
        text, attachments, answers = _read_blocks(message, notes)
    except ValueError as error:
        yield refused(row_id, f"text: {error}", message, namespace)
        return
    files, contents = _files(message, notes)
    said_at = time_of(message.get("created_at"), "created_at", conversation.config, notes)
    role = _ROLES.get(sender, sender)
    whole = Message(
        row_id=row_id,
        namespace=namespace,
        session_id=session_id,
        text=text,
        source_id=place,
        sequence=sequence,
        role=role,
        speaker=role,
        said_at=said_at,
        time_zone=conversation.config.time_zone if said_at else None,
        attachments=(*attachments, *files),
        note=joined(notes),
    )
    yield whole if whole.text or whole.attachments else empty(row_id, namespace)
    for number, inner in enumerate((*answers, *contents)):
        # A name below the message's, which sorts after it.
        name = None if place is None else f"{place}/{number}"
        yield replace(
            whole,
            row_id=f"{row_id}.{number}",
            text=inner.text,
            source_id=name,
            role="tool" if inner.call_id is not None else "file",
            speaker=inner.speaker,
            attachments=(),
            call_id=inner.call_id,
            note=None,
        )


@dataclass(frozen=True, slots=True)
class _Inner:
    """What stands inside of a message and was not said by its sender; a tool's answer has the id of its call."""

    speaker: str
    text: str
    call_id: str | None = None


def _read_blocks(message: Mapping[str, Any], notes: list[str]) -> tuple[str, list[Attachment], list[_Inner]]:
    """Return text, tool calls and other attachments, and tools' answers; an older export has `text` alone."""
    blocks = message.get("content")
    if not isinstance(blocks, list) or not blocks:
        return *read_content(message.get("text"), notes), []
    parts: list[Any] = []
    calls: list[Attachment] = []
    answers: list[_Inner] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if isinstance(block, Mapping) and kind == "tool_use":
            calls += read_tool_calls({"tool_calls": [block]}, notes)
        elif isinstance(block, Mapping) and kind == "tool_result":
            text = _text_of(block.get("content"), notes)
            call_id = name_of(block.get("tool_use_id"), "tool_use_id", notes) or ""
            if text:
                answers.append(_Inner(name_of(block.get("name"), "name", notes) or "tool", text, call_id))
        elif not (isinstance(kind, str) and kind in _NOT_SAID):
            parts.append(block)
    text, others = read_content(parts, notes)
    return text, [*calls, *others], answers


def _text_of(content: object, notes: list[str]) -> str:
    """Return the text in the content of a tool or file, leaving out whatever else it holds."""
    if isinstance(content, list):
        kept = [part for part in content if isinstance(part, str) or (isinstance(part, Mapping) and "text" in part)]
        content = [part if isinstance(part, str) else {"type": "text", "text": part["text"]} for part in kept]
    return read_content(content, notes)[0] if isinstance(content, str | list) else ""


def _files(message: Mapping[str, Any], notes: list[str]) -> tuple[list[Attachment], list[_Inner]]:
    """Return the files that a message was sent with, and the texts that were read from them."""
    records: list[Attachment] = []
    contents: list[_Inner] = []
    for key in ("attachments", "files"):
        items = message.get(key)
        for item in items if isinstance(items, list) else []:
            if not isinstance(item, Mapping):
                notes.append(f"{key}: {shown(item)} is not an object: left out")
                continue
            name = name_of(item.get("file_name"), f"{key}.file_name", notes)
            records.append(read_media("file", {"name": name, "id": item.get("file_uuid") or item.get("id")}))
            if text := _text_of(item.get("extracted_content"), notes):
                contents.append(_Inner(name or "file", text))
    return records, contents
