"""Names that do not move: namespaces, buckets, content-derived ids and digests of tables."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.schemas import TableSchema, namespace_ranges

ID_BYTES = 12
"""Ids are 96-bit hashes written as 24 hex digits: a collision among 10^9 rows has a chance below 10^-11."""

MAX_NAMESPACE_CHARS = 512

_DIGITS = re.compile(r"([0-9]+)")


def content_id(*parts: str | int | None) -> str:
    """Return the id of what `parts` say: 24 hex digits, the same on every machine.

    Each part is written with its type and length, so `("ab", "c")`, `("a", "bc")` and `("ab", None, "c")` differ.

    >>> content_id("acme/alice", "s1", "m1") == content_id("acme/alice", "s1", "m1")
    True
    >>> content_id("1") == content_id(1)
    False
    """
    digest = hashlib.blake2b(digest_size=ID_BYTES)
    for part in parts:
        body = b"" if part is None else str(part).encode()
        kind = "n" if part is None else "i" if isinstance(part, int) else "s"
        digest.update(f"{kind}{len(body)}:".encode())
        digest.update(body)
    return digest.hexdigest()


def turn_id(namespace: str, session_id: str, source_id: str) -> str:
    """Return the id of a message that carries its log's own id."""
    return content_id("turn", namespace, session_id, source_id)


def anonymous_turn_id(
    namespace: str, session_id: str, said_at_us: int | None, speaker: str | None, text: str, attachments: str = "[]"
) -> str:
    """Return the id of a message without an id of its own: by time (microseconds), speaker, text and attachments.

    Equal messages of one file are told apart by `hgmem_core.turns.number_equals`.
    """
    shown = () if attachments == "[]" else (attachments,)
    return content_id("said", namespace, session_id, said_at_us, speaker, text, *shown)


def natural_key(text: str) -> tuple[tuple[str | tuple[int, str], ...], str]:
    """Return what to sort names by so that their digits compare as numbers.

    >>> sorted(["m10", "m2", "m", "m02"], key=natural_key)
    ['m', 'm02', 'm2', 'm10']
    """
    # Numbers are compared by length, then digits: an integer of thousands of digits cannot be made.
    parts = _DIGITS.split(text)
    numbers = [part.lstrip("0") for part in parts[1::2]]
    key: list[str | tuple[int, str]] = list(parts)
    key[1::2] = [(len(number), number) for number in numbers]
    return tuple(key), text


def part_id(message_id: str, part: int) -> str:
    """Return the turn id of a piece of a long message; the first piece has the message's own."""
    return content_id("part", message_id, part) if part else message_id


def episode_id(first_turn_id: str) -> str:
    """Return the id of the episode that begins with a turn."""
    return content_id("episode", first_turn_id)


def fact_id(episode: str, normalised_text: str) -> str:
    """Return the id of a fact by its episode and its text, normalised so that case and blanks do not count."""
    return content_id("fact", episode, normalised_text)


def topic_id(oldest_episode: str) -> str:
    """Return the id of a topic by its oldest episode, which later logs do not change."""
    return content_id("topic", oldest_episode)


def skill_id(namespace: str, polarity: str, name: str, text: str) -> str:
    """Return the id of a skill by what it says and whether that is to be done or avoided."""
    return content_id("skill", namespace, polarity, name, text)


def bucket_of(namespace: str, buckets: int) -> int:
    """Return the bucket, 0 to `buckets` - 1, that holds everything of `namespace`."""
    digest = hashlib.blake2b(namespace.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % buckets


def check_namespace(namespace: object) -> str:
    """Return `namespace` if it is one: `/`-separated segments of printable text, the first one the tenant.

    Raises:
        ValueError: Says what is wrong. A row without a namespace is refused: nobody could be let near it.
    """
    if not isinstance(namespace, str) or not namespace.strip():
        raise ValueError("the namespace is empty: every row must say whose memory it is")
    if len(namespace) > MAX_NAMESPACE_CHARS:
        raise ValueError(f"the namespace has {len(namespace)} characters; at most {MAX_NAMESPACE_CHARS}")
    for segment in namespace.split("/"):
        if not segment or segment != segment.strip():
            raise ValueError(f"namespace {namespace!r}: a segment is empty or padded with blanks")
        if segment in {".", ".."}:
            raise ValueError(f"namespace {namespace!r}: the segment {segment!r} is not allowed")
        if not segment.isprintable() or "\\" in segment:
            raise ValueError(f"namespace {namespace!r}: a segment holds a backslash or an unprintable character")
    return namespace


def rows_of(ids: pa.ChunkedArray, known: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the row of each id among those that are `known`, -1 where it is null or none of them.

    >>> rows_of(pa.chunked_array([["b", "x"]]), pa.chunked_array([["a", "b"]])).tolist()
    [1, -1]
    """
    found = pc.index_in(ids, value_set=known.combine_chunks(), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), np.int64)


def digest_of_parts(parts: Iterable[bytes | str]) -> str:
    """Return 32 hex digits for a sequence of byte strings or texts, each written with its length."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        body = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(body)}:".encode())
        digest.update(body)
    return digest.hexdigest()


def namespace_digests(table: pa.Table, schema: TableSchema) -> dict[str, str]:
    """Return 32 hex digits for the rows of each namespace of `table`, which is sorted by namespace.

    Chunks, offsets and the rows of other namespaces make no difference; clock columns do not count.
    """
    ranges = list(namespace_ranges(table))
    digests = []
    for _, start, stop in ranges:
        digests.append(hashlib.blake2b(f"{schema.name}:{stop - start}".encode(), digest_size=16))
    for field in schema.arrow:
        if field.name in schema.clock:
            continue
        header = f"{field.name}:{field.type}".encode()
        spans = _column_spans(table.column(field.name))
        for digest, (_, start, stop) in zip(digests, ranges, strict=True):
            digest.update(header)
            for span in spans:
                digest.update(span(start, stop))
    return {name: digest.hexdigest() for (name, _, _), digest in zip(ranges, digests, strict=True)}


def digest_of_namespaces(digests: Mapping[str, str]) -> str:
    """Return 32 hex digits for everything whose namespaces have these digests."""
    return digest_of_parts(part for name in sorted(digests) for part in (name, digests[name]))


Span: TypeAlias = Callable[[int, int], bytes | memoryview]
"""Gives what a column says in some rows as bytes."""


def _column_spans(column: pa.ChunkedArray | pa.Array) -> list[Span]:
    """Return what a column says: its nulls, then its values, free of buffer offsets and padding."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_large_list(column.type):
        lengths = pc.list_value_length(column)
        bounds = np.concatenate([[0], np.cumsum(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False))])
        items = _column_spans(pc.list_flatten(column))
        spans = [_array_span(pc.fill_null(lengths, -1).to_numpy(zero_copy_only=False))]
        return spans + [_scaled(item, bounds) for item in items]
    if pa.types.is_fixed_size_list(column.type):
        bounds = np.arange(len(column) + 1) * column.type.list_size
        return [_scaled(item, bounds) for item in _column_spans(column.flatten())]
    nulls = _array_span(pc.is_null(column).to_numpy(zero_copy_only=False))
    if pa.types.is_struct(column.type):
        return [nulls, *(span for field in column.flatten() for span in _column_spans(field))]
    if pa.types.is_large_string(column.type):
        column = pc.fill_null(column, "")
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        text = memoryview(column.buffers()[2] or b"")
        lengths = _array_span(np.diff(offsets))
        return [nulls, lengths, lambda start, stop: text[offsets[start] : offsets[stop]]]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    zero = pa.scalar(False if pa.types.is_boolean(column.type) else 0, column.type)
    return [nulls, _array_span(pc.fill_null(column, zero).to_numpy(zero_copy_only=False))]


def _array_span(values: npt.NDArray[Any]) -> Span:
    values = np.ascontiguousarray(values)
    return lambda start, stop: values[start:stop].tobytes()


def _scaled(items: Span, bounds: npt.NDArray[Any]) -> Span:
    """Return what lists say whose items are those of `bounds[row]` to `bounds[row + 1]`."""
    return lambda start, stop: items(int(bounds[start]), int(bounds[stop]))
