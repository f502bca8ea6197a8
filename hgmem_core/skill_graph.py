"""The skill hypergraph of one namespace: each run is a hyperedge over the subtasks of its plan and the skills learnt.

Nodes and edges are numbered in the order of their ids, so a tie that goes by number goes by id.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import rows_of
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.skill_utility import PRIOR, NodeKind, Tally, outcome_codes


class SkillGraphError(ValueError):
    """Tables and vectors that do not fit together: says which and how."""


@dataclass(frozen=True, slots=True)
class SkillTables:
    """TRAJECTORY, LESSON, SUBTASK, SKILL, INCIDENCE of kind `trajectory`, and UTILITY; each sorted by its key."""

    trajectories: pa.Table
    lessons: pa.Table
    subtasks: pa.Table
    skills: pa.Table
    incidences: pa.Table
    utilities: pa.Table

    def of(self, namespace: str) -> "SkillTables":
        """Return the rows of one namespace."""
        tables = (getattr(self, field.name) for field in fields(self))
        return SkillTables(*(table.filter(pc.field("namespace") == namespace) for table in tables))


@dataclass(frozen=True, slots=True)
class SkillVectors:
    """A vector for each row of SUBTASK, of SKILL and of TRAJECTORY: float32 `[n, d]`, of unit length, or zero.

    That of a run stands for its task and its lesson, joined to one text.
    """

    subtasks: Floats
    skills: Floats
    trajectories: Floats


@dataclass(frozen=True)
class Hypergraph:
    """Who belongs to which edge, as numbers.

    Attributes:
        skills: The skills of each edge, rising.
        subtasks: The subtasks of each edge, rising.
        n_skills: How many skills there are.
        n_subtasks: How many subtasks there are.
    """

    skills: Lists
    subtasks: Lists
    n_skills: int
    n_subtasks: int

    def __len__(self) -> int:
        """Count the edges."""
        return len(self.skills.offsets) - 1

    @cached_property
    def sizes(self) -> Ints:
        """|V_e|: the nodes of each edge, subtasks and skills, int64 `[edges]`."""
        sizes: Ints = np.diff(self.skills.offsets) + np.diff(self.subtasks.offsets)
        return sizes

    @cached_property
    def edges_of_skill(self) -> Lists:
        """The edges of each skill, rising."""
        return transposed(self.skills, self.n_skills)

    @cached_property
    def edges_of_subtask(self) -> Lists:
        """The edges of each subtask, rising."""
        return transposed(self.subtasks, self.n_subtasks)


def lists_of(rows: Ints, values: Ints, n_rows: int, n_values: int) -> Lists:
    """Return the values of each row, rising, a repeated pair once."""
    keys = np.unique(rows * n_values + values)
    rows, values = np.divmod(keys, max(n_values, 1))
    return Lists(np.searchsorted(rows, np.arange(n_rows + 1)), values)


def transposed(lists: Lists, n_values: int) -> Lists:
    """Return the rows of each value, rising."""
    rows = np.repeat(np.arange(len(lists.offsets) - 1), np.diff(lists.offsets))
    order = np.argsort(lists.values, kind="stable")
    sizes = np.bincount(lists.values, minlength=n_values)
    return Lists(np.concatenate([[0], np.cumsum(sizes)]), rows[order])


@dataclass(frozen=True)
class SkillGraph:
    """One namespace's skills, subtasks and runs, with who belongs to which run."""

    tables: SkillTables
    vectors: SkillVectors
    hypergraph: Hypergraph

    @classmethod
    def of(cls, tables: SkillTables, vectors: SkillVectors) -> "SkillGraph":
        """Return the graph of tables that hold one namespace.

        Raises:
            SkillGraphError: A table has rows of several namespaces, a vector is missing, or a membership names what is
                in no table.
        """
        _check(tables, vectors)
        incidences = tables.incidences
        edges = rows_of(incidences.column("hyperedge_id"), tables.trajectories.column("trajectory_id"))
        nodes = {
            "skill": (tables.skills.column("skill_id"), pc.equal(incidences.column("node_kind"), "skill")),
            "subtask": (tables.subtasks.column("subtask_id"), pc.equal(incidences.column("node_kind"), "subtask")),
        }
        lists = []
        for kind, (ids, of_kind) in nodes.items():
            own = incidences.filter(of_kind)
            rows, of_edge = rows_of(own.column("node_id"), ids), edges[of_kind.to_numpy()]
            unknown = np.flatnonzero((rows < 0) | (of_edge < 0))
            if len(unknown):
                edge, node = (own.column(name)[int(unknown[0])].as_py() for name in ("hyperedge_id", "node_id"))
                raise SkillGraphError(f"INCIDENCE: {kind} {node!r} of run {edge!r}: one of them is in no table")
            lists.append(lists_of(of_edge, rows, tables.trajectories.num_rows, len(ids)))
        skills, subtasks = lists
        return cls(tables, vectors, Hypergraph(skills, subtasks, tables.skills.num_rows, tables.subtasks.num_rows))

    @cached_property
    def namespace(self) -> str:
        """Whose graph it is; empty if it has no run."""
        column = self.tables.trajectories.column("namespace")
        return str(column[0].as_py()) if len(column) else ""

    @cached_property
    def negative(self) -> npt.NDArray[np.bool_]:
        """Which skills are mistakes to avoid, bool `[skills]`."""
        return np.asarray(pc.equal(self.tables.skills.column("polarity"), "negative").to_numpy(), bool)

    @cached_property
    def outcomes(self) -> npt.NDArray[np.int8]:
        """How each run ended; see `hgmem_core.skill_utility.outcome_codes`."""
        return outcome_codes(self.tables.trajectories.column("outcome"))

    @cached_property
    def lessons(self) -> list[str]:
        """The lesson of each run, empty where there is none."""
        found = rows_of(self.tables.trajectories.column("trajectory_id"), self.tables.lessons.column("trajectory_id"))
        texts = self.tables.lessons.column("text").to_pylist()
        return [texts[row] if row >= 0 else "" for row in found.tolist()]

    @cached_property
    def time_order(self) -> Ints:
        """The runs by time, then by place in the log, then by id; those without a time last; int64 `[edges]`."""
        runs = self.tables.trajectories
        keys = [("said_at", "ascending"), ("sequence", "ascending"), ("trajectory_id", "ascending")]
        return np.asarray(pc.sort_indices(runs, sort_keys=keys).to_numpy(), np.int64)

    def ids(self, kind: NodeKind) -> pa.ChunkedArray:
        """Return the ids of all nodes of a kind, in the order of their numbers."""
        return self._table(kind).column(f"{kind}_id")

    @cached_property
    def skill_tally(self) -> Tally:
        """What is known of the skills; one that UTILITY does not hold has the prior."""
        return self._tally("skill")

    @cached_property
    def subtask_tally(self) -> Tally:
        """What is known of the subtasks."""
        return self._tally("subtask")

    def _tally(self, kind: NodeKind) -> Tally:
        known = self.tables.utilities.filter(pc.equal(self.tables.utilities.column("node_kind"), kind))
        rows = rows_of(self.ids(kind), known.column("node_id"))
        found = rows >= 0

        def spread(name: str, absent: float) -> npt.NDArray[np.float64]:
            values = np.full(len(rows), absent)
            column = pc.fill_null(known.column(name).cast(pa.float64()), np.nan)
            values[found] = column.to_numpy()[rows[found]]
            return values

        return Tally(
            spread("shown", 0.0).astype(np.int64),
            spread("succeeded", 0.0).astype(np.int64),
            spread("mean_steps", np.nan),
            spread("utility", PRIOR),
        )

    def _table(self, kind: NodeKind) -> pa.Table:
        tables = self.tables
        return {"subtask": tables.subtasks, "skill": tables.skills, "trajectory": tables.trajectories}[kind]


def _check(tables: SkillTables, vectors: SkillVectors) -> None:
    every = {field.name: getattr(tables, field.name) for field in fields(tables)}
    found = {name for table in every.values() for name in pc.unique(table.column("namespace")).to_pylist()}
    if len(found) > 1:
        raise SkillGraphError(f"the tables hold {len(found)} namespaces, a graph is of one: use SkillTables.of")
    for name, given in _vectors(vectors):
        rows = every[name].num_rows
        if given.ndim != 2 or len(given) != rows:
            raise SkillGraphError(f"the vectors of {name} have shape {list(given.shape)}; there are {rows} rows")


def _vectors(vectors: SkillVectors) -> Iterator[tuple[str, Floats]]:
    for field in fields(vectors):
        yield field.name, getattr(vectors, field.name)
