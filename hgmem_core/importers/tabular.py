"""Tables of messages, one row each: Parquet, JSON lines and CSV, read through the configured column names."""

from collections.abc import Iterable, Iterator
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import read_attachments, read_content
from hgmem_core.importers.fields import (
    ABSENT,
    NamespaceTemplate,
    empty,
    integer_of,
    joined,
    lookup,
    name_of,
    refused,
    time_of,
    unreadable,
)
from hgmem_core.importers.sessions import SilentGaps
from hgmem_core.messages import Dropped, LogRow, Message


def read_tabular(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each row.

    A row without a usable namespace or without the text column is rejected; any other value that cannot be used is
    left out, and the message's note says so. For a message without a session see `hgmem_core.importers.sessions`.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces, gaps = NamespaceTemplate(config.namespace), SilentGaps(config.session_gap_minutes)
    for row in rows:
        yield unreadable(row) if row.error is not None else _read_row(row, config, namespaces, gaps)


def _read_row(row: LogRow, config: InputConfig, namespaces: NamespaceTemplate, gaps: SilentGaps) -> Message | Dropped:
    columns, record = config.columns, row.value
    if not isinstance(record, dict):
        return refused(row.row_id, "the row is not an object with named columns", record)
    content = lookup(record, columns.text)
    if content is ABSENT:
        return refused(row.row_id, f"the row has no text column {columns.text!r}; set columns.text", record)
    notes: list[str] = []
    try:
        text, attachments = read_content(content, notes)
    except ValueError as error:
        return refused(row.row_id, f"column {columns.text!r}: {error}", record)
    if columns.attachments:
        attachments += read_attachments(lookup(record, columns.attachments), notes)
    try:
        namespace, fault = namespaces.fill(record), ""
    except ValueError as error:
        namespace, fault = "", str(error)
    if not text and not attachments:
        return empty(row.row_id, namespace)
    if fault:
        return refused(row.row_id, fault, record)
    said_at = time_of(_value(record, columns.time), "time", config, notes)
    session, cut_from = name_of(_value(record, columns.session), "session", notes), None
    if session is None:
        session, cut_from = gaps.session(namespace, said_at)
    return Message(
        row_id=row.row_id,
        namespace=namespace,
        session_id=session,
        text=text,
        source_id=name_of(_value(record, columns.id), "id", notes),
        sequence=integer_of(_value(record, columns.sequence), "sequence", notes),
        role=name_of(_value(record, columns.role), "role", notes),
        speaker=name_of(_value(record, columns.speaker), "speaker", notes),
        said_at=said_at,
        time_zone=config.time_zone if said_at else None,
        attachments=tuple(attachments),
        call_id=name_of(_value(record, columns.call_id), "call_id", notes),
        note=joined(notes),
        cut_from=cut_from,
    )


def _value(record: dict[str, Any], column: str) -> Any:  # noqa: ANN401 - a log may hold anything
    """Return the value of a column, or None where it is not configured or not in this row."""
    if not column:
        return None
    value = lookup(record, column)
    return None if value is ABSENT else value
