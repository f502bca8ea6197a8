"""From a benchmark to a trained model in a folder: hold questions back, train, measure, keep."""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core import __version__
from hgmem_core.boosting import BoostingSettings
from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.evaluation import question_scores
from hgmem_core.hage_training import WalkTraining
from hgmem_core.ids import content_id
from hgmem_core.recipes import RECIPES, LearnedFlat, Routed, needs_tuned
from hgmem_core.tasks.task import Questions, Task, TaskError
from hgmem_core.trained import Trained, TrainedModelError
from hgmem_core.training_run import Arrays
from pipelines.encoders import tuned_vectors
from pipelines.evaluation import ask
from pipelines.model_store import check_place, save_model
from pipelines.progress import Progress, Silent
from pipelines.retriever import Retriever
from pipelines.store import file_sha256
from pipelines.training import Example, Learning, Trainer, examples_of, schedule_of, started
from pipelines.training_curves import write_curves
from pipelines.versions import Version

UNFINISHED = ".unfinished"
"""The folder, among models, where trainings keep their checkpoints until they are over."""

UNTRAINED = "hybrid-window"
"""The recipe that fuses the lists from which trees get their candidates: what they do without being trained."""

_HELD_BACK = 10
"""Of so many questions one is held back, where all are asked in one namespace."""


@dataclass(frozen=True, slots=True)
class Split:
    """Which questions are learned from, and which are held back.

    Attributes:
        training: To learn from.
        validation: Held back.
        about: How they were told apart, JSON-ready.
    """

    training: list[Example]
    validation: list[Example]
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Made:
    """A model that was trained and kept: the folder of its own, and its manifest's measures."""

    folder: Path
    metrics: Mapping[str, Any]
    seconds: float


def split_examples(examples: Sequence[Example], validation: str | None) -> Split:
    """Hold back the questions of a namespace, else of the last one, else one in ten by the hash of its id.

    Args:
        examples: All there are.
        validation: The namespace; None leaves it to what there is.

    Raises:
        TaskError: There is no such namespace, or nothing is left to learn from.
    """
    names = sorted({example.namespace for example in examples})
    if validation is None and len(names) == 1:
        ids = sorted((example.query_id for example in examples), key=_digest)
        held_back = set(ids[: -(-len(ids) // _HELD_BACK)])
        split = Split(
            [example for example in examples if example.query_id not in held_back],
            [example for example in examples if example.query_id in held_back],
            {"by": "question", "namespace": names[0], "one_in": _HELD_BACK},
        )
    else:
        held = names[-1] if validation is None else validation
        if held not in names:
            raise TaskError(f"no question to learn from is asked in {held!r}; there are {', '.join(names)}")
        split = Split(
            [example for example in examples if example.namespace != held],
            [example for example in examples if example.namespace == held],
            {"by": "namespace", "training": [name for name in names if name != held], "validation": held},
        )
    if not split.training:
        raise TaskError(
            f"all {len(examples)} questions would be held back, so that none is left to learn from: take more"
        )
    return split


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def train_model(
    task: Task,
    version: Version,
    config: Config,
    encoder: Encoder,
    name: str,
    validation: str | None,
    seed: int,
    folder: Path,
    progress: Progress,
) -> Made:
    """Train the model of a recipe on a benchmark and keep it, with its curve, in a folder of models.

    What learns in epochs is trained on Ray; the same call again goes on where one that ended early was.

    Args:
        task: Asks.
        version: Holds what is asked of.
        config: How, see `run.train` and `run.ray`.
        encoder: Of the version.
        name: Of a recipe under which a model is kept; see `hgmem_core.recipes.model_name`.
        validation: The namespace whose questions are held back; see `split_examples`.
        seed: Of all that is drawn.
        folder: Of models.
        progress: Told of the training.

    Raises:
        TaskError: The version holds other data, or nothing is left to learn from.
        TrainedModelError: There is nothing to be learned, or the folder has models that do not go with this one.
        PreflightError: The cluster has no room for the workers.
        ClusterError: There is no Ray, or it lost the training.
    """
    recipe = RECIPES[name]
    check_place(folder, name, version)
    retriever = Retriever(version, encoder, tuned=tuned_vectors(config.encoder, encoder.identity))
    if needs_tuned(recipe) and not retriever.asks_tuned:
        raise TrainedModelError(
            f"recipe {name!r} reads tuned vectors: name the folder of a tuned encoder or of heads as encoder.tuned"
        )
    examples = examples_of(retriever, task.questions, task.groups[task.learned_from])
    split = split_examples(examples, validation)
    trainer = Trainer(config.run.train)
    measured = partial(_measured, retriever, _questions_of(task.questions, split.validation), task.metrics)
    data = data_digests(task)
    train = schedule_of(recipe, config.run.train)
    schedule = train.model_dump(exclude={"checkpoint_epochs", "retries"})
    key = content_id(version.id, json.dumps([data, split.about, name, seed, schedule]), __version__)
    unfinished = folder / UNFINISHED / key
    began = time.perf_counter()
    trained: Trained
    if isinstance(recipe, LearnedFlat):
        progress.start("train", BoostingSettings().trees)
        ranker = trainer.grow_trees(recipe, split.training, seed)
        curve = trainer.tree_curve(recipe, ranker, split.validation)
        progress.advance("train", BoostingSettings().trees)
        trained, settings, before = ranker, asdict(BoostingSettings()), measured(UNTRAINED, {})
    else:
        learning = trainer.learning(recipe, split.training, split.validation, seed)
        untrained = trainer.model(recipe, split.training, seed, started(learning).weights())
        arrays, curve = _in_epochs(learning, unfinished, config, progress)
        trained, before = trainer.model(recipe, split.training, seed, arrays), measured(name, {name: untrained})
        settings = {**asdict(learning.settings), **schedule}
        if isinstance(recipe, Routed):
            settings["trees"] = asdict(BoostingSettings())
    seconds = round(time.perf_counter() - began, 2)
    metrics = {"questions": len(split.validation), "before": before, "after": measured(name, {name: trained})}
    about = {"task": task.name, "seed": seed}
    made = save_model(
        folder,
        name,
        trained,
        {
            **about,
            "encoder": encoder.identity.as_dict(),
            "tuned_encoder": version.tuned_encoder,
            "index_version": version.id,
            "data": data,
            "split": {**split.about, "questions": len(split.training)},
            "settings": settings,
            "metrics": metrics,
            "training_seconds": seconds,
        },
    )
    write_curves(made, curve, {"recipe": name, **about})
    remove_unfinished(unfinished)
    return Made(made, metrics, seconds)


def _in_epochs(
    learning: Learning, unfinished: Path, config: Config, progress: Progress
) -> tuple[Arrays, list[dict[str, float]]]:
    """Train on Ray; return what was learned, and the curve."""
    # Imported here because trees need not wait for Ray.
    from pipelines.ray_training import train_on_ray

    done = train_on_ray(learning, unfinished, config.run.model_copy(update={"train": learning.config}), progress)
    if isinstance(learning, WalkTraining):
        _check_walks(learning, done.curve)
    return done.weights, done.curve


def _check_walks(walks: WalkTraining, curve: Sequence[Mapping[str, float]]) -> None:
    epochs = [row for row in curve if "return" in row]
    if len(epochs) > 1 and len({row["return"] for row in epochs}) == 1:
        raise TrainedModelError(
            f"recipe {walks.recipe.name!r}: every walk of {len(epochs)} epochs earned the same, so that none could be "
            f"preferred: no relation leads within {walks.settings.rules.hops} steps from where walks begin to evidence "
            "that lies elsewhere; train on other questions"
        )


def _measured(
    retriever: Retriever, questions: Questions, metrics: Sequence[str], name: str, models: Mapping[str, Trained]
) -> dict[str, Any]:
    """Return the means of metrics over questions that are asked of a recipe, in percent."""
    run, _, _ = ask(retriever.with_models(models), questions, [name], Silent())
    means = question_scores(run, questions.queries, questions.qrels, [name], metrics).values[name].mean(axis=0)
    return {"recipe": name, **dict(zip(metrics, means.round(4).tolist(), strict=True))}


def _questions_of(questions: Questions, examples: Sequence[Example]) -> Questions:
    ids = pa.array([example.query_id for example in examples], pa.large_string())
    queries, qrels = (
        table.filter(pc.is_in(table.column("query_id"), value_set=ids))
        for table in (questions.queries, questions.qrels)
    )
    return Questions(queries, qrels, questions.counts)


def remove_unfinished(folder: Path) -> None:
    """Remove the checkpoints of a training that is over, and the folder around them if it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # other trainings have theirs there, or none ever had
        folder.parent.rmdir()


def data_digests(task: Task) -> dict[str, str]:
    """Return what was learned from, by the digests of its files."""
    corpus = {} if task.files.corpus is None else {"corpus_sha256": file_sha256(Path(task.files.corpus.path))}
    return {"data_sha256": file_sha256(Path(task.files.data.path)), **corpus}
