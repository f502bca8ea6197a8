"""LoCoMo, the benchmark of long two-person chats, in its own file format.

Only what was said is read. Questions, answers, evidence, summaries, observations and image queries are labels and
never become memory.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import read_content, read_media
from hgmem_core.importers.fields import NamespaceTemplate, empty, joined, name_of, refused, time_of, unreadable
from hgmem_core.messages import Dropped, LogRow, Message

_SESSION = re.compile(r"session_(\d{1,9})", re.ASCII)
_NAMESPACE = NamespaceTemplate("locomo/{sample_id}")


def read_locomo(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each turn of each sample.

    The namespace is `locomo/<sample_id>`; sessions come in the order of their numbers, named so that the order of
    their names is the same. The date of a session is read in the configured zone and is that of all its turns.
    """
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
            continue
        conversation = row.value.get("conversation") if isinstance(row.value, Mapping) else None
        if not isinstance(conversation, Mapping):
            yield refused(row.row_id, "the sample is not an object with a 'conversation' object", row.value)
            continue
        is_empty = True
        for result in _read_sample(row.row_id, row.value, conversation, config):
            is_empty = False
            yield result
        if is_empty:
            yield empty(row.row_id, reason="a sample without turns")


def _read_sample(
    row_id: str, sample: Mapping[str, Any], conversation: Mapping[str, Any], config: InputConfig
) -> Iterator[Message | Dropped]:
    try:
        namespace, fault = _NAMESPACE.fill(sample), ""
    except ValueError as error:
        namespace, fault = "", str(error)
    numbers = sorted((int(found[1]), key) for key in conversation if (found := _SESSION.fullmatch(key)))
    for number, key in numbers:
        turns = conversation[key]
        if turns is None:
            continue  # a session that is planned but has no turns, as a lone date has
        if not isinstance(turns, list):
            yield refused(f"{row_id}:{key}", f"{key} is not a list of turns", turns, namespace)
            continue
        notes: list[str] = []
        said_at = time_of(conversation.get(f"{key}_date_time"), f"{key}_date_time", config, notes)
        if said_at is None and not notes:
            notes.append(f"{key} has no date")
        session = _Session(namespace, f"session_{number:03d}", said_at, config.time_zone, notes)
        for index, turn in enumerate(turns):
            turn_row = f"{row_id}:{key}[{index}]"
            yield refused(turn_row, fault, turn) if fault else session.read_turn(turn_row, index, turn)


class _Session:
    """What the turns of a session share."""

    def __init__(
        self, namespace: str, session_id: str, said_at: datetime | None, time_zone: str, notes: list[str]
    ) -> None:
        self._namespace = namespace
        self._session_id = session_id
        self._said_at = said_at
        self._time_zone = time_zone
        self._notes = notes

    def read_turn(self, row_id: str, index: int, turn: object) -> Message | Dropped:
        """Return turn number `index` of the session."""
        if not isinstance(turn, Mapping):
            return refused(row_id, "the turn is not an object", turn, self._namespace)
        words = turn.get("text")
        if words is not None and not isinstance(words, str):
            return refused(row_id, "the turn's text is not text", turn, self._namespace)
        notes = list(self._notes)
        text, attachments = read_content(words, notes)
        image = _image(turn)
        if image is not None:
            attachments.append(image)
        if not text and not attachments:
            return empty(row_id, self._namespace)
        return Message(
            row_id=row_id,
            namespace=self._namespace,
            session_id=self._session_id,
            text=text,
            source_id=name_of(turn.get("dia_id"), "dia_id", notes),
            sequence=index,
            speaker=name_of(turn.get("speaker"), "speaker", notes),
            said_at=self._said_at,
            time_zone=self._time_zone if self._said_at else None,
            attachments=tuple(attachments),
            note=joined(notes),
        )


def _image(turn: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the picture of a turn, known by its caption and the first of its addresses, or None."""
    urls = turn.get("img_url")
    url = next((item for item in urls if isinstance(item, str)), None) if isinstance(urls, list) else urls
    record = read_media("image", {"image_url": url, "caption": turn.get("blip_caption")})
    return record if len(record) > 1 else None
