"""ChatGPT's data export: `conversations.json`, each conversation a tree of messages of which one branch is current."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import Attachment, read_content
from hgmem_core.importers.conversations import Conversation, read_conversations
from hgmem_core.importers.fields import empty, is_missing, joined, name_of, refused, shown, time_of
from hgmem_core.importers.message_tree import ABANDONED, MessageTree
from hgmem_core.messages import Dropped, LogRow, Message

_HIDDEN = "hidden from the conversation: instructions and settings of the app"
_THOUGHTS = "what the model thought before it answered"
_NOT_SAID = {
    "thoughts": _THOUGHTS,
    "reasoning_recap": _THOUGHTS,
    "user_editable_context": _HIDDEN,
    "model_editable_context": _HIDDEN,
}
"""Types of content that nobody said, and what they are."""

_POINTERS = {
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
    "video_container_asset_pointer": "video",
    "real_time_user_audio_video_asset_pointer": "audio",
}
# The app's citations: private characters around a kind and references, such as `cite turn0search1`.
_CITATION = re.compile("\ue200[^\ue201]{0,2000}\ue201")


@dataclass(frozen=True, slots=True)
class _Session:
    """The session that a conversation is, and what was noted of it."""

    id: str
    notes: list[str]


def read_chatgpt(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each message of each conversation.

    Those of the branch that `current_node` ends come in their order. What is hidden, thought or given up is dropped as
    empty, with the reason. A message is named by the first one that stood at its place, so an edited question and a new
    answer are revisions of the old ones.

    Raises:
        ValueError: The namespace template is malformed.
    """
    return read_conversations(rows, config, _read_conversation)


def _read_conversation(conversation: Conversation, fields: Mapping[str, Any]) -> Iterator[Message | Dropped]:
    row_id, mapping = conversation.row_id, fields.get("mapping")
    if not isinstance(mapping, Mapping):
        yield refused(row_id, "the conversation has no 'mapping', the tree of its messages", fields)
        return
    notes: list[str] = []
    session = name_of(fields.get("conversation_id"), "conversation_id", notes) or name_of(fields.get("id"), "id", notes)
    if session is None:
        yield refused(row_id, "the conversation has neither 'conversation_id' nor 'id'", fields)
        return
    tree = MessageTree(_parents(mapping))
    leaf = fields.get("current_node")
    if not isinstance(leaf, str) or leaf not in mapping:
        leaf = next(reversed(mapping), None)
        notes.append("current_node names no message: the branch of the last one is taken")
    branch = tree.branch(leaf) if isinstance(leaf, str) else []
    read = 0
    for sequence, (node, place) in enumerate(zip(branch, tree.places(branch), strict=True)):
        for result in _read_node(
            f"{row_id}[{node}]", mapping[node], conversation, _Session(session, notes), sequence, place
        ):
            read += 1
            yield result
    current = set(branch)
    for node, item in mapping.items():
        if node not in current and _holds_message(item):
            read += 1
            yield empty(f"{row_id}[{node}]", conversation.namespace, ABANDONED)
    if not read:
        yield empty(row_id, conversation.namespace, "a conversation without messages")


def _parents(mapping: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the parent of each node, siblings in the order in which their parent names them."""
    parents = {}
    for node, item in mapping.items():
        parent = item.get("parent") if isinstance(item, Mapping) else None
        parents[node] = parent if isinstance(parent, str) else None
    ordered: dict[str, str | None] = {}
    for node, item in mapping.items():
        children = item.get("children") if isinstance(item, Mapping) else None
        for child in children if isinstance(children, list) else ():
            if isinstance(child, str) and parents.get(child) == node:
                ordered[child] = node
    return ordered | {node: parent for node, parent in parents.items() if node not in ordered}


def _holds_message(item: object) -> bool:
    return not isinstance(item, Mapping) or not is_missing(item.get("message"))


def _read_node(
    row_id: str, item: object, conversation: Conversation, session: _Session, sequence: int, place: str
) -> Iterator[Message | Dropped]:
    """Yield what a node holds: a message, a refusal, or nothing where it only ties others together."""
    namespace = conversation.namespace
    message = item.get("message") if isinstance(item, Mapping) else item
    if isinstance(item, Mapping) and is_missing(message):
        return
    if not isinstance(message, Mapping):
        yield refused(row_id, "the message is not an object", message, namespace)
        return
    metadata, content = _mapping(message.get("metadata")), message.get("content")
    if metadata.get("is_visually_hidden_from_conversation") is True:
        yield empty(row_id, namespace, _HIDDEN)
        return
    kind = content.get("content_type") if isinstance(content, Mapping) else None
    if isinstance(kind, str) and kind in _NOT_SAID:
        yield empty(row_id, namespace, _NOT_SAID[kind])
        return
    notes = list(session.notes)
    author = _mapping(message.get("author"))
    role = name_of(author.get("role"), "author.role", notes)
    if role is None:
        yield refused(row_id, "the message has no author with a role", message, namespace)
        return
    recipient = name_of(message.get("recipient"), "recipient", notes) or "all"
    text, attachments = _read_content(content, notes)
    if role == "assistant" and recipient != "all":
        call = {"type": "tool_call", "id": None, "name": recipient, "arguments": text}
        text, attachments = "", [call, *attachments] if text else attachments
    attachments += _files(metadata.get("attachments"), notes)
    if not text and not attachments:
        yield empty(row_id, namespace)
        return
    if conversation.fault:
        yield refused(row_id, conversation.fault, message)
        return
    said_at = _said_at(message, conversation, notes)
    yield Message(
        row_id=row_id,
        namespace=namespace,
        session_id=session.id,
        text=text,
        source_id=place,
        sequence=sequence,
        role=role,
        speaker=name_of(author.get("name"), "author.name", notes) or role,
        said_at=said_at,
        time_zone=conversation.config.time_zone if said_at else None,
        attachments=tuple(attachments),
        note=joined(notes),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _said_at(message: Mapping[str, Any], conversation: Conversation, notes: list[str]) -> datetime | None:
    value = message.get("create_time")
    return None if value == 0 else time_of(value, "create_time", conversation.config, notes)


def _read_content(content: object, notes: list[str]) -> tuple[str, list[Attachment]]:
    """Return text and attachments of a message's content, whatever its type."""
    if not isinstance(content, Mapping):
        if not is_missing(content):
            notes.append(f"content: {shown(content)} is not an object: left out")
        return "", []
    parts: list[Any] = []
    for key in ("title", "text", "result", "parts"):
        value = content.get(key)
        if isinstance(value, list):
            parts += [_part(part) for part in value]
        elif isinstance(value, str):
            parts.append(_CITATION.sub("", value))
        elif not is_missing(value):
            notes.append(f"content.{key}: {shown(value)} is not text: left out")
    return read_content(parts, notes)


def _part(part: object) -> object:
    """Return a part of `multimodal_text` as the shapes that `read_content` knows."""
    if isinstance(part, str):
        return _CITATION.sub("", part)
    if not isinstance(part, Mapping):
        return part
    kind = part.get("content_type")
    if kind == "audio_transcription":
        return {"type": "text", "text": part.get("text")}
    if isinstance(kind, str) and kind in _POINTERS:
        made = _mapping(_mapping(part.get("metadata")).get("dalle"))
        name = _POINTERS[kind] if _POINTERS[kind] in ("image", "audio") else "file"
        inner = {"file_id": part.get("asset_pointer"), "caption": made.get("prompt")}
        return {"type": name, name: inner}
    return {"type": kind}


def _files(value: object, notes: list[str]) -> list[Attachment]:
    """Return the files that a message was sent with; pictures among them stand in its content already."""
    files = []
    for item in value if isinstance(value, list) else []:
        name = name_of(item.get("name"), "attachment", notes) if isinstance(item, Mapping) else None
        if name is not None and not str(item.get("mime_type") or item.get("mimeType")).startswith("image/"):
            files.append({"type": "file", "name": name})
    return files
