"""Slack's export: a folder for each channel, in it a file for each day with its messages; beside them who is who."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import Attachment, read_content, read_media
from hgmem_core.importers.fields import (
    NamespaceTemplate,
    empty,
    joined,
    name_of,
    refused,
    shown,
    time_of,
    unreadable,
)
from hgmem_core.messages import Dropped, LogRow, Message

_SAID = frozenset({
    "bot_message", "me_message", "file_share", "file_comment", "thread_broadcast", "reply_broadcast",
    "slackbot_response",
})  # fmt: skip
"""Subtypes of messages that somebody said; the others are notices, such as of who joined."""

# <@U1>, <@U1|ana>, <#C1|general>, <!here>, <!subteam^S1|@crew>, <https://example.org|our page>
_MARKUP = re.compile(r"<([@#!]?)([^\s<>|][^<>|\n]{0,2000})(?:\|([^<>\n]{0,2000}))?>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_BLOCK_DEPTH = 12


@dataclass(frozen=True, slots=True)
class SlackNames:
    """What the lists of an export tell.

    Attributes:
        users: The name of each user by id, as it is shown in messages.
        channels: The id of each channel by name, which is that of its folder.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlackRow:
    """A message as the file of a day in a channel's folder has it: the value of a `LogRow`."""

    channel: str
    names: SlackNames
    message: Any


def slack_names(users: object, channels: Iterable[object]) -> SlackNames:
    """Return the names in an export's list of users and in its lists of channels; what cannot be read is left out.

    >>> slack_names([{"id": "U1", "name": "ana", "profile": {"real_name": "Ana Reis"}}], []).users
    {'U1': 'Ana Reis'}
    """
    people = {}
    for user in users if isinstance(users, list) else []:
        if isinstance(user, Mapping) and isinstance(user.get("id"), str) and (name := _person(user)):
            people[user["id"]] = name
    ids = {}
    for listed in channels:
        for channel in listed if isinstance(listed, list) else []:
            if isinstance(channel, Mapping) and isinstance(channel.get("id"), str):
                ids[name_of(channel.get("name"), "name", []) or channel["id"]] = channel["id"]
    return SlackNames(people, ids)


def _person(user: Mapping[str, Any]) -> str | None:
    profile = user.get("profile")
    sources = [profile] if isinstance(profile, Mapping) else []
    keys = ("display_name", "real_name", "name")
    values = (source.get(key) for key in keys for source in (*sources, user))
    return next((name for value in values if isinstance(value, str) and (name := name_of(value, "name", []))), None)


def read_slack(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each message.

    A session is a channel, named by its id, or a thread of it; the message that a thread answers is one of the channel.
    A message is named by its time, `ts`, so an edited one revises. The namespace template sees the message's own fields
    and `channel`, the channel's name.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces = NamespaceTemplate(config.namespace)
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
        elif not isinstance(row.value, SlackRow):
            yield refused(row.row_id, "the row is not of a file in a channel's folder of Slack's export", row.value)
        else:
            yield _read_message(row.row_id, row.value, config, namespaces)


def _read_message(row_id: str, row: SlackRow, config: InputConfig, namespaces: NamespaceTemplate) -> Message | Dropped:
    message = row.message
    if not isinstance(message, Mapping):
        return refused(row_id, f"the message is {shown(message)}; it must be an object", message)
    try:
        namespace = namespaces.fill({**message, "channel": row.channel})
    except ValueError as error:
        return refused(row_id, str(error), message)
    subtype = message.get("subtype")
    if isinstance(subtype, str) and subtype not in _SAID:
        return empty(row_id, namespace, f"a notice of Slack's own: {shown(subtype)}")
    notes: list[str] = []
    ts = name_of(message.get("ts"), "ts", notes)
    if ts is None:
        return refused(row_id, "the message has no 'ts', the time that names it", message, namespace)
    try:
        text, attachments = _body(message, row.names, notes)
    except ValueError as error:
        return refused(row_id, f"text: {error}", message, namespace)
    if not text and not attachments:
        return empty(row_id, namespace)
    channel = row.names.channels.get(row.channel, row.channel)
    thread = name_of(message.get("thread_ts"), "thread_ts", notes)
    said_at = time_of(ts, "ts", config, notes)
    return Message(
        row_id=row_id,
        namespace=namespace,
        session_id=channel if thread in (None, ts) else f"{channel}/{thread}",
        text=text,
        source_id=ts,
        role="assistant" if _is_bot(message) else "user",
        speaker=_speaker(message, row.names, notes),
        said_at=said_at,
        time_zone=config.time_zone if said_at else None,
        attachments=tuple(attachments),
        note=joined(notes),
    )


def _is_bot(message: Mapping[str, Any]) -> bool:
    return message.get("subtype") == "bot_message" or isinstance(message.get("bot_id"), str)


def _speaker(message: Mapping[str, Any], names: SlackNames, notes: list[str]) -> str | None:
    """Return who said a message: a user by the name in the list of users, else in the message; a bot by its own."""
    user = name_of(message.get("user"), "user", notes)
    known = names.users.get(user) if user else None
    shapes = [message.get(key) for key in ("user_profile", "bot_profile")]
    told = next((name for shape in shapes if isinstance(shape, Mapping) and (name := _person(shape))), None)
    called = name_of(message.get("username"), "username", notes)
    return (called or told or known or user) if _is_bot(message) else (known or told or called or user)


def _body(message: Mapping[str, Any], names: SlackNames, notes: list[str]) -> tuple[str, list[Attachment]]:
    """Return the text as it was shown, and files and links; an app's message may have all of it in its blocks."""
    text, others = read_content(message.get("text"), notes)
    shared = message.get("attachments")
    links = [item for item in shared if isinstance(item, Mapping)] if isinstance(shared, list) else []
    if not text:
        text, _ = read_content(list(_block_texts(message.get("blocks"), 0)), notes)
    if not text and _is_bot(message):
        shapes = (item.get(key) for item in links for key in ("pretext", "title", "text"))
        text, _ = read_content([value for value in shapes if isinstance(value, str)], notes)
        links = []
    files = message.get("files")
    attachments = [_file(item) for item in files if isinstance(item, Mapping)] if isinstance(files, list) else []
    attachments += [
        {**read_media("file", {"name": item.get("title") or item.get("fallback"), "url": item.get("from_url")}),
         "type": "link"}
        for item in links
    ]  # fmt: skip
    return _plain(text, names), [*others, *attachments]


def _file(item: Mapping[str, Any]) -> Attachment:
    kind = item.get("mimetype")
    name = "image" if isinstance(kind, str) and kind.startswith("image/") else "file"
    label = item.get("title") or item.get("name")
    return read_media(name, {"caption" if name == "image" else "name": label, "id": item.get("id")})


def _plain(text: str, names: SlackNames) -> str:
    """Return text without Slack's markup of users, channels and links, and without its escapes."""
    by_id = {value: key for key, value in names.channels.items()} if "<#" in text else {}

    def shown_as(found: re.Match[str]) -> str:
        mark, target, label = found.groups()
        if mark == "@":
            return f"@{names.users.get(target) or label or target}"
        if mark == "#":
            return f"#{label or by_id.get(target) or target}"
        if mark == "!":
            return label or f"@{target.partition('^')[0]}"
        address = target.removeprefix("mailto:")
        return f"{label} ({address})" if label and label not in address else address

    text = _MARKUP.sub(shown_as, text)
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text


def _block_texts(blocks: object, depth: int) -> Iterator[str]:
    """Yield the texts in the blocks of an app's message, each line one."""
    if depth > _BLOCK_DEPTH:
        return
    if isinstance(blocks, list):
        for block in blocks:
            yield from _block_texts(block, depth + 1)
    elif isinstance(blocks, Mapping):
        if isinstance(blocks.get("text"), str):
            yield blocks["text"]
        for key in ("text", "fields", "elements"):
            yield from _block_texts(blocks.get(key), depth + 1)
