"""Trained recipes compared on questions that they never saw: one namespace of a benchmark is left out at a time."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.evaluation import WITH_INTERVAL, Scores, mean_scores, paired_differences, question_scores, result_rows
from hgmem_core.recipes import RECIPES, begins_with, find_recipe, model_name, needs_tuned
from hgmem_core.tasks.task import Task, TaskError
from pipelines.cross_tuning import View
from pipelines.encoders import tuned_vectors
from pipelines.evaluation import ask, result_head
from pipelines.model_training import data_digests
from pipelines.progress import Progress, Silent
from pipelines.retriever import Retriever
from pipelines.training import Example, Trainer, examples_of, stops_early
from pipelines.tuned_files import read_tuned
from pipelines.versions import Version


@dataclass(frozen=True, slots=True)
class Fold:
    """A split of namespaces: what is asked about, what is learned from, and what tells when to stop.

    What has nothing to stop learns from the last, too.
    """

    test: str
    training: tuple[str, ...]
    validation: str

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"test": self.test, "training": list(self.training), "validation": self.validation}


def leave_one_out(namespaces: Sequence[str]) -> list[Fold]:
    """Return for each namespace the fold that leaves it out; of the others the last, in the order given, validates.

    Raises:
        TaskError: There are fewer than three.
    """
    if len(namespaces) < 3:
        raise TaskError(
            f"leaving one namespace out needs three at least, to test, to learn from and to stop by; there are "
            f"{len(namespaces)}"
        )
    folds = []
    for test in namespaces:
        *training, validation = (name for name in namespaces if name != test)
        folds.append(Fold(test, tuple(training), validation))
    return folds


def cross_validate(
    task: Task,
    version: Version,
    config: Config,
    encoder: Encoder,
    recipes: Sequence[str],
    seeds: int,
    progress: Progress,
    tune: Callable[[Sequence[Example]], list[View]] | None = None,
) -> dict[str, Any]:
    """Ask every question of recipes that were trained on the other namespaces and return the result document.

    Recipes that are not trained are asked once. Recipes of a graph are compared with what they begin with, too, where
    that is among the recipes (`hgmem_core.recipes.begins_with`): that is the graph's own share. Every question counts
    with the mean over the seeds.

    Args:
        task: What to ask.
        version: Answers.
        config: Part of the result.
        encoder: Of the version.
        recipes: To compare; each is compared with the first by question.
        seeds: How many times each model is trained, with the seeds 0, 1, ...
        progress: Told of trainings.
        tune: Given all examples, makes the views of recipes that read tuned vectors, see
            `pipelines.cross_tuning.tuned_views`; None takes the vectors of the version, if they are of other data.

    Raises:
        TaskError: The version holds other data, or too few namespaces, or vectors that were tuned on the questions.
        RecipeError: One of the recipes does not exist.
        TrainedModelError: A fold has nothing to learn from.
    """
    recipes = list(dict.fromkeys(recipes))
    model_of = {name: model_name(find_recipe(name, version.default_recipe)) for name in recipes}
    models = {name: RECIPES[name] for name in model_of.values() if name is not None}
    tuned = tuned_vectors(config.encoder, encoder.identity)
    if tuned is not None and read_tuned(tuned.folder)["data"].get("data_sha256") == data_digests(task)["data_sha256"]:
        raise TaskError(
            f"{tuned.folder} was tuned on the same questions: leave encoder.tuned out, and tune for each part of the "
            "comparison with --tune"
        )
    readers = [name for name, recipe in models.items() if needs_tuned(recipe)]
    if readers and tuned is None and tune is None:
        raise TaskError(f"{readers[0]} reads tuned vectors: tune them for each part of the comparison with --tune")
    retriever = Retriever(version, encoder, tuned=tuned)
    questions = task.questions
    folds = leave_one_out(sorted(set(questions.queries.column("namespace").to_pylist())))
    fixed = [name for name in recipes if model_of[name] is None]
    learned = [name for name in recipes if name not in fixed]
    once = [ask(retriever, questions, fixed, Silent())[0]] if fixed else []
    examples = examples_of(retriever, questions, task.groups[task.learned_from]) if models else []
    plain = [View(frozenset(fold.test for fold in folds), retriever, examples, {})]
    tuned_ones = tune(examples) if readers and tune is not None else plain
    trainers = {id(view): Trainer(config.run.train) for view in (*plain, *tuned_ones)}
    if models:
        progress.start("train", seeds * len(folds) * len(models))
    seconds: dict[str, list[float]] = {name: [] for name in models}
    by_seed: list[Scores] = []
    for seed in range(seeds):
        runs = [*once]
        for fold in folds if models else ():
            for name, recipe in models.items():
                views = tuned_ones if needs_tuned(recipe) else plain
                [view] = (view for view in views if fold.test in view.namespaces)
                began = time.perf_counter()
                held_back = (fold.validation,) if stops_early(recipe) else ()
                training = _within(view.examples, {*fold.training, fold.validation} - {*held_back})
                validation = _within(view.examples, held_back)
                trained = trainers[id(view)].train(recipe, training, validation, seed)
                seconds[name].append(round(time.perf_counter() - began, 2))
                progress.advance("train", 1)
                asking = [one for one in learned if model_of[one] == name]
                own = view.retriever.with_models({name: trained})
                runs.append(ask(own, questions.within({fold.test}), asking, Silent())[0])
        run = pa.concat_tables(runs)
        by_seed.append(question_scores(run, questions.queries, questions.qrels, recipes, task.metrics))
    scores = mean_scores(by_seed)
    return {
        **result_head(task, version, config, encoder, []),
        "results": result_rows(scores, task.groups),
        "differences": paired_differences(scores, recipes[0], task.groups),
        "own_shares": [
            row
            for name in recipes
            if (start := begins_with(find_recipe(name, version.default_recipe))) in recipes
            for row in paired_differences(scores, str(start), task.groups, [name])
        ],
        "folds": [fold.as_dict() for fold in folds],
        "seeds": _by_seed(by_seed, task, learned),
        "training_seconds": seconds,
        "tuned": [{"namespaces": sorted(view.namespaces), "vectors": view.tuned} for view in tuned_ones if view.tuned],
    }


def _within(examples: Sequence[Example], namespaces: Collection[str]) -> list[Example]:
    return [example for example in examples if example.namespace in namespaces]


def _by_seed(scores: Sequence[Scores], task: Task, recipes: Sequence[str]) -> list[dict[str, Any]]:
    """Return what each seed gave on the questions that train models."""
    members = scores[0].members(task.groups[task.learned_from])
    return [
        {"seed": seed, "recipe": recipe}
        | {metric: round(float(np.mean(one.of(recipe, metric)[members])), 4) for metric in WITH_INTERVAL}
        for seed, one in enumerate(scores)
        for recipe in recipes
    ]
