"""The readers of single log files: bytes in, rows out, with an error in each row that could not be read."""

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgmem_core.messages import LogRow
from hgmem_core.text import clean

MAX_LINE_BYTES = 64 * 2**20
"""A longer line, or CSV field, is refused as a row."""

MAX_DEPTH = 100
"""How deep a JSON value may be nested; beyond, writing it again might exhaust the stack."""

_BATCH_BYTES = 32 * 2**20
_BATCH_ROWS = 4_096
_RAW_CHARS = 2_000
_BAD_BYTE = re.compile("[\udc80-\udcff]")

# A NaN is no JSON, but common in logs written from tables; strict=False lets tabs stand inside of strings.
_DECODER = json.JSONDecoder(parse_constant=lambda _: None, strict=False)


class LogFileError(ValueError):
    """A log file as a whole cannot be used: the message says which, what is wrong and what to do."""


@contextmanager
def open_log(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacking it where its name ends in `.gz`.

    Raises:
        LogFileError: It cannot be opened, or reading it inside the `with` fails.
    """
    try:
        with gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb") as file:
            yield file  # type: ignore[misc]  # a GzipFile reads like any file
    except (OSError, EOFError, zlib.error) as error:
        raise LogFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _base_name(path: str) -> str:
    return clean(os.path.basename(path))[0]  # a name that is not UTF-8 holds surrogates


def _excerpt(raw: bytes) -> str:
    return raw[: 4 * _RAW_CHARS].decode(errors="replace")[:_RAW_CHARS]


def json_lines(path: str) -> Iterator[LogRow]:
    """Yield a row for each line that is not blank; bad UTF-8, bad JSON and lines over 64 MiB are rows with an error."""
    name = _base_name(path)
    with open_log(path) as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            row_id = f"{name}:{number}"
            if len(line) > MAX_LINE_BYTES:
                # Only the start is kept, and the last byte, which tells whether the line has ended.
                while not line.endswith(b"\n") and (rest := file.readline(2**20)):
                    line = line[: 4 * _RAW_CHARS] + rest[-1:]
                yield LogRow(row_id, None, f"the line is longer than {MAX_LINE_BYTES:,} bytes", _excerpt(line))
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line and not line.isspace():
                value, error = _parse(line)
                yield LogRow(row_id, value, error, None if error is None else _excerpt(line))


def _parse(line: bytes) -> tuple[Any, str | None]:
    """Return the JSON value of a line and no error, or None and what is wrong."""
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        return None, f"not UTF-8: byte {error.start + 1} of the line is 0x{line[error.start]:02x}"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg} at character {error.pos + 1} of the line"
    except (RecursionError, ValueError) as error:  # nested thousands deep, or an integer of thousands of digits
        return None, f"not usable JSON: {str(error).partition(';')[0]}"
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _is_deep(value):
        return None, f"not usable JSON: nested more than {MAX_DEPTH} deep"
    return value, None


def json_value(body: bytes) -> tuple[Any, str | None]:
    """Return the value of a whole JSON document and no error, or None and what is wrong."""
    value, error = _parse(body.removeprefix(b"\xef\xbb\xbf"))
    return value, error and error.replace(" of the line", "")


def _is_deep(value: object) -> bool:
    """Say whether a JSON value is nested more than `MAX_DEPTH` deep, level by level."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def json_document(path: str, format: str) -> Iterator[LogRow]:
    """Yield the conversations of an OpenAI document or the samples of a benchmark's document, numbered from 1.

    Raises:
        LogFileError: The file is not one JSON document.
    """
    with open_log(path) as file:
        body = file.read()
    value, error = json_value(body)
    if error is not None:
        advice = "; if it holds one JSON value a line, name it .jsonl" if "Extra data" in error else ""
        raise LogFileError(f"{path}: {error}{advice}")
    del body
    items = _conversations(value) if format == "openai" else value if isinstance(value, list) else [value]
    name = _base_name(path)
    return (LogRow(f"{name}:{number}", item) for number, item in enumerate(items, 1))


def _conversations(value: object) -> list[Any]:
    """Return the conversations of a document: one, a list of them, or such a list under `conversations`."""
    if isinstance(value, dict) and "messages" not in value and isinstance(value.get("conversations"), list):
        value = value["conversations"]
    if not isinstance(value, list):
        return [value]
    is_messages = any(isinstance(item, dict) and "role" in item and "messages" not in item for item in value)
    return [value] if is_messages else value


def has_json_lines(path: str) -> bool:
    """Say whether a file holds one JSON value a line, and more than one."""
    with open_log(path) as file:
        first = file.readline(MAX_LINE_BYTES)
        return _parse(first.removeprefix(b"\xef\xbb\xbf"))[1] is None and bool(file.readline(_RAW_CHARS).strip())


@contextmanager
def _open_csv(path: str) -> Iterator[tuple[Any, "_CsvLines"]]:
    """Open a CSV file as a `csv.reader`, whose type has no public name, and the lines that it is fed."""
    # The limit is the process's, there is no other; the default of 128 KiB is shorter than a long message.
    csv.field_size_limit(MAX_LINE_BYTES)
    with (
        open_log(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        lines = _CsvLines(path, text)
        yield csv.reader(lines, strict=True), lines


class _CsvLines:
    """The lines of a CSV file, and the starts of those that the record being read is made of.

    Attributes:
        held: The number and start of each line since `begin` that is not blank.
    """

    def __init__(self, path: str, text: IO[str]) -> None:
        self.held: list[tuple[int, str]] = []
        self._path = path
        self._text = text
        self._number = 0

    def begin(self) -> None:
        """Forget the lines of the record before."""
        self.held.clear()

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_LINE_BYTES + 1)
        if not line:
            raise StopIteration
        if len(line) > MAX_LINE_BYTES:
            raise LogFileError(
                f"{self._path}: not CSV: a line is longer than {MAX_LINE_BYTES:,} characters; check `format`"
            )
        self._number += 1
        if start := line[:_RAW_CHARS].rstrip("\r\n"):
            self.held.append((self._number, start))
        return line


def csv_header(path: str) -> list[str]:
    """Return the column names in the first row of a CSV file.

    Raises:
        LogFileError: There is none.
    """
    with _open_csv(path) as (reader, _):
        try:
            header: list[str] = next(reader)
        except (StopIteration, csv.Error) as error:
            raise LogFileError(f"{path}: no header row with column names can be read from this CSV file") from error
    if _BAD_BYTE.search("".join(header)):
        raise LogFileError(f"{path}: the header row is not UTF-8; convert the file to UTF-8")
    return header


def csv_rows(path: str) -> Iterator[LogRow]:
    """Yield a row for each record after the header, named by the line it starts on; blank lines are passed over.

    A record that is no row may have swallowed others, as an open quote does: each of its lines is a row with an error.
    """
    header = csv_header(path)
    name = _base_name(path)
    with _open_csv(path) as (reader, lines):
        next(reader)
        while True:
            first = reader.line_num + 1
            lines.begin()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fault = f"not CSV: {error}; is a quote left open or not doubled?"
            else:
                if not fields:
                    continue
                if len(fields) == len(header):
                    yield _csv_row(f"{name}:{first}", header, fields)
                    continue
                fault = f"the row has {len(fields)} fields and the header {len(header)}; "
                fault += "is a comma or a quote not quoted?"
            if reader.line_num > first:
                fault = f"lines {first} to {reader.line_num} were read as one row: {fault}"
            for number, line in lines.held:
                yield LogRow(f"{name}:{number}", None, fault, _readable(line))


def _csv_row(row_id: str, header: Sequence[str], fields: Sequence[str]) -> LogRow:
    column = next((key for key, text in zip(header, fields, strict=True) if _has_bad_byte(text)), None)
    if column is None:
        return LogRow(row_id, dict(zip(header, fields, strict=True)))
    return LogRow(row_id, None, f"not UTF-8: column {column!r}", _readable(",".join(fields)))


def _readable(text: str) -> str:
    """Return the start of text that may hold bytes that are not UTF-8."""
    return text[:_RAW_CHARS].encode("utf-8", "surrogateescape").decode(errors="replace")


def _has_bad_byte(text: str) -> bool:
    return not text.isascii() and _BAD_BYTE.search(text) is not None


def parquet_rows(path: str) -> Iterator[LogRow]:
    """Yield the rows of a Parquet file, numbered from 1.

    Raises:
        LogFileError: The file cannot be read as Parquet.
    """
    name = _base_name(path)
    number = 0
    try:
        with pq.ParquetFile(path, buffer_size=2**20) as file:  # a buffer keeps it from reading whole columns
            for field in file.schema_arrow:
                _refuse_unknown_zone(path, field.name, field.type)
            for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                for value, error in _records(_without_nanoseconds(batch)):
                    number += 1
                    yield LogRow(f"{name}:{number}", value, error)
    except (OSError, pa.ArrowException) as error:
        after = f" after row {number}" if number else ""
        raise LogFileError(f"{path}: cannot be read as Parquet{after}: {error}; check `format` and the file") from error


def _refuse_unknown_zone(path: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column, or a type inside of one, whose times are in a zone that nobody knows: no row could be read."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            pa.lib.string_to_tzinfo(kind.tz)
        except pa.ArrowException as error:
            raise LogFileError(
                f"{path}: the column {column!r} has the time zone {kind.tz!r}, which is not an IANA one; "
                "write the file again with its times in UTC"
            ) from error
    inner = [kind.value_type] if pa.types.is_dictionary(kind) else []
    for part in [*inner, *(kind.field(index).type for index in range(kind.num_fields))]:
        _refuse_unknown_zone(path, column, part)


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Return how many rows of this file fit into memory at a time, by its largest row group."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    row_bytes = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(row_bytes, 1))))


def _without_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with its times in microseconds, which is all that a datetime can hold."""
    columns = [
        column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _records(batch: pa.RecordBatch) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    """Yield each row as a dict and no error, or None and why it has no Python values."""
    try:
        records = _pylist(batch)
    except (ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            yield None, f"a value cannot be read: {error}"
            return
        for index in range(batch.num_rows):
            yield from _records(batch.slice(index, 1))
        return
    for record in records:
        yield record, None


_pylist: Callable[[pa.RecordBatch], list[dict[str, Any]]] = pa.RecordBatch.to_pylist
