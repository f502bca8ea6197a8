"""A cycle of evolution of a skill hypergraph: what does not help is pruned, what is used alike is merged.

As published: prune, weigh co-occurrence, propagate, pair, merge within a polarity. Differences, each a setting: two
skills are merged only if their own vectors are similar too, because propagation draws together whatever occurs in the
same runs ("search" and "verify"); a cycle prunes and merges no more than a share of what there is.

`plan_evolution` prunes and tells which pairs to merge, `apply_evolution` merges them under texts that somebody gives:
`joined_text`, or a language model. Runs are never pruned, and every decision is a row of DECISION.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import skill_id
from hgmem_core.lexical import Ints
from hgmem_core.schemas import DECISION, INCIDENCE, SKILL, STRING, STRINGS, UTILITY, conform
from hgmem_core.similar import Matrix, row_cosines, similar_pairs
from hgmem_core.skill_cooccurrence import co_occurrence, propagate_skills, weighted
from hgmem_core.skill_graph import SkillGraph, SkillTables, SkillVectors
from hgmem_core.skill_texts import joined
from hgmem_core.skill_utility import RETRIEVED, StepRange, Tally, UtilityRule, utilities, utility_rows
from hgmem_core.stage_config import EvolutionConfig

EVOLUTION_REVISION = 3
"""Raised when an equal graph and equal settings give another graph."""

_ROUNDING = 1e-9
"""By how much γ may fall short of a threshold that it is equal to: 0.7 · 2/7 is less than 0.2 in floating point."""

MOST_ALIASES = 20
MOST_KEPT_PAIRS = 10_000
"""Pairs that were similar enough and are told apart all the same, of which there is a row; the most similar ones."""

AS_PUBLISHED = EvolutionConfig(most_pruned=1.0, raw_floor=-1.0, most_merged=1.0)


def utility_rule(rule: EvolutionConfig) -> UtilityRule:
    """Return how γ is made of what was shown."""
    return replace(RETRIEVED, successes_only=rule.successes_only)


@dataclass(frozen=True, slots=True)
class MergePair:
    """Two skills that are to be one, as numbers of a graph, the lower first; cosines of propagated and own vectors."""

    one: int
    other: int
    similarity: float
    raw_similarity: float


@dataclass(frozen=True, slots=True)
class SkillText:
    """What a merged skill says."""

    name: str
    text: str
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvolutionPlan:
    """A cycle half done.

    Attributes:
        graph: Without what was pruned.
        pairs: To be merged, most similar first; no skill is in two.
        decisions: Rows of DECISION so far.
    """

    graph: SkillGraph
    pairs: Sequence[MergePair]
    decisions: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Evolved:
    """A graph after a cycle.

    Attributes:
        tables: What it is made of now.
        decisions: DECISION.
        unembedded: Ids of skills whose text is new, so that they have no vector yet.
    """

    tables: SkillTables
    decisions: pa.Table
    unembedded: tuple[str, ...]


def plan_evolution(graph: SkillGraph, rule: EvolutionConfig, cycle: int) -> EvolutionPlan:
    """Prune, and choose what to merge.

    Args:
        graph: Of one namespace.
        rule: What is pruned and what is merged.
        cycle: The number of the cycle, for the decisions.
    """
    pruned, decisions = prune(graph, rule, cycle)
    pairs, kept = merge_pairs(pruned, rule)
    decisions += [_pair_row(pruned, pair, cycle, "keep", reason) for pair, reason in kept]
    return EvolutionPlan(pruned, pairs, decisions)


def prune(graph: SkillGraph, rule: EvolutionConfig, cycle: int) -> tuple[SkillGraph, list[dict[str, Any]]]:
    """Return the graph without the nodes that do not help, and the decisions."""
    decisions: list[dict[str, Any]] = []
    going: dict[str, npt.NDArray[np.bool_]] = {}
    tallies: tuple[tuple[Literal["subtask", "skill"], Tally], ...]
    tallies = (("subtask", graph.subtask_tally), ("skill", graph.skill_tally))
    for kind, tally in tallies:
        failing = np.flatnonzero((tally.shown >= rule.fewest_shown) & (tally.utility < rule.prune_below - _ROUNDING))
        failing = failing[np.lexsort((failing, -tally.shown[failing], tally.utility[failing]))]
        most = math.ceil(rule.most_pruned * len(tally.shown))
        going[kind] = np.zeros(len(tally.shown), bool)
        going[kind][failing[:most]] = True
        ids = graph.ids(kind)
        why = f"utility below {rule.prune_below:g} in at least {rule.fewest_shown} runs"
        for place, node in enumerate(failing.tolist()):
            decision, reason = ("prune", why) if place < most else ("keep", f"{why}; the cycle's share is used up")
            row = _row(graph.namespace, cycle, decision, kind, ids[node].as_py(), reason, tally, node)
            decisions.append(row)
    return without(graph, going["skill"], going["subtask"]), decisions


def without(graph: SkillGraph, skills: npt.NDArray[np.bool_], subtasks: npt.NDArray[np.bool_]) -> SkillGraph:
    """Return a graph without some skills and subtasks, told by a flag for each; every run stays."""
    if not skills.any() and not subtasks.any():
        return graph
    tables, vectors = graph.tables, graph.vectors
    gone = _together(graph.ids("skill").filter(pa.array(skills)), graph.ids("subtask").filter(pa.array(subtasks)))

    def rest(table: pa.Table) -> pa.Table:
        return table.filter(pc.invert(pc.is_in(table.column("node_id"), value_set=gone)))

    return SkillGraph.of(
        SkillTables(
            tables.trajectories,
            tables.lessons,
            tables.subtasks.filter(pa.array(~subtasks)),
            tables.skills.filter(pa.array(~skills)),
            rest(tables.incidences),
            rest(tables.utilities),
        ),
        SkillVectors(vectors.subtasks[~subtasks], vectors.skills[~skills], vectors.trajectories),
    )


def _together(*columns: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], STRING), *(chunk for column in columns for chunk in column.chunks)])


def merge_pairs(graph: SkillGraph, rule: EvolutionConfig) -> tuple[list[MergePair], list[tuple[MergePair, str]]]:
    """Return the pairs to merge, most similar first, and those that are not, with the reason.

    Pairs are taken by falling similarity, equal ones by ids, as long as neither skill was taken before.
    """
    shared = weighted(co_occurrence(graph.hypergraph), graph.skill_tally.utility)
    moved = _unit(propagate_skills(shared, graph.vectors.skills, rule.restart, rule.depth))
    every = [_candidates(graph, moved, polarity, rule.merge_from) for polarity in (False, True)]
    one, other, similarity, raw = (np.concatenate(part) for part in zip(*every, strict=True))
    low = raw < rule.raw_floor
    most = math.ceil(rule.most_merged * graph.hypergraph.n_skills)
    pairs: list[MergePair] = []
    kept: list[tuple[MergePair, str]] = []
    taken: set[int] = set()
    for place in np.lexsort((other, one, -similarity)).tolist():
        pair = MergePair(int(one[place]), int(other[place]), float(similarity[place]), float(raw[place]))
        if low[place]:
            reason = f"their own vectors are less similar than {rule.raw_floor:g}"
        elif pair.one in taken or pair.other in taken:
            reason = "one of them is merged in this cycle already"
        elif len(pairs) == most:
            reason = "the cycle's share is used up"
        else:
            pairs.append(pair)
            taken |= {pair.one, pair.other}
            continue
        if len(kept) < MOST_KEPT_PAIRS:
            kept.append((pair, reason))
        elif len(pairs) == most:
            break
    return pairs, kept


def _candidates(
    graph: SkillGraph, moved: Matrix, negative: bool, merge_from: float
) -> tuple[Ints, Ints, Matrix, Matrix]:
    """Return the pairs of one polarity that are similar enough, and the cosines of propagated and of own vectors."""
    own = np.flatnonzero(graph.negative == negative)
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, moved.dtype))
    parts = [nothing]
    for one, other, similarity in similar_pairs(moved[own], moved[own], merge_from):
        once = one < other
        parts.append((own[one[once]], own[other[once]], similarity[once]))
    one, other, similarity = (np.concatenate(part) for part in zip(*parts, strict=True))
    return one, other, similarity, row_cosines(graph.vectors.skills, one, graph.vectors.skills, other)


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Matrix = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def joined_text(graph: SkillGraph, pair: MergePair) -> SkillText | str:
    """Return what two skills say together, or why they stay apart.

    First comes, and names the skill, the one of higher γ, then of higher ν, then of the lower id; other names are
    aliases.
    """
    tally = graph.skill_tally
    first, second = sorted(
        (pair.one, pair.other), key=lambda skill: (-tally.utility[skill], -tally.shown[skill], skill)
    )
    rows = graph.tables.skills.take([first, second]).to_pylist()
    text = joined(rows[0]["text"], rows[1]["text"])
    if text is None:
        return "what both say is too long for one text"
    names = (name for row in rows for name in (row["name"], *row["aliases"]))
    aliases = tuple(dict.fromkeys(name for name in names if name != rows[0]["name"]))
    return SkillText(rows[0]["name"], text, aliases[:MOST_ALIASES])


def apply_evolution(
    plan: EvolutionPlan, texts: Sequence[SkillText | str], steps: StepRange, rule: EvolutionConfig, cycle: int
) -> Evolved:
    """Merge the pairs of a plan.

    Counts are summed, mean steps weighted by them; a run that had both skills has the merged one once. Where a text is
    what one of the two says, the merged skill keeps that one's id.

    Args:
        plan: Of the same cycle.
        texts: For each pair what the merged skill says, or why the two stay apart.
        steps: T_min and T_max of the namespace.
        rule: Of the cycle.
        cycle: Its number.
    """
    graph = plan.graph
    ids = graph.ids("skill").to_pylist()
    before, known = frozenset(ids), set(ids)
    decisions = [dict(row) for row in plan.decisions]
    merged: list[tuple[MergePair, SkillText, str]] = []
    for pair, text in zip(plan.pairs, texts, strict=True):
        if isinstance(text, str):
            decisions.append(_pair_row(graph, pair, cycle, "keep", text))
            continue
        polarity = "negative" if graph.negative[pair.one] else "positive"
        into = skill_id(graph.namespace, polarity, text.name, text.text)
        both = {ids[pair.one], ids[pair.other]}
        if into in known and into not in both:
            decisions.append(_pair_row(graph, pair, cycle, "keep", f"their joined text is that of skill {into}"))
            continue
        known -= both
        known.add(into)
        merged.append((pair, text, into))
        reason = f"propagated vectors at least {rule.merge_from:g} similar"
        for one, other in ((pair.one, pair.other), (pair.other, pair.one)):
            row = _pair_row(graph, pair, cycle, "merge", reason)
            decisions.append({**row, **_of_pair(graph, one, other), "into_id": into})
    return Evolved(
        _merged_tables(graph, merged, steps, utility_rule(rule)),
        conform(pa.Table.from_pylist(decisions, DECISION.arrow), DECISION),
        tuple(into for _, _, into in merged if into not in before),
    )


def _merged_tables(
    graph: SkillGraph, merged: Sequence[tuple[MergePair, SkillText, str]], steps: StepRange, rule: UtilityRule
) -> SkillTables:
    tables = graph.tables
    if not merged:
        return tables
    one, other = (np.array([getattr(pair, name) for pair, _, _ in merged]) for name in ("one", "other"))
    into = pa.array([name for _, _, name in merged], STRING)
    stays = np.ones(graph.hypergraph.n_skills, bool)
    stays[one] = stays[other] = False
    skills = tables.skills.take(one)
    for name, values in {
        "skill_id": into,
        "name": pa.array([text.name for _, text, _ in merged], STRING),
        "text": pa.array([text.text for _, text, _ in merged], STRING),
        "aliases": pa.array([list(text.aliases) for _, text, _ in merged], STRINGS),
    }.items():
        skills = skills.set_column(skills.column_names.index(name), skills.schema.field(name), values)
    old = _together(graph.ids("skill").take(one), graph.ids("skill").take(other))
    new = pa.concat_arrays([into, into])
    nodes = pa.table({"namespace": skills.column("namespace"), "node_id": into})
    nodes = nodes.append_column("node_kind", pa.array(["skill"] * len(into), STRING))
    counts = _summed(graph.skill_tally, one, other, steps, rule)
    rest = tables.utilities.filter(pc.invert(pc.is_in(tables.utilities.column("node_id"), value_set=old)))
    return SkillTables(
        tables.trajectories,
        tables.lessons,
        tables.subtasks,
        conform(pa.concat_tables([tables.skills.filter(pa.array(stays)), skills]), SKILL),
        _moved(tables.incidences, old, new),
        conform(pa.concat_tables([rest, utility_rows(nodes, counts).cast(rest.schema)]), UTILITY),
    )


def _summed(tally: Tally, one: Ints, other: Ints, steps: StepRange, rule: UtilityRule) -> Tally:
    """Return what is known of pairs of nodes together."""
    shown, succeeded = tally.shown[one] + tally.shown[other], tally.succeeded[one] + tally.succeeded[other]
    runs = tally.succeeded if rule.successes_only else tally.shown
    total = sum(np.where(runs[some] > 0, tally.mean_steps[some] * runs[some], 0.0) for some in (one, other))
    every = runs[one] + runs[other]
    mean_steps = np.divide(total, every, out=np.full(len(one), np.nan), where=every > 0)
    return Tally(shown, succeeded, mean_steps, utilities(shown, succeeded, mean_steps, steps, rule))


def _moved(incidences: pa.Table, old: pa.Array, new: pa.Array) -> pa.Table:
    """Return the memberships with the nodes `old` called `new`, each once."""
    places = pc.index_in(incidences.column("node_id"), value_set=old)
    names = pc.coalesce(new.take(places.combine_chunks()), incidences.column("node_id").combine_chunks())
    moved = incidences.set_column(incidences.column_names.index("node_id"), "node_id", names)
    keys = [name for name in moved.column_names if name != "weight"]
    once = moved.group_by(keys).aggregate([("weight", "max")])
    return conform(once.rename_columns({"weight_max": "weight"}), INCIDENCE)


def _row(
    namespace: str, cycle: int, decision: str, kind: str, node_id: str, reason: str, tally: Tally, node: int
) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "cycle": cycle,
        "decision": decision,
        "node_kind": kind,
        "node_id": node_id,
        "other_id": "",
        "reason": reason,
        "shown": int(tally.shown[node]),
        "utility": float(tally.utility[node]),
    }


def _pair_row(graph: SkillGraph, pair: MergePair, cycle: int, decision: str, reason: str) -> dict[str, Any]:
    row = _row(graph.namespace, cycle, decision, "skill", "", reason, graph.skill_tally, pair.one)
    similarities = {"similarity": pair.similarity, "raw_similarity": pair.raw_similarity}
    return {**row, **_of_pair(graph, pair.one, pair.other), **similarities}


def _of_pair(graph: SkillGraph, node: int, other: int) -> dict[str, Any]:
    ids, tally = graph.ids("skill"), graph.skill_tally
    return {
        "node_id": ids[node].as_py(),
        "other_id": ids[other].as_py(),
        "shown": int(tally.shown[node]),
        "utility": float(tally.utility[node]),
    }
