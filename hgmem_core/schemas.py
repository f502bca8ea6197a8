"""The tables that travel between stages: one Arrow schema each, and `conform`, the one way out of a producer.

Strings are `large_string`, so that a block of text may exceed 2 GiB; times are `timestamp[us, UTC]`; free
metadata is a JSON string. Every table starts with `namespace` and is sorted by its key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA_VERSION = 2
"""Raised when a table changes its columns or their meaning; stores of another version must be rebuilt."""

STRING = pa.large_string()
TIME = pa.timestamp("us", tz="UTC")


class SchemaError(ValueError):
    """A table does not fit its schema: the message names the table, the column and what was found."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A named table: its columns, its key, and the columns that may be null.

    Attributes:
        name: The table's name in upper case, as in the documentation.
        key: The columns that identify a row, in sort order.
        arrow: The Arrow schema with the table's name and version in its metadata.
        clock: Columns that hold when hgmem saw a row. They are outside ids, digests and equality.
    """

    name: str
    key: tuple[str, ...]
    arrow: pa.Schema
    clock: frozenset[str] = frozenset()

    def empty(self) -> pa.Table:
        """Return a table of this schema without rows."""
        return self.arrow.empty_table()


def _table(
    name: str, key: str, required: dict[str, pa.DataType], optional: dict[str, pa.DataType], order: str = ""
) -> TableSchema:
    types = {"namespace": STRING, **required, **optional}
    names = order.split() if order else list(types)
    fields = [pa.field(column, types[column], nullable=column in optional) for column in names]
    metadata = {"hgmem.table": name, "hgmem.schema_version": str(SCHEMA_VERSION)}
    clock = frozenset({"ingested_at"} & set(types))
    return TableSchema(name, ("namespace", *key.split()), pa.schema(fields, metadata=metadata), clock)


MESSAGE = _table(
    "MESSAGE",
    "row",
    {"session_id": STRING, "message_id": STRING, "part": pa.int32(), "row": pa.int64(), "text": STRING}
    | {"attachments": STRING, "ingested_at": TIME},
    {"source_id": STRING, "sequence": pa.int64(), "role": STRING, "speaker": STRING, "said_at": TIME}
    | {"time_zone": STRING, "call_id": STRING},
    "namespace session_id message_id part source_id sequence row role speaker text said_at time_zone attachments"
    " call_id ingested_at",
)
"""What one import writes into a bucket. `row` is the message's place in that import, `sequence` the log's own
order number, `part` counts the pieces of a long text. TURN is the union of all imports; only there are `position`
and `revision` known."""

TURN = _table(
    "TURN",
    "session_id position turn_id",
    {"session_id": STRING, "position": pa.int64(), "turn_id": STRING, "text": STRING, "attachments": STRING}
    | {"ingested_at": TIME, "revision": pa.int32()},
    {"source_id": STRING, "role": STRING, "speaker": STRING, "said_at": TIME, "time_zone": STRING}
    | {"call_id": STRING},
    "namespace session_id position turn_id source_id role speaker text said_at time_zone attachments call_id"
    " ingested_at revision",
)

STRINGS = pa.large_list(pa.field("item", STRING, nullable=False))

EPISODE = _table(
    "EPISODE",
    "episode_id",
    {"episode_id": STRING, "session_id": STRING, "first_position": pa.int64(), "last_position": pa.int64()}
    | {"turn_ids": STRINGS, "title": STRING, "summary": STRING},
    {"started_at": TIME, "ended_at": TIME},
)
"""Consecutive turns of a session about one thing; positions are those of its first and last turn, both included."""

FACT = _table(
    "FACT",
    "fact_id",
    {"fact_id": STRING, "text": STRING, "keywords": STRINGS, "queries": STRINGS, "entities": STRINGS}
    | {"confidence": pa.float32(), "support": pa.int32(), "turn_ids": STRINGS},
    {"place": STRING, "time_phrase": STRING, "valid_from": TIME, "valid_to": TIME, "superseded_by": STRING},
    "namespace fact_id text keywords queries entities place time_phrase valid_from valid_to confidence support"
    " superseded_by turn_ids",
)
"""One self-contained statement. `turn_ids` are its sources, best evidence first; `support` counts how often it was
said; [valid_from, valid_to) is when it holds, open where null; `superseded_by` names the fact that closed it."""

TOPIC = _table(
    "TOPIC",
    "topic_id",
    {"topic_id": STRING, "title": STRING, "summary": STRING, "keywords": STRINGS},
    {"started_at": TIME, "ended_at": TIME},
)
"""Episodes of one thread, across sessions."""

INCIDENCE = _table(
    "INCIDENCE",
    "kind hyperedge_id node_id",
    {"kind": STRING, "hyperedge_id": STRING, "node_id": STRING, "node_kind": STRING, "role": STRING}
    | {"weight": pa.float32()},
    {},
)
"""A node's membership in a hyperedge: of kind `topic` (its episodes), `episode` (its facts), or `trajectory` (its
subtasks and skills); weight in [0, 1]."""

STEPS = pa.large_list(
    pa.field(
        "item",
        pa.struct([pa.field("action", STRING, nullable=False), pa.field("observation", STRING)]),
        nullable=False,
    )
)

TRAJECTORY = _table(
    "TRAJECTORY",
    "trajectory_id",
    {"trajectory_id": STRING, "sequence": pa.int64(), "task_id": STRING, "task": STRING, "steps": STEPS}
    | {"outcome": STRING, "n_steps": pa.int32(), "ingested_at": TIME},
    {"source_id": STRING, "said_at": TIME},
    "namespace trajectory_id source_id sequence task_id task steps outcome n_steps said_at ingested_at",
)
"""A run of an agent: what it was to do, what it did and saw, and how it ended (`success`, `failure`, `unknown`).

`sequence` is its place in the log, which orders runs of equal or unknown times; runs of one task share `task_id`;
`n_steps` counts the steps of the run, which `steps` may have fewer of where a log was cut."""

LESSON = _table("LESSON", "trajectory_id", {"trajectory_id": STRING, "text": STRING}, {})
"""What a run teaches in a sentence or two; runs that teach nothing have no row."""

SUBTASK = _table(
    "SUBTASK", "subtask_id", {"subtask_id": STRING, "trajectory_id": STRING, "position": pa.int32(), "text": STRING}, {}
)
"""A step of the plan for a run's task, made of the task's text alone."""

SKILL = _table(
    "SKILL",
    "skill_id",
    {"skill_id": STRING, "polarity": STRING, "name": STRING, "text": STRING, "aliases": STRINGS},
    {},
)
"""What to do (`positive`), or a mistake to avoid (`negative`), in which runs: see INCIDENCE of kind `trajectory`."""

MENTION = _table(
    "MENTION",
    "position",
    {"position": pa.int64(), "trajectory_id": STRING, "skill_id": STRING, "polarity": STRING, "name": STRING}
    | {"text": STRING},
    {},
)
"""A skill as one run taught it, before equal and similar ones are joined. `position` counts those of a namespace in the
time order of their runs; `skill_id` is the one that it has as long as it joins no other."""

UTILITY = _table(
    "UTILITY",
    "node_kind node_id",
    {"node_kind": STRING, "node_id": STRING, "shown": pa.int64(), "succeeded": pa.int64(), "utility": pa.float64()},
    {"mean_steps": pa.float64()},
    "namespace node_kind node_id shown succeeded mean_steps utility",
)
"""How runs went in which a node (`subtask`, `skill`, or the hyperedge `trajectory`) took part: how many, how many of
them succeeded, their mean number of steps; `utility` in [0, 1]."""

FEEDBACK = _table(
    "FEEDBACK",
    "query_id node_kind node_id",
    {"query_id": STRING, "node_kind": STRING, "node_id": STRING, "shown_at": TIME, "outcome": STRING}
    | {"n_steps": pa.int32()},
    {},
    "namespace query_id node_kind node_id shown_at outcome n_steps",
)
"""A node that was shown for a task, and how the run went that it was shown to."""

DECISION = _table(
    "DECISION",
    "cycle decision node_kind node_id other_id",
    {"cycle": pa.int32(), "decision": STRING, "node_kind": STRING, "node_id": STRING, "other_id": STRING}
    | {"reason": STRING, "shown": pa.int64(), "utility": pa.float64()},
    {"into_id": STRING, "similarity": pa.float64(), "raw_similarity": pa.float64()},
    "namespace cycle decision node_kind node_id other_id into_id reason shown utility similarity raw_similarity",
)
"""What a cycle of evolution decided of a node: `prune`, `merge` with another one, or `keep` though it was a candidate.

`other_id` is the one that it is, or was to be, merged with, empty where there is none; a merge has a row for both, and
`into_id` names the skill that they are now. Similarities are cosines: of propagated vectors, and of their own."""

OUTCOME = _table(
    "OUTCOME",
    "stage row_id",
    {"stage": STRING, "row_id": STRING, "outcome": STRING, "passes": pa.int32()},
    {"reason": STRING},
)

REJECT = _table(
    "REJECT",
    "stage source_id attempt",
    {"stage": STRING, "source_id": STRING, "attempt": pa.int32(), "reason": STRING, "final": pa.bool_()},
    {"raw": STRING},
    "namespace stage source_id attempt reason raw final",
)

CALL = _table(
    "CALL",
    "stage request_hash",
    {"stage": STRING, "request_hash": STRING, "row_id": STRING, "attempt": pa.int32(), "finish_reason": STRING}
    | {"prompt_tokens": pa.int64(), "completion_tokens": pa.int64(), "seconds": pa.float64()},
    {"answer": STRING, "reasoning": STRING, "refusal": STRING, "thinking_tokens": pa.int64()},
)
"""What a language model answered: `attempt` counts the passes over the row that it was asked about."""

CAUSE = _table("CAUSE", "fact_id cause_id", {"fact_id": STRING, "cause_id": STRING}, {})
"""A fact that holds because of another one, as the log says; both of one episode."""

TOMBSTONE = _table(
    "TOMBSTONE",
    "scope id",
    {"scope": STRING, "id": STRING, "deleted_at": TIME},
    {"restored_at": TIME},
)
"""What is to be forgotten: a whole `namespace` (its `id` is empty), a `session`, a `turn`, or a `trajectory`. A row
with `restored_at` lifts those before it."""

QUERY = _table("QUERY", "query_id", {"query_id": STRING, "text": STRING, "group": STRING}, {})

QREL = _table("QREL", "query_id turn_id", {"query_id": STRING, "turn_id": STRING, "relevance": pa.int32()}, {})

RUN = _table(
    "RUN",
    "query_id rank",
    {"query_id": STRING, "rank": pa.int32(), "id": STRING, "score": pa.float64(), "recipe": STRING},
    {},
)


def embedding_schema(dimension: int) -> TableSchema:
    """Return EMBEDDING for vectors of `dimension` floats: one row a node and variant, `vector` of unit length."""
    return _table(
        "EMBEDDING",
        "level node_id variant",
        {"level": STRING, "node_id": STRING, "variant": STRING, "vector": pa.list_(pa.float32(), dimension)},
        {},
    )


def relation_schema(layout: Sequence[str]) -> TableSchema:
    """Return RELATION for features that `layout` names in their order; it is in the schema's metadata, too.

    A row is a directed relation between two nodes of one `graph`, `turn` or `fact`; see `hgmem_core.relations`.
    """
    features = pa.list_(pa.field("item", pa.float32(), nullable=False), len(layout))
    table = _table(
        "RELATION",
        "graph source_id target_id",
        {"graph": STRING, "source_id": STRING, "target_id": STRING, "features": features},
        {},
    )
    return replace(table, arrow=with_layout(table.arrow, layout))


def with_layout(schema: pa.Schema, layout: Sequence[str]) -> pa.Schema:
    """Return a schema whose metadata names the features of its relations; see `layout_of`."""
    return schema.with_metadata({**schema.metadata, _LAYOUT: " ".join(layout).encode()})


def layout_of(schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the features of relations, in their order."""
    return tuple(schema.metadata[_LAYOUT].decode().split())


_LAYOUT = b"hgmem.layout"


def conform(table: pa.Table, schema: TableSchema) -> pa.Table:
    """Return `table` with exactly the schema's columns, types, metadata and sort order.

    Columns are put in order and cast safely (a `string` column becomes `large_string`, a column of nulls takes
    the declared type). Nothing is invented: a missing, unknown or uncastable column, a null in a required one,
    and a repeated key are errors.

    Raises:
        SchemaError: The message names the table, the column and the fault.
    """
    missing = [name for name in schema.arrow.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.arrow.names]
    if missing or unknown:
        raise SchemaError(f"{schema.name}: missing columns {missing}, unknown columns {unknown}")
    columns = []
    for field in schema.arrow:
        column = table.column(field.name)
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SchemaError(f"{schema.name}.{field.name}: {column.type} is not {field.type}: {error}") from error
        if not field.nullable and column.null_count:
            raise SchemaError(f"{schema.name}.{field.name}: {column.null_count} nulls in a required column")
        columns.append(column)
    result = pa.Table.from_arrays(columns, schema=schema.arrow)
    if result.num_rows < 2:
        return result
    result = result.sort_by([(name, "ascending") for name in schema.key])
    _refuse_repeated_keys(result, schema)
    return result


def ok_outcomes(stage: str, namespaces: pa.ChunkedArray, row_ids: pa.ChunkedArray) -> pa.Table:
    """Return OUTCOME rows that say that every input row of a stage came through."""
    count = len(row_ids)
    columns = {
        "namespace": namespaces,
        "stage": pa.array([stage] * count, STRING),
        "row_id": row_ids,
        "outcome": pa.array(["ok"] * count, STRING),
        "passes": pa.array(np.ones(count, np.int32)),
        "reason": pa.nulls(count, STRING),
    }
    return conform(pa.table(columns), OUTCOME)


def _refuse_repeated_keys(table: pa.Table, schema: TableSchema) -> None:
    """Raise on the first key that two rows share; `table` is sorted by its key, so they are neighbours."""
    same = None
    for name in schema.key:
        column = table.column(name)
        equal = pc.equal(column.slice(1), column.slice(0, table.num_rows - 1))
        same = equal if same is None else pc.and_(same, equal)
    first = pc.index(same, True).as_py()
    if first >= 0:
        key = {name: table.column(name)[first].as_py() for name in schema.key}
        raise SchemaError(f"{schema.name}: two rows share the key {key}")


def namespace_ranges(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Yield each namespace of a table sorted by namespace, with its first row and the row after its last."""
    if table.num_rows:
        column = table.column("namespace").combine_chunks()
        runs = pc.run_end_encode(column, run_end_type=pa.int64())
        ends = runs.run_ends.to_numpy()
        yield from zip(runs.values.to_pylist(), np.concatenate([[0], ends[:-1]]).tolist(), ends.tolist(), strict=True)
