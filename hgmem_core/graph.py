"""The hypergraph of a bucket as it is searched: topics, episodes and facts, who belongs to whom, what each stands for.

In a namespace the nodes are numbered topics first, then episodes, then facts, each in the order of their ids. One BM25
corpus holds all three (as in HyperMem): a field counts as often as its weight says. Propagated vectors are not stored
for every λ: with s = Agg h_e, a cosine with h + λ s needs the products of the query with h and with s and, of each
node, h·s and s·s.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.lexical import Floats
from hgmem_core.schemas import SCHEMA_VERSION, STRING, TIME, TableSchema, namespace_ranges
from hgmem_core.units import TurnTerms

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


class GraphError(RuntimeError):
    """A stage made a node that stands on nothing: an episode or fact without a source among the turns."""


@dataclass(frozen=True, slots=True)
class GraphTables:
    """What the stages say of a bucket: TOPIC, EPISODE, FACT, INCIDENCE, EMBEDDING base and propagated, RELATION."""

    topics: pa.Table
    episodes: pa.Table
    facts: pa.Table
    incidences: pa.Table
    base: pa.Table
    propagated: pa.Table
    turn_relations: pa.Table
    fact_relations: pa.Table


@dataclass(frozen=True, slots=True)
class NamespaceNodes:
    """The nodes of one namespace, numbered topics, then episodes, then facts, each by id.

    Attributes:
        rows: Their columns of GRAPH_NODE, without the vectors' ones.
        terms: What BM25 sees of each.
        episode: The number of each turn's episode, int32 `[turns]`.
    """

    rows: list[dict[str, Any]]
    terms: list[list[str]]
    episode: npt.NDArray[np.int32]


class GraphRows:
    """The tables of a bucket's hypergraph, ready to be taken apart by namespace."""

    def __init__(self, tables: GraphTables) -> None:
        """Find where each namespace's rows lie and who belongs to whom."""
        facts = tables.facts.drop_columns(["entities", "confidence", "support"])
        self._tables = {"topic": _plain(tables.topics), "episode": _plain(tables.episodes), "fact": _plain(facts)}
        self._ranges = {
            level: {name: (start, stop) for name, start, stop in namespace_ranges(table)}
            for level, table in self._tables.items()
        }
        self._members: defaultdict[str, list[str]] = defaultdict(list)
        edges, nodes = (tables.incidences.column(name).to_pylist() for name in ("hyperedge_id", "node_id"))
        for edge, node in zip(edges, nodes, strict=True):
            self._members[edge].append(node)

    def of(
        self, namespace: str, turn_ids: Sequence[str], turns: TurnTerms, tokenize: Callable[[str], list[str]]
    ) -> NamespaceNodes:
        """Return the nodes of a namespace whose turns have these ids and terms."""
        row_of_turn = {turn: row for row, turn in enumerate(turn_ids)}
        level_rows = {level: self._level(level, namespace) for level in LEVELS}
        number = {node[f"{level}_id"]: at for level in LEVELS for at, node in enumerate(level_rows[level])}
        episode = np.zeros(len(turn_ids), np.int32)
        rows, terms = [], []
        for level in LEVELS:
            for at, node in enumerate(level_rows[level]):
                sources = [row_of_turn[turn] for turn in node.get("turn_ids", ()) if turn in row_of_turn]
                if not sources and level != "topic":
                    raise GraphError(f"{level} {node[f'{level}_id']} cites no turn of {namespace}")
                if level == "episode":
                    episode[sources] = at
                members = [number[member] for member in self._members[node[f"{level}_id"]] if member in number]
                rows.append(_node_row(namespace, level, node, sources, sorted(members)))
                narrative = [term for row in sources for term in turns.dated(row)] if level == "episode" else []
                weighted = [(tokenize(field), weight) for field, weight in weighted_fields(level, node)]
                terms.append([term for field, weight in weighted for term in field * weight] + narrative)
        return NamespaceNodes(rows, terms, episode)

    def _level(self, level: Level, namespace: str) -> list[dict[str, Any]]:
        start, stop = self._ranges[level].get(namespace, (0, 0))
        rows: list[dict[str, Any]] = self._tables[level].slice(start, stop - start).to_pylist()
        return rows


def _plain(table: pa.Table) -> pa.Table:
    """Return a table with its times as integers, which are far cheaper to read one by one."""
    types = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema([field.with_type(kind) for field, kind in zip(table.schema, types, strict=True)]))


def _node_row(
    namespace: str, level: Level, node: Mapping[str, Any], sources: list[int], members: list[int]
) -> dict[str, Any]:
    is_fact = level == "fact"
    return {
        "namespace": namespace,
        "level": level,
        "node_id": node[f"{level}_id"],
        "title": None if is_fact else node["title"],
        "text": node["text"] if is_fact else node["summary"],
        "started_at": node["valid_from"] if is_fact else node["started_at"],
        "ended_at": node["valid_to"] if is_fact else node["ended_at"],
        "superseded_by": node["superseded_by"] if is_fact else None,
        "turn_rows": sources,
        "members": members,
    }


def weighted_fields(level: Level, node: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the fields of a node that BM25 sees, each with how often it counts (HyperMem's field weights).

    An episode's whole text, which counts once, is not among them: its turns' terms are at hand.
    """
    if level == "topic":
        return [(node["title"], 3), (" ".join(node["keywords"]), 2), (node["summary"], 1)]
    if level == "episode":
        return [(node["title"], 3), (node["summary"], 2)]
    fields = [(node["text"], 3), (" ".join(node["queries"]), 2), (" ".join(node["keywords"]), 1)]
    return [*fields, (node["time_phrase"] or "", 1), (node["place"] or "", 1)]


DENSE_FIELDS: Mapping[Level, list[str]] = MappingProxyType(
    {"topic": ["title", "summary"], "episode": ["title", "summary"], "fact": ["text"]}
)
"""What the encoder sees of a node. A fact's text has no date: dated ones were found less well."""


def dense_text(level: Level, node: Mapping[str, Any]) -> str:
    """Return the text of a node that the encoder sees; `node` has the level's `DENSE_FIELDS`."""
    return " ".join(node[name] for name in DENSE_FIELDS[level] if node[name])


def edge_products(base: Floats, propagated: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return h·s and s·s of each node, float32 `[n]`, where `propagated` = h + `weight` s."""
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
