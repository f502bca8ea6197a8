"""Skills that say the same become one (HyperSkill, ingestion): leader clustering in the order they were learnt in.

A skill that was said before, word for word, stays with what it joined then. Any other joins the nearest skill of its
polarity, if their cosine is at least the threshold, the one with the lowest id of equally near ones; else it is a new
one. What is older keeps its text; names of those that joined are kept as aliases. The whole of a log at once gives what
one skill after the other gives.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import skill_id
from hgmem_core.lexical import Floats, Ints
from hgmem_core.schemas import INCIDENCE, SKILL, STRING, STRINGS, conform
from hgmem_core.similar import similar_pairs

SKILL_DEDUP_REVISION = 1
"""Raised when equal mentions and vectors give other skills."""

SAME_FROM = 0.9
"""δ_dedup, the cosine from which two skills are one."""

_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """The skills of a log.

    Attributes:
        skills: SKILL.
        incidences: INCIDENCE of kind `trajectory`, role `skill`: which skills were learnt from which run.
        mentions: For each row of `skills` the mention that it is the text of, int64 `[skills]`.
    """

    skills: pa.Table
    incidences: pa.Table
    mentions: Ints


def dedup_skills(mentions: pa.Table, vectors: Floats, same_from: float = SAME_FROM) -> Deduplicated:
    """Join what runs teach to distinct skills; see the module's docstring.

    Args:
        mentions: Columns `namespace`, `trajectory_id`, `polarity`, `name` and `text`; within a namespace in the time
            order of their runs.
        vectors: Of the mentions, unit length, or zero for one that is like no other; float32 `[mentions, d]`.
        same_from: δ_dedup.
    """
    first, text_of = _distinct(mentions.select(["namespace", "polarity", "name", "text"]))
    said = mentions.select(["namespace", "polarity", "name", "text"]).take(first)
    namespaces, polarities, names, texts = (column.to_pylist() for column in said.columns)
    ids = [skill_id(*parts) for parts in zip(namespaces, polarities, names, texts, strict=True)]
    ranks = np.empty(len(ids), np.int64)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    groups: dict[tuple[str, str], list[int]] = {}
    for place, group in enumerate(zip(namespaces, polarities, strict=True)):
        groups.setdefault(group, []).append(place)
    joined = np.arange(len(ids))
    for own in (np.array(places) for places in groups.values()):
        joined[own] = own[leaders(vectors[first[own]], ranks[own], same_from)]
    aliases: dict[int, dict[str, None]] = {}
    for place, leader in enumerate(joined.tolist()):
        of_leader = aliases.setdefault(leader, {})
        if names[place] != names[leader]:
            of_leader[names[place]] = None
    kept = np.flatnonzero(joined == np.arange(len(ids)))
    every_id = pa.array(ids, STRING)
    skills = said.take(kept).append_column("skill_id", every_id.take(pa.array(kept)))
    skills = skills.append_column("aliases", pa.array([list(aliases[leader]) for leader in kept.tolist()], STRINGS))
    in_key_order = pc.sort_indices(skills, sort_keys=[(name, "ascending") for name in SKILL.key]).to_numpy()
    return Deduplicated(
        conform(skills.select(SKILL.arrow.names), SKILL),
        _memberships(mentions, every_id.take(pa.array(joined[text_of]))),
        first[kept][in_key_order],
    )


def _distinct(table: pa.Table) -> tuple[Ints, Ints]:
    """Return the first row of each distinct one, in their order, and for each row the number of its distinct one."""
    codes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        values = column.combine_chunks().dictionary_encode()
        codes = codes * max(len(values.dictionary), 1) + values.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]  # small again, so that products of counts do not overflow
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return first[order], places[numbers]


def _memberships(mentions: pa.Table, skill_ids: pa.Array) -> pa.Table:
    """Return INCIDENCE of skills in runs; a skill that was learnt twice from a run is in it once."""
    pairs = mentions.select(["namespace", "trajectory_id"]).rename_columns(["namespace", "hyperedge_id"])
    pairs = pairs.append_column("node_id", skill_ids)
    pairs = pairs.group_by(["namespace", "hyperedge_id", "node_id"]).aggregate([])
    count = pairs.num_rows
    fixed = {"kind": "trajectory", "node_kind": "skill", "role": "skill"}
    columns: dict[str, Any] = {name: pa.array([value] * count, STRING) for name, value in fixed.items()}
    columns |= {name: pairs.column(name) for name in pairs.column_names}
    return conform(pa.table({**columns, "weight": np.ones(count, np.float32)}), INCIDENCE)


def leaders(vectors: Floats, ranks: Ints, same_from: float) -> Ints:
    """Return for each vector, in order, the row of the leader that it joins; a leader's is its own. int64 `[n]`.

    Args:
        vectors: Of unit length or zero, float32 `[n, d]`.
        ranks: Of equally near leaders the one of the lowest rank is joined, int64 `[n]`.
        same_from: The least cosine to join.
    """
    joined = np.arange(len(vectors))
    rows_of_leaders = np.empty(len(vectors), np.int64)
    held = np.empty((min(len(vectors), _BLOCK), vectors.shape[1]), vectors.dtype)
    count = 0
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        found = similar_pairs(block, held[:count], same_from)
        pairs = [(row, rows_of_leaders[number], near) for row, number, near in found]
        alone = np.ones(len(block), bool)
        for row, _, _ in pairs:
            alone[row] = False
        new, own_pairs = _new_leaders(block, np.flatnonzero(alone), same_from)
        pairs.append((own_pairs[0], own_pairs[1] + start, own_pairs[2]))
        row, leader, near = (np.concatenate(part) for part in zip(*pairs, strict=True))
        order = np.lexsort((ranks[leader], -near, row))
        row, best = np.unique(row[order], return_index=True)
        joined[row + start] = leader[order][best]
        if count + len(new) > len(held):
            held = np.concatenate([held[:count], np.empty((max(count, len(new)), vectors.shape[1]), vectors.dtype)])
        held[count : count + len(new)] = block[new]
        rows_of_leaders[count : count + len(new)] = new + start
        count += len(new)
    return joined


def _new_leaders(block: Floats, alone: Ints, same_from: float) -> tuple[Ints, tuple[Ints, Ints, Floats]]:
    """Return the rows of a block that lead, and which later rows of it are near to which of them, how near.

    Args:
        block: Vectors in order.
        alone: Rows that no earlier leader is near to.
        same_from: The least cosine to join.
    """
    found = list(similar_pairs(block, block[alone], same_from))
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, block.dtype))
    row, place, near = (np.concatenate(part) for part in zip(nothing, *found, strict=True))
    earlier = alone[place]
    later = row > earlier
    row, earlier, near = row[later], earlier[later], near[later]
    leads = np.zeros(len(block), bool)
    leads[alone] = True
    order = np.argsort(row, kind="stable")
    among = order[leads[row[order]]]  # whether the earlier one leads is known when its turn comes
    for later_row, earlier_row in zip(row[among].tolist(), earlier[among].tolist(), strict=True):
        if leads[earlier_row]:
            leads[later_row] = False
    kept = leads[earlier]
    return np.flatnonzero(leads), (row[kept], earlier[kept], near[kept])
