"""The hypergraph of a bucket as it is searched: topics, episodes and facts, who belongs to whom, what each stands for.

In a namespace the nodes are numbered topics first, then episodes, then facts, each in the order of their ids. One BM25
corpus holds all three (as in HyperMem): a field counts as often as its weight says. Propagated vectors are not stored
for every λ: with s = Agg h_e, a cosine with h + λ s needs the products of the query with h and with s and, of each
node, h·s and s·s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from hgmem_core.lexical import Floats
from hgmem_core.schemas import SCHEMA_VERSION, STRING, TIME, TableSchema

Level = Literal["topic", "episode", "fact"]
LEVELS: tuple[Level, ...] = get_args(Level)

_ROWS = pa.large_list(pa.field("item", pa.uint32(), nullable=False))

GRAPH_NODE = TableSchema(
    "GRAPH_NODE",
    ("namespace", "level", "node_id"),
    pa.schema(
        [
            pa.field("namespace", STRING, nullable=False),
            pa.field("level", STRING, nullable=False),
            pa.field("node_id", STRING, nullable=False),
            pa.field("title", STRING),
            pa.field("text", STRING, nullable=False),
            pa.field("started_at", TIME),
            pa.field("ended_at", TIME),
            pa.field("superseded_by", STRING),
            pa.field("turn_rows", _ROWS, nullable=False),
            pa.field("members", _ROWS, nullable=False),
            pa.field("has_vector", pa.bool_(), nullable=False),
            pa.field("edge_dot", pa.float32(), nullable=False),
            pa.field("edge_square", pa.float32(), nullable=False),
        ],
        metadata={"hgmem.table": "GRAPH_NODE", "hgmem.schema_version": str(SCHEMA_VERSION)},
    ),
)
"""A node of the hypergraph. `turn_rows` are its source turns, counted from the namespace's first, a fact's best first;
`members` of a topic are its episodes and of an episode its facts, counted within their level; `edge_dot` is h·s and
`edge_square` s·s."""


@dataclass(frozen=True, slots=True)
class GraphTables:
    """What the stages say of a bucket: TOPIC, EPISODE, FACT, INCIDENCE, and EMBEDDING base and propagated."""

    topics: pa.Table
    episodes: pa.Table
    facts: pa.Table
    incidences: pa.Table
    base: pa.Table
    propagated: pa.Table


def weighted_terms(level: Level, row: Mapping[str, Any], narrative: str) -> list[tuple[str, int]]:
    """Return the fields of a node that BM25 sees, each with how often it counts (HyperMem's field weights).

    `narrative` is the whole text of an episode: the dated texts of its turns.
    """
    if level == "topic":
        return [(row["title"], 3), (" ".join(row["keywords"]), 2), (row["summary"], 1)]
    if level == "episode":
        return [(row["title"], 3), (row["summary"], 2), (narrative, 1)]
    fields = [(row["text"], 3), (" ".join(row["queries"]), 2), (" ".join(row["keywords"]), 1)]
    return [*fields, (row["time_phrase"] or "", 1), (row["place"] or "", 1)]


def dense_text(level: Level, row: Mapping[str, Any], date: str) -> str:
    """Return the text of a node that the encoder sees; `date` says when its first source was said."""
    if level == "fact":
        parts = [date.strip(), row["text"], " ".join(row["queries"]), row["place"]]
    else:
        parts = [date.strip(), row["title"], row["summary"]]
    return " ".join(part for part in parts if part)


def edge_products(base: Floats, propagated: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return h·s and s·s of each node, float32 `[n]`, where `propagated` = h + `weight` s; zeros if `weight` is 0."""
    if not weight or not len(base):
        return np.zeros(len(base), np.float32), np.zeros(len(base), np.float32)
    sums = (propagated - base) / np.float32(weight)
    dot: Floats = np.einsum("nd,nd->n", base, sums).astype(np.float32)
    square: Floats = np.einsum("nd,nd->n", sums, sums).astype(np.float32)
    return dot, square


def propagated_cosines(
    base: Floats, propagated: Floats, dot: Floats, square: Floats, built: float, weight: float
) -> Floats:
    """Return the cosines of a unit query with h + `weight` s.

    Args:
        base: q·h of each node, h of unit length, float32 `[n]`.
        propagated: q·(h + `built` s).
        dot: h·s.
        square: s·s.
        built: λ of the stored vectors, not 0.
        weight: The λ that is asked for.
    """
    if not weight:
        return base
    product = base + weight / built * (propagated - base)
    length = np.sqrt(np.maximum(1 + 2 * weight * dot + weight * weight * square, 1e-12))
    cosines: Floats = (product / length).astype(np.float32)
    return cosines


def list_column(lists: Sequence[Sequence[int]]) -> pa.Array:
    """Return row numbers as a list column."""
    return pa.array(lists, _ROWS)
