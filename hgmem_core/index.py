"""A bucket's index: node rows, packed postings, vectors and event graphs, built from its tables.

Rows of a namespace are contiguous. Every unit of `hgmem_core.units` has postings. Of the units only turns have vectors,
of their dated texts: the vector of a window is the normalised mean of its turns', so its cosine is the sum of their
cosines over a stored norm.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.graph import GRAPH_NODE, LEVELS, GraphRows, GraphTables, edge_products
from hgmem_core.lexical import Floats, Ints, Postings, score_postings
from hgmem_core.lineage import spans
from hgmem_core.relation_rows import relation_rows
from hgmem_core.schemas import TURN, TableSchema, namespace_ranges
from hgmem_core.sharded import Ivf
from hgmem_core.stage_config import IndexConfig
from hgmem_core.tokens import tokenizer
from hgmem_core.units import AFTER, BEFORE, UNITS, session_numbers, session_spans, turn_terms, unit_counts
from hgmem_core.vector_rows import aligned_vectors

INDEX_REVISION = 3
"""Raised when equal turns, vectors and relations give other index files."""

NODE = TableSchema(
    "NODE",
    TURN.key,
    pa.schema(
        [
            *TURN.arrow,
            pa.field("session", pa.int32(), nullable=False),
            pa.field("episode", pa.int32(), nullable=False),
            pa.field("id_rank", pa.int32(), nullable=False),
            pa.field("has_vector", pa.bool_(), nullable=False),
            pa.field("window_norm", pa.float32(), nullable=False),
            pa.field("prior_norm", pa.float32(), nullable=False),
        ],
        metadata={b"hgmem.table": b"NODE", b"hgmem.schema_version": TURN.arrow.metadata[b"hgmem.schema_version"]},
    ),
    TURN.clock,
)
"""TURN and what a search needs beside it: the numbers of its session and episode and the rank of its id within the
namespace, whether it has a vector, and the norms of the vector sums of its window and prior."""

POSTING = pa.schema(
    [
        pa.field("token", pa.large_string(), nullable=False),
        *(
            pa.field(f"{unit}_{name}", pa.large_list(pa.field("item", kind, nullable=False)), nullable=False)
            for unit in UNITS
            for name, kind in (("rows", pa.uint32()), ("scores", pa.float32()))
        ),
    ],
    metadata=NODE.arrow.metadata,
)
"""One row a (namespace, token), sorted; a unit's rows count from the namespace's first of that unit."""

NAMESPACE = pa.schema(
    [
        pa.field("namespace", pa.large_string(), nullable=False),
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in "first_row rows first_token tokens first_node topics episodes facts".split()
        ),
    ],
    metadata=NODE.arrow.metadata,
)
"""Where the turns, tokens and graph nodes of each namespace lie; sorted by namespace."""


@dataclass(frozen=True, slots=True)
class LargeLevel:
    """The IVF index of a level's vectors in a large namespace.

    Attributes:
        namespace: Whose.
        vectors: Which of the vectors of `BucketIndex`, such as `graph_vectors`.
        level: `turn`, or a level of the hypergraph.
        ivf: The index, or why there is none.
    """

    namespace: str
    vectors: str
    level: str
    ivf: Ivf


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """What `build_index` makes of a bucket; vectors are float32 `[rows, dimension]`, zero where there is none.

    Turns have tuned vectors, of a dimension of their own, only where somebody asked for them. Large levels have an IVF
    index besides; see `hgmem_core.ivf.large_levels`.
    """

    namespaces: pa.Table
    nodes: pa.Table
    graph_nodes: pa.Table
    postings: pa.Table
    turn_relations: pa.Table
    fact_relations: pa.Table
    vectors: Floats
    graph_vectors: Floats
    propagated_vectors: Floats
    tuned_vectors: Floats | None = None
    large: tuple[LargeLevel, ...] = ()


def build_index(
    turns: pa.Table,
    embeddings: pa.Table,
    graph: GraphTables,
    config: IndexConfig,
    propagation: float,
    tuned: pa.Table | None = None,
) -> BucketIndex:
    """Index the turns and the hypergraph of one bucket.

    Args:
        turns: TURN, sorted by its key.
        embeddings: EMBEDDING rows of level `turn`, variant `base`; a turn without one is found by words only.
        graph: What the other stages say of these turns; every turn is in an episode.
        config: Language of stems, BM25 constants.
        propagation: λ with which the propagated vectors were made.
        tuned: EMBEDDING rows of level `turn`, variant `tuned`; None for no such vectors.
    """
    vectors, has_vector = aligned_vectors(turns.column("turn_id"), embeddings)
    columns = {name: np.zeros(turns.num_rows, np.int32) for name in ("session", "episode", "id_rank")}
    norms = {name: np.zeros(turns.num_rows, np.float32) for name in ("window_norm", "prior_norm")}
    tokenize = tokenizer(config.language)
    graph_rows = GraphRows(graph)
    namespaces: list[tuple[str | int, ...]] = []
    tokens: list[str] = []
    nodes: list[dict[str, Any]] = []
    postings: dict[str, list[Postings]] = {unit: [] for unit in UNITS}
    for namespace, start, stop in namespace_ranges(turns):
        rows = turns.slice(start, stop - start)
        terms = turn_terms(rows, tokenize)
        own = graph_rows.of(namespace, rows.column("turn_id").to_pylist(), terms, tokenize)
        session = session_numbers(rows)
        columns["session"][start:stop] = session
        columns["episode"][start:stop] = own.episode
        columns["id_rank"][start:stop] = _ranks(rows.column("turn_id"))
        for name, last in (("window_norm", AFTER), ("prior_norm", 0)):
            norms[name][start:stop] = _span_norms(vectors[start:stop], *session_spans(session, BEFORE, last))
        vocabulary, counts = unit_counts(terms, session, own.episode, own.terms)
        levels = Counter(row["level"] for row in own.rows)
        place = (namespace, start, stop - start, len(tokens), len(vocabulary), len(nodes))
        namespaces.append((*place, *(levels[level] for level in LEVELS)))
        tokens += vocabulary
        nodes += own.rows
        for unit in UNITS:
            postings[unit].append(score_postings(counts[unit], config.k1, config.b))
    arrays = [*turns.columns, *(pa.array(columns[name]) for name in columns), pa.array(has_vector)]
    arrays += [pa.array(norms[name]) for name in norms]
    graph_nodes, base, propagated = _graph_nodes(nodes, graph, propagation)
    return BucketIndex(
        namespaces=_rows_table(namespaces, NAMESPACE),
        nodes=pa.Table.from_arrays(arrays, schema=NODE.arrow),
        graph_nodes=graph_nodes,
        postings=_postings_table(tokens, postings),
        turn_relations=relation_rows(graph.turn_relations, turns, "turn_id"),
        fact_relations=relation_rows(graph.fact_relations, graph.facts, "fact_id"),
        vectors=vectors,
        graph_vectors=base,
        propagated_vectors=propagated,
        tuned_vectors=None if tuned is None else aligned_vectors(turns.column("turn_id"), tuned)[0],
    )


def level_rows(namespaces: pa.Table) -> Iterator[tuple[str, str, str, slice]]:
    """Yield of all namespaces of NAMESPACE each level: whose, which vectors of `BucketIndex`, the level, their rows."""
    for row in namespaces.to_pylist():
        name = row["namespace"]
        yield name, "vectors", "turn", slice(row["first_row"], row["first_row"] + row["rows"])
        first = row["first_node"]
        for level in LEVELS:
            rows = slice(first, first + row[f"{level}s"])
            yield name, "graph_vectors", level, rows
            yield name, "propagated_vectors", level, rows
            first = rows.stop


def splice_indexes(old: BucketIndex, new: BucketIndex, kept: Set[str]) -> BucketIndex:
    """Return the index of `old` for the namespaces in `kept` and of `new` for all of its own, sorted by namespace.

    Equal, to the bit, to an index built of all their tables at once: no row of one namespace depends on another's.
    Both have tuned vectors, or none has.
    """
    parts = [
        _part(new if is_new else old, start, stop)
        for is_new, start, stop in spans(old.namespaces, new.namespaces, kept)
    ] or [new]
    tables = {
        name: pa.concat_tables([getattr(part, name) for part in parts]).combine_chunks()
        for name in ("namespaces", "nodes", "graph_nodes", "postings", "turn_relations", "fact_relations")
    }
    vectors = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("vectors", "graph_vectors", "propagated_vectors", "tuned_vectors")
        if new.tuned_vectors is not None or name != "tuned_vectors"
    }
    sizes = _sizes(tables["namespaces"])
    for name, counts in zip(("first_row", "first_token", "first_node"), sizes[:3], strict=True):
        first = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
        place = NAMESPACE.get_field_index(name)
        tables["namespaces"] = tables["namespaces"].set_column(
            place, NAMESPACE.field(name), pa.array(first, pa.int64())
        )
    large = [one for one in old.large if one.namespace in kept] + list(new.large)
    order = {name: place for place, name in enumerate(tables["namespaces"].column("namespace").to_pylist())}
    return BucketIndex(**tables, **vectors, large=tuple(sorted(large, key=lambda one: order[one.namespace])))


def _part(index: BucketIndex, start: int, stop: int) -> BucketIndex:
    """Return the part of an index that belongs to a run of its namespaces."""
    rows, tokens, nodes, facts = (
        slice(int(sizes[:start].sum()), int(sizes[:stop].sum())) for sizes in _sizes(index.namespaces)
    )
    return BucketIndex(
        namespaces=index.namespaces.slice(start, stop - start),
        nodes=index.nodes.slice(rows.start, rows.stop - rows.start),
        graph_nodes=index.graph_nodes.slice(nodes.start, nodes.stop - nodes.start),
        postings=index.postings.slice(tokens.start, tokens.stop - tokens.start),
        turn_relations=index.turn_relations.slice(rows.start, rows.stop - rows.start),
        fact_relations=index.fact_relations.slice(facts.start, facts.stop - facts.start),
        vectors=index.vectors[rows],
        graph_vectors=index.graph_vectors[nodes],
        propagated_vectors=index.propagated_vectors[nodes],
        tuned_vectors=None if index.tuned_vectors is None else index.tuned_vectors[rows],
    )


def _sizes(namespaces: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
    """Return how many turns, tokens, graph nodes and facts each namespace has."""
    rows, tokens, topics, episodes, facts = (
        np.asarray(namespaces.column(name).to_numpy(), np.int64) for name in _COUNTS
    )
    return rows, tokens, topics + episodes + facts, facts


_COUNTS = ("rows", "tokens", "topics", "episodes", "facts")


def _graph_nodes(rows: list[dict[str, Any]], graph: GraphTables, propagation: float) -> tuple[pa.Table, Floats, Floats]:
    """Return GRAPH_NODE with the vectors of its rows, base and propagated."""
    ids = pa.chunked_array([pa.array([row["node_id"] for row in rows], pa.large_string())])
    base, has_vector = aligned_vectors(ids, graph.base)
    propagated, _ = aligned_vectors(ids, graph.propagated)
    dot, square = edge_products(base, propagated, propagation)
    columns: dict[str, Any] = {
        name: [row[name] for row in rows] for name in GRAPH_NODE.arrow.names if rows and name in rows[0]
    }
    columns |= {"has_vector": has_vector, "edge_dot": dot, "edge_square": square}
    arrays = [pa.array(columns.get(field.name, []), field.type) for field in GRAPH_NODE.arrow]
    return pa.Table.from_arrays(arrays, schema=GRAPH_NODE.arrow), base, propagated


def _ranks(ids: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    ranks = np.empty(len(ids), np.int32)
    ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids), dtype=np.int32)
    return ranks


def _span_norms(vectors: Floats, first: Ints, stop: Ints) -> Floats:
    """Return the length of the sum of the vectors `first:stop` of each row, float32 `[n]`."""
    total = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(vectors, axis=0, dtype=np.float64)])
    norms: Floats = np.linalg.norm(total[stop] - total[first], axis=1).astype(np.float32)
    return norms


def _rows_table(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(len(schema))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _postings_table(tokens: list[str], postings: Mapping[str, Sequence[Postings]]) -> pa.Table:
    arrays = [pa.array(tokens, pa.large_string())]
    for unit in UNITS:
        parts = postings[unit]
        sizes = np.concatenate([[0], *(np.diff(part.offsets) for part in parts)]).astype(np.int64)
        offsets = pa.array(np.cumsum(sizes))
        for name, kind in (("rows", np.uint32), ("scores", np.float32)):
            values = np.concatenate([np.zeros(0, kind), *(getattr(part, name) for part in parts)])
            arrays.append(
                pa.LargeListArray.from_arrays(offsets, pa.array(values), POSTING.field(f"{unit}_{name}").type)
            )
    return pa.Table.from_arrays(arrays, schema=POSTING)
