"""A bucket's index, opened: gives out the part of one namespace, and nothing that spans two."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.graph import LEVELS, Level
from hgmem_core.lexical import Floats, Ints, add_scores
from hgmem_core.namespace_graph import NamespaceGraph, VectorRows
from hgmem_core.schemas import TIME
from hgmem_core.tokens import fold
from hgmem_core.turns import UNKNOWN_TIME
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
    """

    namespaces: pa.Table
    nodes: pa.Table
    graph_nodes: pa.Table
    postings: pa.Table
    vectors: VectorRows
    graph_vectors: VectorRows
    propagated_vectors: VectorRows
    propagation: float


class IndexReader:
    """A bucket's index, opened: gives out the part of one namespace, and nothing that spans two."""

    def __init__(self, files: BucketFiles) -> None:
        """Take the files of a bucket; memory-mapped ones stay so."""
        self._files = files
        self._ranges = {row["namespace"]: row for row in files.namespaces.to_pylist()}
        self._nodes = files.nodes.combine_chunks()
        self._graph_nodes = files.graph_nodes.combine_chunks()
        self._postings = files.postings.combine_chunks()

    def namespaces(self) -> list[str]:
        """The namespaces of the bucket, in order."""
        return list(self._ranges)

    def open(self, namespace: str) -> "NamespaceIndex | None":
        """Return the part of `namespace`, or None if the bucket has nothing of it."""
        found = self._ranges.get(namespace)
        if found is None:
            return None
        files = self._files
        counts: dict[Level, int] = {level: found[f"{level}s"] for level in LEVELS}
        graph = NamespaceGraph(
            self._graph_nodes.slice(found["first_node"], sum(counts.values())),
            counts,
            files.graph_vectors,
            files.propagated_vectors,
            found["first_node"],
            files.propagation,
        )
        return NamespaceIndex(
            self._nodes.slice(found["first_row"], found["rows"]),
            self._postings.slice(found["first_token"], found["tokens"]),
            files.vectors,
            found["first_row"],
            graph,
        )


class NamespaceIndex:
    """The rows, postings and vectors of one namespace. Arrays are views; row numbers count from its first turn."""

    def __init__(
        self, nodes: pa.Table, postings: pa.Table, vectors: VectorRows, first_vector: int, graph: NamespaceGraph
    ) -> None:
        """Take slices that hold one namespace and nothing else; its vectors begin at row `first_vector`."""
        self.nodes = nodes
        self.graph = graph
        self._vectors = vectors
        self._first_vector = first_vector
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
        self.vector_rows: Ints = np.flatnonzero(_numpy(nodes, "has_vector"))
        self._columns = {name: _single(nodes, name) for name in nodes.column_names}
        self._tokens = _single(postings, "token")
        self._lists = {unit: _lists(postings, unit) for unit in UNITS}
        self._window = (*session_spans(self.session, BEFORE, AFTER), _numpy(nodes, "window_norm"))
        self._prior = (*session_spans(self.session, BEFORE, 0), _numpy(nodes, "prior_norm"))
        self._known: dict[str, int] = {}

    def __len__(self) -> int:
        """Count the turns."""
        return len(self.session)

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
    def speakers(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The distinct speakers, and for each turn the number of its own, -1 where it has none."""
        encoded = _single(self.nodes, "speaker").dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices.fill_null(-1).to_numpy(), np.int32)

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
