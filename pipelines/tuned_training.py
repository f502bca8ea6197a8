"""From a benchmark to what `encoder.tuned` names: an encoder tuned on its questions, or heads for its vectors."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hgmem_core import __version__
from hgmem_core.config import Config
from hgmem_core.embeddings import context_texts
from hgmem_core.encoding import Encoder
from hgmem_core.heads import FOUND_WITHIN, HeadExamples, Heads, HeadTraining, first_heads, fit_heads
from hgmem_core.ids import content_id
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import finite_vector
from hgmem_core.tasks.task import Task
from hgmem_core.trained import TrainedModelError
from hgmem_core.training_run import VALIDATED
from pipelines import tuned_encoder, tuned_heads
from pipelines.bert_encoder import BertFolder
from pipelines.encoder_examples import TuningExample, examples_digest, tuning_examples
from pipelines.encoder_tuning import EncoderTraining, EncoderTuning, HeldOutTurns
from pipelines.minilm import IDENTITY, minilm_folder
from pipelines.model_training import UNFINISHED, Made, Split, data_digests, remove_unfinished, split_examples
from pipelines.progress import Progress
from pipelines.retriever import Retriever
from pipelines.training import Example, examples_of, unless_set
from pipelines.tuned_encoder import save_tuned
from pipelines.tuned_files import read_tuned
from pipelines.tuned_heads import save_heads
from pipelines.versions import Version
from pipelines.weights import EncoderError


def encoder_to_tune(encoder: Encoder) -> BertFolder:
    """Return the checkpoint from which tuning begins.

    Raises:
        EncoderError: The encoder is not MiniLM, the only one that can be tuned.
    """
    if encoder.identity != IDENTITY:
        raise EncoderError(
            f"encoder {encoder.identity.name!r} cannot be tuned, only minilm can: set encoder.name=minilm, or train "
            "heads, which go with any encoder"
        )
    return minilm_folder()


def train_encoder(
    task: Task,
    version: Version,
    config: Config,
    encoder: Encoder,
    base: BertFolder,
    validation: str | None,
    seed: int,
    licence: str,
    folder: Path,
    progress: Progress,
) -> Made:
    """Tune an encoder on a benchmark, on Ray, and keep it; the same call again goes on where one ended early.

    It is measured before and after each epoch, on the texts that it is tuned to; the best epoch is kept.

    Args:
        task: Asks.
        version: Holds what is asked of.
        config: How, see `run.train` and `run.ray`; without `run.train.epochs` as long as `EncoderTuning` says.
        encoder: Of the version.
        base: The encoder to begin with, see `encoder_to_tune`; it lies at that place on all nodes.
        validation: The namespace whose questions are held back; see `pipelines.model_training.split_examples`.
        seed: Of all that is drawn.
        licence: Of the benchmark.
        folder: Of the tuned encoder alone.
        progress: Told of the training.

    Raises:
        TaskError: The version holds other data, or nothing is left to learn from.
        TrainedModelError: The folder has something else in it.
        PreflightError: The cluster has no room for the workers.
        ClusterError: There is no Ray, or it lost the training.
    """
    # Imported here because heads need not wait for Ray.
    from pipelines.ray_training import train_on_ray

    check_folder(folder)
    split = _split(task, version, encoder, validation)
    settings = EncoderTuning()
    # An epoch takes minutes: each is looked at, and none is done twice.
    train = unless_set(config.run.train, epochs=settings.epochs, validate_epochs=1, checkpoint_epochs=1)
    examples = to_tune_on(split.training)
    training = EncoderTraining(base, examples, _held_out(split.validation), settings, train, seed)
    data = {**data_digests(task), "examples": examples_digest(examples)}
    schedule = train.model_dump(exclude={"checkpoint_epochs", "retries"})
    told = {**asdict(settings), **schedule}
    key = content_id(json.dumps([base.identity.as_dict(), data, split.about, seed, told]), __version__)
    unfinished = folder / UNFINISHED / key
    began = time.perf_counter()
    done = train_on_ray(training, unfinished, config.run.model_copy(update={"train": train}), progress)
    before, *after = (row[VALIDATED] for row in done.curve if VALIDATED in row)
    about = _about(task, version, split, seed, licence, began, before, max(after))
    save_tuned(folder, done.weights, {**about, "data": data, "settings": told, "curve": done.curve}, base)
    remove_unfinished(unfinished)
    return Made(folder, about["metrics"], about["training_seconds"])


def train_heads(
    task: Task,
    version: Version,
    config: Config,
    encoder: Encoder,
    validation: str | None,
    seed: int,
    licence: str,
    folder: Path,
    progress: Progress,
) -> Made:
    """Train heads on a benchmark, in this process, and keep them.

    They are measured against the cosines of the vectors that they read.

    Args:
        task: Asks.
        version: Holds what is asked of.
        config: Its `run.train.epochs` and `.patience` count where they are set; else `HeadTraining` says how long.
        encoder: Of the version.
        validation: The namespace whose questions are held back; see `pipelines.model_training.split_examples`.
        seed: Of all that is drawn.
        licence: Of the benchmark.
        folder: Of the heads alone.
        progress: Told of the training.

    Raises:
        TaskError: The version holds other data, or nothing is left to learn from.
        TrainedModelError: The folder has something else in it.
    """
    check_folder(folder)
    split = _split(task, version, encoder, validation)
    train = unless_set(config.run.train, epochs=HeadTraining().epochs, patience=HeadTraining().patience)
    settings = replace(HeadTraining(), epochs=train.epochs, patience=train.patience)
    held_out = to_turn(split.validation)
    curve: list[dict[str, float]] = []

    def on_epoch(row: Mapping[str, float]) -> bool:
        curve.append(dict(row))
        progress.advance("train", 1)
        return True

    began = time.perf_counter()
    progress.start("train", settings.epochs)
    heads = fit_heads(to_turn(split.training), held_out, settings, seed, on_epoch)
    progress.finish("train")
    before, after = (_recall(one, held_out) for one in (first_heads(heads.dimension, before=0.0), heads))
    about = _about(task, version, split, seed, licence, began, before, after)
    about |= {"data": data_digests(task), "settings": asdict(settings), "curve": curve}
    save_heads(folder, heads, about, encoder.identity.as_dict())
    return Made(folder, about["metrics"], about["training_seconds"])


def check_folder(folder: Path) -> None:
    """Refuse a folder with something else in it than what was tuned, or is being tuned.

    Raises:
        TrainedModelError: Says to name another one.
    """
    # Names with a dot are checkpoints, and what was being written when something ended it.
    if not folder.exists() or all(path.name.startswith(".") for path in folder.iterdir()):
        return
    try:
        is_tuned = read_tuned(folder)["kind"] in (tuned_encoder.KIND, tuned_heads.KIND)
    except (EncoderError, KeyError):
        is_tuned = False
    if not is_tuned:
        raise TrainedModelError(
            f"{folder} holds something else than a tuned encoder or heads, or damaged ones: name a new folder"
        )


def _split(task: Task, version: Version, encoder: Encoder, validation: str | None) -> Split:
    examples = examples_of(Retriever(version, encoder), task.questions, task.groups[task.learned_from])
    return split_examples(examples, validation)


def _by_namespace(examples: Sequence[Example]) -> Iterator[tuple[NamespaceIndex, list[Example]]]:
    own: defaultdict[str, list[Example]] = defaultdict(list)
    for example in examples:
        own[example.namespace].append(example)
    for name in sorted(own):
        yield own[name][0].index, own[name]


def to_tune_on(examples: Sequence[Example]) -> list[TuningExample]:
    """Return what an encoder is tuned on: a question with each turn of its evidence."""
    found = []
    for index, own in _by_namespace(examples):
        texts = context_texts(index.nodes)
        for one in own:
            found += tuning_examples(index, texts, one.query, one.query_id, one.evidence.tolist())
    return found


def _held_out(examples: Sequence[Example]) -> list[HeldOutTurns]:
    return [
        HeldOutTurns(context_texts(index.nodes), [one.query.text for one in own], [one.evidence for one in own])
        for index, own in _by_namespace(examples)
    ]


def to_turn(examples: Sequence[Example]) -> list[HeadExamples]:
    """Return what heads are trained on, by namespace."""
    return [
        HeadExamples(
            np.stack([index.turn_vector(row) for row in range(len(index))]),
            index.session,
            np.stack([finite_vector(one.query, tuned_heads.KIND) for one in own]),
            [one.evidence for one in own],
        )
        for index, own in _by_namespace(examples)
    ]


def _recall(heads: Heads, groups: Sequence[HeadExamples]) -> float:
    """Return the mean share of the evidence among the ten best turns, in percent."""
    found = []
    for group in groups:
        documents = heads.documents(group.vectors, group.session)
        for vector, evidence in zip(group.queries, group.evidence, strict=True):
            best = np.argsort(-(documents @ heads.query(vector)), kind="stable")[:FOUND_WITHIN]
            found.append(np.isin(evidence, best).mean())
    return 100.0 * float(np.mean(found))


def _about(
    task: Task, version: Version, split: Split, seed: int, licence: str, began: float, before: float, after: float
) -> dict[str, Any]:
    """Return what manifests say of both."""
    return {
        "task": task.name,
        "index_version": version.id,
        "licence": licence,
        "seed": seed,
        "split": {**split.about, "questions": len(split.training)},
        "metrics": {
            "questions": len(split.validation),
            "before": {VALIDATED: round(before, 4)},
            "after": {VALIDATED: round(after, 4)},
        },
        "training_seconds": round(time.perf_counter() - began, 2),
    }
