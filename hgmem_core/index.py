"""A bucket's index: node rows, packed postings and vectors, built from its tables and read back as arrays.

Rows of a namespace are contiguous. Five units are searched: the `turn`, whose text is `speaker: text [image: caption]`;
the same `dated`, with its time in front; the `window`, a turn with two on either side within its session; the `prior`,
a turn with the two before it; and the `session`. Each has postings; the last three are made of dated texts. Only turns
have vectors, of their dated texts: the vector of a window is the normalised mean of its turns', so its cosine is the
sum of their cosines over a stored norm.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import IndexConfig
from hgmem_core.lexical import Floats, Ints, Postings, TermCounts, add_scores, count_terms, count_tokens, score_postings
from hgmem_core.schemas import TIME, TURN, TableSchema
from hgmem_core.tokens import fold, tokenizer
from hgmem_core.turns import UNKNOWN_TIME, date_texts, turn_texts

Unit = Literal["turn", "dated", "window", "prior", "session"]
UNITS: tuple[Unit, ...] = get_args(Unit)

BEFORE = 2
AFTER = 2
"""Turns on either side of a window's centre."""

INDEX_REVISION = 1
"""Raised when equal turns and vectors give other index files."""

NODE = TableSchema(
    "NODE",
    TURN.key,
    pa.schema(
        [
            *TURN.arrow,
            pa.field("session", pa.int32(), nullable=False),
            pa.field("id_rank", pa.int32(), nullable=False),
            pa.field("has_vector", pa.bool_(), nullable=False),
            pa.field("window_norm", pa.float32(), nullable=False),
            pa.field("prior_norm", pa.float32(), nullable=False),
        ],
        metadata={b"hgmem.table": b"NODE", b"hgmem.schema_version": TURN.arrow.metadata[b"hgmem.schema_version"]},
    ),
    TURN.clock,
)
"""TURN and what a search needs beside it: the session's number and the id's rank within the namespace, whether the
turn has a vector, and the norms of the vector sums of its window and prior."""

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
"""One row a (namespace, token), sorted; rows count from the namespace's first, sessions from its first session."""

NAMESPACE = pa.schema(
    [
        pa.field("namespace", pa.large_string(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("first_row", "rows", "first_token", "tokens")),
    ],
    metadata=NODE.arrow.metadata,
)
"""Where the rows and the tokens of each namespace lie; sorted by namespace."""


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """What `build_index` makes of a bucket; vectors are float32 `[rows, dimension]`, zero where there is none."""

    namespaces: pa.Table
    nodes: pa.Table
    postings: pa.Table
    vectors: Floats


def namespace_ranges(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Yield each namespace of a table sorted by namespace, with its first row and the row after its last."""
    if table.num_rows:
        column = table.column("namespace").combine_chunks()
        runs = pc.run_end_encode(column, run_end_type=pa.int64())
        ends = runs.run_ends.to_numpy()
        yield from zip(runs.values.to_pylist(), np.concatenate([[0], ends[:-1]]).tolist(), ends.tolist(), strict=True)


def build_index(turns: pa.Table, embeddings: pa.Table, dimension: int, config: IndexConfig) -> BucketIndex:
    """Index the turns of one bucket.

    Args:
        turns: TURN, sorted by its key.
        embeddings: EMBEDDING rows of level `turn`, variant `base`; a turn without one is found by words only.
        dimension: Floats in a vector.
        config: Language of stems, BM25 constants.
    """
    vectors, has_vector = _aligned_vectors(turns, embeddings, dimension)
    columns = {name: np.zeros(turns.num_rows, np.int32) for name in ("session", "id_rank")}
    norms = {name: np.zeros(turns.num_rows, np.float32) for name in ("window_norm", "prior_norm")}
    namespaces: list[tuple[str, int, int, int, int]] = []
    tokens: list[str] = []
    postings: dict[str, list[Postings]] = {unit: [] for unit in UNITS}
    for namespace, start, stop in namespace_ranges(turns):
        rows = turns.slice(start, stop - start)
        session = _session_numbers(rows)
        columns["session"][start:stop] = session
        columns["id_rank"][start:stop] = _ranks(rows.column("turn_id"))
        for name, last in (("window_norm", AFTER), ("prior_norm", 0)):
            norms[name][start:stop] = _span_norms(vectors[start:stop], *session_spans(session, BEFORE, last))
        vocabulary, counts = _unit_counts(rows, session, config)
        namespaces.append((namespace, start, stop - start, len(tokens), len(vocabulary)))
        tokens += vocabulary
        for unit in UNITS:
            postings[unit].append(score_postings(counts[unit], config.k1, config.b))
    arrays = [*turns.columns, *(pa.array(columns[name]) for name in ("session", "id_rank")), pa.array(has_vector)]
    arrays += [pa.array(norms[name]) for name in ("window_norm", "prior_norm")]
    return BucketIndex(
        namespaces=_rows_table(namespaces, NAMESPACE),
        nodes=pa.Table.from_arrays(arrays, schema=NODE.arrow),
        postings=_postings_table(tokens, postings),
        vectors=vectors,
    )


def _aligned_vectors(turns: pa.Table, embeddings: pa.Table, dimension: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Put the vectors into the order of the turns; zeros where a turn has none."""
    place = pc.index_in(turns.column("turn_id"), value_set=embeddings.column("node_id").combine_chunks())
    found = pc.is_valid(place).to_numpy()
    vectors = np.zeros((turns.num_rows, dimension), np.float32)
    if embeddings.num_rows:
        every = embeddings.column("vector").combine_chunks().flatten().to_numpy().reshape(-1, dimension)
        vectors[found] = every[pc.drop_null(place).to_numpy()]
    return vectors, found


def _session_numbers(rows: pa.Table) -> npt.NDArray[np.int32]:
    codes = rows.column("session_id").combine_chunks().dictionary_encode().indices
    return np.asarray(codes.to_numpy(), np.int32)  # sorted by session, so first seen is first in order


def _ranks(ids: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    ranks = np.empty(len(ids), np.int32)
    ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids), dtype=np.int32)
    return ranks


def session_spans(session: npt.NDArray[np.int32], before: int, after: int) -> tuple[Ints, Ints]:
    """Return for each row the first row and the row after the last of its span, cut at its session's ends."""
    rows = np.arange(len(session), dtype=np.int64)
    change = np.flatnonzero(np.diff(session)) + 1
    starts = np.concatenate([[0], change])
    stops = np.concatenate([change, [len(session)]])
    place = np.searchsorted(starts, rows, side="right") - 1
    return np.maximum(rows - before, starts[place]), np.minimum(rows + after + 1, stops[place])


def _span_norms(vectors: Floats, first: Ints, stop: Ints) -> Floats:
    """Return the length of the sum of the vectors `first:stop` of each row, float32 `[n]`."""
    total = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(vectors, axis=0, dtype=np.float64)])
    norms: Floats = np.linalg.norm(total[stop] - total[first], axis=1).astype(np.float32)
    return norms


def _unit_counts(
    rows: pa.Table, session: npt.NDArray[np.int32], config: IndexConfig
) -> tuple[list[str], dict[Unit, TermCounts]]:
    """Count the terms of each unit of one namespace; return its sorted vocabulary too."""
    tokenize = tokenizer(config.language)
    plain = [tokenize(text) for text in turn_texts(rows)]
    texts_of_dates = date_texts(rows)
    terms_of_date = {text: tokenize(text) for text in set(texts_of_dates)}
    dates = [terms_of_date[text] for text in texts_of_dates]
    vocabulary = sorted({term for terms in (*plain, *terms_of_date.values()) for term in terms})
    number = {term: at for at, term in enumerate(vocabulary)}
    size = len(vocabulary)
    turn = count_tokens([[number[term] for term in terms] for terms in plain], size)
    date = count_tokens([[number[term] for term in terms] for terms in dates], size)
    documents, terms, counts = (
        np.concatenate(pair)
        for pair in ((turn.documents, date.documents), (turn.terms, date.terms), (turn.counts, date.counts))
    )
    dated = count_terms(documents, terms, counts, len(session), size)
    sessions = int(session[-1]) + 1
    return vocabulary, {
        "turn": turn,
        "dated": dated,
        "window": _neighbours(dated, session, BEFORE, AFTER),
        "prior": _neighbours(dated, session, BEFORE, 0),
        "session": count_terms(session[dated.documents].astype(np.int64), dated.terms, dated.counts, sessions, size),
    }


def _neighbours(turn: TermCounts, session: npt.NDArray[np.int32], before: int, after: int) -> TermCounts:
    """Count the terms of spans of turns by giving each turn's counts to every span that holds it."""
    documents, terms, counts = [], [], []
    for offset in range(-after, before + 1):
        target = turn.documents + offset
        inside = (target >= 0) & (target < len(session))
        inside[inside] &= session[target[inside]] == session[turn.documents[inside]]
        documents.append(target[inside])
        terms.append(turn.terms[inside])
        counts.append(turn.counts[inside])
    return count_terms(
        np.concatenate(documents), np.concatenate(terms), np.concatenate(counts), turn.n_documents, turn.n_terms
    )


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


@dataclass(frozen=True, slots=True)
class TieOrder:
    """The order of rows whose scores are equal: `rank` of each row, uint64 `[n]`, and the `row` of each rank."""

    rank: npt.NDArray[np.uint64]
    row: Ints

    @classmethod
    def of(cls, rank: npt.NDArray[np.integer[Any]]) -> "TieOrder":
        """Return the order that gives row i the place `rank[i]`; ranks are 0 to n - 1, each once."""
        row = np.empty(len(rank), np.int64)
        row[rank] = np.arange(len(rank))
        return cls(rank.astype(np.uint64), row)


class VectorRows(Protocol):
    """The vectors of a bucket, wherever they are kept."""

    def products(self, query: Floats, start: int, stop: int) -> Floats:
        """Return the inner products of rows `start` to `stop` - 1 with `query`, float32 `[stop - start]`."""
        ...


class IndexReader:
    """A bucket's index, opened: gives out the part of one namespace, and nothing that spans two."""

    def __init__(self, namespaces: pa.Table, nodes: pa.Table, postings: pa.Table, vectors: VectorRows) -> None:
        """Take the tables of a `BucketIndex` and its vectors; memory-mapped ones stay so."""
        self._ranges = {row["namespace"]: row for row in namespaces.to_pylist()}
        self._nodes = nodes.combine_chunks()
        self._postings = postings.combine_chunks()
        self._vectors = vectors

    def namespaces(self) -> list[str]:
        """The namespaces of the bucket, in order."""
        return list(self._ranges)

    def open(self, namespace: str) -> "NamespaceIndex | None":
        """Return the part of `namespace`, or None if the bucket has nothing of it."""
        found = self._ranges.get(namespace)
        if found is None:
            return None
        start, rows = found["first_row"], found["rows"]
        return NamespaceIndex(
            self._nodes.slice(start, rows),
            self._postings.slice(found["first_token"], found["tokens"]),
            self._vectors,
            start,
        )


class NamespaceIndex:
    """The rows, postings and vectors of one namespace. Arrays are views; row numbers count from its first turn."""

    def __init__(self, nodes: pa.Table, postings: pa.Table, vectors: VectorRows, first_vector: int) -> None:
        """Take slices that hold one namespace and nothing else; its vectors begin at row `first_vector`."""
        self.nodes = nodes
        self._vectors = vectors
        self._first_vector = first_vector
        self.session = _numpy(nodes, "session")
        self.sessions = int(self.session[-1]) + 1
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
        """Return the BM25 score of each turn, window or prior (by its turn) or of each session, 0 without a match."""
        offsets, rows, scores = self._lists[unit]
        slices = [
            (rows[offsets[term] : offsets[term + 1]], scores[offsets[term] : offsets[term + 1]])
            for term in term_numbers
        ]
        return add_scores(slices, self.sessions if unit == "session" else len(self))

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
    " did ana maria s dog bark "
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
