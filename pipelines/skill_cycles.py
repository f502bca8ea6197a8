"""Cycles of evolution of skill graphs: what each prunes and merges, with the texts and vectors of merged skills.

A generator, like the build of a bucket: it gives out what a language model is to join, where one takes part, and new
texts to be encoded. All namespaces of a bucket go from cycle to cycle together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core.embeddings import encode_by_namespace
from hgmem_core.encoding import Encoder, Vectors
from hgmem_core.ids import rows_of
from hgmem_core.lexical import Ints
from hgmem_core.model_config import LlmStage
from hgmem_core.passes import Settled, Terms
from hgmem_core.schemas import DECISION, SKILL, conform
from hgmem_core.skill_evolution import (
    EvolutionPlan,
    Evolved,
    apply_evolution,
    joined_text,
    plan_evolution,
    utility_rule,
)
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_merge_llm import MergedSkill, joined_texts_llm
from hgmem_core.skill_utility import StepRange, step_range
from hgmem_core.stage_config import EvolutionConfig
from pipelines.skill_memory import skill_text
from pipelines.steps import Encoding, Steps, Texts

STAGE: LlmStage = "evolve"


@dataclass(frozen=True, slots=True)
class Evolving:
    """The graph of a namespace, with utilities, and T_min and T_max of these."""

    graph: SkillGraph
    steps: StepRange


@dataclass(frozen=True, slots=True)
class Asked:
    """What a language model was asked about two skills.

    Attributes:
        cycle: Of the evolution.
        skills: The ids of the two.
        settled: What became of it.
        rejects: Rows of REJECT.
    """

    cycle: int
    skills: tuple[str, str]
    settled: Settled[MergedSkill]
    rejects: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Cycled:
    """A graph after its cycles, their DECISION rows, and what a language model was asked."""

    graph: SkillGraph
    decisions: pa.Table
    asked: Sequence[Asked]


def evolution(
    evolving: Sequence[Evolving], rule: EvolutionConfig, cycles: int, first: int, terms: Terms | None
) -> Steps[list[Cycled]]:
    """Take graphs through some cycles.

    Args:
        evolving: The graphs, by namespace.
        rule: What is pruned and what is merged.
        cycles: How many.
        first: The number of the first cycle.
        terms: Of asking a language model; None where no one takes part.
    """
    graphs = [one.graph for one in evolving]
    decisions = [[DECISION.empty()] for _ in evolving]
    asked: list[list[Asked]] = [[] for _ in evolving]
    for cycle in range(first, first + cycles):
        plans = [plan_evolution(graph, rule, cycle) for graph in graphs]
        if terms is None:
            texts = [[joined_text(plan.graph, pair) for pair in plan.pairs] for plan in plans]
        else:
            joined = yield from joined_texts_llm(plans, terms)
            texts = [[one.text for one in own] for own in joined]
            for plan, own, known in zip(plans, joined, asked, strict=True):
                ids = plan.graph.ids("skill").to_pylist()
                known += [
                    Asked(cycle, (ids[pair.one], ids[pair.other]), one.settled, one.rejects)
                    for pair, one in zip(plan.pairs, own, strict=True)
                ]
        evolved = [
            apply_evolution(plan, own, one.steps, rule, cycle)
            for plan, own, one in zip(plans, texts, evolving, strict=True)
        ]
        for own, made in zip(decisions, evolved, strict=True):
            own.append(made.decisions)
        graphs = yield from _with_vectors(plans, evolved)
    return [
        Cycled(graph, conform(pa.concat_tables(made), DECISION), own)
        for graph, made, own in zip(graphs, decisions, asked, strict=True)
    ]


def _with_vectors(plans: Sequence[EvolutionPlan], evolved: Sequence[Evolved]) -> Encoding[list[SkillGraph]]:
    """Return the graphs after their skills were merged; new texts are given out to be encoded."""
    new = pa.concat_tables(
        [
            SKILL.empty(),
            *(
                made.tables.skills.filter(pa.array(_rows_before(plan, made) < 0))
                for plan, made in zip(plans, evolved, strict=True)
            ),
        ]
    )
    said = zip(*(new.column(name).to_pylist() for name in ("name", "text")), strict=True)
    waiting = Texts(f"encode_{STAGE}", new.select(["namespace", "skill_id"]), [skill_text(*parts) for parts in said])
    vectors = iter(np.zeros((0, 0), np.float32))
    if new.num_rows:
        [encoded] = yield [waiting]
        vectors = iter(encoded)
    return list(_graphs(plans, evolved, vectors))


def _graphs(plans: Sequence[EvolutionPlan], evolved: Sequence[Evolved], new: Iterator[Vectors]) -> Iterator[SkillGraph]:
    for plan, made in zip(plans, evolved, strict=True):
        rows = _rows_before(plan, made)
        own = plan.graph.vectors
        skills = np.empty((len(rows), own.skills.shape[1]), np.float32)
        skills[rows >= 0] = own.skills[rows[rows >= 0]]
        for row in np.flatnonzero(rows < 0).tolist():
            skills[row] = next(new)
        yield SkillGraph.of(made.tables, replace(own, skills=skills))


def _rows_before(plan: EvolutionPlan, made: Evolved) -> Ints:
    return rows_of(made.tables.skills.column("skill_id"), plan.graph.tables.skills.column("skill_id"))


def evolve(
    graph: SkillGraph, encoder: Encoder, rule: EvolutionConfig, cycles: int, batch_size: int
) -> tuple[SkillGraph, pa.Table]:
    """Return a graph after some cycles in place, without a language model, and their DECISION rows.

    Args:
        graph: Of one namespace, with utilities of its own runs.
        encoder: Makes the vectors of new texts.
        rule: What is pruned and what is merged.
        cycles: How many.
        batch_size: Pieces of text in one batch.
    """
    n_steps = graph.tables.trajectories.column("n_steps").to_numpy().astype(np.int64)
    steps = step_range(graph.outcomes, n_steps, utility_rule(rule))
    going = evolution([Evolving(graph, steps)], rule, cycles, 0, None)
    try:
        waiting = next(going)
        while True:
            texts = [one for one in waiting if isinstance(one, Texts)]
            waiting = going.send([encode_by_namespace(one.nodes, one.texts, encoder, batch_size) for one in texts])
    except StopIteration as done:
        [cycled] = done.value
        return cycled.graph, cycled.decisions
