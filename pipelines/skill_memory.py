"""Trajectories to a skill graph, and tasks to what it is asked with: all of it that takes an encoder."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hgmem_core.encoding import Encoder, Vectors, encode_queries, encode_texts
from hgmem_core.replay import replay
from hgmem_core.schemas import INCIDENCE, conform
from hgmem_core.skill_dedup import SAME_FROM, dedup_skills
from hgmem_core.skill_graph import SkillGraph, SkillTables, SkillVectors
from hgmem_core.skill_recipes import DualPath
from hgmem_core.skill_utility import (
    MEMBERS,
    UtilityRule,
    nodes_of,
    utility_of_members,
    utility_of_shown,
)
from hgmem_core.skills import learn_skills, plan_tasks
from hgmem_core.subtasks import subtasks


def skill_memory(
    trajectories: pa.Table, encoder: Encoder, language: str, batch_size: int, same_from: float = SAME_FROM
) -> SkillGraph:
    """Return what the runs of one namespace teach: its skills, plans and lessons, with utilities by members.

    Args:
        trajectories: TRAJECTORY of one namespace.
        encoder: Makes every vector.
        language: Of the tasks; see `hgmem_core.tokens.tokenizer`.
        batch_size: Pieces of text in one batch.
        same_from: The cosine from which two skills are one.
    """
    learned = learn_skills(trajectories, language)
    plans, plan_members = plan_tasks(trajectories)
    names, texts = (learned.mentions.column(name).to_pylist() for name in ("name", "text"))
    said = encode_distinct(encoder, [skill_text(*parts) for parts in zip(names, texts, strict=True)], batch_size)
    skills = dedup_skills(learned.mentions, said, same_from)
    members = conform(pa.concat_tables([plan_members, skills.incidences]), INCIDENCE)
    nodes = nodes_of(plans, skills.skills, trajectories)
    lessons = dict(zip(*(learned.lessons.column(name).to_pylist() for name in ("trajectory_id", "text")), strict=True))
    runs = zip(*(trajectories.column(name).to_pylist() for name in ("trajectory_id", "task")), strict=True)
    about = [run_text(task, lessons.get(run, "")) for run, task in runs]
    return SkillGraph.of(
        SkillTables(
            trajectories,
            learned.lessons,
            plans,
            skills.skills,
            members,
            utility_of_members(nodes, trajectories, members, MEMBERS),
        ),
        SkillVectors(
            encode_distinct(encoder, plans.column("text").to_pylist(), batch_size),
            said[skills.mentions],
            encode_distinct(encoder, about, batch_size),
        ),
    )


def with_replayed_utilities(graph: SkillGraph, encoder: Encoder, recipe: DualPath, rule: UtilityRule) -> SkillGraph:
    """Return a graph whose utilities are of what a recipe would have shown for its runs; see `hgmem_core.replay`."""
    vectors, plans = task_vectors(encoder, graph.tables.trajectories.column("task").to_pylist())
    return with_shown_utilities(graph, replay(graph, vectors, plans, recipe), rule)


def with_shown_utilities(graph: SkillGraph, feedback: pa.Table, rule: UtilityRule) -> SkillGraph:
    """Return a graph whose utilities are of what was shown, by the FEEDBACK of its namespace."""
    tables = graph.tables
    nodes = nodes_of(tables.subtasks, tables.skills, tables.trajectories)
    return SkillGraph.of(replace(tables, utilities=utility_of_shown(nodes, feedback, rule)), graph.vectors)


def skill_text(name: str, text: str) -> str:
    """Return what an encoder sees of a skill."""
    return f"{name}: {text}"


def run_text(task: str, lesson: str) -> str:
    """Return what an encoder sees of a run."""
    return f"{task}\n{lesson}" if lesson else task


def plan_text(task: str) -> str:
    """Return what an encoder sees of a task's whole plan."""
    return "\n".join(subtasks(task))


def task_vectors(encoder: Encoder, tasks: Sequence[str]) -> tuple[Vectors, Vectors]:
    """Return the vectors of tasks and of their plans, each float32 `[tasks, d]`."""
    return encode_queries(encoder, tasks), encode_queries(encoder, [plan_text(task) for task in tasks])


def encode_distinct(encoder: Encoder, texts: Sequence[str], batch_size: int) -> Vectors:
    """Return the vector of each text, equal texts being encoded once: float32 `[texts, d]`."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    vectors = encode_texts(encoder, list(places), batch_size, encoder.identity.document_prefix)
    return vectors[np.array([places[text] for text in texts], np.int64)]
