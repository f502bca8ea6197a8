"""What an importer reads and what it yields: log rows in, one message or one refusal out for each of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from hgmem_core.config import InputConfig

Outcome = Literal["ok", "partial", "empty", "fallback", "rejected"]
"""What became of an input row. Exclusive, so that the five counts sum to the number of input rows."""

OUTCOMES: tuple[Outcome, ...] = ("ok", "partial", "empty", "fallback", "rejected")


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of a log file as it was read: a line, a record, an element of an array.

    Attributes:
        row_id: Where it stands, for people: `chat.jsonl:12`.
        value: The parsed JSON value or the record; None where `error` says why there is none.
        error: Why the row could not be read, or None.
        raw: The start of the row's own text where it could not be read, for the REJECT table.
    """

    row_id: str
    value: Any
    error: str | None = None
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a log, before it has an id.

    Attributes:
        row_id: The row it came from, see `LogRow`.
        namespace: Whose memory it belongs to; already checked.
        session_id: The conversation of the log, or a part of one that was cut by silences.
        text: What was said, cleaned by `hgmem_core.text.clean`; may be empty if there are attachments.
        source_id: The log's own id of the message, unique within its session, or None.
        sequence: The log's own order number within the session, or None.
        role: `user`, `assistant`, `system`, `tool` or what the log says, or None.
        speaker: Who said it, or None.
        said_at: When, timezone-aware, or None. Never the time of the import.
        time_zone: The zone in which the log's times are to be shown, such as `Europe/Paris`.
        attachments: Structured events beside the text, JSON objects with a `type`: `image` (with `caption`, `url`
            where known), `file`, `audio`, `tool_call` (`id`, `name`, `arguments`), `tool_result`.
        call_id: For a tool's answer, the id of the call that it answers.
        note: What was lost or changed on the way, which makes the outcome `partial`; else None.
        cut_from: The session that `session_id` was cut out of, and that the message's id is made of; None where it was
            not cut.
    """

    row_id: str
    namespace: str
    session_id: str
    text: str
    source_id: str | None = None
    sequence: int | None = None
    role: str | None = None
    speaker: str | None = None
    said_at: datetime | None = None
    time_zone: str | None = None
    attachments: tuple[dict[str, Any], ...] = ()
    call_id: str | None = None
    note: str | None = None
    cut_from: str | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A log row that gives no message.

    Attributes:
        row_id: The row, see `LogRow`.
        outcome: `rejected` for a fault, `empty` for a row with nothing to keep (no text and no attachment).
        reason: What is wrong with it, where, in one sentence.
        raw: The start of the row's own text, at most 2,000 characters, or None.
        namespace: Its namespace if that was still readable, else the empty string.
    """

    row_id: str
    outcome: Literal["empty", "rejected"]
    reason: str
    raw: str | None = None
    namespace: str = ""


Importer = Callable[[Iterable[LogRow], InputConfig], Iterator[Message | Dropped]]
"""Turns the rows of one file into messages: exactly one result for each message row of the log, in its order."""
