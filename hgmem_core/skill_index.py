"""A bucket's skill index: what its runs taught, by namespace, with one vector for each subtask, skill and run.

Rows of a namespace are contiguous in every table. So are its vectors: those of its subtasks, then of its skills, then
of its runs, each in the order of their table.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from hgmem_core.hiding import hide_runs
from hgmem_core.lexical import Floats
from hgmem_core.lineage import splice
from hgmem_core.schemas import namespace_ranges
from hgmem_core.sharded import VectorRows
from hgmem_core.skill_graph import SkillGraph, SkillTables, SkillVectors
from hgmem_core.tombstones import NO_TOMBSTONES, Mask, Tombstones
from hgmem_core.vector_rows import aligned_vectors

SKILL_INDEX_REVISION = 1
"""Raised when equal tables and vectors give other index files."""

SKILL_TABLES = tuple(field.name for field in fields(SkillTables))
NODE_TABLES = ("subtasks", "skills", "trajectories")
"""Those whose rows have vectors, in the order of these."""


@dataclass(frozen=True, slots=True)
class BucketSkills:
    """The skill index of a bucket.

    Attributes:
        tables: Sorted by namespace; trajectories are without their steps, which no retrieval shows.
        vectors: See the module's docstring; float32 `[n, d]`, zeros where the encoder saw no token.
    """

    tables: SkillTables
    vectors: Floats


def build_skill_index(tables: SkillTables, embeddings: Mapping[str, pa.Table]) -> BucketSkills:
    """Index what the runs of a bucket taught.

    Args:
        tables: Of the bucket, each sorted by its key.
        embeddings: For each of `NODE_TABLES` the EMBEDDING rows of its nodes.
    """
    parts = {}
    for name in NODE_TABLES:
        ids = getattr(tables, name).column(_id_of(name))
        parts[name] = aligned_vectors(ids, embeddings[name])[0]
    ranges = {name: _ranges(getattr(tables, name)) for name in NODE_TABLES}
    vectors = [
        parts[name][slice(*ranges[name].get(namespace, (0, 0)))]
        for namespace in ranges["trajectories"]
        for name in NODE_TABLES
    ]
    kept = {name: getattr(tables, name).combine_chunks() for name in SKILL_TABLES}
    kept["trajectories"] = kept["trajectories"].drop_columns(["steps"])
    return BucketSkills(SkillTables(**kept), np.concatenate([parts["skills"][:0], *vectors]))


def splice_skill_indexes(old: BucketSkills, new: BucketSkills, kept: Set[str]) -> BucketSkills:
    """Return the index of `old` for the namespaces in `kept` and of `new` for all of its own, sorted by namespace.

    Equal, to the bit, to an index built of all their tables at once.
    """
    tables = {
        name: splice(getattr(old.tables, name), getattr(new.tables, name), kept).combine_chunks()
        for name in SKILL_TABLES
    }
    places = [{name: slice(*span) for name, span in _vector_ranges(index.tables).items()} for index in (old, new)]
    vectors = [
        old.vectors[places[0][namespace]] if namespace in kept else new.vectors[places[1][namespace]]
        for namespace in _ranges(tables["trajectories"])
    ]
    return BucketSkills(SkillTables(**tables), np.concatenate([new.vectors[:0], *vectors]))


class SkillIndex:
    """A bucket's skill index, opened: gives out the graph of one namespace, and nothing that spans two."""

    def __init__(self, tables: SkillTables, vectors: VectorRows) -> None:
        """Take the files of a bucket; memory-mapped ones stay so."""
        self._tables = tables
        self._vectors = vectors
        self._rows = {name: _ranges(getattr(tables, name)) for name in SKILL_TABLES}
        self._places = _vector_ranges(tables)

    def namespaces(self) -> list[str]:
        """The namespaces of the bucket that have runs, in order."""
        return list(self._rows["trajectories"])

    def open(self, namespace: str, tombstones: Tombstones = NO_TOMBSTONES) -> SkillGraph | None:
        """Return the skill hypergraph of a namespace with a copy of its vectors; None if it has no run.

        Args:
            namespace: Whose runs.
            tombstones: Which of them were forgotten since the index was made.
        """
        if namespace not in self._places:
            return None
        tables = {}
        for name in SKILL_TABLES:
            first, stop = self._rows[name].get(namespace, (0, 0))
            tables[name] = getattr(self._tables, name).slice(first, stop - first)
        vectors = self._vectors.vectors(np.arange(*self._places[namespace]))
        bounds = np.cumsum([tables[name].num_rows for name in NODE_TABLES])[:-1]
        own = dict(zip(NODE_TABLES, np.split(vectors, bounds), strict=True))
        found = SkillTables(**tables), SkillVectors(**own)
        hidden = self._hidden(namespace, tombstones)
        if hidden.all():
            return None
        return SkillGraph.of(*(hide_runs(*found, hidden) if hidden.any() else found))

    def is_touched(self, namespace: str, tombstones: Tombstones) -> bool:
        """Say whether the index still has runs of a namespace that are forgotten."""
        return bool(self._hidden(namespace, tombstones).any())

    def _hidden(self, namespace: str, tombstones: Tombstones) -> Mask:
        first, stop = self._rows["trajectories"].get(namespace, (0, 0))
        runs = self._tables.trajectories.slice(first, stop - first)
        return tombstones.hidden_trajectories(namespace, runs.column("trajectory_id"), runs.column("said_at"))


def _id_of(table: str) -> str:
    return {"subtasks": "subtask_id", "skills": "skill_id", "trajectories": "trajectory_id"}[table]


def _ranges(table: pa.Table) -> dict[str, tuple[int, int]]:
    return {namespace: (start, stop) for namespace, start, stop in namespace_ranges(table)}


def _vector_ranges(tables: SkillTables) -> dict[str, tuple[int, int]]:
    """Return where the vectors of each namespace are: the first, and the one after the last."""
    ranges = [_ranges(getattr(tables, name)) for name in NODE_TABLES]
    found, first = {}, 0
    for namespace in _ranges(tables.trajectories):
        size = sum(stop - start for start, stop in (own.get(namespace, (0, 0)) for own in ranges))
        found[namespace] = (first, first + size)
        first += size
    return found
