"""Held-out runs of agents: a memory of the earlier tasks of a dataset, and the later ones that it is asked about."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow.compute as pc

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.lexical import Floats
from hgmem_core.skill_context import SkillContext, skill_context
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_join import Finding, join_findings
from hgmem_core.skill_metrics import (
    COVERAGE,
    FAMILY_PRECISION,
    FIRST,
    HARMFUL_RATE,
    TOKENS,
    Numbers,
    TemplateLifts,
    coverage,
    family_precision,
    harmful_rate,
    only_in_failures,
    prevailing_family,
    split_by_task,
    templates_of_runs,
)
from hgmem_core.skill_recipes import FlatSkills, SkillRecipe
from hgmem_core.skill_search import Retrieved, SkillQueries, search_many
from hgmem_core.skill_words import SkillWords
from hgmem_core.skills import in_time_order
from hgmem_core.tokens import tokenizer
from pipelines.encoders import token_counter
from pipelines.skill_logs import SkillLog
from pipelines.skill_memory import skill_memory, task_vectors

LEARNED_SHARE = 0.7
"""Of the tasks, those that the memory is made of."""

_COUNTED = 20_000
"""Texts of which the tokens are remembered: graphs that differ in a few skills give many equal contexts."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A memory of earlier tasks, and the later runs that it is asked about.

    Attributes:
        graph: The memory.
        task_ids: Of each later run.
        tasks: The vectors of their tasks.
        plans: Of their plans.
        texts: The texts of their tasks.
        families: Of their tasks, None where there is none. Labels.
        solved: The templates of each run that succeeded; None for others and for those that have none. Labels.
        lifts: Of templates in the earlier runs.
        harmful: Templates that runs on record have only where they failed. A label.
        skill_families: For each skill of the memory that of most of its runs. Labels.
        config: Of the job.
        count_tokens: Of a text.
    """

    graph: SkillGraph
    task_ids: list[str]
    tasks: Floats
    plans: Floats
    texts: list[str]
    families: list[str | None]
    solved: list[frozenset[str] | None]
    lifts: TemplateLifts
    harmful: frozenset[str]
    skill_families: list[str | None]
    config: Config
    count_tokens: Callable[[str], int]

    @classmethod
    def of(cls, log: SkillLog, config: Config, encoder: Encoder) -> "HeldOut | None":
        """Split a dataset and learn from its earlier tasks; None if no later one was solved."""
        earlier, later = split_by_task(in_time_order(log.trajectories), LEARNED_SHARE)
        before, after = templates_of_runs(earlier), templates_of_runs(later)
        ended = [table.column("outcome").to_pylist() for table in (earlier, later)]
        solved = [
            templates if outcome == "success" and templates else None
            for templates, outcome in zip(after, ended[1], strict=True)
        ]
        if earlier.num_rows == 0 or not any(solved):
            return None
        batch_size = config.encoder.batch_size
        graph = skill_memory(earlier, encoder, config.index.language, batch_size, config.skills.same_from)
        texts = later.column("task").to_pylist()
        tasks, plans = task_vectors(encoder, texts)
        by_run = [log.families.get(task) for task in graph.tables.trajectories.column("task_id").to_pylist()]
        edges = graph.hypergraph.edges_of_skill
        task_ids = later.column("task_id").to_pylist()
        return cls(
            graph,
            task_ids,
            tasks,
            plans,
            texts,
            [log.families.get(task) for task in task_ids],
            solved,
            TemplateLifts(before, ended[0]),
            only_in_failures(before + after, ended[0] + ended[1]),
            [
                prevailing_family(by_run[run] for run in edges.of(skill).tolist())
                for skill in range(graph.hypergraph.n_skills)
            ],
            config,
            lru_cache(maxsize=_COUNTED)(token_counter(encoder)),
        )

    def counts(self, log: SkillLog) -> dict[str, int]:
        """Return how much there was of everything."""
        runs = self.graph.tables.trajectories
        solved = [task for task, templates in zip(self.task_ids, self.solved, strict=True) if templates]
        return {
            "runs": log.trajectories.num_rows,
            "refused_rows": log.refused,
            "learned_runs": runs.num_rows,
            "learned_tasks": pc.count_distinct(runs.column("task_id")).as_py(),
            "held_out_runs": len(self.task_ids),
            "held_out_tasks": len(set(self.task_ids)),
            "solved_runs": len(solved),
            "solved_tasks": len(set(solved)),
            "skills": int((~self.graph.negative).sum()),
            "mistakes": int(self.graph.negative.sum()),
            "lessons": self.graph.tables.lessons.num_rows,
        }

    def ask(self, graph: SkillGraph, recipe: SkillRecipe) -> list[Retrieved]:
        """Return what a recipe finds for each later run."""
        scores = np.zeros((len(self.texts), 0), np.float32)
        if isinstance(recipe, FlatSkills) and recipe.kind == "bm25":
            index = self.config.index
            words = SkillWords(graph.tables.skills, tokenizer(index.language), index.k1, index.b)
            scores = np.stack([words.scores(text) for text in self.texts])
        return search_many(graph, SkillQueries(self.tasks, self.plans, scores), recipe)

    def contexts(self, graph: SkillGraph, found: Sequence[Retrieved], recipe: SkillRecipe) -> list[SkillContext]:
        """Return what a recipe found as a text for each later run that succeeded."""
        solved = (one for one, run in zip(found, self.solved, strict=True) if run)
        return [self.context(graph, one, recipe) for one in solved]

    def context(self, graph: SkillGraph, found: Retrieved, recipe: SkillRecipe) -> SkillContext:
        """Return what a recipe found as a text."""
        return skill_context(join_findings([Finding(graph, found)], recipe), recipe.fill, TOKENS, self.count_tokens)

    def coverages(self, texts: Iterable[str]) -> Numbers:
        """Return the coverage of each later run, NaN for one that did not succeed; `texts` are of those that did."""
        given = iter(texts)
        return np.array([coverage(run, next(given), self.lifts) if run else np.nan for run in self.solved])

    def measured(self, found: Sequence[Retrieved], texts: Iterable[str]) -> dict[str, Numbers]:
        """Return every metric of each later run; see `coverages`."""
        said = self.graph.tables.skills.column("text").to_pylist()
        precisions, rates = [], []
        for family, one in zip(self.families, found, strict=True):
            first = one.skills[:FIRST].tolist()
            of_skills = [self.skill_families[skill] for skill in first]
            precisions.append(np.nan if family is None else family_precision(of_skills, family))
            rates.append(harmful_rate((said[skill] for skill in first if not self.graph.negative[skill]), self.harmful))
        return {
            FAMILY_PRECISION: np.array(precisions),
            COVERAGE: self.coverages(texts),
            HARMFUL_RATE: np.array(rates),
        }
