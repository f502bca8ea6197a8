"""The hypergraph of one namespace, opened: its nodes by level, who belongs to whom, cosines under any λ."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.graph import LEVELS, Level, propagated_cosines
from hgmem_core.lexical import Floats, Ints
from hgmem_core.turns import UNKNOWN_TIME


class VectorRows(Protocol):
    """The vectors of a bucket, wherever they are kept."""

    def products(self, query: Floats, start: int, stop: int) -> Floats:
        """Return the inner products of rows `start` to `stop` - 1 with `query`, float32 `[stop - start]`."""
        ...

    def products_of(self, query: Floats, rows: Ints) -> Floats:
        """Return the same for some rows, float32 `[len(rows)]`."""
        ...

    def vectors(self, rows: Ints) -> Floats:
        """Return the vectors of some rows, float32 `[len(rows), dimension]`."""
        ...


@dataclass(frozen=True, slots=True)
class Lists:
    """A list of numbers for each row: those of row i are `values[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    values: Ints

    def of(self, row: int) -> Ints:
        """Return the list of one row."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def sizes(self, rows: Ints) -> Ints:
        """Return how long the lists of some rows are."""
        sizes: Ints = self.offsets[rows + 1] - self.offsets[rows]
        return sizes

    def of_all(self, rows: Ints) -> Ints:
        """Return the lists of some rows, one after the other."""
        sizes = self.sizes(rows)
        before = np.cumsum(sizes) - sizes
        places: Ints = np.repeat(self.offsets[rows] - before, sizes) + np.arange(sizes.sum())
        return self.values[places]


class NamespaceGraph:
    """Topics, episodes and facts of one namespace. Nodes are numbered within their level, in the order of their ids."""

    def __init__(
        self,
        nodes: pa.Table,
        counts: dict[Level, int],
        base: VectorRows,
        propagated: VectorRows,
        first_vector: int,
        propagation: float,
    ) -> None:
        """Take a slice of GRAPH_NODE that holds one namespace; its vectors begin at row `first_vector`."""
        self.nodes = nodes
        self.counts = counts
        self._base = base
        self._propagated = propagated
        self._first_vector = first_vector
        self._propagation = propagation
        bounds = np.cumsum([0, *(counts[level] for level in LEVELS)]).tolist()
        self._slices = {level: slice(bounds[at], bounds[at + 1]) for at, level in enumerate(LEVELS)}
        self._edge_dot = nodes.column("edge_dot").to_numpy()
        self._edge_square = nodes.column("edge_square").to_numpy()
        self._has_vector = nodes.column("has_vector").to_numpy()

    def level(self, level: Level, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of an array over all nodes that belongs to a level."""
        return values[self._slices[level]]

    def column(self, level: Level, name: str) -> pa.ChunkedArray:
        """Return a column of GRAPH_NODE for the nodes of a level."""
        part = self._slices[level]
        return self.nodes.column(name).slice(part.start, part.stop - part.start)

    def has_vector(self, level: Level) -> npt.NDArray[np.bool_]:
        """Tell which nodes of a level have a vector."""
        return self.level(level, self._has_vector)

    def cosines(self, level: Level, query: Floats, weight: float, nodes: Ints | None = None) -> Floats:
        """Return the cosines of a level's nodes with a unit query, their vectors propagated with λ = `weight`.

        Args:
            level: Whose nodes.
            query: Float32 `[dimension]`.
            weight: λ.
            nodes: Which of them, as numbers within the level; None for all.
        """
        part = self._slices[level]
        start, stop = self._first_vector + part.start, self._first_vector + part.stop

        def products(vectors: VectorRows) -> Floats:
            return vectors.products(query, start, stop) if nodes is None else vectors.products_of(query, start + nodes)

        same = weight == self._propagation
        base = products(self._base) if not same or not weight else np.zeros(0, np.float32)
        if not weight:
            return base
        moved = products(self._propagated)
        dot, square = (self.level(level, values) for values in (self._edge_dot, self._edge_square))
        if nodes is not None:
            dot, square = dot[nodes], square[nodes]
        return propagated_cosines(moved if same else base, moved, dot, square, self._propagation, weight)

    def fact_vectors(self, facts: Ints) -> Floats:
        """Return the vectors of some facts, unit or zeros, float32 `[len(facts), dimension]`."""
        return self._base.vectors(self._first_vector + self._slices["fact"].start + facts)

    @cached_property
    def episodes_of_topic(self) -> Lists:
        """The episodes of each topic."""
        return self._lists("topic", "members")

    @cached_property
    def facts_of_episode(self) -> Lists:
        """The facts of each episode."""
        return self._lists("episode", "members")

    @cached_property
    def turns_of_fact(self) -> Lists:
        """The rows of each fact's source turns, best evidence first."""
        return self._lists("fact", "turn_rows")

    @cached_property
    def turns_of_episode(self) -> Lists:
        """The rows of each episode's turns, in order."""
        return self._lists("episode", "turn_rows")

    def best_turn_of_fact(self, as_of_us: int | None) -> tuple[Ints, Ints]:
        """Return the facts that stand and have a source, and the row of each one's best source turn."""
        return self._best_turns_now if as_of_us is None else self._best_turns(self.stands(as_of_us))

    @cached_property
    def _best_turns_now(self) -> tuple[Ints, Ints]:
        return self._best_turns(self._never_superseded)

    def _best_turns(self, stands: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
        lists = self.turns_of_fact
        facts = np.flatnonzero(stands)
        return facts, lists.values[lists.offsets[facts]]

    def stands(self, as_of_us: int | None) -> npt.NDArray[np.bool_]:
        """Tell which facts are neither hidden nor superseded: now, or at a time in microseconds since 1970."""
        if as_of_us is None:
            return self._never_superseded
        return self._never_superseded | (self._has_source & (self._closed_us > as_of_us))

    @cached_property
    def _never_superseded(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.column("fact", "superseded_by").is_null().to_numpy(), bool) & self._has_source

    @cached_property
    def _has_source(self) -> npt.NDArray[np.bool_]:
        """Which facts have a source; one that is hidden has none left."""
        return np.asarray(np.diff(self.turns_of_fact.offsets) > 0, bool)

    @cached_property
    def _closed_us(self) -> Ints:
        closed = self.column("fact", "ended_at").cast(pa.int64()).fill_null(UNKNOWN_TIME)
        return np.asarray(closed.to_numpy(), np.int64)

    @cached_property
    def topic_pairs(self) -> tuple[Ints, Ints]:
        """Every membership of an episode in a topic, as topic numbers and episode numbers."""
        lists = self.episodes_of_topic
        return np.repeat(np.arange(self.counts["topic"]), np.diff(lists.offsets)), lists.values

    def _lists(self, level: Level, name: str) -> Lists:
        column = self.column(level, name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            return Lists(np.zeros(1, np.int64), np.zeros(0, np.int64))
        offsets = np.asarray(column.offsets.to_numpy(), np.int64)
        values = np.asarray(column.values.to_numpy(), np.int64)[offsets[0] : offsets[-1]]
        return Lists(offsets - offsets[0], values)
