"""Log files from disk to rows: Parquet, JSON lines, CSV and JSON documents, one row at a time.

A row that cannot be read is a row with an error, and the next ones go on; a file that cannot be is a `LogFileError`.
"""

import glob
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from hgmem_core.config import NAMES_ITS_MEMORY, InputConfig, TrajectoryFormat
from hgmem_core.importers.fields import ABSENT, lookup, template_fields
from hgmem_core.messages import LogRow
from pipelines.exports import EXPORTS, export_rows, holds_messages
from pipelines.log_rows import (
    LogFileError,
    csv_header,
    csv_rows,
    has_json_lines,
    json_document,
    json_lines,
    open_log,
    parquet_rows,
)
from pipelines.object_logs import expand_url, local_copy
from pipelines.object_storage import is_url

__all__ = ["LogFileError", "absolute", "check_columns", "expand_paths", "file_of", "open_rows"]

_SAMPLE_ROWS = 100
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed with gzip (its name must then end in .gz)",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"%PDF": "a PDF",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_HEAD_BYTES = 4_096


def expand_paths(paths: Iterable[str], format: str = "") -> list[str]:
    """Return the files that `paths` name, each once: files, patterns with `*`, `**`, `?`, and folders with all inside.

    Files of a pattern or folder are sorted by path; hidden ones and those that begin with `_`, as writers mark them,
    are left out of folders, and of a chat service's export, by `format`, those that hold no messages.

    A path may be in object storage, `s3://bucket/logs/*.jsonl`.

    Raises:
        LogFileError: A path names no file, or one that is no regular file or whose name is not UTF-8.
    """
    files: dict[str, None] = {}
    for path in paths:
        if is_url(path):
            matches = found = expand_url(path)
        else:
            matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
            found = [file for match in matches for file in (_folder_files(match) if os.path.isdir(match) else [match])]
        if found != [path]:
            found = [file for file in found if holds_messages(file, format)]
        if not found:
            held = f"files with messages of an export of {format}" if format in EXPORTS else "files"
            what = f"holds no {held}" if matches else "does not exist, and as a pattern it matches nothing"
            raise LogFileError(f"{path}: {what}; correct `paths` of the input")
        files.update(dict.fromkeys(found))
    for file in files:
        _refuse_unusual(file)
    return list(files)


def absolute(path: str) -> str:
    """Return a path by which other processes find a log file; an address stays as it is."""
    return path if is_url(path) else os.path.abspath(path)


def file_of(path: str) -> str:
    """Return the file of this machine that holds a log: itself, or a copy of what is in object storage.

    Raises:
        LogFileError: There is none any more.
    """
    if not is_url(path):
        return path
    copy = local_copy(path)
    if copy is None:
        raise LogFileError(f"{path}: there is no such object any more; correct `paths` of the input")
    return str(copy)


def _refuse_unusual(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise LogFileError(f"{path!r}: the file's name is not UTF-8; rename it") from error
    if os.path.exists(path) and not os.path.isfile(path):
        raise LogFileError(f"{path}: this is not a regular file, and logs are read several times; save it to a file")


def _folder_files(folder: str) -> list[str]:
    return sorted(
        os.path.join(parent, name)
        for parent, folders, names in os.walk(folder)
        if not any(step.startswith((".", "_")) for step in os.path.relpath(parent, folder).split(os.sep) if step != ".")
        for name in names
        if not name.startswith((".", "_"))
    )


def open_rows(path: str, input: InputConfig) -> Iterator[LogRow]:
    """Yield the rows of a log file in their order, each named by the file's base name and its 1-based line or number.

    Parquet, JSON lines and CSV are streamed; text files may be compressed with gzip and end in `.gz`. A JSON document
    (`.json`, of any other format) is read whole. `path` may be in object storage.

    Raises:
        LogFileError: The file is missing, unreadable, empty, damaged or of another format.
    """
    source, path = path, file_of(path)
    if input.format == "parquet":
        return parquet_rows(path)
    if input.format in EXPORTS and path.lower().endswith((".json", ".zip")):
        return export_rows(source, input.format, _file_beside)
    _check_head(path, input.format)
    if input.format == "csv":
        return csv_rows(path)
    stem = path.lower().removesuffix(".gz")
    if input.format == "otel" and stem.endswith(".json") and has_json_lines(path):
        return json_lines(path)
    if input.format != "jsonl" and stem.endswith(".json"):
        return json_document(path, input.format)
    return json_lines(path)


def _file_beside(path: str) -> str | None:
    """Return the file of this machine that holds one of an export, None where there is none."""
    if is_url(path):
        copy = local_copy(path)
        return None if copy is None else str(copy)
    return path if os.path.isfile(path) else None


def _check_head(path: str, format: str) -> None:
    """Refuse an empty or binary file before a thousand rows of it are."""
    with open_log(path) as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise LogFileError(f"{path}: the file is empty; remove it from `paths`")
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise LogFileError(f"{path}: not {format}: this is {what}; set `format`, or convert it to UTF-8 text")
    if head.count(0) > len(head) // 20:
        raise LogFileError(f"{path}: not {format}: this is a binary file; set `format`, or convert it to UTF-8 text")


def check_columns(path: str, input: InputConfig) -> None:
    """Refuse a file that lacks a column which the input names, before any of it is imported.

    Every configured column and every column of the namespace template must be there. JSON lines may leave out columns
    row by row: one of the first 100 rows must have it.

    Raises:
        LogFileError: Names the column, the file, and the columns there are; or see `open_rows`.
    """
    if input.format in NAMES_ITS_MEMORY:
        return
    try:
        wanted = template_fields(input.namespace)
    except ValueError as error:
        raise LogFileError(f"{path}: {error}") from error
    if input.format in ("openai", "otel", "hotpotqa", "2wiki", "musique", *EXPORTS, *get_args(TrajectoryFormat)):
        return
    wanted = [*(name for name in input.columns.model_dump().values() if name), *wanted]
    if input.format == "jsonl":
        _check_json_lines(path, input, wanted)
        return
    if input.format == "csv":
        _check_head(path, input.format)
    names = csv_header(path) if input.format == "csv" else _parquet_names(path)
    for column in wanted:
        if names.count(column) > 1:
            raise LogFileError(f"{path}: the column {column!r} occurs {names.count(column)} times; rename one")
        if column not in names:
            raise LogFileError(_no_column(path, column, names))


def _parquet_names(path: str) -> list[str]:
    """Return the columns of a Parquet file, and those inside of its structs as dotted paths."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise LogFileError(f"{path}: cannot be read as Parquet: {error}") from error
    names = list(schema.names)
    fields = [(field.name, field.type) for field in schema]
    while fields:
        name, kind = fields.pop()
        if pa.types.is_struct(kind):
            inner = [(f"{name}.{field.name}", field.type) for field in kind]
            names += [dotted for dotted, _ in inner]
            fields += inner
    return names


def _check_json_lines(path: str, input: InputConfig, columns: list[str]) -> None:
    sample = list(islice(open_rows(path, input), _SAMPLE_ROWS))
    records: list[dict[str, Any]] = [row.value for row in sample if isinstance(row.value, dict)]
    is_document = bool(sample) and (sample[0].raw or "").strip() in ("[", "[{")
    if is_document or (not records and any(row.error is None for row in sample)):
        raise LogFileError(f"{path}: its lines are not JSON objects; write one object with named columns a line")
    if not records:
        return
    names = list(dict.fromkeys(name for record in records for name in record))
    for column in columns:
        if all(lookup(record, column) is ABSENT for record in records):
            raise LogFileError(_no_column(path, column, names, f"in its first {len(records)} rows "))


def _no_column(path: str, column: str, names: list[str], where: str = "") -> str:
    listed = ", ".join(repr(name) for name in names[:40]) + (", …" if len(names) > 40 else "")
    return f"{path}: no column {column!r} {where}; there are {listed}; correct `columns` or `namespace` of the input"
