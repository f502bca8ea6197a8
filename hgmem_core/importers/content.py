"""The content of a message in the shapes of chat APIs: text, parts, images, sound, files and tool calls.

Nothing inline is kept: a data URI or a base64 payload becomes its digest and its size in bytes.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_to_bytes

from hgmem_core.importers.fields import is_missing, name_of, shown
from hgmem_core.text import clean, is_blank, repair

Attachment = dict[str, Any]

MAX_DEPTH = 100
"""How deep an attachment may be nested."""

_INLINE_CHARS = 1_024
"""A longer string without a scheme in the place of an address is taken for the payload itself."""

_DATA_URI = re.compile(r"\s*data:[^,]{0,200},", re.IGNORECASE)
_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA = {
    "image": ("image", ("image_url", "image", "source")),
    "image_url": ("image", ("image_url", "image")),
    "input_image": ("image", ("image_url", "image")),
    "image_file": ("image", ("image_file",)),
    "audio": ("audio", ("audio", "input_audio", "source")),
    "input_audio": ("audio", ("input_audio", "audio")),
    "file": ("file", ("file", "source")),
    "input_file": ("file", ("file", "input_file")),
    "document": ("file", ("document", "source")),
    "video": ("video", ("video", "source")),
    "video_url": ("video", ("video_url",)),
}
_MEDIA_FIELDS = {
    "caption": ("caption", "transcript", "alt", "alt_text"),
    "name": ("filename", "name"),
    "id": ("file_id", "id"),
    "url": ("url", "file_url"),
}

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call", "function_call"})
_ANSWERS = frozenset({"tool_result", "mcp_tool_result", "tool-result", "function_call_output"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def read_content(content: object, notes: list[str]) -> tuple[str, list[Attachment]]:
    """Return the cleaned text and the attachments of a message's content; what was lost is added to `notes`.

    Content is text, null, a part, or a list of texts and parts; the texts are joined by line breaks. What a model
    thought is left out; a part of unknown type leaves an attachment of that type. Text with nothing visible in it is
    returned as empty.

    Raises:
        ValueError: The content is of a type that holds no text, such as a truth value.
    """
    texts: list[str] = []
    attachments: list[Attachment] = []
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, list | tuple):
        for part in content:
            _read_part(part, texts, attachments, notes)
    elif isinstance(content, Mapping):
        _read_part(content, texts, attachments, notes)
    elif not is_missing(content):
        texts.append(_plain(content, notes))
    text, note = clean("\n".join(texts))
    if note:
        notes.append(f"text: {note}")
    return ("" if is_blank(text) else text), attachments


def _plain(content: object, notes: list[str]) -> str:
    """Return the text of content that a table holds in another type."""
    if isinstance(content, bytes):
        text = content.decode(errors="replace")
        if "\ufffd" in text:
            notes.append("text: bytes that are not UTF-8 replaced")
        return text
    if isinstance(content, int | float | Decimal) and not isinstance(content, bool):
        name = name_of(content, "text", notes)
        if name is not None:
            notes.append("text: a number, kept as written")
            return name
    raise ValueError(f"the text is {shown(content)}; it must be text or a list of content parts")


def _read_part(part: object, texts: list[str], attachments: list[Attachment], notes: list[str]) -> None:
    if isinstance(part, str):
        texts.append(part)
        return
    if is_missing(part):
        return
    if not isinstance(part, Mapping):
        attachments.append({"type": "unknown"})
        notes.append(f"content part {shown(part)} is neither text nor an object")
        return
    kind = part.get("type")
    if kind is None:
        kind = next(
            (key for key in ("text", "image_url", "input_audio", "file") if not is_missing(part.get(key))), None
        )
    if isinstance(kind, str) and kind in _TEXT_KEYS:
        text = part.get(_TEXT_KEYS[kind])
        text = text.get("value") if isinstance(text, Mapping) else text
        if isinstance(text, str):
            texts.append(text)
        elif not is_missing(text):
            notes.append(f"content part of type {kind}: {shown(text)} is not text: left out")
    elif isinstance(kind, str) and kind in _MEDIA:
        attachments.append(read_media(kind, part))
    elif isinstance(kind, str) and kind in _CALLS:
        attachments += read_tool_calls({"tool_calls": [part]}, notes)
    elif isinstance(kind, str) and kind in _ANSWERS:
        call_id, text, inner = read_answer(part, notes)
        attachments += [{"type": "tool_result", "id": call_id, "caption": text}, *inner]
    elif not (isinstance(kind, str) and kind in _THOUGHTS):
        name = clean(kind)[0][:64] if isinstance(kind, str) else ""
        attachments.append({"type": name or "unknown"})
        notes.append(f"content part of unknown type {shown(kind)}: only its type is kept")


def split_answers(content: object) -> tuple[object, list[Mapping[str, Any]]]:
    """Return a message's content without the parts that are answers of tools, and these."""
    parts = [content] if isinstance(content, Mapping) else content
    if not isinstance(parts, list | tuple):
        return content, []
    answers = [part for part in parts if _is_answer(part)]
    return ([part for part in parts if not _is_answer(part)] if answers else content), answers


def _is_answer(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), str) and part["type"] in _ANSWERS


def read_answer(part: Mapping[str, Any], notes: list[str]) -> tuple[str | None, str, list[Attachment]]:
    """Return the id of the call that a tool's answer in a content part is for, its text, and its attachments."""
    ids = (part.get(key) for key in ("tool_use_id", "tool_call_id", "toolCallId", "call_id"))
    call_id = name_of(next((one for one in ids if not is_missing(one)), None), "tool call id", notes)
    body = next((part[key] for key in ("content", "output", "result") if not is_missing(part.get(key))), None)
    if isinstance(body, Mapping) and "value" in body:
        body = body["value"]
    is_content = isinstance(body, str) or (isinstance(body, list | tuple) and not any(map(_is_answer, body)))
    text, attachments = read_content(body if is_content or is_missing(body) else _as_json(body), notes)
    return call_id, text, attachments


def read_media(kind: str, part: Mapping[str, Any]) -> Attachment:
    """Return the attachment for an image, sound or file, given as a content part of type `kind`."""
    name, holders = _MEDIA[kind]
    inner = next((part[key] for key in holders if part.get(key)), None)
    fields = inner if isinstance(inner, Mapping) else {"url": inner}
    record: Attachment = {"type": name}
    for key, aliases in _MEDIA_FIELDS.items():
        value = next((text for text in _texts((fields, part), aliases)), None)
        if value is None:
            continue
        if key == "url" and _is_inline(value):
            record |= _digest(value)
        else:
            record[key] = clean(value)[0]
    payload = next(_texts((fields, part), ("data", "file_data")), None)
    return record if payload is None else record | _digest(payload)


def _texts(sources: tuple[Mapping[str, Any], ...], names: tuple[str, ...]) -> Iterator[str]:
    """Yield the visible strings that `sources` hold under `names`."""
    for source in sources:
        for name in names:
            value = source.get(name)
            if isinstance(value, str) and not is_blank(value):
                yield value


def _is_inline(text: str) -> bool:
    return _DATA_URI.match(text) is not None or (len(text) > _INLINE_CHARS and "://" not in text[:64])


def _digest(text: str) -> Attachment:
    """Return digest and size of a data URI's or base64 payload, decoded where it can be."""
    header = _DATA_URI.match(text)
    body = text[header.end() :] if header else text
    raw = body.encode("utf-8", "replace")
    if header is None or ";base64," in header[0].lower():
        try:
            raw = base64.b64decode(raw, validate=True)
        except ValueError:
            pass  # not base64 after all: the digest is that of the payload as it was written
    else:
        raw = unquote_to_bytes(raw)
    return {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}


def read_tool_calls(message: Mapping[str, Any], notes: list[str]) -> list[Attachment]:
    """Return the tool calls of a message as attachments with `id` (or None), `name` (or None) and `arguments`."""
    calls = message.get("tool_calls")
    if isinstance(calls, Mapping):
        calls = [calls]
    elif not isinstance(calls, list):
        if not is_missing(calls):
            notes.append(f"tool_calls: {shown(calls)} is not a list: left out")
        calls = []
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        calls = [*calls, legacy]
    return [record for call in calls if (record := _tool_call(call, notes)) is not None]


def _tool_call(call: object, notes: list[str]) -> Attachment | None:
    if not isinstance(call, Mapping):
        notes.append(f"tool_calls: {shown(call)} is not an object: left out")
        return None
    inner = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), Mapping)), call)
    arguments = next((inner[key] for key in ("arguments", "input", "args") if not is_missing(inner.get(key))), "")
    if not isinstance(arguments, str):
        arguments = _as_json(arguments)
    arguments, note = repair(arguments)
    if note:
        notes.append(f"tool call arguments: {note}")
    ids = (call.get(key) for key in ("id", "call_id", "toolCallId"))
    names = (inner.get(key) for key in ("name", "toolName"))
    return {
        "type": "tool_call",
        "id": name_of(next((one for one in ids if not is_missing(one)), None), "tool call id", notes),
        "name": name_of(next((one for one in names if not is_missing(one)), None), "tool call name", notes),
        "arguments": arguments,
    }


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def read_attachments(value: object, notes: list[str]) -> list[Attachment]:
    """Return the objects of an attachments column: a list of objects, one object, or either as JSON text."""
    if isinstance(value, str):
        if is_blank(value):
            return []
        try:
            value = json.loads(value, parse_constant=lambda _: None)
        except (RecursionError, ValueError):
            notes.append(f"attachments: {shown(value)} is not JSON: left out")
            return []
    if is_missing(value):
        return []
    records: list[Attachment] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, Mapping):
            notes.append(f"attachments: {shown(item)} is not an object: left out")
            continue
        try:
            record = _storable(item, notes, 0)
        except ValueError as error:
            notes.append(f"attachments: {error}: left out")
            continue
        if not isinstance(record.get("type"), str) or not record["type"]:
            record["type"] = "unknown"
        records.append(record)
    return records


def _storable(value: Any, notes: list[str], depth: int) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return `value` with only what JSON holds: no NaN, no bytes, no inline payloads, no unstorable text."""
    if depth > MAX_DEPTH:
        raise ValueError(f"an object is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        if _DATA_URI.match(value):
            return _digest(value)
        text, note = repair(value)
        if note:
            notes.append(f"attachments: {note}")
        return text
    if isinstance(value, Mapping):
        return {repair(str(key))[0]: _storable(item, notes, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item, notes, depth + 1) for item in value]
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest(), "bytes": len(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int) else str(value)
