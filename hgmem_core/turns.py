"""From imported messages to turns: ids, the union of all imports, the order within a session, texts to index."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa

from hgmem_core.ids import anonymous_turn_id, content_id, natural_key, part_id, turn_id
from hgmem_core.messages import Message
from hgmem_core.schemas import MESSAGE, OUTCOME, TURN, conform
from hgmem_core.text import split_text

MERGE_REVISION = 2
"""Raised when equal imports give other turns."""

UNKNOWN_TIME = int(np.iinfo(np.int64).min)
"""Stands for an unknown time where times are integers."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def messages_table(messages: Sequence[Message], first_row: int, ingested_at: datetime, max_chars: int) -> pa.Table:
    """Return MESSAGE rows for the messages of one file, in their order; a long text becomes several rows.

    Ids of messages without an id of their own are provisional until `number_equals` has seen the whole file.

    Args:
        messages: Consecutive messages of one file.
        first_row: The `row` of the first one; later rows count on from it.
        ingested_at: When the import began, the same for all its rows.
        max_chars: The longest text of one turn, in characters.
    """
    rows: dict[str, list[Any]] = {name: [] for name in MESSAGE.arrow.names}
    row = first_row
    for message in messages:
        pieces = split_text(message.text, max_chars) if len(message.text) > max_chars else [message.text]
        attachments = _attachments_json(message)
        message_id = _message_id(message, attachments)
        for part, text in enumerate(pieces):
            rows["namespace"].append(message.namespace)
            rows["session_id"].append(message.session_id)
            rows["message_id"].append(message_id)
            rows["part"].append(part)
            rows["source_id"].append(message.source_id)
            rows["sequence"].append(message.sequence)
            rows["row"].append(row)
            rows["role"].append(message.role)
            rows["speaker"].append(message.speaker)
            rows["text"].append(text)
            rows["said_at"].append(message.said_at)
            rows["time_zone"].append(message.time_zone)
            rows["attachments"].append(attachments if part == 0 else "[]")
            rows["call_id"].append(message.call_id)
            rows["ingested_at"].append(ingested_at)
            row += 1
    columns = [pa.array(rows[field.name], field.type) for field in MESSAGE.arrow]
    return pa.Table.from_arrays(columns, schema=MESSAGE.arrow)


def _message_id(message: Message, attachments: str) -> str:
    session = message.cut_from or message.session_id
    if message.source_id is not None:
        return turn_id(message.namespace, session, message.source_id)
    said_at_us = None if message.said_at is None else microseconds(message.said_at)
    return anonymous_turn_id(message.namespace, session, said_at_us, message.speaker, message.text, attachments)


def microseconds(time: datetime) -> int:
    """Return the time since 1970 in whole microseconds; `time` must have a zone."""
    delta = time - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment(time_us: int) -> datetime | None:
    """Return the time that `microseconds` made a number of; None for `UNKNOWN_TIME`."""
    return None if time_us == UNKNOWN_TIME else _EPOCH + timedelta(microseconds=time_us)


def _attachments_json(message: Message) -> str:
    if not message.attachments:
        return "[]"
    return json.dumps(list(message.attachments), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def number_equals(messages: pa.Table) -> pa.Table:
    """Tell equal messages without an id apart: the second gets an id of its own, the third another.

    `messages` holds the rows of one file that fall into one bucket. Equals are counted by the log's sequence, then
    by their order in the file. Messages with an id keep it, so that a repeated id stays one turn.
    """
    frame = pl.from_arrow(messages.select(["message_id", "part", "source_id", "sequence"]))
    assert isinstance(frame, pl.DataFrame)
    counted = frame.with_row_index("at").sort("sequence", maintain_order=True, nulls_last=True)
    counted = counted.with_columns(ordinal=pl.int_range(pl.len()).over("message_id", "part"))
    repeats = counted.filter(pl.col("source_id").is_null() & (pl.col("ordinal") > 0))
    if repeats.is_empty():
        return messages
    ids = messages.column("message_id").to_pylist()
    for at, first, ordinal in repeats.select("at", "message_id", "ordinal").iter_rows():
        ids[at] = content_id("again", first, ordinal)
    place = messages.column_names.index("message_id")
    return messages.set_column(place, MESSAGE.arrow.field("message_id"), pa.array(ids, pa.large_string()))


def merge_imports(imports: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Return the TURN table that several imports of one bucket make together, and its OUTCOME rows.

    A message that was delivered several times is what its latest delivery says; `revision` counts the different texts
    before it; `ingested_at` is when the winning text was first seen.

    Within a session turns stand by time, then by the log's sequence, then by the log's own id, digits in it compared as
    numbers, then, only for messages without an id, by the order of the imports and of their rows. A message with
    neither time nor sequence stands after the last time before it in its file, or ahead of the first one, in the order
    of the rows; if it is a later delivery of a message, it keeps the place that the message had.

    Args:
        imports: MESSAGE tables, the oldest import first.

    Returns:
        TURN, and OUTCOME of stage `merge` with one row for each input row, named `<import>:<row>`: `ok` for a
        turn's winning row, `empty` for a repetition, `partial` for a text that a later row replaced.
    """
    frames = [pl.from_arrow(table) for table in imports]
    every = pl.concat([frame.with_columns(source=pl.lit(number)) for number, frame in enumerate(frames)])  # type: ignore[union-attr]
    message = ["namespace", "message_id"]
    piece = [*message, "part"]
    every = every.sort("source", "row").with_columns(
        # The pieces of one delivery stand together; an edit may bring more of them or fewer.
        delivery=(pl.col("part") == 0).cum_sum().over(message),
        latest_text=pl.col("text").last().over(piece),
    )
    every = every.with_columns(wins=pl.col("delivery") == pl.col("delivery").max().over(message))
    seen = every.group_by(piece).agg(
        revision=pl.col("text").filter(pl.col("text") != pl.col("latest_text")).n_unique().cast(pl.Int32),
        first_seen=pl.col("ingested_at").filter(pl.col("text") == pl.col("latest_text")).min(),
    )
    turns = _in_order(every).filter(pl.col("wins")).join(seen, on=piece, how="left")
    turns = turns.sort("namespace", "session_id", *_ORDER, "message_id", "part")
    turns = turns.with_columns(
        ingested_at="first_seen",
        position=pl.int_range(pl.len()).over("namespace", "session_id"),
        turn_id=pl.Series(map(part_id, turns["message_id"], turns["part"]), dtype=pl.String),
    )
    return conform(_large(turns.select(TURN.arrow.names).to_arrow()), TURN), _merge_outcomes(every)


_ORDER = ("time_key", "beside_key", "sequence_key", "unplaced_key", "id_key", "file_key")


def _in_order(every: pl.DataFrame) -> pl.DataFrame:
    """Add the columns by which the turns of a session are sorted, see `merge_imports`; the rows stand in file order."""
    session, message = ["namespace", "session_id"], ["namespace", "message_id"]
    placeable = pl.col("said_at").is_not_null() | pl.col("sequence").is_not_null()
    every = every.with_row_index("at").with_columns(
        first=pl.col("at").first().over(message),
        before=pl.col("said_at").forward_fill().over(session),
        nearest=pl.col("said_at").forward_fill().backward_fill().over(session),
        # The row that tells a message's place: its latest one so far with a time or sequence, else its first.
        by=pl.coalesce(pl.when(placeable).then("at").forward_fill().over(message), pl.col("at").first().over(message)),
    )
    every = every.with_columns(
        placed=placeable.gather("by"),
        placed_at=pl.col("said_at").gather("by"),
        placed_sequence=pl.col("sequence").gather("by"),
        before=pl.col("before").gather("by"),
        nearest=pl.col("nearest").gather("by"),
    )
    lost = ~pl.col("wins")
    some_time = (pl.col("placed_at").is_not_null() & ~lost).any().over(session)
    every_time = (pl.col("placed_at").is_not_null() | lost).all().over(session)
    by_sequence = (pl.col("placed_sequence").is_not_null() | lost).all().over(session)
    # What can be placed by its own content is; its place in the file must not matter then.
    beside = pl.when("placed").then(0).when(pl.col("before").is_null()).then(-1).otherwise(1)
    in_time = some_time & ~(by_sequence & ~every_time)
    every = every.with_columns(
        time_key=pl.when(in_time).then("nearest"),
        beside_key=pl.when(in_time).then(beside).otherwise(0),
        sequence_key=pl.col("placed_sequence").fill_null(np.iinfo(np.int64).max),
        unplaced_key=pl.when("placed").then(0).otherwise("first"),
        file_key=pl.when(pl.col("source_id").is_null()).then("first").otherwise(0),
    )
    names = sorted(every["source_id"].drop_nulls().unique(), key=natural_key)
    ranks = pl.DataFrame([pl.Series("source_id", names, pl.String), pl.Series("id_key", range(len(names)), pl.Int64)])
    every = every.join(ranks, on="source_id", how="left", maintain_order="left")
    return every.with_columns(pl.col("id_key").fill_null(len(names)))


def _merge_outcomes(every: pl.DataFrame) -> pa.Table:
    repeated = (pl.col("text") == pl.col("latest_text")) & pl.col("wins").any().over("namespace", "message_id", "part")
    outcome = (
        pl.when(pl.col("wins")).then(pl.lit("ok")).when(repeated).then(pl.lit("empty")).otherwise(pl.lit("partial"))
    )
    reason = pl.when(pl.col("wins")).then(None).when(repeated).then(pl.lit("repeats the same message"))
    rows = every.select(
        "namespace",
        stage=pl.lit("merge"),
        row_id=pl.format("{}:{}", "source", "row"),
        outcome=outcome,
        passes=pl.lit(1, pl.Int32),
        reason=reason.otherwise(pl.lit("a later message with the same id replaced it")),
    )
    return conform(_large(rows.to_arrow()), OUTCOME)


def _large(table: pa.Table) -> pa.Table:
    """Undo polars' string views, which some Arrow kernels do not take yet."""
    types = [pa.large_string() if pa.types.is_string_view(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema([field.with_type(kind) for field, kind in zip(table.schema, types, strict=True)]))


def turn_texts(turns: pa.Table) -> list[str]:
    """Return the text that stands for each turn: `speaker: text [image: caption]`.

    Without a speaker the role takes its place. Attachments without a caption leave a marker, a tool call its
    name and arguments.
    """
    columns = (turns.column(name).to_pylist() for name in ("speaker", "role", "text", "attachments"))
    texts = []
    for speaker, role, text, attachments in zip(*columns, strict=True):
        markers = _markers(attachments) if attachments != "[]" else ()
        body = " ".join(part for part in (text, *markers) if part)
        who = speaker or role
        texts.append(f"{who}: {body}" if who else body)
    return texts


def _markers(attachments: str) -> list[str]:
    markers = []
    for item in json.loads(attachments):
        if item["type"] == "tool_call":
            detail = " ".join(str(item[key]) for key in ("name", "arguments") if item.get(key))
        else:
            detail = str(item.get("caption") or item.get("name") or "")
        kind = item["type"].replace("_", " ")
        markers.append(f"[{kind}: {detail}]" if detail else f"[{kind}]")
    return markers


def date_texts(turns: pa.Table) -> list[str]:
    """Return when each turn was said, in words, such as `(1:56 pm on 8 May, 2023) `; empty where unknown.

    Times are shown in the turn's own zone, so that a question about an evening finds the evening.
    """
    times = turns.column("said_at").to_pylist()
    zones = turns.column("time_zone").to_pylist()
    return ["" if time is None else _date_text(time, zone or "UTC") for time, zone in zip(times, zones, strict=True)]


_MONTHS = ("January February March April May June July August September October November December").split()


@lru_cache(maxsize=65_536)
def _date_text(time: datetime, zone: str) -> str:
    try:
        local = time.astimezone(ZoneInfo(zone))
    except OverflowError:  # within hours of the calendar's ends
        local = time
    hour, half = local.hour % 12 or 12, "am" if local.hour < 12 else "pm"
    return f"({hour}:{local.minute:02d} {half} on {local.day} {_MONTHS[local.month - 1]}, {local.year}) "
