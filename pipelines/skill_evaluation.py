"""Skill evaluation: do the skills of earlier tasks say what agents did who solved later ones?

Each dataset is a namespace of its own. Its tasks are split in time order; the memory is made of the earlier ones and
asked with the text of the later ones, and with nothing else of them: how a held-out run went, what it did and what it
should have done are labels. Beside the recipes stand controls under the same budget of tokens, since a text of the same
length may say as much by chance.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from hgmem_core import __version__
from hgmem_core.action_templates import TEMPLATES_REVISION
from hgmem_core.config import Config, config_digest
from hgmem_core.encoding import Encoder
from hgmem_core.skill_evolution import utility_rule, without
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_metrics import COVERAGE, Numbers, SkillScores, interval
from hgmem_core.skill_recipes import DualPath, FlatSkills, SkillRecipe, find_skill_recipe
from hgmem_core.skill_search import Retrieved
from hgmem_core.tasks.task import TaskError
from pipelines.progress import Progress
from pipelines.skill_cycles import evolve
from pipelines.skill_held_out import LEARNED_SHARE, HeldOut
from pipelines.skill_logs import read_skill_logs
from pipelines.skill_memory import with_replayed_utilities

RESULT_SCHEMA_VERSION = 1
RANDOM_SEED = 0
RANDOM_DRAWS = 100
RANDOM_REMOVALS = 10
"""Beside which the loss by evolution stands."""
_FILL = 50
"""Skills, or lessons, that are tried to fill the budget: more than fit."""

WITHOUT_LESSONS = "without lessons"
"""The first recipe, its skills alone."""
DENSE_FILLED = FlatSkills("dense, filled", "dense", skills=_FILL)
"""The skills nearest to the task, as many as fit."""
LESSONS_FILLED = FlatSkills("lessons, filled", "dense", skills=0, trajectories=_FILL)
"""The lessons of the runs nearest to the task, as many as fit, and no skill."""
LESSONS_COVERING = FlatSkills("lessons, covering", "dense", skills=0, trajectories=25, fill="actions")
"""Lessons alone, taken as `skills/covering` takes them: beside it, what skills and plans add."""
CONTROLS = (DENSE_FILLED, LESSONS_FILLED, LESSONS_COVERING)
RANDOM, RANDOM_WITH_LESSONS = "random", "random, with lessons"
"""Any skills, as many as fit, without and with lessons of any runs; the mean of `RANDOM_DRAWS` draws."""


def evaluate_skills(
    folder: Path,
    recipes: Sequence[str],
    cycles: int,
    config: Config,
    encoder: Encoder,
    now: datetime,
    progress: Progress,
) -> dict[str, Any]:
    """Split each dataset, learn from its earlier tasks, ask for the later ones, and return the result document.

    Args:
        folder: See `pipelines.skill_logs.read_skill_logs`.
        recipes: Names of skill recipes; controls and differences are beside the first.
        cycles: Of evolution, whose loss is measured; 0 for none.
        config: Its `encoder.batch_size`, `skills.same_from`, `skills.evolution` and `index` are used.
        encoder: Makes the vectors.
        now: When the runs are imported.
        progress: Told of datasets.

    Raises:
        TaskError: There are no runs, or in no dataset a later task that an agent solved.
        RecipeError: There is no recipe of a name.
    """
    asked = [find_skill_recipe(name) for name in dict.fromkeys(recipes)]
    logs = read_skill_logs(folder, now)
    progress.start("skills", len(logs))
    datasets: dict[str, Any] = {}
    results: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    evolution: list[dict[str, Any]] = []
    warnings: list[str] = []
    for log in logs:
        held_out = HeldOut.of(log, config, encoder)
        if held_out is None:
            warnings.append(f"{log.name}: no later task that an agent solved; nothing is measured")
            progress.advance("skills", 1)
            continue
        scores, tokens = _scores(held_out, asked)
        name = {"dataset": log.name}
        results += [{**name, **row, "context_tokens": tokens[str(row["system"])]} for row in scores.rows()]
        differences += [{**name, **row} for row in scores.differences(asked[0].name)]
        datasets[log.name] = held_out.counts(log)
        if cycles:
            evolution.append({**name, **_evolution(held_out, encoder, cycles, config)})
        progress.advance("skills", 1)
    if not datasets:
        raise TaskError(f"{folder}: {'; '.join(warnings)}")
    files = {path: digest for log in logs for path, digest in log.files.items()}
    listing = "".join(f"{digest}  {path}\n" for path, digest in sorted(files.items()))
    return {
        "schema_version": RESULT_SCHEMA_VERSION,
        "task": "skills",
        "data_sha256": sha256(listing.encode()).hexdigest(),
        "files": files,
        "software_version": __version__,
        "encoder": encoder.identity.as_dict(),
        "config": config.model_dump(),
        "config_sha256": config_digest(config),
        "prompts_sha256": None,
        "templates_revision": TEMPLATES_REVISION,
        "learned_share": LEARNED_SHARE,
        "random_draws": RANDOM_DRAWS,
        "random_removals": RANDOM_REMOVALS,
        "datasets": datasets,
        "results": results,
        "skill_differences": differences,
        "evolution": evolution,
        "warnings": warnings,
    }


def _scores(held_out: HeldOut, recipes: Sequence[SkillRecipe]) -> tuple[SkillScores, dict[str, float]]:
    """Return the metrics of recipes and controls, and the mean tokens of the texts of each."""
    graph = held_out.graph
    systems = {recipe.name: (recipe, held_out.ask(graph, recipe)) for recipe in (*recipes, *CONTROLS)}
    first, found = systems[recipes[0].name]
    systems[f"{first.name}, {WITHOUT_LESSONS}"] = first, [_without_lessons(one) for one in found]
    values: dict[str, dict[str, Numbers]] = {}
    tokens: dict[str, float] = {}
    for name, (recipe, found) in systems.items():
        contexts = held_out.contexts(graph, found, recipe)
        values[name] = held_out.measured(found, (context.text for context in contexts))
        tokens[name] = round(float(np.mean([context.tokens for context in contexts])), 1)
    for name in (RANDOM, RANDOM_WITH_LESSONS):
        drawn = list(_drawn(graph, name == RANDOM_WITH_LESSONS))
        every = [held_out.context(graph, one, DENSE_FILLED) for one in drawn]
        draws = [
            held_out.measured([one] * len(held_out.texts), repeat(context.text))
            for one, context in zip(drawn, every, strict=True)
        ]
        values[name] = {metric: np.mean([draw[metric] for draw in draws], axis=0) for metric in draws[0]}
        tokens[name] = round(float(np.mean([context.tokens for context in every])), 1)
    return SkillScores(held_out.task_ids, values), tokens


def _drawn(graph: SkillGraph, with_lessons: bool) -> Iterator[Retrieved]:
    rng = np.random.default_rng(RANDOM_SEED)
    for _ in range(RANDOM_DRAWS):
        skills = rng.permutation(graph.hypergraph.n_skills)[:_FILL]
        runs = rng.permutation(len(graph.hypergraph))[: _FILL if with_lessons else 0]
        nothing = np.zeros(len(skills), np.float32)
        yield Retrieved(skills, nothing.astype(np.float64), nothing, runs, np.zeros(0, np.int64))


def _without_lessons(found: Retrieved) -> Retrieved:
    return replace(found, trajectories=found.trajectories[:0])


def _evolution(held_out: HeldOut, encoder: Encoder, cycles: int, config: Config) -> dict[str, Any]:
    """Return what some cycles of evolution take away, and what that costs beside taking away as much at random.

    Feedback is what `skills/full` would have shown for the earlier runs. The later ones are asked before and after with
    the same recipe, with lessons, which evolution leaves alone, and without.
    """
    rule, batch_size = config.skills.evolution, config.encoder.batch_size
    full = find_skill_recipe("skills/full")
    assert isinstance(full, DualPath)
    before = with_replayed_utilities(held_out.graph, encoder, full, utility_rule(rule))
    after, decisions = evolve(before, encoder, rule, cycles, batch_size)
    count, left = before.hypergraph.n_skills, after.hypergraph.n_skills
    rng = np.random.default_rng(RANDOM_SEED)
    thinned = []
    for _ in range(RANDOM_REMOVALS):
        gone = np.zeros(count, bool)
        gone[rng.permutation(count)[: count - left]] = True
        thinned.append(without(before, gone, np.zeros(before.hypergraph.n_subtasks, bool)))
    pruned = pc.and_(pc.equal(decisions.column("decision"), "prune"), pc.equal(decisions.column("node_kind"), "skill"))
    n_pruned = int(pc.sum(pruned).as_py() or 0)
    measured = {
        name: _loss(held_out, full, before, after, thinned, with_lessons)
        for name, with_lessons in (("with_lessons", True), ("without_lessons", False))
    }
    return {
        "cycles": cycles,
        "skills": count,
        "pruned": n_pruned,
        "merged_away": count - left - n_pruned,
        "removed_share": round((count - left) / count, 4) if count else 0.0,
        COVERAGE: measured,
    }


def _loss(
    held_out: HeldOut,
    recipe: SkillRecipe,
    before: SkillGraph,
    after: SkillGraph,
    thinned: Sequence[SkillGraph],
    with_lessons: bool,
) -> Mapping[str, Any]:
    def by_task(graph: SkillGraph) -> Numbers:
        found = held_out.ask(graph, recipe)
        found = found if with_lessons else [_without_lessons(one) for one in found]
        values = {
            "": {COVERAGE: held_out.coverages(context.text for context in held_out.contexts(graph, found, recipe))}
        }
        return SkillScores(held_out.task_ids, values).by_task("", COVERAGE)

    kept, evolved = by_task(before), by_task(after)
    at_random: Numbers = np.mean([by_task(graph) for graph in thinned], axis=0)
    means = {"before": kept, "after": evolved, "at_random": at_random}
    return {
        **{name: round(float(values.mean()), 2) for name, values in means.items()},
        "difference": round(float((evolved - at_random).mean()), 2),
        "ci95": interval(evolved - at_random),
    }
