"""What a namespace shows while some of its turns or runs are forgotten and its index was made with them.

The rows stay, since everything is numbered by them; what they say is gone. A fact loses the sources that are hidden,
and is hidden when none remains. A title or a summary of an episode that has a hidden turn may tell of it, and so may
those of its topics: they say nothing until the next build makes them anew.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.graph import LEVELS, Level
from hgmem_core.namespace_graph import Lists
from hgmem_core.relations import Relations
from hgmem_core.schemas import STRING
from hgmem_core.skill_graph import SkillTables, SkillVectors
from hgmem_core.tombstones import Mask

_SAYING = ("turn_id", "source_id", "role", "speaker", "text", "said_at", "time_zone", "attachments", "call_id")
_NOTHING = {"turn_id": "", "text": "", "attachments": "[]"}
"""Instead of null, where a column has none."""


def hide_turns(nodes: pa.Table, hidden: Mask) -> pa.Table:
    """Return NODE rows of which the hidden ones say nothing: no text, no id, no speaker, no time."""
    return _blanked(nodes, hidden, {name: _NOTHING.get(name) for name in _SAYING})


def hide_nodes(graph_nodes: pa.Table, counts: Mapping[Level, int], hidden: Mask) -> tuple[pa.Table, Mask]:
    """Return GRAPH_NODE rows of one namespace as they are without some turns, and which facts are hidden.

    Args:
        graph_nodes: Topics, then episodes, then facts.
        counts: How many of each.
        hidden: Which turns, bool `[turns]`.
    """
    sources, members = (_lists(graph_nodes, name) for name in ("turn_rows", "members"))
    bounds = np.cumsum([0, *(counts[level] for level in LEVELS)]).tolist()
    topics, episodes, facts = (slice(first, stop) for first, stop in pairwise(bounds))
    is_hidden = np.zeros(graph_nodes.num_rows, bool)
    is_hidden[episodes] = _touched(sources, hidden)[episodes]
    is_hidden[topics] = _touched(_part(members, topics), is_hidden[episodes])
    kept = _without(sources, hidden)
    is_hidden[facts] = np.diff(kept.offsets)[facts] == 0
    rows = pa.LargeListArray.from_arrays(
        pa.array(kept.offsets), pa.array(kept.values.astype(np.uint32)), graph_nodes.schema.field("turn_rows").type
    )
    found = _with(_blanked(graph_nodes, is_hidden, {"title": None, "text": ""}), "turn_rows", rows)
    closed_by = found.column("superseded_by")
    # What a forgotten fact closed stands again, as it will once the memory is built without that fact.
    stands = pa.array(_among(closed_by, _ids(found, "node_id", is_hidden)))
    return _with(found, "superseded_by", pc.if_else(stands, pa.scalar(None, STRING), closed_by)), is_hidden[facts]


def hide_relations(relations: Relations, hidden: Mask) -> Relations:
    """Return the relations between nodes that are not hidden."""
    kept = ~(hidden[relations.sources] | hidden[relations.targets])
    offsets = np.concatenate([[0], np.cumsum(kept)])[relations.offsets]
    return replace(relations, offsets=offsets, targets=relations.targets[kept], features=relations.features[kept])


def hide_runs(tables: SkillTables, vectors: SkillVectors, hidden: Mask) -> tuple[SkillTables, SkillVectors]:
    """Return the tables and vectors of a namespace's skills without some runs, and without what these alone taught.

    Args:
        tables: Of one namespace.
        vectors: Theirs.
        hidden: Which rows of TRAJECTORY, bool `[runs]`.
    """
    gone = _ids(tables.trajectories, "trajectory_id", hidden)
    going_subtasks = _among(tables.subtasks.column("trajectory_id"), gone)
    taught = tables.incidences.filter(pa.array(~_among(tables.incidences.column("hyperedge_id"), gone)))
    going_skills = ~_among(tables.skills.column("skill_id"), set(taught.column("node_id").to_pylist()))
    gone |= _ids(tables.subtasks, "subtask_id", going_subtasks) | _ids(tables.skills, "skill_id", going_skills)

    def rest(table: pa.Table, column: str) -> pa.Table:
        return table.filter(pa.array(~_among(table.column(column), gone)))

    left = SkillTables(
        trajectories=rest(tables.trajectories, "trajectory_id"),
        lessons=rest(tables.lessons, "trajectory_id"),
        subtasks=rest(tables.subtasks, "subtask_id"),
        skills=rest(tables.skills, "skill_id"),
        incidences=rest(taught, "node_id"),
        utilities=rest(tables.utilities, "node_id"),
    )
    return left, SkillVectors(
        vectors.subtasks[~going_subtasks], vectors.skills[~going_skills], vectors.trajectories[~hidden]
    )


def _ids(table: pa.Table, name: str, rows: Mask) -> set[str]:
    return set(table.column(name).filter(pa.array(rows)).to_pylist())


def _among(ids: pa.ChunkedArray, some: Set[str]) -> Mask:
    return np.asarray(pc.is_in(ids, value_set=pa.array(sorted(some), STRING)).to_numpy(), bool)


def _with(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = table.schema.get_field_index(name)
    # In one chunk, as whoever opens a namespace reads it.
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return table.set_column(place, table.schema.field(place), whole)


def _blanked(table: pa.Table, rows: Mask, instead: Mapping[str, str | None]) -> pa.Table:
    is_hidden = pa.array(rows)
    for name, value in instead.items():
        column = table.column(name)
        table = _with(table, name, pc.if_else(is_hidden, pa.scalar(value, column.type), column))
    return table


def _lists(table: pa.Table, name: str) -> Lists:
    """Return a column of lists of row numbers."""
    column = table.column(name).combine_chunks()
    offsets = np.asarray(column.offsets.to_numpy(), np.int64)
    values = np.asarray(column.values.to_numpy(), np.int64)[offsets[0] : offsets[-1]]
    return Lists(offsets - offsets[0], values)


def _part(lists: Lists, rows: slice) -> Lists:
    offsets = lists.offsets[rows.start : rows.stop + 1]
    return Lists(offsets - offsets[0], lists.values[offsets[0] : offsets[-1]])


def _touched(lists: Lists, some: Mask) -> Mask:
    """Tell which lists hold some of these, bool `[lists]`."""
    before = np.concatenate([[0], np.cumsum(some[lists.values])])
    return np.diff(before[lists.offsets]) > 0


def _without(lists: Lists, some: Mask) -> Lists:
    kept = ~some[lists.values]
    return Lists(np.concatenate([[0], np.cumsum(kept)])[lists.offsets], lists.values[kept])
