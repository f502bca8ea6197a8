"""A bucket's index, opened: gives out the part of one namespace, and nothing that spans two."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.graph import LEVELS, Level
from hgmem_core.hiding import hide_nodes, hide_relations, hide_turns
from hgmem_core.lexical import Floats, Ints, add_scores
from hgmem_core.namespace_graph import NamespaceGraph
from hgmem_core.relation_rows import relations_of
from hgmem_core.relations import GraphName, Relations
from hgmem_core.schemas import TIME
from hgmem_core.sharded import ShardedVectors, Shards, VectorRows
from hgmem_core.tokens import fold
from hgmem_core.tombstones import NO_TOMBSTONES, Mask, Tombstones
from hgmem_core.turns import UNKNOWN_TIME, moment
from hgmem_core.units import AFTER, BEFORE, UNITS, Unit, session_spans


@dataclass(frozen=True, slots=True)
class TieOrder:
    """The order of rows whose scores are equal: `rank` of each row, int64 `[n]`, and the `row` of each rank."""

    rank: Ints
    row: Ints

    @classmethod
    def of(cls, rank: npt.NDArray[np.integer[Any]]) -> "TieOrder":
        """Return the order that gives row i the place `rank[i]`; ranks are 0 to n - 1, each once."""
        row = np.empty(len(rank), np.int64)
        row[rank] = np.arange(len(rank))
        return cls(rank.astype(np.int64), row)


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The files of a bucket's index, opened; see `hgmem_core.index.BucketIndex`.

    Attributes:
        propagation: λ with which the propagated vectors were made.
        tuned_vectors: Of the turns, too; None where a version has none.
        shards: The IVF indexes of large levels, by the field that holds the vectors and their rows, from and to.
    """

    namespaces: pa.Table
    nodes: pa.Table
    graph_nodes: pa.Table
    postings: pa.Table
    turn_relations: pa.Table
    fact_relations: pa.Table
    vectors: VectorRows
    graph_vectors: VectorRows
    propagated_vectors: VectorRows
    propagation: float
    tuned_vectors: VectorRows | None = None
    shards: Mapping[str, Mapping[tuple[int, int], Shards]] = field(default_factory=dict)


class IndexReader:
    """A bucket's index, opened: gives out the part of one namespace, and nothing that spans two."""

    def __init__(self, files: BucketFiles) -> None:
        """Take the files of a bucket; memory-mapped ones stay so."""
        self._files = files
        self._ranges = {row["namespace"]: row for row in files.namespaces.to_pylist()}
        self._nodes = files.nodes.combine_chunks()
        self._graph_nodes = files.graph_nodes.combine_chunks()
        self._postings = files.postings.combine_chunks()
        facts = files.namespaces.column("facts").to_pylist()
        self._first_fact = dict(zip(self._ranges, accumulate(facts, initial=0), strict=False))
        self._vectors, self._graph_vectors, self._propagated_vectors = (
            ShardedVectors(getattr(files, name), files.shards.get(name, {}))
            for name in ("vectors", "graph_vectors", "propagated_vectors")
        )

    def namespaces(self) -> list[str]:
        """The namespaces of the bucket, in order."""
        return list(self._ranges)

    def open(self, namespace: str, tombstones: Tombstones = NO_TOMBSTONES) -> "NamespaceIndex | None":
        """Return the part of `namespace` without what tombstones cover, or None if the bucket has nothing else of it.

        Args:
            namespace: Whose memory.
            tombstones: What was forgotten since the index was made.
        """
        found = self._ranges.get(namespace)
        if found is None:
            return None
        files = self._files
        counts: dict[Level, int] = {level: found[f"{level}s"] for level in LEVELS}
        nodes = self._nodes.slice(found["first_row"], found["rows"])
        graph_nodes = self._graph_nodes.slice(found["first_node"], sum(counts.values()))
        columns = (_single(nodes, name) for name in ("turn_id", "session_id", "said_at"))
        covered = tombstones.hidden_turns(namespace, *columns)
        if covered.all():
            return None
        hidden: dict[GraphName, Mask] = {}
        if covered.any():
            graph_nodes, facts = hide_nodes(graph_nodes, counts, covered)
            nodes, hidden = hide_turns(nodes, covered), {"turn": covered, "fact": facts}
        graph = NamespaceGraph(
            graph_nodes,
            counts,
            self._graph_vectors,
            self._propagated_vectors,
            found["first_node"],
            files.propagation,
        )
        return NamespaceIndex(
            nodes,
            self._postings.slice(found["first_token"], found["tokens"]),
            self._vectors,
            found["first_row"],
            graph,
            {
                "turn": files.turn_relations.slice(found["first_row"], found["rows"]),
                "fact": files.fact_relations.slice(self._first_fact[namespace], found["facts"]),
            },
            files.tuned_vectors,
            hidden,
        )


class NamespaceIndex:
    """The rows, postings and vectors of one namespace. Arrays are views; row numbers count from its first turn."""

    def __init__(
        self,
        nodes: pa.Table,
        postings: pa.Table,
        vectors: ShardedVectors,
        first_vector: int,
        graph: NamespaceGraph,
        relations: Mapping[GraphName, pa.Table],
        tuned_vectors: VectorRows | None,
        hidden: Mapping[GraphName, Mask],
    ) -> None:
        """Take slices that hold one namespace and nothing else; its vectors begin at row `first_vector`.

        Of `hidden` turns and facts, if there are any, the tables say nothing any more; see `hgmem_core.hiding`.
        """
        self.nodes = nodes
        self.graph = graph
        self._vectors = vectors
        self._tuned_vectors = tuned_vectors
        self._first_vector = first_vector
        self._relation_rows = relations
        self._relations: dict[GraphName, Relations] = {}
        self._hidden = hidden
        self.session = _numpy(nodes, "session")
        self.episode = _numpy(nodes, "episode")
        self.sessions = int(self.session[-1]) + 1
        self._documents = {
            "session": self.sessions,
            "episode": graph.counts["episode"],
            "graph": sum(graph.counts.values()),
        }
        self.id_order = TieOrder.of(_numpy(nodes, "id_rank"))
        self.session_order = TieOrder.of(np.arange(self.sessions))
        self._has_vector = _numpy(nodes, "has_vector")
        self.vector_rows: Ints = np.flatnonzero(self._has_vector)
        self._columns = {name: _single(nodes, name) for name in nodes.column_names}
        self._tokens = _single(postings, "token")
        self._lists = {unit: _lists(postings, unit) for unit in UNITS}
        self._window = (*session_spans(self.session, BEFORE, AFTER), _numpy(nodes, "window_norm"))
        self._prior = (*session_spans(self.session, BEFORE, 0), _numpy(nodes, "prior_norm"))
        self._known: dict[str, int] = {}

    def __len__(self) -> int:
        """Count the turns."""
        return len(self.session)

    @property
    def hidden(self) -> Mask | None:
        """Which turns are forgotten, bool `[turns]`; None if none is."""
        return self._hidden.get("turn")

    @cached_property
    def position(self) -> Ints:
        """The place of each turn within its session."""
        return np.asarray(_numpy(self.nodes, "position"), np.int64)

    @cached_property
    def said_at_us(self) -> Ints:
        """When each turn was said, in microseconds since 1970; `UNKNOWN_TIME` where unknown."""
        return _times(self.nodes, "said_at")

    @cached_property
    def ingested_at_us(self) -> Ints:
        """When each turn was first imported, in microseconds since 1970."""
        return _times(self.nodes, "ingested_at")

    @cached_property
    def session_ids(self) -> list[str]:
        """The sessions' ids; a session's number is its place here."""
        ids: list[str] = _single(self.nodes, "session_id").dictionary_encode().dictionary.to_pylist()
        return ids

    @cached_property
    def session_length(self) -> Ints:
        """How many turns each session has."""
        return np.asarray(np.bincount(self.session, minlength=self.sessions), np.int64)

    @cached_property
    def text_length(self) -> Floats:
        """The logarithm of one plus the characters of each turn's text, float32 `[turns]`."""
        lengths = pc.utf8_length(_single(self.nodes, "text")).to_numpy(zero_copy_only=False)
        return np.asarray(np.log1p(lengths), np.float32)

    @cached_property
    def asks(self) -> Floats:
        """1 for each turn with a question mark, else 0, float32 `[turns]`."""
        found = pc.match_substring_regex(_single(self.nodes, "text"), "[?？]")
        return np.asarray(found.to_numpy(zero_copy_only=False), np.float32)

    @cached_property
    def has_attachment(self) -> Floats:
        """1 for each turn with an attachment, else 0, float32 `[turns]`."""
        found = pc.not_equal(_single(self.nodes, "attachments"), "[]")
        return np.asarray(found.to_numpy(zero_copy_only=False), np.float32)

    @cached_property
    def speakers(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The distinct speakers, and for each turn the number of its own, -1 where it has none."""
        encoded = _single(self.nodes, "speaker").dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices.fill_null(-1).to_numpy(), np.int32)

    @cached_property
    def log_span(self) -> tuple[datetime, datetime] | None:
        """When the first and the last turn were said whose times are known; None without any."""
        known = self.said_at_us[self.said_at_us != UNKNOWN_TIME]
        first, last = (moment(int(end)) for end in (known.min(), known.max())) if len(known) else (None, None)
        return (first, last) if first is not None and last is not None else None

    @cached_property
    def speaker_phrases(self) -> list[str]:
        """The distinct speakers' names as `words` writes them, each between blanks."""
        return [words(name) for name in self.speakers[0]]

    def column(self, name: str) -> pa.Array:
        """Return a column of NODE for these rows."""
        return self._columns[name]

    def speaker_of(self, row: int) -> str | None:
        """Return who said the turn of a row."""
        names, codes = self.speakers
        return names[codes[row]] if codes[row] >= 0 else None

    def term_numbers(self, terms: Sequence[str]) -> list[int]:
        """Return the numbers of those `terms` that the namespace has, repeats kept."""
        numbers = (self._term_number(term) for term in terms)
        return [number for number in numbers if number >= 0]

    def _term_number(self, term: str) -> int:
        known = self._known.get(term)
        if known is None:
            at = bisect_left(range(len(self._tokens)), term, key=lambda place: self._tokens[place].as_py())
            known = at if at < len(self._tokens) and self._tokens[at].as_py() == term else -1
            if known >= 0:  # a query's unknown words are never kept
                self._known[term] = known
        return known

    @property
    def terms(self) -> int:
        """How many distinct terms the units of the namespace have."""
        return len(self._tokens)

    def postings(self, unit: Unit) -> tuple[Ints, npt.NDArray[np.uint32], Floats]:
        """Return the documents of each term in a unit and its BM25 scores there.

        Those of term i are `offsets[i]:offsets[i + 1]` of the other two.
        """
        offsets, rows, scores = self._lists[unit]
        own = slice(offsets[0], offsets[-1])
        return np.asarray(offsets - offsets[0], np.int64), rows[own], scores[own]

    def term_frequencies(self, unit: Unit) -> Ints:
        """Return how many documents of a unit have each term, int64 `[terms]`."""
        frequencies: Ints = np.diff(self._lists[unit][0])
        return frequencies

    def relations(self, graph: GraphName) -> Relations:
        """Return the event graph of the turns, numbered by their rows, or of the facts, numbered within their level."""
        if graph not in self._relations:
            every, hidden = relations_of(self._relation_rows[graph]), self._hidden.get(graph)
            self._relations[graph] = every if hidden is None else hide_relations(every, hidden)
        return self._relations[graph]

    def bm25(self, unit: Unit, term_numbers: Sequence[int]) -> Floats:
        """Return the BM25 score of each document of a unit, 0 without a match; a window or prior is its turn's."""
        offsets, rows, scores = self._lists[unit]
        slices: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.floating[Any]]]] = []
        for term, times in Counter(term_numbers).items():
            part = slice(offsets[term], offsets[term + 1])
            slices.append((rows[part], scores[part] if times == 1 else scores[part] * np.float64(times)))
        return add_scores(slices, self._documents.get(unit, len(self)))

    def cosines(self, query: Floats) -> Floats:
        """Return the cosine of each turn with the unit vector `query` `[dimension]`; 0 where a turn has no vector."""
        return self._vectors.products(query, self._first_vector, self._first_vector + len(self))

    @property
    def is_large(self) -> bool:
        """Whether `near_cosines` knows those of a few turns only."""
        return self._vectors.has_shards(self._first_vector, self._first_vector + len(self))

    def near_cosines(self, query: Floats, count: int, passes: npt.NDArray[np.bool_] | None) -> Floats:
        """Return `cosines`, in a large namespace only those of the turns near a query and around them; others have 0.

        So the cosine of a window that holds a near turn is right, too.

        Args:
            query: Of unit length, float32 `[dimension]`.
            count: How many turns are near.
            passes: Which turns may be found, bool `[turns]`; None for all.
        """
        if not self.is_large:
            return self.cosines(query)
        start, stop = self._first_vector, self._first_vector + len(self)
        near = self._vectors.nearest(query, start, stop, count, passes)
        reach = BEFORE + AFTER
        around = np.unique(near[:, None] + np.arange(-reach, reach + 1))
        around = around[(around >= 0) & (around < len(self))]
        cosines = np.zeros(len(self), np.float32)
        cosines[around] = self._vectors.products_of(query, start + around)
        return cosines

    def dense_rows(self, cosines: Floats) -> Ints:
        """Return the turns that a list by `near_cosines`, or by `span_cosines` of them, may hold."""
        return self.vector_rows if not self.is_large else np.flatnonzero((cosines != 0) & self._has_vector)

    def tuned_cosines(self, query: Floats) -> Floats:
        """Return the cosine of each turn's tuned vector with that of a query `[tuned dimension]`, 0 without one.

        Raises:
            ValueError: The index has no tuned vectors.
        """
        if self._tuned_vectors is None:
            raise ValueError("the index has no tuned vectors: name their folder as encoder.tuned, and rebuild")
        return self._tuned_vectors.products(query, self._first_vector, self._first_vector + len(self))

    def turn_vector(self, row: int) -> Floats:
        """Return the vector of the turn of a row, float32 `[dimension]`; zeros where it has none."""
        vector: Floats = self._vectors.vectors(np.array([self._first_vector + row]))[0]
        return vector

    def turn_cosines(self, row: int, rows: Ints) -> Floats:
        """Return the cosine of the turn of a row with those of others, float32 `[len(rows)]`."""
        return self._vectors.products_of(self.turn_vector(row), self._first_vector + rows)

    def span_cosines(self, unit: Literal["window", "prior"], cosines: Floats) -> Floats:
        """Return the cosine of each window or prior: the sum of its turns' over the norm of the vectors' sum."""
        first, stop, norm = self._window if unit == "window" else self._prior
        total = np.concatenate([[0.0], np.cumsum(cosines, dtype=np.float64)])
        sums = total[stop] - total[first]
        cosine: Floats = np.divide(sums, norm, out=np.zeros(len(norm)), where=norm > 0).astype(np.float32)
        return cosine


def words(text: str) -> str:
    """Return the folded words of `text` between single blanks, with one at each end, to look for whole names in.

    >>> words("Did Ana-Maria's dog bark?")
    ' did ana maria s dog bark '
    """
    return " " + " ".join("".join(c if c.isalnum() else " " for c in fold(text)).split()) + " "


def _single(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _numpy(table: pa.Table, name: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = _single(table, name).to_numpy(zero_copy_only=False)
    return array


def _times(table: pa.Table, name: str) -> Ints:
    unknown = pa.scalar(UNKNOWN_TIME, pa.int64())
    return np.asarray(_single(table, name).cast(TIME).cast(pa.int64()).fill_null(unknown).to_numpy(), np.int64)


def _lists(postings: pa.Table, unit: Unit) -> tuple[Ints, npt.NDArray[np.uint32], Floats]:
    rows, scores = _single(postings, f"{unit}_rows"), _single(postings, f"{unit}_scores")
    return np.asarray(rows.offsets.to_numpy()), rows.values.to_numpy(), scores.values.to_numpy()
